"""One connection to a provider: requests go out, and each has its reply before the next goes."""

from __future__ import annotations

import asyncio
import re
import select
from collections.abc import Callable
from typing import Any, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from krouter.errors import Fault, WireError
from krouter.http_reply import HttpReply
from krouter.http_request import Origin

MOST_HEAD = 64 << 10
"""Bytes of a reply's head, and of whatever else comes without being any of its body."""

AT_ONCE = 1 << 20
"""Bytes of a request body written in one go; more would hold up the event loop."""

_JOINED = 32 << 10  # a body up to here costs less to copy behind its head than to send beside it
_PIECE = 256 << 10


class Keeper(Protocol):
    """Who a connection belongs to between two requests."""

    def made(self, connection: Connection) -> None: ...

    def free(self, connection: Connection) -> None: ...

    def lost(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """Idle, asked, or with a reply under way."""

    idle_since = 0.0

    def __init__(self, origin: Origin, keeper: Keeper, loop: asyncio.AbstractEventLoop) -> None:
        self.origin = origin
        self.loop = loop
        self.heard = False
        """Whether anything of a reply to the latest request has come."""
        self._keeper = keeper
        self._transport: Any = None
        self._parser = HttpResponseParser(self)
        # As lenient as other clients: blanks in front of a line's end, odd bytes in a header.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._asking: asyncio.Future[HttpReply | WireError] | None = None
        """Whoever waits for the head of a reply."""
        self._reply: HttpReply | None = None
        """The reply whose body is under way."""
        self._whole = False
        self._reusable = False
        self._headers: list[tuple[str, str]] = []
        self._coding = ""
        self._fruitless = 0
        self._unsent: memoryview | None = None
        self._congested = False

    async def ask(self, head: bytes, body: bytes) -> HttpReply:
        """Sends a request and gives its reply once the head has come, be it before the request has
        been sent whole. Raises WireError."""
        if self._transport.is_closing():
            raise WireError(Fault.RESET, _HUNG_UP)
        self.heard = False
        self._fruitless = 0
        asking: asyncio.Future[HttpReply | WireError] = self.loop.create_future()
        self._asking = asking
        self._write(head, body)
        try:
            told = await asking
        except asyncio.CancelledError:
            self._given_up(asking)
            raise
        if isinstance(told, WireError):
            raise told
        return told

    def _given_up(self, asking: asyncio.Future[HttpReply | WireError]) -> None:
        """Once the head has come, the connection may be another's already."""
        if self._asking is asking:
            self.abort()
        elif not asking.cancelled() and isinstance(reply := asking.result(), HttpReply):
            reply.close()

    def _write(self, head: bytes, body: bytes) -> None:
        if len(body) <= _JOINED:
            self._transport.write(head + body)
        elif len(body) <= AT_ONCE:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head)
            self._unsent = memoryview(body)
            self._write_on()

    def _write_on(self) -> None:
        """A piece in each turn of the loop, as long as the provider takes them."""
        unsent = self._unsent
        if unsent is None or self._congested:
            return
        self._unsent = unsent[_PIECE:] if len(unsent) > _PIECE else None
        self._transport.write(unsent[:_PIECE])
        self.loop.call_soon(self._write_on)

    def is_quiet(self) -> bool:
        """Whether an idle connection can be used: nothing has come on it, not even its end, which
        the loop may not have read yet."""
        return not (self._transport.is_closing() or self._is_readable())

    def resume(self) -> None:
        self._transport.resume_reading()

    def abort(self) -> None:
        """Hangs up at once, and tells so whoever waits for something."""
        self._break(Fault.RESET, "closed")

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._is_readable = _readable(transport.get_extra_info("socket").fileno())
        self._keeper.made(self)

    def connection_lost(self, error: Exception | None) -> None:
        reply = self._reply
        if reply is not None and error is None and _ends_with_connection(reply):
            self._reply = None
            reply.end()
        strerror = getattr(error, "strerror", None)
        self._break(Fault.RESET, str(strerror) if strerror else _HUNG_UP)
        self._keeper.lost(self)

    def pause_writing(self) -> None:
        self._congested = True

    def resume_writing(self) -> None:
        self._congested = False
        self._write_on()

    def data_received(self, data: bytes) -> None:
        self.heard = True
        self._fruitless += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._reusable = False
            if not self._whole:
                self._break(Fault.GARBAGE, str(error.__context__ or error))
        if self._whole:
            self._finish()
        elif self._fruitless > MOST_HEAD:
            self._break(Fault.GARBAGE, "endless headers")
        elif self._reply is not None and self._reply.arrived(len(data)):
            self._transport.pause_reading()

    def _finish(self) -> None:
        """The reply is whole. A connection that is not as clean as a new one is not used again."""
        reply, self._reply, self._whole = self._reply, None, False
        if reply is not None:
            reply.end()
        sent = self._unsent is None and not self._transport.get_write_buffer_size()
        if self._reusable and sent:
            self._keeper.free(self)
        else:
            self.abort()

    def _break(self, fault: Fault, detail: str) -> None:
        asking, self._asking = self._asking, None
        reply, self._reply = self._reply, None
        self._unsent = None
        if asking is not None and not asking.done():
            asking.set_result(WireError(fault, detail))
        if reply is not None:
            reply.end(detail)
        self._transport.abort()

    # What the parser tells.

    def on_message_begin(self) -> None:
        if self._asking is None:
            raise ValueError("more than was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._asking is None:
            return  # behind the body
        if b"\0" in value:
            raise ValueError("not a header")
        if len(name) == 16 and name.lower() == b"content-encoding":
            self._coding = value.decode("latin-1").rstrip().lower()
        told = value.rstrip().decode("utf-8", "surrogateescape")
        if not told.isprintable():
            told = _CONTROL.sub(" ", told)
        self._headers.append((name.decode("ascii"), told))

    def on_headers_complete(self) -> None:
        headers, self._headers = self._headers, []
        coding, self._coding = self._coding, ""
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            return  # the reply is still to come
        if self._fruitless > MOST_HEAD and _size(headers) > MOST_HEAD:
            raise ValueError("endless headers")
        self._fruitless = 0
        asking, self._asking = self._asking, None
        if asking is None or asking.done():
            raise ValueError("nobody waits any more")
        self._reply = HttpReply(status, headers, coding, self)
        asking.set_result(self._reply)

    def on_body(self, piece: bytes) -> None:
        self._fruitless = 0
        if self._reply is not None:
            self._reply.feed(piece)

    def on_message_complete(self) -> None:
        if self._asking is None:
            self._whole = True
            self._reusable = self._parser.should_keep_alive()


_HUNG_UP = "the provider hung up"
_CONTROL = re.compile(r"[\x01-\x08\x0a-\x1f\x7f]")
"""What no header may have, and no server sends on."""


def _size(headers: list[tuple[str, str]]) -> int:
    return sum(len(name) + len(value) for name, value in headers)


def _ends_with_connection(reply: HttpReply) -> bool:
    """Whether the head says nothing of where the body ends."""
    if reply.status in (204, 304):
        return False
    told = {name.lower(): value for name, value in reply.headers}
    if "transfer-encoding" in told:
        return not told["transfer-encoding"].lower().rstrip().endswith("chunked")
    return "content-length" not in told


def _readable(descriptor: int) -> Callable[[], bool]:
    """Tells whether something has come on a socket. Two threads must not share what polls."""
    if not hasattr(select, "poll"):
        return lambda: bool(select.select((descriptor,), (), (), 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return lambda: bool(poll.poll(0))
