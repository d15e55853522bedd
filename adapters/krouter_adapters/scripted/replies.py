"""What the scripted provider sends: answers and errors as bytes of each dialect."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from krouter.script import TEXT, Kind
from krouter.sse import encode
from krouter.wire import Headers
from krouter_adapters.demo import WRITERS, Script

JSON = ("content-type", "application/json")
EVENTS = ("content-type", "text/event-stream; charset=utf-8")
PAGE = (
    ("content-type", "text/html; charset=utf-8"),
    b"<!DOCTYPE html><html><head><title>Gateway</title></head><body>Try again</body></html>",
)
LEAST_WORDS = 4
"""Of an answer that breaks off: fewer might all have been said by then."""

_OPENAI = {
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("permission_error", "permission_denied"),
    404: ("invalid_request_error", "model_not_found"),
    410: ("invalid_request_error", "model_not_found"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
_ANTHROPIC = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    410: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_GOOGLE = {
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    410: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
_FEATURE = {
    "messages": "temperature: Extra inputs are not permitted",
    "gemini": "Invalid JSON payload received. Unknown name \"temperature\" at 'generation_config':"
    " Cannot find field.",
}
_UNSUPPORTED = "Unsupported parameter: 'temperature' is not supported with this model."


class Answer(Struct, frozen=True):
    """What an answer is made from."""

    dialect: str
    model: str
    text: str
    input: int
    output: int | None


@lru_cache(maxsize=4096)
def whole(answer: Answer) -> bytes:
    return _alike(msgspec.json.encode(WRITERS[answer.dialect][0](_script(answer))))


@lru_cache(maxsize=4096)
def halves(answer: Answer) -> tuple[bytes, bytes]:
    """A stream in two pieces, of which the first holds some of the text and not its end."""
    if answer.text.count(" ") < LEAST_WORDS - 1:
        answer = msgspec.structs.replace(answer, text=f"{answer.text} {TEXT}".strip())
    return _streamed(answer)


@lru_cache(maxsize=4096)
def pieces(answer: Answer) -> tuple[bytes, bytes]:
    """A stream in two pieces."""
    return _streamed(answer)


def _streamed(answer: Answer) -> tuple[bytes, bytes]:
    events = [_alike(event) for event in WRITERS[answer.dialect][1](_script(answer))]
    half = (len(events) + 1) // 2
    return b"".join(events[:half]), b"".join(events[half:])


def _script(answer: Answer) -> Script:
    return Script(answer.model, answer.text, answer.input, 1, _CREATED, answer.output)


_DRAWN = re.compile(rb'_[0-9a-f]{24}"')
_MADE = re.compile(rb'"created_at":\d+')
_CREATED = 1_800_000_000


def _alike(raw: bytes) -> bytes:
    """The same bytes for the same answer: without ids that are drawn and times that pass."""
    return _MADE.sub(b'"created_at":%d' % _CREATED, _DRAWN.sub(b'_scripted_1"', raw))


@lru_cache(maxsize=256)
def hollow(dialect: str, model: str) -> bytes:
    """A JSON reply with nothing in it, which does not even say that it is done."""
    told: dict[str, Any]
    match dialect:
        case "messages":
            told = {"type": "message", "role": "assistant", "content": [], "stop_reason": None}
        case "responses":
            told = {"object": "response", "status": None, "output": []}
        case "gemini":
            return msgspec.json.encode({"candidates": [], "modelVersion": model})
        case _:
            told = {"object": "chat.completion", "choices": []}
    return msgspec.json.encode({"id": "scripted_1", "model": model, **told})


@lru_cache(maxsize=256)
def hollow_events(dialect: str, model: str) -> bytes:
    """A stream that ends as it should with nothing in it."""
    script = Script(model, "", 1, 1, _CREATED, 0)
    return b"".join(map(_alike, WRITERS[dialect][1](script)))


@lru_cache(maxsize=1024)
def error(dialect: str, kind: Kind, reset: float | None) -> bytes:
    """The body of an error, in the dialect's own form."""
    return msgspec.json.encode(_error(dialect, kind, reset))


def _error(dialect: str, kind: Kind, reset: float | None) -> dict[str, Any]:
    told: dict[str, Any]
    status, message = kind.status, kind.message
    if kind.how == "feature":
        message = _FEATURE.get(dialect, _UNSUPPORTED)
    if dialect == "messages":
        usual = _ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
        told = {"type": kind.anthropic or usual, "message": message}
        return {"type": "error", "error": told, "request_id": "req_scripted_1"}
    if dialect == "gemini":
        usual = _GOOGLE.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
        told = {"code": status, "message": message, "status": kind.google or usual}
        if reset is not None:
            delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo"}
            return {"error": {**told, "details": [{**delay, "retryDelay": f"{reset:g}s"}]}}
        return {"error": told}
    plain = ("server_error",) * 2 if status >= 500 else ("invalid_request_error", "invalid_value")
    sort, code = kind.openai if kind.openai[0] else _OPENAI.get(status, plain)
    return {"error": {"message": message, "type": sort, "param": None, "code": code}}


def error_headers(kind: Kind, reset: float | None) -> Headers:
    if kind.how == "page":
        return [PAGE[0]]
    return [JSON] if reset is None else [JSON, ("retry-after", f"{reset:g}")]


@lru_cache(maxsize=1024)
def error_event(dialect: str, kind: Kind) -> bytes:
    """An error inside a stream."""
    told = _error(dialect, kind, None)
    if dialect == "responses":
        told = {"type": "error", "sequence_number": 99, **told}
    name = "error" if dialect in ("messages", "responses") else ""
    return encode(msgspec.json.encode(told), name)


def ping(dialect: str) -> bytes:
    """A sign of life in a stream."""
    return encode(b'{"type":"ping"}', "ping") if dialect == "messages" else b": ping\n\n"
