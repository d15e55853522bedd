"""How a JSON file is laid out, so that what is written anew looks as it did. Pure."""

from __future__ import annotations

import difflib
import json
import re
from typing import Any, NamedTuple

WIDTHS = (0, 80, 100, 120)


class Layout(NamedTuple):
    """`indent` is what a level is indented by; a list or an object stands on one line where that
    makes no line longer than `width`, never for 0; all of it on one where it is `flat`."""

    indent: str = "  "
    width: int = 0
    flat: bool = False


def layout_of(text: str) -> Layout:
    """The layout that comes nearest to that of `text`, which must be JSON."""
    if "\n" not in text.strip():
        return Layout(flat=True)
    found = re.search(r"\n([ \t]+)\S", text)
    indent = found[1] if found else "  "
    value, lines = json.loads(text), text.splitlines()
    layouts = [Layout(indent, width) for width in WIDTHS]
    return max(layouts, key=lambda layout: _likeness(lines, laid_out(value, layout).splitlines()))


def _likeness(one: list[str], other: list[str]) -> float:
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()


def laid_out(value: Any, layout: Layout) -> str:
    """`value` as the text of a file, with a line break at its end."""
    if layout.flat:
        return f"{json.dumps(value, ensure_ascii=False)}\n"
    return f"{_laid(value, layout, 1, 0)}\n"


def _laid(value: Any, layout: Layout, level: int, column: int) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value:
        return flat
    if column and column + len(flat) < layout.width:
        return flat
    inner = layout.indent * level
    brackets, parts = "[]", [("", item) for item in value]
    if isinstance(value, dict):
        brackets = "{}"
        parts = [(f"{json.dumps(key, ensure_ascii=False)}: ", each) for key, each in value.items()]
    lines = (
        f"{inner}{name}{_laid(each, layout, level + 1, len(inner) + len(name))}"
        for name, each in parts
    )
    return f"{brackets[0]}\n" + ",\n".join(lines) + f"\n{layout.indent * (level - 1)}{brackets[1]}"
