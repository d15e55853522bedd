"""`krouter keys`: the keys with which callers are let in."""

from __future__ import annotations

import time
from pathlib import Path

import click

from krouter.cli.common import Command, NotThere, find_paths, home_option, json_option
from krouter.cli.output import print_json, print_table
from krouter.cli.running import ask_health
from krouter.keys import add_key, list_keys, remove_key
from krouter.paths import Paths
from krouter.problems import ConfigError, did_you_mean
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
    paths = find_paths(home, new=True)
    _refuse_name(name, paths.keys)
    warning = _unguarded(paths)
    key = add_key(paths.keys, name, time.time())
    click.echo(key)
    hint = (
        f"Stored as a hash in {paths.keys}; the key cannot be shown again.\n"
        "Callers send it as Authorization: Bearer KEY, x-api-key: KEY or x-krouter-key: KEY.\n"
        "The last leaves Authorization to a provider whose account is the caller's own.\n"
        f"It guards the krouter whose home is {paths.home}."
    )
    click.echo(hint, err=True)
    if warning:
        click.echo(f"Warning: {warning}", err=True)


def _unguarded(paths: Paths) -> str | None:
    """What to say where the krouter that answers has another home, which a key made here does not
    guard. It is asked before the key is made, and never sent one: whoever answers may be anyone."""
    try:
        url, told = ask_health(paths)
    except (click.ClickException, ConfigError):
        return None
    served = told.get("home")
    if isinstance(served, str) and Path(served).resolve() != paths.home.resolve():
        hint = f"to guard that one, give --home {served}"
        return f"the krouter at {url} has another home, {served}: {hint}."
    if served is None and not _names(paths.keys):  # it asks for keys, and here is none yet
        return f"the krouter at {url} knows other keys than those of {paths.home}."
    return None


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
