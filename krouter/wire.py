"""The one HTTP client: a request goes out, a reply comes in, every failure is a Fault."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal, Protocol

from msgspec import Struct

from krouter.errors import Fault
from krouter.errors import WireError as WireError
from krouter.http_coding import plain
from krouter.http_connection import AT_ONCE as AT_ONCE
from krouter.http_dial import Resolver, resolve
from krouter.http_pool import ConnectionPool
from krouter.http_reply import ReplyBody as ReplyBody
from krouter.http_request import request_head

Headers = list[tuple[str, str]]


class Outgoing(Struct, frozen=True):
    """One request to a provider. A GET has no body."""

    url: str
    headers: Headers
    body: bytes = b""
    method: Literal["POST", "GET"] = "POST"


class Incoming(Protocol):
    """A provider's reply whose head has arrived."""

    status: int
    headers: Headers
    dropped: tuple[str, ...]
    """What of the request could not be carried to the provider, or of its reply, as far as it has
    been read, to the caller."""

    async def chunk(self) -> bytes:
        """The next piece of the body, empty at its end; WireError when it breaks off."""

    async def read(self, limit: int) -> bytes:
        """The whole body; WireError when it breaks off or is longer than `limit` bytes."""

    def ending(self) -> bytes:
        """What is still to be told of a reply that has said all, though its provider breaks off."""

    def close(self) -> None:
        """Hang up, unless the whole body has been read."""


class Wire(Protocol):
    async def send(self, request: Outgoing, connect: float) -> Incoming:
        """Raises WireError when no reply comes; `connect` is in seconds."""

    async def close(self) -> None: ...


class Canned:
    """A reply that is in this process already."""

    def __init__(self, status: int, content_type: str, chunks: Iterator[bytes]) -> None:
        self.status = status
        self.headers: Headers = [("content-type", content_type)]
        self.dropped: tuple[str, ...] = ()
        self._chunks = chunks

    async def chunk(self) -> bytes:
        return next(self._chunks, b"")

    async def read(self, limit: int) -> bytes:
        whole = b"".join(self._chunks)
        if len(whole) > limit:
            raise WireError(Fault.GARBAGE, f"the reply is longer than {limit} bytes")
        return whole

    def ending(self) -> bytes:
        return b""

    def close(self) -> None:
        self._chunks = iter(())


class HttpWire:
    """Connections to all providers, kept open between requests and shared by nobody else.

    `resolver` looks names up, by default the system's. Redirects are not followed, cookies not
    kept, proxies and netrc of the environment not read, and nothing is added to what is sent but
    `Host` and `Content-Length`.
    """

    def __init__(self, resolver: Resolver = resolve) -> None:
        self._resolver = resolver
        self._pool: ConnectionPool | None = None

    @property
    def open(self) -> int:
        """How many connections are open at present, busy and idle."""
        return 0 if self._pool is None else self._pool.open

    @property
    def busy(self) -> int:
        """How many of these have a request under way."""
        return 0 if self._pool is None else self._pool.busy

    async def send(self, request: Outgoing, connect: float) -> Incoming:
        method, body = request.method, request.body
        length = len(body) if method == "POST" else None
        origin, head = request_head(method, request.url, request.headers, length)
        pool = self._here()
        connection = pool.take(origin)
        if connection is not None:
            try:
                return plain(await connection.ask(head, body))
            except WireError as error:
                # The provider has closed it meanwhile. What it did with a POST nobody knows.
                if method == "POST" or connection.heard or error.fault is not Fault.RESET:
                    raise
        connection = await pool.connect(origin, connect)
        return plain(await connection.ask(head, body))

    def _here(self) -> ConnectionPool:
        """The connections of the running loop; those of another one are of no use here."""
        pool = self._pool
        if pool is None or pool.loop is not asyncio.get_running_loop():
            self._pool = pool = ConnectionPool(self._resolver)
        return pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and pool.loop is asyncio.get_running_loop():
            await pool.close()
