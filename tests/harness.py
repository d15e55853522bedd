"""A krouter on a real socket, in a thread of its own, over files in a folder of the test's."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import uvloop

from krouter.paths import resolve_paths
from krouter.router import Router
from krouter.serve.run import Served, open_server


class Clock:
    """Epoch seconds that move only when told."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


class Krouter:
    """Serves `combos` (name → combo file content) and `settings` (TOML text) from `home`.

    `clock` is the board's; event-loop time is real.
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
    ) -> None:
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
            paths, self._env, host=self._host, port=0, log=self._log, now=self.clock
        )
        self.url = self.served.url
        self._thread = threading.Thread(target=lambda: uvloop.run(self._run()), daemon=True)
        self._thread.start()
        self.http = httpx.Client(base_url=self.url, timeout=30)
        return self

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.served.run()

    def __exit__(self, *exc: object) -> None:
        self.http.close()
        self.served.stop()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server did not stop"

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
        found = self.router.world.board.locks()
        return {"/".join(key): (lock.row, lock.until - self.clock.now) for key, lock in found}

    def chat(self, model: str, stream: bool = False, **fields: Any) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **fields}
        return self.http.post("/v1/chat/completions", json={**body, "stream": stream})

    def messages(self, model: str, stream: bool = False, **fields: Any) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **fields}
        return self.http.post("/v1/messages", json={"max_tokens": 64, **body, "stream": stream})
