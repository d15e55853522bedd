"""OpenAI Responses as a stream: how far it has come, and how one that fails is ended."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from krouter.body import Body, BodyError, dump
from krouter.dialects.base import (
    UNREADABLE,
    Usage,
    as_count,
    error_status,
    has_text,
    read_loosely,
    renamed_within,
    told_message,
)
from krouter.dialects.thinking import signatures_of
from krouter.sse import Event, encode, last_data, named_events

# Events whose data need not be read once content has begun.
_PLAIN = frozenset(
    f"response.{name}".encode()
    for name in (
        "output_item.added",
        "content_part.added",
        "content_part.done",
        "output_text.delta",
        "output_text.done",
        "refusal.delta",
        "refusal.done",
        "reasoning_text.delta",
        "reasoning_text.done",
        "reasoning_summary_part.added",
        "reasoning_summary_part.done",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
    )
)

_plain_events = named_events(_PLAIN)


class _Response(msgspec.Struct):
    model: Any = None
    usage: Any = None


class _Data(msgspec.Struct):
    type: str = ""
    response: _Response | None = None
    item: dict[str, Any] | None = None
    delta: Any = None
    error: Any = None


_data = msgspec.json.Decoder(_Data).decode

_LAST = frozenset(f"response.{name}" for name in ("completed", "incomplete", "failed", "cancelled"))


def _kind_of(data: _Data | None, name: bytes) -> str:
    return "" if data is None else data.type or name.decode("utf-8", "replace")


class ResponsesTracker:
    """Complete after `response.completed` or `response.incomplete`; these and a failure close it.

    After an error event only the provider's own `response.failed` is told, with all that it says
    and counts. Where none has come by the end `rest` gives one, since Codex looks for nothing else.
    An error as the first event closes at once. `model` is what a failed response is said to be of
    if none was begun.
    """

    def __init__(self, model: str, rename: str | None) -> None:
        self.started = self.has_content = self.complete = self.closed = False
        self.error = b""
        self.error_status: int | None = None
        self.malformed = 0
        self.usage: Usage | None = None
        self.signed: list[str] = []
        self._model = model
        self._rename = rename
        self._begun = b""
        self._last = b""
        self._raised: dict[str, Any] = {}

    def feed(self, event: Event) -> bytes | None:
        raw, name = event.data, event.name
        if raw is None:
            return None
        if self.error:
            return self._after_error(event)
        if self.has_content and name in _PLAIN:
            self._last = raw
            return None
        data: _Data | None
        try:
            data = _data(raw)
        except UNREADABLE:
            if not raw:
                return b""
            if raw.startswith(b"[DONE]"):
                self.closed = True
                return b""
            data = read_loosely(raw, _Data)
        if name == b"error" or (data is not None and (data.type == "error" or data.error)):
            return self._fail(data, event)
        kind = _kind_of(data, name)
        if data is None or not kind:
            return self._left_out()
        self._last = raw
        if not kind.startswith("response."):
            return None
        self.started = True
        return self._note(kind, data, event)

    def skim(self, events: bytes) -> int:
        size = 0 if self.error else _plain_events(events)
        if size:
            self._last = last_data(events[:size])
        return size

    def _left_out(self) -> bytes:
        self.malformed += 1
        return b""

    def _note(self, kind: str, data: _Data, event: Event) -> bytes | None:
        raw = event.data or b""
        if data.response is not None:
            self.usage = read_usage(data.response.usage) or self.usage
            self._begun = self._begun or raw
        match kind:
            case "response.completed" | "response.incomplete":
                if data.response is None:
                    return self._left_out()
                self.complete = self.closed = True
                self._sign(raw)
            case "response.failed" | "response.cancelled":
                self._failed_with(raw)
            case "response.output_item.done":
                self.has_content = self.has_content or is_said(data.item)
                self._sign(raw)
            case "response.output_item.added":
                self.has_content = self.has_content or _is_call(data.item)
            case _ if kind.endswith(".delta"):
                self.has_content = self.has_content or bool(data.delta)
        return self._renamed(data, event)

    def _renamed(self, data: _Data, event: Event) -> bytes | None:
        if data.response is None or self._rename in (None, data.response.model):
            return None
        return renamed_within(event, "response", self._rename or "")

    def _sign(self, raw: bytes) -> None:
        """Reasoning is signed when its item is done, and in the whole output again."""
        if b'"encrypted_content"' not in raw:
            return
        told = read_loosely(raw, dict) or {}
        response = told.get("response")
        output = response.get("output") if isinstance(response, dict) else None
        items = output if isinstance(output, list) else [told.get("item")]
        self.signed += [each for each in signatures_of(items) if each not in self.signed]

    def _failed_with(self, raw: bytes) -> None:
        self.error, self.error_status = raw or b"error", error_status(raw)
        self.started = self.closed = True

    def _fail(self, data: _Data | None, event: Event) -> bytes | None:
        """An error event passes as it came where clients see that it is one."""
        raw, begun = event.data or b"", self.started
        self._failed_with(raw)
        self.closed = not begun
        told = error_of(read_loosely(raw, dict))
        status = self.error_status or 500
        error = failure(status, told_message(told, self.error))
        kept = {key: told[key] for key in ("code", "type") if isinstance(told.get(key), str)}
        self._raised = {**error, **kept}
        if data is None or data.type != "error":
            return self._raise(self._raised)
        self._last = raw
        return None

    def _after_error(self, event: Event) -> bytes | None:
        raw = event.data or b""
        data = read_loosely(raw, _Data)
        kind = _kind_of(data, event.name)
        if raw.startswith(b"[DONE]") or (kind in _LAST and kind != "response.failed"):
            return self.rest()
        if data is None or kind != "response.failed" or data.response is None:
            return b""
        self.usage = read_usage(data.response.usage) or self.usage
        self.closed = True
        return self._renamed(data, event)

    def rest(self) -> bytes:
        """The failed response that must follow an error event, where none has."""
        if self.closed or not self.error:
            return b""
        self.closed = True
        return self._response_failed(self._raised)

    def ended(self, error: Mapping[str, Any]) -> bytes:
        """The events that tell of an error from here on, as OpenAI sends them: `error`, which its
        SDKs raise, then `response.failed`. The SDKs take neither before `response.created`."""
        return self._raise(error) + self._response_failed(error)

    def _raise(self, error: Mapping[str, Any]) -> bytes:
        created = b""
        if not self._begun:
            response = {**blank_response(self._rename or self._model), "status": "in_progress"}
            created = self._event("response.created", response=response)
        flat = {key: error.get(key) for key in ("code", "message", "param")}
        return created + self._event("error", **flat, error=error)

    def _response_failed(self, error: Mapping[str, Any]) -> bytes:
        model = {} if self._rename is None else {"model": self._rename}
        response = self._begun_with({"status": "failed", "error": error, **model})
        return self._event("response.failed", response=msgspec.Raw(response))

    def _begun_with(self, changes: dict[str, Any]) -> bytes:
        """The response that was begun, with some fields changed."""
        try:
            response = Body.parse(self._begun).fields["response"]
            return Body.parse(bytes(response)).edited(changes)
        except (BodyError, KeyError):
            return dump({**blank_response(self._model), **changes})

    def _event(self, kind: str, **fields: Any) -> bytes:
        """An event with the number that follows the last one's."""
        last = read_loosely(self._last, dict) or {}
        number = as_count(last.get("sequence_number")) + 1 if self._last else 0
        raw = dump({"type": kind, "sequence_number": number, **fields})
        self._last = raw
        if "response" in fields:
            self._begun = self._begun or raw
        return encode(raw, kind)


