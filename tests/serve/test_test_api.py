"""`POST /api/providers/NAME/test`: one small real request says whether an account works."""

from __future__ import annotations

from typing import Any

import pytest

from krouter.keys import Limits, add_key, change_key
from tests.harness import Krouter, Start, calls
from tests.upstream import Upstream


def ask(krouter: Krouter, account: str = "b", provider: str = "one", **more: Any) -> dict[str, Any]:
    reply = krouter.http.post(f"/api/providers/{provider}/test", json={"account": account, **more})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_exactly_that_account_is_asked_for_little(start: Start, upstream: Upstream) -> None:
    krouter = start("one/m", settings='[aliases]\n"one/*" = "daily"\n')
    told = ask(krouter)
    assert (told["ok"], told["status"], told["message"]) == (True, 200, "")
    assert (told["model"], told["seconds"] >= 0) == ("one/m", True)
    assert calls(upstream) == ["one-b m"]
    assert upstream.requests[0].json["max_tokens"] == 16
    route = krouter.http.get(f"/api/routes/{told['route']}").json()
    assert (route["asked"], route["served"]) == ("one/m", "one/m")


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_what_the_provider_says_is_told_and_locks_nothing(start: Start, status: int) -> None:
    krouter = start(f"one/x:status={status};message=no%20way")
    told = ask(krouter)
    assert (told["ok"], told["status"]) == (False, status)
    assert "no way" in told["message"]
    assert krouter.locks() == {}


def test_a_lock_does_not_stop_it_and_a_good_credential_ends_its_own(
    start: Start, upstream: Upstream
) -> None:
    krouter = start("one/m", accounts={"one": "b"})
    upstream.script("m", ["status=401", "ok"])
    krouter.chat("daily")
    assert list(krouter.locks()) == ["one/b/*"]
    assert ask(krouter)["ok"]
    assert krouter.locks() == {}


def test_the_cheapest_model_that_combos_name_is_asked(start: Start) -> None:
    combos = {"a": {"models": ["openai/gpt-4o", "openai/gpt-4o-mini", "openai/nobody-knows"]}}
    settings = '[provider.openai]\nbase_url = "{}/v1"\n'
    krouter = start("one/m", combos=combos, env={"OPENAI_API_KEY": "x"})
    toml = krouter.home / "krouter.toml"
    url = toml.read_text().partition('chat = "')[2].partition("/v1")[0]
    toml.write_text(toml.read_text() + settings.format(url))
    krouter.served.house.refresh()
    assert ask(krouter, "env", "openai")["model"] == "openai/gpt-4o-mini"
    assert ask(krouter, "env", "openai", model="gpt-4o")["model"] == "openai/gpt-4o"


def test_without_a_combo_a_model_that_is_known_is_asked(start: Start) -> None:
    krouter = start(combos={"z": {"models": ["two/m"]}})
    refused = krouter.http.post("/api/providers/one/test", json={"account": "a"})
    assert refused.status_code == 400
    assert "no model of one is known" in refused.json()["error"]["message"]
    assert ask(krouter, "default", "demo")["ok"]


@pytest.mark.parametrize(
    ("provider", "body", "status", "says"),
    [
        ("onne", {"account": "a"}, 404, "Did you mean 'one'?"),
        ("one", {"account": "z"}, 400, "one has a, b"),
        ("one", {}, 400, "$.account: required field is missing"),
        ("one", {"account": "a", "modl": "m"}, 400, "Did you mean 'model'?"),
        ("one", {"account": 1}, 400, "$.account"),
        ("one", [], 400, "should be an object"),
    ],
)
def test_what_cannot_be_tested_is_refused(
    start: Start, upstream: Upstream, provider: str, body: Any, status: int, says: str
) -> None:
    refused = start("one/m").http.post(f"/api/providers/{provider}/test", json=body)
    assert refused.status_code == status
    assert says in refused.json()["error"]["message"]
    assert upstream.requests == []


def test_a_missing_credential_is_told(start: Start, upstream: Upstream) -> None:
    krouter = start(
        "one/m", settings='[[account]]\nprovider="one"\nname="c"\nkey="env:NOT_THERE"\n'
    )
    told = ask(krouter, "c")
    assert told["ok"] is False
    assert "credential cannot be read" in told["message"]
    assert upstream.requests == []


def test_who_may(start: Start, upstream: Upstream) -> None:
    krouter = start("one/m")
    key = add_key(krouter.home / "keys.json", "full", 0.0)
    limited = add_key(krouter.home / "keys.json", "small", 0.0)
    change_key(krouter.home / "keys.json", "small", lambda key: Limits(rpm=5))
    krouter.served.house.keys.reload()
    for headers, status in (
        ({}, 401),
        ({"x-krouter-key": limited}, 403),
        ({"x-krouter-key": key, "origin": "https://evil.example"}, 403),
    ):
        reply = krouter.http.post("/api/providers/one/test", json={"account": "a"}, headers=headers)
        assert reply.status_code == status
    assert upstream.requests == []
