from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects import get
from krouter.dialects.base import CallError, Kind, Tracker, Usage
from krouter.dialects.stored import stored_field
from krouter.sse import Event
from tests.dialects.streams import JSON, play, shaped
from tests.responses_validator import check_responses_stream
from tests.upstream import Behaviour, Upstream

RESPONSES = get("responses")
BODY = Body.parse(b'{"model":"m","input":"hi","stream":true}')


def tracker(rename: str | None = None) -> Tracker:
    return RESPONSES.tracker(BODY, rename)


def event(kind: str, /, name: str | None = None, **fields: Any) -> bytes:
    """`name` is the event line; by default the type."""
    head = f"event: {kind if name is None else name}\n" if name != "" else ""
    return f"{head}data: {json.dumps({'type': kind, **fields})}\n\n".encode()


RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "in_progress",
    "error": None,
    "incomplete_details": None,
    "instructions": "be good",
    "metadata": {},
    "model": "up",
    "output": [],
    "parallel_tool_calls": True,
    "temperature": 1,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1,
    "usage": None,
}
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 17,
}
PART = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
BEGUN = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
SAID = {**BEGUN, "status": "completed", "content": [{**PART, "text": "hi"}]}
WHOLE = {**RESPONSE, "status": "completed", "output": [SAID], "usage": USAGE}
IN_PART = {"output_index": 0, "item_id": "msg_1", "content_index": 0}

CREATED = event("response.created", sequence_number=0, response=RESPONSE)
ADDED = event(
    "response.output_item.added",
    sequence_number=1,
    output_index=0,
    item={**BEGUN, "status": "in_progress"},
)
OPEN = event("response.content_part.added", sequence_number=2, **IN_PART, part=PART)
HI = event("response.output_text.delta", sequence_number=3, **IN_PART, delta="hi", logprobs=[])
TEXT = event("response.output_text.done", sequence_number=4, **IN_PART, text="hi", logprobs=[])
SHUT = event("response.content_part.done", sequence_number=5, **IN_PART, part=SAID["content"][0])
DONE = event("response.output_item.done", sequence_number=6, output_index=0, item=SAID)
COMPLETED = event("response.completed", sequence_number=7, response=WHOLE)
INCOMPLETE = event(
    "response.incomplete",
    sequence_number=7,
    response={**WHOLE, "status": "incomplete", "incomplete_details": {"reason": "x"}},
)
FAILED = event(
    "response.failed",
    sequence_number=7,
    response={**RESPONSE, "status": "failed", "error": {"code": "server_error", "message": "no"}},
)
BODY_PART = CREATED + ADDED + OPEN + HI
GOOD = BODY_PART + TEXT + SHUT + DONE
BAD = event("error", sequence_number=4, code="rate_limit_exceeded", message="broke", param=None)
NESTED = event(
    "error", sequence_number=4, error={"code": "rate_limit_exceeded", "message": "broke"}
)
COMMENT = b": still here\n\n"
REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}


@pytest.mark.parametrize(
    ("body", "model", "stream"),
    [
        ({"model": "m", "input": "hi"}, "m", False),
        ({"model": "m", "input": [], "stream": True}, "m", True),
        ({"model": "m", "prompt": {"id": "pmpt_1"}}, "m", False),
    ],
)
def test_what_is_asked(body: Any, model: str, stream: bool) -> None:
    parsed = Body.parse(json.dumps(body).encode())
    assert RESPONSES.asked(parsed, "/v1/responses") == (model, stream)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"input": "hi"}, "'model' is missing"),
        ({"model": "m"}, "'input' must be a text or a list"),
        ({"model": "m", "input": {}}, "'input' must be a text or a list"),
        ({"model": "m", "messages": []}, "'input' must be a text or a list"),
        ({"model": "m", "prompt": "p"}, "'prompt' must be an object"),
        ({"model": "m", "input": "hi", "stream": 1}, "'stream' must be true or false"),
    ],
)
def test_what_cannot_be_routed(body: Any, says: str) -> None:
    with pytest.raises(CallError, match=says):
        RESPONSES.asked(Body.parse(json.dumps(body).encode()), "/v1/responses")


