"""A server as a process of its own that tells what it holds: `python -m tests.soak.server HOME`.

Its clock of locks runs twenty thousand times as fast, so that a provider that fails in every way is
locked for moments. On SIGUSR1 it waits until it is idle and tells on stdout, as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import httpx

from krouter.adapter import Call
from krouter.answer import Answer
from krouter.attempt import Trial
from krouter.body import Body
from krouter.http_coding import Unpacked
from krouter.http_connection import Connection
from krouter.http_reply import HttpReply
from krouter.paths import resolve_paths
from krouter.progress import Progress
from krouter.serve.arrays import Array
from krouter.serve.door import Door
from krouter.serve.hot import Hangup
from krouter.serve.outlet import Outlet
from krouter.serve.run import Served, open_server, run
from krouter.stream import Relay
from krouter.tries import Tries
from krouter.walk import Walk
from krouter.wire import HttpWire

FASTER = 20_000.0
OWN: tuple[type, ...] = (
    *(Answer, Array, Body, Call, Connection, Door, Hangup, HttpReply, Outlet, Progress),
    *(Relay, Trial, Tries, Unpacked, Walk),
)
"""Objects of which none outlives its request or its connection."""
SOON = 45.0
"""Seconds in which a server without callers is idle: longer than any limit of its combos."""


def main(home: str, faster: str) -> None:
    began, at = time.monotonic(), time.time()
    clock = lambda: at + (time.monotonic() - began) * float(faster)  # noqa: E731
    place = Path(home)
    paths = resolve_paths(home=place, env=os.environ, cwd=place)
    served = open_server(paths, os.environ, port=0, now=clock, log=say)
    signal.signal(signal.SIGTERM, lambda *_: served.stop())
    signal.signal(signal.SIGHUP, lambda *_: served.reload())

    def ready(served: Served) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(
            signal.SIGUSR1, lambda: telling.append(loop.create_task(tell(served)))
        )
        print(served.url, flush=True)

    telling: list[asyncio.Task[None]] = []
    run(served, ready)


def say(tag: str, line: str) -> None:
    if tag in ("CONFIG", "LEDGER"):
        print(tag, line, file=sys.stderr, flush=True)


async def tell(served: Served) -> None:
    """What is still under way then is told, not waited for."""
    router = served.house.router
    wire = cast(HttpWire, router.world.wire)
    board = router.world.board
    with suppress(TimeoutError):
        async with asyncio.timeout(SOON):
            while board.in_flight or any(r.lingers or not r.ended for r in router.routes):
                await asyncio.sleep(0.05)
            while served.server.server_state.connections or wire.busy:
                await asyncio.sleep(0.05)
    busy = wire.busy
    await wire.close()  # those that are idle
    await asyncio.sleep(0.1)  # a transport's file is closed a turn after its protocol
    gc.unfreeze()
    gc.collect()
    kinds = Counter(type(each) for each in gc.get_objects())
    found = {
        "in_flight": board.in_flight,
        "open": sum(r.lingers or not r.ended for r in router.routes),
        "busy": busy,
        "callers": len(served.server.server_state.connections),
        "tasks": len(asyncio.all_tasks()),
        "files": len(os.listdir("/proc/self/fd")),
        "left": {kind.__name__: kinds[kind] for kind in OWN if kinds[kind]},
        "memory": resident(),
    }
    print(json.dumps(found), flush=True)


def resident() -> int:
    """Bytes of memory in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Server:
    """The process, from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.url = self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "the server has ended"
        return line

    def holds(self) -> dict[str, Any]:
        """What it holds once it is idle."""
        self.process.send_signal(signal.SIGUSR1)
        held: dict[str, Any] = json.loads(self._line())
        return held

    @property
    def memory(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def peak(self) -> int:
        """The most bytes of memory that it has had at any time."""
        told = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", told)[0]) << 10

    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.url}/health", timeout=60).json()
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def serving(home: Path, env: Mapping[str, str], faster: float = FASTER) -> Iterator[Server]:
    command = [sys.executable, "-m", "tests.soak.server", str(home), str(faster)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
    ) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
