"""Waiting for a panel: exactly as long as its numbers say, whatever arrives when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krouter.quorum import Quorum, collect
from krouter.virtual import run

SECOND = 1024
"""Times are drawn in these parts of a second, which floats hold exactly."""


@dataclass(frozen=True)
class Arrival:
    """When a call ends, in seconds after the beginning, and with what."""

    at: float
    usable: bool


@dataclass
class Heard:
    """What came of one wait."""

    results: list[int | None]
    ended: float
    looked: list[int]
    quorum: Quorum
    still: int


def wait_for(arrivals: list[Arrival], needed: int, grace: float, most: float) -> Heard:
    """Runs one panel in virtual time; each result is its call's index."""

    async def main() -> Heard:
        loop = asyncio.get_running_loop()

        async def call(index: int, seconds: float) -> int:
            await asyncio.sleep(seconds)
            return index

        calls = [asyncio.create_task(call(i, each.at)) for i, each in enumerate(arrivals)]
        quorum = Quorum(len(calls), needed, grace, most, loop.time())
        looked: list[int] = []

        def is_usable(index: int) -> bool:
            looked.append(index)
            return arrivals[index].usable

        results = await collect(calls, quorum, is_usable, loop.time)
        ended, still = loop.time(), sum(not each.done() for each in calls)
        for each in calls:
            each.cancel()
        return Heard(results, ended, looked, quorum, still)

    return run(main())


def seconds(most: int) -> st.SearchStrategy[float]:
    return st.integers(0, most * SECOND).map(lambda parts: parts / SECOND)


arrivals = st.lists(st.builds(Arrival, seconds(120), st.booleans()), min_size=1, max_size=8)


def expected_end(given: list[Arrival], needed: int, grace: float, most: float) -> float:
    """When waiting is to end, said in another way: at the last arrival, or else `grace` after the
    arrival that made the quorum, or else after `most`."""
    needed = min(max(needed, 1), len(given))
    usable = sorted(each.at for each in given if each.usable)
    reached = usable[needed - 1] if len(usable) >= needed else float("inf")
    last = max(each.at for each in given)
    return min(last, most, reached + grace)


@settings(max_examples=500, deadline=None)
@given(arrivals, st.integers(1, 10), seconds(20), seconds(100))
def test_it_waits_exactly_as_long_as_it_should(
    given: list[Arrival], needed: int, grace: float, most: float
) -> None:
    heard = wait_for(given, needed, grace, most)
    assert heard.ended == expected_end(given, needed, grace, most)


@settings(max_examples=500, deadline=None)
@given(arrivals, st.integers(1, 10), seconds(20), seconds(100))
def test_it_never_stops_before_a_quorum_that_can_still_be_reached(
    given: list[Arrival], needed: int, grace: float, most: float
) -> None:
    heard = wait_for(given, needed, grace, most)
    if heard.ended < most and heard.still:
        assert heard.quorum.reached is not None
        assert heard.ended == heard.quorum.reached + grace


@settings(max_examples=500, deadline=None)
@given(arrivals, st.integers(1, 10), seconds(20), seconds(100))
def test_what_came_in_time_is_told_in_the_order_of_the_panel_and_looked_at_once(
    given: list[Arrival], needed: int, grace: float, most: float
) -> None:
    heard = wait_for(given, needed, grace, most)
    assert len(heard.results) == len(given)
    for index, result in enumerate(heard.results):
        assert result in (index, None)
        if result is None:
            assert given[index].at >= heard.ended
        else:
            assert given[index].at <= heard.ended
    told = [result for result in heard.results if result is not None]
    assert sorted(heard.looked) == told
    assert len(set(heard.looked)) == len(heard.looked)


@pytest.mark.parametrize(
    ("given", "needed", "grace", "most", "results", "ended"),
    [
        ([(1, True), (2, True), (30, True)], 2, 8, 90, [0, 1, None], 10),
        ([(1, True), (2, True), (9, True)], 2, 8, 90, [0, 1, 2], 9),
        ([(1, True), (2, True), (10, True)], 2, 0, 90, [0, 1, None], 2),
        ([(1, True), (1, True), (1, True)], 1, 0, 90, [0, 1, 2], 1),
        ([(1, True), (2, False), (50, True)], 2, 8, 90, [0, 1, 2], 50),
        ([(1, True), (2, False), (95, True)], 2, 8, 90, [0, 1, None], 90),
        ([(1, False), (2, False)], 2, 8, 90, [0, 1], 2),
        ([(100, True)], 2, 8, 90, [None], 90),
        ([(88, True), (89, True), (99, True)], 2, 8, 90, [0, 1, None], 90),
        ([(3, True), (2, True), (1, True)], 9, 8, 90, [0, 1, 2], 3),
    ],
)
def test_schedules(
    given: list[tuple[float, bool]],
    needed: int,
    grace: float,
    most: float,
    results: list[int | None],
    ended: float,
) -> None:
    heard = wait_for([Arrival(*each) for each in given], needed, grace, most)
    assert (heard.results, heard.ended) == (results, ended)


def test_who_stops_waiting_leaves_the_calls_alone() -> None:
    async def main() -> list[bool]:
        calls = [asyncio.create_task(asyncio.sleep(5, 1)) for _ in range(2)]
        now = asyncio.get_running_loop().time
        waiting = asyncio.create_task(
            collect(calls, Quorum(2, 2, 8, 90, now()), lambda each: True, now)
        )
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        cancelled = [each.cancelled() for each in calls]
        await asyncio.gather(*calls)
        return cancelled

    assert run(main()) == [False, False]
