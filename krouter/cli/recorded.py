"""What the commands about past requests share: the ledger, and which of its requests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from krouter.cli.common import NotThere, Unusable
from krouter.ledger import LedgerError, LedgerReader
from krouter.paths import Paths
from krouter.problems import Problem, did_you_mean
from krouter.route import REASONS

F = TypeVar("F", bound=Callable[..., Any])

STATUSES = ("ok", "failed")
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class Moment(click.ParamType):
    """A time in the past: how long ago, or when. One without a zone is this machine's."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        try:
            if _SPAN.fullmatch(text):
                return time.time() - sum(
                    float(n) * _SECONDS[unit] for n, unit in _PART.findall(text)
                )
            return datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            self.fail(f"{text!r} is no time: write 30m, 2h, 7d, 2026-11-30 or 2026-11-30T09:15.")


class Status(click.ParamType):
    """`ok`, `failed`, an HTTP status, or how a request ended."""

    name = "status"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip().lower()
        code = text.isascii() and text.isdigit() and 100 <= int(text) <= 599
        if code or text in STATUSES or text in REASONS:
            return text
        hint = did_you_mean(text, (*STATUSES, *sorted(REASONS)))
        self.fail(f"{value!r} is none: write ok, failed, 529 or 'rate limited'. {hint}".strip())


def filter_options(*, until: bool) -> Callable[[F], F]:
    """`--combo`, `--model` and `--since`, and `--until` where asked for."""
    options = [
        click.option("--combo", metavar="NAME", help="Only requests that this combo took."),
        click.option(
            "--model", metavar="GLOB", help="Only what this model served, such as 'glm/*'."
        ),
        click.option(
            "--since",
            type=Moment(),
            metavar="TIME",
            help="Only from then on: 30m, 2h, 7d ago, or a date and time such as 2026-11-30T09:15.",
        ),
    ]
    if until:
        options.append(
            click.option("--until", type=Moment(), metavar="TIME", help="Only before then.")
        )

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def open_ledger(paths: Paths) -> LedgerReader:
    """Raises NotThere where nothing has been recorded, Unusable where it cannot be read."""
    if not paths.ledger.exists():
        raise NotThere(
            f"nothing is recorded in {paths.ledger} yet: krouter serve writes it as it answers"
            " requests, unless [ledger] enabled is false. Another home is given by --home."
        )
    try:
        return LedgerReader(paths.ledger)
    except LedgerError as error:
        raise unusable(paths, error) from None


def unusable(paths: Paths, error: LedgerError) -> Unusable:
    """A ledger that cannot be read. krouter goes on without its past."""
    hint = "Move it away and krouter begins a new one."
    return Unusable([Problem(str(paths.ledger), "", str(error), hint)])
