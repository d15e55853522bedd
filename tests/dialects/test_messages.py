from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects import get
from krouter.dialects.base import Kind, Tracker, Usage
from krouter.sse import Event
from tests.dialects.streams import JSON, play, shaped
from tests.upstream import Behaviour, Upstream

MESSAGES = get("messages")
BODY = Body.parse(b'{"model":"m","max_tokens":9,"messages":[],"stream":true}')


def tracker(rename: str | None = None) -> Tracker:
    return MESSAGES.tracker(BODY, rename)


def reply(content: Any = None, reason: Any = None, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "content": content, "stop_reason": reason, **fields}


def event(kind: str, /, name: str | None = None, **fields: Any) -> bytes:
    """`name` is the event line; by default the type."""
    head = f"event: {kind if name is None else name}\n" if name != "" else ""
    return f"{head}data: {json.dumps({'type': kind, **fields})}\n\n".encode()


def text(said: str) -> bytes:
    delta = {"type": "text_delta", "text": said}
    return event("content_block_delta", index=0, delta=delta)


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "up",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1},
}
START = event("message_start", message=MESSAGE)
OPEN = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
HI = text("hi")
SHUT = event("content_block_stop", index=0)
DELTA = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7})
STOP = event("message_stop")
PING = event("ping")
FAILED = event("error", error={"type": "overloaded_error", "message": "broke"})
BODY_PART = START + OPEN + HI + SHUT


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (reply([{"type": "text", "text": "hi"}]), Kind.ANSWER),
        (reply([{"type": "thinking", "thinking": "hm"}]), Kind.ANSWER),
        (reply([{"type": "redacted_thinking", "data": "x"}]), Kind.ANSWER),
        (reply([{"type": "tool_use", "id": "t", "name": "f", "input": {}}]), Kind.ANSWER),
        (reply([{"type": "text", "text": ""}, {"type": "tool_use"}]), Kind.ANSWER),
        ({"content": [{"type": "text", "text": "no type"}]}, Kind.ANSWER),
        (reply([{"type": "text", "text": "hi"}], error=None), Kind.ANSWER),
        *((reply([], reason), Kind.ANSWER) for reason in ("end_turn", "tool_use", "refusal")),
        *((reply([], reason), Kind.ANSWER) for reason in ("stop_sequence", "pause_turn")),
        (reply([]), Kind.EMPTY),
        (reply(None), Kind.EMPTY),
        (reply([], "max_tokens"), Kind.EMPTY),
        (reply([], ["end_turn"]), Kind.EMPTY),
        (reply([{"type": "text", "text": " \n"}]), Kind.EMPTY),
        (reply([{"type": "text"}]), Kind.EMPTY),
        (reply([{"type": "thinking", "thinking": ""}]), Kind.EMPTY),
        (reply([None, "odd", 7]), Kind.EMPTY),
        ({"type": "message"}, Kind.EMPTY),
        ({"type": "error", "error": {"type": "api_error", "message": "no"}}, Kind.ERROR),
        ({"type": "error"}, Kind.ERROR),
        ({"error": {"message": "no"}}, Kind.ERROR),
        ({"error": "no"}, Kind.ERROR),
        ({"ok": True}, Kind.GARBAGE),
        ({"content": "text"}, Kind.GARBAGE),
        ([], Kind.GARBAGE),
        (None, Kind.GARBAGE),
    ],
)
def test_what_a_reply_is(told: Any, kind: Kind) -> None:
    assert MESSAGES.read_reply(json.dumps(told).encode()).kind is kind


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", Kind.GARBAGE),
        (b" \n", Kind.GARBAGE),
        (b"<html>", Kind.GARBAGE),
        (b'{"type":"message","content":[{"type":"text","text":"cut', Kind.GARBAGE),
        (b'{"type":"message","content":[{"type":"text","text":"\\ud83d"}]}', Kind.ANSWER),
        (b'{"type":"message","content":[{"type":"tool_use","input":{"a":1e999}}]}', Kind.ANSWER),
    ],
)
def test_what_odd_bytes_are(raw: bytes, kind: Kind) -> None:
    assert MESSAGES.read_reply(raw).kind is kind


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("invalid_request_error", 400),
        ("authentication_error", 401),
        ("billing_error", 402),
        ("permission_error", 403),
        ("not_found_error", 404),
        ("request_too_large", 413),
        ("rate_limit_error", 429),
        ("timeout_error", 504),
        ("overloaded_error", 529),
        ("api_error", 500),
        ("new_error", 500),
        (["odd"], 500),
    ],
)
def test_the_status_of_an_error_inside_a_200(kind: Any, status: int) -> None:
    fields = {"error": {"type": kind, "message": "no"}}
    raw = json.dumps({"type": "error", **fields}).encode()
    reading = MESSAGES.read_reply(raw)
    assert (reading.status, reading.error) == (status, raw)
    live = tracker()
    assert play(live, event("error", **fields)) == event("error", **fields)
    assert (live.error, live.error_status, live.closed) == (raw, status, True)


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"input_tokens": 5, "output_tokens": 2}, Usage(5, 2)),
        (
            {
                "input_tokens": 5,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 20,
                "output_tokens": 2,
            },
            Usage(125, 2, 100, 20),
        ),
        ({"input_tokens": "5", "output_tokens": True}, Usage(5, partial=True)),
        ({"input_tokens": 10**40}, None),
        ({}, None),
        (None, None),
        ("odd", None),
    ],
)
def test_usage(usage: Any, read: Usage | None) -> None:
    assert MESSAGES.read_reply(json.dumps(reply([], usage=usage)).encode()).usage == read


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (501, "api_error"),
        (502, "api_error"),
        (503, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_an_error_of_krouters_own(status: int, kind: str) -> None:
    assert json.loads(MESSAGES.error_body(status, "why", {"krouter_route": "1"}, None)) == {
        "type": "error",
        "error": {"type": kind, "message": "why", "krouter_route": "1"},
    }


def test_a_providers_error_keeps_its_fields() -> None:
    told = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "old", "details": {"a": 1}},
        "request_id": "req_1",
    }
    assert json.loads(MESSAGES.error_body(400, "new", {"krouter_tried": "t"}, told)) == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "new",
            "details": {"a": 1},
            "krouter_tried": "t",
        },
        "request_id": "req_1",
    }


