"""A reply that is read while it arrives."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Protocol

from krouter.errors import Fault, WireError

MOST_UNREAD = 256 << 10
"""With more bytes than this waiting for their reader, no more are taken from the connection."""


class Source(Protocol):
    """The connection a reply comes from."""

    loop: asyncio.AbstractEventLoop

    def resume(self) -> None: ...

    def abort(self) -> None: ...


class ReplyBody(ABC):
    """What is the same however a body arrives."""

    __slots__ = ()

    @abstractmethod
    async def chunk(self) -> bytes: ...

    @abstractmethod
    def close(self) -> None: ...

    async def read(self, limit: int) -> bytes:
        parts, size = [], 0
        while chunk := await self.chunk():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                self.close()
                raise WireError(Fault.GARBAGE, f"the reply is longer than {limit} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def ending(self) -> bytes:
        return b""


class HttpReply(ReplyBody):
    """Incoming over a connection, which feeds it and lets go of it at its end."""

    __slots__ = (
        "_broken",
        "_pieces",
        "_source",
        "_unread",
        "_waiter",
        "coding",
        "dropped",
        "headers",
        "status",
    )

    def __init__(
        self, status: int, headers: list[tuple[str, str]], coding: str, source: Source
    ) -> None:
        self.status = status
        self.headers = headers
        self.coding = coding
        """The body's content-encoding, if it has one."""
        self.dropped: tuple[str, ...] = ()
        self._source: Source | None = source
        self._pieces: list[bytes] = []
        self._unread = 0
        self._waiter: asyncio.Future[None] | None = None
        self._broken: str | None = None

    async def chunk(self) -> bytes:
        source = self._source
        if not self._pieces and source is not None:
            self._waiter = waiter = source.loop.create_future()
            try:
                await waiter
            finally:
                self._waiter = None
        return self._taken() if self._pieces else self._end()

    def _taken(self) -> bytes:
        """All that has arrived, and has not been read."""
        pieces, self._pieces = self._pieces, []
        if self._unread > MOST_UNREAD and self._source is not None:
            self._source.resume()
        self._unread = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _end(self) -> bytes:
        if self._broken is not None:
            raise WireError(Fault.CUT, self._broken)
        return b""

    def close(self) -> None:
        source = self._source
        if source is not None:
            self._pieces.clear()
            source.abort()

    # What the connection tells.

    def feed(self, piece: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(piece)

    def arrived(self, size: int) -> bool:
        """All pieces of `size` bytes read from the connection have been fed. Says whether its
        reader lags behind."""
        if self._pieces:
            self._wake()
        self._unread += size
        return self._unread > MOST_UNREAD

    def end(self, broken: str | None = None) -> None:
        """Nothing more will come: the body is whole, or broken for the reason given."""
        self._source = None
        self._broken = broken
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
