"""A krouter on a real socket, in a thread of its own, over files in a folder of the test's."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx
import pytest
import uvicorn
import uvloop

from krouter.board import Board
from krouter.error_table import ROW_OF
from krouter.http_dial import AddressInfo
from krouter.paths import resolve_paths
from krouter.pool import Pool
from krouter.reporter import load_reporters
from krouter.router import Router
from krouter.serve.door import Patience
from krouter.serve.run import Served, open_server
from krouter.whatif import add_whatif
from tests.emitted import JOURNAL, Recorder
from tests.leaps import LeapingLoop
from tests.upstream import Upstream

REPORTERS = load_reporters()


class Clock:
    """Epoch seconds that move only when told."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


async def nowhere(host: str, port: int) -> list[AddressInfo]:
    """A resolver that knows no name, and asks nobody."""
    raise OSError(f"no such host: {host}")


class PromptServer(uvicorn.Server):
    """Ends as soon as it is told to and its callers are gone; uvicorn's own looks ten times a
    second, and hundreds of tests would wait for that. `krouter serve` is tested with the latter."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """From any thread."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._told.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.on_tick(0)
        if not self.should_exit:
            await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listening in sockets or ():
            listening.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        async with asyncio.timeout(self.config.timeout_graceful_shutdown):
            while state.connections or state.tasks:
                await asyncio.sleep(0.001)
        for server in self.servers:
            await server.wait_closed()


class Krouter:
    """Serves `combos` (name → combo file content) and `settings` (TOML text) from `home`.

    `clock` is the board's. `edges` are fields of the World to replace, such as `sleep`, `chance`
    and `lanes`. Event-loop time is real; with a provider given as `leaps`, it passes only while
    that one stalls, see tests/leaps.py.
    """

    def __init__(
        self,
        home: Path,
        *,
        combos: Mapping[str, Any] | None = None,
        settings: str = "",
        env: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        edges: Mapping[str, Any] | None = None,
        ledger: bool = False,
        leaps: Upstream | None = None,
        patience: Patience | None = None,
        traced: bool = True,
    ) -> None:
        self._traced = traced
        self._patience = patience
        self._ledger = ledger
        self._leaps = leaps
        self._edges = dict(edges or {})
        self.home = home
        self.clock = clock or Clock()
        self.lines: list[str] = []
        self._env = dict(env or {})
        self._host = host
        (home / "combos").mkdir(parents=True, exist_ok=True)
        for name, combo in (combos or {}).items():
            self.write_combo(name, combo)
        (home / "krouter.toml").write_text(settings)

    def write_combo(self, name: str, combo: Any) -> None:
        (self.home / "combos" / f"{name}.json").write_text(json.dumps(combo))

    def __enter__(self) -> Krouter:
        paths = resolve_paths(home=self.home, env=self._env, cwd=self.home)
        self.served: Served = open_server(
            paths,
            self._env,
            host=self._host,
            port=0,
            log=self._log,
            now=self.clock,
            ledger=self._ledger,
            traced=self._traced,
            more=(add_whatif,),
        )
        if self._patience is not None:
            self.served.patience = self._patience
        config = self.served.server.config
        config.app = self._recorder = Recorder(config.app, lambda: self.router)
        self._server = self.served.server = PromptServer(config)
        self.router.world = replace(self.router.world, **self._edges)
        self.url = self.served.url
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.http = httpx.Client(base_url=self.url, timeout=60)
        return self

    def _run(self) -> None:
        if self._leaps is None:
            uvloop.run(self._serve())
            return
        self.served.server.config.timeout_keep_alive = 3600
        self.served.patience = Patience(3600, 3600)
        with asyncio.Runner(loop_factory=LeapingLoop) as runner:
            loop = cast(LeapingLoop, runner.get_loop())
            self._leaps.on_silence.append(loop.silence)
            try:
                runner.run(self._serve())
            finally:
                self._leaps.on_silence.remove(loop.silence)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.served.run()

    def __exit__(self, *exc: object) -> None:
        self.http.close()
        self._server.stop()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the server did not stop"
        if exc[:1] == (None,):
            JOURNAL.check()

    def leap(self, seconds: float) -> None:
        """Time passes for a krouter that leaps."""
        self.loop.call_soon_threadsafe(cast(LeapingLoop, self.loop).leap, seconds)

    def forget(self) -> None:
        """Nothing known of any account, as after a restart."""
        pool = self.served.house.pool = Pool.empty(self.clock, REPORTERS)
        self.router.world = replace(self.router.world, board=Board(self.clock), pool=pool)

    def idle(self, seconds: float = 30) -> None:
        """Returns once no call is under way, every route is closed, late calls included, and every
        reply is in the journal."""
        ends = time.monotonic() + seconds
        open_routes = lambda: any(not r.ended or r.lingers for r in self.router.routes)  # noqa: E731
        in_flight = lambda: self.router.world.board.in_flight or self._recorder.under_way  # noqa: E731
        while in_flight() or open_routes():
            assert time.monotonic() < ends, "calls are still under way"
            time.sleep(0.002)

    def _log(self, tag: str, line: str) -> None:
        self.lines.append(f"{tag} {line}")

    @property
    def router(self) -> Router:
        return self.served.house.router

    @property
    def last_route(self) -> dict[str, Any]:
        return self.router.routes[-1].as_json()

    def locks(self) -> dict[str, tuple[int, float]]:
        """`provider/account/model` → row and seconds left, for every lock in force."""
        found, now = self.router.world.board.locks(), self.clock.now
        return {"/".join(key): (ROW_OF[lock.failure], lock.until - now) for key, lock in found}

    def chat(self, model: str, stream: bool = False, **fields: Any) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **fields}
        return self.http.post("/v1/chat/completions", json={**body, "stream": stream})

    def messages(self, model: str, stream: bool = False, **fields: Any) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **fields}
        return self.http.post("/v1/messages", json={"max_tokens": 64, **body, "stream": stream})

    def responses(self, model: str, stream: bool = False, **fields: Any) -> httpx.Response:
        body = {"model": model, "input": "hello", **fields}
        return self.http.post("/v1/responses", json={**body, "stream": stream})

    def gemini(self, model: str, stream: bool = False, **fields: Any) -> httpx.Response:
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        body = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}], **fields}
        return self.http.post(f"/v1beta/models/{quote(model, safe='')}:{method}", json=body)

    def ask(self, dialect: str, model: str, stream: bool = False, **fields: Any) -> httpx.Response:
        """A call of any dialect."""
        return getattr(self, dialect)(model, stream, **fields)  # type: ignore[no-any-return]


