"""Every case of a drill, one after the other, each with a krouter in which nothing has happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from krouter.drill.cast import Cast, Step
from krouter.drill.oracle import Finding, find
from krouter.drill.spots import Spot, spots_of
from krouter.naming import resolve
from krouter.rehearsal import Rehearsal, Seen, Stage
from krouter.router import Router
from krouter.script import Kind
from krouter.world import World

LEAVES_AFTER = 5.0
"""Seconds after which a caller leaves that is to leave."""
_LEAST_PATIENCE = 600.0
"""Seconds that a caller waits, beyond twice the limits, before it is taken to wait for ever."""
_LATE = 700.0
"""Seconds that are given to calls which run on after the caller has its answer."""
RouterOf = Callable[[World], Router]


@dataclass(frozen=True, slots=True)
class Case:
    """One request of a drill: `fault` befell `spot`, or every entry where that is None. It may not
    have come to that, as where the spot was passed over, and then the spot was never `reached`."""

    fault: Kind
    spot: Spot | None
    stream: bool
    reached: bool
    seen: Seen
    steps: tuple[Step, ...]
    finding: Finding


def drill(
    stage: Stage,
    name: str,
    faults: Iterable[Kind] | None = None,
    *,
    dialect: str = "chat",
    router_of: RouterOf | None = None,
) -> Iterator[Case]:
    """Each fault at each spot of what `name` stands for that anything can be sent to, and at all,
    whole and streamed. Raises UnknownModel. `router_of` puts another router to the test."""
    combo = resolve(name, stage.world).combo
    spots = spots_of(combo, stage.world, dialect)
    ground = _Ground(stage, name, spots, dialect, router_of)
    for kind in stage.faults.values() if faults is None else faults:
        for spot in (*(each for each in spots if each.able), None):
            yield ground.case(kind, spot, False)
            yield ground.case(kind, spot, True)


@dataclass(frozen=True, slots=True)
class _Ground:
    """What all cases of a drill have in common."""

    stage: Stage
    name: str
    spots: tuple[Spot, ...]
    dialect: str
    router_of: RouterOf | None

    def case(self, kind: Kind, spot: Spot | None, stream: bool) -> Case:
        cast = Cast(kind, spot)
        with Rehearsal(
            self.stage, cast, patience=self._patience(), router_of=self.router_of
        ) as rehearsal:
            seen = rehearsal.ask(
                self.name,
                needs=("image",) if kind.only_with == "image" else (),
                dialect=self.dialect,
                stream=stream,
                hang_up=LEAVES_AFTER if kind.row == 1 else None,
            )
            if seen.route is not None and seen.route.lingers:
                rehearsal.wait(_LATE)
        steps = tuple(cast.steps)
        finding = find(kind, spot, self.spots, steps, seen)
        return Case(kind, spot, stream, cast.reached, seen, steps, finding)

    def _patience(self) -> float:
        total = max((each.timeouts.total for each in self.spots), default=0.0)
        stall = max((each.timeouts.stall or 0.0 for each in self.spots), default=0.0)
        return _LEAST_PATIENCE + 2 * (total + stall)
