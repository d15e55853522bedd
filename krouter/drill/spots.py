"""Where in a combo something can go wrong: its entries, those of combos in it, and judges.

Found in the files alone, so that what a drill expects does not come from who is drilled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from krouter.adapter import lane_for
from krouter.combos import LEVELS, Combo, Entry, reference
from krouter.lineup import merged
from krouter.settings import Timeouts
from krouter.world import World

Role = Literal["", "panel", "judge"]


@dataclass(frozen=True, slots=True)
class Spot:
    """One entry that may be asked, in its `role` in a fusion. `target` is its provider's canonical
    name and its model; `combos` are those around it, the outermost first. `able` tells whether
    anything could be sent there; `fused` are the targets that are asked beside it, `judges` those
    that a judge's combo could ask in its place. Where the files name the same model more than once,
    `times`, they are one spot: what befalls the model befalls it each time."""

    name: str
    target: str
    role: Role
    combos: tuple[Combo, ...]
    timeouts: Timeouts
    window: int | None
    able: bool
    fused: frozenset[str] = frozenset()
    judges: frozenset[str] = frozenset()
    times: int = 1

    @property
    def combo(self) -> Combo:
        """The one that it stands in."""
        return self.combos[-1]


def spots_of(combo: Combo, world: World, dialect: str) -> tuple[Spot, ...]:
    """Every spot once, in the order of the files."""
    found: dict[tuple[str, Role], Spot] = {}
    times: Counter[tuple[str, Role]] = Counter()
    for spot in _spots(combo, world, dialect, (), world.settings.timeouts, ""):
        times[spot.target, spot.role] += 1
        found.setdefault((spot.target, spot.role), spot)
    return tuple(replace(spot, times=times[key]) for key, spot in found.items())


def _spots(
    combo: Combo,
    world: World,
    dialect: str,
    around: tuple[Combo, ...],
    timeouts: Timeouts,
    role: Role,
) -> Iterator[Spot]:
    if len(around) >= LEVELS or combo in around:
        return
    combos = (*around, combo)
    timeouts = merged(timeouts, combo.timeouts)
    if not is_panel(combo):
        yield from _entries(combo.models, world, dialect, combos, timeouts, role)
        return
    panel = list(_entries(combo.models, world, dialect, combos, timeouts, "panel"))
    targets = frozenset(spot.target for spot in panel)
    judge = combo.models[0]
    if combo.judge_name:
        judge = Entry.model_construct(model=combo.judge_name)
    judging = list(_entries((judge,), world, dialect, combos, timeouts, "judge"))
    judges = frozenset(spot.target for spot in judging if spot.role == "judge")
    for spot in panel:
        yield replace(spot, fused=spot.fused | targets)
    for spot in judging:
        yield replace(spot, fused=spot.fused | targets, judges=judges)


def is_panel(combo: Combo) -> bool:
    """Whether several are asked at once; a panel of one is a plain call."""
    return combo.strategy == "fusion" and len(combo.models) > 1


def _entries(
    entries: tuple[Entry, ...],
    world: World,
    dialect: str,
    combos: tuple[Combo, ...],
    timeouts: Timeouts,
    role: Role,
) -> Iterator[Spot]:
    for entry in entries:
        own = merged(timeouts, entry.timeouts)
        name = reference(entry.model)
        if name is None:
            yield _leaf(entry, world, dialect, combos, own, role)
        elif (inner := world.combos.get(name)) is not None:
            yield from _spots(inner, world, dialect, combos, own, role)


def _leaf(
    entry: Entry,
    world: World,
    dialect: str,
    combos: tuple[Combo, ...],
    timeouts: Timeouts,
    role: Role,
) -> Spot:
    provider, model = world.registry.split(entry.model)
    if provider is None:
        return Spot(entry.model, entry.model, role, combos, timeouts, None, False)
    has_lane = lane_for(world.lanes, provider, dialect) is not None
    able = has_lane and any(world.accounts_of(provider.name, entry))
    window = entry.context_window or world.catalog.facts(provider, model).window
    target = f"{provider.name}/{model}"
    return Spot(entry.model, target, role, combos, timeouts, window, able)
