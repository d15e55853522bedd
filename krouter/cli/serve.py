"""`krouter serve`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import click

from krouter._version import __version__
from krouter.cli import output
from krouter.cli.common import Command, find_paths, place_options
from krouter.cli.output import inert
from krouter.cli.view import providers_with_accounts
from krouter.faults import open_to_others
from krouter.serve.run import Served, open_server, run
from krouter.whatif import add_whatif


class Printer:
    """Prints log lines to stderr once the server listens: all of them, or those about
    files."""

    def __init__(self, all_steps: bool) -> None:
        self._all_steps = all_steps
        self.open = False

    def __call__(self, tag: str, line: str) -> None:
        if self.open and (self._all_steps or tag in ("CONFIG", "LEDGER", "SPENDING")):
            say(f"[{time.strftime('%H:%M:%S')}] {tag} {line}")


def say(line: str) -> None:
    """One line on stderr; what a caller put into it cannot steer the terminal. Where it cannot be
    written, a disk that is full or a terminal that is gone, the server goes on without it."""
    with suppress(OSError, ValueError):
        output.say(inert(line), err=True)


@click.command(cls=Command)
@click.option("--host", metavar="NAME", help="Address to listen on. Default: 127.0.0.1.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port to listen on; 0 takes a free one. Default: 20128.",
)
@click.option("-l", "--log", is_flag=True, help="Print each step of each request.")
@place_options
def serve(
    host: str | None,
    port: int | None,
    log: bool,
    home: str | None,
    config: str | None,
    combos: str | None,
) -> None:
    """Serve the combos over HTTP.

    Without any key of a provider the combo `demo` answers. Files are followed while it runs.
    Everything is printed to stderr. SIGINT or SIGTERM ends it, with exit code 0: no request
    is taken any more, and those under way have 30 s. SIGHUP reads settings, combos and keys again.

    With -l each step is a line `[HH:MM:SS] COMBO NAME: …`, and each request ends with a line
    `ROUTE ID …`, which `krouter route ID` draws. `Capacity auto-switch: WHAT → ENTRY` and `Quota
    auto-switch: most left → ENTRY` are there only where that step put another entry first.
    """
    printer = Printer(log)
    served = open_server(
        find_paths(home, config, combos),
        dict(os.environ),
        host=host,
        port=port,
        log=printer,
        traced=log,
        required=config is not None,
        more=(add_whatif,),
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn takes their place while it serves
        signal.signal(number, lambda *_: served.stop())
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, on_hangup(served))

    def ready(served: Served) -> None:
        for line in welcome(served):
            say(line)
        printer.open = True

    run(served, ready)


def on_hangup(served: Served) -> Callable[..., None]:
    """Reads all files again, unless it was a terminal that hung up: nobody would see to a server
    that lived on without it."""
    terminals = [each for each in range(3) if os.isatty(each)]

    def hear(*_: object) -> None:
        if all(map(os.isatty, terminals)):
            served.reload()
        else:
            served.stop()

    return hear


def welcome(served: Served) -> Iterator[str]:
    """What a person wants to know at the start."""
    house = served.house
    world = house.router.world
    providers = ", ".join(providers_with_accounts(world))
    yield f"krouter {__version__} serves {served.url}"
    yield f"  home       {house.paths.home}"
    yield f"  combos     {len(world.combos)}"
    yield f"  providers  {providers or 'none has an account yet; the combo demo answers'}"
    yield f"  keys       {'every caller needs one' if house.keys.required else 'none needed'}"
    for problem in house.problems:
        yield f"  problem    {problem}"
    for warning in open_to_others(house.paths, world.settings, os.environ):
        yield f"  warning    {warning}"
