"""From a name to an open socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from typing import Any

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""What `socket.getaddrinfo` gives."""

Resolver = Callable[[str, int], Awaitable[Sequence[AddressInfo]]]
"""Raises OSError for a name that is not known."""

KNOWN_FOR = 60.0
"""Seconds for which a name's addresses are remembered."""

HEAD_START = 0.25
"""Seconds until the next of several addresses is tried beside the ones before it."""

_MOST_NAMES = 256


async def resolve(host: str, port: int) -> Sequence[AddressInfo]:
    """The system's resolver."""
    loop = asyncio.get_running_loop()
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


class Names:
    """Looks names up, each once for all who ask at the same time, and remembers the answers."""

    def __init__(self, resolver: Resolver, loop: asyncio.AbstractEventLoop) -> None:
        self._resolver = resolver
        self._loop = loop
        self._known: dict[tuple[str, int], tuple[float, Sequence[AddressInfo]]] = {}
        self._asked: dict[tuple[str, int], asyncio.Task[Sequence[AddressInfo]]] = {}

    async def addresses(self, host: str, port: int) -> Sequence[AddressInfo]:
        """Raises OSError or UnicodeError."""
        with suppress(socket.gaierror):  # an address already
            return socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        until, found = self._known.get((host, port), (0.0, ()))
        if until > self._loop.time():
            return found
        asked = self._asked.get((host, port))
        if asked is None:
            asked = self._asked[host, port] = self._loop.create_task(self._look_up(host, port))
            asked.add_done_callback(_retrieve)
        return await asyncio.shield(asked)

    async def _look_up(self, host: str, port: int) -> Sequence[AddressInfo]:
        try:
            found = await self._resolver(host, port)
        finally:
            del self._asked[host, port]
        if not found:
            raise OSError("a name without an address")
        if len(self._known) >= _MOST_NAMES:
            self._known.clear()
        self._known[host, port] = (self._loop.time() + KNOWN_FOR, found)
        return found

    def forget(self, host: str, port: int) -> None:
        """Addresses at which nobody answers are looked up again."""
        self._known.pop((host, port), None)

    def close(self) -> None:
        for task in self._asked.values():
            task.cancel()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Whoever asked may be gone, and asyncio would log the error."""
    if not task.cancelled():
        task.exception()


async def open_socket(
    addresses: Sequence[AddressInfo], loop: asyncio.AbstractEventLoop
) -> socket.socket:
    """Connected to the first address that answers. Raises the first one's OSError if none does."""
    if len(addresses) == 1:
        return await _connect(addresses[0], loop)
    attempts: list[asyncio.Task[socket.socket]] = []
    chosen = None
    try:
        for address in _alternating(addresses):
            attempts.append(loop.create_task(_connect(address, loop)))
            chosen = await _first(attempts, HEAD_START)
            if chosen is not None:
                return chosen.result()
        chosen = await _first(attempts, None)
        return (chosen or attempts[0]).result()
    finally:
        for attempt in attempts:
            if attempt is not chosen:
                attempt.add_done_callback(_discard)
                attempt.cancel()


async def _first(
    attempts: Iterable[asyncio.Task[socket.socket]], seconds: float | None
) -> asyncio.Task[socket.socket] | None:
    """The first attempt to succeed within `seconds`; None as soon as all have failed, too."""
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    pending = {attempt for attempt in attempts if not attempt.done()}
    while pending:
        left = None if end is None else end - loop.time()
        done, pending = await asyncio.wait(
            pending, timeout=left, return_when=asyncio.FIRST_COMPLETED
        )
        for attempt in done:
            if attempt.exception() is None:
                return attempt
        if not done:
            break
    return None


async def _connect(address: AddressInfo, loop: asyncio.AbstractEventLoop) -> socket.socket:
    family, kind, protocol, _, where = address
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(opened, where)
    except BaseException:
        opened.close()
        raise
    return opened


def _discard(attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def _alternating(addresses: Sequence[AddressInfo]) -> Iterable[AddressInfo]:
    """The families in turns, so that one that leads nowhere holds nobody up for long."""
    first = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    return filter(None, chain.from_iterable(zip_longest(first, others)))
