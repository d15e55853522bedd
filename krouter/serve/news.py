"""What is new since one last looked: steps of requests, lines of the log, changes of the view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from krouter.route import Attempt, Route, Skipped
from krouter.serve.console import Console
from krouter.serve.touched import told_step

Event = tuple[str, dict[str, Any]]
"""Its name, and what it tells."""


class NewSteps:
    """Requests that have begun, their steps and their ends. `routes` are all that are remembered,
    the newest last; those before it is made are no news, but for those under way."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._newest = routes[-1] if routes else None
        self._open = {r.id: _Followed(r, told=True) for r in routes if _is_open(r)}

    def look(self, routes: Sequence[Route]) -> list[Event]:
        events: list[Event] = []
        fresh, is_whole = self._fresh(routes)
        if not is_whole:
            events.append(("lost", {"events": None}))
        self._open |= {route.id: _Followed(route) for route in fresh}
        for followed in list(self._open.values()):
            events += followed.news()
            if not _is_open(followed.route):
                del self._open[followed.route.id]
        return events

    def _fresh(self, routes: Sequence[Route]) -> tuple[list[Route], bool]:
        """The routes since the last look, oldest first, and whether none is missing."""
        found: list[Route] = []
        for route in reversed(routes):
            if route is self._newest:
                break
            found.append(route)
        else:
            if self._newest is not None:
                self._newest = routes[-1]
                return found[::-1], False
        self._newest = found[0] if found else self._newest
        return found[::-1], True


class _Followed:
    """A request that is followed; `told` says that it was under way before anybody listened."""

    def __init__(self, route: Route, *, told: bool = False) -> None:
        self.route = route
        self._is_begun = told
        self._is_ended = told and route.ended is not None
        self._steps = len(route.steps) if told else 0
        self._attempts = {
            number: step
            for number, step in enumerate(route.steps if told else ())
            if isinstance(step, Attempt) and step.ended is None
        }

    def news(self) -> list[Event]:
        return [*self._begin(), *self._ended_attempts(), *self._new_steps(), *self._end()]

    def _begin(self) -> Iterator[Event]:
        if not self._is_begun:
            self._is_begun = True
            yield "begin", _begun(self.route)

    def _ended_attempts(self) -> Iterator[Event]:
        for number, step in list(self._attempts.items()):
            if step.ended is not None:
                del self._attempts[number]
                yield "step", told_step(self.route, step, number)

    def _new_steps(self) -> Iterator[Event]:
        for number in range(self._steps, len(self.route.steps)):
            step: Attempt | Skipped = self.route.steps[number]
            yield "step", told_step(self.route, step, number)
            if isinstance(step, Attempt) and step.ended is None:
                self._attempts[number] = step
        self._steps = len(self.route.steps)

    def _end(self) -> Iterator[Event]:
        """Told once more when the late calls of a fusion are over too."""
        if self.route.ended is not None and not (self._is_ended and self.route.lingers):
            self._is_ended = True
            yield "end", _ended(self.route)


def _is_open(route: Route) -> bool:
    return route.ended is None or route.lingers


def _begun(route: Route) -> dict[str, Any]:
    return {
        "id": route.id,
        "at": route.began,
        "asked": route.asked,
        "combo": route.combo,
        "dialect": route.dialect,
        "stream": route.stream,
    }


def _ended(route: Route) -> dict[str, Any]:
    return {
        "id": route.id,
        "at": route.ended,
        "asked": route.asked,
        "combo": route.combo,
        "outcome": str(route.outcome),
        "status": route.status,
        "served": route.served,
        "lingers": route.lingers,
    }


class NewLines:
    """Lines of the log that have come."""

    def __init__(self, console: Console) -> None:
        self._console = console
        last = console.last(1)
        self._seen = last[0].number if last else 0

    def look(self) -> list[Event]:
        lines = self._console.since(self._seen)
        if not lines:
            return []
        missed = lines[0].number - self._seen - 1
        self._seen = lines[-1].number
        lost: list[Event] = [("lost", {"events": missed})] if missed else []
        return [*lost, *(("log", line.as_json()) for line in lines)]


class NewView:
    """Which combos and providers have changed, and whether the settings have."""

    def __init__(self, view: dict[str, Any]) -> None:
        self._before = _parts(view)

    def look(self, view: dict[str, Any]) -> list[Event]:
        before, now = self._before, _parts(view)
        self._before = now
        changed = [part for part in {**before, **now} if before.get(part) != now.get(part)]
        if not changed:
            return []
        named = {
            kind: [name for k, name in changed if k == kind] for kind in ("combos", "providers")
        }
        return [("view", {**named, "settings": ("settings", "") in changed})]


def _parts(view: dict[str, Any]) -> dict[tuple[str, str], Any]:
    parts = {(kind, each["name"]): each for kind in ("combos", "providers") for each in view[kind]}
    return {**parts, ("settings", ""): view["settings"], ("problems", ""): view["problems"]}
