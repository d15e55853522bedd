"""`krouter route`: what happened to one request, as a picture."""

from __future__ import annotations

import sys

import click

from krouter.cli.common import Command, find_paths, json_option, place_options
from krouter.cli.drawing import draw
from krouter.cli.output import console_for, print_drawing, print_json
from krouter.cli.recorded import find_route


@click.command(cls=Command)
@click.argument("route_id", metavar="ID")
@place_options
@json_option
def route(
    route_id: str, home: str | None, config: str | None, combos: str | None, as_json: bool
) -> None:
    """Draw what happened to one request, and why.

    ID is the x-krouter-route of its reply, or its beginning where no other request has that;
    `krouter log` lists them. The picture has the order that was decided with the reason for each
    place, then every entry in the order tried: account, times, tokens, cost, outcome, the row of
    the error table, what was locked, and the wait before the same account was tried again; those
    that were skipped, and why; what the caller got; the sums, with what was spent on attempts that
    the caller never saw. Of a fusion it has each of the panel with its answer's length and cost,
    then the judge. `krouter explain --route ID` makes the order anew.

    JSON: id, began, ended (epoch seconds), dialect, asked, stream, combo, needs, plan (each with
    entry, reason, listed: its place in the combo's own list, 0 for none), nested (the plan of each
    nested combo), entered (the places of each), switches, steps, accounts (of each entry with a
    choice, under its places and name: account, score, reason), voices, notes, dropped, request
    (where the settings keep it), served, status, outcome, usage (input, output, cached,
    cache_write), cost (US dollars, of what has a known price), unpriced (attempts without one),
    lingers (whether late calls were still under way), revision (how often it was told anew since),
    caller (the name of the caller's key, empty without one).
    A step is a skip (entry, account, reason, detail, places, voice) or an attempt (entry, model,
    account, lane, provider, began, first_byte, ended, outcome, row, status, detail, lock in
    seconds, locked, wait in seconds before the same account was tried again, usage, cost, seen,
    dropped, places, voice). A voice is one that a fusion asked: role (panel, judge, again), entry,
    began, place (in the panel), within (the voice in whose own panel it is), ended, outcome, length
    (of its answer, in characters), given (how much of it the judge was given), usage, cost,
    unpriced; a step names its voice by its number, 0 for none. Places are that of an entry in the
    order, then those in the combos nested there.
    """
    found = find_route(find_paths(home, config, combos), route_id)
    if as_json:
        print_json(found.as_json())
    else:
        print_drawing(draw(found, console_for(sys.stdout)))
