"""Asking in the background: whom, when, and what becomes of failures. Over a real socket."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from krouter.load import House
from krouter.paths import resolve_paths
from krouter.poller import EVERY, IN_USE, LONGEST_BACKOFF, Poller
from krouter.quota import Poll
from krouter.reporter import Balance, Window, load_reporters
from krouter.wire import HttpWire
from tests.harness import Clock

USAGE = {"five_hour": {"utilization": 25}}
CC = ("cc", "a")


class Site:
    """Tells what is left: `status`, `headers` and `body` are the reply."""

    def __init__(self) -> None:
        self.status, self.headers, self.body = 200, {}, json.dumps(USAGE)  # type: ignore[var-annotated]
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                site.asked.append((self.command, self.path, headers))
                body = site.body.encode()
                self.send_response(site.status)
                for name, value in (*site.headers.items(), ("content-length", str(len(body)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.005,), daemon=True).start()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.server.shutdown()
    site.server.server_close()


class Home:
    """A House whose subscription and OpenRouter are at `site`; only `cc` has been used."""

    def __init__(self, home: Path, url: str) -> None:
        (home / "krouter.toml").write_text(
            f'[provider.cc]\nbase_url = "{url}"\n'
            f'[provider.openrouter]\nbase_url = "{url}/api/v1"\n'
            '[[account]]\nprovider = "cc"\nname = "a"\nkey = "env:A"\n'
            '[[account]]\nprovider = "cc"\nname = "b"\nkey = "env:B"\n'
            '[[account]]\nprovider = "cc"\nname = "me"\nauth = "caller"\n'
            '[[account]]\nprovider = "openrouter"\nname = "o"\nkey = "env:O"\n'
        )
        self.clock = Clock()
        self.lines: list[str] = []
        env = {"A": "secret-a", "B": "secret-b", "O": "secret-o"}
        paths = resolve_paths(home, env=env, cwd=home)
        self.house = House(paths, env, HttpWire(), self._log, now=self.clock)
        self.pool = self.house.pool
        self.use(*CC)

    def _log(self, tag: str, line: str) -> None:
        self.lines.append(f"{tag} {line}")

    def use(self, provider: str, account: str) -> None:
        self.pool.health.succeed(provider, account, 1.0)

    def poll(self, times: int = 1) -> None:
        async def polls() -> None:
            for _ in range(times):
                await self.house.poller.poll()
            await self.house.router.world.wire.close()

        asyncio.run(polls())

    @property
    def state(self) -> Poll | None:
        found: Poll | None = self.pool.quota.polls.get(CC)
        return found


@pytest.fixture
def home(tmp_path: Path, site: Site) -> Home:
    return Home(tmp_path, site.url)


def test_an_account_in_use_is_asked_about(home: Home, site: Site) -> None:
    home.poll()
    ((method, path, headers),) = site.asked
    assert (method, path) == ("GET", "/api/oauth/usage")
    assert headers["authorization"] == "Bearer secret-a"
    assert "content-length" not in headers
    (note,) = home.pool.quota.notes()
    assert (note.provider, note.account, note.source) == (*CC, "polled")
    assert note.item == Window("5h", 0.75)
    assert home.state == Poll(home.clock.now, home.clock.now)


def test_one_that_nobody_uses_is_not(home: Home, site: Site) -> None:
    home.use("cc", "me")
    home.use("glm", "x")
    home.clock.forward(IN_USE + 1)
    home.poll()
    assert site.asked == []


def test_every_account_in_use_is_asked_about_in_one_round(home: Home, site: Site) -> None:
    site.body = json.dumps({**USAGE, "data": {"limit": 4, "limit_remaining": 1}})
    home.use("cc", "b")
    home.use("cc", "me")
    home.use("openrouter", "o")
    home.poll()
    asked = {(path, headers["authorization"]) for _, path, headers in site.asked}
    assert asked == {
        ("/api/oauth/usage", "Bearer secret-a"),
        ("/api/oauth/usage", "Bearer secret-b"),
        ("/api/v1/key", "Bearer secret-o"),
    }
    items = {(each.account, each.item) for each in home.pool.quota.notes()}
    assert ("o", Balance("key limit", 1.0, of=4.0)) in items


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (403, "{}", "status 403"),
        (302, "", "status 302"),
        (200, "<html>", "the reply is not JSON"),
        (200, "[]", "the reply says nothing of what is left"),
    ],
)
def test_a_failure_is_shown_and_asked_again_later_and_later(
    home: Home, site: Site, status: int, body: str, problem: str
) -> None:
    good = site.body
    site.status, site.body, site.headers = status, body, {"location": "http://127.0.0.1:1/"}
    pauses = []
    for _ in range(8):
        home.use(*CC)
        home.poll(times=2)
        assert home.state is not None
        assert home.state.problem == problem
        pauses.append(home.state.next_at - home.clock.now)
        home.clock.forward(pauses[-1])
    assert pauses == [120, 240, 480, 960, 1920, *[LONGEST_BACKOFF] * 3]
    assert len(site.asked) == 8
    assert home.lines == [f"QUOTA cc/a: what is left cannot be read: {problem}"]
    site.status, site.body = 200, good
    home.use(*CC)
    home.poll()
    assert home.state == Poll(home.clock.now, home.clock.now)


def test_a_stated_pause_is_kept(home: Home, site: Site) -> None:
    site.status, site.headers = 429, {"retry-after": "600"}
    home.poll()
    assert home.state == Poll(home.clock.now, home.clock.now + 600, 1, "status 429")


def test_a_missing_credential_and_a_site_that_is_gone_are_failures(home: Home, site: Site) -> None:
    site.server.shutdown()
    site.server.server_close()
    home.poll()
    assert home.state is not None
    assert home.state.problem.startswith("connection refused")


def test_a_fault_of_ours_ends_no_polling(
    home: Home, monkeypatch: pytest.MonkeyPatch, site: Site
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("krouter.poller._getter", broken)
    home.poll()
    assert home.state is not None
    assert home.state.problem == "krouter failed with ZeroDivisionError"


def test_it_runs_every_minute_until_cancelled(home: Home, site: Site) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        home.clock.forward(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    async def run() -> None:
        world = home.house.router.world
        poller = Poller(lambda: world, home.pool, load_reporters(), sleep)
        with pytest.raises(asyncio.CancelledError):
            await poller.run()
        await world.wire.close()

    asyncio.run(run())
    assert slept == [EVERY] * 3
    assert len(site.asked) == 3