def test_an_error_of_chat_takes_this_dialects_form() -> None:
    told = {"error": {"message": "old", "type": "invalid_request_error", "code": "invalid_api_key"}}
    assert json.loads(MESSAGES.error_body(401, "new", {}, told)) == {
        "type": "error",
        "error": {"type": "authentication_error", "message": "new", "code": "invalid_api_key"},
    }


@pytest.mark.parametrize(
    "told", [[], "no", {"error": "no"}, {"error": {"type": "1305", "code": 1}}, {"a": 1}]
)
def test_an_error_of_another_form_is_put_in_this_dialects(told: Any) -> None:
    assert json.loads(MESSAGES.error_body(429, "m", {}, told)) == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "m"},
    }


@given(st.text(), JSON)
def test_any_error_can_be_told(message: str, told: Any) -> None:
    for odd in (told, {"error": told}, {"error": {"type": "api_error", "more": told}}):
        raw = MESSAGES.error_body(400, message + "\ud83d", {"krouter_route": "r"}, odd)
        assert json.loads(raw)["error"]["message"] == message + "\ud83d"


def test_an_error_nested_too_deeply_to_be_kept() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    raw = MESSAGES.error_body(500, "m", {}, {"error": {"type": "api_error", "deep": deep}})
    assert json.loads(raw)["error"] == {"type": "api_error", "message": "m"}


UNKNOWN = event("content_block_glow", index=0, glow=1)
UNNAMED = b"".join(
    event(kind, "", **fields)
    for kind, fields in (
        ("message_start", {"message": MESSAGE}),
        ("content_block_delta", {"delta": {"text": "hi"}}),
        ("message_delta", {"delta": {"stop_reason": "end_turn"}}),
        ("message_stop", {}),
    )
)
UNTYPED = (
    b'event: message_start\ndata: {"message":{}}\n\n'
    b'event: message_delta\ndata: {"delta":{"stop_reason":"end_turn"}}\n\n'
    b"event: message_stop\ndata: {}\n\n"
)


