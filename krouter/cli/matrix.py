"""What a combo can answer, and the worst that a request to it can come to, as `krouter check` tells
it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from krouter.accepts import WORDS, Wants, named, written
from krouter.catalog import Known
from krouter.cli.output import aligned, inert, say_line
from krouter.combos import Combo
from krouter.coverage import (
    UNKNOWN_PROVIDER,
    Coverage,
    DeadEnd,
    Model,
    Panel,
    cover,
    furnished,
    returned,
)
from krouter.naming import SHIPPED_ALIASES
from krouter.problems import Problem
from krouter.world import World
from krouter.worst import Worst, worst

WIDEST = 27
"""Columns for a model's name, so that a line has 80 at most."""
COLUMNS = 76
"""Of the lines below the matrix, beside their indent."""
_AT_BLANKS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
_SHOWN = {Known.YES: "yes", Known.NO: "no", Known.UNKNOWN: "?"}
_ROLES = {"judge": "judge: ", "adapter": "adapter: "}


class Sight:
    """One combo, looked at with all accounts that its files ask for, and with those there are."""

    def __init__(self, combo: Combo, world: World) -> None:
        written_for = furnished(world)
        self.combo = combo
        self.coverage = cover(combo, written_for)
        self.dead_ends = self.coverage.dead_ends()
        self.returned = returned(self.coverage, written_for)
        self.worst = worst(combo, written_for)
        self.aliases = _aliases(combo.name, world)
        self._now = cover(combo, world)

    def problems(self, file: str) -> Iterator[Problem]:
        """Dead ends that the combo does not accept, those that come of missing accounts, and what
        it accepts for nothing."""
        for end in self.dead_ends:
            if not (end.accepted or self._is_told(end)):
                hint = f'Where that is meant: "accept": ["{written(end.words, end.over)}"].'
                yield Problem(file, "$.models", self._told(end), hint)
        for end in self.locked_out():
            message = f"{named(end.words, end.over)}: nobody that has an account takes it."
            yield Problem(file, "$.models", message, "", "warning")
        for place in self.coverage.accepts_nothing():
            message = f"{self.combo.accept[place]!r} accepts nothing: that is no dead end."
            yield Problem(file, f"$.accept[{place}]", message, "Take it out.", "warning")

    def _is_told(self, end: DeadEnd) -> bool:
        """Whether an error of its own says why nothing at all can be answered."""
        top = self.coverage.top
        is_too_large = isinstance(top, Panel) and len(top.members) > top.tuning.max_panel
        is_unknown = all(row.missing == UNKNOWN_PROVIDER for row in self.coverage.rows())
        return not (end.words or end.over) and (is_too_large or is_unknown)

    def _told(self, end: DeadEnd) -> str:
        return f"{named(end.words, end.over)} is a dead end: {self.why(end)}."

    def why(self, end: DeadEnd) -> str:
        """Why nobody can answer it."""
        count = len(end.words) + (end.over > 0)
        what = {1: "it", 2: "both"}.get(count, "all of it")
        verb = "takes" if {"tools", "json"} & end.words or end.over else "reads"
        top = self.coverage.top
        if isinstance(top, Panel):
            if len(top.members) > top.tuning.max_panel:
                return "the panel is larger than maxPanel allows"
            return f"no panel and judge together that {verb[:-1]} {what}"
        return f"no entry {verb} {what}"

    def locked_out(self) -> list[DeadEnd]:
        """Dead ends for as long as the accounts are those that there are; where nothing at
        all can be answered, that is told of each entry."""
        if all(row.missing for row in self._now.rows()):
            return []
        written_for = self.coverage
        return [
            end
            for end in self._now.dead_ends()
            if (end.words or end.over)
            and not end.accepted
            and written_for.takes(_wants(end, self._now)) is not Known.NO
        ]

    def as_json(self, source: str) -> dict[str, Any]:
        coverage = self.coverage
        return {
            "name": self.combo.name,
            "source": source,
            "strategy": self.combo.strategy,
            "aliases": self.aliases,
            "windows": [size for size in coverage.sizes if size],
            "entries": [_row_json(row) for row in coverage.rows()],
            "answers": answers(coverage),
            "dead_ends": [
                {
                    "needs": sorted(end.words, key=WORDS.index),
                    "over": end.over,
                    "accepted": end.accepted,
                    "why": self.why(end),
                }
                for end in self.dead_ends
            ],
            "without_account": [written(end.words, end.over) for end in self.locked_out()],
            "returned": [{"over": each.over, "by": each.by} for each in self.returned],
            "bounds": bounds_json(self.worst),
        }

    def show(self) -> None:
        """The matrix, and what follows from it."""
        say_line(f"{self.combo.name} ({self.combo.strategy})")
        coverage = self.coverage
        rows = [_row(row) for row in coverage.rows()]
        largest = max(coverage.sizes)
        together = [_SHOWN[coverage.takes(Wants(frozenset((word,))))] for word in WORDS]
        rows.append(("together", *together, f"{largest:,}" if largest else "?"))
        columns = ("model", *WORDS, "window")
        for line in aligned(columns, [[inert(cell) for cell in row] for row in rows]).split("\n"):
            say_line(f"  {line}")
        for told in self._lines():
            for number, line in enumerate(wrap(told, COLUMNS, **_AT_BLANKS)):
                say_line(f"{'    ' if number else '  '}{line}")

    def _lines(self) -> Iterator[str]:
        if self.dead_ends:
            ends = (
                f"{named(end.words, end.over)}{' (accepted)' if end.accepted else ''}"
                for end in self.dead_ends
            )
            yield f"dead ends: {', '.join(ends)}"
        for each in self.returned:
            yield f"over {each.over:,} tokens: too large for {each.by}, which is returned"
        yield from told_bounds(self.worst)
        if self.aliases:
            yield f"aliases: {', '.join(self.aliases)}"


