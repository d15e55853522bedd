"""Starting and stopping the server."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
import uvloop

from krouter.load import House, quiet
from krouter.metrics import Metrics
from krouter.paths import Paths
from krouter.problems import ConfigError, Problem
from krouter.route import Log
from krouter.serve.app import App, More
from krouter.serve.console import Console
from krouter.serve.door import PATIENCE, Door, Patience, watch
from krouter.serve.guard import Guard
from krouter.serve.intake import Gate
from krouter.serve.limits import Limiter
from krouter.serve.strangers import Proxies, Strangers
from krouter.settings import Settings
from krouter.spending import Spending
from krouter.wire import HttpWire

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
GRACE_SECONDS = 30
"""How long requests under way may run on after SIGTERM."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def gate_of(settings: Settings, host: str) -> Gate:
    """On loopback, the names of this machine and those the user allows."""
    if not is_loopback(host):
        return Gate(None)
    names = (*LOOPBACK_NAMES, host, *settings.server.allowed_hosts)
    return Gate(frozenset(name.lower() for name in names))


@dataclass(slots=True)
class Served:
    """A krouter that is listening. `url` is where."""

    house: House
    app: App
    limiter: Limiter
    url: str
    server: uvicorn.Server
    socket: socket.socket
    patience: Patience = PATIENCE
    """With callers, as it is when they are first served."""

    async def run(self) -> None:
        """Serves until told to stop by a signal or by `stop`."""
        callers = watch(lambda: self.server.server_state.connections, self.patience)
        beside = [self.house.watch(), self.house.mend(), self.house.poller.run(), callers]
        tasks = [asyncio.create_task(each) for each in beside]
        try:
            await self.server.serve([self.socket])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.house.close()
            self.limiter.close()
            self.socket.close()

    def stop(self) -> None:
        self.server.should_exit = True

    def reload(self) -> None:
        """Reads all files again. From any thread, and from a signal."""
        self.house.reload()


def open_server(
    paths: Paths,
    env: Mapping[str, str],
    *,
    host: str | None = None,
    port: int | None = None,
    log: Log = quiet,
    required: bool = False,
    now: Callable[[], float] = time.time,
    ledger: bool = True,
    traced: bool = True,
    more: Iterable[More] = (),
) -> Served:
    """Everything loaded and the port bound; `log` is told the steps of requests if they are
    `traced`, and `more` adds to the endpoints. Raises ConfigError."""
    console = Console(log, now)
    traced = traced and log is not quiet
    house = House(
        paths, env, HttpWire(), console, required=required, now=now, ledger=ledger, traced=traced
    )
    settings = house.router.world.settings
    host, port = host or settings.server.host, settings.server.port if port is None else port
    public = not is_loopback(host)
    if public and not house.keys.required:
        raise ConfigError([_open_door(paths, host)])
    bound = _bind(host, port)
    limiter = Limiter(Spending(paths.spending, now, partial(console, "SPENDING")), now)
    strangers = Strangers(proxies=Proxies.read(env.get("FORWARDED_ALLOW_IPS", "")))
    guard = Guard(house.keys, gate_of(settings, host), public, limiter, strangers)
    metrics = Metrics(lambda: house.router.world.board)
    house.router.books.append(metrics.book)
    house.router.amended.append(metrics.amend)
    house.router.books.insert(0, limiter.book)  # it notes in the route what it has guessed
    house.router.amended.insert(0, limiter.amend)

    def problems() -> list[str]:
        return [*house.problems, *limiter.problems]

    app = App(house, guard, problems, metrics, console, more)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{bound.getsockname()[1]}"
    served = Served(house, app, limiter, url, uvicorn.Server(_uvicorn_config(app)), bound)
    app.live.is_over = lambda: served.server.should_exit
    return served


def _open_door(paths: Paths, host: str) -> Problem:
    return Problem(
        str(paths.keys),
        "",
        f"no key exists, and {host} can be reached from other machines.",
        "Make one with: krouter keys add NAME",
    )


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        is_elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        wrong = "--host" if is_elsewhere else "--port" if port else ""
        hint = f"Choose another with {wrong}." if wrong else ""
        message = f"cannot listen on {host}:{port}: {error.strerror or error}."
        raise ConfigError([Problem("krouter serve", "", message, hint)]) from None
    return listening


def _uvicorn_config(app: App) -> uvicorn.Config:
    door: Any = partial(Door, app.refused)
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=door,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,  # who a caller is matters for wrong keys alone: see strangers
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=2048,
    )


YOUNG_OBJECTS = 20_000
"""How many new objects make the collector look at them; a request makes some hundreds."""


def spare_collector() -> None:
    """What has been loaded stays for good: the collector of cycles need not look at it again with
    every few requests, nor at each of those."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)


MOST_FILES = 65_536


def allow_files() -> None:
    """As many open files as the system lets this process have: each stream takes two, and many
    systems begin with 256 or 1024."""
    try:
        import resource
    except ImportError:  # a system without such limits
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def run(served: Served, ready: Callable[[Served], None]) -> None:
    """Serves in this thread until a signal comes."""

    allow_files()

    async def main() -> None:
        spare_collector()
        asyncio.get_running_loop().call_soon(ready, served)
        await served.run()

    uvloop.run(main())
