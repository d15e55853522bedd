"""Who could take a request: the entries of a walk, flattened, and the accounts of each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial

from krouter.accounts import Account
from krouter.adapter import Adapter, lane_for
from krouter.board import Board, Target
from krouter.catalog import Catalog, Known, with_entry
from krouter.combos import LEVELS, Combo, Entry, Medium, reference
from krouter.plan import Needs, NotBuilt, Plan, Standing, make_plan
from krouter.pool import Pool
from krouter.providers import Provider, Registry
from krouter.quota import figures, is_spent
from krouter.ranking import Place, strategy_of
from krouter.reporter import Figure
from krouter.route import Log, Skip
from krouter.secrets import Secrets
from krouter.settings import AdapterPool, ComboTimeouts, Settings, Timeouts
from krouter.wire import Wire


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks of the order.

    `turn` and `account_turn` say how many requests a combo's or a provider's rotation has had, and
    count this one unless it only looks ahead. `session` tells its conversation.
    """

    dialect: str
    stream: bool = False
    needs: Needs = frozenset()
    turn: Callable[[str], int] = field(default=lambda name: 0)
    account_turn: Callable[[str], int] = field(default=lambda name: 0)
    session: Callable[[], str] = field(default=lambda: "")


Problem = tuple[Skip, str]
"""Why something is passed over, and what there is to say about it."""


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
    is_own_key: Callable[[str], bool] = field(default=lambda token: False)
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
    places: tuple[int, ...] = ()
    """Where it stands in each plan of the nest, counted from 1."""

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
            yield from (step.entry for step in plan.steps[place:])

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
    score: float | None = None
    """Its Zenith score, where there was a choice."""
    reason: str = ""
    """Why the account stands at its place."""

    @property
    def model(self) -> str:
        return self.leaf.name.partition("/")[2]


@lru_cache(maxsize=1024)
def merged(base: Timeouts, *overrides: ComboTimeouts | None) -> Timeouts:
    return base.merged(*overrides)


def plan_for(combo: Combo, world: World, ask: Ask, *, adapted: bool = False) -> Plan:
    """The order of `combo`'s entries for one request. Only what a caller asks for itself is
    `adapted`. Raises NotBuilt."""
    return make_plan(
        combo,
        world.settings.routing,
        partial(standing, world=world, needs=ask.needs, figures=_figures(combo, world)),
        stream=ask.stream,
        needs=ask.needs,
        turn=lambda: ask.turn(combo.name),
        pool=(lambda: adapter_models(world, ask)) if adapted else tuple,
    )


Figures = Mapping[Target, Figure]


def _figures(combo: Combo, world: World) -> Figures:
    """What is left of the quota of each entry's own model."""
    notes = world.pool.quota.notes()
    if not notes:
        return {}
    usable = {
        target: names
        for entry in combo.models
        if (target := _target(entry, world)) and (names := _unlocked(entry, target, world))
    }
    return figures(notes, usable, world.pool.now())


def _target(entry: Entry, world: World) -> Target | None:
    alias, _, model = entry.model.partition("/")
    provider = world.registry.find(alias) if reference(entry.model) is None else None
    return (provider.name, model) if provider else None


def _unlocked(entry: Entry, target: Target, world: World) -> list[str]:
    provider, model = target
    return [
        account.name
        for account in world.accounts.get(provider, ())
        if (entry.accounts is None or account.name in entry.accounts)
        and world.board.blocked(provider, account.name, model) is None
    ]


NO_FIGURES: Figures = {}


def standing(entry: Entry, world: World, needs: Needs, figures: Figures = NO_FIGURES) -> Standing:
    """What is known of an entry right now. What it reads is looked up only where something is
    to be read; a combo reads what any of its entries reads, and has no quota of its own."""
    name = reference(entry.model)
    if name is not None:
        return Standing(_combo_reads(name, world, needs) if needs else {})
    alias, _, model = entry.model.partition("/")
    provider = world.registry.find(alias)
    if provider is None:
        return Standing()
    reads = _reads(entry, provider, model, world) if needs else {}
    figure = figures.get((provider.name, model)) if figures else None
    if figure is None:
        return Standing(reads)
    return Standing(reads, figure.remaining, is_spent(figure))


def _reads(entry: Entry, provider: Provider, model: str, world: World) -> Mapping[Medium, Known]:
    facts = world.catalog.facts(provider, model)
    reads = facts.reads if entry.reads is None else with_entry(facts, entry).reads
    if world.board.images.refused(provider.name, model):
        return {**reads, "image": Known.NO}
    return reads


def _combo_reads(name: str, world: World, needs: Needs, level: int = 1) -> Mapping[Medium, Known]:
    combo = world.combos.get(name)
    if combo is None or level > LEVELS:
        return {}
    each = [
        standing(entry, world, needs).reads
        if (inner := reference(entry.model)) is None
        else _combo_reads(inner, world, needs, level + 1)
        for entry in combo.models
    ]
    return {medium: _best(reads.get(medium, Known.UNKNOWN) for reads in each) for medium in needs}


def _best(known: Iterable[Known]) -> Known:
    found = set(known)
    return next((k for k in (Known.YES, Known.UNKNOWN) if k in found), Known.NO)


