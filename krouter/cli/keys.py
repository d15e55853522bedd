"""`krouter keys`: the keys with which callers are let in."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from krouter.allowance import MOST_PER_MINUTE, is_glob, parse_budget, parse_models, period_at
from krouter.cli.common import Command, NotThere, find_paths, home_option, json_option
from krouter.cli.figures import UNKNOWN, money
from krouter.cli.output import print_json, print_table, say, shortened
from krouter.cli.running import ask_health
from krouter.cli.view import open_view
from krouter.costs import dollars
from krouter.keys import Key, Limits, add_key, change_key, list_keys, remove_key
from krouter.naming import UnknownModel, resolve
from krouter.paths import Paths
from krouter.problems import ConfigError, did_you_mean
from krouter.settings import check_name
from krouter.spending import read_spent

F = TypeVar("F", bound=Callable[..., Any])

OFF = "off"
"""Lifts a limit."""
COLUMNS = ("name", "created", "models", "rpm", "budget", "spent")


def _limit(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """A limit as its option takes it: None where it is not given, `OFF` to lift it."""

    def read(ctx: click.Context, param: click.Parameter, given: str | None) -> Any:
        if given is None or given.strip() == OFF:
            return given and OFF
        try:
            return parse(given)
        except ValueError as error:
            raise click.BadParameter(f"{given!r}: {error}.") from None

    return read


def _rate(text: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and 1 <= int(digits[:9]) <= MOST_PER_MINUTE):
        raise ValueError(f"a whole number of requests a minute, from 1 to {MOST_PER_MINUTE:,}")
    return int(digits[:9])


def _limit_options(command: F) -> F:
    options = (
        click.option(
            "--models",
            callback=_limit(parse_models),
            metavar="NAMES",
            help="Only these combos, aliases and models, parted by commas; globs as in"
            " [aliases]: daily,panel or 'glm/*'.",
        ),
        click.option(
            "--rpm",
            callback=_limit(_rate),
            metavar="N",
            help="At most so many requests in any minute.",
        ),
        click.option(
            "--budget",
            callback=_limit(lambda text: str(parse_budget(text))),
            metavar="AMOUNT",
            help="At most so many US dollars an hour, day, week or month of UTC: 5/day. What has no"
            " known price does not count.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group()
def keys() -> None:
    """Add, change, list and remove the keys of callers.

    Without any key everyone on this machine is let in, and krouter listens on no address that
    others can reach.
    As soon as one exists, every caller needs one.
    """


@keys.command(cls=Command)
@click.argument("name")
@_limit_options
@home_option
def add(name: str, models: Any, rpm: Any, budget: Any, home: str | None) -> None:
    """Make a key called NAME and print it, this once.

    Only a hash of it is stored. A running krouter asks for keys within a second. A key with limits
    is for asking models alone: the admin API, the metrics and what is told of other requests take
    a key without any. `krouter keys set` changes limits.
    """
    paths = find_paths(home, new=True)
    _refuse_name(name, paths.keys)
    warning = _unguarded(paths)
    limits = _changed(Limits(), models, rpm, budget)
    key = add_key(paths.keys, name, time.time(), limits=limits)
    say(key)
    hint = (
        f"Stored as a hash in {paths.keys}; the key cannot be shown again.\n"
        "Callers send it as Authorization: Bearer KEY, x-api-key: KEY, x-goog-api-key: KEY or\n"
        "x-krouter-key: KEY, Google's clients also as ?key=KEY.\n"
        "x-krouter-key leaves Authorization to a provider whose account is the caller's own.\n"
        f"It guards the krouter whose home is {paths.home}."
    )
    say(hint, err=True)
    for each in (*([warning] if warning else []), *unknown_models(limits, paths)):
        say(f"Warning: {each}", err=True)


@keys.command("set", cls=Command)
@click.argument("name")
@_limit_options
@home_option
def set_(name: str, models: Any, rpm: Any, budget: Any, home: str | None) -> None:
    """Change the limits of the key called NAME.

    What is not given stays as it is; `off` lifts a limit. The key itself and what it has spent
    stay. A running krouter follows within a second.
    """
    paths = find_paths(home)
    if models is None and rpm is None and budget is None:
        raise click.UsageError("Give --models, --rpm or --budget.")
    _find_name(name, paths.keys)
    key = change_key(paths.keys, name, lambda key: _changed(key, models, rpm, budget))
    told = (f"{what} {each}" for what, each in _limits_of(key).items() if each != "-")
    say(f"{name!r} is limited to: {'; '.join(told) or 'nothing'}.", err=True)
    for each in unknown_models(key, paths):
        say(f"Warning: {each}", err=True)


def _changed(limits: Limits, models: Any, rpm: Any, budget: Any) -> Limits:
    """`limits` with those that are given in the place of its own."""
    given = {"models": models, "rpm": rpm, "budget": budget}
    new = {field: None if value == OFF else value for field, value in given.items() if value}
    return Limits(**{field: getattr(limits, field) for field in given} | new)


def _limits_of(key: Limits) -> dict[str, str]:
    return {
        "models": ", ".join(key.models) if key.models else "-",
        "rpm": str(key.rpm or "-"),
        "budget": f"${key.budget}" if key.budget else "-",
    }


def unknown_models(limits: Limits, paths: Paths) -> list[str]:
    """The names of models that nothing here has; none where the settings cannot be read."""
    names = [name for name in limits.models or () if not is_glob(name)]
    try:
        world = open_view(paths, required=False).world if names else None
    except ConfigError:
        return []
    found = []
    for name in names:
        try:
            if world is not None:
                resolve(name, world)
        except UnknownModel as unknown:
            found.append(f"{unknown}")
    return found


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


def _find_name(name: str, path: Path) -> list[str]:
    """All names. Raises NotThere where `name` is none of them."""
    names = _names(path)
    if name not in names:
        raise NotThere(f"there is no key {name!r}. {did_you_mean(name, names)}".strip())
    return names


def _names(path: Path) -> list[str]:
    return [key.name for key in list_keys(path)]


@keys.command("list", cls=Command)
@home_option
@json_option
def list_(home: str | None, as_json: bool) -> None:
    """List the keys, their limits and what is spent.

    Spent is of a key's budget, since its hour, day, week or month began. `krouter usage --by key`
    tells what keys have used at any time.

    JSON: a list of name, created, models, rpm, budget (null for no limit), spent (US dollars, null
    without a budget or where it cannot be read), unpriced (attempts that are not in it, since their
    price is not known), resets_at (when the budget begins anew).
    """
    paths = find_paths(home)
    found = list_keys(paths.keys)
    if as_json:
        print_json([_json(key, paths) for key in found])
    elif found:
        rows = [
            (key.name, key.created, *map(shortened, _limits_of(key).values()), _spent(key, paths))
            for key in found
        ]
        print_table(COLUMNS, rows)
    else:
        say("There is no key: callers on this machine need none.", err=True)


def _json(key: Key, paths: Paths) -> dict[str, Any]:
    spent = reset = None
    if (budget := key.allowance) is not None:
        start, end = period_at(budget.period, time.time())
        spent = read_spent(paths.spending, key.id, start)
        reset = datetime.fromtimestamp(end, UTC).isoformat()
    return {
        "name": key.name,
        "created": key.created,
        "models": None if key.models is None else list(key.models),
        "rpm": key.rpm,
        "budget": key.budget,
        "spent": None if spent is None else dollars(spent.cost),
        "unpriced": None if spent is None else spent.unpriced,
        "resets_at": reset,
    }


def _spent(key: Key, paths: Paths) -> str:
    budget = key.allowance
    if budget is None:
        return "-"
    start, _ = period_at(budget.period, time.time())
    spent = read_spent(paths.spending, key.id, start)
    if spent is None:
        return UNKNOWN
    more = f" + {spent.unpriced:,} unpriced" if spent.unpriced else ""
    return f"{money(spent.cost, 0)}{more}"


@keys.command(cls=Command)
@click.argument("name")
@home_option
def remove(name: str, home: str | None) -> None:
    """Remove the key called NAME. Whoever holds it is let in no more."""
    path = find_paths(home).keys
    names = _find_name(name, path)
    remove_key(path, name)
    last = "" if len(names) > 1 else " It was the last: callers on this machine need none now."
    say(f"Removed {name!r}.{last}", err=True)
