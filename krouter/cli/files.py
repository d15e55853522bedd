"""`krouter paths` and `krouter schema`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from krouter.cli.common import Command, find_paths, home_option, json_option, place_options
from krouter.cli.output import print_json, print_table, say
from krouter.combos import combo_schema
from krouter.paths import shipped_combos
from krouter.problems import ConfigError, Problem


@click.command(cls=Command)
@place_options
@json_option
def paths(home: str | None, config: str | None, combos: str | None, as_json: bool) -> None:
    """Show where settings, combos, keys and the ledger are.

    JSON: home, config, combos, keys, ledger, shipped_combos; each a path, whether it exists or
    not.
    """
    found = find_paths(home, config, combos, new=True)
    rows = {
        "home": found.home,
        "config": found.config,
        "combos": found.combos,
        "keys": found.keys,
        "ledger": found.ledger,
        "shipped_combos": shipped_combos(),
    }
    if as_json:
        print_json({name: str(path) for name, path in rows.items()})
        return
    table = [
        (name, str(path), "yes" if os.path.exists(path) else "no") for name, path in rows.items()
    ]
    print_table(("name", "path", "exists"), table)


@click.command(cls=Command)
@home_option
@click.option("--output", type=click.Path(), metavar="FILE", help="Write it to this file.")
def schema(home: str | None, output: str | None) -> None:
    """Print the JSON Schema of a combo file.

    With it editors complete and check combo files: name it as "$schema" in the file.
    """
    if output is None:
        print_json(combo_schema())
        return
    text = json.dumps(combo_schema(), indent=2, ensure_ascii=False) + "\n"
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot be written: {error.strerror}."
        raise ConfigError([Problem(output, "", message)]) from None
    say(f"Written: {output}", err=True)
