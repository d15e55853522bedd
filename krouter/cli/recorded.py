"""What the commands about past requests share: the ledger, and which of its requests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import click

from krouter.cli.common import NotThere, Unusable
from krouter.ledger_reader import LedgerError, LedgerReader
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
            "--model", metavar="GLOB", help="Only those that tried this entry, such as 'glm/*'."
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


@contextmanager
def reading(paths: Paths) -> Iterator[LedgerReader]:
    """The ledger. Raises NotThere where nothing has been recorded, Unusable where it cannot be
    read, also where that shows later."""
    try:
        yield LedgerReader(paths.ledger)
    except LedgerError as error:
        raise _refused(paths, error) from None


def _refused(paths: Paths, error: LedgerError) -> click.ClickException:
    if paths.ledger.exists():
        return Unusable([Problem(str(paths.ledger), "", str(error))])
    return NotThere(
        f"{error} krouter serve records what it answers, unless [ledger] enabled is false; another"
        " home is given by --home."
    )


def find_route(paths: Paths, route_id: str) -> Route:
    """Raises NotThere where no request, or more than one, is meant."""
    with reading(paths) as ledger:
        try:
            return ledger.route(route_id)
        except LedgerError as error:
            raise NotThere(f"{error} `krouter log` lists the requests.") from None
