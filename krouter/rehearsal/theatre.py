"""The rehearsal itself: a router and its endpoints, in a loop of virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine
from contextvars import ContextVar
from itertools import count
from typing import Any, TypeVar

from krouter.adapter import Call
from krouter.answer import Answer
from krouter.dialects import DIALECTS
from krouter.keys import Key
from krouter.limit import Limit
from krouter.rehearsal import requests
from krouter.rehearsal.caller import Caller
from krouter.rehearsal.reading import Came
from krouter.rehearsal.seen import Seen
from krouter.rehearsal.stage import CALLERS, Stage
from krouter.route import Route
from krouter.router import Router
from krouter.script import TALLY, Director, Tally
from krouter.serve.hot import Endpoint
from krouter.serve.intake import Scope
from krouter.virtual import VirtualLoop
from krouter.wire import Headers
from krouter.world import World

T = TypeVar("T")

PATIENCE = 86_400.0
_LIMIT = 64 << 20
_CALLER: ContextVar[Caller] = ContextVar("caller")


class Rehearsal:
    """Answers requests as a krouter over this world or stage would whose providers do what
    `director` says. The same seed, director and requests give the same again, but for ids that
    krouter itself makes up in a reply.

    A caller that still waits after `patience` seconds is taken to wait for ever. `router_of` makes
    the router, so that another one can be put to the test.
    """

    def __init__(
        self,
        world: World | Stage,
        director: Director,
        *,
        seed: int = 0,
        patience: float = PATIENCE,
        router_of: Callable[[World], Router] | None = None,
    ) -> None:
        self.stage = world if isinstance(world, Stage) else Stage.of(world)
        self.loop = VirtualLoop()
        self._runner = asyncio.Runner(loop_factory=lambda: self.loop)
        numbers = count(1)
        opened = self.stage.open(director, self.loop, seed)
        made = router_of(opened) if router_of else None
        self.router = made or Router(opened, lambda: f"rehearsed-{next(numbers)}")
        answers = _Answers(self.router)
        self._endpoints = {
            name: Endpoint(dialect, answers, _OpenDoor(), lambda: _LIMIT)
            for name, dialect in DIALECTS.items()
        }
        self._requests, self._patience = count(1), patience

    def __enter__(self) -> Rehearsal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends what is still under way."""
        self._runner.close()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What `main` gives, in the rehearsal's own time."""
        return self._runner.run(main)

    def ask(self, name: str, **asked: Any) -> Seen:
        """`send`, from outside of any event loop."""
        return self.run(self.send(name, **asked))

    def wait(self, seconds: float) -> None:
        """Lets time pass, in which late calls run on and locks end."""
        self.run(asyncio.sleep(seconds))

    async def send(
        self,
        name: str,
        *,
        needs: Collection[str] = (),
        dialect: str = "chat",
        stream: bool = False,
        tokens: int = 0,
        body: bytes | None = None,
        headers: Headers | None = None,
        hang_up: float | None = None,
        note: object = None,
    ) -> Seen:
        """One request for `name`, from its first byte to its last.

        It carries the `needs` and some `tokens` of text, or is `body` as it stands, of which
        `stream` must be true. `hang_up` is after how many seconds the caller leaves, `note` what
        the director is told with it. Raises ValueError for a need that is none.
        """
        if body is None:
            body = requests.body(dialect, name, needs, stream, tokens)
        caller = Caller(body, hang_up)
        TALLY.set(Tally(next(self._requests), 0, note))
        _CALLER.set(caller)
        scope = self._scope(name, dialect, stream, headers or [])
        with contextlib.suppress(TimeoutError), Limit(self._patience) as patience:
            await self._endpoints[dialect](scope, caller.receive, caller.send)
        return _seen(caller, dialect, patience.expired)

    def _scope(self, name: str, dialect: str, stream: bool, headers: Headers) -> Scope:
        if self.stage.has_callers:
            headers = [*headers, ("authorization", f"Bearer {CALLERS}")]
        return {
            "type": "http",
            "path": requests.path(dialect, name, stream),
            "query_string": requests.query(dialect, stream).encode(),
            "headers": [(given.encode(), value.encode()) for given, value in headers],
        }


class _Answers:
    """The router, which tells each caller its route."""

    def __init__(self, router: Router) -> None:
        self._router = router

    @property
    def world(self) -> World:
        return self._router.world

    async def answer(self, call: Call, *, began: Callable[[Route], object]) -> Answer:
        caller = _CALLER.get()

        def note(route: Route) -> None:
            caller.route = route
            began(route)

        return await self._router.answer(call, began=note)


class _OpenDoor:
    """Lets everybody in."""

    def authorize(self, headers: Headers, scope: Scope) -> Key | None:
        return None

    def check(self, key: Key, *, free: bool) -> None:
        """Nobody has a key."""

    def admit(self, key: Key, *, free: bool) -> None:
        """Nobody has a key."""

    def begin(self, route: Route, key: Key, call: Call, world: World) -> None:
        """Nobody has a key."""


def _seen(caller: Caller, dialect: str, hung: bool) -> Seen:
    reading = caller.read(dialect)
    began, now = caller.began, asyncio.get_running_loop().time()
    signs = (DIALECTS[dialect].keep_alive,)
    first = caller.first(signs)
    return Seen(
        Came.HUNG if hung else reading.came,
        caller.status,
        reading.text,
        reading.message,
        caller.headers,
        b"".join(piece for _, piece in caller.pieces),
        None if caller.head is None else caller.head - began,
        None if first is None else first - began,
        now - began,
        caller.silence(signs, now),
        reading.pings,
        caller.route,
    )
