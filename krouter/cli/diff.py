"""`krouter diff`: what a change of combos means."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import msgspec

from krouter.changes import Change, changes
from krouter.cli.common import Command, find_paths, json_option, place_options
from krouter.cli.output import COLUMNS, print_json, say, say_line
from krouter.cli.view import View, open_view
from krouter.combos import Combo, check_references, parse_combo
from krouter.combostore import LARGEST_FILE, ComboStore
from krouter.coverage import furnished
from krouter.meaning import Meaning, meaning
from krouter.paths import shipped_combos
from krouter.problems import ConfigError, Problem, did_you_mean


@click.command(cls=Command)
@click.argument("old", type=click.Path())
@click.argument("new", type=click.Path())
@place_options
@json_option
def diff(
    old: str, new: str, home: str | None, config: str | None, combos: str | None, as_json: bool
) -> None:
    """Say what a change of combos means.

    OLD and NEW are two folders of combos, or two of a combo's file and the name of a combo of the
    home; what is neither a file nor a folder is taken as a name. Told is who goes first now, who
    reads what, which dead ends are new or gone, the bounds of a request before and after (see
    krouter check), and how entries are asked. What has no effect is not told: descriptions,
    labels, another spelling of the same, the order of fields. Settings, model table and accounts
    are those of the home, for both; accounts that are missing are taken to be there.

    Exit code 0 whether there are differences or not; 3 where one of them cannot be read.

    JSON: same, combos, each with name, is (added, removed, changed) and changes: what (models,
    order, reads, window, dead end, answer, returned, bound, setting), about, old, new, text.
    """
    view = open_view(find_paths(home, config, combos), required=config is not None)
    before, after = _side(old, view), _side(new, view)
    if before.is_folder is not after.is_folder:
        folder = old if before.is_folder else new
        raise click.UsageError(_unlike(folder, view))
    found = list(_compared(before, after, view))
    if as_json:
        print_json({"same": not found, "combos": found})
        return
    for number, each in enumerate(found):
        say() if number else None
        _show(each)


@dataclass(frozen=True, slots=True)
class _Side:
    """`own` are the combos that are compared, `known` all that they may name."""

    own: Mapping[str, Combo]
    known: Mapping[str, Combo]
    is_folder: bool = False


def _unlike(folder: str, view: View) -> str:
    """What is said where one side alone is a folder, which may be meant as a name."""
    told = f"OLD and NEW are two folders, or two of a file and a name; {folder!r} is a folder here."
    return f"{told} The combo is combo/{folder}." if folder in view.store.combos else told


def _side(given: str, view: View) -> _Side:
    path = Path(given)
    if path.is_dir():
        return _folder(path)
    if path.is_file() or path.suffix == ".json":
        return _file(path, view)
    name = given.removeprefix("combo/")
    combo = view.store.combos.get(name)
    if combo is None:
        hint = did_you_mean(name, view.store.combos)
        raise ConfigError([Problem(given, "", "no such file, folder or combo.", hint)])
    return _Side({name: combo}, view.store.combos)


def _folder(path: Path) -> _Side:
    """The combos in it, with the packaged ones behind them. Raises ConfigError for a bad one."""
    store = ComboStore([path, shipped_combos()])
    problems = [p for p in store.problems if Path(p.file).parent == path or Path(p.file) == path]
    if problems:
        raise ConfigError(problems)
    own = {n: combo for n, combo in store.combos.items() if store.source(n).parent == path}
    return _Side(own, store.combos, is_folder=True)


def _file(path: Path, view: View) -> _Side:
    """A combo, which may name those beside it and those of the home."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        problem = Problem(str(path), "", f"cannot be read: {error.strerror}.")
        raise ConfigError([problem]) from None
    if len(data) > LARGEST_FILE:
        raise ConfigError([Problem(str(path), "", f"is larger than {LARGEST_FILE} bytes.")])
    combo = parse_combo(data, str(path), path.stem)
    beside = ComboStore([path.parent]).combos
    known = {**view.store.combos, **beside, combo.name: combo}
    if bad := [p for p in check_references(known) if p.file == combo.name]:
        raise ConfigError([replace(problem, file=str(path)) for problem in bad])
    return _Side({combo.name: combo}, known)


def _compared(old: _Side, new: _Side, view: View) -> Iterator[dict[str, Any]]:
    for name, before, after in _pairs(old, new):
        if before is None or after is None:
            yield {"name": name, "is": "added" if after else "removed", "changes": []}
            continue
        found = changes(_meaning(before, old, view), _meaning(after, new, view))
        if found:
            yield {"name": name, "is": "changed", "changes": list(map(_as_json, found))}


def _pairs(old: _Side, new: _Side) -> Iterator[tuple[str, Combo | None, Combo | None]]:
    """Of two folders the combos of one name; of two single ones these, whatever their names."""
    if old.is_folder:
        for name in sorted({*old.own, *new.own}):
            yield name, old.own.get(name), new.own.get(name)
        return
    (before,), (after,) = old.own.values(), new.own.values()
    names = dict.fromkeys((before.name, after.name))
    yield " → ".join(names), before, after


def _meaning(combo: Combo, side: _Side, view: View) -> Meaning:
    return meaning(combo, furnished(replace(view.world, combos=side.known)))


def _as_json(change: Change) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(change)
    return found


def _show(found: Mapping[str, Any]) -> None:
    if found["is"] != "changed":
        say_line(f"{found['name']}: {found['is']}")
        return
    say_line(f"{found['name']}:")
    for change in found["changes"]:
        for line in _wrapped(change["text"]):
            say_line(line)


def _wrapped(text: str) -> list[str]:
    """Lines of a paragraph, which break at blanks alone."""
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
