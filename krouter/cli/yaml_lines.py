"""The plain fields of YAML files, of which krouter has no reader."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE = re.compile(r"^([ \t]*)(- +)?([\w.-]+)[ \t]*:[ \t]+(.*)$")
_QUOTED = re.compile(r"""^(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)')""")


def entries(text: str) -> list[dict[str, str]]:
    """The fields of each entry of the lists in a file, and first those outside of any list. What is
    nested in an entry, or in a field, is not looked at."""
    top: dict[str, str] = {}
    found, current, column, dash = [top], top, 0, -1
    for spaces, is_item, name, value in _fields(text):
        inner = spaces + is_item
        if is_item and (dash < 0 or spaces <= dash):
            current, column, dash = {}, inner, spaces
            found.append(current)
        elif not is_item and dash >= 0 and spaces <= dash:
            current, column, dash = top, 0, -1
        if inner == column and value:
            current.setdefault(name, value)
    return found


def _fields(text: str) -> Iterator[tuple[int, int, str, str]]:
    for line in text.splitlines():
        if found := _LINE.match(line):
            spaces, item, name, value = found.groups()
            yield len(spaces), len(item or ""), name, _plain(value)


def _plain(value: str) -> str:
    """A scalar without quotes and comment; escapes in double quotes stay as they are written."""
    value = value.strip()
    if quoted := _QUOTED.match(value):
        return quoted[1] if quoted[1] is not None else quoted[2].replace("''", "'")
    return re.split(r"(?:^|\s)#", value, maxsplit=1)[0].rstrip()
