"""The benchmark measures what it says, and tells when a reply or a ratio is bad."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.__main__ import parts
from benchmarks.bodies import SIZES, body
from benchmarks.cells import LANES, NATIVE, TO_CHAT, TO_MESSAGES, Lane, Visit
from benchmarks.load import BadReply, Crowd, Job, Measured
from benchmarks.report import (
    BEGIN,
    END,
    LIMITS,
    Loss,
    kind_of,
    losses,
    put_between,
    summed_up,
    table,
)
from benchmarks.rounds import Bench, running, turned
from benchmarks.servers import Server

CPU = "native, 1 kB: CPU ms a request"
RATE = "native, 16 connections: requests/s"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with closing(Bench(0.01)) as bench:
        yield bench


@pytest.fixture(scope="module")
def forwarder(bench: Bench) -> Iterator[Server]:
    with running("forwarder", bench) as server:
        yield server


@pytest.fixture(scope="module")
def krouter(bench: Bench) -> Iterator[Server]:
    with running("krouter", bench) as server:
        yield server


VISITS = (
    Visit(NATIVE, requests=20),
    Visit(NATIVE, "100 kB", connections=2, requests=10),
    Visit(NATIVE, chunks=120, requests=16),
    Visit(NATIVE, chunks=4, pace=0.001, requests=16),
)


@pytest.mark.parametrize("visit", VISITS)
def test_the_forwarder_passes_every_kind_of_reply(
    bench: Bench, forwarder: Server, visit: Visit
) -> None:
    got = bench.visit(forwarder, visit)
    assert got.requests == visit.requests
    assert 0 < got.cpu <= got.wall * 2
    assert 0 < got.first_p50 <= got.p50 <= got.p99


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
@pytest.mark.parametrize("chunks", [0, 120])
def test_krouter_serves_every_lane(bench: Bench, krouter: Server, lane: Lane, chunks: int) -> None:
    assert bench.visit(krouter, Visit(lane, chunks=chunks, requests=16)).requests == 16


def test_as_many_requests_are_sent_as_fit_the_time(bench: Bench, forwarder: Server) -> None:
    got = bench.visit(forwarder, Visit(NATIVE, connections=1))
    assert got.requests == bench.visit(forwarder, Visit(NATIVE, connections=1)).requests


@pytest.mark.parametrize(
    ("server", "visit"),
    [
        ({"key": "kr-wrong"}, Visit(NATIVE, requests=16)),
        ({}, Visit(NATIVE._replace(model="nobody"), requests=16)),
    ],
)
def test_an_error_is_no_reply(
    bench: Bench, krouter: Server, server: dict[str, Any], visit: Visit
) -> None:
    with pytest.raises(AssertionError, match=r"krouter, native.*BadReply"):
        bench.visit(replace(krouter, **server), visit)


REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


async def closed_early(first: bytes) -> Measured:
    """Of two connections, one gets `first` and is closed, then the other gets its reply."""
    gone = asyncio.Event()
    turns = iter((0, 1))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        turn = next(turns)
        if turn == 1:
            await gone.wait()
        writer.write(REPLY if turn else first)
        writer.close()
        await writer.wait_closed()
        gone.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        return await Crowd(Job(port, "/", "none", "{}", 2, 2, "hello", 1, "")).run()


def test_a_connection_closed_after_its_last_reply_is_no_failure() -> None:
    assert asyncio.run(closed_early(REPLY)).requests == 2


def test_a_connection_closed_within_a_reply_is_a_failure() -> None:
    with pytest.raises(BadReply, match="the connection was closed"):
        asyncio.run(closed_early(REPLY[:-1]))


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_large_body_is_a_coding_agents(dialect: str) -> None:
    sizes = {size: body(dialect, size, "daily", stream=True) for size in SIZES}
    assert 900 < len(sizes["1 kB"]) < 1100
    assert 98_000 < len(sizes["100 kB"]) < 102_000
    told = json.loads(sizes["100 kB"])
    assert told["stream"] is True
    assert len(told["tools"]) == 16
    if dialect == "chat":
        assert len(told["messages"]) == 27


def test_rounds_take_turns_in_being_first() -> None:
    started: Any = {"forwarder": "f", "krouter": "k", "litellm": "l"}
    assert [turned(NATIVE, started, number)[0] for number in range(4)] == ["f", "k", "l", "f"]
    assert turned(TO_CHAT, {}, 3) == []
    assert "forwarder" not in TO_MESSAGES.contenders


def test_what_is_measured_side_by_side_is_one_part() -> None:
    assert parts(["cpu", "start", "chunks", "sdk"]) == [["cpu", "chunks"], ["start"], ["sdk"]]
    assert parts(["memory"]) == [["memory"]]


def figures(ratio: float) -> Any:
    return summed_up(
        {
            CPU: {"forwarder": [0.2, 0.1, 0.2], "krouter": [0.2 * ratio, 0.1 * ratio, 9.0]},
            RATE: {"forwarder": [1000.0], "krouter": [1000.0 * ratio]},
        }
    )


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    figure = figures(1.5)[CPU]
    assert figure["forwarder"] == 0.2
    assert figure["ratio"] == {"forwarder": {"median": 1.5, "least": 1.5, "most": 45.0}}
    assert figure["rounds"] == 3


def test_without_a_server_its_ratios_are_left_out() -> None:
    assert summed_up({CPU: {"krouter": [1.0]}})[CPU]["ratio"] == {}
    assert "| – | 1 | – |" in table(summed_up({CPU: {"krouter": [1.0]}}))


@pytest.mark.parametrize(("ratio", "verdict"), [(1.9, "ok"), (2.1, "missed")])
def test_the_table_says_whether_a_limit_is_kept(ratio: float, verdict: str) -> None:
    assert f"| 2 × forwarder | {verdict} |" in table(figures(ratio))


def test_every_limit_is_of_something_that_can_be_lost() -> None:
    kinds = {kind_of(name) for name in LIMITS if "CPU" in name or "RSS" in name}
    assert kinds == {"cpu", "chunks", "start", "sdk"}


@pytest.mark.parametrize(("ratio", "lost"), [(2.5, 0), (2.6, 1), (1.0, 0)])
def test_a_quarter_more_is_a_loss(ratio: float, lost: int) -> None:
    found = list(losses(figures(2.0), figures(ratio)))
    assert found == [Loss(CPU, "forwarder", 2.0, ratio)][:lost]


def test_what_was_never_committed_is_no_loss() -> None:
    assert list(losses({}, figures(9.0))) == []


def test_the_table_goes_between_the_markers() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert put_between(text, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    with pytest.raises(ValueError, match="are missing"):
        put_between("nothing", "new")
