"""krouter's own refusals: what a client is told about asking again, and what it is to mend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from krouter.keys import add_key
from tests.harness import Krouter

BODY = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
UPGRADE = {"connection": "upgrade", "upgrade": "websocket"}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Krouter, Mapping[str, str]]]:
    """A krouter that asks for a key, and keys: good ones, and one with limits."""
    home = tmp_path_factory.mktemp("home")
    good = add_key(home / "keys.json", "laptop", 0.0)
    settings = '[server]\nbody_limit = 1\n[[account]]\nprovider = "cc"\nauth = "caller"\n'
    combos = {"mine": {"models": ["cc/claude-sonnet-4-6"]}}
    with Krouter(home, settings=settings, combos=combos) as krouter:
        yield krouter, {"x-krouter-key": good}


@pytest.mark.parametrize(
    ("status", "method", "path", "more"),
    [
        (401, "POST", CHAT, {"headers": {"x-krouter-key": ""}, "json": BODY}),
        (401, "POST", MESSAGES, {"headers": {"x-krouter-key": "kr-wrong"}, "json": BODY}),
        (401, "GET", "/v1/models", {"headers": {"x-krouter-key": "kr-wrong"}}),
        (401, "POST", MESSAGES, {"json": {**BODY, "model": "mine"}}),
        (400, "POST", CHAT, {"content": b"{"}),
        (400, "POST", CHAT, {"json": {"model": "demo"}}),
        (400, "GET", "/v1/models?limit=0", {"headers": {"anthropic-version": "2023-06-01"}}),
        (403, "POST", CHAT, {"headers": {"host": "evil.example"}, "json": BODY}),
        (404, "POST", MESSAGES, {"json": {**BODY, "model": "nothing"}}),
        (404, "POST", f"{MESSAGES}/count_tokens", {"json": {**BODY, "model": "nothing"}}),
        (404, "GET", "/v1/models/nothing", {}),
        (404, "GET", "/nothing", {}),
        (405, "GET", CHAT, {}),
        (413, "POST", MESSAGES, {"content": b" " * (1 << 20) + b"{}"}),
        (415, "POST", MESSAGES, {"headers": {"content-encoding": "zstd"}, "content": b"x"}),
        (426, "GET", "/v1/responses", {"headers": UPGRADE}),
    ],
)
def test_what_comes_back_each_time_says_not_to_ask_again(
    locked: tuple[Krouter, Mapping[str, str]],
    status: int,
    method: str,
    path: str,
    more: dict[str, Any],
) -> None:
    krouter, key = locked
    headers = {**key, **more.get("headers", {})}
    reply = krouter.http.request(method, path, **{**more, "headers": headers})
    assert reply.status_code == status
    assert reply.headers.get_list("x-should-retry") == ["false"]
    assert "retry-after" not in reply.headers


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/chat/completions", "POST"),
        ("/responses", "POST"),
        ("/messages", "POST"),
        ("/embeddings", "POST"),
        ("/models", "GET"),
        ("/models/demo", "GET"),
    ],
)
def test_a_base_url_without_its_version_is_said(
    locked: tuple[Krouter, Mapping[str, str]], path: str, method: str
) -> None:
    krouter, key = locked
    told = krouter.http.request(method, path, headers=key).json()["error"]["message"]
    assert told == f"There is nothing at {path}: the base URL lacks /v1."
    other = krouter.http.request(method, "/v2/models", headers=key).json()["error"]["message"]
    assert "base URL" not in other


def test_who_sends_no_key_is_told_how_to_send_one(
    locked: tuple[Krouter, Mapping[str, str]],
) -> None:
    told = locked[0].http.post(CHAT, json=BODY).json()["error"]["message"]
    assert "Authorization: Bearer KEY" in told
    assert "krouter keys add NAME" in told


@pytest.mark.parametrize("limit", ["abc", "", "1.5", "9" * 5000])
def test_what_an_admin_call_asks_for_wrongly_is_told_as_any_error(
    locked: tuple[Krouter, Mapping[str, str]], limit: str
) -> None:
    krouter, good = locked
    reply = krouter.http.get("/api/routes", params={"limit": limit}, headers=good)
    assert reply.status_code == 400
    assert reply.headers["x-should-retry"] == "false"
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("limit: ")
    assert "integer" in error["message"]
    anthropic = {**good, "anthropic-version": "2023-06-01"}
    reply = krouter.http.get("/api/routes", params={"limit": limit}, headers=anthropic)
    assert (reply.status_code, reply.json()["type"]) == (400, "error")


@pytest.mark.parametrize("path", ["/api/quota/", "/api/routes/", "/health/", "/v1/models/"])
def test_a_path_with_a_slash_too_many_leads_nowhere_else(
    locked: tuple[Krouter, Mapping[str, str]], path: str
) -> None:
    krouter, good = locked
    reply = krouter.http.get(path, headers=good)
    assert (reply.status_code, "location" in reply.headers) == (404, False)
    assert reply.json()["error"]["message"]
