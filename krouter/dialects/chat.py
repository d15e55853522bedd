"""OpenAI Chat Completions.

Source: the OpenAI API reference, "Chat Completions" and "Streaming"; gateways' variations of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from krouter.body import Body, dump
from krouter.dialects.base import (
    UNREADABLE,
    Asked,
    Kind,
    Reading,
    Tracker,
    Usage,
    as_count,
    asked_in,
    count_of,
    error_status,
    has_text,
    read_loosely,
    rename,
    told_message,
)
from krouter.dialects.chat_plain import PlainChunks
from krouter.sse import Event, encode, with_data

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

# Those by which hosts say that they did not bring the reply to its end: vLLM, DeepSeek, Z.ai,
# OpenRouter.
_FAILED = frozenset(
    ["error", "abort", "aborted", "failed", "insufficient_system_resource", "network_error"]
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


class _Choice(msgspec.Struct):
    index: Any = 0
    finish_reason: Any = None
    usage: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    x_groq: Any = None
    error: Any = None


class _FirstChoice(_Choice):
    delta: dict[str, Any] | None = None
    message: dict[str, Any] | None = None


class _FirstChunk(msgspec.Struct):
    """A chunk read before any content has come, so that content is seen."""

    choices: list[_FirstChoice] | None = None
    usage: Any = None
    x_groq: Any = None
    error: Any = None


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: dict[str, Any] | None = None
    refusal: Any = None
    audio: Any = None


class _ReplyChoice(msgspec.Struct):
    message: _Message | None = None
    text: str | None = None
    finish_reason: Any = None


class _Reply(msgspec.Struct):
    object: Any = None
    choices: list[_ReplyChoice] | msgspec.UnsetType | None = msgspec.UNSET
    usage: Any = None
    error: Any = None


_chunk = msgspec.json.Decoder(_Chunk).decode
_first_chunk = msgspec.json.Decoder(_FirstChunk).decode
_reply = msgspec.json.Decoder(_Reply).decode

_Decode = Callable[[bytes], _Chunk | _FirstChunk]

_CONTENT = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal")
# OpenRouter streams pictures and sealed reasoning beside them.
_IN_DELTAS = (*_CONTENT, "audio", "images", "reasoning_details")


class ChatTracker:
    """Complete once every choice asked for has a finish reason, or `[DONE]` has come and every
    choice begun has one. Closed by `[DONE]`."""

    def __init__(self, wanted: int, rename: str | None, hide_usage: bool) -> None:
        self.started = self.has_content = self.complete = self.closed = False
        self.error = b""
        self.error_status: int | None = None
        self.signed: list[str] = []
        self.malformed = 0
        self.usage: Usage | None = None
        self._wanted = wanted
        self._begun: set[int] = set()
        self._finished: set[int] = set()
        self._rename = rename
        self._hide_usage = hide_usage
        self._plain = PlainChunks()

    def feed(self, event: Event) -> bytes | None:
        data = event.data
        if data is None:
            return None
        chunk: _Chunk | _FirstChunk | None
        decode: _Decode = _chunk if self.has_content else _first_chunk
        try:
            chunk = decode(data)
        except UNREADABLE:
            if data in (b"", b"null"):
                return b""
            if data.startswith(b"[DONE]"):
                return self._done()
            chunk = self._loosely(data)
        if event.name == b"error" or (chunk is not None and chunk.error):
            return self._fail(chunk.error if chunk else None, data)
        if chunk is None:
            self.malformed += 1
            return b""
        self.started = True
        if isinstance(chunk, _FirstChunk):
            self.has_content = _has_content(chunk)
        return self._note(chunk, event)

    def skim(self, events: bytes) -> int:
        is_plain = self._wanted == 1 and self._rename is None
        return self._plain.size(events) if is_plain else 0

    def _loosely(self, data: bytes) -> _Chunk | _FirstChunk | None:
        return read_loosely(data, _Chunk) if self.has_content else read_loosely(data, _FirstChunk)

    def _done(self) -> bytes | None:
        self.started = self.closed = True
        if self._finished and self._begun <= self._finished:
            self.complete = True
        return None if self.complete else b""

    def _fail(self, error: Any, data: bytes) -> bytes | None:
        """An error event passes as it came where clients see that it is one."""
        self.error, self.error_status = data or b"error", error_status(data)
        self.started = self.closed = True
        if error:
            return None
        told = read_loosely(data, dict)
        return CHAT.error_event(self.error_status, told_message(told, self.error), {})

    def _note(self, chunk: _Chunk | _FirstChunk, event: Event) -> bytes | None:
        choices = chunk.choices
        for choice in choices or ():
            if choice.finish_reason and not _has_failed(choice.finish_reason):
                self._finished.add(_index(choice))
                self.complete = len(self._finished) >= self._wanted
            elif self._wanted > 1:
                self._begun.add(_index(choice))
            if choice.usage is not None:  # Moonshot's place for it
                self.usage = read_usage(choice.usage) or self.usage
        if isinstance(chunk.x_groq, dict):
            self.usage = read_usage(chunk.x_groq.get("usage")) or self.usage
        if chunk.usage is not None:
            self.usage = read_usage(chunk.usage) or self.usage
            if self._hide_usage and not choices:
                return b""
        return None if self._rename is None else self._renamed(event)

    def _renamed(self, event: Event) -> bytes:
        return with_data(event, rename(event.data or b"", self._rename or ""))


def _index(choice: _Choice) -> int:
    return choice.index if isinstance(choice.index, int) else 0


def _has_content(chunk: _FirstChunk) -> bool:
    deltas = [said for choice in chunk.choices or () if (said := choice.delta or choice.message)]
    return any(delta.get(key) for delta in deltas for key in _IN_DELTAS)


_UNCACHED = frozenset(("prompt_tokens", "completion_tokens", "total_tokens"))
"""What tells nothing of a cache."""


def read_usage(usage: Any) -> Usage | None:
    """`usage` of a reply or chunk; None where it holds no counts.

    What the provider's cache served or stored goes by several names: `prompt_tokens_details` is
    OpenAI's, `prompt_cache_hit_tokens` DeepSeek's; hosts of Claude keep Anthropic's.
    """
    if not isinstance(usage, dict):
        return None
    prompt, output = count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens"))
    if prompt is None and output is None:
        return None
    if usage.keys() <= _UNCACHED:
        return Usage(prompt or 0, output or 0, partial=prompt is None or output is None)
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    cached = (
        as_count(details.get("cached_tokens"))
        or as_count(usage.get("prompt_cache_hit_tokens"))
        or as_count(usage.get("cache_read_input_tokens"))
    )
    written = (
        as_count(details.get("cache_write_tokens"))
        or as_count(details.get("cache_creation_tokens"))
        or as_count(usage.get("cache_creation_input_tokens"))
    )
    whole = prompt or 0
    if cached + written > whole:  # counted as Anthropic does, beside the rest of the prompt
        whole += cached + written
    return Usage(whole, output or 0, cached, written, prompt is None or output is None)


class Chat:
    name = "chat"
    paths: tuple[str, ...] = ("/v1/chat/completions",)
    prefix = ""
    keep_alive = b": keep-alive\n\n"

    def asked(self, body: Body, path: str) -> Asked:
        return asked_in(body, "messages", "[", "a list of messages")

    def upstream_edits(self, body: Body) -> dict[str, Any]:
        """Usage is asked for on every stream, so that each one can be counted."""
        if body.value("stream") is not True or asks_usage(body):
            return {}
        options = body.value("stream_options")
        options = options if isinstance(options, dict) else {}
        return {"stream_options": {**options, "include_usage": True}}

    def tracker(self, body: Body, rename: str | None) -> Tracker:
        count, hide_usage = wanted_of(body)
        return ChatTracker(count, rename, hide_usage)

    def read_reply(self, raw: bytes) -> Reading:
        reply: _Reply | None
        try:
            reply = _reply(raw)
        except UNREADABLE:
            reply = read_loosely(raw, _Reply)
        if reply is None:
            return Reading(Kind.GARBAGE)
        if reply.error:
            return Reading(Kind.ERROR, error=raw, status=error_status(raw))
        if reply.choices is msgspec.UNSET and reply.object != "chat.completion":
            return Reading(Kind.GARBAGE)
        usage = read_usage(reply.usage)
        choices = reply.choices or ()
        if not all(map(_is_readable, choices)):
            return Reading(Kind.GARBAGE, usage)
        answered = any(map(_is_answer, choices))
        return Reading(Kind.ANSWER if answered else Kind.EMPTY, usage)

    def rename_reply(self, raw: bytes, model: str) -> bytes:
        return rename(raw, model)

    def error_body(self, status: int, message: str, notes: Mapping[str, Any], told: Any) -> bytes:
        around = told if isinstance(told, dict) else {}
        error = around.get("error")
        if not isinstance(error, dict) or not isinstance(error.get("message"), str):
            around, error = {}, {}
        is_foreign = around.get("type") == "error"
        if is_foreign or not isinstance(error.get("type"), str):
            around = {name: value for name, value in around.items() if name != "type"}
            kind = error.get("type") if is_foreign else None
            own = {"type": kind or _error_type(status), "param": None}
            error = {"code": _ERROR_CODES.get(status), **error, **own}
        try:
            return dump({**around, "error": {**error, "message": message, **notes}})
        except RecursionError:
            return self.error_body(status, message, notes, None)

    def error_event(
        self,
        status: int,
        message: str,
        notes: Mapping[str, Any],
        after: Tracker | None = None,
    ) -> bytes:
        return encode(self.error_body(status, message, notes, None))

    def ending(self, tracker: Tracker) -> bytes:
        return b"" if tracker.closed else DONE


def _error_type(status: int) -> str:
    return _ERROR_TYPES.get(status, "server_error" if status >= 500 else _ERROR_TYPES[400])


def wanted_of(body: Body) -> tuple[int, bool]:
    """How many choices a request wants, and whether its stream is to hold no usage."""
    wanted = body.value("n")
    count = wanted if isinstance(wanted, int) and wanted > 1 else 1
    return count, not asks_usage(body)


def said_as_error(text: str) -> str:
    """Chat has no mark for a tool that failed, so the text of its result says it."""
    if not text:
        return "Error"
    return text if text.lstrip(" [<(").lower().startswith("error") else f"Error: {text}"


def asks_usage(body: Body) -> bool:
    """Whether the caller is to be told the usage of a stream."""
    options = body.value("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _is_readable(choice: _ReplyChoice) -> bool:
    """Whether clients can read it as a whole: it did not fail, one that is done has a message, and
    tool calls say what to call."""
    if _has_failed(choice.finish_reason):
        return False
    if choice.message is None:
        return choice.text is not None or not _is_done(choice)
    calls = choice.message.tool_calls or ()
    return all(isinstance(call.get(call.get("type") or "function"), dict) for call in calls)


def _is_answer(choice: _ReplyChoice) -> bool:
    message = choice.message
    if _is_done(choice) or has_text(choice.text):
        return True
    return any(has_text(getattr(message, key, None)) for key in (*_CONTENT, "audio"))


def _has_failed(reason: Any) -> bool:
    return isinstance(reason, str) and reason in _FAILED


def _is_done(choice: _ReplyChoice) -> bool:
    reason = choice.finish_reason
    return isinstance(reason, str) and reason in _FINISHED


CHAT = Chat()