def blank_response(model: str) -> dict[str, Any]:
    """A response with all that OpenAI's SDKs ask of one, and nothing in it."""
    return {
        "id": f"resp_{secrets.token_hex(24)}",
        "object": "response",
        "created_at": int(time.time()),
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


# Codex asks again after a server_error, waits after a rate limit, and gives up on the others.
_CODES = {402: "insufficient_quota", 429: "rate_limit_exceeded"}


def failure(status: int, message: str, notes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The error of a failed response."""
    code = _CODES.get(status, "server_error" if status >= 500 else "invalid_prompt")
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"type": kind, "code": code, "message": message, "param": None, **(notes or {})}


def error_of(told: Any) -> dict[str, Any]:
    """The error in an event or a response that tells of one, wherever it stands; empty for none."""
    if not isinstance(told, dict):
        return {}
    for holder in (told, told.get("response")):
        if isinstance(holder, dict) and isinstance(holder.get("error"), dict):
            return dict(holder["error"])
    if isinstance(told.get("error"), str):
        return {"message": told["error"]}
    return {key: told[key] for key in ("code", "message", "param") if told.get(key) is not None}


def read_usage(usage: Any) -> Usage | None:
    """`usage` of a response; None where it holds no counts."""
    if not isinstance(usage, dict):
        return None
    details = usage.get("input_tokens_details")
    details = details if isinstance(details, dict) else {}
    return Usage(
        as_count(usage.get("input_tokens")),
        as_count(usage.get("output_tokens")),
        as_count(details.get("cached_tokens")),
        as_count(details.get("cache_write_tokens")),
    )


def is_said(item: Any) -> bool:
    """Whether an item of the output says something: text, reasoning or a call of a tool."""
    if not isinstance(item, dict):
        return False
    match item.get("type"):
        case "message":
            return has_text(item.get("content"))
        case "reasoning":
            said = (item.get(key) for key in ("summary", "content", "encrypted_content"))
            return any(map(has_text, said))
    return True


def _is_call(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") not in ("message", "reasoning")
