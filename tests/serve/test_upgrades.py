"""An upgrade that is not taken is no reason to lose a body, or to read it as another request."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.harness import Krouter, complaints

HELLO = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "hi"}]}).encode()
CHAT = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
)
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
WEBSOCKET = b"connection: keep-alive, Upgrade\r\nupgrade: websocket\r\n"
LENGTH = b"content-length: %d\r\n\r\n" % len(HELLO)
INNER = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    with Krouter(tmp_path_factory.mktemp("home")) as krouter:
        yield krouter


def exchange(krouter: Krouter, *pieces: bytes) -> list[int]:
    """The statuses of all replies to these bytes, each piece sent on its own."""
    at = urlsplit(krouter.url)
    with socket.create_connection((str(at.hostname), at.port or 0), timeout=30) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            peer.sendall(piece)
        said = b"".join(iter(lambda: peer.recv(65536), b""))
    return [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("wish", [H2C, H2C + b"Upgrade: x\r\n", WEBSOCKET])
def test_a_body_that_came_with_an_upgrade_is_read(krouter: Krouter, wish: bytes) -> None:
    chunked = b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(HELLO), HELLO)
    for request in (CHAT + wish + LENGTH + HELLO, CHAT + wish + chunked):
        assert exchange(krouter, request + LAST) == [200, 404]
        assert exchange(krouter, request + request + LAST) == [200, 200, 404]
        assert exchange(krouter, *(request[at : at + 1] for at in range(len(request))), LAST) == [
            200,
            404,
        ]


def test_nothing_of_a_body_is_read_as_a_request(krouter: Krouter) -> None:
    head = CHAT + H2C + b"content-length: %d\r\n\r\n" % len(INNER)
    assert exchange(krouter, head, INNER, LAST) == [400, 404]
    assert exchange(krouter, head + INNER + LAST) == [400, 404]


def test_an_upgrade_without_a_body_is_answered(krouter: Krouter) -> None:
    asked = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
    assert exchange(krouter, asked + H2C + b"\r\n" + LAST) == [200, 404]
    assert exchange(krouter, asked + WEBSOCKET + b"\r\n" + LAST) == [426, 404]


def test_a_body_is_waited_for_where_the_caller_waits_too(krouter: Krouter) -> None:
    asked = CHAT + H2C + b"expect: 100-continue\r\n" + LENGTH
    assert exchange(krouter, asked, HELLO, LAST) == [100, 200, 404]


def test_nothing_behind_a_connect_is_read_as_a_request(krouter: Krouter) -> None:
    asked = b"CONNECT localhost:443 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert exchange(krouter, asked + INNER) == [405]


def test_a_head_as_large_as_may_be_with_an_upgrade_is_read(krouter: Krouter) -> None:
    wish = H2C + b"x-a: " + b"a" * 60_000 + b"\r\n"
    assert exchange(krouter, CHAT + wish + LENGTH + HELLO + LAST) == [200, 404]
    assert exchange(krouter, CHAT + wish + b"x-b: " + b"b" * 300_000)[0] == 431


def test_those_before_what_is_refused_are_answered_and_nothing_else_is(
    krouter: Krouter, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = (CHAT + LENGTH + HELLO) * 3
    connect = b"CONNECT localhost:443 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert exchange(krouter, waiting + connect) == [200] * 3
    assert exchange(krouter, waiting + CHAT + b"x-a: " + b"a" * 500_000) == [200] * 3
    assert krouter.chat("demo").status_code == 200
    assert not complaints(caplog.text)
