"""Reading the files of clients, and saying what stands there."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from krouter.cli.examine_client import base_fault, shown_url
from krouter.cli.findings import Finding, fault, ok, warning

MOST_BYTES = 2**22
"""What a file of settings may hold."""


class Unreadable(Exception):
    """A file that its client cannot read either; the text says why."""


def read(path: Path, parse: Callable[[str], Any]) -> Any:
    """What a file holds; None without one. Raises Unreadable."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe may be waited for without an end
            raise Unreadable("is no regular file.")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise Unreadable("is too long for settings.")
        return parse(data.decode("utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is broken: {error}.") from None


# What is not closed reaches to the end: it is not looked for again from every place.
_STRING = r'("(?:\\.|[^"\\])*+"?)'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING = re.compile(rf"{_STRING}|,(?=\s*+[}}\]])", re.DOTALL)
_ASSIGNED = re.compile(r"(?m)^[ \t]*+(?:export[ \t]++)?([A-Za-z_]\w*+)[ \t]*+=[ \t]*+([^\n]*)$")


def parse_jsonc(text: str) -> Any:
    """JSON with comments, and commas at the ends of lists. Raises ValueError."""
    bare = _COMMENT.sub(lambda found: found[1] or " ", text)
    return json.loads(_TRAILING.sub(lambda found: found[1] or "", bare))


def dotenv(path: Path) -> dict[str, str]:
    """The variables that a file such as .env sets; none where it cannot be read."""
    try:
        text = read(path, str) or ""
    except Unreadable:
        return {}
    return {name: _unquoted(value.strip()) for name, value in _ASSIGNED.findall(text)}


def _unquoted(value: str) -> str:
    if value[:1] in ("'", '"') and (end := value.find(value[0], 1)) > 0:
        return value[1:end]
    return re.split(r"\s#", value, maxsplit=1)[0].rstrip()


def table(value: Any, *names: str) -> dict[str, Any]:
    """The table under these names; an empty one where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def address(shown: str, field: str, url: str, base: str, client: str) -> Finding:
    """What there is to say of the address of krouter in a file."""
    wrong = base_fault(url, base, "/v1")
    if wrong is None:
        return ok("file", f"{shown}: {field} is {shown_url(url)}.")
    kind = fault if wrong[0] == "fault" else warning
    return kind("file", f"{shown}: {field} {wrong[1]}", f"krouter env {client}")


def unkeyed(about: str, shown: str, title: str, hint: str) -> Finding:
    """A client that would come without a key to a krouter that asks for one."""
    message = f"{shown} has no {about}: {title} sends no key, and this krouter asks for one."
    return fault(about, message, hint)
