"""Streams whose first byte has gone to the caller: never a false stop, never half an event."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx
import pytest

from tests.harness import Krouter, params_of, provider_settings
from tests.upstream import Upstream

CUT = "The provider's reply was cut short"
SILENT = "The provider did not answer in time"
COMBOS = {
    "daily": {"models": ["one/m", "two/good"], "timeouts": {"stall": 0.2}},
    "content": {"models": ["one/m", "two/good"], "timeouts": {"firstToken": 5}},
    "patient": {"models": ["one/m"], "timeouts": {"stall": 0.1, "firstByte": 5}},
    "token": {"models": ["one/m", "two/good"], "timeouts": {"firstToken": 0.2}},
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    settings, env = provider_settings(upstream.url, one="a", two="x")
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, combos=COMBOS, settings=settings, env=env) as krouter:
        yield krouter


@pytest.fixture(scope="module")
def timed(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    """One whose limits are reached."""
    settings, env = provider_settings(upstream.url, one="a", two="x")
    home = tmp_path_factory.mktemp("timed")
    with Krouter(home, combos=COMBOS, settings=settings, env=env, leaps=upstream) as krouter:
        yield krouter


@pytest.fixture
def krouter(request: pytest.FixtureRequest, upstream: Upstream) -> Krouter:
    upstream.clear()
    params = params_of(request)
    does = params["broken"].does if "broken" in params else params.get("how", "")
    served: Krouter = request.getfixturevalue("timed" if "stall" in does else "served")
    served.forget()
    served.router.routes.clear()
    return served


class Break(NamedTuple):
    """How a stream goes wrong after its first event, and how that is booked."""

    does: str
    row: int
    message: str
    whole: int
    """Events of the provider that reach the caller, comments and pings aside."""
    only: str = ""


BREAKS = (
    Break("reset=2", 10, CUT, 2),
    Break("close=2", 10, CUT, 2),
    Break("end=2", 10, CUT, 2),
    Break("stall=2", 11, SILENT, 2),
    Break("reset=2;half", 10, CUT, 2),
    Break("close=2;half", 10, CUT, 2),
    Break("end=2;half", 10, CUT, 2),
    Break("end=3;half", 10, CUT, 3, "chat"),
    Break("end=4;half", 10, CUT, 3, "messages"),
    Break("stall=2;half", 11, SILENT, 2),
    Break("no=finish", 10, CUT, 4, "chat"),
    Break("no=finish,done", 10, CUT, 4, "chat"),
    Break("no=finish", 10, CUT, 6, "messages"),
    Break("no=done", 10, CUT, 7, "messages"),
    Break("no=finish,done", 10, CUT, 6, "messages"),
    Break("no=finish,usage;slow-each=0", 10, CUT, 4, "chat"),
)


def cases() -> list[Any]:
    return [
        pytest.param(broken, dialect, id=f"{broken.does}-{dialect}")
        for broken in BREAKS
        for dialect in ("chat", "messages")
        if broken.only in ("", dialect)
    ]


def events(text: str) -> list[tuple[str, str]]:
    """Name and data of every event; fails on what is not a whole event."""
    assert text.endswith("\n\n")
    found = []
    for block in text.replace("\r\n", "\n").removesuffix("\n\n").split("\n\n"):
        fields = [line.partition(": ") for line in block.split("\n") if not line.startswith(":")]
        data = "".join(value for field, _, value in fields if field == "data")
        name = "".join(value for field, _, value in fields if field == "event")
        if data and name != "ping":
            assert data == "[DONE]" or json.loads(data)
            found.append((name, data))
    return found


@pytest.mark.parametrize(("broken", "dialect"), cases())
def test_a_broken_stream_ends_with_one_error_event(
    krouter: Krouter, upstream: Upstream, broken: Break, dialect: str
) -> None:
    upstream.script("m", [broken.does])
    reply = krouter.ask(dialect, "daily", True)
    assert reply.status_code == 200
    assert reply.headers["x-krouter-model"] == "one/m"
    *sound, (name, data) = events(reply.text)
    assert len(sound) == broken.whole
    assert not any("error" in json.loads(data) for _, data in sound)
    assert "[DONE]" not in reply.text
    assert "message_stop" not in reply.text
    error = json.loads(data)["error"]
    assert name == ("error" if dialect == "messages" else "")
    assert error["message"].startswith(broken.message)
    assert error["type"] in ("server_error", "api_error", "timeout_error")
    assert_booked(krouter, upstream, broken.row)


def assert_booked(krouter: Krouter, upstream: Upstream, row: int) -> None:
    """The route tells of the break, and the account is locked as the row says."""
    krouter.idle()
    assert len(upstream.requests) == 1
    [step] = krouter.last_route["steps"]
    assert step["row"] == row
    assert step["outcome"] == krouter.last_route["outcome"] != "answered"
    assert krouter.locks() == ({"one/a/m": (11, 2.0)} if row == 11 else {})


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_the_second_cut_in_a_row_locks(krouter: Krouter, upstream: Upstream, dialect: str) -> None:
    upstream.script("m", ["close=2", "close=2", "ok"])
    for locks in ({}, {"one/a/m": (10, 2.0)}):
        krouter.ask(dialect, "daily", True)
        krouter.idle()
        assert krouter.locks() == locks
    krouter.clock.forward(2)
    krouter.ask(dialect, "daily", True)
    krouter.idle()
    assert krouter.last_route["outcome"] == "answered"


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("pace", ["", ";slow-each=0"])
def test_an_error_event_of_the_provider_passes_and_ends_the_stream(
    krouter: Krouter, upstream: Upstream, dialect: str, pace: str
) -> None:
    kind = "type=overloaded_error;message=too%20much"
    upstream.script("m", [f"error=2;status=529;{kind}{pace}"])
    reply = krouter.ask(dialect, "daily", True)
    *_, (_, data) = told = events(reply.text)
    assert sum('"error"' in data for _, data in told) == 1
    assert json.loads(data)["error"]["message"] == "too much"
    assert "krouter" not in reply.text
    krouter.idle()
    assert krouter.last_route["steps"][0]["row"] == 9
    assert krouter.locks() == {"one/a/m": (9, 2.0)}


@pytest.mark.parametrize("how", ["reset=5", "close=5", "end=5", "stall=5"])
def test_a_finish_reason_completes_a_chat_stream(
    krouter: Krouter, upstream: Upstream, how: str
) -> None:
    upstream.script("m", [how])
    reply = krouter.chat("daily", True)
    told = events(reply.text)
    assert told[-1] == ("", "[DONE]")
    assert json.loads(told[-2][1])["choices"][0]["finish_reason"] == "stop"
    assert '"error"' not in reply.text
    krouter.idle()
    assert krouter.last_route["outcome"] == "answered"
    assert krouter.locks() == {}


def test_a_missing_done_is_supplied(krouter: Krouter, upstream: Upstream) -> None:
    upstream.script("m", ["no=done"])
    assert krouter.chat("daily", True).text.endswith("data: [DONE]\n\n")
    krouter.idle()
    assert krouter.last_route["outcome"] == "answered"


@pytest.mark.native_garbage("its provider's bytes are no whole reply")
@pytest.mark.parametrize("finished", [1, 2])
def test_every_choice_needs_its_finish_reason(
    krouter: Krouter, upstream: Upstream, finished: int
) -> None:
    upstream.script("m", [two_choices(finished)])
    reply = krouter.chat("daily", True, n=2)
    *_, (_, last) = events(reply.text)
    krouter.idle()
    if finished == 2:
        assert last == "[DONE]"
        assert krouter.last_route["outcome"] == "answered"
    else:
        assert json.loads(last)["error"]["message"].startswith(CUT)
        assert "[DONE]" not in reply.text
        assert krouter.last_route["steps"][0]["row"] == 10


def two_choices(finished: int) -> str:
    """Two choices, the first `finished` of which end; then `[DONE]`."""
    chunks = [f'{{"choices":[{{"index":{i},"delta":{{"content":"a"}}}}]}}' for i in range(2)]
    chunks += [
        f'{{"choices":[{{"index":{i},"delta":{{}},"finish_reason":"stop"}}]}}'
        for i in range(finished)
    ]
    body = "".join(f"data: {chunk}%0A%0A" for chunk in [*chunks, "[DONE]"])
    return f"content-type=text/event-stream;body={body}"


@pytest.mark.parametrize("asked", [None, False, True])
def test_usage_is_recorded_and_kept_from_a_caller_that_did_not_ask(
    krouter: Krouter, upstream: Upstream, asked: bool | None
) -> None:
    upstream.script("m", ["usage=11,5"])
    fields = {} if asked is None else {"stream_options": {"include_usage": asked}}
    reply = krouter.chat("daily", True, **fields)
    assert upstream.requests[0].json["stream_options"]["include_usage"] is True
    assert ('"prompt_tokens":11' in reply.text) is bool(asked)
    assert all(json.loads(d)["choices"] for _, d in events(reply.text)[:-1] if not asked)
    krouter.idle()
    assert (krouter.last_route["usage"]["input"], krouter.last_route["usage"]["output"]) == (11, 5)


def test_usage_of_messages_is_recorded(krouter: Krouter, upstream: Upstream) -> None:
    upstream.script("m", ["usage=11,5"])
    krouter.messages("daily", True)
    krouter.idle()
    assert (krouter.last_route["usage"]["input"], krouter.last_route["usage"]["output"]) == (11, 5)


class Caller:
    """A streaming caller on a bare socket, which can leave."""

    def __init__(self, krouter: Krouter, dialect: str, model: str = "daily") -> None:
        path = "/v1/chat/completions" if dialect == "chat" else "/v1/messages"
        said = [{"role": "user", "content": "hello"}]
        call = {"model": model, "max_tokens": 9, "messages": said, "stream": True}
        body = json.dumps(call).encode()
        url = httpx.URL(krouter.url)
        self._socket = socket.create_connection((url.host, url.port or 80), 30)
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def read_until(self, words: bytes) -> None:
        got = b""
        while words not in got:
            piece = self._socket.recv(65536)
            assert piece, got
            got += piece

    def leave(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_caller_that_leaves_mid_stream(
    krouter: Krouter, upstream: Upstream, dialect: str
) -> None:
    upstream.script("m", ["gate=more,2;usage=11,5"])
    caller = Caller(krouter, dialect)
    assert upstream.gate("more").reached.wait(30)
    caller.read_until(b"data:")
    caller.leave()
    assert upstream.requests[0].closed.wait(30)
    krouter.idle()
    assert krouter.last_route["outcome"] == "caller gone"
    assert krouter.last_route["steps"][0]["row"] == 1
    assert krouter.locks() == {}
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("dialect", "gate", "end"),
    [
        ("chat", "gate=more,5", b'"finish_reason":"stop"'),
        ("messages", "gate=more,9", b'"message_stop"'),
    ],
)
def test_a_caller_that_leaves_after_the_proper_end(
    krouter: Krouter, upstream: Upstream, dialect: str, gate: str, end: bytes
) -> None:
    upstream.script("m", [gate])
    caller = Caller(krouter, dialect)
    caller.read_until(end)
    caller.leave()
    krouter.idle()
    assert krouter.last_route["outcome"] == "answered"
    assert krouter.locks() == {}


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_success_of_a_stream_clears_the_lock_at_its_end(
    krouter: Krouter, upstream: Upstream, dialect: str
) -> None:
    upstream.script("m", ["status=529", "ok", "status=529"])
    for passed in (0, 2, 0):
        krouter.clock.forward(passed)
        krouter.ask(dialect, "daily", True)
        krouter.idle()
    assert krouter.locks() == {"one/a/m": (9, 2.0)}  # 2 s, not 4: the level was cleared


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("shape", ["crlf", "multiline", "tight", "open", "comments", "bom"])
@pytest.mark.parametrize("size", [1, 7])
def test_any_shape_of_stream_is_whole(
    krouter: Krouter, upstream: Upstream, dialect: str, shape: str, size: int
) -> None:
    upstream.script("m", [f"sse={shape};split={size};chunks=1;text=hi"])
    reply = krouter.ask(dialect, "daily", True)
    assert '"error"' not in reply.text
    assert ("[DONE]" if dialect == "chat" else "message_stop") in reply.text
    krouter.idle()
    assert krouter.last_route["outcome"] == "answered"


def test_silence_before_the_first_event_is_no_stall(timed: Krouter, upstream: Upstream) -> None:
    upstream.clear()
    timed.forget()
    upstream.script("m", ["gate=first,0"])
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(timed.chat, "patient", True)
        assert upstream.gate("first").reached.wait(30)
        timed.leap(0.2)
        upstream.gate("first").open()
        reply = asked.result(30)
    assert reply.status_code == 200
    assert '"error"' not in reply.text


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("does", ["close=1", "error=1;status=529", "end=1"])
def test_with_a_limit_to_the_first_token_a_stream_is_held_until_then(
    krouter: Krouter, upstream: Upstream, dialect: str, does: str
) -> None:
    upstream.script("m", [does])
    reply = krouter.ask(dialect, "content", True)
    assert reply.headers["x-krouter-model"] == "two/good"


def test_a_stream_without_a_token_in_time_falls_over(timed: Krouter, upstream: Upstream) -> None:
    upstream.clear()
    timed.forget()
    upstream.script("m", ["stall=1"])
    reply = timed.chat("token", True)
    assert reply.headers["x-krouter-model"] == "two/good"
    assert timed.locks() == {"one/a/m": (11, 2.0)}
