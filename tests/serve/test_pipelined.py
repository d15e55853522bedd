"""Requests sent without waiting for replies: each has its own, and nothing gets into it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from krouter.serve.door import MOST_AHEAD, MOST_HEAD, Door, Patience
from tests.harness import Krouter, complaints, provider_settings
from tests.serve.test_slow_callers import dial, told
from tests.upstream import Upstream

HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
LARGE = b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-a: " + b"a" * 2000 + b"\r\n\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
ODD = {
    "garbage": b"\0 garbage\r\n\r\n",
    "head": b"GET / HTTP/1.1\r\nx-a: " + b"a" * (MOST_HEAD + 9),
    "connect": b"CONNECT a:1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "body": POST + b"transfer-encoding: chunked\r\n\r\nno\r\n",
    "length": POST + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
}


def chat(model: str, stream: bool) -> bytes:
    asked = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    body = json.dumps(asked).encode()
    return POST + b"content-length: %d\r\n\r\n" % len(body) + body


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as found:
        yield found


@pytest.fixture(scope="module")
def krouter(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    home: Path = tmp_path_factory.mktemp("home")
    settings, env = provider_settings(upstream.url, one="a")
    with Krouter(home, settings=settings, env=env) as krouter:
        yield krouter


@pytest.mark.parametrize("odd", ODD)
def test_nothing_gets_into_a_stream_under_way(
    krouter: Krouter, upstream: Upstream, odd: str, caplog: pytest.LogCaptureFixture
) -> None:
    with dial(krouter) as caller:
        caller.sendall(chat(f"one/a:chunks=6;gate={odd},2", True))
        said = caller.recv(1 << 16)
        caller.sendall(ODD[odd])
        krouter.http.get("/health")  # served after what came before
        upstream.gate(odd).open()
        while piece := caller.recv(1 << 16):
            said += piece
    assert said.count(b"HTTP/1.1 ") == 1
    assert said.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert not complaints(caplog.text)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_those_before_what_cannot_be_read_have_their_own_replies(
    krouter: Krouter, odd: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with dial(krouter) as caller:
        caller.sendall(chat("one/b:text=mine", False) + HEALTH + odd)
        said = b"".join(iter(lambda: caller.recv(1 << 16), b""))
    assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200"]
    assert (b"mine" in said, b'"status":"ok"' in said) == (True, True)
    assert not complaints(caplog.text)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/v1/messages", ("type", "error")), ("/v1beta/models/m:generateContent", ("status", None))],
)
def test_what_cannot_be_read_is_told_in_the_dialect(
    krouter: Krouter, path: str, kind: tuple[str, Any]
) -> None:
    for odd in (b"content-length: 1\r\ncontent-length: 2\r\n\r\n", b"x-a: a\0b\r\n\r\n"):
        with dial(krouter) as caller:
            caller.sendall(f"POST {path}?alt=sse HTTP/1.1\r\nhost: localhost\r\n".encode() + odd)
            status, body = told(caller)
        assert status == 400
        assert body.get("type") == kind[1]
        assert kind[0] in {**body, **body["error"]}


class Transport(asyncio.Transport):
    """Keeps what is written, and whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.said, self.reads, self.closed = b"", True, False

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: Any) -> None:
        self.said += data

    def close(self) -> None:
        self.closed = True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


class App:
    """Answers, one after the other, as often as it is let."""

    def __init__(self) -> None:
        self.go = asyncio.Semaphore(0)
        self.hung_up = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        waits = asyncio.ensure_future(receive())
        goes = asyncio.ensure_future(self.go.acquire())
        await asyncio.wait([waits, goes], return_when=asyncio.FIRST_COMPLETED)
        if waits.done():
            self.hung_up += 1
            return
        waits.cancel()
        head = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 204, "headers": head})
        await send({"type": "http.response.body"})


def door_and_transport(app: App) -> tuple[Door, Transport]:
    config = uvicorn.Config(app, log_config=None, lifespan="off")
    door = Door(lambda *told: b"{}", config=config, server_state=ServerState(), app_state={})
    transport = Transport()
    door.connection_made(transport)
    return door, transport


async def until(holds: Any) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0)


def test_many_in_one_piece_are_not_one_large_head() -> None:
    async def test() -> None:
        door, transport = door_and_transport(App())
        door.data_received((LARGE * 100)[:-9])
        door.data_received((POST + b"content-length: 99999\r\n\r\n" + b"a" * 99999 + LARGE)[:-9])
        assert not transport.said
        for _ in range(3):
            door.data_received(b"a" * (MOST_HEAD // 2))
        assert door.cycle.keep_alive is False

    asyncio.run(test())


def test_whoever_sends_ahead_is_read_no_faster_than_it_is_answered() -> None:
    async def test() -> None:
        app = App()
        door, transport = door_and_transport(app)
        door.data_received(HEALTH * 100)
        for done in range(100 - MOST_AHEAD - 1):
            await until(lambda n=done: transport.said.count(b"HTTP/1.1 204") == n)
            assert not transport.reads
            app.go.release()
        await until(lambda: transport.reads)
        assert len(door.pipeline) == MOST_AHEAD

    asyncio.run(test())


def test_the_request_that_is_answered_learns_of_a_hang_up() -> None:
    async def test() -> None:
        app = App()
        door, _ = door_and_transport(app)
        door.data_received(HEALTH * 3)
        for _ in range(9):
            await asyncio.sleep(0)
        door.connection_lost(None)
        await until(lambda: app.hung_up == 1)

    asyncio.run(test())


def test_a_blank_line_between_requests_keeps_no_connection_open() -> None:
    async def test() -> None:
        app = App()
        door, transport = door_and_transport(app)
        app.go.release()
        door.data_received(HEALTH)
        await until(lambda: door.cycle.response_complete)
        door.data_received(b"\r\n")
        door.look(0.0, Patience())
        door.look(61.0, Patience())
        assert transport.closed

    asyncio.run(test())


def test_a_head_that_is_not_read_any_further_is_not_slow() -> None:
    async def test() -> None:
        door, transport = door_and_transport(App())
        door.data_received((HEALTH * 99)[:-9])
        door.look(0.0, Patience())
        door.look(61.0, Patience())
        assert not transport.closed
        assert door.cycle.keep_alive

    asyncio.run(test())
