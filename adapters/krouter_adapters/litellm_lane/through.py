"""Streams read by one machine and told by another, with chat between them."""

from __future__ import annotations

from typing import Protocol

import msgspec

from krouter.sse import Splitter
from krouter_adapters.litellm_lane.translate import MessagesToChat, ResponsesToChat
from krouter_adapters.litellm_lane.translate.chat_blocks import ChatBlocks
from krouter_adapters.litellm_lane.translate.shapes import Json

_DONE = b"[DONE]"


class Teller(Protocol):
    """Tells a stream in the caller's dialect."""

    lost: set[str]
    """What of the reply the caller's dialect has no place for."""

    def feed(self, event: Json) -> bytes: ...

    def end(self) -> bytes:
        """The end, if it is the proper one."""

    def error(self, error: Json) -> bytes: ...


def _nothing_plain(event: Json) -> str:
    return ""


def _no_text(piece: str) -> bytes:
    return b""


class Through:
    """What `first` tells as chat, told by `teller`."""

    def __init__(self, first: Teller, teller: Teller) -> None:
        self.lost = teller.lost = first.lost
        self._first = first
        self._teller = teller
        # The common case, one more piece of the text that is being told, goes straight through.
        self._plain = first.plain if isinstance(first, MessagesToChat) else _nothing_plain
        self._text = teller.text if isinstance(teller, ChatBlocks) else _no_text
        self._split = Splitter()

    def feed(self, event: Json) -> bytes:
        if (piece := self._plain(event)) and (told := self._text(piece)):
            return told
        chat = self._first.feed(event)
        return self._told(chat) if chat else b""

    def _told(self, chat: bytes) -> bytes:
        out = b""
        for event in self._split.feed(chat):
            if event.data == _DONE:
                out += self._teller.end()
            else:
                out += self._teller.feed(msgspec.json.decode(event.data or b"{}"))
        return out

    def end(self) -> bytes:
        return self._told(self._first.end())

    def error(self, error: Json) -> bytes:
        return self._teller.error(error)


class FromResponses:
    """Events of a responses body, told by `teller`, which `is_chat` where it tells chat."""

    def __init__(self, reader: ResponsesToChat, teller: Teller, *, is_chat: bool = False) -> None:
        self.lost = reader.lost = teller.lost
        self._reader = reader
        self._teller = teller
        self._text = teller.text if isinstance(teller, ChatBlocks) else _no_text
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

    def end(self) -> bytes:
        """Nothing: only the last event is the end."""
        return b""

    def error(self, error: Json) -> bytes:
        return self._teller.error(error)
