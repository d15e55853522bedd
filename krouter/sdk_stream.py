"""A reply as the library hands it on: the chunks of a stream, and what went wrong in words."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Self

from krouter.answer import Answer
from krouter.engine import Line
from krouter.errors import Failure, Fault
from krouter.route import Route, Skip, Skipped
from krouter.shapes import Pieces, Shapes, Unreadable
from krouter.sse import Splitter

Fail = Callable[[Answer, Failure | None, int, str, bool], Exception]
"""Makes an exception: of an answer, why it failed, its status and words, and whether it was cut."""


class Stream:
    """The chunks of one reply, for `for` or for `async for`; `route` says how it came about.

    Raises LiteLLM's exception where the reply breaks off. Closing it, dropping it, or cancelling
    who reads it closes the provider's connection. It has one reader at a time.
    """

    def __init__(self, line: Line, shapes: Shapes, pieces: Pieces, fail: Fail) -> None:
        self.route = line.answer.route
        self.response_headers = self._response_headers = dict(line.answer.headers)
        self._hidden_params = pieces.hidden_params
        self._line = line
        self._decode = shapes.decode
        self._made = pieces.made
        self._fail = fail
        self._splitter = Splitter()
        self._ready: deque[dict[str, Any]] = deque()
        self._reading = threading.Lock()
        self._over = False
        self._left = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._begin()
        try:
            while self._waits():
                self._take(self._line.take())
            piece = self._next()
        except BaseException:
            self._leave()
            raise
        finally:
            self._reading.release()
        if piece is None:
            raise StopIteration
        return piece

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        self._begin()
        try:
            while self._waits():
                self._take(await self._line.taken())
            piece = self._next()
        except BaseException:
            self._leave()
            raise
        finally:
            self._reading.release()
        if piece is None:
            raise StopAsyncIteration
        return piece

    def _begin(self) -> None:
        if not self._reading.acquire(blocking=False):
            raise RuntimeError("This stream is being read already; it has one reader at a time.")

    def _waits(self) -> bool:
        """Whether more must come first; an error is told when the route has been booked."""
        if self._left:
            raise RuntimeError("This stream was closed when its reader was interrupted.")
        return not self._over and (not self._ready or bool(self._ready[0].get("error")))

    def _take(self, piece: bytes) -> None:
        self._over = not piece
        for event in self._splitter.feed(piece) if piece else ():
            if event.data and event.data != b"[DONE]":
                self._ready.append(self._decode(event.data))
        relay = self._line.answer.relay
        if self._over and relay and relay.tracker.complete and relay.tracker.malformed:
            message = f"Events of the reply that could not be read: {relay.tracker.malformed}."
            self._ready.append({"error": {"message": message}})

    def _next(self) -> Any:
        """The next chunk; None at the end."""
        if not self._ready:
            return None
        told = self._ready.popleft()
        if told.get("error"):
            raise self._broken(told)
        try:
            return self._made(told)
        except Unreadable as error:
            self._end()
            self._line.leave()
            raise self._fail(self._line.answer, None, 502, str(error), False) from None

    def _broken(self, told: Mapping[str, Any]) -> Exception:
        relay = self._line.answer.relay
        assert relay is not None
        tracker, fault, failure = relay.tracker, relay.fault, failure_of(self.route)
        status = tracker.error_status or (504 if fault is Fault.TIMEOUT else 502)
        cut = not (tracker.error or tracker.complete or fault is Fault.GARBAGE)
        return self._fail(self._line.answer, failure, status, message_of(told, status), cut)

    def _end(self) -> None:
        self._over = True
        self._ready.clear()

    def _leave(self) -> None:
        if not self._over:
            self._over = self._left = True
            self._line.leave()

    def close(self) -> None:
        """Ends the stream; nothing more can be read from it."""
        self._end()
        self._line.close()

    async def aclose(self) -> None:
        """The same from an event loop."""
        self._end()
        await self._line.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def failure_of(route: Route | None) -> Failure | None:
    """Why the attempt failed whose error it is; without one, whether a credential was all that
    was missing."""
    if route is None:
        return None
    if route.final is None:
        reasons = {step.reason for step in route.steps if isinstance(step, Skipped)}
        return Failure.NOT_SIGNED_IN if reasons and reasons <= _NO_CREDENTIAL else None
    return Failure(route.end) if route.end in _FAILURES else None


_FAILURES = frozenset(Failure)
_NO_CREDENTIAL = {Skip.NO_ACCOUNT, Skip.NO_CREDENTIAL, Skip.CALLER_UNSIGNED}


def message_of(told: Mapping[str, Any], status: int) -> str:
    """The words of an error in chat's form."""
    error = told.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else f"krouter answered with status {status}."
