"""A stream's pieces, on their way from the event loop that reads them to whoever wants them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from krouter.stream import Relay

MOST_AHEAD = 1 << 18
"""Bytes read from the provider before the reader has taken them."""


class Flow:
    """Made and pumped on one loop, taken from by one reader in any thread or event loop.

    `close` is called once there is nothing more to read; what it starts has its first turn before
    the reader learns of the end.
    """

    def __init__(self, relay: Relay, close: Callable[[], object]) -> None:
        self._relay = relay
        self._close = close
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._lock = threading.Lock()
        self._pieces: list[bytes] = []
        self._size = 0
        self._over = False
        self._error: BaseException | None = None
        self._wake: Callable[[], object] | None = None

    async def pump(self) -> None:
        """Reads the stream to its end, at most `MOST_AHEAD` bytes ahead of the reader."""
        while piece := await self._relay.next():
            await self._put(piece)

    def ended(self, pump: asyncio.Task[None]) -> None:
        """To be called when the task of `pump` is done, whether or not it has ever begun."""
        closed = RuntimeError("This stream is closed.") if pump.cancelled() else None
        error = closed or pump.exception()
        self._close()
        self._loop.call_soon(self._finish, error)

    async def _put(self, piece: bytes) -> None:
        with self._lock:
            self._pieces.append(piece)
            self._size += len(piece)
            full = self._size > MOST_AHEAD
            if full:
                self._room.clear()
        self._call()
        if full:
            await self._room.wait()

    def _finish(self, error: BaseException | None) -> None:
        with self._lock:
            self._over, self._error = True, error
        self._call()

    def _call(self) -> None:
        """Wakes the reader, if it waits."""
        wake, self._wake = self._wake, None
        if wake is not None:
            with suppress(RuntimeError):  # its event loop is closed
                wake()

    def _taken(self, wake: Callable[[], object]) -> bytes | None:
        """What has come, empty at the end; None when `wake` is to be waited for."""
        with self._lock:
            if self._pieces:
                pieces, self._pieces = self._pieces, []
                full, self._size = self._size > MOST_AHEAD, 0
                if full:
                    self._loop.call_soon_threadsafe(self._room.set)
                return b"".join(pieces)
            if not self._over:
                self._wake = wake
                return None
        if self._error is not None:
            raise self._error
        return b""

    def take(self) -> bytes:
        """The next events; empty at the end. Waits in this thread."""
        while True:
            come = threading.Event()
            piece = self._taken(come.set)
            if piece is not None:
                return piece
            come.wait()

    async def taken(self) -> bytes:
        """The same in an event loop."""
        loop = asyncio.get_running_loop()
        while True:
            come = loop.create_future()
            piece = self._taken(partial(loop.call_soon_threadsafe, _arrive, come))
            if piece is not None:
                return piece
            await come


def _arrive(come: asyncio.Future[None]) -> None:
    if not come.done():
        come.set_result(None)
