"""What `krouter route` draws, to the letter."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import pytest
from rich.console import Console

from krouter.cli.drawing import draw
from krouter.cli.output import console_for
from krouter.route import Route
from tests.cli.pasts import (
    failed,
    hostile,
    mixed,
    screenshot,
)

GOLDEN = Path(__file__).parent / "golden"


def console(encoding: str = "utf-8") -> Console:
    return console_for(io.TextIOWrapper(io.BytesIO(), encoding=encoding))


def drawn(route: Route, encoding: str = "utf-8") -> str:
    return draw(route, console(encoding), UTC)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("make", [screenshot, failed, mixed, hostile], ids=lambda f: f.__name__)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_is_drawn_at_80_columns(make: Callable[[], Route], encoding: str) -> None:
    shown = drawn(make(), encoding)
    assert shown + "\n" == (GOLDEN / f"{make.__name__}.{encoding}.txt").read_text()
    shown.encode(encoding)
    assert all(line.isprintable() for line in shown.split("\n"))
