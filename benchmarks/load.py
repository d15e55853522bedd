"""The callers: a process that takes jobs and measures them, one JSON line each way.

Each connection sends its next request when the reply to the last is complete. Every reply is
checked: its status, its words and its end. The clocks of the server's processes are read after all
connections are open, and again after the last reply.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

import uvloop

from benchmarks.bodies import CALLER, NUMBER
from benchmarks.clock import cpu_seconds

PATIENCE = 120.0
"""Seconds a job may take."""
TURNS = 25
"""Requests of a connection after which it begins another conversation, where there is one."""


@dataclass(frozen=True, slots=True)
class Job:
    """`requests` to one server. A good reply holds `word` `times` times, and `ending`."""

    port: int
    path: str
    key: str
    body: str
    connections: int
    requests: int
    word: str
    times: int
    ending: str
    pids: list[int] = field(default_factory=list)
    """Of the server."""
    provider: list[int] = field(default_factory=list)

    def request(self) -> bytes:
        body = self.body.encode()
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n"
            f"authorization: Bearer {self.key}\r\ncontent-type: application/json\r\n"
            f"anthropic-version: 2023-06-01\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds. `load` and `provider` are the shares of a core that the benchmark itself took."""

    requests: int
    wall: float
    cpu: float
    p50: float
    p99: float
    first_p50: float
    load: float
    provider: float


class BadReply(Exception):
    """A reply that was not what was asked for."""


class Caller(asyncio.Protocol):
    """One connection, kept alive."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._sent = 0
        self._word = crowd.job.word.encode()
        self._waits = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def send(self) -> None:
        self._waits = True
        self._pieces: list[bytes] = []
        self._got, self._whole, self._tail = 0, 0, b""
        self._first = 0.0
        self._began = time.perf_counter()
        if self._sent % TURNS == 0:
            self._request = self._crowd.conversation()
        self._sent += 1
        self._transport.write(self._request.replace(NUMBER, _digits(self._sent, NUMBER)))

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._got += len(data)
        self._tail = (self._tail + data[-7:])[-7:]
        if not self._first and self._word in data:
            self._first = time.perf_counter()
        if not self._whole:
            self._whole = _length(b"".join(self._pieces))
        chunked = self._whole < 0 and self._tail == b"\r\n0\r\n\r\n"
        if chunked or 0 < self._whole <= self._got:
            now = time.perf_counter()
            reply, self._waits = b"".join(self._pieces), False
            self._crowd.complete(self, reply, now - self._began, self._first - self._began)

    def close(self) -> None:
        self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if self._waits:
            self._crowd.fail(f"the connection was closed: {error}")


def _digits(number: int, place: bytes) -> bytes:
    """As long as what stood in their place."""
    return b"%0*d" % (len(place), number)


def _length(reply: bytes) -> int:
    """Of head and body; 0 while the head is not complete, -1 if it comes in chunks."""
    head, end, _ = reply.partition(b"\r\n\r\n")
    if not end:
        return 0
    _, found, length = head.lower().partition(b"\r\ncontent-length:")
    return len(head) + 4 + int(length.split(b"\r", 1)[0]) if found else -1


class Crowd:
    """All connections of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._request = job.request()
        self._conversations = count(time.time_ns() % 10**11)
        self._left = job.requests
        self._times: list[float] = []
        self._firsts: list[float] = []

    async def run(self) -> Measured:
        job, loop = self.job, asyncio.get_running_loop()
        self._done: asyncio.Future[None] = loop.create_future()
        callers = [
            (await loop.create_connection(lambda: Caller(self), "127.0.0.1", job.port))[1]
            for _ in range(job.connections)
        ]
        own, served, provided = time.process_time(), cpu_seconds(job.pids), self._provided()
        began = time.perf_counter()
        for caller in callers:
            self.next(caller)
        async with asyncio.timeout(PATIENCE):
            await self._done
        wall, cpu = time.perf_counter() - began, cpu_seconds(job.pids) - served
        for caller in callers:
            caller.close()
        return Measured(
            requests=job.requests,
            wall=wall,
            cpu=cpu,
            p50=statistics.median(self._times),
            p99=sorted(self._times)[int(len(self._times) * 0.99)],
            first_p50=statistics.median(self._firsts),
            load=(time.process_time() - own) / wall,
            provider=(self._provided() - provided) / wall,
        )

    def conversation(self) -> bytes:
        """The request of one that nobody has seen yet."""
        return self._request.replace(CALLER, _digits(next(self._conversations), CALLER))

    def _provided(self) -> float:
        return cpu_seconds(self.job.provider)

    def next(self, caller: Caller) -> None:
        if self._left:
            self._left -= 1
            caller.send()

    def complete(self, caller: Caller, reply: bytes, took: float, first: float) -> None:
        job = self.job
        words = reply.count(job.word.encode())
        good = reply.startswith(b"HTTP/1.1 200 ") and words == job.times
        if not good or job.ending.encode() not in reply:
            self.fail(f"{words} times {job.word!r}, not {job.times}: {reply[:1500]!r}")
            return
        self._times.append(took)
        self._firsts.append(first)
        if len(self._times) == job.requests:
            self._done.set_result(None)
        else:
            self.next(caller)

    def fail(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(BadReply(why))


def main() -> None:
    for line in sys.stdin:
        try:
            measured = uvloop.run(Crowd(Job(**json.loads(line))).run())
            told: dict[str, Any] = asdict(measured)
        except (BadReply, OSError, TimeoutError) as error:
            told = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
