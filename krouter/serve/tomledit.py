"""`krouter.toml` with some of its values changed, and its comments and order as they were. Pure."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Edits = Mapping[tuple[str, ...], Any]
"""The new value at each path; None takes what is there out."""


class Unsuitable(ValueError):
    """A file that cannot be edited without doing more than was asked for."""


def edited(text: str, edits: Edits) -> str:
    """`text`, which must be TOML, with the edits in it. Raises Unsuitable."""
    before = tomllib.loads(text)
    changed = {path: value for path, value in edits.items() if _at(before, path) != value}
    here = {path: value for path, value in changed.items() if _at(before, path[:-1]) is not None}
    new = {path: value for path, value in changed.items() if path not in here and value is not None}
    try:
        result = _with_tables(_put(text, here) if here else text, new)
        if tomllib.loads(result) != _expected(before, {**here, **new}):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):  # TOMLKit's own are ValueErrors
        raise Unsuitable("the file is written in a way that cannot be edited here") from None
    return result


def _at(table: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        table = table.get(name) if isinstance(table, dict) else None
    return table


def _put(text: str, edits: Edits) -> str:
    """The edits of tables that are there."""
    import tomlkit  # beside the start, which it would slow down

    document: Any = tomlkit.parse(text)
    for (*tables, key), value in edits.items():
        table = document
        for name in tables:
            table = table[name]
        if value is None:
            del table[key]
        else:
            table[key] = value
    return tomlkit.dumps(document)


def _with_tables(text: str, edits: Edits) -> str:
    """The text with new tables at its end."""
    import tomlkit

    tables: dict[str, list[str]] = {}
    for (*names, key), value in edits.items():
        line = f"{key} = {tomlkit.item(value).as_string()}\n"
        tables.setdefault(".".join(map(_key, names)), []).append(line)
    for name, lines in tables.items():
        text = f"{text.rstrip()}\n\n" if text.strip() else ""
        text += f"[{name}]\n{''.join(lines)}"
    return text


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _expected(before: Mapping[str, Any], edits: Edits) -> dict[str, Any]:
    result: dict[str, Any] = _copied(before)
    for (*tables, key), value in edits.items():
        table = result
        for name in tables:
            table = table.setdefault(name, {})
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return result


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def shown_diff(old: str, new: str, file: str) -> str:
    """What changes, each part after the name of its table; without what stands around it, which may
    tell of credentials."""
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"a/{file}", f"b/{file}", lineterm="", n=0
    )
    return "".join(f"{line}\n" for line in _headed(lines, new.splitlines()))


def _headed(lines: Iterator[str], new: list[str]) -> Iterator[str]:
    for line in lines:
        found = re.match(r"@@ -\S+ \+(\d+)", line)
        yield f"{line} {_table(new, int(found[1]))}".rstrip() if found else _hidden(line)


def _table(lines: list[str], number: int) -> str:
    """The header of the table that the line before this number, from 1, stands in."""
    headers = (line.strip() for line in reversed(lines[: max(number - 1, 0)]))
    return next((line for line in headers if line.startswith("[")), "").partition("#")[0].strip()


_SECRET = re.compile(r"""((?:key|headers)["']?\s*=\s*)("(?:\\.|[^"\\])*"|'[^']*'|\{[^}]*\})""")


def _hidden(line: str) -> str:
    """A table in one line holds more than what changes in it."""
    return _SECRET.sub(r'\1"(hidden)"', line)
