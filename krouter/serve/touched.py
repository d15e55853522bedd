"""Which boxes of the drawings a request touches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from krouter.combos import reference
from krouter.route import Attempt, Places, Route, Skipped, Voice

JUDGE = "judge"
"""Stands for an index where a combo's judge is meant, which is in no list."""


def boxes(route: Route, places: Places) -> list[dict[str, Any]]:
    """The entry at `places`, after the nested combos around it, each with its combo and its index
    in that combo's list; null where it is not in the list."""
    found: list[dict[str, Any]] = []
    combo = route.combo
    for level in range(1, len(places) + 1):
        order = route.order_at(places[:level])
        place = places[level - 1]
        if not 0 < place <= len(order):
            break
        placed = order[place - 1]
        index = placed.listed - 1 if placed.listed else None
        found.append({"combo": combo, "entry": placed.entry, "index": index})
        combo = reference(placed.entry) or ""
    return found


def touched(route: Route, step: Attempt | Skipped) -> list[dict[str, Any]]:
    """The same for a step, and the judge's box of each fusion that had it judge, or answer as the
    only one that could."""
    found = boxes(route, step.places)
    for voice in route.around(step.voice):
        if voice.role != "panel":
            combo = _fusion_of(route, step.places, voice)
            found.append({"combo": combo, "entry": voice.entry, "index": JUDGE})
    return found


def _fusion_of(route: Route, places: Places, voice: Voice) -> str:
    """The combo in which a judge was asked: of the fusions around the step, the one as deep in as
    the voice is."""
    depth = sum(each.role == "panel" for each in route.around(voice.within))
    fusions = route.fusions(places)
    if depth >= len(fusions):
        return route.combo
    at = fusions[depth]
    placed = route.order_at(at)[at[-1] - 1].entry if at else ""
    return reference(placed) or route.combo


def told_step(route: Route, step: Attempt | Skipped, number: int) -> dict[str, Any]:
    """A step of a route as the pages are told it; `number` is its place among the steps."""
    told = {
        "id": route.id,
        "combo": route.combo,
        "step": number,
        "entry": step.entry,
        "account": step.account,
        "role": route.voices[step.voice - 1].role if step.voice else "",
        "boxes": touched(route, step),
    }
    if isinstance(step, Skipped):
        return {**told, "kind": "skip", "outcome": str(step.reason), "detail": step.detail}
    timed = {"began": step.began, "first_byte": step.first_byte, "ended": step.ended}
    return {**told, "kind": "attempt", "outcome": str(step.outcome), "status": step.status, **timed}


def under_way(routes: Iterable[Route]) -> list[dict[str, Any]]:
    """The requests that are not over, late calls of a fusion included, the oldest first."""
    return [_told(route) for route in routes if route.ended is None or route.lingers]


def _told(route: Route) -> dict[str, Any]:
    steps = list(_open(route))
    return {
        "id": route.id,
        "asked": route.asked,
        "combo": route.combo,
        "began": route.began,
        "entries": list(dict.fromkeys(step["entry"] for step in steps)),
        "steps": steps,
    }


def _open(route: Route) -> Iterator[dict[str, Any]]:
    for number, step in enumerate(route.steps):
        if isinstance(step, Attempt) and step.ended is None:
            yield told_step(route, step, number)
