"""The HTTP server's side of a connection, with bounds on what a caller may send and how slowly.

uvicorn alone reads heads of any size, and waits for a caller for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from krouter.serve.whole import HANG_UP, WHOLE, RawHeaders, whole_of

MOST_HEAD = 64 << 10
"""Bytes of a request's head."""
MOST_UNREAD = 1 << 20
"""Bytes of a body that may come before the app has read of it."""
SLOWEST = 4 << 10
"""Bytes of a body that buy its caller another second."""
LONGEST = 3600.0
"""Seconds that no body takes longer than."""
FAREWELL_SECONDS, MOST_FAREWELL = 1.0, 16 << 20
"""How long, and how many bytes of, what a refused caller still sends is thrown away: so it gets to
read why."""

MOST_AHEAD = 16
"""With more requests than this waiting behind the one that is answered, no more are read."""
Refused = Callable[[str, RawHeaders, int, str], bytes]
"""Path, headers, status and message to the body of an error, as JSON."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: how long a head may take from the connection or its first byte on, how long a body
    from its head on and beside what its size buys, and how often that is looked at."""

    head: float = 30.0
    body: float = 60.0
    look: float = 5.0


PATIENCE = Patience()


class _Nowhere(list[tuple[bytes, bytes]]):
    """Where the trailers behind a body go."""

    def append(self, pair: tuple[bytes, bytes]) -> None:
        pass


_NOWHERE = _Nowhere()