REFERENCE = {"type": "item_reference", "id": "rs_1"}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"input": "hi", "store": True}, ""),
        ({"input": "hi", "previous_response_id": None, "background": False}, ""),
        ({"input": [{"role": "user", "content": '"item_reference"'}]}, ""),
        ({"input": [{"role": "user", "content": [{"type": "item_reference"}]}]}, ""),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"input": "hi", "background": True}, "background"),
        ({"input": [{"role": "user", "content": "a"}, REFERENCE]}, "input"),
    ],
)
def test_what_rests_on_a_provider(fields: dict[str, Any], field: str) -> None:
    body = Body.parse(json.dumps(fields).encode())
    assert stored_field("responses", body) == field
    assert stored_field("chat", body) == ""


def reply(output: Any = None, status: Any = None, **fields: Any) -> dict[str, Any]:
    return {"object": "response", "output": output, "status": status, **fields}


CALL = {"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"}


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (reply([SAID], "completed"), Kind.ANSWER),
        (reply([SAID], "incomplete"), Kind.ANSWER),
        (reply([CALL]), Kind.ANSWER),
        (reply([{**CALL, "type": "custom_tool_call"}]), Kind.ANSWER),
        (reply([REASONING], "incomplete"), Kind.ANSWER),
        (reply([{"type": "reasoning", "summary": [{"text": "hm"}]}]), Kind.ANSWER),
        (reply([{**BEGUN, "content": [{"type": "refusal", "refusal": "no"}]}]), Kind.ANSWER),
        (reply([], "completed"), Kind.ANSWER),
        (reply([], "queued"), Kind.ANSWER),
        ({"output": [SAID]}, Kind.ANSWER),
        (reply([]), Kind.EMPTY),
        (reply([], "incomplete"), Kind.EMPTY),
        (reply(None), Kind.EMPTY),
        (reply([{**BEGUN, "content": [{**PART, "text": " \n"}]}]), Kind.EMPTY),
        (reply([{"type": "reasoning", "summary": []}]), Kind.EMPTY),
        (reply([None, "odd", 7], ["completed"]), Kind.EMPTY),
        (reply([], "failed", error={"code": "server_error", "message": "no"}), Kind.ERROR),
        (reply([SAID], "failed"), Kind.ERROR),
        (reply([], "cancelled"), Kind.ERROR),
        ({"error": {"message": "no"}}, Kind.ERROR),
        ({"type": "error", "message": "no"}, Kind.ERROR),
        ({"ok": True}, Kind.GARBAGE),
        ({"output": "text"}, Kind.GARBAGE),
        ({"choices": [], "object": "chat.completion"}, Kind.GARBAGE),
        ([], Kind.GARBAGE),
        (None, Kind.GARBAGE),
    ],
)
def test_what_a_reply_is(told: Any, kind: Kind) -> None:
    assert RESPONSES.read_reply(json.dumps(told).encode()).kind is kind


def test_what_a_reply_tells() -> None:
    raw = json.dumps({**WHOLE, "output": [REASONING, SAID]}).encode()
    reading = RESPONSES.read_reply(raw)
    assert (reading.usage, reading.signed) == (Usage(10, 7, 4, 3), ("sealed",))
    assert json.loads(RESPONSES.rename_reply(raw, "asked"))["model"] == "asked"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("server_error", 500),
        ("rate_limit_exceeded", 429),
        ("insufficient_quota", 429),
        ("server_is_overloaded", 503),
        ("invalid_prompt", 400),
        ("context_length_exceeded", 400),
        ("new_error", 500),
        (["odd"], 500),
    ],
)
def test_the_status_of_a_failure_inside_a_200(code: Any, status: int) -> None:
    response = {**RESPONSE, "status": "failed", "error": {"code": code, "message": "no"}}
    assert RESPONSES.read_reply(json.dumps(response).encode()).status == status
    live = tracker()
    told = event("response.failed", response=response)
    assert play(live, CREATED + told + HI) == CREATED + told
    assert (live.error_status, live.complete, live.closed) == (status, False, True)


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (None, "rate_limit_exceeded"),
        ({"error": {"message": "old", "type": "requests", "code": "slow"}}, "slow"),
        ({"type": "error", "sequence_number": 1, "code": "slow", "message": "old"}, "slow"),
        ({"type": "response.failed", "response": {"error": {"code": "slow"}}}, None),
        (
            {"type": "response.failed", "response": {"error": {"code": "slow", "message": "a"}}},
            "slow",
        ),
    ],
)
def test_an_error_has_openais_form(told: Any, code: str | None) -> None:
    body = json.loads(RESPONSES.error_body(429, "new", {"krouter_route": "1"}, told))
    assert body.keys() == {"error"}
    error = body["error"]
    assert error.items() >= {"message": "new", "param": None, "krouter_route": "1"}.items() or told
    assert error["code"] == (code or "rate_limit_exceeded")
    assert isinstance(error["type"], str)


