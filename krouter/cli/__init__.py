"""The command line."""

from __future__ import annotations

import io
import os
import sys

from krouter.cli.root import cli


def main() -> None:
    """The console script `krouter`."""
    for name in ("stdout", "stderr"):  # None where it was closed
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    cli(prog_name="krouter")
