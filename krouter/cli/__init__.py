"""The command line."""

from __future__ import annotations

import io
import sys

from krouter.cli.root import cli


def main() -> None:
    """The console script `krouter`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    cli(prog_name="krouter")
