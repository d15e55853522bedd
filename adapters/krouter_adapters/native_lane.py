"""The native lane: the provider speaks the caller's dialect. Edit little, pass bytes through."""

from __future__ import annotations

import string
from collections.abc import Coroutine
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

from krouter.adapter import Call, Target
from krouter.dialects.gemini import STREAMED, WHOLE
from krouter.dialects.gemini_params import gemini_params
from krouter.headers import query_to_provider, to_provider
from krouter.providers import Provider, Spoken, base_of, extended
from krouter.wire import Headers, Incoming, Outgoing, Wire

# Anthropic refuses a request without a version; callers that name none get the oldest in use.
_VERSION = ("anthropic-version", "2023-06-01")


class NativeLane:
    name = "native"

    def speaks(self, provider: Provider, dialect: str) -> bool:
        spoken: Spoken = dialect  # type: ignore[assignment]
        return not provider.builtin and base_of(spoken) in provider.base_urls

    def send(self, call: Call, target: Target, wire: Wire) -> Coroutine[Any, Any, Incoming]:
        return wire.send(build(call, target), target.connect)

    async def ready(self) -> None:
        """It always is."""

    def warm_up(self) -> None:
        """It is always ready."""


def build(call: Call, target: Target) -> Outgoing:
    """The caller's request with the model, the credential, the entry's parameters and the
    provider's quirks put in."""
    dialect: Spoken = call.dialect.name  # type: ignore[assignment]
    url = target.provider.url(dialect)
    assert url is not None, "speaks() was asked first"
    query = query_to_provider(call.query)
    if call.tail:
        url = extended(url, call.tail)
    if dialect == "gemini":
        url = extended(url, _method(call, target))
        query = _gemini_query(call)
    if query:
        query = quote(query, safe=string.punctuation, encoding="latin-1")
        url = f"{url}{'&' if '?' in url else '?'}{query}"
    return Outgoing(url, _headers(call, target, dialect), _body(call, target))


def _method(call: Call, target: Target) -> str:
    """Gemini's path names the model and what to do."""
    return f"/{quote(target.model, safe='')}:{STREAMED if call.stream else WHOLE}"


# What a caller's query says to krouter alone: its key, and in what framing it wants a stream.
_OWN_QUERY = frozenset(("key", "access_token", "alt", "$alt"))


def _gemini_query(call: Call) -> str:
    passed = query_to_provider(call.query, _OWN_QUERY)
    return "&".join(filter(None, [passed, "alt=sse" if call.stream else ""]))


def _body(call: Call, target: Target) -> bytes:
    edits: dict[str, Any] = call.dialect.upstream_edits(call.body)
    if call.dialect.name == "gemini":
        edits.update(gemini_params(call.body, target.params))
    else:
        edits.update(target.params)
        edits["model"] = target.model
    dropped = [*target.provider.drop, *_renamed(call, target, edits)]
    return call.body.edited(edits, dropped)


def _renamed(call: Call, target: Target, edits: dict[str, Any]) -> list[str]:
    """Puts fields under the provider's own names into `edits`; gives their old names. A field that
    is there under both names is left as it is."""
    renamed = target.provider.rename if call.dialect.name == "chat" else {}
    if not renamed or not any(
        fnmatchcase(target.model, glob) for glob in target.provider.rename_for
    ):
        return []
    there = edits.keys() | call.body.fields.keys()
    fields = {old: new for old, new in renamed.items() if old in there and new not in there}
    for old, new in fields.items():
        edits[new] = edits[old] if old in edits else call.body.value(old)
    return list(fields)


def _headers(call: Call, target: Target, dialect: Spoken) -> Headers:
    headers = to_provider(call.headers)
    for name, value in target.provider.headers.items():
        headers = (
            joined(headers, name, value)
            if name == "anthropic-beta"
            else replaced(headers, name, value)
        )
    names = {name for name, _ in headers}
    if dialect == "messages" and _VERSION[0] not in names:
        headers.append(_VERSION)
    if "content-type" not in names:
        headers.append(("content-type", "application/json"))
    if "accept-encoding" in names:
        headers = replaced(headers, "accept-encoding", "identity")
    else:
        headers.append(("accept-encoding", "identity"))
    return [*headers, *credential(target, dialect)]


def credential(target: Target, dialect: Spoken) -> Headers:
    """The header in which the account's secret travels, if it has one."""
    if target.secret is None:
        return []
    usual = target.provider.auth.get(base_of(dialect), "bearer")
    header = "bearer" if target.auth == "bearer" else usual
    if header == "none":
        return []
    if header == "bearer":
        return [("authorization", f"Bearer {target.secret}")]
    return [(header, target.secret)]


def replaced(headers: Headers, name: str, value: str) -> Headers:
    """`headers` with one of that name."""
    return [pair for pair in headers if pair[0] != name] + [(name, value)]


def joined(headers: Headers, name: str, value: str) -> Headers:
    """`value` added to the caller's own words of a list header."""
    words = [w.strip() for n, v in headers if n == name for w in v.split(",")]
    return replaced(headers, name, ",".join(dict.fromkeys([*filter(None, words), value])))
