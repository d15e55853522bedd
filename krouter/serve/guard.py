"""Who is let in."""

from __future__ import annotations

import math

from krouter.adapter import Call
from krouter.catalog import Prices
from krouter.keys import Key, KeyRing
from krouter.route import Attempt, Route
from krouter.serve.intake import Gate, Refusal, Scope, presented_keys
from krouter.serve.limits import Limiter
from krouter.serve.strangers import Strangers
from krouter.wire import Headers
from krouter.world import World

NEEDED = (
    "An API key of krouter is needed: send it as Authorization: Bearer KEY, x-api-key or"
    " x-goog-api-key. krouter keys add NAME makes one."
)


class Guard:
    """Keys and Host names; `must` demands a key even before one exists."""

    def __init__(
        self, keys: KeyRing, gate: Gate, must: bool, limiter: Limiter, strangers: Strangers
    ) -> None:
        self.strangers = strangers
        self._keys = keys
        self._gate = gate
        self._must = must
        self._limiter = limiter

    def check_host(self, headers: Headers) -> None:
        """Raises Refusal."""
        self._gate.check(headers)

    def authorize(self, headers: Headers, scope: Scope) -> Key | None:
        """The caller's key, where one is needed. Raises Refusal for a foreign Host, or without a
        good key."""
        self._gate.check(headers)
        if not (self._must or self._keys.required):
            return None
        has_presented = False
        for token in presented_keys(headers):
            if (key := self._keys.find(token)) is not None:
                return key
            has_presented = True
        raise (self._stranger(scope) if has_presented else Refusal(401, NEEDED))

    def check(self, key: Key, *, free: bool) -> None:
        """Whether a request of a key with limits may come. Raises Refusal."""
        self._limiter.check(key, free=free)

    def admit(self, key: Key, *, free: bool) -> None:
        """A request of a key with limits has come. Raises Refusal."""
        self._limiter.admit(key, free=free)

    def begin(self, route: Route, key: Key, call: Call, world: World) -> None:
        """A request of a key with limits begins."""

        def prices(attempt: Attempt) -> Prices | None:
            provider = world.registry.providers.get(attempt.provider)
            if provider is None:
                return None
            return world.catalog.facts(provider, attempt.model).prices

        self._limiter.begin(route, key, call.body, prices)

    def _stranger(self, scope: Scope) -> Refusal:
        """A wrong key."""
        wait = self.strangers.came(scope)
        message = "This is no API key of this krouter; see krouter keys list."
        if not wait:
            return Refusal(401, message)
        headers = [("retry-after", str(math.ceil(wait))), ("x-should-retry", "false")]
        if self.strangers.is_full:
            headers.append(("connection", "close"))
        told = f"{message} Many wrong keys came from this address."
        return Refusal(429, told, headers, hold=self.strangers.hold)

    def lets_in(self, headers: Headers) -> bool:
        """Whether a caller may be told what is not for everybody, nor for a key with limits."""
        try:
            self._gate.check(headers)
        except Refusal:
            return False
        if not (self._must or self._keys.required):
            return True
        found = next(filter(None, map(self._keys.find, presented_keys(headers))), None)
        return found is not None and not found.is_limited
