"""The connections of one event loop, open for as long as they are of use."""

from __future__ import annotations

import asyncio
import ssl
from functools import cached_property

from krouter.errors import Fault, WireError
from krouter.http_connection import Connection
from krouter.http_dial import Names, Resolver, open_socket
from krouter.http_request import Origin

KEPT = 15.0
"""Seconds for which an idle connection stays open."""

MOST_IDLE = 256
"""Idle connections to one origin."""

_FAREWELL = 1.0
_UNTIMED = 3600.0  # a TLS handshake is timed with the rest of connecting


class ConnectionPool:
    """Gives the connection that was used last, since it is the likeliest to be still open."""

    def __init__(self, resolver: Resolver) -> None:
        self.loop = asyncio.get_running_loop()
        self._names = Names(resolver, self.loop)
        self._open: set[Connection] = set()
        self._idle: dict[Origin, list[Connection]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._dialing: set[asyncio.Timeout] = set()
        self._closed: asyncio.Future[None] | None = None

    @property
    def open(self) -> int:
        """How many connections there are, busy and idle."""
        return len(self._open)

    @property
    def busy(self) -> int:
        """How many have a request under way."""
        return len(self._open) - sum(map(len, self._idle.values()))

    def take(self, origin: Origin) -> Connection | None:
        """An idle connection to `origin`."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.is_quiet():
                return connection
            connection.abort()
        return None

    async def connect(self, origin: Origin, seconds: float) -> Connection:
        """A new one, within `seconds` for name, connection and TLS. Raises WireError."""
        timer = asyncio.timeout(seconds)
        try:
            async with timer:
                self._dialing.add(timer)
                connection = await self._dialed(origin)
        except TimeoutError:
            fault = Fault.TIMEOUT if self._closed is None else Fault.RESET
            raise WireError(fault, "no connection in time") from None
        except ssl.SSLError as error:
            raise WireError(Fault.TLS, error.reason or type(error).__name__) from None
        except (OSError, ValueError) as error:
            self._names.forget(origin.host, origin.port)
            raise WireError(Fault.REFUSED, _told(error)) from None
        finally:
            self._dialing.discard(timer)
        return connection

    async def _dialed(self, origin: Origin) -> Connection:
        try:
            addresses = await self._names.addresses(origin.host, origin.port)
        except (OSError, UnicodeError) as error:
            raise WireError(Fault.DNS, _told(error)) from None
        opened = await open_socket(addresses, self.loop)
        connection = Connection(origin, self, self.loop)
        if origin.tls:
            await self.loop.create_connection(
                lambda: connection,
                sock=opened,
                ssl=self._tls,
                server_hostname=origin.host.partition("%")[0].rstrip("."),
                ssl_handshake_timeout=_UNTIMED,
            )
        else:
            await self.loop.create_connection(lambda: connection, sock=opened)
        return connection

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """The system's trust, read when it is first needed, which takes a while."""
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    async def close(self) -> None:
        """Hangs up on everybody, and waits until the sockets are closed."""
        self._closed = self.loop.create_future()
        self._names.close()
        for timer in self._dialing:
            timer.reschedule(self.loop.time())
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._open):
            connection.abort()
        if self._open:
            await asyncio.wait([self._closed], timeout=_FAREWELL)

    # What the connections tell.

    def made(self, connection: Connection) -> None:
        self._open.add(connection)
        if self._closed is not None:
            connection.abort()

    def free(self, connection: Connection) -> None:
        idle = self._idle.setdefault(connection.origin, [])
        if len(idle) >= MOST_IDLE:
            idle.pop(0).abort()
        connection.idle_since = self.loop.time()
        idle.append(connection)
        if self._sweeping is None:
            self._sweeping = self.loop.call_later(KEPT, self._sweep)

    def lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        idle = self._idle.get(connection.origin)
        if idle is not None and connection in idle:
            idle.remove(connection)
        if self._closed is not None and not self._open and not self._closed.done():
            self._closed.set_result(None)

    def _sweep(self) -> None:
        """Closes what has been idle for too long; the oldest stand in front."""
        over = self.loop.time() - KEPT
        for origin, idle in list(self._idle.items()):
            while idle and idle[0].idle_since <= over:
                idle.pop(0).abort()
            if not idle:
                del self._idle[origin]
        oldest = min((idle[0].idle_since for idle in self._idle.values()), default=None)
        self._sweeping = None
        if oldest is not None:
            self._sweeping = self.loop.call_at(oldest + KEPT, self._sweep)


def _told(error: BaseException) -> str:
    """The kind of error only: its text may quote what it was given."""
    strerror = getattr(error, "strerror", None)
    return str(strerror) if strerror else type(error).__name__
