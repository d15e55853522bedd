"""Interleaved rounds: each visits every server, in another order, and no visit is long."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import servers
from benchmarks.bodies import body
from benchmarks.cells import Figures, Group, Lane, Visit
from benchmarks.clock import rss_megabytes
from benchmarks.load import Job, Measured
from benchmarks.provider import HELLO, WORD
from benchmarks.servers import Launch, Server, Unavailable

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
ENDINGS = {"chat": "[DONE]", "messages": "message_stop"}
LAUNCH: Mapping[str, Launch] = {
    "forwarder": servers.forwarder,
    "krouter": servers.krouter,
    "translating": servers.krouter,
    "litellm": servers.litellm,
}
COLUMNS = {"translating": "krouter"}
"""The krouter that translates is a process of its own: the native one never loads LiteLLM."""
MOST = 20_000
Samples = dict[str, dict[str, list[float]]]
"""By figure and server, one for each round."""


class Bench:
    """The provider and the callers, and visits of about `seconds` each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._provider = _spawn("benchmarks.provider")
        self._load = _spawn("benchmarks.load")
        assert self._provider.stdout is not None
        port = int(self._provider.stdout.readline())
        self.direct = Server("provider", port, "none", self._provider)
        self._counts: dict[tuple[str, Visit], int] = {}
        self.busiest = {"load": 0.0, "provider": 0.0}
        """The largest share of a core that the benchmark's own processes took in a visit."""

    def close(self) -> None:
        for process in (self._provider, self._load):
            process.kill()
            process.communicate()

    def set(self, chunks: int, pace: float) -> int:
        """How the provider streams from now on; how many requests it has had."""
        url = f"http://127.0.0.1:{self.direct.port}/set?chunks={chunks}&pace={pace}"
        with urllib.request.urlopen(url) as reply:
            return int(reply.read())

    def visit(self, server: Server, visit: Visit) -> Measured:
        count = visit.requests or self._count(server, visit)
        self.set(visit.chunks, visit.pace)
        got = self._send(server, visit, count)
        if (asked := self.set(visit.chunks, visit.pace)) != count:
            raise AssertionError(f"{server.name} sent {asked} requests on for {count}")
        if server is not self.direct:
            self.busiest = {
                name: max(share, getattr(got, name)) for name, share in self.busiest.items()
            }
        return got

    def _count(self, server: Server, visit: Visit) -> int:
        """As many as fit, by the time that a few took the first time."""
        key = server.name, visit
        if key not in self._counts:
            self.set(visit.chunks, visit.pace)
            few = self._send(server, visit, 2 * max(visit.connections, 4))
            fit = int(self._seconds * few.requests / few.wall)
            self._counts[key] = max(visit.connections, min(fit, MOST))
        return self._counts[key]

    def _send(self, server: Server, visit: Visit, count: int) -> Measured:
        lane, stream = visit.lane, bool(visit.chunks)
        job = Job(
            port=server.port,
            path=PATHS[lane.dialect],
            key=server.key,
            body=body(lane.dialect, visit.size, lane.model, stream=stream).decode(),
            connections=visit.connections,
            requests=count,
            word=WORD if stream else HELLO,
            times=max(visit.chunks, 1),
            ending=ENDINGS[lane.dialect] if stream else "",
            pids=server.pids(),
            provider=self.direct.pids(),
        )
        assert self._load.stdin is not None
        assert self._load.stdout is not None
        self._load.stdin.write(json.dumps(asdict(job)) + "\n")
        self._load.stdin.flush()
        told: dict[str, Any] = json.loads(self._load.stdout.readline())
        if "error" in told:
            raise AssertionError(f"{server.name}, {lane.name}, {visit.size}: {told['error']}")
        return Measured(**told)


def _spawn(module: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def running(name: str, bench: Bench) -> Iterator[Server]:
    """Started in an empty folder; ended after use. Raises Unavailable."""
    with tempfile.TemporaryDirectory() as folder:
        server = LAUNCH[name](Path(folder), bench.direct.port)
        server.name = name
        try:
            yield server
        finally:
            server.stop()


def compare(bench: Bench, groups: Iterable[Group], rounds: int, names: set[str]) -> Samples:
    """Every group, on those servers of `names` that it is for."""
    samples: Samples = defaultdict(lambda: defaultdict(list))
    groups = list(groups)
    needed = {name for group in groups for lane in group.lanes for name in lane.contenders}
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(running(name, bench)) for name in sorted(needed & names)
        }
        for number in range(rounds):
            began = time.perf_counter()
            for group in groups:
                for lane in group.lanes:
                    for server in turned(lane, started, number):
                        _add(samples, server.name, group.measure(bench, server, lane))
            say(f"round {number + 1} of {rounds}: {time.perf_counter() - began:.0f} s")
    return samples


def turned(lane: Lane, started: Mapping[str, Server], number: int) -> list[Server]:
    """Another one first in each round."""
    there = [started[name] for name in lane.contenders if name in started]
    first = number % len(there) if there else 0
    return there[first:] + there[:first]


def starts(bench: Bench, lane: Lane, rounds: int, names: set[str]) -> Samples:
    """Fresh processes: seconds until the first answer, and memory after a thousand."""
    samples: Samples = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        for name in lane.contenders if number % 2 else reversed(lane.contenders):
            if name not in names:
                continue
            with running(name, bench) as server:
                figures = {"start-up: s to the first answer": server.started}
                if name != "litellm":
                    figures |= memory(bench, server, lane, 1)
                _add(samples, name, figures)
    say(f"{rounds} starts of each")
    return samples


def memories(bench: Bench, lane: Lane, names: set[str]) -> Samples:
    """Once each."""
    samples: Samples = defaultdict(lambda: defaultdict(list))
    for name in lane.contenders:
        if name in names:
            with running(name, bench) as server:
                _add(samples, name, memory(bench, server, lane, 20))
                say(f"memory of {name}")
    return samples


def memory(bench: Bench, server: Server, lane: Lane, thousands: int) -> Figures:
    for _ in range(thousands):
        bench.visit(server, Visit(lane, requests=1000))
    rss = rss_megabytes(server.pids())
    return {f"{lane.name}: RSS MB after {thousands},000 requests": rss}


def _add(samples: Samples, name: str, figures: Figures) -> None:
    for figure, value in figures.items():
        samples[figure][COLUMNS.get(name, name)].append(value)


def available(names: Iterable[str]) -> set[str]:
    """Without LiteLLM's proxy, and a line that says why, where it cannot be had."""
    found = set(names)
    if "litellm" in found:
        try:
            servers.install_proxy()
        except Unavailable as error:
            say(f"litellm proxy: skipped. {error}")
            found.discard("litellm")
    return found


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
