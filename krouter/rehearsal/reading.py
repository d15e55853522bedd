"""What a caller makes of the bytes it got: read by the documents of the dialects alone, with
nothing of the code that made them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct


class Came(StrEnum):
    """What a caller has in the end."""

    WHOLE = "whole answer"
    EMPTY = "empty answer"
    CUT = "cut answer"
    ERROR = "error"
    BROKEN = "error event"
    GONE = "caller gone"
    HUNG = "nothing for ever"


class Reading(Struct, frozen=True):
    """A reply as a client reads it. `message` is that of an error, `pings` counts signs of life."""

    came: Came
    text: str = ""
    message: str = ""
    pings: int = 0


@lru_cache(maxsize=1024)
def read_reply(dialect: str, status: int, stream: bool, body: bytes) -> Reading:
    """A reply that is over. `stream` says that it is an event stream, not what was asked for."""
    if stream:
        return _Stream(dialect).read(body)
    try:
        told = msgspec.json.decode(body)
    except msgspec.DecodeError:
        told = None
    if not 200 <= status < 300:
        return Reading(Came.ERROR, message=_message(told))
    if not isinstance(told, dict):
        return Reading(Came.CUT)
    if told.get("error"):
        return Reading(Came.ERROR, message=_message(told))
    text, done = _WHOLE[dialect](told)
    return Reading(Came.WHOLE if text or done else Came.EMPTY, text)


def _message(told: Any) -> str:
    error = told.get("error") if isinstance(told, dict) else None
    if isinstance(error, dict):
        return str(error.get("message") or "")
    return str((told.get("message") if isinstance(told, dict) else None) or error or "")


def _first(items: Any) -> dict[str, Any]:
    return items[0] if isinstance(items, list) and items and isinstance(items[0], dict) else {}


def _joined(parts: Any, key: str = "text") -> str:
    found = parts if isinstance(parts, list) else []
    return "".join(str(part.get(key) or "") for part in found if isinstance(part, dict))


def _whole_chat(told: dict[str, Any]) -> tuple[str, bool]:
    choice = _first(told.get("choices"))
    message = choice.get("message") or {}
    said = str(message.get("content") or "")
    return said, bool(choice.get("finish_reason"))


def _whole_messages(told: dict[str, Any]) -> tuple[str, bool]:
    return _joined(told.get("content")), bool(told.get("stop_reason"))


def _whole_responses(told: dict[str, Any]) -> tuple[str, bool]:
    items = told.get("output") or []
    said = "".join(_joined(item.get("content")) for item in items if isinstance(item, dict))
    return said, told.get("status") in ("completed", "incomplete")


def _whole_gemini(told: dict[str, Any]) -> tuple[str, bool]:
    candidate = _first(told.get("candidates"))
    said = _joined((candidate.get("content") or {}).get("parts"))
    return said, bool(candidate.get("finishReason"))


_WHOLE = {
    "chat": _whole_chat,
    "messages": _whole_messages,
    "responses": _whole_responses,
    "gemini": _whole_gemini,
}


def _events(body: bytes) -> Iterator[str | None]:
    """The data of each event; None for a comment."""
    text = body.decode("utf-8", "replace").replace("\r\n", "\n")
    *events, rest = text.split("\n\n")
    for event in events:
        lines = event.split("\n")
        data = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
        yield "\n".join(data) if data else None
    if rest.strip():
        yield ""  # an event that was cut off


class _Stream:
    """Follows the events of one stream."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._text: list[str] = []
        self._reason = self._closed = self._garbled = False
        self._error: str | None = None
        self._pings = 0

    def read(self, body: bytes) -> Reading:
        take = getattr(self, f"_{self._dialect}")
        for data in _events(body):
            if data is None:
                self._pings += 1
                continue
            if data == "[DONE]":
                self._closed = True
                continue
            try:
                told = msgspec.json.decode(data)
            except msgspec.DecodeError:
                self._garbled = True
                continue
            if isinstance(told, dict):
                take(told)
        return Reading(self._came(), "".join(self._text), self._error or "", self._pings)

    def _came(self) -> Came:
        if self._error is not None:
            return Came.BROKEN
        if self._garbled or not (
            self._reason and (self._closed or self._dialect in ("responses", "gemini"))
        ):
            return Came.CUT
        return Came.WHOLE if any(self._text) else Came.EMPTY

    def _chat(self, told: dict[str, Any]) -> None:
        if told.get("error"):
            self._error = _message(told)
        choice = _first(told.get("choices"))
        self._text.append(str((choice.get("delta") or {}).get("content") or ""))
        self._reason = self._reason or bool(choice.get("finish_reason"))

    def _messages(self, told: dict[str, Any]) -> None:
        match told.get("type"):
            case "ping":
                self._pings += 1
            case "error":
                self._error = _message(told)
            case "content_block_delta":
                self._text.append(str(told["delta"].get("text") or ""))
            case "message_delta":
                self._reason = self._reason or bool(told["delta"].get("stop_reason"))
            case "message_stop":
                self._closed = True

    def _responses(self, told: dict[str, Any]) -> None:
        match told.get("type"):
            case "error":
                self._error = _message(told)
            case "response.failed":
                self._error = _message(told.get("response"))
            case "response.output_text.delta":
                self._text.append(str(told.get("delta") or ""))
            case "response.completed" | "response.incomplete":
                self._reason = True

    def _gemini(self, told: dict[str, Any]) -> None:
        if told.get("error"):
            self._error = _message(told)
        candidate = _first(told.get("candidates"))
        self._text.append(_joined((candidate.get("content") or {}).get("parts")))
        self._reason = self._reason or bool(candidate.get("finishReason"))
