"""`krouter keys`: the keys with which callers are let in."""

from __future__ import annotations

import time
from pathlib import Path

import click

from krouter.cli.common import Command, NotThere, find_paths, home_option, json_option
from krouter.cli.output import print_json, print_table
from krouter.keys import add_key, list_keys, remove_key
from krouter.problems import did_you_mean
from krouter.settings import check_name


@click.group()
def keys() -> None:
    """Add, list and remove the keys of callers.

    Without any key everyone on this machine is let in, and krouter listens on no other address.
    As soon as one exists, every caller needs one.
    """


@keys.command(cls=Command)
@click.argument("name")
@home_option
def add(name: str, home: str | None) -> None:
    """Make a key called NAME and print it, this once.

    Only a hash of it is stored. A running krouter asks for keys within a second.
    """
    path = find_paths(home, new=True).keys
    _refuse_name(name, path)
    key = add_key(path, name, time.time())
    click.echo(key)
    hint = (
        f"Stored as a hash in {path}; the key cannot be shown again.\n"
        "Callers send it as Authorization: Bearer KEY or x-api-key: KEY."
    )
    click.echo(hint, err=True)


def _refuse_name(name: str, path: Path) -> None:
    try:
        check_name(name)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="NAME") from None
    if name in _names(path):
        message = f"there is a key {name!r} already: remove it, or take another name."
        raise click.BadParameter(message, param_hint="NAME")


def _names(path: Path) -> list[str]:
    return [key.name for key in list_keys(path)]


@keys.command("list", cls=Command)
@home_option
@json_option
def list_(home: str | None, as_json: bool) -> None:
    """List the names of the keys.

    JSON: a list of name, created.
    """
    found = list_keys(find_paths(home).keys)
    if as_json:
        print_json([{"name": key.name, "created": key.created} for key in found])
    elif found:
        print_table(("name", "created"), [(key.name, key.created) for key in found])
    else:
        click.echo("There is no key: callers on this machine need none.", err=True)


@keys.command(cls=Command)
@click.argument("name")
@home_option
def remove(name: str, home: str | None) -> None:
    """Remove the key called NAME. Whoever holds it is let in no more."""
    path = find_paths(home).keys
    names = _names(path)
    if name not in names:
        raise NotThere(f"there is no key {name!r}. {did_you_mean(name, names)}".strip())
    remove_key(path, name)
    last = "" if len(names) > 1 else " It was the last: callers on this machine need none now."
    click.echo(f"Removed {name!r}.{last}", err=True)
