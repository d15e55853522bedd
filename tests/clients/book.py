"""The tables in docs/clients.md that the runs fill."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


def is_well(cell: str) -> bool:
    """Whether a cell tells of no fault: it worked, or it is nothing that this lane has."""
    return cell == "-" or re.fullmatch(r"ok( \(\d+\))?", cell) is not None


def marks(name: str) -> tuple[str, str]:
    """What stands before and behind a table."""
    return f"<!-- {name} -->\n", f"<!-- /{name} -->"


def table(columns: Sequence[str], rows: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """Rows by their first two cells, as Markdown."""
    lines = [_line(columns), _line(["---"] * len(columns))]
    return "\n".join([*lines, *(_line([*key, *cells]) for key, cells in rows.items())]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "/").split()) for cell in cells) + " |"


def read_rows(text: str, name: str) -> dict[tuple[str, str], list[str]]:
    """The rows that a document has between its marks."""
    begin, end = marks(name)
    lines = text.partition(begin)[2].partition(end)[0].strip().splitlines()[2:]
    rows = {}
    for line in lines:
        first, second, *cells = (cell.strip() for cell in line.strip("| ").split(" | "))
        rows[first, second] = cells
    return rows


def update(
    text: str,
    name: str,
    columns: Sequence[str],
    new: Mapping[tuple[str, str], Sequence[str]],
    order: Sequence[str],
) -> str:
    """The document with a table renewed. Rows of clients in `order` that have not run stay."""
    ran = {first for first, _ in new}
    old = {key: row for key, row in read_rows(text, name).items() if key[0] not in ran}
    rows = {key: row for key, row in {**old, **new}.items() if key[0] in order}
    rows = {key: rows[key] for key in sorted(rows, key=lambda key: order.index(key[0]))}
    begin, end = marks(name)
    before, _, rest = text.partition(begin)
    return f"{before}{begin}{table(columns, rows)}{end}{rest.partition(end)[2]}"
