"""What commands print: JSON, or a table. Nothing in it can steer a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = 80
"""The width where no terminal says otherwise."""
LONGEST_CELL = 50


def inert(text: str) -> str:
    """`text` on one line, with a mark for each character that could steer a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def inert_lines(text: str) -> str:
    """The same of a text of several lines."""
    return text if text.isprintable() else "\n".join(map(inert, text.split("\n")))


def say(text: str = "", *, err: bool = False, nl: bool = True, file: IO[Any] | None = None) -> None:
    """What every command prints with, so that no name of a file or a model steers a terminal."""
    click.echo(inert_lines(text), file=file, err=err, nl=nl)


def print_drawing(text: str) -> None:
    """With its colours; whoever draws makes inert what is drawn."""
    click.echo(text)


def shortened(name: str) -> str:
    """`name` as it stands in a table, where a long one would push all columns aside."""
    return name if len(name) <= LONGEST_CELL else f"{name[: LONGEST_CELL - 3]}..."


def say_line(line: str) -> None:
    """One line on stdout, whoever has written it."""
    click.echo(inert(line))


def print_json(value: Any) -> None:
    """One JSON document."""
    click.echo(_escaped(json.dumps(value, indent=2, ensure_ascii=False)))


def print_json_line(value: Any) -> None:
    """One JSON document on one line."""
    click.echo(_escaped(json.dumps(value, ensure_ascii=False)))


def _escaped(text: str) -> str:
    """JSON leaves some control characters as they are."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people on a terminal, else the same columns as aligned text."""
    shown = [list(map(inert, row)) for row in rows]
    if sys.stdout.isatty():
        draw_table(columns, shown, sys.stdout)
    else:
        click.echo(aligned(columns, shown))


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines whose columns stand two spaces apart; nothing is cut off."""
    lines = [[column.upper() for column in columns], *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)


def draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]], file: TextIO) -> None:
    """A table that folds long cells to the width of the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console_for(file).print(table)


def console_for(file: TextIO) -> Console:
    """As wide as the terminal; without any colour where NO_COLOR is set or there is none."""
    from rich.console import Console

    terminal = file.isatty()
    plain = not terminal or bool(os.environ.get("NO_COLOR"))
    return Console(
        file=file,
        width=None if terminal else _columns(),
        color_system=None if plain else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    return max(int(given), 40) if given.isascii() and given.isdigit() else COLUMNS
