"""A whole reply that goes out in one piece, past the two messages that ASGI has for it.

It is offered to the app as one more key of the scope: behind something that changes what is sent,
the app must do without.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from krouter.headers import NameCache

WHOLE = "krouter.whole"
"""Its key in the scope."""
HANG_UP = "krouter.hang_up"
"""The key under which a request's connection can be broken off, whatever waits to be sent."""
RawHeaders = list[tuple[bytes, bytes]]
Whole = Callable[[int, RawHeaders, bytes], bool]
"""Status, headers and body, whose length the headers say; whether it is written. Where it is not,
something is out of the ordinary, and ASGI's `send` is to be used."""

_WITHOUT_BODY = (204, 304)
_FRAMING = (b"connection", b"transfer-encoding")
_is_name = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+").fullmatch
_UNPRINTABLE = bytes({*range(32), 127} - {ord("\t")})

_begin = NameCache[bytes, bytes | None](
    lambda name: name + b": " if _is_name(name) and name not in _FRAMING else None
)


def whole_of(cycle: RequestResponseCycle) -> Whole:
    """For the request that this is uvicorn's state of."""
    return partial(_write, cycle)


def _write(cycle: RequestResponseCycle, status: int, headers: RawHeaders, body: bytes) -> bool:
    if (
        cycle.response_started
        or cycle.disconnected
        or cycle.flow.write_paused
        or not cycle.keep_alive
        or status in _WITHOUT_BODY
        or cycle.scope["method"] == "HEAD"
    ):
        return False
    values, pieces = [], [STATUS_LINE[status]]
    for name, value in headers:
        if (begin := _begin[name]) is None:
            return False
        values.append(value)
        pieces += (begin, value, b"\r\n")
    said = b"".join(values)
    if len(said.translate(None, _UNPRINTABLE)) < len(said):
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"".join((*pieces, b"\r\n", body)))
    cycle.message_event.set()
    cycle.on_response()
    return True
