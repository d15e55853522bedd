from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from krouter.body import Body
from krouter.dialects import get
from krouter.dialects.base import CallError, Kind, Tracker, Usage
from krouter.dialects.gemini_params import gemini_params
from tests.dialects.streams import play, shaped

GEMINI = get("gemini")
COUNTS = {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13}


def body(**fields: Any) -> Body:
    return Body.parse(json.dumps({"contents": [], **fields}).encode())


def tracker(rename: str | None = None, **fields: Any) -> Tracker:
    return GEMINI.tracker(body(**fields), rename)


def reply(*parts: Any, reason: Any = None, **fields: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [{**candidate, "finishReason": reason}], **fields}


def event(data: Any) -> bytes:
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


CALL = {"functionCall": {"name": "f", "args": {}}}


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        ("daily:generateContent", "daily", False),
        ("daily:streamGenerateContent", "daily", True),
        ("openai/gpt-5.1:generateContent", "openai/gpt-5.1", False),
        ("models/daily:generateContent", "daily", False),
        ("google/models/m:generateContent", "google/m", False),
        ("models/google/models/m:generateContent", "google/m", False),
        ("host/acme/models/m:generateContent", "host/acme/models/m", False),
        ("ollama/qwen:7b:streamGenerateContent", "ollama/qwen:7b", True),
    ],
)
def test_the_path_says_what_is_asked(path: str, model: str, stream: bool) -> None:
    assert GEMINI.asked(body(), f"/v1beta/models/{path}") == (model, stream)


@pytest.mark.parametrize(
    ("path", "fields", "status", "says"),
    [
        ("daily:countTokens", {}, 501, "/v1/messages/count_tokens"),
        ("daily:embedContent", {}, 501, "/v1/embeddings"),
        ("daily:batchEmbedContents", {}, 501, "/v1/embeddings"),
        ("daily:predict", {}, 404, "generateContent"),
        ("daily", {}, 404, "generateContent"),
        (":generateContent", {}, 400, "model"),
        ("models/:generateContent", {}, 400, "model"),
        ("daily:generateContent", {"contents": None}, 400, "contents"),
        ("daily:generateContent", {"contents": "hello"}, 400, "contents"),
    ],
)
def test_what_cannot_be_asked(path: str, fields: Any, status: int, says: str) -> None:
    with pytest.raises(CallError, match=says) as refused:
        GEMINI.asked(body(**fields), f"/v1beta/models/{path}")
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (reply({"text": "hi"}), Kind.ANSWER),
        (reply({"text": "hm", "thought": True}), Kind.ANSWER),
        (reply(CALL), Kind.ANSWER),
        (reply({"inlineData": {"mimeType": "image/png", "data": "aa"}}), Kind.ANSWER),
        (reply({"executableCode": {"code": "1"}}), Kind.ANSWER),
        (reply({"text": "hi"}, reason="MAX_TOKENS"), Kind.ANSWER),
        (reply(reason="STOP"), Kind.ANSWER),
        ({"candidates": [{"finishReason": "STOP"}]}, Kind.ANSWER),
        (reply(), Kind.EMPTY),
        (reply({"text": " \n"}), Kind.EMPTY),
        (reply({"thoughtSignature": "s"}), Kind.EMPTY),
        (reply(reason="MAX_TOKENS"), Kind.EMPTY),
        (reply(reason="SAFETY"), Kind.EMPTY),
        (reply(reason="MALFORMED_FUNCTION_CALL"), Kind.EMPTY),
        ({"candidates": []}, Kind.EMPTY),
        ({"candidates": None}, Kind.EMPTY),
        ({"candidates": [{"content": {"role": "model"}}]}, Kind.EMPTY),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, Kind.EMPTY),
        ({"usageMetadata": COUNTS}, Kind.EMPTY),
        ({"modelVersion": "m"}, Kind.EMPTY),
        ({"error": {"code": 429, "message": "slow"}}, Kind.ERROR),
        ({"error": "no"}, Kind.ERROR),
        (reply({"text": "hi"}, error={"message": "no"}), Kind.ERROR),
        ({"ok": True}, Kind.GARBAGE),
        ({"responseId": "r"}, Kind.GARBAGE),
        ({"candidates": "none"}, Kind.GARBAGE),
        ({"candidates": [None]}, Kind.GARBAGE),
        ({"candidates": [{"content": {"parts": {"text": "hi"}}}]}, Kind.GARBAGE),
        ([], Kind.GARBAGE),
        (None, Kind.GARBAGE),
    ],
)
def test_what_a_reply_is(told: Any, kind: Kind) -> None:
    assert GEMINI.read_reply(json.dumps(told).encode()).kind is kind


