"""The hot endpoints, as plain ASGI: a body comes in, an answer goes out, the caller may leave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Protocol

from krouter.adapter import Call
from krouter.answer import Answer, stamps
from krouter.dialects.base import Dialect
from krouter.dialects.long import Seen
from krouter.headers import EVENT_STREAM
from krouter.keys import Key
from krouter.route import Route
from krouter.serve.arrays import framed, is_array
from krouter.serve.intake import (
    CallerGone,
    Receive,
    Refusal,
    Scope,
    Send,
    check_page,
    parse_call,
    read_body,
    request_headers,
    with_key_of,
)
from krouter.serve.limits import check_further, check_model
from krouter.serve.outlet import Outlet
from krouter.serve.refused import failed, refused
from krouter.serve.whole import WHOLE
from krouter.wire import Headers
from krouter.world import World

WATCHED_AFTER = 0.05
"""Seconds that a call may take before anybody looks whether its caller is still there. It may be
up to twice as long."""


class Lookout:
    """Begins to watch the callers of the calls that take long: one timer for all of them, so that
    those that do not take long cost none."""

    def __init__(self) -> None:
        self._new: set[Hangup] = set()
        self._older: set[Hangup] = set()
        """Those that were new at the last look."""
        self._looks = False

    def add(self, hangup: Hangup) -> None:
        self._new.add(hangup)
        if not self._looks:
            self._looks = True
            loop = asyncio.get_running_loop()
            loop.call_later(WATCHED_AFTER, self._look, loop)

    def forget(self, hangup: Hangup) -> None:
        self._new.discard(hangup)
        self._older.discard(hangup)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        for hangup in self._older:
            hangup.begin(loop)
        self._older, self._new = self._new, set()
        self._looks = bool(self._older)
        if self._looks:
            loop.call_later(WATCHED_AFTER, self._look, loop)


class Hangup:
    """Watches for the caller's disconnect, and cancels the task that serves it. It watches once
    the lookout has it `begin`."""

    def __init__(self, receive: Receive, lookout: Lookout) -> None:
        self.gone = False
        self._over = False
        self._receive = receive
        self._served = asyncio.current_task()
        self._watch: asyncio.Task[None] | None = None
        self._lookout = lookout
        lookout.add(self)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watch = loop.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._over and self._served is not None:
            self.gone = True
            self._served.cancel()

    def stop(self) -> None:
        """The reply is complete: what comes now is no hang-up."""
        self._over = True
        self._lookout.forget(self)
        if self._watch is not None:
            self._watch.cancel()

    def excuses(self) -> bool:
        """Whether a cancellation was this watcher's, which ends here."""
        return self.gone and self._served is not None and self._served.uncancel() == 0


class Answers(Protocol):
    """Who answers what comes to an endpoint."""

    @property
    def world(self) -> World: ...

    async def answer(self, call: Call, *, began: Callable[[Route], object]) -> Answer:
        """`began` is told the route, where there is one."""


class Door(Protocol):
    """Who lets callers in; a `Guard`, where they come from outside."""

    def authorize(self, headers: Headers, scope: Scope) -> Key | None: ...

    def check(self, key: Key, *, free: bool) -> None: ...

    def admit(self, key: Key, *, free: bool) -> None: ...

    def begin(self, route: Route, key: Key, call: Call, world: World) -> None: ...


