"""`krouter replay`: past requests over changed combos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from krouter.cli.common import Command, config_option, find_paths, home_option, json_option
from krouter.cli.output import print_json
from krouter.cli.recorded import filter_options, reading
from krouter.cli.replayed import as_json as told
from krouter.cli.replayed import show
from krouter.cli.view import View, open_view
from krouter.combos import Combo, bad_references, parse_combo, problem_of
from krouter.combostore import ComboStore
from krouter.ledger_reader import Filter, LedgerReader
from krouter.ledger_records import Waits, combo_text, records, waits
from krouter.load import open_combos
from krouter.paths import Paths
from krouter.problems import ConfigError, Problem
from krouter.replay import Change, Period, Today


@click.command(cls=Command)
@click.option(
    "--combos",
    "new",
    required=True,
    type=click.Path(path_type=Path),
    metavar="NEW",
    help="The changed combos: a folder of them, or the file of one.",
)
@filter_options(until=True)
@home_option
@config_option
@json_option
def replay(
    new: Path,
    combo: str | None,
    caller: str | None,
    model: str | None,
    since: float | None,
    until: float | None,
    home: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Run past requests over changed combos, and show what differs.

    Each recorded request is given the order that the combos of NEW make of what was known then, and
    is walked again. An entry that was tried then ends as it ended then, after the same time and
    with the same tokens and cost. One that was not is assumed to answer: with the request's tokens
    at the model's prices, after the median wait of its answers in the period. What rests on that is
    marked with *. Nothing is sent. NEW as a folder stands for all combos, the packaged ones behind
    it; as a file it changes one combo.

    A line a request that would have gone elsewhere or ended otherwise: when, its id, its combo, who
    answered then and now, why, and wait (to the first byte of the answer) and cost then and now.
    Requests for a combo that is not in NEW would have had 404. Records that do not tell enough are
    listed with the reason and left out of the sums.

    The exit code is 0 whether anything differs or not.

    JSON: requests, moved, gone, assumed (of those moved), bare (how many); cost (then and now, US
    dollars of all that were replayed), unpriced (then and now, attempts without a known price),
    wait (then and now, the mean seconds of those that moved), waits (of how many these are known);
    without_account (providers assumed to answer that have none today); rows, each with id, began,
    combo, asked, then, now, why; untold, each with id, began, combo, why. Then and now are served,
    status, outcome, wait and cost (null where unknown), unpriced, assumed, attempts (each with
    entry, account, outcome, assumed).
    """
    paths = find_paths(home, config)
    view = open_view(paths, required=config is not None)
    change = _change(view, paths, new)
    names = change.new if change.whole else {**view.world.combos, **change.new}
    world = replace(view.world, combos=names)
    wanted = Filter(combo=combo, caller=caller, model=model, since=since, until=until)
    period = Filter(since=since, until=until)
    with reading(paths) as ledger:
        today = Today(world, lambda *which: _waits(ledger, period, *which))
        kept = records(ledger, wanted)
        found = Period(change, world, today, lambda digest: combo_text(ledger, digest)).over(kept)
        sums = told(found, today.without_account)
    print_json(sums) if as_json else show(sums)


def _waits(
    ledger: LedgerReader, period: Filter, provider: str, model: str, stream: bool
) -> Waits | None:
    return waits(ledger, provider, model, stream=stream, filter=period)


def _change(view: View, paths: Paths, new: Path) -> Change:
    """Raises ConfigError for combos that cannot be used."""
    today = view.store.combos
    if new.is_dir():
        store = open_combos(replace(paths, combos=new.absolute()))
        _check(store)
        return Change(store.combos, today, whole=True)
    if not new.is_file():
        raise ConfigError([Problem(str(new), "", "no such file or folder.")])
    try:
        combo = parse_combo(new.read_bytes(), str(new), new.stem)
    except OSError as error:
        raise ConfigError([Problem(str(new), "", f"{error.strerror}.")]) from None
    _check_references(combo, {**today, combo.name: combo}, new)
    return Change({combo.name: combo}, today, whole=False)


def _check(store: ComboStore) -> None:
    """A file that gives no combo would look like one that is gone."""
    wrong = [problem for problem in store.problems if problem.level == "error"]
    if wrong:
        raise ConfigError(wrong)


def _check_references(combo: Combo, combos: Mapping[str, Combo], file: Path) -> None:
    bad = [each for each in bad_references(combos) if each.combo == combo.name]
    if bad:
        raise ConfigError([problem_of(each, combos, str(file)) for each in bad])