@pytest.mark.parametrize(
    ("stream", "passed", "complete", "closed"),
    [
        (BODY_PART + DELTA + STOP,) * 2 + (True, True),
        (BODY_PART + DELTA,) * 2 + (False, False),
        (BODY_PART + STOP, BODY_PART, False, True),
        (BODY_PART,) * 2 + (False, False),
        (b"",) * 2 + (False, False),
        (PING + b": c\n\n" + BODY_PART + PING,) * 2 + (False, False),
        (UNKNOWN + BODY_PART + UNKNOWN + DELTA + STOP,) * 2 + (True, True),
        (UNNAMED,) * 2 + (True, True),
        (UNTYPED,) * 2 + (True, True),
        (START + b"event: message_delta\ndata: {cut\n\n" + DELTA, START + DELTA, False, False),
        (START + b'data: {"type":7}\n\n' + DELTA, START + DELTA, False, False),
        (START + b"data:\n\n" + DELTA, START + DELTA, False, False),
        (BODY_PART + FAILED + DELTA + STOP, BODY_PART + FAILED, False, True),
        (START + event("message_delta", delta={"stop_reason": {"odd": 1}}) + STOP,) * 2
        + (True, True),
        (BODY_PART + DELTA + STOP + HI, BODY_PART + DELTA + STOP, True, True),
    ],
)
def test_streams(stream: bytes, passed: bytes, complete: bool, closed: bool) -> None:
    live = tracker()
    assert play(live, stream) == passed
    assert (live.complete, live.closed, MESSAGES.ending(live)) == (complete, closed, b"")


def test_pings_and_comments_start_nothing() -> None:
    live = tracker()
    play(live, PING + b": c\n\n" + event("ping", "") + b"data: <html>\n\n")
    assert (live.started, live.malformed) == (False, 1)
    play(live, START)
    assert (live.started, live.has_content) == (True, False)


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        (HI, True),
        (event("content_block_delta", delta={"thinking": "hm"}), True),
        (event("content_block_delta", delta={"partial_json": "{"}), True),
        (event("content_block_start", content_block={"type": "tool_use"}), True),
        (event("content_block_start", content_block={"type": "redacted_thinking"}), True),
        (event("content_block_start", content_block={"type": "text", "text": "a"}), True),
        (OPEN, False),
        (event("content_block_start", content_block={"type": "thinking", "thinking": ""}), False),
        (event("content_block_delta", delta={"text": ""}), False),
        (event("content_block_delta", delta={"signature": "s"}), False),
    ],
)
def test_the_first_content(raw: bytes, content: bool) -> None:
    live = tracker()
    play(live, START + raw)
    assert live.has_content is content


def test_usage_of_a_stream_is_its_last_word() -> None:
    live = tracker()
    play(live, BODY_PART + DELTA + STOP)
    assert live.usage == Usage(15, 7, 5)


@pytest.mark.parametrize(
    "start",
    [
        START,
        START.replace(b"\n", b"\r\n"),
        START.replace(b": ", b":"),
        b'event: message_start\ndata: { "type" : "message_start",\n'
        b'data:  "message": {"usage": {\ndata:  "input_tokens": 1E2}, "model" : "up",\n'
        b'data: "content":[{"model": "up"}] }\ndata: }\n\n',
        b": hello\n" + START,
    ],
)
def test_renaming_touches_message_start_only_and_there_only_the_model(start: bytes) -> None:
    live = tracker("asked")
    rest = text('"model": "up"') + DELTA + STOP
    at = (
        start.rindex(b'"up"', 0, start.find(b'"content":[{'))
        if b"[{" in start
        else start.index(b'"up"')
    )
    wanted = start[:at] + b'"asked"' + start[at + 4 :]
    assert play(live, start + rest) == wanted + rest


