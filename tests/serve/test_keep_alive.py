"""Signs of life for a caller that waits for a stream: when, what, and what comes after them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from krouter.answer import Answer, error_answer
from krouter.dialects import DIALECTS, get
from krouter.serve.outlet import Outlet
from tests.harness import Krouter, Start, provider_settings
from tests.test_stream import now, run
from tests.test_walk_streams import Caller, events
from tests.upstream import Upstream
from tests.validators import check_chat_stream, check_messages_stream

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
SIGNS = {"chat": b": keep-alive\n\n", "messages": b'event: ping\ndata: {"type": "ping"}\n\n'}
CHECKS = {"chat": check_chat_stream, "messages": check_messages_stream}


class Sent:
    """ASGI's `send`: notes what is sent, and when; while `room` is unset it waits."""

    def __init__(self) -> None:
        self.all: list[tuple[float, Any]] = []
        self.began = now()
        self.room = asyncio.Event()
        self.room.set()

    async def __call__(self, message: Any) -> None:
        await self.room.wait()
        what = message.get("body", message.get("status"))
        self.all.append((round(now() - self.began, 2), what))


def outlet(sent: Sent) -> Outlet:
    made = Outlet(sent)
    made.watch(b"!", 15, lambda: [("x-krouter-route", "id")])
    return made


async def say(out: Outlet, sent: Sent, events: bytes) -> None:
    out.spoke = True
    await sent({"body": events})


def test_a_sign_of_life_after_every_fifteen_seconds_of_silence() -> None:
    async def test() -> None:
        sent = Sent()
        out = outlet(sent)
        await asyncio.sleep(31)
        await out.begin(Answer(200, []))
        await say(out, sent, b"a")
        await asyncio.sleep(14)
        await say(out, sent, b"b")
        await asyncio.sleep(16.5)
        await out.end()
        await asyncio.sleep(100)
        assert sent.all == [
            (15, 200),
            (15, b"!"),
            (30, b"!"),
            (31, b"a"),
            (45, b"b"),
            (61, b"!"),  # the wait is not timed to the moment
            (61.5, b""),
        ]

    run(test())


def test_whoever_is_answered_in_time_gets_none() -> None:
    async def test() -> None:
        sent = Sent()
        out = outlet(sent)
        await asyncio.sleep(14.9)
        await out.begin(Answer(206, []))
        await say(out, sent, b"a")
        await out.end()
        out.stop()
        await asyncio.sleep(100)
        assert sent.all == [(14.9, 206), (14.9, b"a"), (14.9, b"")]

    run(test())


def test_an_error_is_a_body_before_and_an_event_after_a_sign_of_life() -> None:
    async def test() -> None:
        for waited in (10, 20):
            sent = Sent()
            out = outlet(sent)
            await asyncio.sleep(waited)
            await out.whole(error_answer(get("chat"), 503, "no"))
            body = sent.all[-1][1] or sent.all[-2][1]
            assert json.loads(body.removeprefix(b"data: "))["error"]["message"] == "no"
            assert sent.all[0][1] == (503 if waited == 10 else 200)
            assert body.startswith(b"data: ") is (waited == 20)

    run(test())


def test_a_caller_that_does_not_read_is_not_flooded() -> None:
    async def test() -> None:
        sent = Sent()
        sent.room.clear()
        out = outlet(sent)
        await asyncio.sleep(100)
        sent.room.set()
        await out.begin(Answer(200, []))
        assert [what for _, what in sent.all] == [200, b"!"]
        out.stop()

    run(test())


def test_who_has_left_is_sent_nothing_more() -> None:
    async def test() -> None:
        sent = Sent()
        sent.room.clear()
        out = outlet(sent)
        await asyncio.sleep(20)
        out.stop()
        sent.room.set()
        await asyncio.sleep(100)
        assert sent.all == []

    run(test())


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_says_what_its_clients_take(name: str) -> None:
    sign = DIALECTS[name].keep_alive
    assert sign == SIGNS.get(name, sign)
    assert sign == b"" or sign.endswith(b"\n\n")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


COMBOS: dict[str, Any] = {
    "daily": {"models": ["one/m", "two/good"], "timeouts": {"stall": 5}},
    "alone": {"models": ["one/m"]},
    "full": {"models": ["one/m"], "streamGuard": "full"},
    "brief": {"models": ["one/m"], "timeouts": {"total": 0.3}},
}


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    settings, env = provider_settings(upstream.url, one="a", two="x")
    home, edges = tmp_path_factory.mktemp("home"), {"keep_alive": 0.02}
    with Krouter(home, combos=COMBOS, settings=settings, env=env, edges=edges) as krouter:
        yield krouter


