"""The worst that one request to a combo can come to: attempts, and time until its reply begins.
Pure.

Every attempt is one call to a provider. What adds to them: each account is tried, again for
`retries` and after its credential was had anew; an entry once more without images; the last one
once an account without features that were refused; related models where the model is gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial, reduce
from weakref import WeakKeyDictionary

from msgspec import Struct

from krouter.accounts import Account
from krouter.attempt import ERROR_SECONDS
from krouter.catalog import Catalog
from krouter.combos import Combo, Entry, Medium
from krouter.coverage import attachments
from krouter.families import related
from krouter.lineup import Leaf, Site, leaves, merged
from krouter.plan import rotates
from krouter.providers import Provider
from krouter.standing import plan_for
from krouter.tries import LONGEST_WAIT
from krouter.world import Ask, World


class Worst(Struct, frozen=True):
    """`entries` is how many models can be tried, `attempts` how many calls can be made, `seconds`
    how long the caller can wait until the reply begins. `silent` is how long it waits where every
    provider takes the request and says nothing."""

    entries: int
    attempts: int
    seconds: Mapping[str, float]
    """By "streamed" and "whole"."""
    silent: Mapping[str, float]


class Cost(Struct, frozen=True):
    """What a part of a request can come to at most; in `seconds` infinite where only the request's
    own `total` ends it."""

    entries: int = 0
    attempts: int = 0
    seconds: float = 0.0

    def plus(self, other: Cost) -> Cost:
        return Cost(
            self.entries + other.entries,
            self.attempts + other.attempts,
            self.seconds + other.seconds,
        )

    def times(self, number: int) -> Cost:
        return Cost(self.entries, self.attempts * number, self.seconds * number)

    def most(self, other: Cost) -> Cost:
        return Cost(
            max(self.entries, other.entries),
            max(self.attempts, other.attempts),
            max(self.seconds, other.seconds),
        )


NOTHING = Cost()


def worst(combo: Combo, world: World) -> Worst:
    """The bounds of one request to `combo`, whatever it carries and whichever turn it is."""
    total = merged(world.settings.timeouts, combo.timeouts).total
    seconds, silent, cost = {}, {}, NOTHING
    for name, stream in (("streamed", True), ("whole", False)):
        costs, waits = [NOTHING], [0.0]
        for site, ask in _orders(combo, world, stream):
            costs.append(_cost(site, world, ask))
            waits.append(_silence(site, world, ask))
        most = reduce(Cost.most, costs)
        cost = cost.most(most)
        seconds[name], silent[name] = min(total, most.seconds), min(total, max(waits))
    return Worst(cost.entries, cost.attempts, seconds, silent)


def _orders(combo: Combo, world: World, stream: bool) -> Iterator[tuple[Site, Ask]]:
    """Every order that a request can have. Where nothing is fused, requests with the same one come
    to the same."""
    seen: set[object] = set()
    for ask in _asks(combo, world, stream):
        site = Site((plan_for(combo, world, ask, adapted=True),), world.settings.timeouts)
        found = list(leaves(site, world, ask, flat=False))
        order = tuple((leaf.key, leaf.last) for leaf in found)
        fuses = site.plan.fuses or any(leaf.fusion for leaf in found)
        if fuses or order not in seen:
            seen.add(order)
            yield site, ask


def _asks(combo: Combo, world: World, stream: bool) -> Iterator[Ask]:
    """Requests with every set of attachments, in every turn of a rotation."""
    routing = world.settings.routing
    turns = len(combo.models) if rotates(combo, routing) else 1
    sticky = combo.sticky_limit or routing.combo_sticky_limit
    for needs in (frozenset[Medium](), *attachments()):
        for turn in range(turns):
            yield Ask("chat", stream, needs, turn=partial(_turn, turn * sticky))


def _turn(number: int, name: str) -> int:
    return number


def _cost(site: Site, world: World, ask: Ask) -> Cost:
    return _of_fusion(site, world, ask) if site.plan.fuses else _of_walk(site, world, ask)


def _of_walk(site: Site, world: World, ask: Ask) -> Cost:
    cost, last = NOTHING, False
    tried: set[object] = set()
    everybody = list(leaves(site, world, ask, flat=False))
    for leaf in everybody:
        if leaf.key in tried or leaf.obstacle is not None:
            continue
        tried.add(leaf.key)
        if leaf.fusion is not None:
            cost = cost.plus(_of_fusion(leaf.fusion, world, ask))
            continue
        found = _of_family(leaf, world, ask)
        last = last or (leaf.last and found.attempts > 0)
        cost = cost.plus(found)
    again = max((_limit(leaf, ask) for leaf in everybody), default=0.0)
    # who refused a feature as the last that could be asked is asked as the last, once more; where
    # that was not the last entry, it may learn one more then
    extra = (1 if last else 2) if cost.attempts else 0
    return cost.plus(Cost(0, extra, again * extra if extra else 0.0))


def _of_family(leaf: Leaf, world: World, ask: Ask) -> Cost:
    """An entry and the models that stand in for it."""
    accounts = _accounts(leaf, world)
    if not accounts:
        return NOTHING
    provider, model = world.registry.split(leaf.name)
    assert provider is not None
    others = _kin(provider, model, world.catalog)
    retries = leaf.combo.retries
    each = len(accounts) * (1 + retries) + sum(map(_is_refreshed, accounts)) + 1
    as_last = len(accounts) * min(1 + others, 2) if leaf.last else 0
    attempts = each * (1 + others) + as_last
    waits = retries * len(accounts) * (1 + others) * LONGEST_WAIT
    limit = math.inf if any(map(_is_waited_for, accounts)) else _limit(leaf, ask)
    return Cost(1 + others, attempts, attempts * limit + waits)


_KIN: WeakKeyDictionary[Catalog, dict[tuple[str, str], int]] = WeakKeyDictionary()


def _kin(provider: Provider, model: str, catalog: Catalog) -> int:
    """How many models can stand in for one: it takes long to find out, and is asked often."""
    known = _KIN.setdefault(catalog, {})
    key = provider.name, model
    if key not in known:
        known[key] = len(related(provider, model, catalog))
    return known[key]


def _accounts(leaf: Leaf, world: World) -> list[Account]:
    provider, _ = world.registry.split(leaf.name)
    return list(world.accounts_of(provider.name, leaf.entry)) if provider else []


def _is_refreshed(account: Account) -> bool:
    """Whether its credential can be had anew."""
    return account.key is not None and not account.key.startswith("env:")


def _is_waited_for(account: Account) -> bool:
    """For a place, or for its credential."""
    return account.max_concurrent is not None or _is_refreshed(account)


def _limit(leaf: Leaf, ask: Ask) -> float:
    """Seconds of one attempt of which it is not known that others follow, with those that the words
    of an error may take."""
    limits = [own.total for own in leaf.own]
    if not ask.stream:
        limits += [own.attempt for own in leaf.own if own.attempt != "off"]
    elif leaf.combo.stream_guard != "full":
        limits.append(leaf.timeouts.first_token)
    return min(filter(None, limits), default=math.inf) + ERROR_SECONDS


def _of_fusion(site: Site, world: World, ask: Ask) -> Cost:
    """The panel, waited for as long as its tuning says, and then the judge, twice where it takes
    no two turns of the user in a row; or the only one that has answered, once more."""
    plan, tuning = site.plan, site.plan.combo.fusion_tuning
    size = len(plan.steps)
    if size > tuning.max_panel:
        return NOTHING
    copy = Ask(ask.dialect, False, ask.needs, ask.turn)
    members = [_of_walk(site.alone(place), world, copy) for place, _ in plan.placed()]
    panel = reduce(Cost.plus, members)
    hard = tuning.panel_hard_timeout_ms / 1000
    waited = Cost(panel.entries, panel.attempts, hard)
    return waited.plus(reduce(Cost.most, _seconds(site, world, ask), NOTHING))


def _seconds(site: Site, world: World, ask: Ask) -> Iterator[Cost]:
    """Whoever may be asked after the panel."""
    plan, combo, tuning = site.plan, site.plan.combo, site.plan.combo.fusion_tuning
    everybody = [step.entry for step in plan.steps]
    named = [Entry.model_construct(model=combo.judge_name)] if combo.judge_name else []
    for entry in named or everybody:
        yield _instead(site, entry, world, ask).times(2)
    alone = not (tuning.require_quorum and min(tuning.min_panel, len(everybody)) > 1)
    if alone and tuning.on_single != "return" and not (named and tuning.on_single == "judge"):
        for entry in everybody:
            yield _instead(site, entry, world, ask)


def _instead(site: Site, entry: Entry, world: World, ask: Ask) -> Cost:
    return _of_walk(site.instead(entry, ""), world, ask)


def _silence(site: Site, world: World, ask: Ask) -> float:
    """Seconds until the last has been given up where nobody says anything."""
    if site.plan.fuses:
        tuning = site.plan.combo.fusion_tuning
        too_large = len(site.plan.steps) > tuning.max_panel
        return 0.0 if too_large else tuning.panel_hard_timeout_ms / 1000
    seconds = 0.0
    tried: set[object] = set()
    for leaf in leaves(site, world, ask, flat=False):
        if leaf.key in tried or leaf.obstacle is not None:
            continue
        tried.add(leaf.key)
        if leaf.fusion is not None:
            seconds += _silence(leaf.fusion, world, ask)
        elif accounts := _accounts(leaf, world):
            seconds += _silent(leaf, len(accounts), ask)
    return seconds


def _silent(leaf: Leaf, accounts: int, ask: Ask) -> float:
    """The same of one entry. Its other accounts are with the same silent provider."""
    limits: list[float | None] = [own.total for own in leaf.own]
    if ask.stream:
        limits += [leaf.timeouts.first_byte, leaf.timeouts.first_token]
        last = _least(limits)
    else:
        limits += [own.attempt for own in leaf.own if own.attempt != "off"]
        last = _least(limits)
        limits.append(leaf.timeouts.attempt)
    each, tries = _least(limits), accounts if leaf.timeouts.try_other_accounts else 1
    final = leaf.last and tries == accounts
    return sum([each] * (tries - 1), last if final else each)


def _least(limits: Iterable[float | None]) -> float:
    return min(filter(None, limits), default=math.inf)
