"""What the commands about past requests share: the ledger, and which of its requests."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from time import time as now
from typing import Any, TypeVar

import click

from krouter.cli.common import NotThere, Unusable
from krouter.errors import Failure
from krouter.ledger_reader import LedgerError, LedgerReader
from krouter.paths import Paths
from krouter.problems import Problem, did_you_mean
from krouter.route import REASONS, End, Route

F = TypeVar("F", bound=Callable[..., Any])

LONGEST_PATTERN = 300
"""Characters, as many as a name has at most; far longer ones the database refuses."""
STATUSES = ("ok", "failed")
_SYNONYMS: Mapping[str, str] = {"timeout": Failure.TIMED_OUT, "empty": End.NO_TEXT}
"""As a fusion without an answer says it."""
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def _moment(ctx: click.Context, param: click.Parameter, given: str | None) -> float | None:
    """A time: how long ago, or when. One without a zone is this machine's."""
    if given is None:
        return None
    text = given.strip()
    try:
        if _SPAN.fullmatch(text):
            return now() - sum(float(n) * _SECONDS[unit] for n, unit in _PART.findall(text))
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        message = f"{given!r} is no time: write 30m, 2h, 7d, 2026-11-30 or 2026-11-30T09:15."
        raise click.BadParameter(message) from None


def _status(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """`ok`, `failed`, an HTTP status, or how a step ended."""
    if given is None:
        return None
    text = given.strip().lower()
    text = _SYNONYMS.get(text, text)
    is_code = len(text) == 3 and text.isascii() and text.isdigit()
    if is_code or text in STATUSES or text in REASONS:
        return text
    hint = did_you_mean(text, (*STATUSES, *sorted(map(str, REASONS))))
    message = f"{given!r} is none: write ok, failed, 529 or 'rate limited'. {hint}"
    raise click.BadParameter(message.strip())


def _pattern(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    if given is not None and len(given) > LONGEST_PATTERN:
        raise click.BadParameter(f"a pattern has at most {LONGEST_PATTERN} characters.")
    return given


status_option = click.option(
    "--status",
    callback=_status,
    metavar="STATUS",
    help="Only these: ok, failed, an HTTP status that the caller or an attempt got (529), or how"
    " a step ended ('rate limited').",
)


def filter_options(*, until: bool) -> Callable[[F], F]:
    """`--combo`, `--key`, `--model` and `--since`, and `--until` where asked for."""
    options = [
        click.option("--combo", metavar="NAME", help="Only requests that this combo took."),
        click.option(
            "--key",
            "caller",
            metavar="NAME",
            help="Only requests of callers with the key of this name.",
        ),
        click.option(
            "--model",
            callback=_pattern,
            metavar="GLOB",
            help="Only those that tried this entry, such as 'glm/*'.",
        ),
        click.option(
            "--since",
            callback=_moment,
            metavar="TIME",
            help="Only from then on: 30m, 2h, 7d ago, or a date and time such as 2026-11-30T09:15.",
        ),
    ]
    if until:
        options.append(
            click.option("--until", callback=_moment, metavar="TIME", help="Only before then.")
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
    if os.path.exists(paths.ledger):
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
