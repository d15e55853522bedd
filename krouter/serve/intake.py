"""Reading a caller's request: who asks, from where, and what."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from krouter.adapter import Call
from krouter.body import BodyError
from krouter.callers import keys_in
from krouter.dialects.base import CallError, Dialect
from krouter.dialects.chat import CHAT
from krouter.dialects.cursor import as_chat
from krouter.dialects.long import Seen, parsed
from krouter.headers import NameCache
from krouter.wire import Headers

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_DRAINED = 1 << 30
"""Bytes of a refused body read and thrown away, so that its sender gets to read the refusal."""
DRAIN_SECONDS = 30.0


class Refusal(Exception):
    """A request that is not routed: status, message and headers for the caller.

    `code` is OpenAI's for it, where it is not that of the status; `wait` is after how many seconds
    it would be let in, `notes` are added to the error, and `hold` waits before it is told.
    """

    def __init__(
        self,
        status: int,
        message: str,
        headers: Headers | None = None,
        *,
        code: str = "",
        wait: float | None = None,
        notes: Mapping[str, Any] | None = None,
        hold: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.status = status
        self.message = message
        self.headers = headers
        self.code, self.wait, self.notes, self.hold = code, wait, notes, hold
        super().__init__(message)


class CallerGone(Exception):
    """The caller hung up before its request was whole."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Which Host names may be asked for; None for any."""

    hosts: frozenset[str] | None

    def check(self, headers: Headers) -> None:
        """On loopback a foreign Host is a page's rebound name, not a user. Raises Refusal."""
        if self.hosts is None:
            return
        given = [value for name, value in headers if name == "host"]
        if len(given) > 1:
            raise Refusal(400, "A request has one Host header; this one has more.")
        host = given[0] if given else ""
        if hostname(host) not in self.hosts:
            raise Refusal(
                403,
                f"The Host header {host!r} is not this server. Ask for localhost, or add the name"
                " to allowed_hosts in [server] of krouter.toml.",
            )


_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^][:/?#@\\\s]+?)\.?)(?::\d{0,5})?", re.A)


@lru_cache(maxsize=64)
def hostname(host: str) -> str:
    """A Host header without its port and the dot of a full name, in lower case; nothing where it is
    more or less than that."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def check_page(headers: Headers, origins: Collection[str]) -> None:
    """A page of another site may send a request without asking first as long as that looks like a
    form's; what it then costs is spent, though the page reads no reply. Raises Refusal."""
    given = dict(headers)
    if "origin" not in given and "sec-fetch-site" not in given:
        return
    asked = [value for name, value in headers if name == "origin"]
    if is_own_page(headers) or (asked and all(o in origins or "*" in origins for o in asked)):
        return
    if media_type(given) != "application/json":
        raise Refusal(
            403,
            "A page of another site may not call krouter, unless its origin is one of cors_origins"
            " in [server] of krouter.toml.",
        )


def is_own_page(headers: Headers) -> bool:
    """Whether a program sends it, or a page that came from here; `none` is a person who typed the
    address."""
    here = dict(headers).get("host", "").lower()
    return all(
        _authority(value) == here if name == "origin" else value in ("same-origin", "none")
        for name, value in headers
        if name in ("origin", "sec-fetch-site")
    )


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def media_type(headers: Mapping[str, str]) -> str:
    """The Content-Type without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


_names = NameCache[bytes, str](lambda raw: raw.decode("latin-1"))


def request_headers(scope: Scope) -> Headers:
    """Names in lower case; bytes that are no ASCII survive the way through."""
    try:
        return [(_names[name], value.decode()) for name, value in scope["headers"]]
    except UnicodeDecodeError:
        return [
            (_names[name], value.decode("utf-8", "surrogateescape"))
            for name, value in scope["headers"]
        ]


_KEY_HEADERS = frozenset(("x-krouter-key", "x-api-key", "x-goog-api-key"))


def presented_keys(headers: Headers) -> Iterable[str]:
    """Every token that may be one of krouter's keys."""
    for name, value in headers:
        if name in _KEY_HEADERS:
            yield value.strip()
        elif name == "authorization" and value[:7].lower() == "bearer ":
            yield value[7:].strip()


def with_key_of(query: str, headers: Headers) -> Headers:
    """The headers, and the key in the query, where Google's clients may put it."""
    keys = keys_in(query) if query else []
    return [*headers, *(("x-goog-api-key", key) for key in keys)] if keys else headers


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """The whole body. Raises Refusal above `limit` bytes or for one that is sent in an encoding,
    CallerGone."""
    parts: list[bytes] = []
    size, more = _declared_length(headers), True
    if size <= limit:
        size = 0
        while more and size <= limit:
            part, more = await _part(receive)
            size += len(part)
            parts.append(part)
    if size > limit:
        parts.clear()
        if more:
            await _drain(receive)
        raise Refusal(
            413,
            f"The request is larger than {limit >> 20} MiB. Raise body_limit in [server] of"
            " krouter.toml to allow more.",
        )
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _part(receive: Receive) -> tuple[bytes, bool]:
    """The next part of the body, and whether more follow."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise CallerGone
    return message.get("body", b""), message.get("more_body", False)


async def _drain(receive: Receive) -> None:
    size = 0
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            more = True
            while more and size <= MOST_DRAINED:
                part, more = await _part(receive)
                size += len(part)
    except TimeoutError:
        return


def _declared_length(headers: Headers) -> int:
    """Raises Refusal for a body that is sent in an encoding."""
    length = 0
    for name, value in headers:
        if name == "content-length":
            length = int(value) if value.isdecimal() else 0
        elif name == "content-encoding" and (said := value.strip().lower()) not in _PLAIN:
            message = f"The body is sent in {said!r}; send it without content-encoding."
            raise Refusal(415, message)
    return length


_PLAIN = ("", "identity")


def parse_call(
    dialect: Dialect,
    raw: bytes,
    headers: Headers,
    path: str,
    query: str,
    seen: Seen,
    caller: str = "",
) -> Call:
    """The call in a request. Raises Refusal for one that cannot be routed."""
    try:
        body = parsed(dialect.name, raw, seen)
        if dialect is CHAT:
            body, dialect = as_chat(body)
        asked = dialect.asked(body, path)
    except BodyError as error:
        raise Refusal(400, str(error)) from None
    except CallError as error:
        raise Refusal(error.status, str(error)) from None
    return Call(dialect, body, headers, asked.model, asked.stream, query, caller=caller)
