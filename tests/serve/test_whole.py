"""A whole reply in one piece is, byte for byte, what uvicorn writes in two."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from krouter.serve.whole import RawHeaders, whole_of

USUAL: RawHeaders = [(b"content-type", b"application/json"), (b"x-request-id", b"\xc3\xa9 1")]


class Line:
    """The transport of a connection."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True


def cycle_of(line: Line, **more: Any) -> RequestResponseCycle:
    transport: Any = line
    log = logging.getLogger("test")
    given = {
        "scope": {"type": "http", "method": "POST"},
        "flow": FlowControl(transport),
        "default_headers": [],
        "message_event": asyncio.Event(),
        "expect_100_continue": False,
        "keep_alive": True,
        "on_response": lambda: None,
    }
    return RequestResponseCycle(
        transport=transport, logger=log, access_logger=log, access_log=False, **(given | more)
    )


def in_two(status: int, headers: RawHeaders, body: bytes) -> bytes | None:
    """What uvicorn writes; None where it refuses to."""
    line = Line()
    cycle = cycle_of(line)

    async def send() -> None:
        start: Any = {"type": "http.response.start", "status": status, "headers": headers}
        await cycle.send(start)
        await cycle.send({"type": "http.response.body", "body": body, "more_body": False})

    try:
        asyncio.run(send())
    except RuntimeError:
        return None
    return b"".join(line.written)


NAMES = st.one_of(
    st.sampled_from(
        [b"x-a", b"date", b"connection", b"transfer-encoding", b"X-B", b"a b", b"\xff"]
    ),
    st.binary(min_size=1, max_size=3),
)
VALUES = st.one_of(st.sampled_from([b"close", b"chunked", b"a\tb", b"a\r\nb: c"]), st.binary())


@given(st.integers(100, 599), st.lists(st.tuples(NAMES, VALUES), max_size=3), st.binary(max_size=9))
def test_it_is_the_same_in_one_piece(status: int, more: RawHeaders, body: bytes) -> None:
    headers = [*more, (b"content-length", b"%d" % len(body))]
    line = Line()
    if whole_of(cycle_of(line))(status, headers, body):
        assert line.written == [in_two(status, headers, body)]
    else:
        assert line.written == []


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"{}"), (200, b""), (404, b"no"), (529, b"\xff" * 70_000)]
)
def test_what_is_usual_goes_out_in_one_piece(status: int, body: bytes) -> None:
    told: list[str] = []
    line = Line()
    cycle = cycle_of(line, on_response=lambda: told.append("over"))
    headers = [*USUAL, (b"content-length", b"%d" % len(body))]
    assert whole_of(cycle)(status, headers, body)
    assert line.written == [in_two(status, headers, body)]
    assert cycle.response_started
    assert cycle.response_complete
    assert cycle.message_event.is_set()
    assert told == ["over"]
    assert not line.closed


def head(cycle: RequestResponseCycle) -> None:
    cycle.scope["method"] = "HEAD"


def paused(cycle: RequestResponseCycle) -> None:
    cycle.flow.pause_writing()


def begun(cycle: RequestResponseCycle) -> None:
    cycle.response_started = True


def left(cycle: RequestResponseCycle) -> None:
    cycle.disconnected = True


def last(cycle: RequestResponseCycle) -> None:
    cycle.keep_alive = False


@pytest.mark.parametrize("odd", [head, paused, begun, left, last])
def test_what_is_out_of_the_ordinary_is_left_to_uvicorn(odd: Any) -> None:
    line = Line()
    cycle = cycle_of(line)
    odd(cycle)
    assert not whole_of(cycle)(200, [(b"content-length", b"2")], b"{}")
    assert line.written == []
    assert not cycle.response_complete
