"""Which account of a provider is asked, on real sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from krouter.keys import add_key
from krouter.ranking import AccountsSnapshot, order
from krouter.reporter import Report, Window
from krouter.router import SEEDS
from krouter.settings import AccountStrategy
from tests.harness import Krouter, Start, calls, provider_settings
from tests.upstream import Upstream


def used(upstream: Upstream) -> str:
    """The accounts that were asked, by their letters."""
    return "".join((request.credential or "")[-1] for request in upstream.requests)


def says(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def talks(krouter: Krouter, count: int, model: str = "daily", **fields: Any) -> None:
    """Calls that belong to as many conversations."""
    for number in range(count):
        assert krouter.chat(model, messages=says(f"talk {number}"), **fields).status_code == 200


def routing(strategy: str, limit: int = 3) -> str:
    return f'[routing]\naccount_strategy = "{strategy}"\naccount_sticky_limit = {limit}\n'


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_zenith_leaves_an_account_that_fails(
    start: Start, upstream: Upstream, dialect: str
) -> None:
    upstream.script("m", ["status=500", "ok"], key="one-a")
    krouter = start("one/m")
    krouter.ask(dialect, "daily")
    krouter.ask(dialect, "daily", messages=says("another"))
    assert used(upstream) == "abb"
    shown = krouter.last_route["accounts"]["1 one/m"]
    assert [each["account"] for each in shown] == ["b", "a"]
    assert shown[0]["score"] > shown[1]["score"]
    assert "health 100%" in shown[0]["reason"]


def test_zenith_looks_at_the_quota(start: Start, upstream: Upstream) -> None:
    krouter = start("one/m")
    figure = {"provider": "one", "account": "a", "model": "m", "remaining": 0.1}
    assert krouter.http.post("/api/quota", json=figure).status_code == 200
    krouter.chat("daily")
    assert used(upstream) == "b"
    assert "10% left" in krouter.last_route["accounts"]["1 one/m"][1]["reason"]


def test_fill_first_goes_by_priority_whatever_failed(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=500", "ok"], key="one-a")
    krouter = start("one/m", settings=routing("fill-first"))
    talks(krouter, 3)
    assert used(upstream) == "abaa"


def test_round_robin_with_its_own_sticky_limit(start: Start, upstream: Upstream) -> None:
    krouter = start("one/m", settings=routing("round-robin", 2), accounts={"one": "a b c"})
    for _ in range(7):
        krouter.chat("daily")
    assert used(upstream) == "aabbcca"


def test_the_rotations_of_combos_and_accounts_are_apart(start: Start, upstream: Upstream) -> None:
    krouter = start("one/m", "one/n", strategy="round-robin", settings=routing("round-robin", 1))
    for _ in range(3):
        krouter.chat("daily")
    assert calls(upstream) == ["one-a m", "one-b n", "one-a m"]


def test_a_request_takes_one_turn_of_a_provider(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=400"])
    krouter = start("one/m", "one/n", settings=routing("round-robin", 1))
    krouter.chat("daily")
    krouter.chat("daily")
    assert calls(upstream) == ["one-a m", "one-a n", "one-b m", "one-b n"]


def test_a_provider_has_a_strategy_of_its_own(start: Start, upstream: Upstream) -> None:
    text, env = provider_settings(upstream.url, one="a b", two="a b")
    own = 'account_strategy = "round-robin"\naccount_sticky_limit = 1\n'
    text = text.replace("[provider.two]\n", f"[provider.two]\n{own}")
    krouter = start(accounts={}, settings=text + routing("fill-first"), env=env)
    talks(krouter, 3, "one/m")
    talks(krouter, 3, "two/m")
    assert used(upstream) == "aaaaba"


@pytest.mark.parametrize("strategy", ["random", "p2c"])
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.6, 0.9])
def test_lots_follow_from_one_chance_a_request(
    start: Start, upstream: Upstream, strategy: AccountStrategy, chance: float
) -> None:
    krouter = start(
        "one/m",
        settings=routing(strategy),
        accounts={"one": "a b c"},
        edges={"chance": lambda: chance},
    )
    krouter.chat("daily")
    seed, priorities = int(chance * SEEDS), {"a": 1, "b": 2, "c": 3}
    assert used(upstream) == order(AccountsSnapshot(strategy, priorities, seed=seed))[0].account


# Conversations


SESSIONS: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"x-claude-code-session-id": "s-1"}, {}),
    ({"session-id": "s-1"}, {}),
    ({"thread-id": "s-1"}, {}),
    ({"x-session-id": "s-1"}, {}),
    ({"x-session-affinity": "s-1"}, {}),
    ({}, {"prompt_cache_key": "s-1"}),
    ({}, {"metadata": {"user_id": "user_1_account__session_0123456789"}}),
]


def turn(
    krouter: Krouter, text: str, headers: dict[str, str], fields: dict[str, Any]
) -> httpx.Response:
    body = {"model": "daily", "messages": says(text), **fields}
    return krouter.http.post("/v1/chat/completions", json=body, headers=headers)


@pytest.mark.parametrize(("headers", "fields"), SESSIONS)
def test_a_conversation_stays_where_it_was_served(
    start: Start, upstream: Upstream, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    upstream.script("m", ["status=429;retry-after=5", "ok"], key="one-a")
    krouter = start("one/m", settings=routing("fill-first"))
    turn(krouter, "first", headers, fields)
    krouter.clock.forward(6)
    turn(krouter, "second", headers, fields)
    turn(krouter, "another", {}, {})
    assert used(upstream) == "abba"
    krouter.clock.forward(899)
    turn(krouter, "third", headers, fields)
    krouter.clock.forward(901)
    turn(krouter, "fourth", headers, fields)
    assert used(upstream) == "abbaba"


def test_without_a_name_a_conversation_is_its_beginning(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=429;retry-after=5", "ok"], key="one-a")
    krouter = start("one/m", settings=routing("fill-first"))
    opening = [{"role": "system", "content": "be kind"}, *says("hello")]
    krouter.chat("daily", messages=opening)
    krouter.clock.forward(6)
    more = [*opening, {"role": "assistant", "content": "hi"}, *says("and?")]
    krouter.chat("daily", messages=more)
    krouter.chat("daily", messages=says("hello"))
    assert used(upstream) == "abba"
    reason = "serves this conversation"
    assert reason in krouter.router.routes[-2].as_json()["accounts"]["1 one/m"][0]["reason"]


def test_it_leaves_an_account_that_fails(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["ok", "status=500", "ok"], key="one-a")
    krouter = start("one/m", settings=routing("fill-first"))
    for _ in range(3):
        krouter.chat("daily")
    assert used(upstream) == "aabb"


def test_it_never_stays_in_a_rotation(start: Start, upstream: Upstream) -> None:
    krouter = start("one/m", settings=routing("round-robin", 1))
    for _ in range(4):
        krouter.chat("daily")
    assert used(upstream) == "abab"


# The caller's own credential


CALLER = "sk-ant-oat-of-the-caller"


def callers(url: str) -> tuple[str, dict[str, str]]:
    """`own` takes the caller's credential, `two` has one of its own."""
    text, env = provider_settings(url, own="", two="x")
    return f'{text}[[account]]\nprovider = "own"\nname = "me"\nauth = "caller"\n', env


