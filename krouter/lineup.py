"""Who could take a request: the entries of a walk, flattened, and the accounts of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from krouter.accounts import Account
from krouter.adapter import Adapter, lane_for
from krouter.combos import LEVELS, Combo, Entry, reference
from krouter.dialects.embeddings import EMBEDDINGS
from krouter.plan import Plan
from krouter.providers import Provider
from krouter.ranking import DRAW_LOTS, AccountsSnapshot, Place, account_strategy_of, order
from krouter.route import Skip
from krouter.settings import ComboTimeouts, Timeouts
from krouter.standing import plan_for
from krouter.world import Ask, World, plan_key

REACHED_KEPT = 4096


class Obstacle(NamedTuple):
    """Why an entry is passed over, and what there is to say about it."""

    reason: Skip
    detail: str = ""


class Leaf(Struct, frozen=True):
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
    obstacle: Obstacle | None = None
    places: tuple[int, ...] = ()
    """Where it stands in each plan of the nest, counted from 1."""
    fusion: Site | None = None
    """Of a fusion, which is asked as a whole."""

    @property
    def combo(self) -> Combo:
        """The combo whose settings govern the entry."""
        return self.nest[-1].combo

    @property
    def name(self) -> str:
        return self.entry.model

    def later(self) -> Iterator[Entry]:
        """The entries that follow it, the innermost combo's first; combos not opened up."""
        for plan, place in reversed(list(zip(self.nest, self.places, strict=True))):
            yield from (step.entry for step in plan.after(place))

    @property
    def key(self) -> object:
        entry = self.entry
        return entry.model, repr(entry.params) if entry.params else "", entry.accounts


class Candidate(Struct, frozen=True):
    """An account that an entry may be sent to."""

    leaf: Leaf
    provider: Provider
    lane: Adapter
    account: Account
    model: str
    """Without its provider."""
    place: Place | None = None
    """Its place among the accounts of its provider, where there was a choice."""
    snapshot: AccountsSnapshot | None = None
    """What that choice followed from."""


def merged(base: Timeouts, override: ComboTimeouts | None) -> Timeouts:
    return base if override is None else _merged(base, override)


@lru_cache(maxsize=1024)
def _merged(base: Timeouts, override: ComboTimeouts) -> Timeouts:
    return base.merged(override)


class Site(Struct, frozen=True):
    """A plan where it stands: in the plans of `nest`, of which it is the last; `outer` are its
    places in those before, `base` the timeouts around it and `own` those of the entries that lead
    to it. `last` tells whether nothing follows it in the whole flattened walk."""

    nest: tuple[Plan, ...]
    base: Timeouts
    outer: tuple[int, ...] = ()
    own: tuple[ComboTimeouts, ...] = ()
    last: bool = True

    @property
    def plan(self) -> Plan:
        return self.nest[-1]

    def alone(self, place: int) -> Site:
        """One entry of a panel, asked for a copy: nothing is beside it, and nothing after it could
        take its place."""
        return replace(self._of(self.plan.alone(place)), last=True)

    def instead(self, entry: Entry, reason: str) -> Site:
        """One that answers in place of the whole plan: what follows that follows it."""
        return self._of(self.plan.instead(entry, reason))

    def _of(self, plan: Plan) -> Site:
        """The same place with another plan in it, and nothing beside it."""
        around = zip(self.nest[:-1], self.outer, strict=True)
        return replace(self, nest=(*(each.alone(place) for each, place in around), plan))


def leaves(site: Site, world: World, ask: Ask, *, flat: bool = True) -> Iterator[Leaf]:
    """The entries in order. A nested combo is opened up, by its own strategy, when it is reached;
    `last` tells whether anything follows an entry in the whole flattened walk. Unless all is to be
    `flat`, a nested fusion is one entry."""

    def plan_of(name: str, places: tuple[int, ...]) -> Plan | Obstacle:
        return _nested_plan(name, world, ask, len(places))

    same = world.plans.get(plan_key(site.plan.combo, ask))
    if same is None or not same.is_flat or not _is_alone(same.plan, site, world):
        return opened(site, plan_of, flat=flat)
    if not same.leaves:
        same.leaves = tuple(opened(site, plan_of, flat=flat))
    return iter(same.leaves)


def _is_alone(plan: Plan, site: Site, world: World) -> bool:
    """Whether `plan` stands at `site` with nothing around it."""
    is_there = site.plan is plan and site.base is world.settings.timeouts
    return is_there and not (site.outer or site.own)


PlanOf = Callable[[str, tuple[int, ...]], Plan | Obstacle]
"""The plan of a nested combo, by its name and where it stands."""


