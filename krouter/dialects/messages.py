"""Anthropic Messages.

Source: the Anthropic API reference, "Messages", "Streaming messages" and "Errors".
"""

from __future__ import annotations

from collections.abc import Mapping
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
    renamed_within,
    told_message,
)
from krouter.dialects.thinking import signatures_of
from krouter.sse import Event, encode, named_events

_FINISHED = frozenset(["end_turn", "tool_use", "stop_sequence", "pause_turn", "refusal"])

_TYPE_OF = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_TYPES = frozenset(_TYPE_OF.values())


class _Delta(msgspec.Struct):
    stop_reason: Any = None
    text: Any = None
    thinking: Any = None
    partial_json: Any = None


class _Block(msgspec.Struct):
    type: Any = None
    text: Any = None


class _Message(msgspec.Struct):
    usage: Any = None
    model: Any = None


class _Data(msgspec.Struct):
    type: str = ""
    error: Any = None
    message: _Message | None = None
    delta: _Delta | None = None
    content_block: _Block | None = None
    usage: Any = None


class _Reply(msgspec.Struct):
    type: Any = None
    content: list[Any] | None = None
    stop_reason: Any = None
    usage: Any = None
    error: Any = None


_data = msgspec.json.Decoder(_Data).decode
_reply = msgspec.json.Decoder(_Reply).decode

# Events whose data need not be read once content has begun.
_PLAIN = frozenset((b"content_block_delta", b"content_block_start", b"content_block_stop"))
_plain_events = named_events((*_PLAIN, b"ping"))


class MessagesTracker:
    """Complete after a stop reason and `message_stop`, which closes it."""

    def __init__(self, rename: str | None) -> None:
        self.started = self.has_content = self.complete = self.closed = False
        self.error = b""
        self.error_status: int | None = None
        self.malformed = 0
        self.usage: Usage | None = None
        self.signed: list[str] = []
        self._counts: dict[str, Any] = {}
        self._stop_reason: Any = None
        self._rename = rename

    def feed(self, event: Event) -> bytes | None:
        raw, name = event.data, event.name
        if raw is None or name == b"ping":
            return None
        if self.has_content and name in _PLAIN:
            self._sign(raw)
            return None
        data: _Data | None
        try:
            data = _data(raw)
        except UNREADABLE:
            if not raw:
                return b""
            data = read_loosely(raw, _Data)
        if name == b"error" or (data is not None and (data.type == "error" or data.error)):
            return self._fail(data.error if data else None, event)
        if data is None:
            self.malformed += 1
            return b""
        kind = data.type or name.decode("utf-8", "replace")
        if kind == "ping":
            return None
        self.started = True
        return self._note(kind, data, event)

    def skim(self, events: bytes) -> int:
        return 0 if _is_signed(events) else _plain_events(events)

    def _sign(self, raw: bytes) -> None:
        """Thinking is signed in a delta, or whole in the start of its block."""
        if not _is_signed(raw):
            return
        event = read_loosely(raw, dict) or {}
        delta, block = event.get("delta"), event.get("content_block")
        if isinstance(delta, dict) and delta.get("type") == "signature_delta":
            block = {**delta, "type": "thinking"}
        self.signed += signatures_of([block])

    def _note(self, kind: str, data: _Data, event: Event) -> bytes | None:
        match kind:
            case "message_start":
                return self._start(data, event)
            case "content_block_start" | "content_block_delta":
                self.has_content = self.has_content or _has_content(data)
                self._sign(event.data or b"")
            case "message_delta":
                self._count(data.usage)
                if data.delta and data.delta.stop_reason:
                    self._stop_reason = data.delta.stop_reason
            case "message_stop":
                self.closed = True
                self.complete = self._stop_reason is not None
                return None if self.complete else b""
        return None

    def _fail(self, error: Any, event: Event) -> bytes | None:
        """An error event passes as it came where clients see that it is one."""
        raw = event.data or b""
        self.error, self.error_status = raw or b"error", error_status(raw)
        self.started = self.closed = True
        if event.name == b"error" and isinstance(error, dict):
            return None
        told = read_loosely(raw, dict)
        message = told_message(error or told, self.error)
        return encode(MESSAGES.error_body(self.error_status, message, {}, told), "error")

    def _start(self, data: _Data, event: Event) -> bytes | None:
        message = data.message
        if message is None:
            return None
        if isinstance(message.usage, dict):  # its output tokens are a placeholder
            self._count({**message.usage, "output_tokens": None})
        if self._rename is None or message.model == self._rename:
            return None
        return renamed_within(event, "message", self._rename)

    def _count(self, usage: Any) -> None:
        """The counts of `message_delta` are totals and replace those of `message_start`."""
        if isinstance(usage, dict):
            self._counts.update({key: value for key, value in usage.items() if value is not None})
            self.usage = read_usage(self._counts)


