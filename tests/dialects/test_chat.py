from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects import get
from krouter.dialects.base import Kind, Tracker, Usage
from krouter.sse import Event
from tests.dialects.streams import JSON, play, shaped
from tests.upstream import Behaviour, Upstream

CHAT = get("chat")
DONE = b"data: [DONE]\n\n"


def body(**fields: Any) -> Body:
    return Body.parse(json.dumps({"model": "m", "messages": [], "stream": True, **fields}).encode())


def tracker(rename: str | None = None, **fields: Any) -> Tracker:
    return CHAT.tracker(body(**fields), rename)


def reply(message: Any = None, reason: Any = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"object": "chat.completion", "choices": [choice], **fields}


def says(delta: Any = None, reason: Any = None, index: Any = 0, **fields: Any) -> bytes:
    choice = {"index": index, "delta": delta or {}, "finish_reason": reason}
    return event({"id": "c", "model": "up", "choices": [choice], **fields})


def event(data: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (reply({"content": "hi"}), Kind.ANSWER),
        (reply({"content": [{"type": "text", "text": "hi"}]}), Kind.ANSWER),
        (reply({"content": [{"type": "image_url", "image_url": {}}]}), Kind.ANSWER),
        (reply({"content": None, "reasoning_content": "hm"}), Kind.ANSWER),
        (reply({"content": "", "reasoning": "hm"}, "length"), Kind.ANSWER),
        (reply({"content": None, "tool_calls": [{"id": "1", "function": {}}]}), Kind.ANSWER),
        (reply({"tool_calls": [{"type": "custom", "custom": {"name": "f"}}]}), Kind.ANSWER),
        (reply({"content": None, "function_call": {"name": "f"}}), Kind.ANSWER),
        (reply({"content": None, "refusal": "no"}), Kind.ANSWER),
        (reply({"content": None, "audio": {"id": "a"}}), Kind.ANSWER),
        ({"choices": [{"text": "legacy"}]}, Kind.ANSWER),
        *((reply({"content": ""}, reason), Kind.ANSWER) for reason in ("stop", "tool_calls")),
        *((reply({"content": ""}, reason), Kind.ANSWER) for reason in ("end_turn", "completed")),
        ({"choices": [{}, {"message": {"content": "second"}}]}, Kind.ANSWER),
        (reply({"content": ""}), Kind.EMPTY),
        (reply({"content": " \n"}), Kind.EMPTY),
        (reply({"content": None}), Kind.EMPTY),
        (reply({}), Kind.EMPTY),
        (reply(None), Kind.EMPTY),
        (reply({"content": ""}, "length"), Kind.EMPTY),
        (reply({"content": ""}, "content_filter"), Kind.EMPTY),
        (reply({"content": [], "tool_calls": [], "function_call": {}}), Kind.EMPTY),
        (reply({"content": [{"type": "text", "text": ""}]}), Kind.EMPTY),
        (reply({"content": ""}, ["stop"]), Kind.EMPTY),
        ({"object": "chat.completion", "choices": []}, Kind.EMPTY),
        ({"object": "chat.completion", "choices": None}, Kind.EMPTY),
        ({"object": "chat.completion"}, Kind.EMPTY),
        ({"choices": [], "error": None}, Kind.EMPTY),
        ({"choices": [], "error": {}}, Kind.EMPTY),
        ({"error": {"message": "no", "code": 429}}, Kind.ERROR),
        ({"error": "no"}, Kind.ERROR),
        (reply({"content": "hi"}, error={"message": "no"}), Kind.ERROR),
        ({"ok": True}, Kind.GARBAGE),
        ({"choices": "none"}, Kind.GARBAGE),
        ({"choices": [None]}, Kind.GARBAGE),
        (reply(None, "stop"), Kind.GARBAGE),
        (reply("hi"), Kind.GARBAGE),
        (reply({"content": 5}), Kind.GARBAGE),
        (reply({"content": {"text": "hi"}}), Kind.GARBAGE),
        (reply({"tool_calls": {"id": "1"}}), Kind.GARBAGE),
        (reply({"tool_calls": [None]}), Kind.GARBAGE),
        (reply({"content": "hi", "tool_calls": [{"id": "1"}]}), Kind.GARBAGE),
        (reply({"tool_calls": [{"id": "1", "function": None}]}), Kind.GARBAGE),
        ([], Kind.GARBAGE),
        (None, Kind.GARBAGE),
    ],
)
def test_what_a_reply_is(told: Any, kind: Kind) -> None:
    assert CHAT.read_reply(json.dumps(told).encode()).kind is kind


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", Kind.GARBAGE),
        (b" \n", Kind.GARBAGE),
        (b"<html>", Kind.GARBAGE),
        (b'{"choices":[{"message":{"content":"cut', Kind.GARBAGE),
        (b'{"choices":[{"message":{"content":"\\ud83d"}}]}', Kind.ANSWER),
        (b'{"choices":[{"message":{"content":"a"},"logprobs":-Infinity}]}', Kind.ANSWER),
        (b'{"choices":[{"message":{"content":"a","x":1e999}}]}', Kind.ANSWER),
        (b'{"choices":[{"message":{"content":' + b"[" * 400 + b"]" * 400 + b"}}]}", Kind.ANSWER),
        (b'{"choices":' + b"[" * 90_000, Kind.GARBAGE),
    ],
)
def test_what_odd_bytes_are(raw: bytes, kind: Kind) -> None:
    assert CHAT.read_reply(raw).kind is kind


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": 503}, 503),
        ({"code": "429"}, 429),
        ({"code": 42}, 500),
        ({"code": "9" * 5000}, 500),
        ({"type": "rate_limit_error"}, 429),
        ({"type": "error", "code": "insufficient_quota"}, 429),
        ({"status": "RESOURCE_EXHAUSTED"}, 429),
        ({"type": "overloaded_error"}, 529),
        ({"type": "invalid_request_error", "code": None}, 400),
        ({"type": ["x"], "code": {}, "status": None}, 500),
        ("no", 500),
    ],
)
def test_the_status_of_an_error_inside_a_200(error: Any, status: int) -> None:
    raw = json.dumps({"error": error}).encode()
    assert CHAT.read_reply(raw).status == status
    assert CHAT.read_reply(raw).error == raw
    live = tracker()
    play(live, event({"error": error}))
    assert (live.error, live.error_status, live.closed) == (raw, status, True)


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(5, 2)),
        (
            {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}},
            Usage(5, 0, 3, partial=True),
        ),
        ({"prompt_tokens": 5, "prompt_cache_hit_tokens": 4}, Usage(5, 0, 4, partial=True)),
        ({"prompt_tokens": "5", "completion_tokens": 7.0}, Usage(5, 7)),
        ({"prompt_tokens": "five", "completion_tokens": -1}, None),
        ({"total_tokens": 40}, None),
        (
            {"prompt_tokens": 100, "completion_tokens": 1, "prompt_cache_hit_tokens": 900},
            Usage(1000, 1, 900),
        ),
        ({"prompt_tokens": True, "completion_tokens": 10**40}, None),
        ({"prompt_tokens_details": [1]}, None),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": 4}},
            Usage(9, 0, 0, 4, partial=True),
        ),
        (
            {
                "prompt_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 0},
                "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 4,
            },
            Usage(9, 0, 3, 4, partial=True),
        ),
        ({}, None),
        (None, None),
        ([1], None),
    ],
)
def test_usage(usage: Any, read: Usage | None) -> None:
    assert CHAT.read_reply(json.dumps(reply({"content": "a"}, usage=usage)).encode()).usage == read


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None),
        (401, "authentication_error", "invalid_api_key"),
        (402, "billing_error", None),
        (403, "permission_error", None),
        (404, "invalid_request_error", "model_not_found"),
        (413, "invalid_request_error", "request_too_large"),
        (422, "invalid_request_error", None),
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (502, "server_error", None),
        (529, "server_error", None),
    ],
)
def test_an_error_of_krouters_own(status: int, kind: str, code: str | None) -> None:
    assert json.loads(CHAT.error_body(status, "why", {"krouter_route": "1"}, None)) == {
        "error": {
            "message": "why",
            "type": kind,
            "param": None,
            "code": code,
            "krouter_route": "1",
        }
    }


