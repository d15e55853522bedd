"""The caller's own credential, and where it may go."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, urlsplit

from krouter.headers import CREDENTIALS_IN_QUERY, may_hold_credential
from krouter.keys import PREFIX
from krouter.providers import Provider
from krouter.secrets import SecretError
from krouter.wire import Headers

_CARRIERS = frozenset(
    "authorization proxy-authorization x-api-key x-goog-api-key api-key x-krouter-key".split()
)


def callers_token(
    headers: Headers, provider: Provider, url: str, is_ours: Callable[[str], bool]
) -> str | None:
    """The bearer token of the caller's `Authorization`, if it may go to `url`.

    It goes to the host of one of `provider`'s own addresses only, and never when it is a key of
    krouter's: `is_ours` knows those, and whatever looks like one stays here too. No other header
    of the caller's is a credential that may be passed on.
    """
    given = [value.strip() for name, value in headers if name == "authorization"]
    if len(given) != 1 or not _is_own_host(url, provider):
        return None
    scheme, _, token = given[0].partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not (token.isascii() and token.isprintable()):
        return None
    return None if token.startswith(PREFIX) or is_ours(token) else token


def carried(headers: Headers, query: str = "") -> frozenset[str]:
    """The credentials that a request carries, whoever they are meant for: none may come back in
    what a provider says. Stand-ins such as `lm-studio`, which clients send where no key is needed,
    are left alone, for they may be words of an error."""
    given = [value.strip().rpartition(" ")[2] for name, value in headers if name in _CARRIERS]
    if may_hold_credential(query):
        given += [value for name, value in parse_qsl(query) if name in CREDENTIALS_IN_QUERY]
    return frozenset(filter(_is_secret, given))


def keys_in(query: str) -> list[str]:
    """The keys in a query, where Google's clients may put theirs."""
    if "key" not in query and "%" not in query:
        return []
    return [value for name, value in parse_qsl(query) if name == "key"]


_NAMES_SECRET = re.compile(r"key|token|secret|auth|passw|credential|signature|session", re.I)


def secrets_of(headers: Mapping[str, str]) -> list[str]:
    """What of the headers that the settings add must not come back, going by their names."""
    named = (value for name, value in headers.items() if _NAMES_SECRET.search(name))
    return [secret for value in named if _is_secret(secret := value.rpartition(" ")[2])]


def _is_secret(text: str) -> bool:
    if not (text.isascii() and text.isprintable()):
        return False
    return len(text) >= 12 or (len(text) >= 8 and any(map(str.isdigit, text)))


def how_to_sign_in(headers: Headers, is_ours: Callable[[str], bool]) -> str:
    """What a caller is to send whose own credential is wanted. Where it came in with a key of
    krouter's, that one needs another header."""
    told = "Send Authorization: Bearer with a token of that provider."
    values = (value.rpartition(" ")[2] for name, value in headers if name in _KEY_HEADERS)
    return f"{told} Send krouter's own key as x-krouter-key." if any(map(is_ours, values)) else told


_KEY_HEADERS = frozenset({"authorization", "x-krouter-key", "x-api-key", "x-goog-api-key"})


class CallerUnsigned(SecretError):
    """The caller sent no credential that may be passed on."""

    def __init__(self) -> None:
        super().__init__("")


def _is_own_host(url: str, provider: Provider) -> bool:
    bases = [*provider.base_urls.values(), *filter(None, [provider.litellm_base])]
    return _origin(url) in map(_origin, bases)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), port
