"""What a krouter sends is judged in every test; here, that it is, and by what."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from tests.emitted import JOURNAL, Emitted
from tests.harness import Krouter, Start
from tests.upstream import Upstream

DIALECTS = ("chat", "messages", "responses", "gemini")
GARBAGE = {
    "chat": {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]},
    "messages": {"type": "message", "content": [{"type": "text", "text": "hi"}]},
    "responses": {"output": [{"type": "message"}], "status": "completed"},
    "gemini": {"candidates": [{"content": {"parts": [{"text": "hi"}]}}]},
}
UNREADABLE = "what a strict client cannot read"


@pytest.fixture
def krouter(start: Start) -> Krouter:
    return start("one/m")


def malformed(upstream: Upstream, dialect: str, stream: bool) -> None:
    """What `dialect` natively passes on, and no strict client can read."""
    body = json.dumps(GARBAGE[dialect])
    framed = f'data: {{"type": "response.created"}}\n\ndata: {body}\n\n'
    kind = "text/event-stream" if stream else "application/json"
    upstream.script("m", [f"body={quote(framed if stream else body)};content-type={quote(kind)}"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_no_strict_client_reads_fails_a_test(
    krouter: Krouter, upstream: Upstream, dialect: str, stream: bool
) -> None:
    malformed(upstream, dialect, stream)
    assert krouter.ask(dialect, "daily", stream).status_code == 200
    krouter.idle()
    with pytest.raises(AssertionError, match=UNREADABLE):
        JOURNAL.check()
    assert krouter.ask(dialect, "one/good", stream).status_code == 200
    krouter.idle()
    JOURNAL.check()


@pytest.mark.native_garbage("so that it is let through")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_test_may_let_a_providers_own_bytes_through(
    krouter: Krouter, upstream: Upstream, dialect: str, stream: bool
) -> None:
    malformed(upstream, dialect, stream)
    assert krouter.ask(dialect, "daily", stream).status_code == 200
    krouter.idle()
    JOURNAL.check()


@pytest.mark.parametrize("lane", ["litellm", "demo"])
def test_what_krouter_writes_itself_is_never_let_through(lane: str) -> None:
    kept = {"path": "/v1/chat/completions", "excuse": "any", "status": 200, "finished": True}
    head: dict[str, Any] = {**kept, "kind": "application/json", "body": b"{}"}
    Emitted(**head, lanes=frozenset({"native"})).check()
    for lanes in ({lane}, {"native", lane}, set[str]()):
        with pytest.raises(AssertionError, match=UNREADABLE):
            Emitted(**head, lanes=frozenset(lanes)).check()


def hang_up(krouter: Krouter, request: httpx.Request, until: Callable[[bytes], bool]) -> bytes:
    """Leaves as soon as enough has come."""
    address, came = urlsplit(krouter.url), b""
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    with socket.create_connection((address.hostname, address.port)) as caller:
        line = f"POST {request.url.raw_path.decode()} HTTP/1.1\r\n{head}\r\n"
        caller.sendall(line.encode() + request.content)
        while not until(came):
            came += caller.recv(65536)
    return came


def test_a_stream_that_its_caller_cuts_is_judged_as_far_as_it_came(
    krouter: Krouter, upstream: Upstream
) -> None:
    body = {"model": "daily", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    request = krouter.http.build_request("POST", "/v1/chat/completions", json=body)
    upstream.script("m", ["stall=2"])
    hang_up(krouter, request, lambda came: came.count(b"data:") == 2)
    krouter.idle()
    JOURNAL.check()
    piece = json.dumps({"choices": [{"index": 0, "delta": {"content": "hi"}}]})
    kind = quote("text/event-stream")
    text = quote(f"data: {piece}\n\n")
    upstream.script("m", [f"body={text * 3};content-type={kind};stall=1"])
    hang_up(krouter, request, lambda came: b"data:" in came)
    krouter.idle()
    with pytest.raises(AssertionError, match=UNREADABLE):
        JOURNAL.check()


def test_a_stream_without_its_end_is_none() -> None:
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    said = {"index": 0, "delta": {"role": "assistant", "content": "hi"}, "finish_reason": None}
    body = b"data: %s\n\n" % json.dumps({**chunk, "choices": [said]}).encode()
    kept: dict[str, Any] = {"path": "/v1/chat/completions", "status": 200, "body": body}
    Emitted(**kept, kind="text/event-stream").check()
    with pytest.raises(AssertionError, match="a stream has an end"):
        Emitted(**kept, kind="text/event-stream", finished=True).check()
