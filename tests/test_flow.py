"""A stream between the loop that reads it and its reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from krouter.flow import MOST_AHEAD, Flow


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    return run


PIECE = b"x" * (MOST_AHEAD // 4)


class Source:
    """A relay of so many pieces, which may fail at its end."""

    def __init__(self, pieces: int, error: Exception | None = None) -> None:
        self.given = 0
        self.held = asyncio.Semaphore(1000)
        self._pieces = pieces
        self._error = error

    async def next(self) -> bytes:
        await asyncio.sleep(0)
        await self.held.acquire()
        if self.given < self._pieces:
            self.given += 1
            return PIECE
        if self._error is not None:
            raise self._error
        return b""


class Pumped:
    """A Flow, and its pump under way."""

    def __init__(self, source: Source) -> None:
        self.closed = 0
        relay: Any = source
        self.flow = Flow(relay, self._close)
        self.pump = asyncio.create_task(self.flow.pump())
        self.pump.add_done_callback(self.flow.ended)

    def _close(self) -> None:
        self.closed += 1


async def turns(count: int = 100) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@looped
async def test_it_reads_ahead_only_so_far() -> None:
    source = Source(50)
    pumped = Pumped(source)
    await turns()
    assert source.given == 5
    got = len(await pumped.flow.taken())
    await turns()
    assert source.given == 10
    while piece := await pumped.flow.taken():
        got += len(piece)
    assert got == 50 * len(PIECE)
    assert pumped.closed == 1
    assert await pumped.flow.taken() == b""


@looped
async def test_a_reader_that_waits_is_woken() -> None:
    source = Source(4)
    source.held = asyncio.Semaphore(0)
    flow = Pumped(source).flow
    for expected in (PIECE, PIECE, b""):
        for take in (flow.taken(), asyncio.to_thread(flow.take)):
            reading = asyncio.create_task(take)
            await turns()
            assert not reading.done() or not expected
            source.held.release()
            assert await reading == expected


@looped
async def test_a_failure_is_the_readers() -> None:
    pumped = Pumped(Source(1, ValueError("broken")))
    assert await pumped.flow.taken() == PIECE
    with pytest.raises(ValueError, match="broken"):
        await pumped.flow.taken()
    assert pumped.closed == 1


@pytest.mark.parametrize("begun", [False, True])
@looped
async def test_a_pump_that_is_cancelled_closes_and_says_so(begun: bool) -> None:
    pumped = Pumped(Source(50))
    if begun:
        await turns(4)
    pumped.pump.cancel()
    await asyncio.wait([pumped.pump])
    if begun:
        assert await pumped.flow.taken()
    with pytest.raises(RuntimeError, match="closed"):
        await pumped.flow.taken()
    assert pumped.closed == 1


@looped
async def test_a_reader_whose_loop_is_gone_does_not_stop_the_pump() -> None:
    pumped = Pumped(Source(0))

    async def begin() -> None:
        reading = asyncio.create_task(pumped.flow.taken())
        await asyncio.sleep(0)
        reading.cancel()

    await asyncio.to_thread(asyncio.run, begin())
    await asyncio.wait([pumped.pump])
    await turns(3)
    assert await pumped.flow.taken() == b""
