"""The order of one request, decided before anything is sent. Pure.

Rotate, split by what the entries read, order by quota left, put the vision adapter in front: in
this order, each step with its reason. The same input gives the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from types import MappingProxyType

from msgspec import Struct

from krouter.catalog import Known
from krouter.combos import Combo, Entry, Medium
from krouter.settings import RoutingSettings
from krouter.strategies import STRATEGIES, Strategy

Needs = frozenset[Medium]
"""The kinds of attachments that the latest message carries."""


AS_LISTED = "as listed"
IN_THE_PANEL = "in the panel"
NOTHING_KNOWN: Mapping[Medium, Known] = MappingProxyType({})


class Standing(Struct, frozen=True):
    """What is known of an entry when the order is decided.

    `left` is the part of its quota that is left, 0 to 1, None where its provider reports none for
    exactly this model; `spent` says that there is next to nothing left until its reset. `missing`
    is why nothing can be sent to it at all, such as "no account".
    """

    reads: Mapping[Medium, Known] = NOTHING_KNOWN
    left: float | None = None
    spent: bool = False
    missing: str = ""

    def reads_all(self, needs: Needs) -> Known:
        all_known = Known.YES
        for medium in needs:
            known = self.reads.get(medium, Known.UNKNOWN)
            if known is Known.NO:
                return known
            if known is Known.UNKNOWN:
                all_known = known
        return all_known

    @property
    def is_blind(self) -> bool:
        """Whether an image is no use to it."""
        return bool(self.missing) or self.reads.get("image") is Known.NO


class Snapshot(Struct, frozen=True):
    """All that the order of one request follows from, as it was when the request came.

    `seen` is what is known of each entry, as listed; `turn` the number of requests the rotation
    had before this one, 0 where nothing rotates; `pool` the vision adapter's models for `needs`,
    empty unless no entry reads them.
    """

    combo: Combo
    routing: RoutingSettings
    seen: tuple[Standing, ...]
    stream: bool = False
    needs: Needs = frozenset()
    turn: int = 0
    pool: tuple[Entry, ...] = ()

    @property
    def is_blind(self) -> bool:
        """Whether no entry that can be sent to reads all that is needed, nor may."""
        return bool(self.needs) and all(
            seen.missing or seen.reads_all(self.needs) is Known.NO for seen in self.seen
        )


class Step(Struct, frozen=True):
    """An entry at its place, and why it stands there."""

    entry: Entry
    reason: str
    listed: int = 0
    """Its place in the combo's own list, counted from 1; 0 for one of the vision adapter."""


class Plan(Struct, frozen=True):
    """The order in which a combo's entries are tried. `switches` are log lines of the steps that
    changed which entry goes first."""

    snapshot: Snapshot
    steps: tuple[Step, ...]
    switches: tuple[str, ...] = ()
    passed: int = 0
    """How many entries of the order stand before these, where only a part of it is run."""

    @property
    def combo(self) -> Combo:
        return self.snapshot.combo

    @property
    def fuses(self) -> bool:
        """Whether its entries are asked all at once."""
        return strategy_of(self.combo, self.snapshot.routing).fuses

    def placed(self) -> Iterator[tuple[int, Step]]:
        """Each entry with its place in the whole order, counted from 1."""
        return zip(count(self.passed + 1), self.steps, strict=False)

    def after(self, place: int) -> tuple[Step, ...]:
        return self.steps[max(place - self.passed, 0) :]

    def alone(self, place: int) -> Plan:
        """The one entry at its place."""
        at = place - self.passed
        return Plan(self.snapshot, self.steps[at - 1 : at], (), place - 1)

    def instead(self, entry: Entry, reason: str) -> Plan:
        """An entry that is none of the order's own, at place 0, which is before the first."""
        return Plan(self.snapshot, (Step(entry, reason),), (), -1)


@dataclass(slots=True)
class _Draft:
    """A step on its way through the order."""

    entry: Entry
    listed: int
    seen: Standing
    known: Known
    reasons: list[str]


def make_plan(given: Snapshot) -> Plan:
    """The order of one request. A panel is asked as a whole, so nothing orders it."""
    combo, routing, needs = given.combo, given.routing, given.needs
    strategy = strategy_of(combo, routing)
    if strategy.fuses:
        panel = (Step(entry, IN_THE_PANEL, n) for n, entry in enumerate(combo.models, 1))
        return Plan(given, tuple(panel))
    listed = _listed(given, strategy)
    groups = _split(listed, needs)
    split = list(chain.from_iterable(groups))
    ordered = list(chain.from_iterable(map(_by_quota, groups)))
    switches = [
        *_switch("Capacity auto-switch", _named(needs), listed, split),
        *_switch("Quota auto-switch", "most left", split, ordered),
    ]
    steps = [Step(place.entry, "; ".join(place.reasons), place.listed) for place in ordered]
    if given.pool and given.is_blind:
        added = [Step(entry, f"vision adapter for {_named(needs)}") for entry in given.pool]
        switches.append(f"Vision adapter: {_named(needs)} → {added[0].entry.model}")
        steps = [*added, *steps]
    return Plan(given, tuple(steps), tuple(switches))


