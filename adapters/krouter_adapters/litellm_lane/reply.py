"""A provider's reply on its way back: read as what it is, told in the caller's dialect.

What is no reply of the provider's (an error, garbage, HTML) is handed on as it came, so that the
walk sees it. A proper end is told only where the provider has told one.
"""

from __future__ import annotations

from collections.abc import Iterator

from krouter.adapter import Call
from krouter.errors import Fault
from krouter.sse import Event, SSEError, encode, whole_events
from krouter.wire import Headers, Incoming, ReplyBody, WireError
from krouter_adapters.litellm_lane.echo import Echo
from krouter_adapters.litellm_lane.frames import frames_for, is_wrapped
from krouter_adapters.litellm_lane.telling import (
    TELLERS,
    Shape,
    json_object,
    pieces_of,
    teller_of,
    translated,
)
from krouter_adapters.litellm_lane.translate.shapes import Json

MOST_REPLY = 64 << 20
MOST_UNREAD = 1 << 20
"""Bytes kept of a body that holds no event, such as an error's."""
ALIVE = b":\n\n"
"""Tells that the provider is not silent, where an event says nothing to the caller."""

SSE = "text/event-stream; charset=utf-8"


def received(reply: Incoming, call: Call, shape: Shape) -> Incoming:
    """The reply in the caller's dialect."""
    reply.dropped = shape.dropped
    if not 200 <= reply.status < 300:
        return reply
    if shape.fake:
        return FakeStream(reply, call, shape)
    wrapped = call.stream and is_wrapped(shape.aim.name)
    if shape.aim.body == call.dialect.name and not wrapped and not shape.customs:
        return reply
    if not call.stream:
        return Whole(reply, call, shape)
    return Stream(reply, call, shape)


def _headers(reply: Incoming, kind: str) -> Headers:
    own = [(n, v) for n, v in reply.headers if n.lower() != "content-type"]
    return [*own, ("content-type", kind)]


class Whole:
    """A JSON reply."""

    def __init__(self, reply: Incoming, call: Call, shape: Shape) -> None:
        self.status = reply.status
        self.headers = _headers(reply, "application/json")
        self.dropped = shape.dropped
        self._reply = reply
        self._dialect = call.dialect.name
        self._shape = shape

    async def chunk(self) -> bytes:
        """Nothing is known of it before it is whole."""
        return await self.read(MOST_REPLY)

    async def read(self, limit: int) -> bytes:
        raw = await self._reply.read(limit)
        lost: set[str] = set()
        told = translated(raw, self._shape, self._dialect, lost)
        self.dropped = _with_lost(self.dropped, lost)
        return told or raw

    def ending(self) -> bytes:
        """It begins with its end."""
        return b""

    def close(self) -> None:
        self._reply.close()


def _with_lost(dropped: tuple[str, ...], lost: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*dropped, *sorted(lost)))) if lost else dropped