class Parts:
    """What of a body has come and not been read, in place of uvicorn's bytearray: one part is
    handed on as it came, and more are joined once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def __iadd__(self, part: bytes) -> Parts:
        self._parts.append(part)
        self._size += len(part)
        return self

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


_UPGRADE = b"upgrade"


def _new_parser(protocol: HttpToolsProtocol) -> HttpRequestParser:
    """As uvicorn makes them."""
    parser = HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class _Flow(FlowControl):
    """Whoever sends requests without waiting for replies is read no faster than it is answered."""

    def __init__(self, transport: asyncio.Transport, ahead: Sized) -> None:
        super().__init__(transport)
        self._ahead = ahead

    def resume_reading(self) -> None:
        if self.read_paused and len(self._ahead) <= MOST_AHEAD:
            super().resume_reading()


class Door(HttpToolsProtocol):
    """Counts what comes, and hangs up on who sends a head without end, or anything too slowly.

    Over uvicorn's own class it costs a request some comparisons for each piece that comes; time is
    looked at from outside, by `look`.
    """

    def __init__(self, refused: Refused, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._refused = refused
        self._came = self._head = self._farewell = 0
        """Bytes of all requests, of the head that is under way, and since it was refused."""
        self._closing = False
        self._served: RequestResponseCycle | None = None
        """The request that is answered, or was last; `cycle` is the one that came last."""
        self._waits_for: object = None
        """What was waited for when it was last looked at, since when, and what had come then."""
        self._since, self._came_then = 0.0, 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)

    def connection_lost(self, exc: Exception | None) -> None:
        """uvicorn tells the request that came last, which may still wait for its turn."""
        served = self._served
        if served is not None and served is not self.cycle:
            served.disconnected = True
            served.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._served = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        if self._closing:
            self._farewell += len(data)
            if self._farewell > MOST_FAREWELL:
                self.transport.abort()
            return
        self._unset_keepalive_if_required()
        scope, last = self.scope, self.cycle
        is_between = last is None or not last.more_body
        try:
            self._read(data)
        except HttpParserError:
            self._refuse(400, "What came is no HTTP/1.1 request that krouter can read.")
            return
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope:
            self._head, self.headers = 0, _NOWHERE
            return
        # Of a head that begins behind other things, what came in the same piece does not count.
        if self.scope is scope or (cycle is last and is_between):
            self._head += len(data)
        if self._head > MOST_HEAD:
            self._refuse(431, f"The head of the request is larger than {MOST_HEAD >> 10} KiB.")

    def _read(self, data: bytes) -> None:
        """Raises HttpParserError."""
        rest = memoryview(data)
        while not self._closing:
            try:
                self.parser.feed_data(rest)
                return
            except HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
                self._stay()

    def _stay(self) -> None:
        """An upgrade is not taken, which leaves a request like any other: its head is read again
        without the wish, so that what follows is its body and no second request."""
        method = self.parser.get_method()
        if method == b"CONNECT":  # what follows is meant for somebody else
            self._refuse(405, "krouter is no proxy: it takes no CONNECT.")
            return
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % pair for pair in self.headers if pair[0] != _UPGRADE]
        wishes = [pair for pair in self.headers if pair[0] == _UPGRADE]
        self.parser = _new_parser(self)
        self.parser.feed_data(b"\r\n".join((*lines, b"", b"")))
        self.headers += wishes

    def on_headers_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            cycle: Any = self.cycle
            cycle.body = Parts()
            cycle.scope[WHOLE] = whole_of(cycle)
            cycle.scope[HANG_UP] = self.transport.abort

    def on_body(self, body: bytes) -> None:
        """uvicorn stops and starts reading again for every body of 64 KiB."""
        cycle: Any = self.cycle
        if self.parser.should_upgrade() or cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > MOST_UNREAD:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    @property
    def _in_head(self) -> bool:
        """Whether a head has begun and not ended."""
        cycle = self.cycle
        return self.scope is not None and (cycle is None or cycle.scope is not self.scope)

    def look(self, now: float, patience: Patience) -> None:
        """Hangs up on a caller that takes too long for what it has begun, or begins nothing."""
        stage = self._stage()
        if stage is not self._waits_for:
            self._waits_for, self._since, self._came_then = stage, now, self._came
        if stage is None:
            return
        took, came = now - self._since, self._came - self._came_then
        if stage is not self.cycle:
            if took > patience.head:
                self._refuse(408, "The head of the request came too slowly.")
        elif took > min(patience.body + came / SLOWEST, LONGEST):
            self._refuse(408, "The body of the request came too slowly.")

    def _stage(self) -> object:
        """What is waited for: a first request, a head, the rest of a body, or nothing of the
        caller's. Between two requests uvicorn's own limit counts, until a blank line ends it."""
        if self.scope is None:
            return self
        if self.flow.read_paused:
            return None
        if self._in_head:
            return self.scope
        cycle = self.cycle
        is_over = cycle.response_complete and self.timeout_keep_alive_task is None
        return cycle if cycle.more_body or is_over else None

    def _refuse(self, status: int, message: str) -> None:
        """An error, where no reply has begun, and the end of the connection once the requests
        before that one have their replies."""
        if self._closing or self.transport.is_closing():
            return
        self._closing = True
        in_head, cycle, served = self._in_head, self.cycle, self._served
        if self.pipeline or (in_head and served is not None and not served.response_complete):
            self._end_before(in_head)
            return
        busy = cycle is not None and not cycle.response_complete
        if busy:
            cycle.disconnected = True
            cycle.message_event.set()
        if cycle.response_started if busy else not in_head:
            self.transport.close()  # nothing more can be told
            return
        path, headers = self._asked() if in_head else (cycle.scope["path"], cycle.scope["headers"])
        self._tell(status, self._refused(path, list(headers), status, message))
        self.flow.resume_reading()
        self.loop.call_later(FAREWELL_SECONDS, self.transport.close)

    def _end_before(self, in_head: bool) -> None:
        """Nothing that came last is answered, nor what comes."""
        if not in_head:
            self.pipeline.popleft()
        last = self.pipeline[0][0] if self.pipeline else self._served
        assert last is not None
        self.cycle, last.keep_alive = last, False

    def _asked(self) -> tuple[str, RawHeaders]:
        """Path and headers, as far as they are known of a head that is not whole."""
        return self.url.partition(b"?")[0].decode("latin-1"), self.headers

    def _tell(self, status: int, body: bytes) -> None:
        fields = (
            b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        )
        self.transport.write(STATUS_LINE[status] + fields % len(body) + body)
        self.transport.write_eof()


async def watch(connections: Callable[[], Iterable[Any]], patience: Patience) -> None:
    """Looks at every connection, until cancelled."""
    while True:
        await asyncio.sleep(patience.look)
        _look_at(list(connections()), patience)


def _look_at(doors: Iterable[Door], patience: Patience) -> None:
    """Keeps none of them beyond."""
    now = asyncio.get_running_loop().time()
    for door in doors:
        door.look(now, patience)
