"""`krouter usage`: tokens and money, by model, combo, account, key or day."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any, get_args

import click

from krouter.cli.common import Command, find_paths, json_option, place_options
from krouter.cli.figures import NOTHING_TOLD, UNKNOWN, Bill, count
from krouter.cli.output import inert, print_json, print_table, say, shortened
from krouter.cli.recorded import filter_options, reading
from krouter.ledger_reader import By, Filter, UsageRow

COLUMNS = ("requests", "attempts", "in", "cached", "out", "cost", "wasted")
FIELDS = (
    "requests",
    "attempts",
    "input",
    "output",
    "cached",
    "cache_write",
    "cost",
    "unpriced",
    "wasted",
    "wasted_input",
    "wasted_output",
    "wasted_cost",
    "wasted_unpriced",
)


@click.command(cls=Command)
@click.option(
    "--by",
    type=click.Choice(get_args(By)),
    default="model",
    show_default=True,
    help="What to sum by. A key is the caller's, a day one of this machine's.",
)
@filter_options(until=True)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@place_options
@json_option
def usage(
    by: By,
    combo: str | None,
    caller: str | None,
    model: str | None,
    since: float | None,
    until: float | None,
    as_csv: bool,
    home: str | None,
    config: str | None,
    combos: str | None,
    as_json: bool,
) -> None:
    """Sum up tokens and money of past requests.

    Every attempt counts where it was made, also those that the caller never saw; their part is
    shown as wasted, and in the last line. With --model only the attempts at that entry count.
    Cached tokens are a part of those that went in, shown apart and counted once. A price that is
    not known is not 0: `$0.0123 + 3 unpriced` is the sum of the others, `unknown` where no price is
    known.

    JSON: by, rows, total, each row with key, requests, attempts, input, output, cached, cache_write
    (tokens; both are a part of input), cost (US dollars, null where no price is known), unpriced
    (attempts without a known price), and of the attempts that the caller never saw wasted,
    wasted_input, wasted_output, wasted_cost, wasted_unpriced. A request that had attempts under
    several keys counts once under each, and once in total.

    CSV: the same fields a row, the key under the name of --by; no total; empty for null.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other.")
    wanted = Filter(combo=combo, caller=caller, model=model, since=since, until=until)
    paths = find_paths(home, config, combos)
    with reading(paths) as ledger:
        rows, total = ledger.usage(by, wanted), ledger.total(wanted)
    if as_json:
        shown = {"by": by, "rows": list(map(_json, rows)), "total": _json(total)}
        print_json(shown)
    elif as_csv:
        say(_csv(by, rows), nl=False)
    else:
        _show(by, rows, total)


def _json(row: UsageRow) -> dict[str, Any]:
    return asdict(row) | {
        "cost": _bill(row).dollars,
        "wasted_cost": _lost(row).dollars,
    }


def _bill(row: UsageRow) -> Bill:
    return Bill(row.cost, row.unpriced, row.input + row.output, row.attempts > row.wasted)


def _lost(row: UsageRow) -> Bill:
    """Of the attempts that the caller never saw."""
    used = row.wasted_input + row.wasted_output
    return Bill(row.wasted_cost, row.wasted_unpriced, used, False)


def _csv(by: By, rows: list[UsageRow]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((by, *FIELDS))
    for row in rows:
        values = _json(row)
        cells = (_decimal(values[name]) for name in FIELDS)
        writer.writerow((inert(row.key), *cells))
    return text.getvalue()


def _decimal(value: float | int | None) -> str:
    """Without an exponent, which not every reader of CSV takes."""
    if isinstance(value, float):
        return f"{value:.12f}".rstrip("0").rstrip(".")
    return "" if value is None else str(value)


def _show(by: By, rows: list[UsageRow], total: UsageRow) -> None:
    if not total.requests:
        say("No request that is recorded fits.", err=True)
        return
    print_table((by, *COLUMNS), [*map(_cells, rows), _cells(total)])
    say(f"\n{_waste(total)}")


def _cells(row: UsageRow) -> tuple[str, ...]:
    return (
        shortened(row.key or "(none)"),
        f"{row.requests:,}",
        f"{row.attempts:,}",
        f"{row.input:,}",
        f"{row.cached:,}",
        f"{row.output:,}",
        str(_bill(row)),
        f"{row.wasted:,}",
    )


def _waste(total: UsageRow) -> str:
    if not total.wasted:
        return "Waste: none; the caller saw every attempt."
    seen = f"Waste: {count(total.wasted, 'attempt')} that the caller never saw"
    if (cost := str(_lost(total))) == NOTHING_TOLD:
        return f"{seen}; none told any tokens."
    spent = f"cost {cost}" if cost == UNKNOWN else cost
    return f"{seen}, {total.wasted_input:,} in, {total.wasted_output:,} out; {spent}."
