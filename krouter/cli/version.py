"""`krouter version`."""

from __future__ import annotations

import platform

import click

from krouter._version import __version__
from krouter.cli.common import Command, home_option, json_option
from krouter.cli.output import print_json, say


@click.command(cls=Command)
@home_option
@json_option
def version(home: str | None, as_json: bool) -> None:
    """Print the version.

    JSON: version, python.
    """
    if as_json:
        print_json({"version": __version__, "python": platform.python_version()})
    else:
        say(f"krouter {__version__}")
