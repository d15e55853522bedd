"""The rules of the walk on real sockets: accounts, locks, retries, timeouts, limits, nesting."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from krouter.adapter import Adapter, Call, Target, load_lanes
from krouter.providers import Provider
from krouter.wire import Incoming, Wire
from tests.harness import Krouter, Start, calls, provider_settings
from tests.leaps import LeapingLoop
from tests.upstream import Upstream
from tests.upstream.script import Behaviour


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def skips(krouter: Krouter) -> list[str]:
    steps = krouter.last_route["steps"]
    return [
        f"{s['entry']} {s['account']}: {s['reason']}".replace(" :", ":")
        for s in steps
        if s["step"] == "skip"
    ]


def served(reply: httpx.Response) -> str | None:
    return reply.headers.get("x-krouter-model")


# Accounts


def test_accounts_go_by_priority(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=429"])
    text, env = provider_settings(upstream.url, one="a b c")
    ranks = {"a": 3, "b": 1, "c": 2}
    for name, rank in ranks.items():
        text = text.replace(f'name = "{name}"', f'name = "{name}"\npriority = {rank}')
    start("one/m", accounts={}, settings=text, env=env).chat("daily")
    assert calls(upstream) == ["one-b m", "one-c m", "one-a m"]


def test_an_entry_may_name_its_accounts_and_set_parameters(
    start: Start, upstream: Upstream
) -> None:
    entry = {"model": "one/m", "accounts": ["b"], "params": {"temperature": 0.1, "top_p": 1}}
    krouter = start(entry)
    krouter.chat("daily", temperature=0.9)
    [request] = upstream.requests
    assert request.credential == "one-b"
    assert (request.json["temperature"], request.json["top_p"]) == (0.1, 1)


def test_the_same_model_with_other_accounts_or_parameters_is_another_entry(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("m", ["status=400"])
    krouter = start(
        "one/m",
        "one/m",
        {"model": "one/m", "accounts": ["b"]},
        {"model": "one/m", "params": {"top_p": 1}},
    )
    krouter.chat("daily")
    assert calls(upstream) == ["one-a m", "one-b m", "one-a m"]
    assert skips(krouter) == ["one/m: listed before"]


def test_a_locked_account_is_skipped_with_its_reason(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=401", "ok"], key="one-a")
    krouter = start("one/m", settings='[routing]\naccount_strategy = "fill-first"\n')
    krouter.chat("daily")
    another = [{"role": "user", "content": "another conversation"}]
    krouter.chat("daily", messages=another)
    assert calls(upstream) == ["one-a m", "one-b m", "one-b m"]
    assert skips(krouter) == ["one/m a: locked"]
    assert krouter.last_route["steps"][0]["detail"] == "not signed in"
    krouter.clock.forward(120)
    krouter.chat("daily", messages=[{"role": "user", "content": "a third"}])
    assert calls(upstream)[-1] == "one-a m"


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_direct_call_has_the_same_account_layer(
    start: Start, upstream: Upstream, dialect: str
) -> None:
    upstream.script("m", ["status=429"], key="one-a")
    krouter = start()
    reply = krouter.ask(dialect, "one/m")
    assert calls(upstream) == ["one-a m", "one-b m"]
    assert served(reply) == "one/m"
    assert reply.headers["x-krouter-tried"] == "one/m: 429, rate limited"


@pytest.mark.parametrize("changes", [True, False])
def test_a_refused_credential_of_a_command_is_had_anew_once(
    start: Start, upstream: Upstream, tmp_path: Path, changes: bool
) -> None:
    upstream.script("m", ["status=401"], key="one-old")
    (tmp_path / "token").write_text("one-old")
    fetch = "echo one-new > token" if changes else "true"
    command = f"cd {tmp_path} && cat token && {fetch}"
    text = provider_settings(upstream.url, one="")[0]
    text += f'[[account]]\nprovider = "one"\nname = "oauth"\nkey = "command:{command}"\n'
    krouter = start("one/m", accounts={}, settings=text)
    reply = krouter.chat("daily")
    if changes:
        assert calls(upstream) == ["one-old m", "one-new m"]
        assert reply.status_code == 200
        assert krouter.locks() == {}
    else:
        assert calls(upstream) == ["one-old m"]
        assert reply.status_code == 401
        assert krouter.locks() == {"one/oauth/*": (7, 120.0)}


def test_a_new_credential_that_then_meets_an_overload_is_not_locked_as_refused(
    start: Start, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script("m", ["status=401"], key="one-old")
    upstream.script("m", ["status=529"], key="one-new")
    (tmp_path / "token").write_text("one-old")
    command = f"cd {tmp_path} && cat token && echo one-new > token"
    text = provider_settings(upstream.url, one="")[0]
    text += f'[[account]]\nprovider = "one"\nname = "oauth"\nkey = "command:{command}"\n'
    krouter = start("one/m", accounts={}, settings=text)
    assert krouter.chat("daily").status_code == 529
    assert krouter.locks() == {"one/oauth/m": (9, 2.0)}


def test_a_credential_that_cannot_be_read_is_skipped(start: Start, upstream: Upstream) -> None:
    text = '[[account]]\nprovider = "one"\nname = "c"\nkey = "command:false"\npriority = 1\n'
    krouter = start("one/m", settings=text)
    upstream.script("m", ["status=401"])
    krouter.chat("daily")
    assert "one/m c: credential cannot be read" in skips(krouter)
    assert krouter.router.world.board.in_flight == 0


# Everything locked


def test_soft_locks_are_ignored_when_nothing_else_is_left(start: Start, upstream: Upstream) -> None:
    upstream.script("busy", ["status=529", "status=529", "ok"])
    upstream.script("spent", ["status=402"])
    krouter = start("one/busy", "two/spent")
    assert krouter.chat("daily").status_code == 402
    before = len(upstream.requests)
    reply = krouter.chat("daily")
    assert calls(upstream)[before:] == ["one-a busy"]
    assert served(reply) == "one/busy"
    assert skips(krouter) == ["one/busy a: locked", "one/busy b: locked", "two/spent x: locked"]


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize(
    ("does", "wait", "retry"),
    [
        ("status=429;retry-after=7", "7", None),
        ("status=429;retry-after=60", "60", None),
        ("status=429;retry-after=61", None, "false"),
        ("status=402", None, "false"),
    ],
)
def test_all_locked_is_429(
    start: Start, upstream: Upstream, dialect: str, does: str, wait: str | None, retry: str | None
) -> None:
    upstream.script("m", [does])
    krouter = start("one/m")
    krouter.ask(dialect, "daily")
    reply = krouter.ask(dialect, "daily")
    assert len(upstream.requests) == 2
    assert reply.status_code == 429
    assert reply.headers.get("retry-after") == wait
    assert reply.headers.get("x-should-retry") == retry
    assert reply.headers["x-krouter-attempts"] == "0"
    assert reply.json()["error"]["krouter_tried"] == "one/m: skipped, locked"
    assert reply.json()["error"]["type"] == "rate_limit_error"


def test_all_locked_otherwise_has_the_stored_status(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=403"])
    krouter = start("one/m")
    krouter.chat("daily")
    reply = krouter.chat("daily")
    assert (reply.status_code, len(upstream.requests)) == (403, 2)
    assert reply.headers["x-should-retry"] == "false"


def test_retry_after_is_the_earliest_over_all_entries(start: Start, upstream: Upstream) -> None:
    upstream.script("late", ["status=429;retry-after=50"])
    upstream.script("soon", ["status=429;retry-after=9"])
    upstream.script("spent", ["status=402"])
    krouter = start("one/late", "one/soon", "two/spent")
    reply = krouter.chat("daily")
    assert (reply.status_code, reply.headers["retry-after"]) == (402, "9")
    krouter.clock.forward(4.5)
    reply = krouter.chat("daily")
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "5")


def test_a_server_error_locks_from_the_second_in_a_row(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=500", "ok", "status=500", "status=500", "ok"], key="one-a")
    krouter = start({"model": "one/m", "accounts": ["a"]}, "two/good")
    krouter.chat("daily")
    assert krouter.locks() == {}
    for _ in range(2):
        krouter.chat("daily")
    assert krouter.locks() == {}
    krouter.chat("daily")
    assert krouter.locks() == {"one/a/m": (10, 2.0)}
    krouter.clock.forward(2)
    assert served(krouter.chat("daily")) == "one/m"
    assert krouter.locks() == {}


@pytest.mark.parametrize("stream", [False, True])
def test_one_request_probes_after_a_lock(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor, stream: bool
) -> None:
    upstream.script("m", ["status=529", "gate=probe"], key="one-a")
    krouter = start({"model": "one/m", "accounts": ["a"]}, "two/good")
    krouter.chat("daily")
    krouter.clock.forward(2)
    probe = pool.submit(krouter.chat, "daily", stream)
    assert upstream.gate("probe").reached.wait(30)
    assert served(krouter.chat("daily")) == "two/good"
    assert skips(krouter) == ["one/m a: being probed"]
    krouter.clock.forward(10)
    follower = pool.submit(krouter.chat, "daily")
    upstream.wait(5)
    upstream.gate("probe").open()
    assert served(probe.result(30)) == served(follower.result(30)) == "one/m"
    krouter.idle()


def test_failures_under_way_together_count_once(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor
) -> None:
    upstream.script("m", ["gate=all;status=529"])
    krouter = start({"model": "one/m", "accounts": ["a"]})
    asked = [pool.submit(krouter.chat, "daily") for _ in range(4)]
    upstream.wait(4)
    upstream.gate("all").open()
    assert [future.result(30).status_code for future in asked] == [529] * 4
    assert krouter.locks() == {"one/a/m": (9, 2.0)}


# What the caller is told


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_providers_own_400_reaches_the_caller(
    start: Start, upstream: Upstream, dialect: str, stream: bool
) -> None:
    said = 'messages.1.role: "system"  is not  allowed\\u0021 — ünïcode'
    body = {
        "error": {
            "type": "invalid_request_error",
            "message": said,
            "param": "messages",
            "code": "invalid_role",
            "extra": {"kept": [1]},
        }
    }
    if dialect == "messages":
        body = {"type": "error", **body, "request_id": "req_1"}  # type: ignore[dict-item]
    upstream.script("m", [Behaviour(status=400, body=json.dumps(body).encode())])
    upstream.script("first", ["status=500"])
    krouter = start("two/first", "one/m")
    for name in ("one/m", "daily"):
        reply = krouter.ask(dialect, name, stream)
        told = reply.json()
        notes = {k: told["error"].pop(k) for k in ("krouter_tried", "krouter_route")}
        assert reply.status_code == 400
        assert told == body
        assert notes["krouter_tried"] == reply.headers["x-krouter-tried"]
    assert notes["krouter_tried"] == "two/first: 500, server error; one/m: 400, bad request"


def test_the_trail_is_at_most_a_kilobyte_and_holds_no_credential(
    start: Start, upstream: Upstream
) -> None:
    models = [f"one/{'very-' * 12}long-{number}" for number in range(20)]
    for model in models:
        upstream.script(model.partition("/")[2], ["status=400;message=one-a%20is%20no%20key"])
    krouter = start(*models)
    reply = krouter.chat("daily")
    trail = reply.headers["x-krouter-tried"]
    assert len(trail) == 1024
    assert trail.endswith("...")
    assert "one-a" not in reply.text
    assert reply.json()["error"]["message"] == "[credential] is no key"


def test_the_last_attempted_entrys_error_counts_not_the_last_entrys(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("m", ["status=422;message=mine"])
    krouter = start("one/m", "glm/at-all", accounts={"one": "a"})
    reply = krouter.chat("daily")
    assert (reply.status_code, reply.json()["error"]["message"]) == (422, "mine")
    assert "glm/at-all: skipped, no account" in reply.headers["x-krouter-tried"]


def test_a_model_name_cannot_forge_a_header(start: Start, upstream: Upstream) -> None:
    reply = start().chat("one/m\r\nset-cookie: a=b\r\n\r\n")
    assert "set-cookie" not in reply.headers
    assert "\r" not in reply.headers.get("x-krouter-model", "")


# Too large, refused


def test_too_large_tries_entries_with_a_larger_window(start: Start, upstream: Upstream) -> None:
    upstream.script("small", ["status=413"])
    upstream.script("middle", ["status=400;code=context_length_exceeded"])
    krouter = start(
        {"model": "one/small", "contextWindow": 8000},
        "one/unknown",
        {"model": "one/tiny", "contextWindow": 4000},
        {"model": "one/middle", "contextWindow": 16000},
        {"model": "one/equal", "contextWindow": 16000},
        {"model": "two/large", "contextWindow": 200_000},
        onTooLarge="larger",
    )
    assert served(krouter.chat("daily")) == "two/large"
    assert calls(upstream) == ["one-a small", "one-a middle", "two-x large"]
    assert [line.partition(": ")[2] for line in skips(krouter)] == ["window not larger"] * 3


def test_too_large_without_a_larger_window_is_returned(start: Start, upstream: Upstream) -> None:
    upstream.script("small", ["status=413"])
    upstream.script("tiny", ["status=529", "ok"])
    tiny = {"model": "two/tiny", "contextWindow": 4000}
    krouter = start(tiny, {"model": "one/small", "contextWindow": 8000}, onTooLarge="larger")
    assert krouter.chat("daily").status_code == 413
    reply = krouter.chat("daily")
    assert reply.status_code == 413
    assert calls(upstream)[2:] == ["one-a small"]  # a locked, smaller entry is not walked either


def test_a_refusal_is_returned_where_the_combo_says_so(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=400;code=content_filter;message=no"])
    krouter = start("one/m", "two/good", onRefusal="return")
    reply = krouter.chat("daily")
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, "no")
    assert calls(upstream) == ["one-a m"]


# Retries


class Sleeps:
    """Stands in for sleeping: notes how long, and takes no time."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def edges(sleeps: Sleeps, chance: float = 0.5) -> dict[str, Any]:
    return {"sleep": sleeps, "chance": lambda: chance}


