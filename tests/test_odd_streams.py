"""Providers that send something else than was asked for: compressed, under another type, no stream
at all."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from tests.harness import Krouter, Start
from tests.test_walk_streams import events
from tests.upstream import Upstream
from tests.upstream.script import Behaviour

DIALECTS = ("chat", "messages")
ENDS = {"chat": "[DONE]", "messages": '{"type":"message_stop"}'}
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
ANSWER = {
    "chat": {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]},
    "messages": {"type": "message", "content": [{"type": "text", "text": "hi"}]},
}


def behaviour(body: bytes, **headers: str) -> Behaviour:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Behaviour(body=body, headers=pairs)


@pytest.fixture
def krouter(start: Start) -> Krouter:
    return start("one/m", "two/good", accounts={"one": "a", "two": "x"})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_is_compressed_though_not_asked_for(
    krouter: Krouter, upstream: Upstream, dialect: str
) -> None:
    upstream.script("m", ["gzip;slow-each=0"])
    reply = krouter.ask(dialect, "daily", True)
    assert upstream.requests[0].header["accept-encoding"] == "identity"
    assert reply.headers["x-krouter-model"] == "one/m"
    assert "content-encoding" not in reply.headers
    assert events(reply.text)[-1][1] == ENDS[dialect]


@pytest.mark.native_garbage("its provider's bytes are no whole reply")
def test_deflate_is_read_as_well(krouter: Krouter, upstream: Upstream) -> None:
    packed = behaviour(
        zlib.compress(CHUNK), content_type="text/event-stream", content_encoding="deflate"
    )
    upstream.script("m", [packed])
    assert krouter.chat("daily", True).content == CHUNK + b"data: [DONE]\n\n"


@pytest.mark.parametrize("coding", ["br", "gzip", "zstd"])
def test_what_cannot_be_decoded_falls_over(
    krouter: Krouter, upstream: Upstream, coding: str
) -> None:
    body = bytes(range(200, 256)) * 4
    odd = behaviour(body, content_type="text/event-stream", content_encoding=coding)
    upstream.script("m", [odd])
    reply = krouter.chat("daily", True)
    krouter.idle()
    assert reply.headers["x-krouter-model"] == "two/good"
    assert krouter.last_route["steps"][0]["row"] == 10


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "TEXT/Event-Stream"])
def test_a_stream_is_one_whatever_its_type_says(
    krouter: Krouter, upstream: Upstream, dialect: str, kind: str
) -> None:
    upstream.script("m", [f"content-type={kind}"])
    reply = krouter.ask(dialect, "daily", True)
    assert reply.headers["x-krouter-model"] == "one/m"
    assert reply.headers["content-type"].lower().startswith("text/event-stream")
    assert events(reply.text)[-1][1] == ENDS[dialect]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_in_place_of_a_stream_falls_over(
    krouter: Krouter, upstream: Upstream, dialect: str, kind: str, indent: int | None
) -> None:
    whole = json.dumps(ANSWER[dialect], indent=indent).encode()
    upstream.script("m", [behaviour(whole, content_type=kind)])
    reply = krouter.ask(dialect, "daily", True)
    krouter.idle()
    assert reply.headers["x-krouter-model"] == "two/good"
    first = krouter.last_route["steps"][0]
    assert (first["row"], first["detail"]) == (10, "JSON in place of an event stream")


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_an_error_in_place_of_a_stream_is_told(
    krouter: Krouter, upstream: Upstream, kind: str
) -> None:
    told: dict[str, Any] = {"error": {"message": "out of order", "type": "server_error"}}
    upstream.script("m", [behaviour(json.dumps(told, indent=1).encode(), content_type=kind)])
    reply = krouter.chat("one/m", True)
    assert reply.status_code == 502
    assert reply.json()["error"]["message"] == "out of order"


@pytest.mark.native_garbage("its provider's bytes are no whole reply")
def test_an_event_that_is_not_json_is_left_out_and_noted(
    krouter: Krouter, upstream: Upstream
) -> None:
    upstream.script("m", [behaviour(b"data: {oops\n\n".join((CHUNK, CHUNK)))])
    reply = krouter.chat("daily", True)
    krouter.idle()
    assert reply.content == CHUNK + CHUNK + b"data: [DONE]\n\n"
    assert krouter.last_route["notes"] == ["1 malformed events left out"]
