"""A limit ends its own block and no other, exactly as `asyncio.timeout` does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter import virtual
from krouter.limit import Limit

Bound = Callable[[float | None], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def limit(seconds: float | None) -> Any:
    with Limit(seconds) as bound:
        yield bound


async def told(work: Awaitable[object]) -> tuple[str, float]:
    """What came of `work`, and when."""
    loop = asyncio.get_running_loop()
    try:
        await work
        how = "done"
    except TimeoutError:
        how = "timed out"
    except asyncio.CancelledError:
        how = "cancelled"
    task = asyncio.current_task()
    assert task is not None
    return f"{how}, {task.cancelling()} pending", loop.time()


SECONDS = st.none() | st.integers(0, 4)


@given(SECONDS, SECONDS, st.integers(0, 5), SECONDS, st.booleans())
def test_nested_limits_end_as_those_of_asyncio_do(
    outer: int | None, inner: int | None, takes: int, cancelled: int | None, lifts: bool
) -> None:
    async def nested(bound: Bound) -> None:
        async with bound(outer and outer + 0.5), bound(inner) as within:
            if lifts and isinstance(within, Limit):
                within.lift()
            elif lifts:
                within.reschedule(None)
            await asyncio.sleep(takes + 0.25)

    async def run(bound: Bound) -> tuple[str, float]:
        task = asyncio.ensure_future(told(nested(bound)))
        if cancelled is not None:
            asyncio.get_running_loop().call_later(cancelled + 0.1, task.cancel)
        return await task

    assert virtual.run(run(limit)) == virtual.run(run(asyncio.timeout))


def test_a_limit_tells_whether_it_was_the_one() -> None:
    async def run() -> tuple[bool, bool]:
        outer, inner = Limit(5), Limit(1)
        with pytest.raises(TimeoutError), outer, inner:
            await asyncio.sleep(9)
        return outer.expired, inner.expired

    assert virtual.run(run()) == (False, True)


def test_a_block_that_fails_by_itself_keeps_its_error() -> None:
    async def run() -> None:
        with Limit(1):
            raise KeyError("own")

    with pytest.raises(KeyError):
        virtual.run(run())
