"""A stream of Gemini's as a JSON array: what a caller gets that does not ask for `alt=sse`."""

from __future__ import annotations

from urllib.parse import parse_qsl

from krouter.adapter import Call
from krouter.answer import Answer
from krouter.dialects.base import Tracker
from krouter.sse import Splitter
from krouter.stream import Relay


def framed(answer: Answer, call: Call) -> Answer:
    """The answer in the framing that the call asks for; the same object for nearly all calls."""
    if answer.relay is None or not is_array(call):
        return answer
    answer.relay = Array(answer.relay)  # type: ignore[assignment]
    headers = [pair for pair in answer.headers if pair[0].lower() != "content-type"]
    answer.headers = [*headers, ("content-type", "application/json; charset=utf-8")]
    return answer


def is_array(call: Call) -> bool:
    """Whether a stream that answers the call is an array."""
    return call.dialect.name == "gemini" and not asks_events(call.query)


def asks_events(query: str) -> bool:
    return any(pair in (("alt", "sse"), ("$alt", "sse")) for pair in parse_qsl(query))


class Array:
    """Stands in for a relay: each event's data is an item, an error too."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._splitter = Splitter()
        self._mark = b"["
        self._over = False

    @property
    def tracker(self) -> Tracker:
        return self._relay.tracker

    async def next(self) -> bytes:
        """The next items; empty when the array is closed."""
        items = b""
        while not items and not self._over:
            piece = await self._relay.next()
            events = self._splitter.feed(piece) if piece else self._splitter.flush()
            items = b"".join(self._item(event.data) for event in events if event.data)
            if not piece:
                self._over = True
                items += b"]" if self._mark != b"[" else b"[]"
        return items

    def _item(self, data: bytes) -> bytes:
        mark, self._mark = self._mark, b",\r\n"
        return mark + data

    async def drain(self) -> None:
        await self._relay.drain()

    def close(self) -> None:
        self._relay.close()
