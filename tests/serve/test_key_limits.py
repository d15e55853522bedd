"""A key with limits: what it may ask for, how often, and for how much money."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anthropic
import httpx
import openai
import pytest
from hypothesis import given

from krouter.body import Body
from krouter.cli.serve import Printer
from krouter.keys import Limits, add_key, list_keys, remove_key
from krouter.ledger_reader import Filter, LedgerReader
from krouter.serve.limits import Limiter
from krouter.spending import Spending, read_spent
from tests.harness import Clock, Krouter, Start
from tests.late_routes import Told, tellings
from tests.upstream import Upstream

ALIASES = '[aliases]\nquick = "daily"\n"claude-haiku-*" = "daily"\n"gpt-5*" = "other"\n'
COMBOS: dict[str, Any] = {
    "daily": {"models": ["one/ok", "combo/inner"]},
    "inner": {"models": ["two/x"]},
    "other": {"models": ["two/y"]},
}
DIALECTS = ("chat", "messages", "responses", "gemini")
QUARTER = "ok:usage=100000,0"
"""Costs 0.25 dollars, as `PRICED`."""
PRICED = "openai/gpt-4o"

ENV = {"OPENAI_API_KEY": "fake", "ANTHROPIC_API_KEY": "fake"}

Lock = Callable[..., Krouter]


@pytest.fixture
def locked(start: Start, tmp_path: Path, upstream: Upstream) -> Lock:
    """A krouter asked with the key `laptop`, which has the limits that are given."""

    def begin(settings: str = "", ledger: bool = False, **limits: Any) -> Krouter:
        token = add_key(tmp_path / "keys.json", "laptop", 0.0, limits=Limits(**limits))
        openai_ = f'[provider.openai]\nbase_url = "{upstream.url}/v1"\n'
        krouter = start(
            combos=COMBOS,
            settings=openai_ + ALIASES + settings,
            env=ENV,
            ledger=ledger,
        )
        krouter.http.headers["x-krouter-key"] = token
        return krouter

    return begin


def message_of(reply: httpx.Response) -> str:
    return str(reply.json()["error"]["message"])


# Models


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"models": ["anthropic/claude-opus-4"]}, "models"),
        ({"models": "x"}, "models"),
        ({"fallbacks": [{"model": "x"}]}, "fallbacks"),
        ({"extra_body": {"models": ["x"]}}, "extra_body.models"),
        ({"tools": [{"type": "image_generation", "model": "gpt-image-1"}]}, "tools[0].model"),
        ({"models": [], "fallbacks": None, "extra_body": {"models": []}}, ""),
    ],
)
def test_a_body_names_no_further_models(
    locked: Lock, upstream: Upstream, fields: dict[str, Any], named: str
) -> None:
    krouter = locked(models=["daily"])
    for dialect in DIALECTS:
        reply = krouter.ask(dialect, "daily", **fields)
        assert reply.status_code == (403 if named else 200)
        assert not named or f"so `{named}` may name no others" in message_of(reply)
    assert bool(upstream.requests) is not bool(named)


def test_a_key_for_all_models_may_name_further_ones(locked: Lock, upstream: Upstream) -> None:
    krouter = locked(rpm=9)
    assert krouter.chat("daily", models=["x/y"]).status_code == 200
    assert b'"models":["x/y"]' in upstream.requests[0].body


@pytest.mark.parametrize(
    ("models", "asked", "is_let_in"),
    [
        (["daily"], "daily", True),
        (["daily"], "combo/daily", True),
        (["daily"], "claude-daily", True),
        (["daily"], "quick", True),
        (["daily"], "claude-haiku-4-5", True),
        (["daily"], "other", False),
        (["daily"], "inner", False),
        (["daily"], "claude-other", False),
        (["daily"], "one/ok", False),
        (["daily"], "gpt-5.1", False),
        (["daily"], "no-such-thing", False),
        (["daily"], "daily" + "y" * 10_000, False),
        (["quick"], "quick", True),
        (["quick"], "daily", False),
        (["gpt-5*"], "gpt-5.1", True),
        (["claude-*"], "claude-haiku-4-5", True),
        (["claude-*"], "claude-other", False),
        (["claude-other"], "claude-other", True),
        (["combo/*"], "other", True),
        (["one/*"], "one/ok", True),
        (["one/*"], "two/x", False),
        (["*"], "two/x", True),
        (["daily", "two/?"], "two/x", True),
    ],
)
def test_a_key_is_for_its_models(
    locked: Lock, upstream: Upstream, models: list[str], asked: str, is_let_in: bool
) -> None:
    krouter = locked(models=models)
    for dialect in DIALECTS:
        reply = krouter.ask(dialect, asked)
        assert reply.status_code == (200 if is_let_in else 403), reply.text
    assert bool(upstream.requests) is is_let_in


def test_a_model_that_is_not_the_keys_is_refused_in_the_callers_dialect(locked: Lock) -> None:
    krouter = locked(models=["daily", "one/*"])
    told = "The key 'laptop' may not ask for 'other', but for daily, one/*."
    for dialect in ("chat", "responses"):
        error = krouter.ask(dialect, "other").json()["error"]
        assert error == {
            "message": told,
            "type": "invalid_request_error",
            "param": None,
            "code": "model_not_found",
        }
    assert krouter.messages("other").json() == {
        "type": "error",
        "error": {"type": "permission_error", "message": told},
    }
    error = krouter.gemini("other").json()["error"]
    assert error == {"code": 403, "status": "PERMISSION_DENIED", "message": told}
    body: dict[str, Any] = {"model": "other", "input": "hello"}
    reply = krouter.http.post("/v1/embeddings", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "model_not_found")
    body = {"model": "other", "messages": [{"role": "user", "content": "hello"}]}
    reply = krouter.http.post("/v1/messages/count_tokens", json=body)
    assert (reply.status_code, reply.json()["error"]["type"]) == (403, "permission_error")
    key = krouter.http.headers["x-krouter-key"]
    with (
        openai.OpenAI(base_url=f"{krouter.url}/v1", api_key=key) as client,
        pytest.raises(openai.PermissionDeniedError, match="may not ask"),
    ):
        client.chat.completions.create(
            model="other", messages=[{"role": "user", "content": "hello"}]
        )
    with (
        anthropic.Anthropic(base_url=krouter.url, api_key=key) as claude,
        pytest.raises(anthropic.PermissionDeniedError, match="may not ask"),
    ):
        claude.messages.create(
            model="other", max_tokens=9, messages=[{"role": "user", "content": "hello"}]
        )


def test_only_the_keys_models_are_listed(locked: Lock) -> None:
    krouter = locked(models=["daily", "two/*", "one/unheard-of"])
    get = krouter.http.get
    names = [each["id"] for each in get("/v1/models").json()["data"]]
    assert names == ["daily", "quick", "two/x", "two/y", "one/unheard-of"]
    claudes = get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()["data"]
    assert [each["id"] for each in claudes] == ["daily", "quick", "claude-daily"]
    googles = get("/v1beta/models").json()["models"]
    assert [each["displayName"] for each in googles] == names
    for listed in ("/v1/models", "/v1beta/models"):
        assert get(f"{listed}/daily").status_code == 200
        assert get(f"{listed}/claude-haiku-1").status_code == 200
        for other in ("other", "one/ok", "othr", "dail", "wto/x", "combo/othr", "nowhere/x"):
            reply = get(f"{listed}/{other}")
            assert reply.status_code == 403, other
            assert message_of(reply) == (
                f"The key 'laptop' may not ask for {other!r}, but for daily, two/*, one/unheard-of."
            )


def test_no_name_is_suggested_that_a_key_may_not_ask_for(locked: Lock) -> None:
    krouter = locked(models=["oth*"])
    assert krouter.http.get("/v1/models/other").status_code == 200
    for listed in ("/v1/models", "/v1beta/models"):
        reply = krouter.http.get(f"{listed}/othr")
        assert (reply.status_code, message_of(reply)) == (404, "Unknown model 'othr'.")
    for dialect in DIALECTS:
        reply = krouter.ask(dialect, "othr")
        assert (reply.status_code, message_of(reply)) == (404, "Unknown model 'othr'.")


def test_health_tells_a_key_with_limits_what_it_tells_anybody(locked: Lock, tmp_path: Path) -> None:
    krouter = locked(rpm=9)
    limited = krouter.http.get("/health").json()
    assert limited == httpx.get(f"{krouter.url}/health").json()
    whole = add_key(tmp_path / "keys.json", "desk", 0.0)
    krouter.served.house.keys.reload()
    krouter.http.headers["x-krouter-key"] = whole
    assert {"home", "problems"} <= krouter.http.get("/health").json().keys()


def test_a_key_with_limits_is_for_models_alone(locked: Lock, tmp_path: Path) -> None:
    krouter = locked(rpm=1000)
    for path in ("/api/routes", "/api/routes/x", "/api/quota", "/metrics", "/openapi.json"):
        reply = krouter.http.get(path)
        assert reply.status_code == 403, path
        assert "takes a key without limits" in message_of(reply)
    assert krouter.http.post("/api/quota", json={}).status_code == 403
    for path in ("/", "/v1/models", "/v1beta/models", "/health"):
        assert krouter.http.get(path).status_code == 200, path


# Requests a minute


def test_a_rate_holds_for_all_dialects_together(locked: Lock, upstream: Upstream) -> None:
    krouter = locked(rpm=4)
    for dialect in DIALECTS:
        assert krouter.ask(dialect, "daily").status_code == 200
        krouter.clock.forward(5)
    asked = len(upstream.requests)
    for dialect in DIALECTS:
        reply = krouter.ask(dialect, "daily", stream=True)
        assert reply.status_code == 429
        assert reply.headers["retry-after"] == "40"
        assert "x-should-retry" not in reply.headers
        assert message_of(reply) == (
            "The key 'laptop' may make 4 requests a minute; the next in 40 s."
        )
    assert krouter.chat("daily").json()["error"]["code"] == "rate_limit_exceeded"
    assert krouter.messages("daily").json()["error"]["type"] == "rate_limit_error"
    error = krouter.gemini("daily").json()["error"]
    assert (error["code"], error["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert error["details"] == [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "40s"}
    ]
    assert len(upstream.requests) == asked
    assert krouter.http.get("/v1/models").status_code == 200
    krouter.clock.forward(40)
    assert krouter.chat("daily").status_code == 200
    assert krouter.chat("daily").status_code == 429


def test_counts_and_embeddings_are_requests(locked: Lock) -> None:
    krouter = locked(rpm=2)
    body = {"model": "daily", "messages": [{"role": "user", "content": "hello"}]}
    assert krouter.http.post("/v1/messages/count_tokens", json=body).status_code == 200
    reply = krouter.http.post("/v1/embeddings", json={"model": "one/ok", "input": "hello"})
    assert reply.status_code == 200
    assert krouter.chat("daily").status_code == 429


def test_each_key_has_a_rate_of_its_own(locked: Lock, tmp_path: Path) -> None:
    other = add_key(tmp_path / "keys.json", "desk", 0.0)
    krouter = locked(rpm=1)
    assert krouter.chat("daily").status_code == 200
    assert krouter.chat("daily").status_code == 429
    krouter.http.headers["x-krouter-key"] = other
    assert [krouter.chat("daily").status_code for _ in range(3)] == [200, 200, 200]
    assert any("KEY laptop: 429" in line for line in krouter.lines)


# Money


def test_a_budget_is_spent_and_begins_anew(locked: Lock, upstream: Upstream) -> None:
    upstream.script("gpt-4o", [QUARTER])
    krouter = locked(budget="0.50/day")
    for _ in range(2):
        assert krouter.chat(PRICED).status_code == 200
    asked = len(upstream.requests)
    told = (
        "The key 'laptop' has spent its budget: $0.5000 of $0.5/day. It may go on at"
        " 2027-01-16T00:00:00Z."
    )
    for dialect in DIALECTS:
        reply = krouter.ask(dialect, PRICED)
        assert reply.status_code == 429
        assert message_of(reply) == told
        assert reply.json()["error"]["krouter_resets_at"] == "2027-01-16T00:00:00Z"
        assert reply.headers["x-should-retry"] == "false"
        assert "retry-after" not in reply.headers
    for dialect in ("chat", "responses"):
        error = krouter.ask(dialect, PRICED).json()["error"]
        assert error["type"] == error["code"] == "insufficient_quota"
    assert krouter.messages(PRICED).json()["error"]["type"] == "rate_limit_error"
    (info,) = krouter.gemini(PRICED).json()["error"]["details"]
    assert info["retryDelay"] == f"{16 * 3600}s"
    embedded = krouter.http.post("/v1/embeddings", json={"model": "one/ok", "input": "hello"})
    assert embedded.status_code == 429
    body = {"model": "daily", "messages": [{"role": "user", "content": "hello"}]}
    counted = krouter.http.post("/v1/messages/count_tokens", json=body)
    assert counted.status_code == 200  # it costs nothing
    assert len(upstream.requests) == asked
    krouter.clock.forward(16 * 3600 - 30)
    assert krouter.chat(PRICED).headers["retry-after"] == "30"
    krouter.clock.forward(30)
    assert krouter.chat(PRICED).status_code == 200


def test_a_budget_outlives_a_restart(locked: Lock, upstream: Upstream, tmp_path: Path) -> None:
    upstream.script("gpt-4o", [QUARTER])
    krouter = locked(budget="0.25/week")
    assert krouter.chat(PRICED).status_code == 200
    again = Krouter(tmp_path, settings=(tmp_path / "krouter.toml").read_text(), env=ENV)
    with again:
        again.http.headers["x-krouter-key"] = krouter.http.headers["x-krouter-key"]
        assert again.chat(PRICED).status_code == 429


def test_a_request_under_way_is_finished(locked: Lock, upstream: Upstream) -> None:
    upstream.script("gpt-4o", ["ok:usage=100000,0;gate=late,1", QUARTER])
    krouter = locked(budget="0.10/day")
    key = krouter.http.headers["x-krouter-key"]

    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=f"{krouter.url}/v1", api_key=key) as client:
            ask = client.chat.completions.create
            messages: Any = [{"role": "user", "content": "hello"}]
            stream = await ask(model=PRICED, messages=messages, stream=True, extra_body={"n": 1})
            pieces = aiter(stream)
            await anext(pieces)
            await ask(model=PRICED, messages=messages)  # spends the budget
            with pytest.raises(openai.RateLimitError, match="spent its budget"):
                await ask(model=PRICED, messages=messages)
            upstream.gate("late").open()
            text = [each async for each in pieces]
            assert text[-1].choices == [] or text[-1].choices[0].finish_reason == "stop"

    asyncio.run(main())
    assert [each["outcome"] for each in map(as_json, krouter.router.routes)] == ["answered"] * 2


def as_json(route: Any) -> dict[str, Any]:
    found: dict[str, Any] = route.as_json()
    return found


def test_what_has_no_known_price_is_told_apart(locked: Lock, tmp_path: Path) -> None:
    krouter = locked(budget="0.01/day")
    for _ in range(3):
        assert krouter.chat("daily").status_code == 200
    (key,) = list_keys(tmp_path / "keys.json")
    assert read_spent(tmp_path / "spending.db", key.id, 0) == (0, 3)


def test_a_file_that_cannot_be_written_holds_up_nothing(
    locked: Lock, upstream: Upstream, tmp_path: Path
) -> None:
    (tmp_path / "spending.db").mkdir()
    upstream.script("gpt-4o", [QUARTER])
    krouter = locked(budget="0.50/day")
    assert krouter.chat(PRICED).status_code == 200
    assert krouter.chat(PRICED).status_code == 200
    assert krouter.chat(PRICED).status_code == 429
    krouter.http.headers["x-krouter-key"] = add_key(tmp_path / "keys.json", "desk", 0.0)
    krouter.served.house.keys.reload()
    health = krouter.http.get("/health").json()
    assert health["status"] == "degraded"
    assert any("spending.db" in each for each in health["problems"])
    (line,) = [line for line in krouter.lines if "spending.db" in line]
    assert line.startswith("SPENDING ")


@given(tellings("id"))
def test_late_calls_are_spent_once(told: list[Told]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, clock = Path(folder) / "keys.json", Clock()
        add_key(path, "laptop", 0.0, limits=Limits(budget="1/day"))
        spending = Spending(Path(folder) / "spending.db", clock)
        limiter = Limiter(spending, clock)
        (key,) = list_keys(path)
        limiter.begin(told[0][0], key, Body.parse(b"{}"), lambda attempt: None)
        limiter.book(told[0][0])
        for route, news in told[1:]:
            limiter.amend(route, news)
        attempts = told[-1][0].attempts
        cost, unpriced = sum(a.cost or 0 for a in attempts), sum(a.is_unpriced for a in attempts)
        assert spending.since(list_keys(path)[0].id, 0) == (cost, unpriced)
        limiter.close()


def begun(krouter: Krouter, body: bytes) -> socket.socket:
    """A caller that has sent all but the last byte of its request."""
    host, port = urlsplit(krouter.url).netloc.split(":")
    caller = socket.create_connection((host, int(port)), timeout=60)
    key = krouter.http.headers["x-krouter-key"]
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-krouter-key: {key}\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\nexpect: 100-continue\r\n\r\n"
    )
    caller.sendall(head.encode())
    assert b"100" in caller.recv(100)  # it is being read
    caller.sendall(body[:-1])
    return caller


def ended(caller: socket.socket, body: bytes) -> int:
    """The status that the last byte brings."""
    with caller:
        caller.sendall(body[-1:])
        said = b""
        while piece := caller.recv(1 << 16):
            said += piece
    return int(said.split()[1])


@pytest.mark.parametrize("limit", [{"rpm": 2}, {"budget": "0.50/day"}])
def test_bodies_cannot_be_stored_up(
    locked: Lock, upstream: Upstream, limit: dict[str, Any]
) -> None:
    upstream.script("gpt-4o", [QUARTER])
    krouter = locked(**limit)
    body = b'{"model": "openai/gpt-4o", "messages": [{"role": "user", "content": "hi"}]}'
    callers = [begun(krouter, body) for _ in range(5)]
    assert [ended(caller, body) for caller in callers] == [200, 200, 429, 429, 429]
    assert len(upstream.requests) == 2


def test_embeddings_are_charged(locked: Lock, tmp_path: Path) -> None:
    krouter = locked(budget="9/day")
    body = {"model": "openai/text-embedding-3-small", "input": "hello " * 1000}
    assert krouter.http.post("/v1/embeddings", json=body).status_code == 200
    assert spent_of(krouter, tmp_path) == krouter.last_route["cost"] > 0
    assert krouter.last_route["notes"] == []


LONG = "word " * 40_000
"""About 57,000 tokens, which cost 0.14 dollars."""


def settled(krouter: Krouter) -> None:
    """Returns once every request that is over is booked, too."""
    krouter.idle()
    booked = threading.Event()
    krouter.loop.call_soon_threadsafe(booked.set)
    assert booked.wait(30)


def spent_of(krouter: Krouter, folder: Path) -> float:
    settled(krouter)
    (key,) = list_keys(folder / "keys.json")
    told = read_spent(folder / "spending.db", key.id, 0)
    assert told is not None
    assert told.unpriced == 0
    return told.cost / 1e12


def test_a_stream_that_its_caller_cuts_is_charged(
    locked: Lock, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script("gpt-4o", ["ok:chunks=500;gate=cut,100"])
    krouter = locked(budget="9/day")
    body = {"model": PRICED, "stream": True, "messages": [{"role": "user", "content": LONG}]}
    with krouter.http.stream("POST", "/v1/chat/completions", json=body) as reply:
        assert upstream.gate("cut").reached.wait(30)
        next(reply.iter_raw())
    assert 0.10 < spent_of(krouter, tmp_path) < 0.20
    (note,) = krouter.last_route["notes"]
    assert note.startswith("openai/gpt-4o: not all its tokens are known; about $0.1")
    (attempt,) = krouter.last_route["steps"]
    assert attempt["cost"] is None


def test_tokens_that_a_provider_told_before_its_caller_left_are_what_is_charged(
    locked: Lock, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script("claude-sonnet-4-5", ["ok:chunks=5000;usage=100000,5000;gate=cut,4000"])
    anthropic_ = f'[provider.anthropic]\nbase_url = "{upstream.url}/v1"\n'
    krouter = locked(anthropic_, budget="9/day")
    body = {
        "model": "anthropic/claude-sonnet-4-5",
        "max_tokens": 9,
        "stream": True,
        "messages": [{"role": "user", "content": "hello"}],
    }
    with krouter.http.stream("POST", "/v1/messages", json=body) as reply:
        pieces = reply.iter_raw()
        while not upstream.gate("cut").reached.wait(0):
            next(pieces)
    told = 0.30  # 100,000 tokens of input
    assert told + 0.015 < spent_of(krouter, tmp_path) < told + 0.08


def test_a_call_that_its_caller_leaves_is_charged(
    locked: Lock, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script("gpt-4o", ["ok:gate=never"])
    krouter = locked(budget="9/day")
    body = {"model": PRICED, "messages": [{"role": "user", "content": LONG}]}
    with pytest.raises(httpx.ReadTimeout):
        krouter.http.post("/v1/chat/completions", json=body, timeout=1)
    assert 0.10 < spent_of(krouter, tmp_path) < 0.20


def test_errors_are_free(locked: Lock, upstream: Upstream, tmp_path: Path) -> None:
    upstream.script("gpt-4o", ["status=400", "status=500", "reset"])
    krouter = locked(budget="9/day")
    for _ in range(3):
        assert krouter.chat(PRICED).status_code >= 400
    settled(krouter)
    assert not (tmp_path / "spending.db").exists()


def test_what_a_key_spends_is_its_own_though_another_has_its_name_by_then(
    locked: Lock, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script("gpt-4o", ["ok:usage=100000,0;gate=late,1"])
    krouter = locked(budget="9/day")
    path = tmp_path / "keys.json"
    (old,) = list_keys(path)
    body = {"model": PRICED, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    with krouter.http.stream("POST", "/v1/chat/completions", json=body) as reply:
        assert upstream.gate("late").reached.wait(30)
        remove_key(path, "laptop")
        add_key(path, "laptop", 0.0, limits=Limits(budget="1/day"))
        krouter.served.house.keys.reload()
        upstream.gate("late").open()
        reply.read()
    settled(krouter)
    (new,) = list_keys(path)
    assert read_spent(tmp_path / "spending.db", new.id, 0) == (0, 0)
    assert read_spent(tmp_path / "spending.db", old.id, 0) == (25 * 10**10, 0)


# Who asked


def test_a_route_names_the_key(locked: Lock, tmp_path: Path) -> None:
    krouter = locked(ledger=True)
    reply = krouter.chat("daily")
    krouter.idle()
    assert krouter.last_route["caller"] == "laptop"
    assert krouter.served.house.ledger is not None
    assert krouter.served.house.ledger.flush(30)
    reader = LedgerReader(tmp_path / "ledger.db")
    assert reader.route(reply.headers["x-krouter-route"]).caller == "laptop"
    assert [row.caller for row in reader.requests(Filter(caller="laptop"))] == ["laptop"]
    assert reader.requests(Filter(caller="desk")) == []
    assert [row.key for row in reader.usage("key")] == ["laptop"]


def test_without_keys_a_route_names_none(start: Start) -> None:
    krouter = start("one/ok")
    krouter.http.headers["x-api-key"] = "whatever"
    assert krouter.chat("daily").status_code == 200
    assert krouter.last_route["caller"] == ""


def test_a_trouble_with_what_is_spent_is_printed_without_being_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = Printer(all_steps=False)
    printer.open = True
    printer("SPENDING", "spending.db: full")
    printer("KEY", "laptop: 429")
    told = capsys.readouterr().err
    assert told.endswith("SPENDING spending.db: full\n")
    assert "laptop" not in told
