"""What krouter doctor finds, and how it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from krouter.cli.output import inert, say, say_line

Level = Literal["ok", "warning", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: how it is, and what to do about it."""

    level: Level
    about: str
    message: str
    hint: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Asked:
    """A model that a client is set to, as it asks for it; `source` is the file that says so."""

    about: str
    model: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Own:
    """A key that a client is set to send, by the name of what holds it. `hint` is how another is
    put there."""

    about: str
    key: str
    hint: str = ""


Told = Finding | Asked | Own
"""What is said of a client's files."""


def ok(about: str, message: str) -> Finding:
    return Finding("ok", about, message)


def warning(about: str, message: str, hint: str = "") -> Finding:
    return Finding("warning", about, message, hint)


def fault(about: str, message: str, hint: str = "") -> Finding:
    return Finding("fault", about, message, hint)


def tell(findings: Sequence[Finding]) -> None:
    """One line each, what to do below it; the sum goes to stderr."""
    width = max((len(inert(each.about)) for each in findings), default=0)
    for each in findings:
        say_line(f"{each.level:7}  {each.about:{width}}  {each.message}")
        if each.hint:
            say_line(f"{'':{width + 11}}{each.hint}")
    counts = Counter(each.level for each in findings)
    told = (f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}" for level in _COUNTED)
    say(", ".join(told), err=True)


_COUNTED: tuple[Level, ...] = ("fault", "warning")
