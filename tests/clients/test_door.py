"""The relay that counts requests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.clients.door import Door
from tests.upstream import Upstream

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as started:
        yield started


@pytest.fixture
def door(upstream: Upstream) -> Iterator[Door]:
    with Door(upstream.url) as opened:
        yield opened


def notes(door: Door) -> list[str]:
    return [str(visit) for visit in door.visits]


def test_requests_of_one_connection_are_counted_with_their_statuses(
    door: Door, upstream: Upstream
) -> None:
    upstream.script("m", ["status=200", "status=429", "status=200"])
    with httpx.Client(base_url=door.url) as client:
        for stream in (False, False, True):
            client.post("/v1/chat/completions", json={**BODY, "stream": stream})
        client.get("/nothing?a=b")
    chat = "POST /v1/chat/completions"
    assert notes(door) == [f"{chat}: 200", f"{chat}: 429", f"{chat}: 200", "GET /nothing: 404"]
    door.clear()
    assert not door.visits


def test_a_reply_without_the_body_it_names_does_not_hide_the_next(door: Door) -> None:
    with httpx.Client(base_url=door.url) as client:
        client.head("/api/hello")
        client.post("/v1/chat/completions", json=BODY)
    assert notes(door) == ["HEAD /api/hello: 404", "POST /v1/chat/completions: 200"]


def test_a_refused_upgrade_does_not_hide_the_next(door: Door) -> None:
    with httpx.Client(base_url=door.url) as client:
        client.get("/v1/responses", headers={"connection": "upgrade", "upgrade": "websocket"})
        client.post("/v1/chat/completions", json=BODY)
    assert notes(door) == ["GET /v1/responses: 404", "POST /v1/chat/completions: 200"]


def test_a_request_without_an_answer_is_counted_too(door: Door, upstream: Upstream) -> None:
    upstream.script("m", ["reset"])
    with pytest.raises(httpx.TransportError):
        httpx.post(f"{door.url}/v1/chat/completions", json=BODY)
    assert notes(door) == ["POST /v1/chat/completions: no answer"]


def test_a_caller_that_leaves_ends_the_request_behind_the_door(
    door: Door, upstream: Upstream
) -> None:
    upstream.script("m", ["gate=shut"])
    address = urlsplit(door.url)
    with socket.create_connection((str(address.hostname), address.port or 0)) as caller:
        head = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 13\r\n\r\n"
        caller.sendall(head + b'{"model":"m"}')
        upstream.wait(1)
    assert upstream.requests[0].closed.wait(30)


def test_the_body_of_a_request_is_kept(door: Door) -> None:
    with httpx.Client(base_url=door.url) as client:
        for text in ("one", "two" * 100_000):
            client.post("/v1/chat/completions", content=text)
        client.post("/v1/chat/completions", content=iter([b"th", b"ree"]))
    assert [bytes(visit.body) for visit in door.visits] == [b"one", b"two" * 100_000, b"three"]


def test_a_server_that_is_gone_is_told_from_a_caller_that_is_silent() -> None:
    with Upstream() as upstream:
        url = upstream.url
    with Door(url) as door:
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{door.url}/v1/chat/completions", json=BODY)
        assert notes(door) == ["krouter takes no connection: no answer"]
        assert door.visits[0].failed


def test_what_is_no_http_is_handed_on_and_noted(door: Door) -> None:
    address = urlsplit(door.url)
    with socket.create_connection((str(address.hostname), address.port or 0)) as caller:
        caller.sendall(b"\0\1\2 nothing\r\n\r\n")
        caller.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: caller.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert notes(door) == ["what is no HTTP: no answer"]
