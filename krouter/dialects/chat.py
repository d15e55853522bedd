"""OpenAI Chat Completions.

Source: the OpenAI API reference, "Chat Completions" and "Streaming"; gateways' variations of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from krouter.body import Body
from krouter.dialects.base import Kind, Reading, Tracker, Usage, as_count, has_text
from krouter.sse import Event, encode

DONE = b"data: [DONE]\n\n"

# Finish reasons by which a provider says that the model had nothing more to say.
_FINISHED = frozenset(
    [
        "stop",
        "end_turn",
        "stop_sequence",
        "tool_use",
        "tool_calls",
        "function_call",
        "completed",
        "eos",
        "refusal",
    ]
)

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}
_ERROR_CODES = {
    401: "invalid_api_key",
    404: "model_not_found",
    413: "request_too_large",
    429: "rate_limit_exceeded",
}

# The status an error inside a 200 stands for, by the type or code it carries.
_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "resource_exhausted": 429,
    "overloaded_error": 529,
    "service_unavailable": 503,
    "unavailable": 503,
}


class _Choice(msgspec.Struct):
    index: Any = 0
    finish_reason: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: msgspec.Raw | None = None


class _FirstChoice(_Choice):
    delta: dict[str, Any] | None = None


class _FirstChunk(msgspec.Struct):
    choices: list[_FirstChoice] | None = None
    usage: Any = None
    error: msgspec.Raw | None = None


class _ReplyChoice(msgspec.Struct):
    message: dict[str, Any] | None = None
    text: Any = None
    finish_reason: Any = None


class _Reply(msgspec.Struct):
    object: Any = None
    choices: list[_ReplyChoice] | msgspec.UnsetType | None = msgspec.UNSET
    usage: Any = None
    error: msgspec.Raw | None = None


_chunk = msgspec.json.Decoder(_Chunk).decode
_first_chunk = msgspec.json.Decoder(_FirstChunk).decode
_reply = msgspec.json.Decoder(_Reply).decode

_CONTENT = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal")


class ChatTracker:
    """Complete once every choice asked for has a finish reason; closed by `[DONE]`."""

    def __init__(self, wanted: int, rename: str | None, hide_usage: bool) -> None:
        self.started = self.has_content = self.complete = self.closed = False
        self.error = b""
        self.error_status: int | None = None
        self.malformed = 0
        self.usage: Usage | None = None
        self._wanted = wanted
        self._finished: set[Any] = set()
        self._rename = rename
        self._hide_usage = hide_usage

    def feed(self, event: Event) -> bytes | None:
        data = event.data
        if data is None:
            return None
        if data == b"[DONE]":
            self.started = self.closed = True
            return None if self.complete else b""
        try:
            chunk = _chunk(data) if self.has_content else self._first(data)
        except (msgspec.MsgspecError, RecursionError):
            self.malformed += 1
            return b""
        self.started = True
        if event.name == b"error" or _is_error(chunk.error):
            self._fail(data)
            return None
        return self._note(chunk, data)

    def _first(self, data: bytes) -> _FirstChunk:
        chunk = _first_chunk(data)
        deltas = [choice.delta for choice in chunk.choices or () if choice.delta]
        self.has_content = any(delta.get(key) for delta in deltas for key in _CONTENT)
        return chunk

    def _fail(self, data: bytes) -> None:
        self.error, self.error_status = data, _status_of(data)
        self.closed = True

    def _note(self, chunk: _Chunk | _FirstChunk, data: bytes) -> bytes | None:
        for choice in chunk.choices or ():
            if choice.finish_reason:
                self._finished.add(choice.index)
                self.complete = len(self._finished) >= self._wanted
        if chunk.usage is not None:
            self.usage = read_usage(chunk.usage) or self.usage
            if self._hide_usage and not chunk.choices:
                return b""
        return None if self._rename is None else self._renamed(data)

    def _renamed(self, data: bytes) -> bytes:
        return encode(Body.parse(data).edited({"model": self._rename}))


def read_usage(usage: Any) -> Usage | None:
    """`usage` of a reply or chunk; None where it holds no counts."""
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if cached is None:
        cached = usage.get("prompt_cache_hit_tokens")  # DeepSeek's name for it
    return Usage(
        as_count(usage.get("prompt_tokens")),
        as_count(usage.get("completion_tokens")),
        as_count(cached),
    )


def _is_error(error: msgspec.Raw | None) -> bool:
    return error is not None and bytes(error) not in (b"null", b"{}", b'""', b"false")


def _status_of(data: bytes) -> int:
    error = msgspec.json.decode(data).get("error")
    fields = error if isinstance(error, dict) else {}
    code = fields.get("code")
    if isinstance(code, int) and 400 <= code <= 599:
        return code
    names = (str(fields.get(key)).lower() for key in ("type", "code", "status"))
    return next((_STATUS_OF[name] for name in names if name in _STATUS_OF), 500)


class Chat:
    name = "chat"
    paths: tuple[str, ...] = ("/v1/chat/completions",)

    def upstream_edits(self, body: Body) -> dict[str, Any]:
        """Usage is asked for on every stream, so that each one can be counted."""
        if body.value("stream") is not True or _asks_usage(body):
            return {}
        options = body.value("stream_options")
        options = options if isinstance(options, dict) else {}
        return {"stream_options": {**options, "include_usage": True}}

    def tracker(self, body: Body, rename: str | None) -> Tracker:
        wanted = body.value("n")
        count = wanted if isinstance(wanted, int) and wanted > 1 else 1
        return ChatTracker(count, rename, hide_usage=not _asks_usage(body))

    def read_reply(self, raw: bytes) -> Reading:
        try:
            reply = _reply(raw)
        except (msgspec.MsgspecError, RecursionError):
            return Reading(Kind.GARBAGE)
        if _is_error(reply.error):
            return Reading(Kind.ERROR, error=raw, status=_status_of(raw))
        if reply.choices is msgspec.UNSET and reply.object != "chat.completion":
            return Reading(Kind.GARBAGE)
        usage = read_usage(reply.usage)
        choices = reply.choices or ()
        answered = any(map(_is_answer, choices))
        return Reading(Kind.ANSWER if answered else Kind.EMPTY, usage)

    def rename_reply(self, raw: bytes, model: str) -> bytes:
        body = Body.parse(raw)
        return raw if body.value("model") == model else body.edited({"model": model})

    def error_body(self, status: int, message: str, notes: Mapping[str, Any], told: Any) -> bytes:
        error = told.get("error") if isinstance(told, dict) else None
        if not isinstance(error, dict) or not isinstance(error.get("message"), str):
            error = {
                "type": _ERROR_TYPES.get(
                    status, "server_error" if status >= 500 else _ERROR_TYPES[400]
                ),
                "param": None,
                "code": _ERROR_CODES.get(status),
            }
        return msgspec.json.encode({"error": {**error, "message": message, **notes}})

    def error_event(self, status: int, message: str, notes: Mapping[str, Any]) -> bytes:
        return encode(self.error_body(status, message, notes, None))

    def ending(self, tracker: Tracker) -> bytes:
        return b"" if tracker.closed else DONE


def _asks_usage(body: Body) -> bool:
    options = body.value("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _is_answer(choice: _ReplyChoice) -> bool:
    message = choice.message or {}
    said = any(has_text(message.get(key)) for key in (*_CONTENT, "audio"))
    return said or has_text(choice.text) or choice.finish_reason in _FINISHED


CHAT = Chat()
