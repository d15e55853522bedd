"""What goes wrong in krouter itself is told as an error of the caller's dialect, and stays in the
log: the next request is served."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from krouter.adapter import Call, Target, load_lanes
from krouter.keys import add_key
from krouter.providers import Provider
from krouter.serve.strangers import Strangers
from krouter.wire import Canned, Incoming, Wire
from tests.emitted import STREAMS
from tests.harness import Krouter, provider_settings

SECRET = "sk-canary-of-an-exception"


def broken() -> float:
    raise ValueError(SECRET)


async def broken_route() -> None:
    broken()


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    """One whose strangers break it, as does a part of its admin API."""
    home = tmp_path_factory.mktemp("home")
    key = add_key(home / "keys.json", "laptop", 0.0)
    with Krouter(home) as krouter:
        krouter.http.headers["x-krouter-key"] = key
        krouter.served.app.guard.strangers = Strangers(broken)
        krouter.served.app.rest.add_api_route("/api/broken", broken_route)
        yield krouter


@pytest.mark.parametrize(
    ("method", "path", "key"),
    [
        ("GET", "/api/broken", None),
        ("GET", "/api/routes", "wrong"),
        ("GET", "/v1/models", "wrong"),
        ("GET", "/v1beta/models", "wrong"),
        ("POST", "/v1/chat/completions", "wrong"),
        ("POST", "/v1/messages", "wrong"),
        ("POST", "/v1/messages/count_tokens", "wrong"),
        ("POST", "/v1/responses", "wrong"),
        ("POST", "/v1beta/models/demo:generateContent", "wrong"),
        ("POST", "/v1/embeddings", "wrong"),
    ],
)
def test_it_is_an_error_of_the_dialect(
    krouter: Krouter, method: str, path: str, key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {} if key is None else {"x-krouter-key": key}
    with caplog.at_level(logging.WARNING):
        reply = krouter.http.request(method, path, headers=headers)
    told = reply.json()
    assert (reply.status_code, reply.headers["content-type"]) == (500, "application/json")
    assert told["error"]["message"] == "krouter failed with ValueError. Its log says where."
    assert told.get("type") == ("error" if "messages" in path else None)
    assert ("status" in told["error"]) == ("beta" in path)
    assert [record.name for record in caplog.records] == ["krouter"]
    assert "in broken" in caplog.text
    assert SECRET not in caplog.text
    assert krouter.chat("demo").status_code == 200


class Breaking:
    """A lane that breaks in the midst of a reply."""

    name = "breaking"

    def speaks(self, provider: Provider, dialect: str) -> bool:
        return provider.name == "one"

    async def ready(self) -> None: ...

    def warm_up(self) -> None: ...

    async def send(self, call: Call, target: Target, wire: Wire) -> Incoming:
        return Canned(200, "text/event-stream", self._pieces(BEGUN[call.dialect.name]))

    def _pieces(self, begun: bytes) -> Iterator[bytes]:
        yield begun
        broken()


BEGUN = {
    "chat": b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":"so"},"finish_reason":null}]}\n\n',
    "messages": b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1",'
    b'"type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,'
    b'"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}\n\n',
}


@pytest.mark.parametrize("dialect", BEGUN)
def test_a_stream_that_has_begun_ends_with_an_error_event(
    tmp_path: Path, dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings, env = provider_settings("http://127.0.0.1:9", one="a")
    edges = {"lanes": (Breaking(), *load_lanes())}
    with Krouter(tmp_path, settings=settings, env=env, edges=edges) as krouter:
        reply = krouter.ask(dialect, "one/m", stream=True)
        krouter.idle()
        assert krouter.ask(dialect, "demo").status_code == 200
    assert reply.status_code == 200
    assert reply.content.startswith(BEGUN[dialect][:40])
    assert STREAMS[dialect](reply.content).ending == "error"
    assert "krouter failed with ValueError" in reply.text
    assert "in _pieces" in caplog.text
    assert SECRET not in caplog.text + reply.text