def test_a_providers_error_keeps_its_fields() -> None:
    told = {"error": {"message": "old", "code": 7, "metadata": {"a": 1}}, "user_id": "u"}
    assert json.loads(CHAT.error_body(429, "new", {"krouter_tried": "t"}, told)) == {
        "error": {
            "message": "new",
            "type": "rate_limit_error",
            "param": None,
            "code": 7,
            "metadata": {"a": 1},
            "krouter_tried": "t",
        },
        "user_id": "u",
    }


def test_an_error_of_messages_takes_this_dialects_form() -> None:
    told = {
        "type": "error",
        "error": {"type": "authentication_error", "message": "old"},
        "request_id": "req_1",
    }
    assert json.loads(CHAT.error_body(401, "new", {}, told)) == {
        "error": {
            "message": "new",
            "type": "authentication_error",
            "param": None,
            "code": "invalid_api_key",
        },
        "request_id": "req_1",
    }


@pytest.mark.parametrize("told", [[], "no", {"error": "no"}, {"error": {"message": 1}}, {"a": 1}])
def test_an_error_of_another_form_is_put_in_this_dialects(told: Any) -> None:
    assert json.loads(CHAT.error_body(429, "m", {}, told))["error"]["type"] == "rate_limit_error"


@given(st.text(), JSON)
def test_any_error_can_be_told(message: str, told: Any) -> None:
    for odd in (told, {"error": told}, {"error": {"message": "m", "more": told}}):
        raw = CHAT.error_body(400, message + "\ud83d", {"krouter_route": "r"}, odd)
        assert json.loads(raw)["error"]["message"] == message + "\ud83d"


