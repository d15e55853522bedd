"""The order that a recorded request would have had with other combos: made anew from what was
known then, and from today's files only where the record has nothing."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from krouter.board import Turns
from krouter.catalog import listed
from krouter.combos import LEVELS, Combo, Entry, reference
from krouter.dialects.embeddings import EMBEDDINGS
from krouter.lineup import Obstacle, PlanOf
from krouter.plan import Plan, Snapshot, Standing, make_plan, rotates, strategy_of
from krouter.replay.change import Change
from krouter.replay.evidence import Evidence
from krouter.route import Places, Skip
from krouter.standing import adapter_models, reads_best, standing
from krouter.world import Ask, World


def plans_then(evidence: Evidence) -> PlanOf:
    """The orders of nested combos as they were."""

    def plan_of(name: str, places: Places) -> Plan | Obstacle:
        found = evidence.plans.get(places)
        return Obstacle(Skip.NESTED_TOO_DEEPLY) if found is None else found

    return plan_of


class Orders:
    """Of one request. `world` holds the new combos; `turns` counts the requests of combos that did
    not rotate then and are to."""

    def __init__(self, evidence: Evidence, change: Change, world: World, turns: Turns) -> None:
        route, top = evidence.route, evidence.route.snapshots[0]
        self._evidence, self._change, self._world = evidence, change, world
        self._needs, self._routing = top.needs, top.routing
        self._dialect, self._stream = route.dialect, route.stream
        self._turns, self._taken = turns, dict[str, int]()
        self._combos = {given.combo.name: given.combo for given in route.snapshots}
        self._seen: dict[str, list[tuple[Entry, Standing]]] = {}
        for given in route.snapshots:
            for entry, seen in zip(given.combo.models, given.seen, strict=False):
                self._seen.setdefault(entry.model, []).append((entry, seen))

    def differs(self, name: str) -> bool:
        """Whether a combo, or one inside it, is another one than then."""
        return self._change.differs_within(name, self._combos.get(name))

    def top(self, combo: Combo) -> Plan:
        """Of the combo that the request goes to."""
        given = self._snapshot(combo)
        if not given.is_blind or strategy_of(given.combo, given.routing).fuses:
            return make_plan(given)
        return make_plan(replace(given, pool=tuple(self._pool())))

    def plan_of(self, name: str, places: Places) -> Plan | Obstacle:
        """Of a nested combo."""
        combo = self._change.now(name, self._combos.get(name))
        if combo is None or len(places) >= LEVELS:
            return Obstacle(Skip.NESTED_TOO_DEEPLY)
        return make_plan(self._snapshot(combo))

    def _snapshot(self, combo: Combo) -> Snapshot:
        if combo.strategy == "fusion" and self._dialect == EMBEDDINGS.name:
            combo = combo.model_copy(update={"strategy": "fallback"})
        seen = tuple(self._standing(entry) for entry in combo.models)
        turn = self._turn(combo) if rotates(combo, self._routing) else 0
        return Snapshot(combo, self._routing, seen, self._stream, self._needs, turn)

    def _pool(self) -> Iterator[Entry]:
        """The vision adapter's, as they stood in front then; today's where nothing needed them."""
        top = self._evidence.route.snapshots[0]
        if top.is_blind:
            return iter(top.pool)
        return iter(adapter_models(self._world, Ask(self._dialect, self._stream, self._needs)))

    def _turn(self, combo: Combo) -> int:
        """The turn of the rotation: the recorded one, or how many requests came before, since a
        rotation that is switched on begins anew."""
        for given in self._evidence.route.snapshots:
            if given.combo.name == combo.name and rotates(given.combo, given.routing):
                return given.turn
        if combo.name not in self._taken:
            self._taken[combo.name] = self._turns.take(combo.name)
        return self._taken[combo.name]

    def _standing(self, entry: Entry) -> Standing:
        name = reference(entry.model)
        known = self._known(entry)
        if name is not None:
            if known is None or (self._needs and self.differs(name)):
                return self._of_combo(name)
            return known[1]
        if known is None:
            return replace(standing(entry, self._world, self._needs), missing="")
        was, seen = known
        if was.reads == entry.reads or not self._needs:
            return seen
        if entry.reads is not None:
            return replace(seen, reads=listed(entry.reads))
        return replace(seen, reads=standing(entry, self._world, self._needs).reads)

    def _known(self, entry: Entry) -> tuple[Entry, Standing] | None:
        """What was known of the entry: of one with the same accounts first."""
        found = self._seen.get(entry.model, [])
        return max(
            found,
            key=lambda each: (each[0].accounts == entry.accounts, each[0].reads == entry.reads),
            default=None,
        )

    def _of_combo(self, name: str, level: int = 1) -> Standing:
        """What any entry of a combo reads that can be sent to."""
        combo = self._change.now(name, self._combos.get(name))
        if combo is None or level > LEVELS or not self._needs:
            return Standing()
        each = [self._inside(entry, level) for entry in combo.models]
        return reads_best(each, self._needs)

    def _inside(self, entry: Entry, level: int) -> Standing:
        inner = reference(entry.model)
        return self._standing(entry) if inner is None else self._of_combo(inner, level + 1)
