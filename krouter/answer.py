"""What goes back to a caller: a body, or a stream that books its own end."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from krouter.dialects.base import Dialect
from krouter.route import Route, plain
from krouter.stream import Relay
from krouter.wire import Headers

NO_RETRY = ("x-should-retry", "false")
"""For an error that comes back however often the same is asked. Claude Code and the SDKs then stop
at once; Claude Code would repeat even a 401 for minutes, and say nothing."""


def _nothing() -> None:
    """What there is to do at the end of an answer that nobody books."""


class Answer(Struct, eq=False):
    """A status, headers, and either a whole `body` or a `relay` to take the rest from.

    `on_close` is what is done at its end: who makes the answer puts in how its attempt ended, a
    fusion and then the router wrap what they have to note around that. Whoever hands the answer out
    calls `book` before the caller has the last piece, so that nobody has a reply that a crash has
    kept from the books, and awaits `close` in any case: once the caller has everything, or has
    gone.
    """

    status: int
    headers: Headers
    body: bytes = b""
    relay: Relay | None = None
    on_close: Callable[[], None] = _nothing
    event: Callable[[], bytes] = bytes
    """Makes an error an event, for a caller whose stream has begun."""
    route: Route | None = None

    def book(self) -> None:
        """What is to be known of it is known: it is booked. Once; called again it does nothing."""
        booked, self.on_close = self.on_close, _nothing
        booked()

    async def close(self) -> None:
        """Books what is not booked yet, and lets go of the provider. Of a stream that is complete
        more may come: first the tokens, which are waited for where the caller has left before them,
        then the end of the reply, which keeps the connection."""
        relay = self.relay
        if relay is None:
            self.book()
            return
        try:
            if relay.tracker.complete and relay.tracker.usage is None:
                await relay.drain()  # the tokens may be told yet
            self.book()
            if relay.tracker.complete:
                await relay.drain()
        finally:
            self.book()
            relay.close()


def error_answer(
    dialect: Dialect,
    status: int,
    message: str,
    *,
    told: Any = None,
    notes: Mapping[str, Any] | None = None,
    headers: Headers | None = None,
) -> Answer:
    """An error in the caller's dialect. `told` is the provider's own error body."""
    notes = notes or {}
    body = dialect.error_body(status, message, notes, told)
    answer = Answer(status, [*(headers or []), ("content-type", "application/json")], body)
    answer.event = partial(dialect.error_event, status, message, notes)
    return answer


def stamps(route: Route) -> Headers:
    """The headers by which krouter says what it did."""
    headers = [route_header(route), ("x-krouter-attempts", str(len(route.attempts)))]
    if route.served:
        headers.append(("x-krouter-model", plain(route.served)))
    if route.dropped:
        headers.append(("x-krouter-dropped", _listed(route.dropped)))
    if trail := route.trail():
        headers.append(("x-krouter-tried", trail))
    return headers


def route_header(route: Route) -> tuple[str, str]:
    return "x-krouter-route", route.id


_LONGEST_LIST = 1000


def _listed(names: Sequence[str]) -> str:
    """As many as clients take in a header; the route holds them all."""
    told = plain(", ".join(names))
    if len(told) <= _LONGEST_LIST:
        return told
    kept = told[:_LONGEST_LIST].rpartition(", ")[0]
    return f"{kept}, and {len(names) - kept.count(', ') - 1} more"


def described(error: BaseException) -> tuple[str, str]:
    """The kind of an error and where it was raised; its own text may quote a credential."""
    return type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