def _wants(end: DeadEnd, coverage: Coverage) -> Wants:
    above = (size for size in coverage.sizes if size > end.over)
    return Wants(end.words, min(above) if end.over else 0)


def _aliases(name: str, world: World) -> list[str]:
    """The aliases that lead to a combo."""
    aliases: Mapping[str, str] = {**SHIPPED_ALIASES, **world.settings.aliases}
    return [alias for alias, to in aliases.items() if to.removeprefix("combo/") == name]


def answers(coverage: Coverage) -> dict[str, str]:
    """Of every set of needs, written as in `accept`, whether it can be answered."""
    return {
        written(wants.words, coverage.below(wants.size)): str(coverage.takes(wants))
        for wants in coverage.every()
    }


def bounds_json(found: Worst) -> dict[str, Any]:
    return {
        "models": found.entries,
        "attempts": found.attempts,
        "seconds": dict(found.seconds),
        "silent_seconds": dict(found.silent),
    }


def told_bounds(found: Worst) -> Iterator[str]:
    """The worst of one request, in words."""
    models = f"{found.entries} model{'' if found.entries == 1 else 's'}"
    yield (
        f"at most {models} tried, {found.attempts} attempts, and"
        f" {_both(found.seconds)} until the reply begins"
    )
    yield f"where every provider is silent: {_both(found.silent)}"


def _both(seconds: Mapping[str, float]) -> str:
    streamed, whole = seconds["streamed"], seconds["whole"]
    if streamed == whole:
        return f"{streamed:g} s"
    return f"{streamed:g} s streamed, {whole:g} s not"


def _row(row: Model) -> tuple[str, ...]:
    name = shortest(f"{_ROLES.get(row.role, '')}{row.name}")
    if row.missing and row.window is None:
        return (name, *["no"] * len(WORDS), row.missing)
    window = f"{row.window:,}" if row.window else "?"
    return (name, *(_SHOWN[row.can[word]] for word in WORDS), window)


def shortest(name: str) -> str:
    """A name in the columns that there are, without its middle."""
    if len(name) <= WIDEST:
        return name
    return f"{name[:10]}...{name[13 - WIDEST :]}"


def _row_json(row: Model) -> dict[str, Any]:
    return {
        "model": row.name,
        "combos": list(row.combos),
        "role": row.role,
        **{word: str(row.can[word]) for word in WORDS},
        "window": row.window,
        "missing": row.missing or None,
    }