def test_an_error_nested_too_deeply_to_be_kept() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    raw = CHAT.error_body(500, "m", {}, {"error": {"message": "m", "deep": deep}})
    assert json.loads(raw)["error"]["type"] == "server_error"


FIRST = says({"role": "assistant", "content": ""})
HI = says({"content": "hi"})
STOP = says(reason="stop")
USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})
HALF = b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'
FAILED = event({"error": {"message": "broke", "type": "rate_limit_error"}})


@pytest.mark.parametrize(
    ("stream", "passed", "complete", "closed"),
    [
        (FIRST + HI + STOP + DONE, FIRST + HI + STOP + DONE, True, True),
        (FIRST + HI + STOP, FIRST + HI + STOP, True, False),
        (FIRST + HI + STOP + event("[DONE] "), FIRST + HI + STOP + event("[DONE] "), True, True),
        (FIRST + HI + DONE, FIRST + HI, False, True),
        (FIRST + HI, FIRST + HI, False, False),
        (DONE, b"", False, True),
        (b"", b"", False, False),
        (b": one\n\n" + HI + b":\n\n", b": one\n\n" + HI + b":\n\n", False, False),
        (HI + STOP + USAGE + DONE, HI + STOP + DONE, True, True),
        (HI + b"data: {broken\n\n" + STOP, HI + STOP, True, False),
        (HI + b"data: [1]\n\n" + STOP, HI + STOP, True, False),
        (HI + event({"choices": 1}) + STOP, HI + STOP, True, False),
        (HI + b"data:\n\ndata: \n\n" + STOP, HI + STOP, True, False),
        (HALF + HALF + STOP, HALF + HALF + STOP, True, False),
        (HI + event({"object": "new.thing"}) + STOP,) * 2 + (True, False),
        (says({"content": "a"}, "stop", ["odd"]),) * 2 + (True, False),
        (says({"content": "a"}, {"odd": 1}),) * 2 + (True, False),
        (says({"content": "a"}, ""),) * 2 + (False, False),
        (HI + FAILED + HI + STOP, HI + FAILED, False, True),
        (STOP + DONE + HI, STOP + DONE, True, True),
    ],
)
def test_streams(stream: bytes, passed: bytes, complete: bool, closed: bool) -> None:
    live = tracker()
    assert play(live, stream) == passed
    assert (live.complete, live.closed) == (complete, closed)
    assert CHAT.ending(live) == (b"" if closed else DONE)