@given(st.text(), JSON)
def test_any_error_can_be_told(message: str, told: Any) -> None:
    for odd in (told, {"error": told}, {"response": told}, {"sequence_number": told}):
        raw = RESPONSES.error_body(400, message + "\ud83d", {"krouter_route": "r"}, odd)
        assert json.loads(raw)["error"]["message"] == message + "\ud83d"


UNKNOWN = event("response.glow", glow=1)
UNNAMED = GOOD.replace(b"event: ", b": ") + COMPLETED.replace(b"event: ", b": ")
UNTYPED = b'event: response.created\ndata: {"response":{}}\n\n'
UNTYPED += b'event: response.completed\ndata: {"response":{"output":[]}}\n\n'
KEEPALIVE = event("keepalive", sequence_number=1)


@pytest.mark.parametrize(
    ("stream", "passed", "complete", "closed"),
    [
        (GOOD + COMPLETED,) * 2 + (True, True),
        (GOOD + INCOMPLETE,) * 2 + (True, True),
        (GOOD + FAILED,) * 2 + (False, True),
        (GOOD,) * 2 + (False, False),
        (b"",) * 2 + (False, False),
        (KEEPALIVE + b": c\n\n" + GOOD + UNKNOWN + COMPLETED,) * 2 + (True, True),
        (UNNAMED,) * 2 + (True, True),
        (UNTYPED,) * 2 + (True, True),
        (GOOD + COMPLETED + b"data: [DONE]\n\n", GOOD + COMPLETED, True, True),
        (GOOD + b"data: [DONE]\n\n" + COMPLETED, GOOD, False, True),
        (CREATED + b"event: response.completed\ndata: {cut\n\n", CREATED, False, False),
        (CREATED + event("response.completed", response=None), CREATED, False, False),
        (CREATED + b"event: response.completed\ndata: {}\n\n", CREATED, False, False),
        (CREATED + b'data: {"choices":[]}\n\n', CREATED, False, False),
        (CREATED + b"data:\n\n" + GOOD, CREATED + GOOD, False, False),
    ],
)
def test_streams(stream: bytes, passed: bytes, complete: bool, closed: bool) -> None:
    live = tracker()
    assert play(live, stream) == passed
    assert (live.complete, live.closed, RESPONSES.ending(live)) == (complete, closed, b"")


def test_what_is_no_event_of_a_response_starts_nothing() -> None:
    live = tracker()
    play(live, KEEPALIVE + event("codex.rate_limits") + b": c\n\n" + b"data: <html>\n\n")
    assert (live.started, live.malformed) == (False, 1)
    play(live, CREATED)
    assert (live.started, live.has_content) == (True, False)


def item(kind: str, **fields: Any) -> bytes:
    return event(f"response.output_item.{kind}", output_index=0, item=fields)


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        (HI, True),
        (event("response.refusal.delta", delta="no"), True),
        (event("response.reasoning_summary_text.delta", delta="hm"), True),
        (event("response.reasoning_text.delta", delta="hm"), True),
        (event("response.function_call_arguments.delta", delta="{"), True),
        (event("response.custom_tool_call_input.delta", "", delta="{"), True),
        (item("added", **CALL), True),
        (item("added", type="web_search_call"), True),
        (item("done", **SAID), True),
        (item("done", **REASONING), True),
        (ADDED + OPEN, False),
        (item("added", type="reasoning", summary=[]), False),
        (item("done", **BEGUN), False),
        (event("response.output_text.delta", delta=""), False),
        (event("response.in_progress", response=RESPONSE), False),
    ],
)
def test_the_first_content(raw: bytes, content: bool) -> None:
    live = tracker()
    play(live, CREATED + raw)
    assert live.has_content is content