def opened(site: Site, plan_of: PlanOf, *, flat: bool = True) -> Iterator[Leaf]:
    """The same, whatever the nested plans come from."""
    plan, nest = site.plan, site.nest
    timeouts = merged(site.base, plan.combo.timeouts)
    inner_total = _nested_total(nest)
    for place, step in plan.placed():
        places, is_last = (*site.outer, place), site.last and not plan.after(place)
        within = merged(timeouts, step.entry.timeouts)
        bounds = (*site.own, *filter(None, (inner_total, step.entry.timeouts)))
        leaf = Leaf(step.entry, step.reason, nest, within, bounds, is_last, places=places)
        nested = reference(step.entry.model)
        inner = None if nested is None else plan_of(nested, places)
        if not isinstance(inner, Plan):
            yield replace(leaf, obstacle=inner)
            continue
        within_it = Site((*nest, inner), within, places, bounds, is_last)
        if inner.fuses and not flat:
            yield replace(leaf, fusion=within_it)
        else:
            yield from opened(within_it, plan_of, flat=flat)


def _nested_total(nest: tuple[Plan, ...]) -> ComboTimeouts | None:
    """The outermost combo's total bounds the whole walk, a nested one's each of its attempts."""
    own = nest[-1].combo.timeouts
    return ComboTimeouts(total=own.total) if len(nest) > 1 and own and own.total else None


def _nested_plan(name: str, world: World, ask: Ask, level: int) -> Plan | Obstacle:
    """Loading refuses what is nested too deeply; this guard holds at run time as well."""
    if level >= LEVELS or name not in world.combos:
        return Obstacle(Skip.NESTED_TOO_DEEPLY, f"more than {LEVELS} levels")
    return copy(plan_for(world.combos[name], world, ask))  # one that is reached again is another


def candidates(leaf: Leaf, world: World, ask: Ask) -> list[Candidate] | Obstacle:
    """The accounts an entry could be sent to, in order, locks aside; or why there are none."""
    found = _reach(leaf.entry, world, ask.dialect)
    if isinstance(found, Obstacle):
        return found
    provider, model, lane, accounts = found
    if len(accounts) == 1:
        return [Candidate(leaf, provider, lane, accounts[0], model)]
    given = _snapshot(accounts, leaf, provider, world, ask)
    by_name = {account.name: account for account in accounts}
    return [
        Candidate(leaf, provider, lane, by_name[place.account], model, place, given)
        for place in order(given)
    ]


class _Reach(NamedTuple):
    """What an entry is sent through."""

    provider: Provider
    model: str
    lane: Adapter
    accounts: tuple[Account, ...]


def _reach(entry: Entry, world: World, dialect: str) -> _Reach | Obstacle:
    """What a call of `dialect` to an entry goes through, the same as long as the world is; or why
    nothing can be sent to it."""
    key = entry.model, entry.accounts, dialect
    found: _Reach | Obstacle | None = world.reached.get(key)
    if found is None:
        if len(world.reached) >= REACHED_KEPT:
            world.reached.clear()
        found = world.reached[key] = _found(entry, world, dialect)
    return found


def _found(entry: Entry, world: World, dialect: str) -> _Reach | Obstacle:
    provider, model = world.registry.split(entry.model)
    if provider is None:
        return Obstacle(Skip.UNKNOWN_PROVIDER)
    lane = lane_for(world.lanes, provider, dialect)
    if lane is None:
        return out_of_reach(provider, dialect)
    accounts = tuple(world.accounts_of(provider.name, entry))
    if not accounts:
        return Obstacle(Skip.NO_ACCOUNT, missing_account(provider, entry.accounts))
    return _Reach(provider, model, lane, accounts)


def _snapshot(
    accounts: Sequence[Account], leaf: Leaf, provider: Provider, world: World, ask: Ask
) -> AccountsSnapshot:
    own = world.registry.settings_of(provider.name)
    strategy, sticky_limit = account_strategy_of(own, world.settings.routing)
    rotates = strategy == "round-robin"
    return world.pool.snapshot(
        accounts,
        world.registry.split(leaf.name)[1],
        strategy,
        sticky_limit,
        ask.account_turn(provider.name) if rotates else 0,
        "" if rotates else ask.session(),
        ask.seed() if strategy in DRAW_LOTS else 0,
    )


def out_of_reach(provider: Provider, dialect: str = "") -> Obstacle:
    """Why no lane can take a call of `dialect` to `provider`."""
    if dialect == EMBEDDINGS.name:
        return Obstacle(Skip.NO_EMBEDDINGS, f"{provider.name} has no endpoint beside one for chat")
    if provider.unsupported:
        return Obstacle(Skip.UNSUPPORTED, provider.unsupported.rstrip("."))
    if provider.known_by_litellm and not (provider.litellm_base or provider.base_urls):
        like = f", such as {provider.base_like}" if provider.base_like else ""
        return Obstacle(Skip.NO_ADDRESS, f"give [provider.{provider.name}] a base_url{like}")
    return Obstacle(Skip.NEEDS_TRANSLATION)


def missing_account(provider: Provider, allowed: tuple[str, ...] | None) -> str:
    """What to do about a provider that has no account."""
    if allowed is not None:
        return f"{provider.name} has no account named {' or '.join(allowed)}"
    if provider.env:
        return f"set {' or '.join(provider.env)}"
    return f"give [provider.{provider.name}] a key in krouter.toml"