def strategy_of(combo: Combo, routing: RoutingSettings) -> Strategy:
    """The one that `combo` is run by."""
    return strategy_for(combo.strategy, len(combo.models), routing)


def strategy_for(name: str, entries: int, routing: RoutingSettings) -> Strategy:
    """What a combo of this strategy and so many entries is run by. `fallback` follows the global
    Combo Round Robin switch, `priority` never does. A panel of one is a plain call."""
    if name == "fusion" and entries == 1:
        return STRATEGIES["priority"]
    follows = name == "fallback" and routing.combo_round_robin
    return STRATEGIES["round-robin" if follows else name]


def shape_for(name: str, entries: int, routing: RoutingSettings) -> str:
    """How the requests of such a combo pass through its entries: `fan` to all of them and on to a
    judge, `ring` where they take turns, else `chain`."""
    strategy = strategy_for(name, entries, routing)
    if strategy.fuses:
        return "fan"
    return "ring" if strategy.rotates and entries > 1 else "chain"


def rotates(combo: Combo, routing: RoutingSettings) -> bool:
    return strategy_of(combo, routing).rotates and len(combo.models) > 1


def sticky_limit(combo: Combo, routing: RoutingSettings) -> int:
    """How many requests an entry keeps the front of the rotation: the combo's own, else that of
    all."""
    return combo.sticky_limit or routing.combo_sticky_limit


def _listed(given: Snapshot, strategy: Strategy) -> list[_Draft]:
    """The entries as the strategy has them, each with what is known of it."""
    passed = given.turn // sticky_limit(given.combo, given.routing)
    known = zip(range(1, len(given.seen) + 1), given.combo.models, given.seen, strict=True)
    found = strategy.order(tuple(known), passed)
    reason = AS_LISTED if found[0][0] == 1 else "in its turn"
    needs = given.needs
    return [
        _Draft(entry, listed, seen, seen.reads_all(needs), [reason])
        for listed, entry, seen in found
    ]


def _split(places: list[_Draft], needs: Needs) -> list[list[_Draft]]:
    """One group, or two: the entries that read all that is needed, or else those that may, and the
    others. Those that cannot be sent to have no say in which."""
    if not needs:
        return [places]
    known = {place.known for place in places if not place.seen.missing}
    known = known or {place.known for place in places}
    reasons = {known: f"{verb} {_named(needs)}" for known, verb in _READS.items()}
    for place in places:
        place.reasons.append(reasons[place.known])
        place.reasons += [place.seen.missing] if place.seen.missing else []
    front = next((each for each in (Known.YES, Known.UNKNOWN) if each in known), Known.NO)
    if all(place.known is front for place in places) or front is Known.NO:
        return [places]
    return [
        [place for place in places if place.known is front],
        [place for place in places if place.known is not front],
    ]


_READS = {Known.YES: "reads", Known.UNKNOWN: "may read", Known.NO: "does not read"}


class Why(Struct, frozen=True):
    """A part of the reason of a step; `code` is `listed`, `panel`, `reads`, `may read` or `does not
    read`, and empty for all others."""

    code: str
    text: str


def whys(reason: str) -> list[Why]:
    """The parts of a step's `reason`."""
    return [Why(_code(part), part) for part in reason.split("; ")]


def _code(part: str) -> str:
    known = {AS_LISTED: "listed", IN_THE_PANEL: "panel"}
    return known.get(part) or next((v for v in _READS.values() if part.startswith(f"{v} ")), "")


def is_moved(step_reason: str, place: int, listed: int | None) -> bool:
    """Whether an entry stands further in front than it is listed, for what it reads; places are
    counted from 1."""
    codes = {why.code for why in whys(step_reason)}
    return (listed or 0) > place and bool(codes & {"reads", "may read"})


def _by_quota(group: list[_Draft]) -> list[_Draft]:
    """Most left first, entries without a figure as they stood, the spent last."""
    if all(place.seen.left is None for place in group):
        return group
    for place in group:
        if place.seen.left is not None:
            spent = (
                "quota spent" if place.seen.spent else f"{place.seen.left:.0%} of its quota left"
            )
            place.reasons.append(spent)
    ordered = sorted(group, key=_quota_rank)
    was = {id(place): index for index, place in enumerate(group)}
    for index, place in enumerate(ordered):
        if place.seen.left is None and was[id(place)] != index:
            place.reasons.append("moved up" if index < was[id(place)] else "moved back")
    return ordered


def _quota_rank(place: _Draft) -> tuple[int, float]:
    seen = place.seen
    if seen.left is None:
        return 1, 0.0
    return (2, 0.0) if seen.spent else (0, -seen.left)


def _switch(name: str, why: str, before: list[_Draft], after: list[_Draft]) -> list[str]:
    first = after[0].entry
    return [] if first is before[0].entry else [f"{name}: {why} → {first.model}"]


def _named(needs: Needs) -> str:
    return " and ".join(sorted(needs))