class Stream(ReplyBody):
    """An event stream, by what comes rather than by what its head says it is. A body without any
    event is handed on as it came."""

    def __init__(self, reply: Incoming, call: Call, shape: Shape) -> None:
        self.status = reply.status
        self.headers = _headers(reply, SSE)
        self.dropped = shape.dropped
        self._reply = reply
        self._frames = frames_for(shape.aim.name)
        self._teller = teller_of(call, shape)
        self._by_name = shape.aim.body == "messages"
        self._unread: bytes | None = b""
        """What has come before the first event; None from then on."""
        self._over = False
        self._echo = Echo(self._peek)

    async def chunk(self) -> bytes:
        if self._over:
            while await self._reply.chunk():
                pass
            return b""
        raw = await self._reply.chunk()
        return self._echo.told(raw) or self._read(raw)

    def _read(self, raw: bytes) -> bytes:
        self._echo.forget()
        try:
            events = self._frames.feed(raw) if raw else whole_events(self._frames.flush())
        except SSEError as error:
            raise WireError(Fault.GARBAGE, str(error)) from None
        if self._unread is not None:
            if not any(event.data for event in events):
                return self._without_events(raw)
            self._unread = None
        if len(events) == 1:
            told = self._one(events[0])
            self._echo.learn(raw, events[0], told)
        else:
            told = b"".join(self._told(events))
        if self._teller.lost:
            self.dropped = _with_lost(self.dropped, self._teller.lost)
        if raw:
            return told or ALIVE
        return told + self._ended()

    def _without_events(self, raw: bytes) -> bytes:
        self._unread = ((self._unread or b"") + raw)[:MOST_UNREAD]
        if raw:
            return ALIVE
        self._over = True
        return self._unread if self._unread.lstrip()[:1] in (b"{", b"[") else b""

    def _told(self, events: list[Event]) -> Iterator[bytes]:
        for event in events:
            if self._over:
                return
            yield self._one(event)

    def _one(self, event: Event) -> bytes:
        data, name = event.data, event.name
        if not data:
            return ALIVE if event.raw.startswith(b":") else b""
        if data.startswith(b"[DONE]"):
            return self._ended()
        value = json_object(data)
        if value is None:
            return encode(data)  # the walk counts it, and leaves it out
        if name == b"error" or value.get("error"):
            return self._failed(value)
        try:
            return self._teller.feed(self._typed(value, name))
        except Exception as error:
            raise WireError(
                Fault.GARBAGE, f"an event cannot be read: {type(error).__name__}"
            ) from None

    def _typed(self, value: Json, name: bytes) -> Json:
        if self._by_name and name and "type" not in value:
            value["type"] = name.decode("utf-8", "replace")
        return value

    def _peek(self, event: Event) -> bytes:
        value = json_object(event.data or b"")
        if value is None or event.name == b"error" or value.get("error"):
            return b""
        return self._teller.peek(self._typed(value, event.name))

    def _failed(self, value: Json) -> bytes:
        self._over = True
        error = value.get("error") or value
        return self._teller.error(error if isinstance(error, dict) else {"message": str(error)})

    def _ended(self) -> bytes:
        """The proper end, if the provider has told one."""
        if self._over:
            return b""
        self._over = True
        return self._teller.end()

    def ending(self) -> bytes:
        return self._ended()

    def close(self) -> None:
        self._reply.close()


class FakeStream:
    """A whole reply for a caller that wants a stream: LiteLLM can read no stream of the provider's,
    or one that never says that it is over."""

    def __init__(self, reply: Incoming, call: Call, shape: Shape) -> None:
        self.status = reply.status
        self.headers = _headers(reply, SSE)
        self.dropped = shape.dropped
        self._reply = reply
        self._call = call
        self._shape = shape
        self._told = False

    async def chunk(self) -> bytes:
        if self._told:
            return b""
        self._told = True
        return await self.read(MOST_REPLY)

    async def read(self, limit: int) -> bytes:
        raw = await self._reply.read(limit)
        shape = self._shape
        teller = TELLERS[self._call.dialect.name](shape.names, shape)
        reply = json_object(raw)
        if reply is not None and reply.get("error"):
            error = reply["error"]
            return teller.error(error if isinstance(error, dict) else {"message": str(error)})
        lost: set[str] = set()
        chat = json_object(translated(raw, shape, lost=lost))
        if chat is not None and isinstance(chat.get("error"), dict):
            return teller.error(chat["error"])
        if chat is None or not chat.get("choices"):
            raise WireError(Fault.GARBAGE, "no reply of this provider")
        told = b"".join(teller.feed(chunk) for chunk in pieces_of(chat)) + teller.end()
        self.dropped = _with_lost(self.dropped, lost | teller.lost)
        return told

    def ending(self) -> bytes:
        """It begins with its end."""
        return b""

    def close(self) -> None:
        self._reply.close()