def test_the_signatures_and_tokens_of_a_reply() -> None:
    counts = {**COUNTS, "thoughtsTokenCount": 5, "cachedContentTokenCount": 3}
    signed = reply({"text": "hi"}, {**CALL, "thoughtSignature": "s"}, usageMetadata=counts)
    reading = GEMINI.read_reply(json.dumps(signed).encode())
    assert (reading.signed, reading.usage) == (("s",), Usage(9, 9, 3))


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        (COUNTS, Usage(9, 4)),
        ({"promptTokenCount": 9, "toolUsePromptTokenCount": 2}, Usage(11)),
        ({"promptTokenCount": "9", "candidatesTokenCount": -1}, Usage(9)),
        (None, None),
        ([], None),
    ],
)
def test_usage(counts: Any, usage: Usage | None) -> None:
    assert GEMINI.read_reply(json.dumps(reply(usageMetadata=counts)).encode()).usage == usage


TEXT = reply({"text": "hi"}, modelVersion="up")
LAST = reply({"text": ""}, reason="STOP", usageMetadata=COUNTS)


def test_a_stream_passes_as_it_came() -> None:
    raw = b"".join(map(event, (TEXT, {**TEXT, "usageMetadata": COUNTS}, LAST)))
    following = tracker()
    assert play(following, raw) == raw
    assert (following.complete, following.closed, following.usage) == (True, False, Usage(9, 4))
    assert GEMINI.ending(following) == b""


@pytest.mark.parametrize(
    ("chunk", "says"),
    [
        (reply({"text": ""}), False),
        (reply({"text": "a"}), True),
        (reply({"text": "a", "thought": True}), True),
        (reply(CALL), True),
        (reply({"inlineData": {"data": "a"}}), True),
        (reply(reason="STOP"), False),
        ({"usageMetadata": COUNTS}, False),
    ],
)
def test_when_content_has_come(chunk: Any, says: bool) -> None:
    following = tracker()
    play(following, event(chunk))
    assert (following.started, following.has_content) == (True, says)


@pytest.mark.parametrize(
    ("fields", "chunks", "complete"),
    [
        ({}, [TEXT], False),
        ({}, [LAST], True),
        ({}, [reply(reason="SAFETY")], True),
        ({}, [LAST, {"usageMetadata": COUNTS}], True),
        ({}, [{"promptFeedback": {"blockReason": "OTHER"}}], True),
        ({}, [{"promptFeedback": {}}], False),
        ({"generationConfig": {"candidateCount": 2}}, [LAST], False),
        (
            {"generationConfig": {"candidateCount": 2}},
            [LAST, {"candidates": [{"index": 1, "finishReason": "STOP"}]}],
            True,
        ),
    ],
)
def test_when_a_stream_is_complete(fields: Any, chunks: list[Any], complete: bool) -> None:
    following = tracker(**fields)
    play(following, b"".join(map(event, chunks)))
    assert following.complete is complete


def test_signatures_are_heard_after_content_too() -> None:
    following = tracker()
    signed = {**CALL, "thoughtSignature": "s"}
    play(following, event(TEXT) + event(reply(signed)) + event(reply({"thoughtSignature": "t"})))
    assert following.signed == ["s", "t"]