@pytest.fixture
def krouter(served: Krouter, upstream: Upstream) -> Krouter:
    upstream.clear()
    served.forget()
    served.router.routes.clear()
    return served


def streamed(
    krouter: Krouter, dialect: str, model: str, once: Callable[[], None] = lambda: None
) -> tuple[httpx.Response, bytes]:
    """A reply and its body; `once` is called at the second sign of life."""
    said = [{"role": "user", "content": "hello"}]
    body = {"model": model, "max_tokens": 9, "messages": said, "stream": True}
    seen = b""
    with krouter.http.stream("POST", PATHS[dialect], json=body) as reply:
        for piece in reply.iter_raw():
            before, seen = seen.count(SIGNS[dialect]), seen + piece
            if before < 2 <= seen.count(SIGNS[dialect]):
                once()
    krouter.idle()
    return reply, seen


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize(
    ("does", "model"),
    [
        ("gate=g", "alone"),
        ("gate=g,0", "alone"),
        ("gate=g,3", "alone"),
        ("gate=g,3", "full"),
        ("gate=g;status=500", "daily"),
        ("gate=g,0;error=0;status=529", "daily"),
    ],
)
def test_a_late_answer_comes_after_them(
    krouter: Krouter, upstream: Upstream, dialect: str, does: str, model: str
) -> None:
    upstream.script("m", [does])
    reply, raw = streamed(krouter, dialect, model, upstream.gate("g").open)
    assert CHECKS[dialect](raw).ending == "complete"
    early = does != "gate=g,3" or model == "full"
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["x-krouter-route"] == krouter.last_route["id"]
    assert ("x-krouter-model" not in reply.headers) is early
    assert bool(krouter.last_route["notes"]) is early
    assert krouter.last_route["served"] == ("two/good" if model == "daily" else "one/m")
    assert krouter.last_route["outcome"] == "answered"


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize(
    ("does", "model", "status", "said"),
    [
        ("gate=g;status=503;message=full%20house", "alone", 503, "full house"),
        ("gate=g;status=400;message=too%20odd", "alone", 400, "too odd"),
        ("gate=g,0;close=0", "alone", 502, "The provider's reply was cut short"),
        ("gate=never", "brief", 504, "The provider did not answer in time"),
        ("gate=g,4;close=4", "full", 502, "The provider's reply was cut short"),
    ],
)
def test_an_error_after_them_is_an_event(
    krouter: Krouter,
    upstream: Upstream,
    dialect: str,
    does: str,
    model: str,
    status: int,
    said: str,
) -> None:
    upstream.script("m", [does])
    reply, raw = streamed(krouter, dialect, model, upstream.gate("g").open)
    assert reply.status_code == 200
    assert CHECKS[dialect](raw).ending == "error"
    name, data = events(raw.decode().replace(SIGNS["chat"].decode(), ""))[-1]
    error = json.loads(data)["error"]
    assert name == ("error" if dialect == "messages" else "")
    assert error["message"].startswith(said)
    assert error["krouter_route"] == krouter.last_route["id"]
    assert krouter.last_route["status"] == status
    assert "retry-after" not in reply.headers


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("does", ["gate=g", "gate=g,3"])
def test_a_caller_that_leaves_after_them(
    krouter: Krouter, upstream: Upstream, dialect: str, does: str
) -> None:
    upstream.script("m", [does])
    caller = Caller(krouter, dialect, "alone")
    assert upstream.gate("g").reached.wait(30)
    caller.read_until(SIGNS[dialect])
    caller.leave()
    assert upstream.requests[0].closed.wait(1)
    krouter.idle()
    assert krouter.last_route["outcome"] == "caller gone"
    assert krouter.locks() == {}


@pytest.mark.parametrize("dialect", PATHS)
def test_a_reply_that_is_not_streamed_gets_none(
    krouter: Krouter, upstream: Upstream, dialect: str
) -> None:
    upstream.script("m", ["slow-headers=0.1"])
    reply = krouter.ask(dialect, "alone")
    assert reply.headers["x-krouter-model"] == "one/m"
    assert reply.json()


def test_a_fault_of_krouters_own_after_them_is_an_event(start: Start, upstream: Upstream) -> None:
    def log(tag: str, line: str) -> None:
        if "server error" in line:
            raise ValueError("a fault")

    upstream.clear()
    krouter = start("one/gate:gate=g;status=500", edges={"keep_alive": 0.02, "log": log})
    _, raw = streamed(krouter, "chat", "daily", upstream.gate("g").open)
    assert json.loads(events(raw.decode().replace(": keep-alive\n\n", ""))[-1][1])["error"]
