"""From a URL and headers to the head of an HTTP/1.1 request, and to whom it goes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from krouter.errors import Fault, WireError


class Origin(NamedTuple):
    """What a connection leads to."""

    tls: bool
    host: str
    port: int


class _Start(NamedTuple):
    """What all requests to one URL have in common, its query aside."""

    origin: Origin
    path: str
    host: str
    authorization: str


_PORTS = {"http": 80, "https": 443}
_UNFIT = "a header unfit for sending"
_NOT_IN_A_TARGET = re.compile(r"[\x00-\x20\x7f]")
# How long a body is, and where it ends, is for the client to say.
_OWN = frozenset(("content-length", "transfer-encoding", "host"))


def request_head(
    method: str, url: str, headers: Iterable[tuple[str, str]], length: int | None
) -> tuple[Origin, bytes]:
    """The origin to connect to, and what is sent there before a body of `length` bytes.

    The query is sent as it stands. Raises WireError for what cannot be sent.
    """
    base, mark, query = url.partition("#")[0].partition("?")
    origin, path, host, authorization = _start(base)
    if _NOT_IN_A_TARGET.search(query):
        raise _no_url()
    lines = []
    for name, value in headers:
        lowered = name.lower()
        if lowered not in _OWN:
            lines.append(f"{name}: {value}")
        elif lowered == "host":
            host = value
        if authorization and lowered == "authorization":
            raise WireError(Fault.GARBAGE, "two authorizations: in the URL and in a header")
    if authorization:
        lines.append(f"Authorization: {authorization}")
    if length is not None:
        lines.append(f"Content-Length: {length}")
    lines = [f"{method} {path}{mark}{query} HTTP/1.1", f"Host: {host}", *lines, "\r\n"]
    return origin, _encoded("\r\n".join(lines), len(lines))


def _encoded(head: str, lines: int) -> bytes:
    """Refuses a head of more lines than were put into it: a header has smuggled them in."""
    if head.count("\n") != lines or head.count("\r") != lines or "\0" in head:
        raise WireError(Fault.GARBAGE, _UNFIT)
    try:
        return head.encode()
    except UnicodeEncodeError:
        raise WireError(Fault.GARBAGE, _UNFIT) from None


def _no_url() -> WireError:
    return WireError(Fault.REFUSED, "not a URL to connect to")


@lru_cache(maxsize=512)
def _start(base: str) -> _Start:
    if _NOT_IN_A_TARGET.search(base):
        raise _no_url()
    try:
        parts = urlsplit(base)
        default = _PORTS[parts.scheme]
        host = _ascii(parts.hostname or "")
        port = default if parts.port is None else parts.port
    except (ValueError, KeyError):
        raise _no_url() from None
    if not host:
        raise _no_url()
    named = f"[{host.partition('%')[0]}]" if ":" in host else host
    shown = named if port == default else f"{named}:{port}"
    origin = Origin(parts.scheme == "https", host, port)
    return _Start(origin, parts.path or "/", shown, _authorization(parts))


def _ascii(host: str) -> str:
    """The name as it is looked up. Raises UnicodeError where there is none."""
    if host.isascii():
        return host.replace("%25", "%") if ":" in host else host
    import idna

    return idna.encode(host, uts46=True).decode("ascii")


def _authorization(parts: SplitResult) -> str:
    """Name and password that stand in the URL."""
    if parts.username is None and parts.password is None:
        return ""
    told = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(told.encode()).decode()}"
