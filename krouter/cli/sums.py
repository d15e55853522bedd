"""Tokens and money of a route's attempts, in words."""

from __future__ import annotations

from collections.abc import Iterable

from krouter.cli.figures import UNKNOWN, count, money, tokens
from krouter.route import Attempt, Route, total_usage

Rows = Iterable[tuple[str, str]]
"""Labels, each with what it stands for; where that is empty, the row is left out."""


def spent(attempts: list[Attempt]) -> str:
    """Tokens and money of `attempts`. Where no provider has told, that is not zero."""
    told = [attempt for attempt in attempts if attempt.usage is not None]
    unpriced = sum(each.is_unpriced for each in attempts)
    if not told and not unpriced:
        return "none told" if attempts else "none"
    cost = money(sum(each.cost or 0 for each in told), unpriced)
    cost = f"cost {cost}" if cost == UNKNOWN else cost
    return f"{tokens(total_usage(told))}; {cost}" if told else f"none told; {cost}"


def sums(route: Route) -> Rows:
    """Who answered, without what, and what all of it took."""
    yield "answer", route.served or "none"
    yield "dropped", ", ".join(route.dropped)
    yield "notes", "; ".join(route.notes)
    if route.voices:
        panel = [each for each in route.attempts if route.is_of_panel(each)]
        yield "panel", counted(panel)
        others = [each for each in route.attempts if each.voice and not route.is_of_panel(each)]
        last = next((each.role for each in reversed(route.voices) if each.role != "panel"), "")
        yield ("judge" if last == "judge" else "again"), counted(others) if others else ""
        yield "late", "calls of the panel were still under way" if route.lingers else ""
    yield "spent", counted(route.attempts)
    yield "waste", f"{counted(route.wasted)}, never seen by the caller" if route.wasted else "none"


def counted(attempts: list[Attempt]) -> str:
    """How many, and what they took."""
    return f"{count(len(attempts), 'attempt')}, {spent(attempts)}"