@pytest.mark.parametrize(
    ("stream", "complete"),
    [
        (says({}, "stop", 0) + says({}, "stop", 1), True),
        (says({"content": "a"}, None, 0) + says({}, "stop", 0), False),
        (says({"content": "a"}, None, 0) + says({}, "stop", 0) + DONE, True),
        (says({}, "stop", 0) + says({"content": "a"}, None, 1) + DONE, False),
        (says({}, "stop", 0) + says({"content": "a"}, None, 1) + says({}, "stop", 1), True),
        (says({"content": "a"}, None, 1) + DONE, False),
    ],
)
def test_several_choices_end_when_each_has(stream: bytes, complete: bool) -> None:
    live = tracker(n=2)
    play(live, stream)
    assert live.complete is complete


@pytest.mark.parametrize(
    ("delta", "content"),
    [
        ({"content": "a"}, True),
        ({"reasoning_content": "a"}, True),
        ({"reasoning": "a"}, True),
        ({"tool_calls": [{"index": 0}]}, True),
        ({"function_call": {"name": "a"}}, True),
        ({"refusal": "a"}, True),
        ({"audio": {"id": "a"}}, True),
        ({"images": [{"type": "image_url"}]}, True),
        ({"reasoning_details": [{"type": "reasoning.encrypted"}]}, True),
        ({"role": "assistant", "content": "", "tool_calls": None}, False),
    ],
)
def test_the_first_content(delta: Any, content: bool) -> None:
    live = tracker()
    play(live, says(delta))
    assert (live.started, live.has_content) == (True, content)


def test_malformed_events_are_counted_and_start_nothing() -> None:
    live = tracker()
    assert play(live, b"data: <html>\n\n: c\n\ndata:\n\n") == b": c\n\n"
    assert (live.started, live.malformed) == (False, 1)


@pytest.mark.parametrize(
    ("options", "hidden"),
    [
        ({}, True),
        ({"stream_options": None}, True),
        ({"stream_options": {"include_usage": False}}, True),
        ({"stream_options": {"include_usage": True}}, False),
    ],
)
def test_a_usage_chunk_is_counted_and_kept_from_who_did_not_ask(
    options: dict[str, Any], hidden: bool
) -> None:
    live = tracker(**options)
    assert play(live, HI + USAGE) == (HI if hidden else HI + USAGE)
    assert live.usage == Usage(3, 1)


def test_usage_beside_a_choice_or_null_usage_hides_nothing() -> None:
    stream = says({"content": "a"}, usage={"prompt_tokens": 9}) + event(
        {"choices": [], "usage": None, "prompt_filter_results": []}
    )
    live = tracker()
    assert play(live, stream) == stream
    assert live.usage == Usage(9, partial=True)


@pytest.mark.parametrize(
    ("fields", "edits"),
    [
        ({}, {"stream_options": {"include_usage": True}}),
        ({"stream_options": {"x": 1}}, {"stream_options": {"x": 1, "include_usage": True}}),
        ({"stream_options": "odd"}, {"stream_options": {"include_usage": True}}),
        ({"stream_options": {"include_usage": True, "x": 1}}, {}),
        ({"stream": False}, {}),
        ({"stream": None}, {}),
    ],
)
def test_usage_is_asked_for(fields: dict[str, Any], edits: dict[str, Any]) -> None:
    assert CHAT.upstream_edits(body(**fields)) == edits