def test_comments_and_strangers_are_left_out() -> None:
    following = tracker()
    raw = b": alive\n\n" + event(TEXT) + b":\n\n" + event("nonsense") + event("[DONE]")
    assert play(following, raw) == event(TEXT)
    assert following.malformed == 1


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize(
    "lines",
    [[b"data:%s"], [b": alive", b"data: %s"], [b"id: 7", b"data: %s"], [b"\xef\xbb\xbfdata: %s"]],
    ids=["no space", "a comment", "an id", "a byte order mark"],
)
def test_lines_are_those_that_googles_clients_read(lines: list[bytes], line_end: bytes) -> None:
    given = line_end.join([*lines, b"", b""]) % json.dumps(TEXT).encode()
    assert play(tracker(), given) == event(TEXT)
    assert play(tracker(), event(TEXT)) == event(TEXT)


ERROR = {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize(
    ("raw", "status", "passed"),
    [
        (event(ERROR), 503, True),
        (event([ERROR]), 503, False),
        (event({"error": "busy"}), 500, False),
        (b"event: error\n" + event({"message": "busy"}), 500, False),
    ],
)
def test_errors_in_a_stream(raw: bytes, status: int, passed: bool) -> None:
    following = tracker()
    out = play(following, event(TEXT) + raw + event(LAST)).removeprefix(event(TEXT))
    assert (following.closed, following.complete) == (True, False)
    assert (following.error_status, out == raw) == (status, passed)
    assert json.loads(out.removeprefix(b"data: "))["error"]["message"] == "busy"


def test_the_model_of_a_reply_can_be_renamed() -> None:
    out = play(tracker("daily"), event(TEXT))
    assert out == event({**TEXT, "modelVersion": "daily"})
    renamed = json.loads(GEMINI.rename_reply(json.dumps(TEXT).encode(), "daily"))
    assert renamed == {**TEXT, "modelVersion": "daily"}


DETAILS = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]


@pytest.mark.parametrize(
    ("status", "told", "error"),
    [
        (400, None, {"code": 400, "status": "INVALID_ARGUMENT"}),
        (404, None, {"code": 404, "status": "NOT_FOUND"}),
        (422, None, {"code": 422, "status": "INVALID_ARGUMENT"}),
        (429, None, {"code": 429, "status": "RESOURCE_EXHAUSTED"}),
        (529, None, {"code": 529, "status": "UNAVAILABLE"}),
        (520, None, {"code": 520, "status": "INTERNAL"}),
        (
            429,
            {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": DETAILS}},
            {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": DETAILS},
        ),
        (
            503,
            [{"error": {"code": 503, "message": "x", "status": "UNAVAILABLE"}}],
            {"code": 503, "status": "UNAVAILABLE"},
        ),
        (
            401,
            {"error": {"message": "x", "type": "invalid_request_error", "code": "invalid_api_key"}},
            {"code": 401, "status": "UNAUTHENTICATED"},
        ),
    ],
)
def test_error_bodies(status: int, told: Any, error: dict[str, Any]) -> None:
    made = json.loads(GEMINI.error_body(status, "why", {"krouter_route": "r"}, told))
    assert made == {"error": {**error, "message": "why", "krouter_route": "r"}}


NAMES = (
    "candidates content parts text functionCall thoughtSignature finishReason index error"
    " promptFeedback blockReason usageMetadata promptTokenCount modelVersion message code"
).split()


@given(shaped(*NAMES))
def test_no_json_breaks_the_reading(value: Any) -> None:
    raw = json.dumps(value).encode()
    GEMINI.read_reply(raw)
    following = tracker("daily")
    play(following, event(json.dumps(value)) + event({"candidates": [value]}))
    assert not (following.complete and following.error)


@pytest.mark.parametrize(
    ("params", "complete"),
    [
        ({"n": 1}, True),
        ({"n": 2}, False),
        ({"generationConfig": {"candidateCount": 2}}, False),
        ({"temperature": 1}, True),
    ],
)
def test_a_stream_is_waited_for_as_an_entry_asks_for_it(
    params: dict[str, Any], complete: bool
) -> None:
    call = body()
    asked = Body.parse(call.edited(gemini_params(call, params)))
    following = GEMINI.tracker(asked, None)
    play(following, event(LAST))
    assert following.complete is complete
