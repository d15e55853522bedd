"""`GET /api/live`: what happens, as server-sent events, to whoever listens.

Nothing is told while a request is answered: as long as somebody listens, the records of requests,
the log and the snapshot are looked at some times a second, and what is new in them is told. So
nobody's request costs more where nobody listens, and little where somebody does.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from krouter.answer import described
from krouter.load import House
from krouter.serve.console import Console
from krouter.serve.guard import Guard
from krouter.serve.intake import request_headers
from krouter.serve.news import Event, NewLines, NewSteps, NewView
from krouter.serve.view import snapshot
from krouter.serve.whole import HANG_UP

LOOK_SECONDS = 0.1
"""How often requests and the log are looked at."""
VIEW_LOOKS = 5
"""With every how many of these looks a snapshot is taken."""
MOST_WAITING = 1000
"""Events that wait for a listener that does not take them."""
SILENCE_SECONDS = 15.0
"""After which a listener gets a sign of life."""
PATIENCE_SECONDS = 60.0
"""How long a listener may take nothing of what it is sent before its connection is broken off."""
FAREWELL_SECONDS = 1.0
"""How long listeners have to take the last of it once krouter ends."""
NOTHING: dict[str, Any] = {"combos": [], "providers": [], "settings": None, "problems": []}
"""A view of which all is news."""

HEAD = "krouter.head"
"""In the scope of a request that is to be answered without a body."""

_log = logging.getLogger("krouter")


def _nothing() -> None:
    """Where there is no connection to break off."""


class Listener:
    """One who listens: bounded, so that a slow one loses events and is told how many. `hang_up`
    breaks its connection off, `is_welcome` says whether it may still be told anything."""

    def __init__(
        self,
        silence: float = SILENCE_SECONDS,
        hang_up: Callable[[], object] = _nothing,
        is_welcome: Callable[[], bool] = lambda: True,
    ) -> None:
        self.hang_up = hang_up
        self.is_welcome = is_welcome
        self._silence = silence
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self._come = asyncio.Event()
        self._over = False
        self._given: float | None = None
        """Since when, by the event loop, it has not taken what it was sent."""

    def tell(self, event: bytes) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._lost += 1
        else:
            self._waiting.append(event)
        self._come.set()

    def end(self) -> None:
        """Nothing more will come."""
        self._over = True
        self._come.set()

    def dismiss(self) -> None:
        """Nothing more will come, nor what waits."""
        self._waiting.clear()
        self.end()

    def has_taken_nothing_for(self, seconds: float) -> bool:
        given = self._given
        return given is not None and asyncio.get_running_loop().time() - given > seconds

    async def events(self) -> AsyncIterator[bytes]:
        """What is told, until the end."""
        while not self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._silence):
                    await self._come.wait()
            self._come.clear()
            self._given = asyncio.get_running_loop().time()
            yield self._taken() or b": still here\n\n"
            self._given = None

    def _taken(self) -> bytes:
        taken = b"".join(self._waiting)
        self._waiting.clear()
        lost, self._lost = self._lost, 0
        return taken + (encoded("lost", {"events": lost}) if lost else b"")


class Live:
    """Tells all listeners what is new; it looks for news only while there are any. `is_over` says
    when no more is to be told, since krouter is about to end."""

    def __init__(self, house: House, console: Console, problems: Callable[[], list[str]]) -> None:
        self.is_over: Callable[[], bool] = lambda: False
        self.patience = PATIENCE_SECONDS
        self._house = house
        self._problems = problems
        self._console = console
        self._listeners: set[Listener] = set()
        self._looking: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()

    @property
    def is_looking(self) -> bool:
        """Whether anybody listens, or did a moment ago."""
        return self._looking is not None and not self._looking.done()

    async def listen(self, listener: Listener) -> AsyncIterator[bytes]:
        """The events of one listener: all that happens after the first of them."""
        await asyncio.to_thread(self._house.router.world.catalog.warm_up)
        self._listeners.add(listener)
        self._house.trace(True)
        try:
            if not self.is_looking:
                self._begun = asyncio.Event()
                self._looking = asyncio.create_task(self._look(self._begun))
            await self._begun.wait()
            yield encoded("hello", {"now": self._house.router.world.pool.now()})
            async for events in listener.events():
                yield events
        finally:
            self._listeners.discard(listener)
            self._house.trace(bool(self._listeners))

    async def _look(self, begun: asyncio.Event) -> None:
        """Tells what is new from now on."""
        routes = self._house.router.routes
        steps, lines, view = NewSteps(routes), NewLines(self._console), NewView(NOTHING)
        with _noted():
            view.look(await snapshot(self._house, self._problems))
        begun.set()
        for looks in count(1):
            await asyncio.sleep(LOOK_SECONDS)
            if not self._listeners or self.is_over():
                break
            with _noted():
                self._tell(steps.look(routes))
            with _noted():
                self._tell(lines.look())
            if looks % VIEW_LOOKS == 0:
                self._part()
                with _noted():
                    self._tell(view.look(await snapshot(self._house, self._problems)))
        self._end()

    def _part(self) -> None:
        """Ends with those who may no longer listen, and with those who do not."""
        for listener in list(self._listeners):
            if not listener.is_welcome():
                listener.dismiss()
            if listener.has_taken_nothing_for(self.patience):
                listener.hang_up()

    def _end(self) -> None:
        """Whoever has not taken the last of it a moment later keeps krouter no longer."""
        for listener in self._listeners:
            listener.end()
            asyncio.get_running_loop().call_later(FAREWELL_SECONDS, listener.hang_up)

    def _tell(self, events: list[Event]) -> None:
        for name, data in events:
            event = encoded(name, data)
            for listener in self._listeners:
                listener.tell(event)


@contextmanager
def _noted() -> Iterator[None]:
    """Whatever goes wrong with one look, the next event must be told."""
    try:
        yield
    except Exception as error:
        _log.error("looking for news failed with %s\n%s", *described(error))


def encoded(name: str, data: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode(
        errors="replace"
    )


def add_live(app: FastAPI, live: Live, guard: Guard) -> None:
    """The events, for as long as the listener would be let in."""

    @app.get("/api/live")
    async def events(request: Request) -> Response:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        if HEAD in request.scope:
            return Response(headers=headers, media_type="text/event-stream")
        given = request_headers(request.scope)
        hang_up = request.scope.get(HANG_UP, _nothing)
        listener = Listener(hang_up=hang_up, is_welcome=lambda: guard.lets_in(given))
        told = live.listen(listener)
        return StreamingResponse(told, headers=headers, media_type="text/event-stream")
