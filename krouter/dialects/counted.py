"""A dialect that counts what is said in a stream, and leaves all as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from krouter.body import Body
from krouter.dialects.base import UNREADABLE, Dialect, Tracker
from krouter.sse import Event


class _Delta(msgspec.Struct):
    content: Any = None
    type: Any = None
    text: Any = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    index: Any = 0


class _Part(msgspec.Struct):
    text: Any = None
    thought: Any = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct):
    content: _Content | None = None


class _Piece(msgspec.Struct):
    """An event of any dialect, as far as text may stand in it."""

    type: Any = None
    delta: _Delta | str | None = None
    choices: list[_Choice] | None = None
    candidates: list[_Candidate] | None = None


_decode = msgspec.json.Decoder(_Piece).decode


def length_of(dialect_name: str, data: bytes) -> int:
    """Characters of visible text that one event adds to the first choice of a stream."""
    try:
        piece = _decode(data)
    except UNREADABLE:
        return 0
    return _LENGTHS[dialect_name](piece) if dialect_name in _LENGTHS else 0


def _chat(piece: _Piece) -> int:
    said = (c.delta.content for c in piece.choices or () if c.delta and c.index in (0, None))
    return sum(len(text) for text in said if isinstance(text, str))


def _messages(piece: _Piece) -> int:
    delta = piece.delta
    if not isinstance(delta, _Delta) or delta.type != "text_delta":
        return 0
    return len(delta.text) if isinstance(delta.text, str) else 0


def _responses(piece: _Piece) -> int:
    if piece.type != "response.output_text.delta":
        return 0
    return len(piece.delta) if isinstance(piece.delta, str) else 0


def _gemini(piece: _Piece) -> int:
    content = piece.candidates[0].content if piece.candidates else None
    parts = (content.parts or ()) if content else ()
    return sum(len(p.text) for p in parts if isinstance(p.text, str) and not p.thought)


_LENGTHS: Mapping[str, Callable[[_Piece], int]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": _responses,
    "gemini": _gemini,
}


class Counted:
    """`dialect`, whose latest stream is counted; see `length`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._latest: _Counting | None = None

    @property
    def length(self) -> int | None:
        """Characters of visible text in the latest stream; None where there was none."""
        return self._latest.length if self._latest else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def tracker(self, body: Body, rename: str | None) -> Tracker:
        self._latest = _Counting(self._dialect.name, self._dialect.tracker(body, rename))
        return self._latest

    def error_event(
        self,
        status: int,
        message: str,
        notes: Mapping[str, Any],
        after: Tracker | None = None,
    ) -> bytes:
        return self._dialect.error_event(status, message, notes, _inner(after))

    def ending(self, tracker: Tracker) -> bytes:
        inner = _inner(tracker)
        assert inner is not None
        return self._dialect.ending(inner)


class _Counting:
    def __init__(self, dialect_name: str, tracker: Tracker) -> None:
        self.inner = tracker
        self.length = 0
        self._name = dialect_name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def feed(self, event: Event) -> bytes | None:
        if event.data is not None:
            self.length += length_of(self._name, event.data)
        return self.inner.feed(event)

    def skim(self, events: bytes) -> int:
        return 0  # each event is counted


def _inner(tracker: Tracker | None) -> Tracker | None:
    return tracker.inner if isinstance(tracker, _Counting) else tracker
