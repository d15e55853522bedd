"""Callers that send without end, or hardly at all: they are told so and hung up on, nobody else."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from uvicorn.server import ServerState

from krouter.serve.door import LONGEST, MOST_HEAD, SLOWEST, Door, Patience
from tests.harness import Krouter, complaints

MESSAGES = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n"
QUOTA = b"POST /api/quota HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
HELLO = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "hi"}]}).encode()
LENGTH = b"content-length: %d\r\n\r\n" % len(HELLO)


def dial(krouter: Krouter) -> socket.socket:
    host, port = urlsplit(krouter.url).netloc.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def told(caller: socket.socket) -> tuple[int, Any]:
    """Status and body of all that comes until the connection ends; status 0 for nothing."""
    said = b""
    while piece := caller.recv(1 << 16):
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    return (int(head.split()[1]), json.loads(body)) if said else (0, None)


def goes_on(caller: socket.socket, more: bytes, most: int = 10_000) -> int:
    """How often `more` could be sent."""
    for number in range(most):
        try:
            caller.sendall(more)
        except OSError:  # whatever the kernel says of a connection that is closed
            return number
    return most


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    with Krouter(tmp_path_factory.mktemp("home")) as krouter:
        yield krouter


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    patience = Patience(head=0.05, body=0.05, look=0.01)
    with Krouter(tmp_path_factory.mktemp("hasty"), patience=patience) as krouter:
        yield krouter


@pytest.mark.parametrize(
    "endless",
    [
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx-a: ", b"a" * 65536),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n", b"x-a: a\r\n" * 8192),
        (b"GET /", b"a" * 65536),
    ],
    ids=["value", "headers", "target"],
)
def test_a_head_without_end_is_refused(krouter: Krouter, endless: tuple[bytes, bytes]) -> None:
    start, more = endless
    with dial(krouter) as caller:
        caller.sendall(start)
        assert goes_on(caller, more) < 10_000
    with dial(krouter) as caller:
        caller.sendall(start + more + more[: MOST_HEAD // 2])
        status, body = told(caller)
    assert (status, "64 KiB" in body["error"]["message"]) == (431, True)
    assert krouter.chat("demo").status_code == 200


def test_a_large_head_is_read(krouter: Krouter) -> None:
    with dial(krouter) as caller:
        large = b"x-a: " + b"a" * (MOST_HEAD - 1000) + b"\r\nconnection: close\r\n"
        caller.sendall(MESSAGES + large + LENGTH + HELLO)
        assert told(caller)[0] == 200


def test_trailers_are_nobodys_and_do_not_pile_up(krouter: Krouter) -> None:
    with dial(krouter) as caller:
        caller.sendall(MESSAGES + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n")
        caller.sendall(b"%x\r\n%b\r\n0\r\n" % (len(HELLO), HELLO))
        for _ in range(64):
            caller.sendall(b"x-krouter-key: x\r\n" * 4096)
        doors: set[Any] = krouter.served.server.server_state.connections
        (door,) = [each for each in doors if each.client == caller.getsockname()]
        caller.sendall(b"\r\n")
        assert told(caller)[0] == 200
        assert len(door.headers) == 0
        assert len(door.cycle.scope["headers"]) < 32 * 4096  # what came with the body in one piece


@pytest.mark.parametrize("begun", [b"G", MESSAGES, MESSAGES + b"content-length: 9\r\nx: "])
def test_a_slow_head_is_told(hasty: Krouter, begun: bytes) -> None:
    with dial(hasty) as caller:
        caller.sendall(begun)
        status, body = told(caller)
    assert (status, body["error"]["message"]) == (408, "The head of the request came too slowly.")
    assert hasty.chat("demo").status_code == 200


def test_a_connection_on_which_nothing_comes_is_closed(hasty: Krouter) -> None:
    with dial(hasty) as caller:
        assert told(caller) == (0, None)


@pytest.mark.parametrize(
    ("begun", "kind"), [(MESSAGES, "invalid_request_error"), (QUOTA, "invalid_request_error")]
)
def test_a_slow_body_is_told_in_the_dialect(
    hasty: Krouter, begun: bytes, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    for framing in (b"content-length: 99\r\n\r\n{", b"transfer-encoding: chunked\r\n\r\n1\r\n{"):
        with dial(hasty) as caller:
            caller.sendall(begun + framing)
            status, body = told(caller)
        assert status == 408
        assert body.get("type", "error") == "error"
        assert body["error"]["type"] == kind
    assert hasty.chat("demo").status_code == 200
    assert hasty.router.world.board.in_flight == 0
    assert not complaints(caplog.text)


def test_a_hundred_slow_callers_keep_nobody_waiting(hasty: Krouter) -> None:
    callers = [dial(hasty) for _ in range(100)]
    for number, caller in enumerate(callers):
        caller.sendall((MESSAGES, MESSAGES + LENGTH + b"{")[number % 2])
    assert hasty.chat("demo").status_code == 200
    for caller in callers:
        with closing(caller):
            assert told(caller)[0] == 408
    assert hasty.messages("demo").status_code == 200


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""

    def is_closing(self) -> bool:
        return bool(self.said)

    def write(self, data: Any) -> None:
        self.said += data

    def close(self) -> None:
        pass

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def door_and_transport() -> tuple[Door, Transport]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await asyncio.Event().wait()

    def refused(path: str, headers: Any, status: int, message: str) -> bytes:
        return message.encode()

    config = uvicorn.Config(app, log_config=None, lifespan="off")
    door = Door(refused, config=config, server_state=ServerState(), app_state={})
    transport = Transport()
    door.connection_made(transport)
    return door, transport


def test_a_body_may_take_as_long_as_its_size_buys() -> None:
    async def test() -> None:
        door, transport = door_and_transport()
        door.data_received(MESSAGES + b"content-length: %d\r\n\r\n" % (1 << 30))
        patience = Patience(body=60)
        for second in range(300):
            door.look(float(second), patience)
            door.data_received(bytes(SLOWEST))
            await asyncio.sleep(0)
        assert not transport.said
        door.look(359.0, patience)
        assert not transport.said
        door.look(361.0, patience)
        assert transport.said.startswith(b"HTTP/1.1 408 ")

    asyncio.run(test())


def test_no_body_takes_longer_than_an_hour() -> None:
    async def test() -> None:
        door, transport = door_and_transport()
        door.data_received(MESSAGES + b"content-length: %d\r\n\r\n" % (1 << 40))
        door.look(0.0, Patience())
        for _ in range(64):
            door.data_received(bytes(1 << 20))
            await asyncio.sleep(0)
        door.look(LONGEST, Patience())
        assert not transport.said
        door.look(LONGEST + 1, Patience())
        assert transport.said.startswith(b"HTTP/1.1 408 ")

    asyncio.run(test())


def test_a_caller_that_waits_for_its_reply_is_left_in_peace() -> None:
    async def test() -> None:
        door, transport = door_and_transport()
        door.data_received(MESSAGES + LENGTH + HELLO)
        for hours in itertools.islice(itertools.count(), 9):
            door.look(hours * 3600.0, Patience())
            await asyncio.sleep(0)
        assert not transport.said

    asyncio.run(test())
