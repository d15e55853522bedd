"""Events of a stream that differ from one before them in their text alone, told without being read.

Most of a stream is of this kind. They are known by an event that has been read and told: by what
stands before and behind its text, in what came and in what was told of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from krouter.dialects.alike import text_in
from krouter.sse import Event

_MOST_TRIES = 4
"""How often in a row to learn in vain: each time costs as much as to read an event."""

_PROBE = b"quite another text"
_find = text_in("content", "text").search
# Texts of JSON that would be written again as they came.
_is_text = re.compile(rb'(?:[^"\\\x00-\x1f]++|\\["\\bfnrt])++').fullmatch


class Echo:
    """Knows such events of one stream. `peek` gives what would be told of an event that does no
    more than go on with the text before, and nothing for any other; it changes nothing."""

    def __init__(self, peek: Callable[[Event], bytes]) -> None:
        self._peek = peek
        self._head = self._tail = self._lead = self._end = b""
        self._tries = 0

    def told(self, chunk: bytes) -> bytes:
        """What is told of a chunk, if it is nothing but events that are like the one learnt, and
        that has come right before them; else empty."""
        head, tail = self._head, self._tail
        if not (head and chunk.startswith(head) and chunk.endswith(tail)):
            return b""
        text = chunk[len(head) : -len(tail)]
        if not _is_text(text):
            text = self._several(text)
        if not text or not (text.isascii() or _is_utf8(text)):
            return b""
        self._tries = 0
        return self._lead + text + self._end

    def _several(self, inside: bytes) -> bytes:
        """What is told between the first lead and the last end, where several events have come."""
        texts = inside.split(self._tail + self._head)
        return (self._end + self._lead).join(texts) if all(map(_is_text, texts)) else b""

    def learn(self, chunk: bytes, event: Event, told: bytes) -> None:
        """`told` is what has been told of `event`, the only one that `chunk` has completed."""
        data = event.data or b""
        if self._tries == _MOST_TRIES or chunk != event.raw or not chunk.endswith(data + b"\n\n"):
            return
        if found := _find(data):
            self._tries += 1
            start, end = found.span(1)
            other = Event(b"", event.name, data[:start] + _PROBE + data[end:])
            lead, probe, behind = self._peek(other).partition(_PROBE)
            if probe and told == lead + found[1] + behind:
                self._head = chunk[: len(chunk) - len(data) - 2 + start]
                self._tail = data[end:] + b"\n\n"
                self._lead, self._end = lead, behind

    def forget(self) -> None:
        """Another event has come: the next text may be told in another way."""
        self._head = b""


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