Start = Callable[..., Krouter]
"""The fixture `start`."""


def complaints(stderr: str) -> list[str]:
    """What Python's development mode complains of, less how long a step took: that is the
    machine's load."""
    return [line for line in stderr.splitlines() if not line.startswith("Executing <")]


def calls(upstream: Upstream) -> list[str]:
    """Credential and model of each request."""
    return [f"{request.credential} {request.model}" for request in upstream.requests]


def provider_settings(url: str, **accounts: str) -> tuple[str, dict[str, str]]:
    """TOML and environment for providers at one upstream: a name, and its accounts in order,
    parted by blanks. The credential of account `a` of `one` is `one-a`."""
    text, env = [], {}
    for name, given in accounts.items():
        text.append(
            f'[provider.{name}]\nspeaks = ["chat", "messages", "responses", "gemini"]\n'
            f'base_urls = {{ chat = "{url}/v1", messages = "{url}", responses = "{url}", '
            f'gemini = "{url}" }}\n'
        )
        for account in given.split():
            variable = f"{name}_{account}".upper()
            env[variable] = f"{name}-{account}"
            text.append(
                f'[[account]]\nprovider = "{name}"\nname = "{account}"\nkey = "env:{variable}"\n'
            )
    return "".join(text), env


def params_of(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """What the test that asks for a fixture is parametrised with."""
    spec = getattr(request.node, "callspec", None)
    return spec.params if spec else {}
