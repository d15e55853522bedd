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


class Strangers:
    """`now` is in seconds of any beginning."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._now, self._sleep = now, sleep
        self._free_at: OrderedDict[str, float] = OrderedDict()
        """When each sender has made up for what it has presented."""
        self._held = 0

    def __len__(self) -> int:
        return len(self._free_at)

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


def sender_of(scope: MutableMapping[str, Any]) -> str:
    """The caller's address; of IPv6 the network that one site has for itself."""
    client = scope.get("client")
    host = str(client[0])[:LONGEST_ADDRESS] if client else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
