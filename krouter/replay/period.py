"""All requests of a period over changed combos, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct

from krouter.board import Turns
from krouter.combos import Combo
from krouter.ledger_reader import Row
from krouter.ledger_records import Kept
from krouter.naming import Destination, UnknownModel, resolve
from krouter.records import VERSION, Decoder, RecordError
from krouter.replay.change import Change
from krouter.replay.evidence import Bare
from krouter.replay.one import Replayed, Side, replay
from krouter.replay.scene import Guesses
from krouter.route import End
from krouter.world import World

Kind = Literal["same", "moved", "gone", "bare"]


class Found(Struct):
    """One request: it would have gone the `same` way, or has `moved`; its combo is `gone`, so that
    the caller would have had 404; or its record is too `bare`, which `why` tells."""

    row: Row
    kind: Kind
    then: Side
    now: Side
    replayed: Replayed | None = None
    why: str = ""


class Period:
    """Replays records over `change`; `world` holds the combos as they are to be."""

    def __init__(
        self,
        change: Change,
        world: World,
        guesses: Guesses,
        combo_text: Callable[[str], bytes | None],
    ) -> None:
        self._change, self._world, self._guesses = change, world, guesses
        self._decoder, self._turns = Decoder(combo_text), Turns()
        self._same: dict[object, bool] = {}

    def over(self, kept: Iterable[Kept]) -> Iterator[Found]:
        """What became of each, in their order."""
        return map(self._one, kept)

    def _one(self, kept: Kept) -> Found:
        row = kept.row
        side = _told(row)
        if not kept.record:
            return Found(row, "bare", side, side, why="it has no record")
        if kept.form > VERSION:
            return Found(row, "bare", side, side, why="it is of a newer krouter")
        try:
            return self._read(row, kept.record, side)
        except (Bare, RecordError) as error:
            return Found(row, "bare", side, side, why=str(error))

    def _read(self, row: Row, record: bytes, side: Side) -> Found:
        combos = self._decoder.combos_of(record)
        if not combos:
            return self._unordered(row, side)
        if self._goes_the_same_way(row, combos):
            return Found(row, "same", side, side)
        combo = self._goes_to(row, combos[0])
        if combo is None:
            return Found(row, "gone", side, Side("", 404, End.UNKNOWN_MODEL, 0.0, 0, 0, []))
        route = self._decoder.decode(record)
        found = replay(route, combo, self._change, self._world, self._guesses, self._turns)
        kind: Kind = "moved" if found.moved else "same"
        now = found.now if found.moved else found.then
        return Found(row, kind, found.then, now, found)

    def _unordered(self, row: Row, side: Side) -> Found:
        """One that was refused before any order was made for it: it is refused again, unless that
        was for its name, or for what the combo holds."""
        if row.attempts:
            return Found(row, "bare", side, side, why="it has no order")
        if row.outcome == End.UNKNOWN_MODEL:
            if row.asked.removeprefix("combo/") not in self._change.new:
                return Found(row, "same", side, side)
        elif row.outcome not in (End.NO_MESSAGES, End.VECTORS_DIFFER) or not self._has_changed:
            return Found(row, "same", side, side)
        return Found(row, "bare", side, side, why=f"no order was made for it ({row.outcome})")

    @property
    def _has_changed(self) -> bool:
        return any(self._change.differs(name) for name in self._change.new)

    def _goes_the_same_way(self, row: Row, combos: list[Combo]) -> bool:
        """Whether nothing that its order follows from is to be another."""
        key = row.asked, row.combo, *map(id, combos)
        known = self._same.get(key)
        if known is None:
            known = self._same[key] = self._is_the_same(row, combos)
        return known

    def _is_the_same(self, row: Row, combos: list[Combo]) -> bool:
        if not row.combo:
            return self._named(row.asked) is None
        named = self._named(row.asked)
        elsewhere = named is not None and named.name != row.combo
        return not elsewhere and not any(
            self._change.differs_within(combo.name, combo) for combo in combos
        )

    def _named(self, asked: str) -> Combo | None:
        """The combo that bears the name asked for, which is looked up before all else."""
        return self._change.now(asked.removeprefix("combo/"))

    def _goes_to(self, row: Row, then: Combo) -> Combo | None:
        """Where the request goes now; None where nobody knows its name."""
        if named := self._named(row.asked):
            return named
        if row.combo and (combo := self._change.now(row.combo, then)):
            return combo
        try:
            destination: Destination = resolve(row.asked, self._world)
        except UnknownModel:
            return None
        return destination.combo


def _told(row: Row) -> Side:
    """What the ledger tells of a request without its record. Of a stream it does not tell when it
    began, so that its wait is not known."""
    wait = None if row.stream or row.ended is None else max(row.ended - row.began, 0.0)
    return Side(row.served, row.status, row.outcome, wait, row.cost, row.unpriced, [])
