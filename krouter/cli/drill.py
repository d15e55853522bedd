"""`krouter drill`: a combo against scripted faults, offline and in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from krouter.adapter import load_faults
from krouter.cli.common import Command, NotThere, find_paths, json_option, place_options
from krouter.cli.drilled import show
from krouter.cli.output import print_json, print_table
from krouter.cli.view import open_view
from krouter.dialects import DIALECTS
from krouter.drill import Case, Spot, spots_of
from krouter.drill import drill as run_drill
from krouter.naming import UnknownModel, resolve
from krouter.rehearsal import Stage
from krouter.script import Kind, UnknownFault, fault_named

Places = dict[tuple[str, str], int]
"""The number of each spot, by its target and role."""


@click.command(cls=Command)
@click.argument("combo", required=False)
@click.option(
    "--fault",
    "names",
    metavar="F",
    multiple=True,
    help="Only this fault: a name of --faults, or a status. May be given more than once.",
)
@click.option("--faults", "lists", is_flag=True, help="List all faults, and run none.")
@click.option(
    "--dialect",
    type=click.Choice(list(DIALECTS)),
    default="chat",
    show_default=True,
    help="Wire format of the requests.",
)
@place_options
@json_option
def drill(
    combo: str | None,
    names: tuple[str, ...],
    lists: bool,
    dialect: str,
    home: str | None,
    config: str | None,
    combos: str | None,
    as_json: bool,
) -> None:
    """Run a combo against every fault, offline.

    COMBO is what a caller would ask for. Every fault befalls each of its entries in turn, and all
    of them at once, in a whole reply and in a streamed one: those before the entry are down then,
    so that its turn comes, and those after it answer. Of a fusion each of the panel fails, and the
    judge. The providers are scripted and time is virtual: nothing is sent, no credential is looked
    at, and nothing is known of what the running server has locked. A provider without an account
    is given one. Answers take a second to their first byte and another one to their last.

    A model that is listed more than once, as with other accounts, is one entry here: what befalls
    it befalls it each time. `krouter test` tells its accounts apart.

    A combo fails the drill where a caller takes a cut answer for a whole one, where one waits for
    ever or beyond the limits, and where a request is lost that another entry could have answered.
    The exit code is 1 then. What no other entry is asked for by the combo's own rules is not lost:
    the rule stands beside it.

    JSON: asked, combo, strategy, dialect, entries (each with at, entry, combo, role: panel, judge
    or null, usable, and times: how often the model is listed there), cases, passed, failed (how
    many cases). A case is fault, about, row (of the error table, 0 for what is no failure), at
    (null for all entries), entry, role, stream, reached (whether it came to that), came (whole
    answer, empty answer, cut answer, error, error event, caller gone, nothing for ever), status,
    message, served, first_byte and seconds (until its first byte and its end, null where there was
    none), keep_alives, attempts (each with entry, fault, at), cost (US dollars, null where no price
    is known), rule, wrong (cut, hang, lost or null), step, told. With --faults: name, about, row,
    streamed (the row in a stream).
    """
    if lists:
        _list(as_json)
        return
    if combo is None:
        raise click.UsageError("Missing argument 'COMBO', or --faults for a list of the faults.")
    kinds = _named(names)
    view = open_view(find_paths(home, config, combos), required=config is not None)
    stage = Stage.of(view.world)
    try:
        found = drilled(stage, combo, kinds, dialect)
    except UnknownModel as unknown:
        raise NotThere(str(unknown)) from None
    if as_json:
        print_json(found)
    else:
        show(found)
    if not found["passed"]:
        raise click.exceptions.Exit(1)


def _list(as_json: bool) -> None:
    faults = load_faults().values()
    if as_json:
        print_json([{key: getattr(kind, key) for key in _SHOWN} for kind in faults])
        return
    print_table(("fault", "row", "what happens"), [(k.name, str(k.row), k.about) for k in faults])


_SHOWN = ("name", "about", "row", "streamed")


def _named(names: Sequence[str]) -> list[Kind]:
    """The faults asked for, all where none is. Raises BadParameter."""
    known = load_faults()
    try:
        named = [fault_named(name, known) for name in dict.fromkeys(names)]
    except UnknownFault as unknown:
        hint = f"{unknown} krouter drill --faults lists them."
        raise click.BadParameter(hint, param_hint="--fault") from None
    return named or list(known.values())


def drilled(stage: Stage, name: str, kinds: Sequence[Kind], dialect: str) -> dict[str, Any]:
    """The whole drill as plain data. Raises UnknownModel."""
    destination = resolve(name, stage.world)
    spots = spots_of(destination.combo, stage.world, dialect)
    places: Places = {(spot.target, spot.role): place for place, spot in enumerate(spots, 1)}
    names = {spot.target: spot.name for spot in spots}
    cases = [_case(case, places, names) for case in run_drill(stage, name, kinds, dialect=dialect)]
    failed = sum(case["wrong"] is not None for case in cases)
    return {
        "asked": name,
        "combo": None if destination.direct else destination.combo.name,
        "strategy": None if destination.direct else destination.combo.strategy,
        "dialect": dialect,
        "entries": [_entry(place, spot) for place, spot in enumerate(spots, 1)],
        "cases": cases,
        "passed": not failed,
        "failed": failed,
    }


def _entry(place: int, spot: Spot) -> dict[str, Any]:
    return {
        "at": place,
        "entry": spot.name,
        "combo": spot.combo.name,
        "role": spot.role or None,
        "usable": spot.able,
        "times": spot.times,
    }


def _case(case: Case, places: Places, names: Mapping[str, str]) -> dict[str, Any]:
    spot, seen, finding = case.spot, case.seen, case.finding
    return {
        "fault": case.fault.name,
        "about": case.fault.about,
        "row": case.fault.streamed if case.stream else case.fault.row,
        "at": places[spot.target, spot.role] if spot else None,
        "entry": spot.name if spot else None,
        "role": (spot.role or None) if spot else None,
        "stream": case.stream,
        "reached": case.reached,
        "came": str(seen.came),
        "status": seen.status,
        "message": seen.message,
        "served": seen.served,
        "first_byte": _rounded(seen.first),
        "seconds": _rounded(seen.seconds),
        "keep_alives": seen.pings,
        "attempts": [
            {
                "entry": names.get(step.target, step.target),
                "fault": step.fault or None,
                "at": _rounded(step.at),
            }
            for step in case.steps
        ],
        "cost": seen.cost,
        "rule": finding.rule or None,
        "wrong": finding.wrong or None,
        "step": finding.step or None,
        "told": finding.told or None,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
