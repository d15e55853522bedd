"""What a request is decided with: the world as it is, and what the request asks of it."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from krouter.accounts import Account
from krouter.adapter import Adapter
from krouter.board import Board
from krouter.catalog import Catalog
from krouter.combos import Combo, Entry
from krouter.plan import Needs, Plan
from krouter.pool import Pool
from krouter.providers import Registry
from krouter.route import Log
from krouter.secrets import Secrets
from krouter.settings import RoutingSettings, Settings
from krouter.wire import Wire

KEEP_ALIVE_SECONDS = 15.0


def _mark() -> str:
    return secrets.token_hex(8)


class Ask(Struct, frozen=True):
    """What a request asks of the order.

    `turn` and `account_turn` say how many requests a combo's or a provider's rotation has had, and
    count this one unless it only looks ahead. `session` tells its conversation; `seed` is what its
    random choices of accounts follow from.
    """

    dialect: str
    stream: bool = False
    needs: Needs = frozenset()
    turn: Callable[[str], int] = lambda name: 0
    account_turn: Callable[[str], int] = lambda name: 0
    session: Callable[[], str] = lambda: ""
    seed: Callable[[], int] = lambda: 0


class SamePlan(Struct):
    """A plan that holds for every request alike, and what it was made from."""

    of: Combo
    routing: RoutingSettings
    plan: Plan
    is_flat: bool
    """Whether nothing is nested in it."""
    leaves: tuple[Any, ...] = ()
    """The entries of a flat one as `lineup` has them, which are the same for every request too;
    empty until they are made."""


def plan_key(combo: Combo, ask: Ask) -> tuple[str, str, str, bool]:
    """Which requests may share a plan; models called directly have one name."""
    return combo.name, combo.models[0].model, ask.dialect, ask.stream


@dataclass(slots=True)
class Tracing:
    """Whether the steps of requests are logged; where not, no line of them need be made."""

    on: bool = True


@dataclass(frozen=True, slots=True)
class World:
    """What a walk works with: one consistent view of settings, providers and combos, and the
    edges, passed in."""

    settings: Settings
    registry: Registry
    accounts: Mapping[str, tuple[Account, ...]]
    combos: Mapping[str, Combo]
    board: Board
    catalog: Catalog
    pool: Pool
    secrets: Secrets
    lanes: tuple[Adapter, ...]
    wire: Wire
    log: Log
    unserved: Mapping[str, str] = field(default_factory=dict)
    """Combos whose files are wrong, and how."""
    is_own_key: Callable[[str], bool] = field(default=lambda token: False)
    tracing: Tracing = field(default_factory=Tracing)
    keep_alive: float = KEEP_ALIVE_SECONDS
    """Seconds of silence before a caller that waits for a stream gets a sign of life."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    mark: Callable[[], str] = _mark
    """Gives a text that nobody can have foreseen."""
    plans: dict[tuple[str, str, str, bool], SamePlan] = field(default_factory=dict, init=False)
    """Plans that have been made, by their `plan_key`."""
    reached: dict[tuple[str, tuple[str, ...] | None, str], Any] = field(
        default_factory=dict, init=False
    )
    """What `lineup` has found of an entry's provider, by its model, accounts and the dialect."""

    @property
    def traced(self) -> bool:
        return self.tracing.on

    def accounts_of(self, provider: str, entry: Entry) -> Iterator[Account]:
        """The accounts that `entry` may be sent to."""
        allowed = entry.accounts
        for account in self.accounts.get(provider, ()):
            if allowed is None or account.name in allowed:
                yield account
