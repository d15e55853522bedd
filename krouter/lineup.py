"""Who could take a request: the entries of a walk, flattened, and the accounts of each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from krouter.accounts import Account, ranked
from krouter.adapter import Adapter, lane_for
from krouter.board import Board
from krouter.combos import LEVELS, Combo, Entry, reference
from krouter.plan import NotBuilt, Plan, make_plan
from krouter.providers import Provider, Registry
from krouter.route import Log, Skip
from krouter.secrets import Secrets
from krouter.settings import ComboTimeouts, Settings, Timeouts
from krouter.wire import Wire

Problem = tuple[Skip, str]
"""Why something is passed over, and what there is to say about it."""

BUILT_ACCOUNT_STRATEGIES = frozenset(("zenith", "fill-first"))
"""Those that accounts in the order of their priority amount to, while no health is known."""


@dataclass(frozen=True, slots=True)
class World:
    """What a walk works with: one consistent view of settings, providers and combos, and the
    edges, passed in."""

    settings: Settings
    registry: Registry
    accounts: Mapping[str, tuple[Account, ...]]
    combos: Mapping[str, Combo]
    board: Board
    secrets: Secrets
    lanes: tuple[Adapter, ...]
    wire: Wire
    log: Log
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Leaf:
    """One entry at its place in the flattened walk.

    `nest` are the plans it stands in, the outermost first; `own` the timeouts of the entries that
    lead to it, which bound its attempts.
    """

    entry: Entry
    reason: str
    """Why it stands at this place."""
    nest: tuple[Plan, ...]
    timeouts: Timeouts
    own: tuple[ComboTimeouts, ...]
    last: bool
    problem: Problem | None = None

    @property
    def combo(self) -> Combo:
        """The combo whose settings govern the entry."""
        return self.nest[-1].combo

    @property
    def name(self) -> str:
        return self.entry.model

    @property
    def key(self) -> object:
        entry = self.entry
        return entry.model, repr(entry.params), entry.accounts


@dataclass(frozen=True, slots=True)
class Candidate:
    """An account that an entry may be sent to."""

    leaf: Leaf
    provider: Provider
    lane: Adapter
    account: Account

    @property
    def model(self) -> str:
        return self.leaf.name.partition("/")[2]


@lru_cache(maxsize=1024)
def merged(base: Timeouts, *overrides: ComboTimeouts | None) -> Timeouts:
    return base.merged(*overrides)


def leaves(plan: Plan, world: World, stream: bool, base: Timeouts) -> Iterator[Leaf]:
    """The entries in order. A nested combo is opened up, by its own strategy, when it is reached;
    `last` tells whether anything follows an entry in the whole flattened walk."""
    return _opened((plan,), world, stream, base, (), True)


def _opened(
    nest: tuple[Plan, ...],
    world: World,
    stream: bool,
    base: Timeouts,
    own: tuple[ComboTimeouts, ...],
    last: bool,
) -> Iterator[Leaf]:
    plan = nest[-1]
    timeouts = merged(base, plan.combo.timeouts)
    inner_total = _nested_total(nest)
    for place, step in enumerate(plan.steps, 1):
        entry, is_last = step.entry, last and place == len(plan.steps)
        within = merged(timeouts, entry.timeouts)
        bounds = (*own, *filter(None, (inner_total, entry.timeouts)))
        nested = reference(entry.model)
        inner = nested and _nested_plan(nested, world, stream, len(nest))
        if isinstance(inner, Plan):
            yield from _opened((*nest, inner), world, stream, within, bounds, is_last)
        else:
            yield Leaf(entry, step.reason, nest, within, bounds, is_last, inner or None)


def _nested_total(nest: tuple[Plan, ...]) -> ComboTimeouts | None:
    """The outermost combo's total bounds the whole walk, a nested one's each of its attempts."""
    own = nest[-1].combo.timeouts
    return ComboTimeouts(total=own.total) if len(nest) > 1 and own and own.total else None


def _nested_plan(name: str, world: World, stream: bool, level: int) -> Plan | Problem:
    """Loading refuses what is nested too deeply; this guard holds at run time as well."""
    if level >= LEVELS or name not in world.combos:
        return Skip.NESTED_TOO_DEEPLY, f"more than {LEVELS} levels"
    try:
        return make_plan(world.combos[name], world.settings.routing, stream)
    except NotBuilt as missing:
        return Skip.NOT_BUILT, str(missing)


def candidates(leaf: Leaf, world: World, dialect: str) -> list[Candidate] | Problem:
    """The accounts an entry could be sent to, in order, locks aside; or why there are none."""
    provider = world.registry.find(leaf.name.partition("/")[0])
    if provider is None:
        return Skip.UNKNOWN_PROVIDER, ""
    lane = lane_for(world.lanes, provider, dialect)
    if lane is None:
        return out_of_reach(provider)
    allowed = leaf.entry.accounts
    accounts = [
        account
        for account in ranked(world.accounts.get(provider.name, ()))
        if allowed is None or account.name in allowed
    ]
    if not accounts:
        return Skip.NO_ACCOUNT, missing_account(provider, allowed)
    if len(accounts) > 1 and (strategy := unbuilt_strategy(provider, world)):
        return Skip.NOT_BUILT, f'account_strategy = "{strategy}"'
    return [Candidate(leaf, provider, lane, account) for account in accounts]


def out_of_reach(provider: Provider) -> Problem:
    """Why no lane can take a call to `provider`."""
    if provider.unsupported:
        return Skip.UNSUPPORTED, provider.unsupported.rstrip(".")
    if provider.known_by_litellm and not (provider.litellm_base or provider.base_urls):
        like = f", such as {provider.base_like}" if provider.base_like else ""
        return Skip.NO_ADDRESS, f"give [provider.{provider.name}] a base_url{like}"
    return Skip.NEEDS_TRANSLATION, ""


def unbuilt_strategy(provider: Provider, world: World) -> str | None:
    """The account strategy asked for, if this version cannot run it."""
    own = world.registry.settings_of(provider.name).account_strategy
    strategy = own or world.settings.routing.account_strategy
    return None if strategy in BUILT_ACCOUNT_STRATEGIES else strategy


def account_problem(account: Account) -> Problem | None:
    """Why an account is passed over, whatever is locked."""
    return (Skip.NOT_BUILT, 'auth = "caller"') if account.auth == "caller" else None


def missing_account(provider: Provider, allowed: tuple[str, ...] | None) -> str:
    """What to do about a provider that has no account."""
    if allowed is not None:
        return f"{provider.name} has no account named {' or '.join(allowed)}"
    if provider.env:
        return f"set {' or '.join(provider.env)}"
    return f"give [provider.{provider.name}] a key in krouter.toml"
