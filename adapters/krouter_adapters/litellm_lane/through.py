"""Streams read by one machine and told by another, with chunks of chat between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from krouter_adapters.litellm_lane.translate.chat_blocks import ChatBlocks
from krouter_adapters.litellm_lane.translate.shapes import Json


class Teller(Protocol):
    """Tells a stream in the caller's dialect."""

    lost: set[str]
    """What of the reply the caller's dialect has no place for."""

    def feed(self, event: Json) -> bytes: ...

    def peek(self, event: Json) -> bytes:
        """What `feed` would tell of an event that does no more than go on with the text before;
        empty for any other, or where each is told in another way. Changes nothing."""

    def end(self) -> bytes:
        """The end, if it is the proper one."""

    def error(self, error: Json) -> bytes: ...


class StreamReader(Protocol):
    """Reads the events of a provider whose last one is the end."""

    lost: set[str]
    """What of the reply chat has no place for."""

    @property
    def closed(self) -> bool:
        """The last event has come."""

    def feed(self, event: Json) -> Iterator[Json]:
        """Chunks of chat, or an object with `error`."""

    def plain(self, event: Json) -> str:
        """The text of an event that does no more than go on with the text before; else empty."""

    def told(self, piece: str) -> bytes:
        """Such a text as the chunk that `feed` would give."""


def _no_text(piece: str) -> bytes:
    return b""


class Through:
    """What `reader` reads, told by `teller`, which `is_chat` where it tells chat."""

    def __init__(self, reader: StreamReader, teller: Teller, *, is_chat: bool = False) -> None:
        self.lost = teller.lost = reader.lost
        self._reader = reader
        self._teller = teller
        # The common case, one more piece of the text that is being told, goes straight through.
        self._text = teller.text if isinstance(teller, ChatBlocks) else _no_text
        self._is_chat = is_chat
        if is_chat:
            self._text = reader.told

    def feed(self, event: Json) -> bytes:
        if (piece := self._reader.plain(event)) and (told := self._text(piece)):
            return told
        out = b""
        for chunk in self._reader.feed(event):
            if "error" in chunk:
                return out + self._teller.error(chunk["error"])
            out += self._teller.feed(chunk)
        return out + self._teller.end() if self._reader.closed else out

    def peek(self, event: Json) -> bytes:
        piece = self._reader.plain(event) if self._is_chat else ""
        return self._reader.told(piece) if piece else b""

    def end(self) -> bytes:
        """Nothing: only the last event is the end."""
        return b""

    def error(self, error: Json) -> bytes:
        return self._teller.error(error)