def test_renaming_changes_the_model_and_no_other_byte() -> None:
    stream = b': c\r\n\r\ndata:{"id" : 1E5,\r\ndata: "model": "up", "choices":[]}\r\n\r\n'
    wanted = stream.replace(b'"up"', b'"asked"')
    assert play(tracker("asked"), stream) == wanted
    assert CHAT.rename_reply(b'{ "a":1E5,\n "model" : "up" }', "x") == (
        b'{ "a":1E5,\n "model" : "x" }'
    )
    assert CHAT.rename_reply(b'{"model":"x" }', "x") == b'{"model":"x" }'
    assert play(tracker("asked"), HALF) == HALF


@pytest.mark.parametrize(
    "odd",
    [
        event({"message": "broke"}, "error"),
        event({"error": None, "message": "broke"}, "error"),
        event("broke", "error"),
    ],
)
def test_a_named_error_of_no_form_is_given_one(odd: bytes) -> None:
    live = tracker()
    told = play(live, HI + odd).removeprefix(HI)
    assert json.loads(told.removeprefix(b"data: "))["error"]["message"] == "broke"
    assert (bool(live.error), live.error_status, live.closed) == (True, 500, True)


NAMES = (
    *(
        "choices",
        "delta",
        "message",
        "finish_reason",
        "index",
        "usage",
        "error",
        "model",
        "content",
    ),
    *("code", "type", "tool_calls", "prompt_tokens", "prompt_tokens_details", "text", "object"),
)


@given(st.lists(st.tuples(shaped(*NAMES), st.sampled_from([b"", b"error", b"x"]))), st.booleans())
def test_nothing_a_provider_streams_raises(told: list[tuple[Any, bytes]], renames: bool) -> None:
    live = tracker("asked" if renames else None, n=2)
    for data, name in told:
        raw = json.dumps(data).encode()
        live.feed(Event(b"data: " + raw + b"\n\n", name, raw))
    CHAT.ending(live)


@given(st.one_of(shaped(*NAMES).map(lambda told: json.dumps(told).encode()), st.binary()))
def test_nothing_a_provider_replies_raises(raw: bytes) -> None:
    reading = CHAT.read_reply(raw)
    assert (reading.kind is Kind.ERROR) == (reading.status is not None)
    CHAT.rename_reply(raw, "asked")
    live = tracker("asked")
    live.feed(Event(raw, b"", raw))


@pytest.mark.parametrize(
    "tail",
    [
        FAILED,
        CHAT.error_event(504, "broke", {"krouter_route": "1"}),
        play(tracker(), event({"message": "broke"}, "error")),
    ],
)
def test_the_openai_sdk_raises_an_error_event(upstream: Upstream, tail: bytes) -> None:
    upstream.script("chat-error", [Behaviour(body=HI + tail)])
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k", max_retries=0)
    with (
        client,
        client.chat.completions.create(model="chat-error", messages=[], stream=True) as stream,
    ):
        assert next(stream).choices[0].delta.content == "hi"
        with pytest.raises(openai.APIError, match="broke"):
            next(stream)


def test_the_openai_sdk_reads_an_error_body(upstream: Upstream) -> None:
    raw = CHAT.error_body(429, "slow down", {"krouter_tried": "a: 429"}, None)
    upstream.script("chat-429", [Behaviour(status=429, body=raw)])
    with (
        openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k", max_retries=0) as client,
        pytest.raises(openai.RateLimitError, match="slow down") as caught,
    ):
        client.chat.completions.create(model="chat-429", messages=[])
    assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "rate_limit_error")


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
def test_a_reply_that_its_provider_calls_failed_is_not_whole(reason: str) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": reason}
    assert CHAT.read_reply(json.dumps({"choices": [choice]}).encode()).kind is Kind.GARBAGE
    live = tracker()
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    begun = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
    play(live, event(begun) + event(end) + event("[DONE]"))
    assert (live.complete, live.closed) == (False, True)
