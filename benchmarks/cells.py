"""What is measured: groups of figures that one visit to a server gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from benchmarks.load import Measured
from benchmarks.servers import Server

PACE = 0.02
"""Seconds between two chunks of a paced stream."""
CONNECTIONS = (1, 16, 64, 256)


class Lane(NamedTuple):
    """Who calls, and which model name leads to which dialect of the provider."""

    name: str
    dialect: str
    model: str
    contenders: tuple[str, ...]


NATIVE = Lane("native", "chat", "daily", ("forwarder", "krouter", "litellm"))
TO_CHAT = Lane("messages to chat", "messages", "to-chat", ("translating", "litellm"))
TO_MESSAGES = Lane("chat to messages", "chat", "to-messages", ("translating", "litellm"))
LANES = (NATIVE, TO_CHAT, TO_MESSAGES)


@dataclass(frozen=True, slots=True)
class Visit:
    """Requests of one kind. Without `requests`, as many as fit the time for one."""

    lane: Lane
    size: str = "1 kB"
    chunks: int = 0
    """0: the reply is no stream."""
    pace: float = 0.0
    connections: int = 16
    requests: int = 0


class Bench(Protocol):
    """Carries visits out."""

    def visit(self, server: Server, visit: Visit) -> Measured: ...

    @property
    def direct(self) -> Server:
        """The provider itself."""


Figures = dict[str, float]
Measure = Callable[[Bench, Server, Lane], Figures]


def cpu(size: str) -> Measure:
    def measure(bench: Bench, server: Server, lane: Lane) -> Figures:
        got = bench.visit(server, Visit(lane, size))
        return {f"{lane.name}, {size}: CPU ms a request": got.cpu / got.requests * 1000}

    return measure


def chunks(bench: Bench, server: Server, lane: Lane) -> Figures:
    """Without what the requests and their connections cost: streams of a tenth of the length,
    taken in the same way, are taken off."""

    def thousand(length: int, **how: Any) -> float:
        short = bench.visit(server, Visit(lane, chunks=length // 10, **how))
        long = bench.visit(server, Visit(lane, chunks=length, **how))
        more = length - length // 10
        return (long.cpu / long.requests - short.cpu / short.requests) / more * 1e6

    paced = thousand(100, pace=PACE, connections=32, requests=32)
    flat = thousand(250, connections=4)
    return {
        f"{lane.name}, paced: CPU ms per 1000 chunks": paced,
        f"{lane.name}, flat: CPU ms per 1000 chunks": flat,
    }


def throughput(bench: Bench, server: Server, lane: Lane) -> Figures:
    got = {count: bench.visit(server, Visit(lane, connections=count)) for count in CONNECTIONS}
    direct = bench.visit(bench.direct, Visit(lane, connections=1))
    rates = {
        f"{lane.name}, {count} connections: requests/s": each.requests / each.wall
        for count, each in got.items()
    }
    return rates | {
        f"{lane.name}, 1 kB: ms added, p50": (got[1].p50 - direct.p50) * 1000,
        f"{lane.name}, 1 kB: ms added, p99": (got[1].p99 - direct.p99) * 1000,
    }


def latency(bench: Bench, server: Server, lane: Lane) -> Figures:
    visit = Visit(lane, "100 kB", connections=1)
    direct, got = bench.visit(bench.direct, visit), bench.visit(server, visit)
    return {
        f"{lane.name}, 100 kB: ms added, p50": (got.p50 - direct.p50) * 1000,
        f"{lane.name}, 100 kB: ms added, p99": (got.p99 - direct.p99) * 1000,
    }


def first_token(bench: Bench, server: Server, lane: Lane) -> Figures:
    visit = Visit(lane, chunks=5, pace=0.002, connections=1)
    direct, got = bench.visit(bench.direct, visit), bench.visit(server, visit)
    return {f"{lane.name}: ms added to first token": (got.first_p50 - direct.first_p50) * 1000}


class Group(NamedTuple):
    """Measured together. `name` is what `--only` takes."""

    name: str
    lanes: tuple[Lane, ...]
    measure: Measure


GROUPS = (
    Group("cpu", LANES, cpu("1 kB")),
    Group("cpu", LANES, cpu("100 kB")),
    Group("chunks", LANES, chunks),
    Group("throughput", (NATIVE,), throughput),
    Group("latency", (NATIVE,), latency),
    Group("first", (NATIVE, TO_CHAT), first_token),
)