def test_what_a_stream_tells() -> None:
    live = tracker()
    sealed = item("done", **REASONING)
    more = {**REASONING, "encrypted_content": "sealed again"}
    last = event("response.completed", response={**WHOLE, "output": [REASONING, more, SAID]})
    play(live, BODY_PART + sealed + last)
    assert live.usage == Usage(10, 7, 4, 3)
    assert live.signed == ["sealed", "sealed again"]


def test_renaming_touches_the_model_of_responses_only() -> None:
    odd = {**RESPONSE, "instructions": '"model": "up"', "tools": [{"model": "up"}]}
    for kind in ("created", "in_progress", "completed", "incomplete", "failed"):
        told = event(f"response.{kind}", response=odd)
        wanted = event(f"response.{kind}", response={**odd, "model": "asked"})
        assert play(tracker("asked"), HI + told) == HI + wanted
        assert play(tracker("asked"), wanted) == wanted


FAILURES = (
    BAD,
    NESTED,
    b'data: {"error":{"code":"rate_limit_exceeded","message":"broke"}}\n\n',
    b'event: error\ndata: {"code":"rate_limit_exceeded","message":"broke"}\n\n',
    NESTED.replace(b"event: error\n", b"event: message\n"),
)


@pytest.mark.parametrize("told", FAILURES)
@pytest.mark.parametrize("then", [b"", COMPLETED, INCOMPLETE, HI, b"data: [DONE]\n\n"])
def test_an_error_is_followed_by_a_failed_response(told: bytes, then: bytes) -> None:
    live = tracker()
    heard = play(live, BODY_PART + told + then)
    heard += RESPONSES.ending(live)
    assert RESPONSES.ending(live) == b""
    assert heard.startswith(BODY_PART)
    assert (live.error_status, live.complete, live.closed) == (429, False, True)
    if not told.startswith(b"event: message"):
        assert check_responses_stream(heard).ending == "error"
    last = json.loads(heard.split(b"\ndata: ")[-1])
    assert last["sequence_number"] == 5
    assert last["response"].items() >= {"id": "resp_1", "instructions": "be good"}.items()
    error = {"code": "rate_limit_exceeded", "message": "broke"}
    assert last["response"]["error"].items() >= error.items()


@pytest.mark.parametrize("told", [BAD, NESTED])
def test_an_error_that_clients_see_passes_as_it_came(told: bytes) -> None:
    assert play(tracker(), BODY_PART + told) == BODY_PART + told


TOLD = event(
    "response.failed",
    sequence_number=5,
    response={**WHOLE, "status": "failed", "error": {"code": "server_error", "message": "no"}},
)


@pytest.mark.parametrize("told", [BAD, NESTED])
@pytest.mark.parametrize("between", [b"", HI, COMMENT, b"data: {broken\n\n"])
def test_the_providers_own_failed_response_follows_its_error(told: bytes, between: bytes) -> None:
    live = tracker()
    heard = play(live, BODY_PART + told + between + TOLD + COMPLETED)
    assert heard.replace(COMMENT, b"") == BODY_PART + told + TOLD
    assert RESPONSES.ending(live) == b""
    assert (live.usage, live.error_status) == (Usage(10, 7, 4, 3), 429)
    assert (live.complete, live.closed) == (False, True)
    renamed = play(tracker("asked"), BODY_PART + told + TOLD)
    assert json.loads(renamed.split(b"\ndata: ")[-1])["response"]["model"] == "asked"


@pytest.mark.parametrize("told", FAILURES)
def test_an_error_as_the_first_event_closes(told: bytes) -> None:
    live = tracker()
    play(live, told)
    assert (live.error_status, live.closed, RESPONSES.ending(live)) == (429, True, b"")


@pytest.mark.parametrize(
    "so_far", [b"", KEEPALIVE, CREATED, BODY_PART, GOOD, b": c\n\n" + CREATED + KEEPALIVE]
)
@pytest.mark.parametrize("rename", [None, "asked"])
def test_a_stream_that_broke_is_ended(so_far: bytes, rename: str | None) -> None:
    live = tracker(rename)
    heard = play(live, so_far)
    tail = RESPONSES.error_event(502, "cut", {"krouter_route": "1"}, live)
    known = heard.replace(KEEPALIVE, b"")
    assert check_responses_stream(known + tail).ending == "error"
    last = json.loads(tail.split(b"\ndata: ")[-1])
    assert last["response"]["model"] == (rename or ("up" if CREATED in so_far else "m"))
    assert last["response"]["error"]["krouter_route"] == "1"