class Endpoint:
    """One dialect's endpoint. `limit` is in bytes; what is asked of one that is `free` costs
    nothing."""

    def __init__(
        self,
        dialect: Dialect,
        router: Answers,
        guard: Door,
        limit: Callable[[], int],
        free: bool = False,
    ) -> None:
        self._dialect = dialect
        self._router = router
        self._guard = guard
        self._limit = limit
        self._free = free
        self._lookout = Lookout()
        self._seen = Seen()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = request_headers(scope)
        key: Key | None = None
        try:
            query = scope["query_string"].decode("latin-1")
            key = self._guard.authorize(with_key_of(query, headers), scope)
            check_page(headers, self._router.world.settings.server.cors_origins)
            limited = key if key is not None and key.is_limited else None
            if limited is not None:  # before a body is read for nothing
                self._guard.check(limited, free=self._free)
            raw = await read_body(receive, headers, self._limit())
            if limited is not None:  # others may have been let in while it came
                self._guard.admit(limited, free=self._free)
            caller = "" if key is None else key.name
            path = scope["path"]
            call = parse_call(self._dialect, raw, headers, path, query, self._seen, caller)
            if key is not None and key.models is not None:
                check_model(key, call.model, self._router.world)
                check_further(key, call.body)
        except CallerGone:
            return
        except Refusal as refusal:
            if key is not None:
                self._router.world.log("KEY", f"{key.name}: {refusal.status} {refusal.message}")
            await send_refusal(send, self._dialect, refusal)
            return
        hangup, outlet = Hangup(receive, self._lookout), Outlet(send, scope.pop(WHOLE, None))
        answer: Answer | None = None
        try:
            answer = framed(await self._answered(call, outlet, key), call)
            await self._deliver(answer, send, outlet, hangup)
        except OSError:
            pass  # the caller's socket broke
        except (Exception, asyncio.CancelledError) as error:
            if not hangup.excuses():  # the server has no more time; nobody waits for this task
                await self._cut_short(call, answer, outlet, failed(self._dialect, error))
        finally:
            hangup.stop()
            outlet.stop()

    async def _answered(self, call: Call, outlet: Outlet, key: Key | None) -> Answer:
        """The answer; a fault of krouter's own is an error in the caller's dialect too."""
        routes: list[Route] = []

        def began(route: Route) -> None:
            routes.append(route)
            if key is not None and key.is_limited:
                self._guard.begin(route, key, call, self._router.world)
            if call.stream and (keep_alive := self._dialect.keep_alive):
                seconds = self._router.world.keep_alive
                outlet.watch(keep_alive, seconds, lambda: _early_head(route))

        try:
            return await self._router.answer(call, began=began)
        except Exception as error:
            return failed(self._dialect, error, [one for route in routes for one in stamps(route)])

    async def _cut_short(
        self, call: Call, answer: Answer | None, outlet: Outlet, told: Answer
    ) -> None:
        """krouter ends or fails before the answer ends, and says so. An array of events that has
        begun can only break off."""
        relay = answer.relay if answer else None
        if relay is not None:
            if relay.tracker.complete or relay.tracker.error:
                return
            event: Callable[..., bytes] = told.event
            told.event = partial(event, relay.tracker)
        if not (outlet.begun and is_array(call)):
            # Whoever has the whole answer, or has left, is told nothing.
            with contextlib.suppress(OSError, RuntimeError):
                await outlet.whole(told)

    async def _deliver(self, answer: Answer, send: Send, outlet: Outlet, hangup: Hangup) -> None:
        try:
            if answer.relay is None:
                hangup.stop()
                answer.book()
                await outlet.whole(answer)
                return
            await outlet.begin(answer)
            while piece := await answer.relay.next():
                outlet.spoke = True
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            hangup.stop()
            answer.book()
            await outlet.end()
        finally:
            await answer.close()


def _early_head(route: Route) -> Headers:
    """What is known of a reply that begins before there is an answer."""
    route.notes.append("the reply began with keep-alives, with status 200")
    return [EVENT_STREAM, ("x-krouter-route", route.id)]


async def send_refusal(send: Send, dialect: Dialect, refusal: Refusal) -> None:
    if refusal.hold is not None:
        await refusal.hold()
    with contextlib.suppress(OSError):  # the caller's socket broke
        await send_whole(send, refused(dialect, refusal))


async def send_whole(send: Send, answer: Answer) -> None:
    """An answer that has no stream."""
    await Outlet(send).whole(answer)
