"""The hot endpoints, as plain ASGI: a body comes in, an answer goes out, the caller may leave."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from krouter.adapter import Call
from krouter.answer import Answer, described, error_answer, stamps
from krouter.dialects.base import Dialect
from krouter.route import Route
from krouter.router import Router
from krouter.serve.intake import (
    CallerGone,
    Receive,
    Refusal,
    Scope,
    Send,
    parse_call,
    read_body,
    request_headers,
)
from krouter.wire import Headers

_log = logging.getLogger("krouter")


class Hangup:
    """Watches for the caller's disconnect, and cancels the task that serves it."""

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._over = False
        self._served = asyncio.current_task()
        self._watch = asyncio.create_task(self._wait(receive))

    async def _wait(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not self._over and self._served is not None:
            self.gone = True
            self._served.cancel()

    def stop(self) -> None:
        """The reply is complete: what comes now is no hang-up."""
        self._over = True
        self._watch.cancel()

    def excuses(self) -> bool:
        """Whether a cancellation was this watcher's, which ends here."""
        return self.gone and self._served is not None and self._served.uncancel() == 0


class Endpoint:
    """One dialect's endpoint. `authorize` raises Refusal; `limit` is in bytes."""

    def __init__(
        self,
        dialect: Dialect,
        router: Router,
        authorize: Callable[[Headers], None],
        limit: Callable[[], int],
    ) -> None:
        self._dialect = dialect
        self._router = router
        self._authorize = authorize
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = request_headers(scope)
        try:
            self._authorize(headers)
            raw = await read_body(receive, headers, self._limit())
            query = scope["query_string"].decode("latin-1")
            call = parse_call(self._dialect, raw, headers, scope["path"], query)
        except CallerGone:
            return
        except Refusal as refusal:
            await send_whole(send, error_answer(self._dialect, refusal.status, refusal.message))
            return
        hangup = Hangup(receive)
        try:
            answer = await self._answered(call)
            with contextlib.suppress(OSError):  # the caller's socket broke
                await self._deliver(answer, send, hangup)
        except asyncio.CancelledError:
            if not hangup.excuses():
                raise
        finally:
            hangup.stop()

    async def _answered(self, call: Call) -> Answer:
        """The answer; a fault of krouter's own is an error in the caller's dialect too."""
        routes: list[Route] = []
        try:
            return await self._router.answer(call, began=routes.append)
        except Exception as error:
            _log.error("a request failed with %s\n%s", *described(error))
            message = f"krouter failed with {type(error).__name__}. Its log says where."
            headers = [header for route in routes for header in stamps(route)]
            return error_answer(self._dialect, 500, message, headers=headers)

    async def _deliver(self, answer: Answer, send: Send, hangup: Hangup) -> None:
        try:
            if answer.relay is None:
                hangup.stop()
                answer.book()  # before the caller has it all, so that no crash in between loses it
                await send_whole(send, answer)
                return
            await send(_start(answer))
            while piece := await answer.relay.next():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            hangup.stop()
            answer.book()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await answer.close()


def _start(answer: Answer) -> dict[str, object]:
    headers = [
        (name.encode("latin-1", "replace"), value.encode("utf-8", "surrogateescape"))
        for name, value in answer.headers
    ]
    return {"type": "http.response.start", "status": answer.status, "headers": headers}


async def send_whole(send: Send, answer: Answer) -> None:
    """An answer that has no stream."""
    answer.headers = [*answer.headers, ("content-length", str(len(answer.body)))]
    await send(_start(answer))
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
