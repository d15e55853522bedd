"""Counting tokens: who counts, what is sent, and that it changes nothing of what is known."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.harness import Krouter, Start
from tests.upstream import Upstream

COUNT = "/v1/messages/count_tokens"
HELLO = [{"role": "user", "content": "How many tokens are these eleven or so words, please?"}]
COUNTS = "counts_tokens = true\n"


def count(krouter: Krouter, model: str, **fields: Any) -> httpx.Response:
    headers = fields.pop("headers", {})
    body = {"model": model, "messages": HELLO, **fields}
    return krouter.http.post(f"{COUNT}?beta=true", json=body, headers=headers)


def counting(upstream: Upstream) -> str:
    """A provider that counts, and one that does not."""
    return "".join(
        f'[provider.{name}]\nspeaks = ["messages"]\nbase_url = "{upstream.url}"\n{more}'
        f'[[account]]\nprovider = "{name}"\nname = "a"\nkey = "env:{name.upper()}_A"\n'
        for name, more in (("tells", COUNTS), ("silent", ""))
    )


ENV = {"TELLS_A": "tells-a", "SILENT_A": "silent-a"}


def test_the_provider_of_the_first_usable_entry_counts(start: Start, upstream: Upstream) -> None:
    krouter = start(
        "tells/ok:usage=1,1", "silent/m", settings=counting(upstream), accounts={}, env=ENV
    )
    reply = count(krouter, "daily", headers={"anthropic-beta": "x-2026"}, system="Be brief.")
    assert reply.status_code == 200
    (sent,) = upstream.requests
    assert sent.path == f"{COUNT}?beta=true"
    assert sent.credential == "tells-a"
    assert sent.header["anthropic-beta"] == "x-2026"
    assert sent.json == {"model": "ok:usage=1,1", "messages": HELLO, "system": "Be brief."}
    assert reply.json() == {"input_tokens": reply.json()["input_tokens"]}
    assert reply.headers["x-krouter-counted"] == "tells/ok:usage=1,1"
    assert not krouter.router.routes


@pytest.mark.parametrize(
    "model",
    [
        "silent/m",
        "tells/m:status=404",
        "tells/m:status=429;retry-after=9",
        "tells/m:garbage=html",
        "tells/m:reset",
        "tells/m:body=%7B%22input_tokens%22%3A%22many%22%7D",
    ],
)
def test_else_it_is_estimated_and_nothing_is_locked(
    start: Start, upstream: Upstream, model: str
) -> None:
    krouter = start(settings=counting(upstream), accounts={}, env=ENV)
    reply = count(krouter, model)
    assert reply.status_code == 200
    assert 10 <= reply.json()["input_tokens"] <= 30
    assert reply.headers["x-krouter-counted"] == "estimate"
    assert krouter.locks() == {}
    assert not krouter.router.routes
    assert krouter.router.world.board.in_flight == 0
    assert len(upstream.requests) == (0 if model.startswith("silent") else 1)


def test_one_that_speaks_no_messages_is_not_asked(start: Start, upstream: Upstream) -> None:
    text = f'[provider.chats]\nbase_url = "{upstream.url}/v1"\n{COUNTS}'
    krouter = start(settings=text, accounts={})
    assert count(krouter, "chats/m").headers["x-krouter-counted"] == "estimate"
    assert upstream.requests == []


def test_counts_turn_no_rotation(start: Start, upstream: Upstream) -> None:
    krouter = start("one/a", "two/b", strategy="round-robin")
    for _ in range(3):
        assert count(krouter, "daily").status_code == 200
    krouter.messages("daily")
    krouter.messages("daily")
    assert [request.model for request in upstream.requests] == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"model": "nothing", "messages": HELLO}, 404, "Unknown model 'nothing'"),
        ({"messages": HELLO}, 400, "'model' is missing"),
        ({"model": "one/a", "messages": "hello"}, 400, "a list of messages"),
    ],
)
def test_errors_are_anthropics(start: Start, body: Any, status: int, told: str) -> None:
    krouter = start("one/a")
    reply = krouter.http.post(COUNT, json=body)
    assert reply.status_code == status
    assert reply.json()["type"] == "error"
    assert told in reply.json()["error"]["message"]


def test_it_takes_post_alone(start: Start) -> None:
    krouter = start("one/a")
    assert krouter.http.get(COUNT).status_code == 405


def test_a_burst_is_answered_whole(start: Start) -> None:
    """As Claude Code's `/context` asks: 25 at once, with 200 kB each."""
    text = "def tokens(of: str) -> int:\n    return len(of) // 4\n" * 4_000
    body = json.dumps({"model": "daily", "messages": [{"role": "user", "content": text[:200_000]}]})
    krouter = start("one/a")
    with ThreadPoolExecutor(25) as callers:
        ask = lambda _: krouter.http.post(COUNT, content=body)  # noqa: E731
        replies = list(callers.map(ask, range(25)))
        assert {reply.status_code for reply in replies} == {200}
        (counted,) = {reply.json()["input_tokens"] for reply in replies}
    assert 45_000 < counted < 75_000


RESPONSES = "/v1/responses/input_tokens"
TURNS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one two"}]},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": "three"}'},
    {"type": "function_call_output", "call_id": "c", "output": "four five"},
]


@pytest.mark.parametrize(
    ("fields", "least", "most"),
    [
        ({"input": "How many tokens are these eleven or so words, please?"}, 10, 30),
        ({"input": TURNS, "instructions": "Be brief."}, 20, 45),
        ({"input": [*TURNS, {"type": "reasoning", "encrypted_content": "x" * 9000}]}, 20, 45),
    ],
)
def test_openais_count_is_an_estimate(
    start: Start, upstream: Upstream, fields: Any, least: int, most: int
) -> None:
    krouter = start("one/a")
    reply = krouter.http.post(RESPONSES, json={"model": "daily", **fields})
    assert reply.status_code == 200
    counted = reply.json().pop("input_tokens")
    assert least <= counted <= most
    assert reply.json() == {"object": "response.input_tokens", "input_tokens": counted}
    assert reply.headers["x-krouter-counted"] == "estimate"
    assert upstream.requests == []
    assert not krouter.router.routes


@pytest.mark.parametrize(
    ("fields", "status", "told"),
    [
        ({"model": "nothing", "input": "a"}, 404, "Unknown model 'nothing'"),
        ({"model": "one/a"}, 400, "'input' must be"),
        ({"model": "one/a", "input": "a", "previous_response_id": "r"}, 400, "has stored"),
    ],
)
def test_what_of_openais_cannot_be_counted(
    start: Start, fields: Any, status: int, told: str
) -> None:
    reply = start("one/a").http.post(RESPONSES, json=fields)
    assert reply.status_code == status
    assert told in reply.json()["error"]["message"]


def test_a_provider_that_counts_for_responses_is_asked(start: Start, upstream: Upstream) -> None:
    text = (
        f'[provider.tells]\nspeaks = ["responses"]\nbase_url = "{upstream.url}"\n{COUNTS}'
        'key = "env:K"\n'
    )
    krouter = start(settings=text, accounts={}, env={"K": "k-0"})
    body = "m:body=%7B%22input_tokens%22%3A77%7D"
    reply = krouter.http.post(RESPONSES, json={"model": f"tells/{body}", "input": "hello"})
    (sent,) = upstream.requests
    assert sent.path == RESPONSES
    assert reply.json()["input_tokens"] == 77