@pytest.mark.parametrize("does", ["status=529", "status=500", "status=429", "reset"])
def test_retries_repeat_the_same_account(start: Start, upstream: Upstream, does: str) -> None:
    sleeps = Sleeps()
    upstream.script("m", [does, does, "ok"], key="one-a")
    krouter = start("one/m", "two/good", retries=2, edges=edges(sleeps))
    assert served(krouter.chat("daily")) == "one/m"
    assert calls(upstream) == ["one-a m"] * 3
    assert sleeps.slept == [0.75, 1.5]
    assert krouter.locks() == {}


def test_the_wait_before_a_retry_is_in_the_route(start: Start) -> None:
    sleeps = Sleeps()
    entry = {"model": "one/m:status=503;retry-after=3", "accounts": ["a"]}
    krouter = start(entry, "two/good", retries=1, edges=edges(sleeps))
    krouter.chat("daily")
    first, second, third = krouter.last_route["steps"]
    assert [first["wait"]] == [3.0] == sleeps.slept
    assert (second["wait"], third["wait"]) == (None, None)
    routes = [line for line in krouter.lines if line.startswith("ROUTE")]
    assert ": answered, 3 attempts, " in routes[0]
    krouter.chat("two/good")
    routes = [line for line in krouter.lines if line.startswith("ROUTE")]
    assert ": answered, 1 attempt, " in routes[1]