def has_adapter(world: World) -> bool:
    """Whether the vision adapter could add anything at all."""
    pools = world.settings.vision_adapter
    return any(
        pool.enabled and pool.models for pool in (pools.image, pools.pdf, pools.audio, pools.video)
    )


def adapter_models(world: World, ask: Ask) -> list[Entry]:
    """The vision adapter's models that read all that is needed, of every pool concerned that is
    switched on, without duplicates."""
    found: dict[str, Entry] = {}
    for medium in sorted(ask.needs):
        pool: AdapterPool = getattr(world.settings.vision_adapter, medium)
        if not (pool.enabled and pool.models):
            continue
        models = pool.models
        if pool.round_robin and len(models) > 1:
            shift = ask.turn(f"vision adapter: {medium}") % len(models)
            models = (*models[shift:], *models[:shift])
        for model in models:
            entry = Entry.model_construct(model=model)
            if standing(entry, world, ask.needs).reads_all(ask.needs) is Known.YES:
                found.setdefault(model, entry)
    return list(found.values())


def leaves(plan: Plan, world: World, ask: Ask, base: Timeouts) -> Iterator[Leaf]:
    """The entries in order. A nested combo is opened up, by its own strategy, when it is reached;
    `last` tells whether anything follows an entry in the whole flattened walk."""
    return _opened((plan,), (), world, ask, base, (), True)


def _opened(
    nest: tuple[Plan, ...],
    outer: tuple[int, ...],
    world: World,
    ask: Ask,
    base: Timeouts,
    own: tuple[ComboTimeouts, ...],
    last: bool,
) -> Iterator[Leaf]:
    plan = nest[-1]
    timeouts = merged(base, plan.combo.timeouts)
    inner_total = _nested_total(nest)
    for place, step in enumerate(plan.steps, 1):
        entry, is_last, places = step.entry, last and place == len(plan.steps), (*outer, place)
        within = merged(timeouts, entry.timeouts)
        bounds = (*own, *filter(None, (inner_total, entry.timeouts)))
        nested = reference(entry.model)
        inner = nested and _nested_plan(nested, world, ask, len(nest))
        if isinstance(inner, Plan):
            yield from _opened((*nest, inner), places, world, ask, within, bounds, is_last)
        else:
            problem = inner or None
            yield Leaf(entry, step.reason, nest, within, bounds, is_last, problem, places)


def _nested_total(nest: tuple[Plan, ...]) -> ComboTimeouts | None:
    """The outermost combo's total bounds the whole walk, a nested one's each of its attempts."""
    own = nest[-1].combo.timeouts
    return ComboTimeouts(total=own.total) if len(nest) > 1 and own and own.total else None


def _nested_plan(name: str, world: World, ask: Ask, level: int) -> Plan | Problem:
    """Loading refuses what is nested too deeply; this guard holds at run time as well."""
    if level >= LEVELS or name not in world.combos:
        return Skip.NESTED_TOO_DEEPLY, f"more than {LEVELS} levels"
    try:
        return plan_for(world.combos[name], world, ask)
    except NotBuilt as missing:
        return Skip.NOT_BUILT, str(missing)


def candidates(leaf: Leaf, world: World, ask: Ask) -> list[Candidate] | Problem:
    """The accounts an entry could be sent to, in order, locks aside; or why there are none."""
    provider = world.registry.find(leaf.name.partition("/")[0])
    if provider is None:
        return Skip.UNKNOWN_PROVIDER, ""
    lane = lane_for(world.lanes, provider, ask.dialect)
    if lane is None:
        return out_of_reach(provider)
    allowed = leaf.entry.accounts
    accounts = [
        account
        for account in world.accounts.get(provider.name, ())
        if allowed is None or account.name in allowed
    ]
    if not accounts:
        return Skip.NO_ACCOUNT, missing_account(provider, allowed)
    if len(accounts) == 1:
        return [Candidate(leaf, provider, lane, accounts[0])]
    places = _ranked(accounts, leaf, provider, world, ask)
    return [Candidate(leaf, provider, lane, *place) for place in places]


def _ranked(
    accounts: list[Account], leaf: Leaf, provider: Provider, world: World, ask: Ask
) -> list[Place]:
    own = world.registry.settings_of(provider.name)
    strategy, sticky_limit = strategy_of(own, world.settings.routing)
    turn = ask.account_turn(provider.name) if strategy == "round-robin" else 0
    model = leaf.name.partition("/")[2]
    return world.pool.order(
        accounts, model, strategy, sticky_limit, turn, world.chance, ask.session()
    )


def out_of_reach(provider: Provider) -> Problem:
    """Why no lane can take a call to `provider`."""
    if provider.unsupported:
        return Skip.UNSUPPORTED, provider.unsupported.rstrip(".")
    if provider.known_by_litellm and not (provider.litellm_base or provider.base_urls):
        like = f", such as {provider.base_like}" if provider.base_like else ""
        return Skip.NO_ADDRESS, f"give [provider.{provider.name}] a base_url{like}"
    return Skip.NEEDS_TRANSLATION, ""


def missing_account(provider: Provider, allowed: tuple[str, ...] | None) -> str:
    """What to do about a provider that has no account."""
    if allowed is not None:
        return f"{provider.name} has no account named {' or '.join(allowed)}"
    if provider.env:
        return f"set {' or '.join(provider.env)}"
    return f"give [provider.{provider.name}] a key in krouter.toml"
