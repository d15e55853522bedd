"""`krouter simulate`: very many requests against a combo, offline and in virtual time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

import click

from krouter.cli.common import Command, NotThere, find_paths, json_option, place_options
from krouter.cli.drilled import WIDTH
from krouter.cli.figures import count, span
from krouter.cli.output import aligned, print_json, say, say_line, shortened
from krouter.cli.view import open_view
from krouter.naming import UnknownModel
from krouter.problems import ConfigError, Problem
from krouter.rehearsal import Stage
from krouter.simulation import read_load
from krouter.simulation import simulate as run_simulation


@click.command(cls=Command)
@click.argument("combo")
@click.option(
    "--load",
    "file",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Who asks and when, and what the providers do: JSON, or JSON lines.",
)
@place_options
@json_option
def simulate(
    combo: str,
    file: Path,
    home: str | None,
    config: str | None,
    combos: str | None,
    as_json: bool,
) -> None:
    """Run very many requests against a combo, offline.

    COMBO is what a caller would ask for. The providers are scripted and time is virtual: nothing is
    sent, no credential is looked at, and a provider without an account is given one. Locks,
    back-off, rotations, the choice of accounts and their limits are those of a krouter that has
    just started. The same load gives the same sums.

    A load file is one JSON object; docs/trust.md tells all of it. requests (how many) or seconds
    (for how long), rate (a second, or a list of rate and from), seed, stream (share of the
    requests), dialects (weights), needs (shares), input and output (tokens), session (requests of a
    conversation), latency (by name: first_byte, rest, spread), outages (of, from, to, fault, share)
    and quotas (of, every, requests, tokens). A name is a provider, provider/model,
    provider@account, or * for all. A file that ends in .jsonl has a request on each line (at,
    dialect, stream, needs, input, output, session), after a first line with all the rest, if any.

    JSON: asked, seconds (of virtual time), requests, answered, availability (a share, null where no
    request came), fell_over (answers that took more than one attempt), failures (by status and
    reason), served (answers by entry), attempts, most_attempts (of one request), most_at_once
    (requests under way), first_byte, whole_answer and until_failure (p50, p90, p99 and max in
    seconds, null where there is none), cost and wasted (US dollars; of attempts that the caller
    never saw), unpriced (attempts that may have cost something), accounts (by provider@account:
    sent, a_request, answered, failed by reason, tokens, cost).
    """
    view = open_view(find_paths(home, config, combos), required=config is not None)
    stage = Stage.of(view.world)
    try:
        load = read_load(file, stage.world, stage.faults)
    except OSError as error:
        raise ConfigError([Problem(str(file), "", f"{error.strerror}.")]) from None
    try:
        report = run_simulation(stage, combo, load, _tell_far)
    except UnknownModel as unknown:
        raise NotThere(str(unknown)) from None
    found = {"asked": combo, **report.as_json()}
    if as_json:
        print_json(found)
    else:
        _show(found)


def _tell_far(done: int) -> None:
    if sys.stderr.isatty() and done % 50_000 == 0:
        say(f"{done:,} requests", err=True)


def _show(found: dict[str, Any]) -> None:
    how_many, how_long = count(found["requests"], "request"), span(found["seconds"])
    busy = f"at most {found['most_at_once']:,} at once"
    say_line(f"{found['asked']}: {how_many} in {how_long} of virtual time, {busy}")
    say()
    for label, told in _sums(found):
        lines = wrap(told, WIDTH - 16, break_on_hyphens=False) or [""]
        for number, line in enumerate(lines):
            say_line(f"{label if number == 0 else '':<14}  {line}".rstrip())
    say()
    _show_served(found)
    say()
    _show_accounts(found)


def _sums(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    over = f"{found['fell_over']:,} of them by falling over"
    share = found["availability"]
    told = f"{found['answered']:,} answered, {over}"
    yield "availability", "none: no request came" if share is None else f"{share:.3%}: {told}"
    failed = found["requests"] - found["answered"]
    told = ", ".join(f"{number:,} {why}" for why, number in found["failures"].items())
    yield "failed", f"{failed:,}: {told}" if failed else "none"
    yield "first byte", _waits(found["first_byte"])
    yield "whole answer", _waits(found["whole_answer"])
    if failed:
        yield "until failure", _waits(found["until_failure"])
    most = f"at most {found['most_attempts']} for one request"
    yield "attempts", f"{found['attempts']:,}, {most}"
    unpriced = f"; {found['unpriced']:,} attempts unpriced" if found["unpriced"] else ""
    yield "cost", f"${found['cost']:,.2f}, of it wasted ${found['wasted']:,.2f}{unpriced}"


def _waits(waits: dict[str, float | None]) -> str:
    told = (f"{name} {span(each)}" for name, each in waits.items() if each is not None)
    return ", ".join(told) or "none"


def _show_served(found: dict[str, Any]) -> None:
    answered = found["answered"] or 1
    rows = [
        (shortened(name), f"{number:,}", f"{number / answered:.1%}")
        for name, number in found["served"].items()
    ]
    say(aligned(("answered by", "answers", "share"), rows))


def _show_accounts(found: dict[str, Any]) -> None:
    rows = [
        (
            shortened(name),
            f"{each['sent']:,}",
            f"{each['answered']:,}",
            f"{each['tokens']:,}",
            f"${each['cost']:,.2f}",
        )
        for name, each in found["accounts"].items()
    ]
    say(aligned(("account", "sent", "answered", "tokens", "cost"), rows))
    for name, each in found["accounts"].items():
        if failed := ", ".join(f"{number:,} {why}" for why, number in each["failed"].items()):
            told = f"{shortened(name)} failed: {failed}"
            for line in wrap(told, WIDTH, subsequent_indent="  ", break_on_hyphens=False):
                say_line(line)
