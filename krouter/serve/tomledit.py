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
    end = "\r\n" if "\r\n" in text else "\n"
    new = {path: value for path, value in changed.items() if path not in here and value is not None}
    try:
        result = _with_tables(_put(text, here) if here else text, new)
        result = re.sub(r"\r?\n", end, result) if end != "\n" and _is_even(text) else result
        found = _less_emptied(tomllib.loads(result), here)
        if found != _less_emptied(_expected(before, {**here, **new}), here):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):  # TOMLKit's own are ValueErrors
        raise Unsuitable("the file is written in a way that cannot be edited here") from None
    return result


def _is_even(text: str) -> bool:
    """Whether all its lines end alike, as those of Windows do."""
    return text.count("\r\n") == text.count("\n")


def _less_emptied(tables: dict[str, Any], edits: Edits) -> dict[str, Any]:
    """Without the tables whose last value an edit takes out: dotted keys leave none behind."""
    for (*names, _), value in edits.items():
        while value is None and names and _at(tables, tuple(names)) == {}:
            del _at(tables, tuple(names[:-1]))[names[-1]]
            names.pop()
    return tables


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
        if text and not text.endswith("\n"):
            text += "\n"
        blank = "\n" if text and not text.endswith(("\n\n", "\n\r\n")) else ""
        text += f"{blank}[{name}]\n{''.join(lines)}"
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
    before, after = (_hidden(text).split("\n") for text in (old, new))
    lines = difflib.unified_diff(before, after, f"a/{file}", f"b/{file}", lineterm="", n=0)
    return "".join(f"{line}\n" for line in _headed(lines, after))


def _headed(lines: Iterator[str], new: list[str]) -> Iterator[str]:
    for line in lines:
        found = re.match(r"@@ -\S+ \+(\d+)", line)
        yield f"{line} {_table(new, int(found[1]))}".rstrip() if found else line


def _table(lines: list[str], number: int) -> str:
    """The header of the table that the line before this number, from 1, stands in."""
    headers = (line.strip() for line in reversed(lines[: max(number - 1, 0)]))
    return next((line for line in headers if line.startswith("[")), "").partition("#")[0].strip()


_TEXT = re.compile(
    r'''#[^\n]*|"""(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*[']''', re.DOTALL
)


def _hidden(text: str) -> str:
    """Every text hidden but keys and those of settings that are no secret: a table in one line
    holds more than what changes in it."""
    shown = set(_open(tomllib.loads(text)))

    def masked(found: re.Match[str]) -> str:
        given = found[0]
        if given[0] == "#" or tomllib.loads(f"x = {given}")["x"] in shown:
            return given
        return '"(hidden)"' + "\n" * given.count("\n")

    return _TEXT.sub(masked, text.replace("\r\n", "\n"))


_OPEN = ("routing", "vision_adapter", "account_strategy")


def _open(value: Any, shown: bool = False) -> Iterator[str]:
    """The keys of all tables, and the texts that the pages may change."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _open(inner, shown or key in _OPEN)
    elif isinstance(value, list):
        for inner in value:
            yield from _open(inner, shown)
    elif shown and isinstance(value, str):
        yield value
