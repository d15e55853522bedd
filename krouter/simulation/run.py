"""Runs a load through a krouter whose providers are scripted, in virtual time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from krouter.adapter import Call
from krouter.answer import Answer
from krouter.body import Body
from krouter.dialects import get
from krouter.dialects.base import Dialect
from krouter.errors import Failure
from krouter.naming import resolve
from krouter.rehearsal import Came, Rehearsal, Stage, requests
from krouter.rehearsal.reading import read_reply
from krouter.rehearsal.stage import CALLERS
from krouter.route import Route
from krouter.router import Router
from krouter.script import TALLY, Tally
from krouter.simulation.arrivals import arrivals
from krouter.simulation.loads import Asked, Load
from krouter.simulation.providers import Providers
from krouter.simulation.report import Report
from krouter.wire import Headers

EVERY = 10_000
"""How many requests are between two words on how far it is."""


def simulate(
    stage: Stage, name: str, load: Load, told: Callable[[int], object] = lambda done: None
) -> Report:
    """What comes of `load` at `name`. `told` hears now and then how many requests have begun.
    Raises UnknownModel."""
    resolve(name, stage.world)
    director = Providers(load, stage.world, load.seed)
    with Rehearsal(stage, director, seed=load.seed) as rehearsal, _little_collected():
        crowd = _Crowd(rehearsal.router, name, stage.has_callers)
        rehearsal.run(crowd.run(load, told))
    return crowd.report


@contextmanager
def _little_collected() -> Iterator[None]:
    """Requests leave little that is not freed at once, and there are very many of them."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class _Crowd:
    """The callers. Each goes to the router itself: of what an endpoint adds, signs of life, only
    the status that they settle is part of the sums."""

    def __init__(self, router: Router, name: str, has_callers: bool) -> None:
        self.report = Report()
        self._router, self._name = router, name
        token: Headers = [("authorization", f"Bearer {CALLERS}")]
        self._headers = token if has_callers else []
        self._here: set[asyncio.Task[None]] = set()

    async def run(self, load: Load, told: Callable[[int], object]) -> None:
        loop = asyncio.get_running_loop()
        for number, asked in enumerate(arrivals(load, load.seed), 1):
            if (wait := asked.at - loop.time()) > 0:
                await asyncio.sleep(wait)
            TALLY.set(Tally(number, 0, asked))
            task = loop.create_task(self._ask(asked))
            self._here.add(task)
            task.add_done_callback(self._here.discard)
            self.report.most_at_once = max(self.report.most_at_once, len(self._here))
            if number % EVERY == 0:
                told(number)
        while self._here:
            await asyncio.wait(self._here)
        self.report.seconds = loop.time()

    async def _ask(self, asked: Asked) -> None:
        loop = asyncio.get_running_loop()
        began, routes = loop.time(), list[Route]()
        dialect, body = _request(asked.dialect, self._name, asked.needs, asked.stream)
        headers = self._headers
        if asked.session:
            headers = [*headers, ("x-session-id", asked.session)]
        call = Call(dialect, body, headers, self._name, asked.stream)
        answer = await self._router.answer(call, began=routes.append)
        relay = answer.relay
        first = loop.time() - began
        if relay is not None:
            while await relay.next():
                pass
        seconds = loop.time() - began
        whole = answer.status < 300 and (relay is None or relay.tracker.complete)
        await answer.close()
        is_kept = asked.stream and dialect.keep_alive and first > self._router.world.keep_alive
        status = 200 if is_kept else answer.status
        outcome = Failure.EMPTY_REPLY if whole and _is_empty(answer, asked) else routes[0].outcome
        is_answered = whole and outcome != Failure.EMPTY_REPLY
        failure = "" if is_answered else f"{outcome} ({status})"
        self.report.add(routes[0], failure, first, seconds)


def _is_empty(answer: Answer, asked: Asked) -> bool:
    """Whether there is nothing in a whole answer, as its caller would read it."""
    if answer.relay is not None:
        return not answer.relay.tracker.has_content
    return read_reply(asked.dialect, answer.status, False, answer.body).came is Came.EMPTY


@lru_cache(maxsize=1024)
def _request(dialect: str, name: str, needs: tuple[str, ...], stream: bool) -> tuple[Dialect, Body]:
    """The same for all who ask for the same: nobody changes it."""
    return get(dialect), Body.parse(requests.body(dialect, name, needs, stream))
