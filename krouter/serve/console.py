"""The last lines of the live log, kept while krouter runs, and `GET /api/log`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from krouter.route import Log, Route
from krouter.router import Router, summary

KEPT_LINES = 500


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `at` is in epoch seconds, `number` counts all lines from 1, and is 0 for one that
    tells of a request of which nothing was logged. `route` is the id of the request that has ended
    by it, if any."""

    number: int
    at: float
    kind: str
    text: str
    route: str = ""

    def as_json(self) -> dict[str, Any]:
        told = {"at": self.at, "kind": self.kind, "text": self.text}
        return {"number": self.number, **told, "route": self.route}


class Console:
    """A log that keeps its last lines, and passes each on. May be told from any thread."""

    def __init__(self, log: Log, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._numbers = count(1)
        self._lines: deque[Line] = deque(maxlen=KEPT_LINES)

    def __call__(self, kind: str, text: str) -> None:
        route = text.partition(" ")[0] if kind == "ROUTE" else ""  # as `summary` begins
        self._lines.append(Line(next(self._numbers), self._now(), kind, text, route))
        self._log(kind, text)

    def last(self, most: int = KEPT_LINES) -> list[Line]:
        """The last lines, oldest first."""
        return list(self._lines.copy())[-most:]

    def since(self, number: int) -> list[Line]:
        """Those after the line of this number, oldest first, as far as they are kept."""
        return [line for line in self._lines.copy() if line.number > number]


def lines_of(console: Console, routes: Iterable[Route], most: int) -> list[Line]:
    """The last lines; of requests that were over before anybody wanted to see their steps, the one
    line that tells what came of them."""
    kept = console.last()
    told = {line.route for line in kept}
    untold = [
        Line(0, route.ended, "ROUTE", summary(route), route.id)
        for route in routes
        if route.ended is not None and route.id not in told
    ]
    return sorted([*untold, *kept], key=lambda line: line.at)[-most:]


def add_log(app: FastAPI, console: Console, router: Router) -> None:
    """The live log, for those who have no terminal to see it in."""

    @app.get("/api/log")
    async def log(limit: int = KEPT_LINES) -> dict[str, Any]:
        if not 1 <= limit <= KEPT_LINES:
            raise HTTPException(400, f"limit must be a whole number from 1 to {KEPT_LINES}.")
        return {"lines": [line.as_json() for line in lines_of(console, router.routes, limit)]}