def post(krouter: Krouter, model: str, headers: dict[str, str]) -> httpx.Response:
    body = {"model": model, "max_tokens": 9, "messages": says("hi")}
    return krouter.http.post("/v1/messages", json=body, headers=headers)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_it_goes_to_that_provider_and_to_no_other(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=529"])
    text, env = callers(upstream.url)
    krouter = start("own/m", "two/n", accounts={}, settings=text, env=env)
    assert post(krouter, "daily", bearer(CALLER)).status_code == 200
    assert calls(upstream) == [f"{CALLER} m", "two-x n"]
    assert upstream.requests[0].header["authorization"] == f"Bearer {CALLER}"
    assert CALLER not in str(upstream.requests[1].headers)
    assert CALLER not in str(krouter.lines) + str(krouter.last_route)


def test_without_one_the_entry_is_passed_over(start: Start, upstream: Upstream) -> None:
    text, env = callers(upstream.url)
    krouter = start("own/m", "two/n", accounts={}, settings=text, env=env)
    assert post(krouter, "daily", {}).status_code == 200
    assert calls(upstream) == ["two-x n"]
    assert krouter.last_route["steps"][0]["reason"] == "the caller sent no credential of its own"


def test_a_key_of_krouter_s_is_never_passed_on(
    start: Start, upstream: Upstream, tmp_path: Path
) -> None:
    key = add_key(tmp_path / "keys.json", "laptop", 0.0)
    text, env = callers(upstream.url)
    krouter = start("own/m", "two/n", accounts={}, settings=text, env=env)
    assert post(krouter, "daily", bearer(CALLER)).status_code == 401
    assert post(krouter, "daily", bearer(key)).status_code == 200
    assert calls(upstream) == ["two-x n"]
    both = {"x-krouter-key": key, **bearer(CALLER)}
    assert post(krouter, "daily", both).status_code == 200
    assert post(krouter, "daily", {"x-krouter-key": key, **bearer(key)}).status_code == 200
    assert calls(upstream)[1:] == [f"{CALLER} m", "two-x n"]
    assert key not in "".join(str(request.headers) for request in upstream.requests)


def test_one_caller_s_refused_credential_locks_out_no_other(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("m", ["status=401"], key="bad")
    text, env = callers(upstream.url)
    krouter = start("own/m", accounts={}, settings=text, env=env)
    assert post(krouter, "daily", bearer("bad")).status_code == 401
    assert krouter.locks() == {}
    assert post(krouter, "daily", bearer(CALLER)).status_code == 200


def test_an_account_whose_window_is_used_up_lets_others_go_first(
    start: Start, upstream: Upstream
) -> None:
    krouter = start("one/m", settings=routing("fill-first"))
    book, now = krouter.router.world.pool.quota, krouter.clock.now
    spent = Report(windows=(Window("5 h", 0.0, now + 50),))
    book.note("one", "a", spent, "polled")
    krouter.chat("daily")
    assert used(upstream) == "b"
    assert krouter.last_route["steps"][0]["reason"] == "locked"
    book.note("one", "b", spent, "polled")
    assert krouter.chat("daily", messages=says("another")).status_code == 200
    krouter.clock.forward(50)
    krouter.chat("daily", messages=says("a third"))
    assert used(upstream)[-1] == "a"


def test_what_befalls_one_caller_s_credential_locks_out_no_other(
    start: Start, upstream: Upstream
) -> None:
    text = '[[account]]\nprovider = "own"\nauth = "caller"\n'
    text += f'[provider.own]\nspeaks = ["chat"]\nbase_url = "{upstream.url}/v1"\n'
    krouter = start("own/m", settings=text)
    for does in ("status=429;retry-after=3600", "status=402", "status=403"):
        upstream.script("m", [does, "ok"], key="alice")
        for who, status in (("alice", int(does[7:10])), ("bob", 200)):
            body = {"model": "daily", "messages": says("hello")}
            mine = {"authorization": f"Bearer {who}"}
            reply = krouter.http.post("/v1/chat/completions", json=body, headers=mine)
            assert reply.status_code == status, (does, who)


def test_a_window_of_other_models_locks_nothing(start: Start, upstream: Upstream) -> None:
    krouter = start("one/m")
    book, now = krouter.router.world.pool.quota, krouter.clock.now
    book.note("one", "a", Report(windows=(Window("opus", 0.0, now + 50, "opus"),)), "polled")
    assert krouter.chat("daily").status_code == 200
