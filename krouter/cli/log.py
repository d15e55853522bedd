"""`krouter log`: a line a request, and those to come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from krouter.cli.common import Command, find_paths, json_option, place_options
from krouter.cli.figures import Bill, span, timestamp
from krouter.cli.following import somebody_reads
from krouter.cli.output import inert, print_json_line, say, shortened
from krouter.cli.recorded import filter_options, reading, status_option
from krouter.ledger_reader import Filter, LedgerError, LedgerReader, Row
from krouter.paths import Paths

COLUMNS = (
    "time",
    "id",
    "asked",
    "served by",
    "outcome",
    "tries",
    "in",
    "out",
    "cost",
    "took",
    "key",
)
NEWEST = 20
EVERY = -1
MOST = 1_000_000_000
_WIDTHS = (19, 19, 12, 22, 18, 5, 7, 6, 10, 7, 0)
"""At least so wide, so that lines still to come stand under those that are there."""

Show = Callable[[Row], None]


@click.command(cls=Command)
@click.option("-f", "--follow", is_flag=True, help="Then print each request as it ends.")
@click.option(
    "-n",
    "number",
    type=click.IntRange(0, MOST),
    metavar="N",
    help=f"How many of the newest. Default: {NEWEST}, or with --since all.",
)
@status_option
@filter_options(until=False)
@place_options
@json_option
def log(
    follow: bool,
    number: int | None,
    status: str | None,
    combo: str | None,
    caller: str | None,
    model: str | None,
    since: float | None,
    home: str | None,
    config: str | None,
    combos: str | None,
    as_json: bool,
) -> None:
    """List past requests, the newest last.

    A line a request: when, its id, what was asked for, the entry that served it, status and
    outcome, attempts, tokens in and out and cost of all attempts together, how long it took, and
    the name of the caller's key, where it has one.
    `krouter route ID` draws one of them.

    -f goes on until it is interrupted, through restarts of krouter, and may begin before there is
    anything.

    JSON: one object a line, with number, id, began, ended (epoch seconds), dialect, asked, combo,
    stream, outcome, status, served, provider, model, account, attempts, input, output, cached,
    cache_write (tokens; cached ones are a part of input), cost (US dollars, null where no price is
    known), unpriced (attempts without a known price), and of the attempts that the caller never
    saw wasted, wasted_input, wasted_output, wasted_cost; and caller, the name of the caller's key.
    """
    paths = find_paths(home, config, combos)
    wanted = Filter(combo=combo, caller=caller, model=model, status=status, since=since)
    if number is None:
        number = NEWEST if since is None else EVERY
    show: Show = _print_json if as_json else Lines()
    with suppress(KeyboardInterrupt):
        if follow:
            follow_log(paths, wanted, number, show)
        else:
            _list(paths, wanted, number, show)


def _list(paths: Paths, wanted: Filter, number: int, show: Show) -> None:
    with reading(paths) as ledger:
        found = ledger.requests(wanted, number)
    if isinstance(show, Lines):
        show.fit(found)
    for row in found:
        show(row)
    if not found:
        say("No request that is recorded fits.", err=True)


def follow_log(
    paths: Paths,
    wanted: Filter,
    number: int,
    show: Show,
    goes_on: Callable[[], bool] = somebody_reads,
) -> None:
    """Shows what there is and what comes, for as long as `goes_on` says after a wait. A ledger
    that cannot be read now may be made, or made anew, when the next request is recorded."""
    cursor: int | None = None
    trouble = ""
    while True:
        try:
            rows, cursor = _news(LedgerReader(paths.ledger), wanted, number, cursor)
        except LedgerError as error:
            if str(error) != trouble:
                say(f"{inert(str(error))} Waiting for it.", err=True)
            rows, cursor, trouble = [], cursor or 0, str(error)
        for row in rows:
            show(row)
        if not goes_on():
            return


def _news(
    ledger: LedgerReader, wanted: Filter, number: int, cursor: int | None
) -> tuple[list[Row], int]:
    """What has come since `cursor`, or without one the newest; and the cursor to go on from."""
    if cursor is not None:
        return ledger.after(cursor, wanted)
    return ledger.latest(wanted, number)


@dataclass(slots=True)
class Lines:
    """Prints rows under a heading. A cell too long for its column widens it from there on."""

    _widths: list[int] = field(default_factory=lambda: list(_WIDTHS))
    _begun: bool = False

    def fit(self, rows: Iterable[Row]) -> None:
        """Makes the columns as wide as these rows need."""
        for row in rows:
            self._widen(list(map(inert, _cells(row))))

    def _widen(self, cells: Sequence[str]) -> None:
        self._widths = [max(w, len(cell)) for w, cell in zip(self._widths, cells, strict=True)]

    def __call__(self, row: Row) -> None:
        if not self._begun:
            self._begun = True
            self._print([column.upper() for column in COLUMNS])
        self._print(list(map(inert, _cells(row))))

    def _print(self, cells: Sequence[str]) -> None:
        self._widen(cells)
        padded = (cell.ljust(w) for w, cell in zip(self._widths, cells, strict=True))
        say("  ".join(padded).rstrip())


def _cells(row: Row) -> tuple[str, ...]:
    status = "" if row.status is None else f"{row.status} "
    return (
        timestamp(row.began),
        row.id,
        shortened(row.asked),
        shortened(row.served or "-"),
        f"{status}{row.outcome}",
        str(row.attempts),
        f"{row.input:,}",
        f"{row.output:,}",
        str(_bill(row)),
        "-" if row.ended is None else span(row.ended - row.began),
        row.caller,
    )


def _print_json(row: Row) -> None:
    print_json_line(row_json(row))


def row_json(row: Row) -> dict[str, Any]:
    """The row with its money in dollars, null where none of it is known."""
    wasted = row.wasted_input + row.wasted_output
    lost = Bill(row.wasted_cost, row.unpriced if wasted else 0, wasted, False)
    return asdict(row) | {"cost": _bill(row).dollars, "wasted_cost": lost.dollars}


def _bill(row: Row) -> Bill:
    return Bill(row.cost, row.unpriced, row.input + row.output, bool(row.served))
