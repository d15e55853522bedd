"""Which headers pass between caller and provider."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar
from urllib.parse import unquote

from krouter.blot import unquoting
from krouter.keys import PREFIX
from krouter.wire import Headers

# RFC 9110, section 7.6.1, and the fields that describe one hop's message.
_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
        "content-length",
    ]
)
_CREDENTIALS = frozenset(
    [
        "authorization",
        "proxy-authorization",
        "proxy-authenticate",
        "x-api-key",
        "x-goog-api-key",
        "api-key",
    ]
)
_NOT_SENT = _HOP | _CREDENTIALS | {"host", "cookie", "accept-encoding"}
_NOT_RETURNED = _HOP | {
    "content-encoding",
    "set-cookie",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "proxy-authenticate",
    # what a site says of itself, where krouter answers in its place
    "location",
    "refresh",
    "alt-svc",
    "clear-site-data",
    "strict-transport-security",
}
_RATE_LIMITS = ("x-ratelimit-", "anthropic-ratelimit-", "ratelimit")
_OURS = "x-krouter-"
IDEMPOTENCY_KEY = "idempotency-key"
_MOST_NAMES, _LONGEST_NAME = 1 << 10, 64
_KEY = re.compile(rf"(?<![\w-]){re.escape(PREFIX)}[\w-]{{32,}}")
_MOST_DECODINGS = 4
_EVENT_STREAM = "text/event-stream"
EVENT_STREAM = ("content-type", f"{_EVENT_STREAM}; charset=utf-8")
# Whether a web page may read a reply is for krouter's own settings to say.
_SAID_BY_KROUTER = (_OURS, "access-control-", *_RATE_LIMITS)


_K = TypeVar("_K", bound=str | bytes)
_V = TypeVar("_V")


class NameCache(dict[_K, _V]):
    """What `find` says of each name of a header, kept for the names that clients use, which are few
    and short."""

    def __init__(self, find: Callable[[_K], _V]) -> None:
        self._find = find

    def __missing__(self, name: _K) -> _V:
        found = self._find(name)
        if len(self) < _MOST_NAMES and len(name) <= _LONGEST_NAME:
            self[name] = found
        return found


_passes = NameCache[str, bool](lambda name: name not in _NOT_SENT and not name.startswith(_OURS))
_returns = NameCache[str, bool](
    lambda name: name not in _NOT_RETURNED and not name.startswith(_SAID_BY_KROUTER)
)


def to_provider(headers: Headers) -> Headers:
    """The caller's headers that go on; names in lower case."""
    passed = [
        pair
        for pair in headers
        if _passes[pair[0]]
        and (("%" not in pair[1] and PREFIX not in pair[1]) or not _holds_key(pair[1]))
    ]
    named = _named_by_connection(headers) - _NOT_SENT
    return [pair for pair in passed if pair[0] not in named] if named else passed


def query_to_provider(query: str, dropped: Collection[str] = ()) -> str:
    """The caller's query that goes on: without credentials, which are meant for krouter, and less
    what is `dropped` by name."""
    if not (query and (dropped or may_hold_credential(query) or PREFIX in query)):
        return query
    out = {*dropped, *CREDENTIALS_IN_QUERY}
    parts = query.split("&")
    kept = (part for part in parts if unquote(part.partition("=")[0]) not in out)
    return "&".join(part for part in kept if not _holds_key(part))


CREDENTIALS_IN_QUERY = frozenset(("key", "access_token", "api_key", "api-key", "apikey"))


def may_hold_credential(query: str) -> bool:
    """Whether it is worth a closer look."""
    return "key" in query or "token" in query or "%" in query


def _holds_key(value: str) -> bool:
    """Whether a key of krouter's stands there, under whatever name a client sends it, and however
    often a URL has been put into a URL."""
    for _ in range(_MOST_DECODINGS):
        if PREFIX in value and _KEY.search(value) is not None:
            return True
        if "%" not in value:
            break
        value = unquote(value)
    return False


def to_caller(headers: Headers, *secrets: str | None) -> Headers:
    """The provider's headers that go back; none that quotes a credential."""
    lowered = [(name.lower(), value) for name, value in headers]
    passed = [pair for pair in lowered if _returns[pair[0]]]
    if named := _named_by_connection(lowered):
        passed = [pair for pair in passed if pair[0] not in named]
    return unquoting(passed, secrets)


def stream_to_caller(headers: Headers, *secrets: str | None) -> Headers:
    """The same of an event stream, which says that it is one even where the provider does not."""
    passed = to_caller(headers, *secrets)
    if any(n == "content-type" and v.lower().startswith(_EVENT_STREAM) for n, v in passed):
        return passed
    return [*(pair for pair in passed if pair[0] != "content-type"), EVENT_STREAM]


def _named_by_connection(headers: Iterable[tuple[str, str]]) -> set[str]:
    values = [value for name, value in headers if name == "connection"]
    if not values:
        return set()
    return {word.strip().lower() for value in values for word in value.split(",")}
