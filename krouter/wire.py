"""The one HTTP client: a request goes out, a reply comes in, every failure is a Fault."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from krouter.errors import Fault

Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One request to a provider. A GET has no body."""

    url: str
    headers: Headers
    body: bytes = b""
    method: Literal["POST", "GET"] = "POST"


class WireError(Exception):
    """No reply, or not the whole of it. The text never holds a credential."""

    def __init__(self, fault: Fault, detail: str = "") -> None:
        self.fault = fault
        self.detail = detail
        super().__init__(detail or fault)


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


class HttpReply:
    """Incoming over aiohttp."""

    __slots__ = ("_response", "dropped", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.dropped: tuple[str, ...] = ()
        self.status = response.status
        self.headers: Headers = list(response.headers.items())

    async def chunk(self) -> bytes:
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            if arrived := self._arrived():
                return arrived
            raise WireError(Fault.CUT, _told(error)) from None

    def _arrived(self) -> bytes:
        """What had come before the connection broke, which aiohttp keeps but gives to nobody."""
        content = self._response.content
        return content._read_nowait(-1) if content._buffer else b""

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

    def close(self) -> None:
        self._response.close()


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


@lru_cache(maxsize=64)
def _timeout(connect: float) -> aiohttp.ClientTimeout:
    """Only connecting is timed here; the walk times the rest."""
    return aiohttp.ClientTimeout(total=None, connect=connect)


AT_ONCE = 1 << 20
"""Bytes of a request body written in one go; more would hold up the event loop."""


def _payload(body: bytes) -> bytes | io.BytesIO:
    return body if len(body) <= AT_ONCE else io.BytesIO(body)


# krouter asks for plain bytes, and adds nothing the caller did not send.
_NOT_ADDED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class HttpWire:
    """One pool of connections for all providers.

    `resolver` looks names up, by default the system's. Redirects are not followed, cookies not
    kept, proxies and netrc of the environment not read.
    """

    def __init__(self, resolver: AbstractResolver | None = None) -> None:
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._reading: dict[asyncio.Future[None], aiohttp.ClientResponse] = {}
        """The last reply on each connection, by the future of the connection's end."""

    async def send(self, request: Outgoing, connect: float) -> Incoming:
        try:
            response = await self._open().request(
                request.method,
                URL(request.url, encoded=True),
                data=_payload(request.body) if request.method == "POST" else None,
                headers=request.headers,
                allow_redirects=False,
                timeout=_timeout(connect),
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise WireError(_fault(error), _told(error)) from None
        self._watch(response)
        return HttpReply(response)

    def _watch(self, response: aiohttp.ClientResponse) -> None:
        """Ends the body with its connection: where a body's framing turns to garbage, aiohttp
        only hangs up, and would leave the reader waiting for ever."""
        protocol = None if response.connection is None else response.connection.protocol
        closed = None if protocol is None else protocol.closed
        if closed is None:
            return
        if closed not in self._reading:
            closed.add_done_callback(self._lost)
        self._reading[closed] = response

    def _lost(self, closed: asyncio.Future[None]) -> None:
        content = self._reading.pop(closed).content
        reason = closed.exception()  # retrieved here, else asyncio logs it
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("not completed"), reason or OSError())

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, resolver=self._resolver),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_NOT_ADDED,
                max_line_size=65536,
                max_field_size=65536,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


_FAULTS: tuple[tuple[type[BaseException], Fault], ...] = (
    (aiohttp.ServerTimeoutError, Fault.TIMEOUT),
    (TimeoutError, Fault.TIMEOUT),
    (aiohttp.ClientConnectorDNSError, Fault.DNS),
    (aiohttp.ClientSSLError, Fault.TLS),
    (ssl.SSLError, Fault.TLS),
    (aiohttp.ClientConnectorError, Fault.REFUSED),
    (aiohttp.ClientResponseError, Fault.GARBAGE),
    (aiohttp.InvalidURL, Fault.REFUSED),
    (OSError, Fault.RESET),
    (aiohttp.ClientError, Fault.RESET),
)


def _fault(error: BaseException) -> Fault:
    return next((fault for kind, fault in _FAULTS if isinstance(error, kind)), Fault.GARBAGE)


def _told(error: BaseException) -> str:
    """The kind of error only: its text may quote a header."""
    reason = getattr(error, "os_error", None) or error
    code = getattr(reason, "strerror", None)
    return str(code) if code else type(reason).__name__
