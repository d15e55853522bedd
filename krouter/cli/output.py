"""What commands print: JSON, or a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click


def print_json(value: Any) -> None:
    """One JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people on a terminal, else the same columns as aligned text."""
    if sys.stdout.isatty():
        draw_table(columns, rows, sys.stdout)
    else:
        click.echo(aligned(columns, rows))


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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(file=file).print(table)