def _is_signed(raw: bytes) -> bool:
    return b'"signature"' in raw or b'"redacted_thinking"' in raw


def _has_content(data: _Data) -> bool:
    if data.content_block is not None:
        return data.content_block.type not in ("text", "thinking") or bool(data.content_block.text)
    delta = data.delta
    return delta is not None and bool(delta.text or delta.thinking or delta.partial_json)


def read_usage(usage: Any) -> Usage | None:
    """`usage` of a message. Anthropic's `input_tokens` leaves out what the cache served."""
    if not isinstance(usage, dict):
        return None
    fresh, output = count_of(usage.get("input_tokens")), count_of(usage.get("output_tokens"))
    if fresh is None and output is None:
        return None
    cached = as_count(usage.get("cache_read_input_tokens"))
    written = as_count(usage.get("cache_creation_input_tokens"))
    partial = fresh is None or output is None
    return Usage((fresh or 0) + cached + written, output or 0, cached, written, partial)


class Messages:
    name = "messages"
    paths: tuple[str, ...] = ("/v1/messages",)
    prefix = ""
    keep_alive = encode(b'{"type": "ping"}', "ping")

    def asked(self, body: Body, path: str) -> Asked:
        return asked_in(body, "messages", "[", "a list of messages")

    def upstream_edits(self, body: Body) -> dict[str, Any]:
        return {}

    def tracker(self, body: Body, rename: str | None) -> Tracker:
        return MessagesTracker(rename)

    def read_reply(self, raw: bytes) -> Reading:
        reply: _Reply | None
        try:
            reply = _reply(raw)
        except UNREADABLE:
            reply = read_loosely(raw, _Reply)
        if reply is None:
            return Reading(Kind.GARBAGE)
        if reply.type == "error" or reply.error:
            return Reading(Kind.ERROR, error=raw, status=error_status(raw))
        if reply.content is None and reply.type != "message":
            return Reading(Kind.GARBAGE)
        answered = any(map(_is_block, reply.content or ())) or _is_finished(reply.stop_reason)
        signed = signatures_of(reply.content or ())
        kind = Kind.ANSWER if answered else Kind.EMPTY
        return Reading(kind, read_usage(reply.usage), signed=signed)

    def rename_reply(self, raw: bytes, model: str) -> bytes:
        return rename(raw, model)

    def error_body(self, status: int, message: str, notes: Mapping[str, Any], told: Any) -> bytes:
        around = told if isinstance(told, dict) else {}
        error = around.get("error")
        kind = error.get("type") if isinstance(error, dict) else None
        if not isinstance(kind, str) or (kind not in _TYPES and kind != "api_error"):
            around, error = {}, {"type": error_type(status)}
        elif around.get("type") != "error":
            error = {**(error or {}), "type": error_type(status)}
        error = {**(error or {}), "message": message, **notes}
        try:
            return dump({"type": "error"} | around | {"type": "error", "error": error})
        except RecursionError:
            return self.error_body(status, message, notes, None)

    def error_event(
        self,
        status: int,
        message: str,
        notes: Mapping[str, Any],
        after: Tracker | None = None,
    ) -> bytes:
        return encode(self.error_body(status, message, notes, None), "error")

    def ending(self, tracker: Tracker) -> bytes:
        return b""


def error_type(status: int) -> str:
    """Anthropic's name for an HTTP status."""
    return _TYPE_OF.get(status, "api_error" if status >= 500 else "invalid_request_error")


def _is_finished(reason: Any) -> bool:
    return isinstance(reason, str) and reason in _FINISHED


def _is_block(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    match block.get("type"):
        case "text":
            return has_text(block.get("text"))
        case "thinking":
            return has_text(block.get("thinking"))
    return True


MESSAGES = Messages()
