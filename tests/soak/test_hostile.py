"""Providers and callers that send without end cost a bounded amount of memory and time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness import provider_settings
from tests.soak import hostile
from tests.soak.server import Server, serving
from tests.upstream import Upstream

MOST = 256 << 20
"""Bytes of memory beyond those at rest: a reply may have 64 MiB, and is put together once."""
TIMES = {"firstByte": 5, "stall": 5, "attempt": 20, "total": 30}


@pytest.fixture(scope="module")
def endless() -> Iterator[hostile.Provider]:
    with hostile.provider() as found:
        yield found


@pytest.fixture(scope="module")
def server(endless: hostile.Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home: Path = tmp_path_factory.mktemp("home")
    with Upstream() as upstream:
        text, env = hostile.settings(endless.url)
        sound, more = provider_settings(upstream.url, one="a")
        (home / "krouter.toml").write_text(text + sound)
        (home / "combos").mkdir()
        for way in hostile.WAYS:
            first = {"model": f"{way}/m", "timeouts": {**TIMES, "total": 3}}
            combo = {"models": [first, "one/ok:text=sound"], "timeouts": TIMES}
            (home / "combos" / f"{way}.json").write_text(json.dumps(combo))
        with serving(home, {**env, **more}) as found:
            yield found
            assert found.holds()["left"] == {}
            assert found.end() == 0


ASKED = [*itertools.product(hostile.WAYS, ["chat", "messages"], [False, True])]


@pytest.mark.parametrize(("way", "dialect", "stream"), ASKED[::3])
def test_the_next_entry_answers_in_bounded_memory(
    server: Server, endless: hostile.Provider, way: str, dialect: str, stream: bool
) -> None:
    before = server.memory
    path = {"chat": "chat/completions", "messages": "messages"}[dialect]
    said = [{"role": "user", "content": "hi"}]
    body = {"model": way, "stream": stream, "max_tokens": 9, "messages": said}
    reply = httpx.post(f"{server.url}/v1/{path}", json=body, timeout=60)
    assert reply.status_code == 200
    assert reply.headers["x-krouter-model"] == "one/ok:text=sound"
    assert server.peak < before + MOST
    assert server.health()["in_flight"] == 0


def test_a_hundred_megabytes_from_a_caller_are_refused(server: Server) -> None:
    before = server.memory
    pieces = (b" " * (1 << 20) for _ in range(100))
    reply = httpx.post(f"{server.url}/v1/messages", content=pieces, timeout=60)
    assert (reply.status_code, reply.json()["error"]["type"]) == (413, "request_too_large")
    assert server.peak < before + MOST
    assert server.health()["status"] == "ok"
