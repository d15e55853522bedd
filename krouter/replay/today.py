"""What is assumed of entries that a record has nothing of: today's settings and prices, and how
long their models took in other records."""

from __future__ import annotations

from collections.abc import Callable

from krouter.adapter import lane_for
from krouter.combos import Entry
from krouter.costs import cost_of
from krouter.dialects.base import Usage
from krouter.ledger_records import Waits
from krouter.lineup import Obstacle, out_of_reach
from krouter.replay.scene import Call
from krouter.route import End, Skip
from krouter.world import World

WaitsOf = Callable[[str, str, bool], Waits | None]
"""The median waits of a provider's model, in streams or not."""


class Today:
    """Guesses by `world`, which is looked at as it is, and by the waits of a period."""

    def __init__(self, world: World, waits: WaitsOf) -> None:
        self._world, self._waits = world, waits
        self._known: dict[tuple[str, str, bool], Waits | None] = {}
        self.without_account: set[str] = set()
        """Providers that were assumed to answer, and have no account today."""

    def obstacle(self, entry: Entry, dialect: str) -> Obstacle | None:
        """That a provider has no account at all is none: it may have one by then."""
        provider, _ = self._world.registry.split(entry.model)
        if provider is None:
            return Obstacle(Skip.UNKNOWN_PROVIDER)
        accounts = self._world.accounts.get(provider.name, ())
        if accounts and not any(self._world.accounts_of(provider.name, entry)):
            return Obstacle(Skip.NO_ACCOUNT)
        if lane_for(self._world.lanes, provider, dialect) is None:
            return out_of_reach(provider, dialect)
        return None

    def accounts(self, entry: Entry) -> list[str]:
        provider, _ = self._world.registry.split(entry.model)
        found = list(self._world.accounts_of(provider.name, entry)) if provider else []
        if not found:
            self.without_account.add(provider.name if provider else entry.model)
            return list(entry.accounts or ("",))
        return [account.name for account in sorted(found, key=lambda each: each.priority)]

    def call(self, entry: Entry, account: str, usage: Usage | None, *, stream: bool) -> Call:
        provider, model = self._world.registry.split(entry.model)
        name = provider.name if provider else ""
        prices = self._world.catalog.facts(provider, model).prices if provider else None
        cost = cost_of(usage, prices) if prices else None
        waits = self._waits_of(name, model, stream)
        return Call(
            entry.model,
            name,
            model,
            account,
            End.ANSWERED,
            lasted=waits.whole if waits else None,
            first=waits.first if waits and stream else None,
            usage=usage,
            cost=cost,
            unpriced=cost is None,
        )

    def _waits_of(self, provider: str, model: str, stream: bool) -> Waits | None:
        """Those of the other kind of requests where there are none of this one."""
        key = provider, model, stream
        if key not in self._known:
            self._known[key] = self._waits(*key) or self._waits(provider, model, not stream)
        return self._known[key]