def test_retries_are_counted_for_each_account(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=529"])
    krouter = start("one/m", "two/good", retries=1, edges=edges(Sleeps()))
    assert served(krouter.chat("daily")) == "two/good"
    assert calls(upstream) == ["one-a m"] * 2 + ["one-b m"] * 2 + ["two-x good"]


@pytest.mark.parametrize(
    ("stated", "slept", "asked"), [("3", [3.0], 2), ("10", [10.0], 2), ("11", [], 1)]
)
def test_a_stated_wait_is_kept_if_it_is_short(
    start: Start, upstream: Upstream, stated: str, slept: list[float], asked: int
) -> None:
    sleeps = Sleeps()
    upstream.script("m", [f"status=429;retry-after={stated}"])
    krouter = start(
        {"model": "one/m", "accounts": ["a"]}, "two/good", retries=1, edges=edges(sleeps)
    )
    assert served(krouter.chat("daily")) == "two/good"
    assert sleeps.slept == slept
    assert calls(upstream).count("one-a m") == asked


@pytest.mark.parametrize("does", ["status=400", "status=402", "status=403", "status=413"])
def test_other_classes_are_not_retried(start: Start, upstream: Upstream, does: str) -> None:
    sleeps = Sleeps()
    upstream.script("m", [does])
    start({"model": "one/m", "accounts": ["a"]}, retries=3, edges=edges(sleeps)).chat("daily")
    assert calls(upstream) == ["one-a m"]
    assert sleeps.slept == []


def test_back_off_is_jittered_and_ends_with_the_time_there_is(
    start: Start, upstream: Upstream
) -> None:
    sleeps = Sleeps()
    upstream.script("m", ["status=529"])
    entry = {"model": "one/m", "accounts": ["a"]}
    timeouts = {"total": 5}
    krouter = start(entry, retries=9, timeouts=timeouts, edges=edges(sleeps, 1.0))
    assert krouter.chat("daily").status_code == 529
    assert sleeps.slept == [1, 2, 4]


# Timeouts

SILENT = {"firstByte": 0.15, "attempt": 0.15}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", ["settings", "combo", "entry"])
def test_a_silent_provider_is_left_for_the_next_entry(
    start: Start, upstream: Upstream, stream: bool, where: str
) -> None:
    upstream.script("m", ["stall"])
    text = "[timeouts]\nfirst_byte = 0.15\nattempt = 0.15\n" if where == "settings" else ""
    entry = {"model": "one/m", "timeouts": SILENT} if where == "entry" else "one/m"
    more = {"timeouts": SILENT} if where == "combo" else {}
    krouter = start(entry, "two/good", settings=text, leaps=True, **more)
    assert served(krouter.chat("daily", stream)) == "two/good"
    assert calls(upstream) == ["one-a m", "two-x good"]
    assert krouter.locks() == {"one/a/m": (11, 2.0)}
    assert upstream.requests[0].closed.wait(30)


@pytest.mark.parametrize("stream", [False, True])
def test_other_accounts_of_a_silent_provider_on_request(
    start: Start, upstream: Upstream, stream: bool
) -> None:
    upstream.script("m", ["stall"], key="one-a")
    limits = {**SILENT, "tryOtherAccounts": True}
    krouter = start("one/m", "two/good", timeouts=limits, leaps=True)
    assert served(krouter.chat("daily", stream)) == "one/m"
    assert calls(upstream) == ["one-a m", "one-b m"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_last_entrys_own_attempt_limit_holds_a_combos_does_not(
    start: Start, upstream: Upstream, stream: bool
) -> None:
    upstream.script("m", ["gate=late"])
    own = {"model": "one/m", "accounts": ["a"], "timeouts": SILENT}
    krouter = start(own, combos={"wide": {"models": ["two/m"], "timeouts": {"attempt": 0.05}}})
    reply = krouter.chat("daily", stream)
    assert reply.status_code == 504
    threading.Timer(0.2, upstream.gate("late").open).start()
    assert krouter.chat("wide", stream).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_an_entrys_total_bounds_its_attempts(
    start: Start, upstream: Upstream, stream: bool
) -> None:
    upstream.script("m", ["stall"])
    krouter = start({"model": "one/m", "timeouts": {"total": 0.15}}, "two/good", leaps=True)
    assert served(krouter.chat("daily", stream)) == "two/good"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_total_bounds_the_whole_walk(
    start: Start, upstream: Upstream, stream: bool, dialect: str
) -> None:
    upstream.script("m", ["status=529"])
    upstream.script("silent", ["stall"])
    krouter = start("one/m", "one/silent", "two/good", timeouts={"total": 0.3}, leaps=True)
    reply = krouter.ask(dialect, "daily", stream)
    assert reply.status_code == 504
    assert calls(upstream) == ["one-a m", "one-b m", "one-a silent"]
    assert set(krouter.locks()) == {"one/a/m", "one/b/m"}  # the deadline blames no account
    assert reply.headers["retry-after"] == "1"


def test_total_bounds_a_slow_credential(start: Start, upstream: Upstream) -> None:
    text = provider_settings(upstream.url, one="")[0]
    text += '[[account]]\nprovider = "one"\nkey = "command:sleep 5"\n'
    krouter = start("one/m", accounts={}, settings=text, timeouts={"total": 0.2})
    assert krouter.chat("daily").status_code == 504
    assert upstream.requests == []
    krouter.idle()


def test_a_provider_that_does_not_let_itself_be_connected_to(
    start: Start, upstream: Upstream
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        for _ in range(4):  # fills the backlog, so that the kernel drops what comes next
            filler = stack.enter_context(closing(socket.socket()))
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        text, _ = provider_settings(f"http://127.0.0.1:{full.getsockname()[1]}", deaf="")
        krouter = start("deaf/m", "two/good", settings=text, timeouts={"connect": 0.2})
        assert served(krouter.chat("daily")) == "two/good"
        assert krouter.locks() == {"deaf/default/m": (11, 2.0)}


def test_an_error_whose_body_never_comes_keeps_its_status(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=429;retry-after=9;reset=1"])
    krouter = start({"model": "one/m", "accounts": ["a"]})
    reply = krouter.chat("daily")
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "9")


# Empty replies


def test_an_empty_reply_is_passed_on_if_nothing_after_it_can_be_sent(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("m", ["empty=text"])
    upstream.script("spent", ["status=402"])
    krouter = start("one/m", "two/spent", combos={"spend": {"models": ["two/spent"]}})
    krouter.chat("spend")
    reply = krouter.chat("daily")
    assert reply.status_code == 200
    assert served(reply) == "one/m"
    assert reply.json()["x_upstream"] == {"kept": True}
    assert krouter.last_route["status"] == 200


def test_an_error_after_an_empty_reply_is_the_answer(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["empty=text;usage=7,3"])
    upstream.script("bad", ["status=500"])
    krouter = start("one/m", "two/bad")
    assert krouter.chat("daily").status_code == 500
    assert krouter.last_route["usage"]["input"] == 7  # counted, though the caller never saw it


# Nesting


def test_last_means_last_of_the_flattened_walk(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["empty=text"])
    inner = {"models": ["one/m"]}
    krouter = start("inner", "two/good", combos={"inner": inner, "tail": {"models": ["inner"]}})
    assert served(krouter.chat("daily")) == "two/good"
    reply = krouter.chat("tail")
    assert (reply.status_code, served(reply)) == (200, "one/m")


def test_three_levels_and_duplicates(start: Start, upstream: Upstream) -> None:
    upstream.script("m1", ["status=400"])
    upstream.script("m2", ["status=500"])
    combos = {
        "inner": {"models": ["one/m1", "one/m2"]},
        "middle": {"models": ["inner", "one/m1"]},
    }
    krouter = start("middle", "combo/inner", "two/good", combos=combos)
    assert served(krouter.chat("daily")) == "two/good"
    assert calls(upstream) == ["one-a m1", "one-a m2", "one-b m2", "two-x good"]
    assert skips(krouter) == ["one/m1: listed before"] * 2 + ["one/m2: listed before"]


def test_a_nested_too_large_goes_back_to_the_caller(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=413"])
    krouter = start("inner", "two/good", combos={"inner": {"models": ["one/m"]}})
    assert krouter.chat("daily").status_code == 413
    assert calls(upstream) == ["one-a m"]


def test_a_nested_refusal_is_one_failure_of_that_entry(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["status=400;code=content_filter"])
    inner = {"models": ["one/m", "one/other"], "onRefusal": "return"}
    krouter = start("inner", "two/good", combos={"inner": inner})
    assert served(krouter.chat("daily")) == "two/good"
    assert calls(upstream) == ["one-a m", "two-x good"]
    assert skips(krouter) == ["one/other: its combo returned a refusal"]


def test_an_outer_entrys_limit_bounds_the_nested_attempts(start: Start, upstream: Upstream) -> None:
    upstream.script("m", ["stall"])
    inner = {"models": ["one/m"], "timeouts": {"attempt": 100, "firstByte": 100}}
    outer = {"model": "inner", "timeouts": {"attempt": 0.15}}
    krouter = start("two/good", combos={"inner": inner, "bound": {"models": [outer]}}, leaps=True)
    assert krouter.chat("bound").status_code == 504


# Concurrency limits


def limited_krouter(start: Start, upstream: Upstream) -> Krouter:
    """`one` and `two` have one account each, which takes one call at a time."""
    text, env = provider_settings(upstream.url, one="a", two="x")
    return start(
        "one/m",
        "two/good",
        accounts={},
        settings=text.replace('name = "', 'max_concurrent = 1\nname = "'),
        env=env,
        combos={"only": {"models": ["one/m"]}, "both": {"models": ["one/m", "two/m"]}},
    )


def test_an_account_at_its_limit_is_skipped(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor
) -> None:
    upstream.script("m", ["gate=busy", "ok"], key="one-a")
    krouter = limited_krouter(start, upstream)
    first = pool.submit(krouter.chat, "daily")
    assert upstream.gate("busy").reached.wait(30)
    assert served(krouter.chat("daily")) == "two/good"
    assert skips(krouter) == ["one/m a: at its concurrency limit"]
    upstream.gate("busy").open()
    assert served(first.result(30)) == "one/m"


def test_callers_wait_in_line_when_nothing_else_is_left(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor
) -> None:
    upstream.script("m", ["gate=busy", "ok"])
    krouter = limited_krouter(start, upstream)
    asked: list[Future[httpx.Response]] = []
    for number in range(4):
        asked.append(pool.submit(krouter.chat, "only", user=str(number)))
        if number == 0:
            assert upstream.gate("busy").reached.wait(30)
        else:
            waits_in_line(krouter, number)
    assert len(upstream.requests) == 1
    upstream.gate("busy").open()
    assert [served(future.result(30)) for future in asked] == ["one/m"] * 4
    assert [request.json["user"] for request in upstream.requests] == ["0", "1", "2", "3"]
    trail = asked[-1].result().headers["x-krouter-tried"]
    assert trail == "one/m: waited, at its concurrency limit"
    krouter.idle()


def waits_in_line(krouter: Krouter, count: int) -> None:
    """Returns once `count` callers wait for the one account."""

    def waiting() -> int:
        return sum(len(queue) for queue in krouter.router.world.board._queues.values())

    for _ in range(5000):
        if waiting() >= count:
            return
        threading.Event().wait(0.001)
    raise AssertionError(f"{waiting()} of {count} wait")


def test_a_waiter_takes_whichever_account_is_free_first(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor
) -> None:
    upstream.script("m", ["gate=one", "ok"], key="one-a")
    upstream.script("m", ["gate=two", "ok"], key="two-x")
    krouter = limited_krouter(start, upstream)
    busy = [pool.submit(krouter.chat, "both") for _ in range(2)]
    upstream.wait(2)
    waiter = pool.submit(krouter.chat, "both")
    waits_in_line(krouter, 2)
    upstream.gate("two").open()
    assert served(waiter.result(30)) == "two/m"
    upstream.gate("one").open()
    assert {served(future.result(30)) for future in busy} == {"one/m", "two/m"}


def test_a_caller_that_leaves_the_line_does_not_hold_it_up(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor
) -> None:
    upstream.script("m", ["gate=busy", "ok"])
    krouter = limited_krouter(start, upstream)
    first = pool.submit(krouter.chat, "only")
    assert upstream.gate("busy").reached.wait(30)
    with httpx.Client(base_url=krouter.url, timeout=0.3) as hasty:
        body = {"model": "only", "messages": []}
        with pytest.raises(httpx.ReadTimeout):
            hasty.post("/v1/chat/completions", json=body)
    last = pool.submit(krouter.chat, "only")
    waits_in_line(krouter, 1)
    upstream.gate("busy").open()
    assert served(first.result(30)) == served(last.result(30)) == "one/m"
    assert len(upstream.requests) == 2
    krouter.idle()


def test_waiting_in_line_ends_with_the_requests_time(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor
) -> None:
    upstream.script("m", ["gate=busy"])
    krouter = limited_krouter(start, upstream)
    krouter.write_combo("hasty", {"models": ["one/m"], "timeouts": {"total": 0.2}})
    krouter.served.house.refresh()
    first = pool.submit(krouter.chat, "only")
    assert upstream.gate("busy").reached.wait(30)
    late = krouter.chat("hasty")
    assert (late.status_code, late.headers["retry-after"]) == (504, "1")
    told = late.json()["error"]["message"]
    assert "for a place at one/m (account a), which is at its concurrency limit" in told
    upstream.gate("busy").open()
    first.result(30)


# What cannot be sent


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_without_any_account_the_variables_are_named(
    start: Start, upstream: Upstream, dialect: str
) -> None:
    krouter = start("glm/glm-5.1", "anthropic/m")
    for name, variable in (("daily", "ANTHROPIC_API_KEY"), ("glm/glm-5.1", "GLM_API_KEY")):
        reply = krouter.ask(dialect, name)
        if dialect == "chat" and name == "daily":
            variable = "GLM_API_KEY"
        assert reply.status_code == 503
        assert variable in reply.json()["error"]["message"]
        assert reply.headers["x-should-retry"] == "false"


def test_an_entry_that_needs_translation_is_skipped(start: Start, upstream: Upstream) -> None:
    text = '[provider.chatty]\nbase_urls = { responses = "http://127.0.0.1:1/v1" }\n'
    native = {"lanes": load_lanes()[:2]}
    krouter = start("chatty/m", "two/good", settings=text, edges=native)
    assert served(krouter.messages("daily")) == "two/good"
    assert skips(krouter) == ["chatty/m: needs translation"]
    reply = krouter.messages("chatty/m")
    assert reply.status_code == 501
    assert "needs translation" in reply.json()["error"]["message"]
    assert reply.headers["x-should-retry"] == "false"


def test_a_caller_s_own_credential_goes_to_its_provider(start: Start, upstream: Upstream) -> None:
    text = '[[account]]\nprovider = "own"\nauth = "caller"\n'
    text += f'[provider.own]\nspeaks = ["chat"]\nbase_url = "{upstream.url}/v1"\n'
    krouter = start("own/m", settings=text)
    refused = krouter.chat("daily")
    assert refused.status_code == 401
    assert refused.json()["error"]["message"] == (
        "own/m is answered with the caller's own credential, and none was sent."
        " Send Authorization: Bearer with a token of that provider."
    )
    assert skips(krouter) == ["own/m default: the caller sent no credential of its own"]
    body = {"model": "daily", "messages": [{"role": "user", "content": "hello"}]}
    mine = {"authorization": "Bearer the-caller-s"}
    reply = krouter.http.post("/v1/chat/completions", json=body, headers=mine)
    assert served(reply) == "own/m"
    assert upstream.requests[-1].credential == "the-caller-s"


class Slow:
    """A lane that takes a while to be ready, on a loop that leaps."""

    name = "slow"

    def __init__(self, lane: Adapter) -> None:
        self.send = lane.send
        self.speaks = lane.speaks

    async def ready(self) -> None:
        cast(LeapingLoop, asyncio.get_running_loop()).leap(0.2)
        for _ in range(3):  # whatever has run out by now shows it
            await asyncio.sleep(0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_lane_that_is_not_ready_yet_is_no_fault_of_the_provider(
    start: Start, upstream: Upstream, stream: bool
) -> None:
    lanes = tuple(map(Slow, load_lanes()))
    limits = {"timeouts": {"firstByte": 0.1, "attempt": 0.1}}
    krouter = start("one/good", "two/good", edges={"lanes": lanes}, leaps=True, **limits)
    assert served(krouter.chat("daily", stream)) == "one/good"


class Faulty:
    """A lane with a fault of its own."""

    name = "faulty"

    def speaks(self, provider: Provider, dialect: str) -> bool:
        return provider.name == "one"

    async def ready(self) -> None: ...

    async def send(self, call: Call, target: Target, wire: Wire) -> Incoming:
        await asyncio.sleep(0)
        raise RuntimeError("secret one-a inside")


@pytest.mark.parametrize("stream", [False, True])
def test_a_lane_that_raises_costs_only_its_entry(
    start: Start, upstream: Upstream, stream: bool
) -> None:
    lanes = (Faulty(), *load_lanes())
    krouter = start("one/m", "two/good", edges={"lanes": lanes})
    assert served(krouter.chat("daily", stream)) == "two/good"
    reply = krouter.chat("one/m", stream)
    assert reply.status_code == 502
    assert "RuntimeError" in reply.json()["error"]["message"]
    assert "one-a" not in reply.text
    assert krouter.router.world.board.in_flight == 0
