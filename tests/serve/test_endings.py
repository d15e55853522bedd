"""A caller that leaves, and what is left over after two thousand requests of every kind."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import socket
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from krouter.dialects import DIALECTS
from tests.harness import Krouter
from tests.upstream import Upstream

HELLO = [{"role": "user", "content": "hello"}]


def settings_for(upstream: Upstream, more: str = "") -> str:
    speaks = '["chat", "messages", "responses"]'
    return f'[provider.local]\nbase_url = "{upstream.url}"\nspeaks = {speaks}\n{more}'


def request_bytes(path: str, body: dict[str, Any]) -> bytes:
    content = msgspec.json.encode(body)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


@pytest.mark.parametrize("path", [p for d in DIALECTS.values() for p in d.paths])
@pytest.mark.parametrize(
    ("model", "stream", "wait_for"),
    [
        ("a:stall=2", True, b"data:"),
        ("b:chunks=50;gate=never,3", True, b"data:"),
        ("c:stall", True, b""),
        ("d:stall", False, b""),
        ("e:stall=0", False, b""),
    ],
)
def test_the_upstream_is_closed_when_the_caller_leaves(
    tmp_path: Path, path: str, model: str, stream: bool, wait_for: bytes
) -> None:
    with Upstream() as upstream, Krouter(tmp_path, settings=settings_for(upstream)) as krouter:
        host, port = urlsplit(krouter.url).netloc.split(":")
        said = {"messages": HELLO, "input": HELLO}
        body = {"model": f"local/{model}", "stream": stream, **said}
        with socket.create_connection((host, int(port)), timeout=30) as caller:
            caller.sendall(request_bytes(path, body))
            (sent,) = upstream.wait(1)
            seen = b""
            while wait_for not in seen:
                seen += caller.recv(65536)
        assert sent.closed.wait(30), "the upstream call runs on"
        assert krouter.chat("demo").status_code == 200
        assert krouter.locks() == {}
        route = krouter.router.routes[0]
        assert route.outcome == "caller gone"
        assert krouter.router.world.board.in_flight == 0


WAYS = (
    "ok",
    "ok:chunks=20",
    "l:status=429;retry-after=1",
    "m:status=500",
    "n:status=400",
    "r:reset",
    "c:close",
    "q:reset=2",
    "e:end=2",
    "x:error=0",
    "y:error=2",
    "g:garbage=html",
    "h:garbage=cut",
    "t:empty=text",
    "v:empty=events",
    "s:split=3",
    "z:gzip",
    "w:half;reset=1",
)


@pytest.mark.native_garbage("an empty reply does not say why it ended")
def test_nothing_is_left_over_after_2000_mixed_requests(tmp_path: Path) -> None:
    combos = {
        f"c{place}": {"models": [f"local/{way}", "local/ok"]} for place, way in enumerate(WAYS)
    }
    with (
        Upstream() as upstream,
        Krouter(tmp_path, combos=combos, settings=settings_for(upstream)) as krouter,
    ):
        asyncio.run(ask_many(krouter.url, sorted(combos), 100))
        before = leftovers(krouter, upstream)
        outcomes = asyncio.run(ask_many(krouter.url, sorted(combos), 2000))
        after = leftovers(krouter, upstream)
        assert outcomes.total() == 2000
        assert outcomes["hung"] == 0
        assert outcomes["answered"] > 1000
        assert outcomes["left"] > 100
        assert after["in flight"] == 0
        assert after["tasks"] <= before["tasks"]
        assert after["files"] <= before["files"]


ALWAYS = ("serving", "following the files", "getting credentials", "polling quota", "callers")
"""The tasks that run as long as the server does."""


def leftovers(krouter: Krouter, upstream: Upstream) -> dict[str, int]:
    """Counts once everything that ends by itself has ended."""

    async def settle() -> int:
        wire = krouter.router.world.wire
        while krouter.router.world.board.in_flight or idle_tasks() > len(ALWAYS):
            await asyncio.sleep(0.01)
        await wire.close()
        callers = krouter.served.server.server_state.connections
        while upstream.open_connections or callers:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)  # the loop closes a transport's file one turn after its protocol
        return idle_tasks()

    def idle_tasks() -> int:
        mine = asyncio.current_task()
        return len([t for t in asyncio.all_tasks() if t is not mine and not t.done()])

    tasks = asyncio.run_coroutine_threadsafe(settle(), krouter.loop).result(30)
    ledger = krouter.served.house.ledger
    assert ledger is None or ledger.flush(30)  # a journal is open until the file has all of it
    gc.collect()
    return {
        "in flight": krouter.router.world.board.in_flight,
        "tasks": tasks,
        "files": len(os.listdir("/proc/self/fd")),
    }


async def ask_many(url: str, combos: list[str], count: int) -> Counter[str]:
    """`count` requests, 32 under way at a time."""
    dice = random.Random(7)
    left = iter(range(count))
    outcomes: Counter[str] = Counter()

    async def worker(http: httpx.AsyncClient) -> None:
        for _ in left:
            outcomes[await ask(http, dice, combos)] += 1

    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        await asyncio.gather(*(worker(http) for _ in range(32)))
    return outcomes


async def ask(http: httpx.AsyncClient, dice: random.Random, combos: list[str]) -> str:
    path = dice.choice(["/v1/chat/completions", "/v1/messages", "/v1/responses"])
    stream, leaves = dice.random() < 0.5, dice.random() < 0.1
    said = {"input" if "responses" in path else "messages": HELLO}
    body = {"model": dice.choice(combos), "stream": stream, **said}
    try:
        async with http.stream("POST", path, json=body) as reply:
            if leaves:
                return "left"
            content = await reply.aread()
    except httpx.TimeoutException:
        return "hung"
    if reply.status_code == 200 and b'"error":{' not in content:
        return "answered"
    return "error"


ENDS = [
    ("/v1/chat/completions", b'data: {"error":{"code":null,"type":"server_error"'),
    ("/v1/messages", b'event: error\ndata: {"type":"error","error":{"type":"api_error"'),
    ("/v1/responses", b'event: response.failed\ndata: {"type":"response.failed"'),
]


def cancel_all(krouter: Krouter) -> None:
    """What uvicorn does with requests that are under way when the time they have is up."""

    def cancel() -> None:
        for task in krouter.served.server.server_state.tasks:
            task.cancel()

    krouter.loop.call_soon_threadsafe(cancel)


@pytest.mark.parametrize(("path", "told"), ENDS)
@pytest.mark.parametrize("way", ["a:chunks=50;gate=never,3", "b:stall"])
def test_an_answer_that_krouters_own_end_cuts_short_says_so(
    tmp_path: Path, path: str, told: bytes, way: str
) -> None:
    with Upstream() as upstream, Krouter(tmp_path, settings=settings_for(upstream)) as krouter:
        body = {"model": f"local/{way}", "stream": True, "messages": HELLO, "input": HELLO}
        host, port = urlsplit(krouter.url).netloc.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as caller:
            caller.sendall(request_bytes(path, body))
            (sent,) = upstream.wait(1)
            said = b""
            while "gate" in way and b"data:" not in said:
                said += caller.recv(65536)
            cancel_all(krouter)
            while piece := caller.recv(65536):
                said += piece
        assert sent.closed.wait(30), "the upstream call runs on"
        assert b"krouter is shutting down." in said
        if "gate" in way:
            assert said.startswith(b"HTTP/1.1 200 ")
            assert told in said
            assert said.endswith(b"\r\n0\r\n\r\n")
        else:
            assert said.startswith(b"HTTP/1.1 503 ")
        assert krouter.chat("demo").status_code == 200
        assert krouter.router.world.board.in_flight == 0


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/api/quota"]
)
def test_a_body_that_krouters_own_end_cuts_short_is_told_so(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Krouter(tmp_path) as krouter:
        host, port = urlsplit(krouter.url).netloc.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as caller:
            head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n"
            caller.sendall(f"{head}content-type: application/json\r\n\r\n{{".encode())
            while not krouter.served.server.server_state.tasks:
                assert krouter.http.get("/health").status_code == 200
            cancel_all(krouter)
            said = caller.recv(65536)
        assert said.startswith(b"HTTP/1.1 503 ")
        told = json.loads(said.partition(b"\r\n\r\n")[2])
        assert told["error"]["message"] == "krouter is shutting down."
        assert told.get("type") == ("error" if "messages" in path else None)
        assert krouter.chat("demo").status_code == 200
    assert not caplog.records
