"""Who presents wrong keys: each sender by its address, slowed down once it presents many.

A good key is never looked up here, so whoever has one is served at once, also from an address
that is slowed down.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

AT_ONCE = 20
"""Wrong keys that a sender may present in a row before it is slowed down."""
STEP_SECONDS = 3.0
"""For each of these it may present one more."""
MOST_SENDERS = 4096
"""Who are remembered; then the one that was heard of least lately is forgotten."""
HOLD_SECONDS = 1.0
"""How long the answer to one that is slowed down is held back."""
MOST_HELD = 256
"""Answers that are held back at once; beyond, they go out at once and the connection is closed."""
LONGEST_ADDRESS = 64


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Proxies:
    """Who is believed as to whom a request came from."""

    networks: tuple[Network, ...] = ()
    everybody: bool = False

    @classmethod
    def read(cls, allowed: str) -> Proxies:
        """From addresses and networks parted by commas; `*` is everybody. What is neither names
        nobody."""
        parts = [part.strip() for part in allowed.split(",")]
        networks = []
        for part in parts:
            with suppress(ValueError):
                networks.append(ipaddress.ip_network(part, strict=False))
        return cls(tuple(networks), "*" in parts)

    def believes(self, host: str) -> bool:
        if self.everybody:
            return True
        address = _address(host)
        return address is not None and any(address in network for network in self.networks)


class Strangers:
    """`now` is in seconds of any beginning."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        proxies: Proxies | None = None,
    ) -> None:
        self._now, self._sleep = now, sleep
        self._proxies = proxies or Proxies()
        self._free_at: OrderedDict[str, float] = OrderedDict()
        """When each sender has made up for what it has presented."""
        self._held = 0

    def __len__(self) -> int:
        return len(self._free_at)

    def came(self, scope: MutableMapping[str, Any]) -> float:
        """A wrong key has come with a request; as `note`."""
        return self.note(sender_of(scope, self._proxies))

    def note(self, sender: str) -> float:
        """A wrong key has come. 0 while there are few, else the seconds until one more may come."""
        now, known = self._now(), self._free_at
        free_at = max(now, known.pop(sender, now))
        wait = free_at - now - (AT_ONCE - 1) * STEP_SECONDS
        known[sender] = free_at if wait > 0 else free_at + STEP_SECONDS
        while len(known) > MOST_SENDERS:
            known.popitem(last=False)
        return max(wait, 0.0)

    @property
    def is_full(self) -> bool:
        """Whether no more answers are held back."""
        return self._held >= MOST_HELD

    async def hold(self) -> None:
        """Holds an answer back."""
        if self.is_full:
            return
        self._held += 1
        try:
            await self._sleep(HOLD_SECONDS)
        finally:
            self._held -= 1


def sender_of(scope: MutableMapping[str, Any], proxies: Proxies) -> str:
    """The caller's address; of IPv6 the network that one site has for itself.

    Of a proxy's callers it is the last one that `X-Forwarded-For` names and that is no proxy
    itself: what stands before that, a caller may have written.
    """
    client = scope.get("client")
    host = str(client[0]) if client else ""
    named = _forwarded(scope) if proxies.believes(host) else []
    while named and proxies.believes(host):
        host = named.pop()
        if proxies.everybody:
            break
    return _site(host)


def _forwarded(scope: MutableMapping[str, Any]) -> list[str]:
    """Whom the proxies name, each behind the one that it had the request from."""
    told = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
    return [host for part in told.decode("latin-1").split(",") if (host := _host(part.strip()))]


def _host(named: str) -> str:
    """Without a port."""
    if named.startswith("["):
        return named[1:].partition("]")[0]
    return named.partition(":")[0] if named.count(":") == 1 else named


def _address(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _site(host: str) -> str:
    address = _address(host[:LONGEST_ADDRESS])
    if address is None:
        return host[:LONGEST_ADDRESS]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))