def test_an_error_before_anything_has_come() -> None:
    tail = RESPONSES.error_event(504, "late", {})
    assert check_responses_stream(tail).ending == "error"
    assert b'"sequence_number":2' in tail


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "invalid_prompt"),
        (402, "insufficient_quota"),
        (429, "rate_limit_exceeded"),
        (500, "server_error"),
        (529, "server_error"),
    ],
)
def test_the_code_of_a_failed_response(status: int, code: str) -> None:
    last = json.loads(RESPONSES.error_event(status, "no", {}).split(b"\ndata: ")[-1])
    assert last["response"]["error"]["code"] == code


@pytest.mark.parametrize(
    "begun",
    [
        event("response.created", response={"id": "resp_1"}),
        event("response.created", response={"id": "\ud83d", "status": 1}),
        b'event: response.created\ndata: {"type":"response.created",\ndata:  "response": {} }\n\n',
        event("response.created", sequence_number=10**30, response={"id": "resp_1"}),
        event("response.created", sequence_number="odd", response={"id": "resp_1"}),
    ],
)
def test_an_odd_response_can_fail_too(begun: bytes) -> None:
    live = tracker()
    play(live, begun)
    tail = RESPONSES.error_event(502, "cut \ud83d", {}, live)
    last = json.loads(
        b"".join(tail.split(b"event: response.failed\ndata: ")[-1].split(b"\ndata: "))
    )
    assert last["response"]["status"] == "failed"
    assert last["sequence_number"] >= 1


NAMES = (
    *("type", "response", "item", "output", "delta", "error", "usage", "model", "status", "id"),
    *("content", "summary", "encrypted_content", "sequence_number", "input_tokens", "text"),
)
KINDS = st.sampled_from(
    [
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.completed",
        "response.failed",
        "error",
        "keepalive",
        "",
    ]
)


@given(st.lists(st.tuples(shaped(*NAMES), KINDS, KINDS)), st.booleans())
def test_nothing_a_provider_streams_raises(told: list[tuple[Any, str, str]], renames: bool) -> None:
    live = tracker("asked" if renames else None)
    for data, kind, name in told:
        raw = json.dumps({"type": kind, **data} if isinstance(data, dict) else data).encode()
        live.feed(Event(b"data: " + raw + b"\n\n", name.encode(), raw))
    assert RESPONSES.error_event(500, "m", {}, live)


@given(st.one_of(shaped(*NAMES).map(lambda told: json.dumps(told).encode()), st.binary()))
def test_nothing_a_provider_replies_raises(raw: bytes) -> None:
    reading = RESPONSES.read_reply(raw)
    assert (reading.kind is Kind.ERROR) == (reading.status is not None)
    RESPONSES.rename_reply(raw, "asked")
    live = tracker("asked")
    live.feed(Event(raw, b"", raw))


def broken(so_far: bytes) -> bytes:
    live = tracker()
    return play(live, so_far) + RESPONSES.error_event(504, "broke", {"krouter_route": "1"}, live)


@pytest.mark.parametrize("raw", [broken(BODY_PART), broken(GOOD), BODY_PART + NESTED + TOLD])
def test_the_openai_sdk_raises_a_failure(upstream: Upstream, raw: bytes) -> None:
    upstream.script("responses-error", [Behaviour(body=raw)])
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k", max_retries=0)
    with client:
        with pytest.raises(openai.APIError, match="broke"):
            list(client.responses.create(model="responses-error", input="hi", stream=True))
        with (
            pytest.raises(openai.APIError, match="broke"),
            client.responses.stream(model="responses-error", input="hi") as stream,
        ):
            stream.get_final_response()


def test_the_openai_sdk_reads_an_error_body(upstream: Upstream) -> None:
    raw = RESPONSES.error_body(529, "too busy", {"krouter_tried": "a: 529"}, None)
    upstream.script("responses-529", [Behaviour(status=529, body=raw)])
    with (
        openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k", max_retries=0) as client,
        pytest.raises(openai.InternalServerError, match="too busy") as caught,
    ):
        client.responses.create(model="responses-529", input="hi")
    assert caught.value.status_code == 529
