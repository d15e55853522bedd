"""Calls that run on to their end though nobody waits for them, for their record alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from krouter.route import Attempt, Route, Skipped

Steps = list[Attempt | Skipped]


@dataclass(slots=True)
class _Running:
    """The late calls of one route. Once that is over, `open` are the attempts that were under way
    then, `count` is how many steps there were, and `amend` is told what comes to it."""

    calls: set[asyncio.Task[Any]] = field(default_factory=set)
    open: Steps = field(default_factory=list)
    count: int = 0
    amend: Callable[[Steps], None] | None = None


class Late:
    """Late calls, by their route."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}
        self._closed = False

    def add(self, route: Route, calls: Sequence[asyncio.Task[Any]]) -> None:
        running = self._running.setdefault(route.id, _Running())
        running.calls.update(calls)
        if self._closed:
            _cancel(calls)
        for call in calls:
            call.add_done_callback(lambda done: self._ended(route, running, done))

    def over(self, route: Route, amend: Callable[[Steps], None]) -> None:
        """The route is about to be booked. Once the last of its late calls has ended, `amend` is
        told what has come to it since."""
        running = self._running.get(route.id)
        route.lingers = running is not None
        if running is not None:
            running.open = [step for step in route.attempts if step.ended is None]
            running.count, running.amend = len(route.steps), amend

    def _ended(self, route: Route, running: _Running, call: asyncio.Task[Any]) -> None:
        running.calls.discard(call)
        if running.calls:
            return
        del self._running[route.id]
        if running.amend is not None:
            route.lingers = False
            running.amend([*running.open, *route.steps[running.count :]])

    async def close(self) -> None:
        """Ends them all, and those that they leave behind."""
        self._closed = True
        while calls := [call for each in self._running.values() for call in each.calls]:
            _cancel(calls)
            await asyncio.wait(calls)
            await asyncio.sleep(0)  # so that what is to be done at their end is done


def _cancel(calls: Sequence[asyncio.Task[Any]]) -> None:
    for call in calls:
        call.cancel()
