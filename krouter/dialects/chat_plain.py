"""The chunks of a chat that tell no more than their text: most of a stream."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from krouter.dialects.alike import Alike, text_in
from krouter.dialects.base import skimmed


class _PlainChoice(msgspec.Struct, gc=False):
    index: Any = 0
    finish_reason: Literal[""] | None = None
    usage: None = None


class _PlainChunk(msgspec.Struct, gc=False):
    """The fields of a chunk that the tracker reads. One that tells anything is refused."""

    choices: list[_PlainChoice] | None = None
    usage: None = None
    x_groq: None = None
    error: None = None


_plain_chunk = msgspec.json.Decoder(_PlainChunk).decode

# Where the text of a delta stands.
_TEXT = text_in("content", "reasoning_content", "reasoning", "arguments")


class PlainChunks:
    """Finds them in one stream."""

    def __init__(self) -> None:
        self._alike = Alike(_TEXT)

    def size(self, events: bytes) -> int:
        """How many bytes the first of some whole events have, as far as they are plain."""
        size = self._alike.size(events) or self._learned(events)
        return size if size == len(events) else size + skimmed(events[size:], _plain_chunk)[1]

    def _learned(self, events: bytes) -> int:
        """How many bytes of events are like the first of them, if that is plain."""
        first = events[: events.find(b"\n\n") + 2]
        if skimmed(first, _plain_chunk)[1] != len(first):
            return 0
        self._alike.learn(first)
        return self._alike.size(events)
