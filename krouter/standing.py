"""What is known of a combo's entries right now, and the order that follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from krouter.catalog import Known, with_entry
from krouter.combos import LEVELS, Combo, Entry, Medium, reference
from krouter.dialects.embeddings import EMBEDDINGS
from krouter.plan import (
    NOTHING_KNOWN,
    Needs,
    Plan,
    Snapshot,
    Standing,
    make_plan,
    rotates,
    strategy_of,
)
from krouter.providers import Provider
from krouter.quota import is_spent
from krouter.reporter import Figure
from krouter.settings import AdapterPool
from krouter.world import Ask, SamePlan, World, plan_key

NO_ACCOUNT = "no account"
PLANS_KEPT = 1024
_UNKNOWN = Standing()
_UNKNOWN_PROVIDER = Standing(missing="unknown provider")


def plan_for(combo: Combo, world: World, ask: Ask, *, adapted: bool = False) -> Plan:
    """The order of `combo`'s entries for one request. Only what a caller asks for itself is
    `adapted`."""
    if ask.needs or world.pool.quota.has_figures:
        return make_plan(snapshot(combo, world, ask, adapted=adapted))
    key = plan_key(combo, ask)
    known = world.plans.get(key)
    if known is not None and known.of is combo and known.routing is world.settings.routing:
        return known.plan
    if rotates(combo, world.settings.routing):
        return make_plan(snapshot(combo, world, ask, adapted=adapted))
    return _same_plan(combo, world, ask)


def _same_plan(combo: Combo, world: World, ask: Ask) -> Plan:
    """The plan of a request of which nothing is known that would move an entry: it is the same for
    all of them, and kept."""
    if len(world.plans) >= PLANS_KEPT:
        world.plans.clear()
    plan = make_plan(snapshot(combo, world, ask))
    is_flat = not any(reference(entry.model) for entry in combo.models)
    world.plans[plan_key(combo, ask)] = SamePlan(combo, world.settings.routing, plan, is_flat)
    return plan


def snapshot(combo: Combo, world: World, ask: Ask, *, adapted: bool = False) -> Snapshot:
    """All that the order of this request follows from. A rotation moves on by it. Embeddings
    cannot be fused, so that they try a panel in order."""
    routing = world.settings.routing
    if combo.strategy == "fusion" and ask.dialect == EMBEDDINGS.name:
        combo = combo.model_copy(update={"strategy": "fallback"})
    if strategy_of(combo, routing).fuses:
        return Snapshot(combo, routing, (_UNKNOWN,) * len(combo.models), ask.stream, ask.needs)
    turn = ask.turn(combo.name) if rotates(combo, routing) else 0
    seen = _seen(combo, world, ask.needs)
    found = Snapshot(combo, routing, seen, ask.stream, ask.needs, turn)
    if adapted and found.is_blind and (pool := adapter_models(world, ask)):
        return Snapshot(combo, routing, seen, ask.stream, ask.needs, turn, tuple(pool))
    return found


def _seen(combo: Combo, world: World, needs: Needs) -> tuple[Standing, ...]:
    if not needs and not world.pool.quota.has_figures:
        return (_UNKNOWN,) * len(combo.models)
    return tuple(standing(entry, world, needs) for entry in combo.models)


def standing(entry: Entry, world: World, needs: Needs) -> Standing:
    """What is known of an entry right now. What it reads, and whether it can be sent to at all, is
    looked up only where something is to be read; a combo reads what any of its entries reads that
    can be sent to, and has no quota of its own."""
    name = reference(entry.model)
    if name is not None:
        return _combo_standing(name, world, needs) if needs else _UNKNOWN
    provider, model = world.registry.split(entry.model)
    if provider is None:
        return _UNKNOWN_PROVIDER
    missing = "" if not needs or any(world.accounts_of(provider.name, entry)) else NO_ACCOUNT
    reads = _reads(entry, provider, model, world) if needs else NOTHING_KNOWN
    figure = _figure(entry, provider, model, world)
    if figure is None:
        return Standing(reads, missing=missing)
    return Standing(reads, figure.remaining, is_spent(figure), missing)


def _figure(entry: Entry, provider: Provider, model: str, world: World) -> Figure | None:
    """What is left of the quota of exactly this model: the best over the accounts that the entry
    may use and that are not locked."""
    quota, board, name = world.pool.quota, world.board, provider.name
    if not quota.may_tell(name, model):
        return None
    told = (
        figure
        for account in world.accounts_of(name, entry)
        if (figure := quota.figure(name, account.name, model)) is not None
        and board.blocked(name, account.name, model) is None
    )
    return max(told, key=lambda figure: figure.remaining, default=None)


def _reads(entry: Entry, provider: Provider, model: str, world: World) -> Mapping[Medium, Known]:
    facts = world.catalog.facts(provider, model)
    reads = facts.reads if entry.reads is None else with_entry(facts, entry).reads
    if world.board.images.refused(provider.name, model):
        return {**reads, "image": Known.NO}
    return reads


def _combo_standing(name: str, world: World, needs: Needs, level: int = 1) -> Standing:
    combo = world.combos.get(name)
    if combo is None or level > LEVELS:
        return _UNKNOWN
    each = [
        standing(entry, world, needs)
        if (inner := reference(entry.model)) is None
        else _combo_standing(inner, world, needs, level + 1)
        for entry in combo.models
    ]
    return reads_best(each, needs)


def reads_best(each: Sequence[Standing], needs: Needs) -> Standing:
    """What a combo of such entries reads: what any of them does that can be sent to."""
    able = [seen for seen in each if not seen.missing] or each
    reads = {
        medium: _best(seen.reads.get(medium, Known.UNKNOWN) for seen in able) for medium in needs
    }
    return Standing(reads, missing=able[0].missing)


def _best(known: Iterable[Known]) -> Known:
    found = set(known)
    return next((k for k in (Known.YES, Known.UNKNOWN) if k in found), Known.NO)


def adapter_models(world: World, ask: Ask) -> list[Entry]:
    """The vision adapter's models that read all that is needed and have an account, of every pool
    concerned that is switched on, without duplicates."""
    found: dict[str, Entry] = {}
    for medium in sorted(ask.needs):
        pool: AdapterPool = getattr(world.settings.vision_adapter, medium)
        if not (pool.enabled and pool.models):
            continue
        entries = [Entry.model_construct(model=model) for model in pool.models]
        usable = [entry for entry in entries if _helps(entry, world, ask.needs)]
        if pool.round_robin and len(usable) > 1:
            shift = ask.turn(f"vision adapter: {medium}") % len(usable)
            usable = [*usable[shift:], *usable[:shift]]
        for entry in usable:
            found.setdefault(entry.model, entry)
    return list(found.values())


def _helps(entry: Entry, world: World, needs: Needs) -> bool:
    seen = standing(entry, world, needs)
    return not seen.missing and seen.reads_all(needs) is Known.YES
