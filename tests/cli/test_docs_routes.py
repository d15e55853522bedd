"""What docs/routes.md shows is what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from krouter.cli import log, usage
from krouter.router import new_route_id

PAGE = Path(__file__).parents[2] / "docs" / "routes.md"
BLOCKS = re.findall(r"```console\n(.*?)```\n", PAGE.read_text(), re.DOTALL)
SHOWN = {block.split("\n", 1)[0]: block.split("\n")[1:] for block in BLOCKS}
"""The lines that follow each command."""


def output(command: str) -> list[str]:
    (lines,) = (lines for line, lines in SHOWN.items() if line.startswith(f"$ krouter {command}"))
    return lines


def columns(line: str) -> list[str]:
    return re.split(r"  +", line.strip())


def table(lines: list[str]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows, of which each cell but the last begins under its heading."""
    head, *rows = (line for line in lines if line)
    starts = [head.index(column) for column in columns(head)]
    for row in rows:
        assert all(start >= len(row) or row[start - 1 : start] in ("", " ") for start in starts)
    return columns(head), list(map(columns, rows))


@pytest.mark.parametrize("block", BLOCKS)
def test_each_block_is_whole(block: str) -> None:
    lines = block.splitlines()
    assert len(lines) > 1
    assert all(line.strip() != "#" for line in lines)
    assert block.count("╭") == block.count("╰")
    ids = re.findall(r"1a22[0-9a-z]{15}", block)
    assert set(ids) <= set(re.findall(r"1a22[0-9a-z]{15}", "\n".join(output("log -n"))))


def test_log() -> None:
    head, rows = table(output("log -n 3"))
    assert head == [column.upper() for column in log.COLUMNS]
    assert [len(row) for row in rows] == [len(head) - 1] * 3  # nobody had a key
    assert {len(row[1]) for row in rows} == {len(new_route_id())}


def test_usage_sums_up_what_log_lists() -> None:
    *lines, blank, waste, end = output("usage")
    head, rows = table(lines)
    assert head == ["MODEL", *(column.upper() for column in usage.COLUMNS)]
    assert {len(row) for row in rows} == {len(head)}
    assert (blank, end, rows[-1][0]) == ("", "", "total")
    assert waste.startswith(f"Waste: {rows[-1][-1]} attempts that the caller never saw, ")
    listed = table(output("log -n 3"))[1]
    for at, name in ((6, "IN"), (7, "OUT")):
        assert sum(int(row[at]) for row in listed) == int(
            rows[-1][head.index(name)].replace(",", "")
        )


def test_route() -> None:
    lines = output("route")
    headings = [line for line in lines if line.isupper() and "  " not in line]
    assert headings == ["ORDER", "WHAT HAPPENED", "SUMS"]
    labels = [line.split()[0] for line in lines[1:6]]
    assert labels == ["route", "asked", "carries", "when", "outcome"]
    assert max(map(len, lines)) <= 80


def test_explain() -> None:
    headline, switch, blank, *order, empty, same, end = output("explain --route")
    assert headline.endswith(f"; route {columns(output('route')[1])[1]}")
    assert (switch.split(":")[0], blank, empty, end) == ("Capacity auto-switch", "", "", "")
    head, rows = table(order)
    assert head == ["#", "MODEL", "COMBO", "LANE", "ACCOUNTS", "WHY"]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert same == "Made anew from the record; it is the order that was recorded."