@pytest.mark.parametrize(
    "start",
    [
        event("message_start", message={"model": "asked", "usage": {}}),
        event("message_start", message=None),
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"\\ud83d"}}\n\n',
    ],
)
def test_a_start_that_needs_or_bears_no_renaming(start: bytes) -> None:
    assert play(tracker("asked"), start) == start


@pytest.mark.parametrize(
    "odd",
    [
        event("error", "", error={"type": "overloaded_error", "message": "broke"}),
        b'data: {"error":{"type":"overloaded_error","message":"broke"}}\n\n',
        event("error", "message", error={"type": "overloaded_error", "message": "broke"}),
    ],
)
def test_an_error_that_clients_would_not_see_is_named(odd: bytes) -> None:
    live = tracker()
    assert play(live, HI + odd) == HI + MESSAGES.error_event(529, "broke", {})
    assert (live.error_status, live.closed) == (529, True)


@pytest.mark.parametrize(
    "odd",
    [
        b"event: error\ndata: broke\n\n",
        b'event: error\ndata: {"message":"broke"}\n\n',
        b'event: error\ndata: {"error":"broke"}\n\n',
    ],
)
def test_a_named_error_of_no_form_is_given_one(odd: bytes) -> None:
    live = tracker()
    assert play(live, HI + odd) == HI + MESSAGES.error_event(500, "broke", {})
    assert (bool(live.error), live.error_status, live.closed) == (True, 500, True)


NAMES = (
    *("type", "message", "delta", "content_block", "usage", "error", "model", "content", "text"),
    *("stop_reason", "input_tokens", "thinking"),
)
KINDS = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "message_delta",
        "message_stop",
        "error",
        "ping",
        "",
    ]
)


@given(st.lists(st.tuples(shaped(*NAMES), KINDS, KINDS)), st.booleans())
def test_nothing_a_provider_streams_raises(told: list[tuple[Any, str, str]], renames: bool) -> None:
    live = tracker("asked" if renames else None)
    for data, kind, name in told:
        raw = json.dumps({"type": kind, **data} if isinstance(data, dict) else data).encode()
        live.feed(Event(b"data: " + raw + b"\n\n", name.encode(), raw))
    MESSAGES.ending(live)


@given(st.one_of(shaped(*NAMES).map(lambda told: json.dumps(told).encode()), st.binary()))
def test_nothing_a_provider_replies_raises(raw: bytes) -> None:
    reading = MESSAGES.read_reply(raw)
    assert (reading.kind is Kind.ERROR) == (reading.status is not None)
    MESSAGES.rename_reply(raw, "asked")
    live = tracker("asked")
    live.feed(Event(raw, b"", raw))


@pytest.mark.parametrize(
    "tail",
    [
        FAILED,
        MESSAGES.error_event(504, "broke", {"krouter_route": "1"}),
        play(tracker(), event("error", "", error={"message": "broke"})),
        play(tracker(), b"event: error\ndata: broke\n\n"),
    ],
)
def test_the_anthropic_sdk_raises_an_error_event(upstream: Upstream, tail: bytes) -> None:
    upstream.script("messages-error", [Behaviour(body=START + OPEN + HI + tail)])
    client = anthropic.Anthropic(base_url=upstream.url, api_key="k", max_retries=0)
    asked: Any = {"model": "messages-error", "messages": [], "max_tokens": 9}
    with client, client.messages.stream(**asked) as stream:
        assert next(iter(stream.text_stream)) == "hi"
        with pytest.raises(anthropic.APIStatusError, match="broke"):
            stream.get_final_message()


def test_the_anthropic_sdk_reads_an_error_body(upstream: Upstream) -> None:
    raw = MESSAGES.error_body(529, "too busy", {"krouter_tried": "a: 529"}, None)
    upstream.script("messages-529", [Behaviour(status=529, body=raw)])
    with (
        anthropic.Anthropic(base_url=upstream.url, api_key="k", max_retries=0) as client,
        pytest.raises(anthropic.APIStatusError, match="too busy") as caught,
    ):
        client.messages.create(model="messages-529", messages=[], max_tokens=9)
    assert caught.value.status_code == 529
