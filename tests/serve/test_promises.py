"""What a running krouter promises beyond single requests."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from krouter.adapter import Call, Target, load_lanes
from krouter.combos import Combo, Entry
from krouter.keys import add_key
from krouter.lineup import Ask, Site, leaves, plan_for
from krouter.providers import Provider
from krouter.route import Skip
from krouter.settings import Timeouts
from krouter.wire import Incoming, Wire
from tests.harness import Krouter, provider_settings
from tests.upstream import Upstream


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


class Broken:
    """A lane that quotes the credential in its own error."""

    name = "broken"

    def speaks(self, provider: Provider, dialect: str) -> bool:
        return provider.name == "one"

    async def ready(self) -> None: ...

    async def send(self, call: Call, target: Target, wire: Wire) -> Incoming:
        await asyncio.sleep(0)
        raise RuntimeError(f"header Bearer {target.secret} refused")


def test_a_lane_that_quotes_the_credential_is_logged_without_it(
    tmp_path: Path, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings, env = provider_settings(upstream.url, one="a")
    edges = {"lanes": (Broken(), *load_lanes())}
    with Krouter(tmp_path, settings=settings, env=env, edges=edges) as krouter:
        reply = krouter.chat("one/m")
    assert reply.status_code == 502
    assert "RuntimeError" in caplog.text
    assert "in send" in caplog.text
    assert "one-a" not in caplog.text + reply.text + "\n".join(krouter.lines)


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_fault_of_krouters_own_is_an_error_in_the_dialect(tmp_path: Path, dialect: str) -> None:
    def log(tag: str, line: str) -> None:
        if "trying" in line:
            raise ValueError("a fault")

    with Krouter(tmp_path, edges={"log": log}) as krouter:
        reply = krouter.ask(dialect, "demo")
        assert reply.status_code == 500
        assert "ValueError" in reply.json()["error"]["message"]
        route = krouter.router.routes[-1]
        assert reply.headers["x-krouter-route"] == route.id
        assert (route.outcome, route.ended is not None) == ("krouter failed", True)


def test_the_files_are_followed_after_a_fault(tmp_path: Path) -> None:
    faults = []

    def log(tag: str, line: str) -> None:
        if tag == "CONFIG" and not faults:
            faults.append(line)
            raise BrokenPipeError

    krouter = Krouter(tmp_path)
    krouter._log = log  # type: ignore[method-assign]
    with krouter:
        krouter.write_combo("first", {"models": ["demo/assistant"]})
        soon(lambda: bool(faults))
        krouter.write_combo("second", {"models": ["demo/assistant"]})
        soon(lambda: krouter.chat("second").status_code == 200)


def soon(holds: Any) -> None:
    """Asks again until it holds; the test's own time limit is thirty seconds."""

    async def poll() -> None:
        async with asyncio.timeout(30):
            while not holds():
                await asyncio.sleep(0.02)

    asyncio.run(poll())


@pytest.mark.parametrize("stream", [False, True])
def test_a_status_counts_though_its_body_stalls(
    tmp_path: Path, upstream: Upstream, stream: bool
) -> None:
    settings, env = provider_settings(upstream.url, one="a", two="x")
    combos = {"daily": {"models": ["one/s:status=429;retry-after=9;stall=0", "two/ok"]}}
    timeouts = "[timeouts]\nfirst_byte = 0.2\nattempt = 0.2\n"
    upstream.clear()
    with Krouter(
        tmp_path, combos=combos, settings=timeouts + settings, env=env, leaps=upstream
    ) as krouter:
        # The whole time for a body is not waited out: the provider hangs up when told to.
        reply = krouter.chat("daily", stream)
        assert reply.headers["x-krouter-model"] == "two/ok"
        assert {row for row, _ in krouter.locks().values()} == {8}


def test_tokens_of_a_stream_the_caller_never_saw_are_booked(
    tmp_path: Path, upstream: Upstream
) -> None:
    settings, env = provider_settings(upstream.url, one="a", two="x")
    combos = {
        "daily": {
            "models": ["one/u:usage=77,1;reset=1", "two/ok"],
            "timeouts": {"firstToken": 5},
        }
    }
    with Krouter(tmp_path, combos=combos, settings=settings, env=env) as krouter:
        reply = krouter.messages("daily", stream=True)
        assert reply.headers["x-krouter-model"] == "two/ok"
        krouter.idle()
        first, second = krouter.router.routes[-1].attempts
        assert first.usage is not None
        assert first.usage.input == 77
        assert second.usage is not None
        assert krouter.router.routes[-1].usage.input == 77 + second.usage.input


def test_a_nested_combos_total_bounds_its_attempts(tmp_path: Path, upstream: Upstream) -> None:
    settings, env = provider_settings(upstream.url, one="a", two="x")
    combos = {
        "inner": {"models": ["one/n:stall"], "timeouts": {"total": 0.2}},
        "daily": {"models": ["inner", "two/ok"]},
    }
    with Krouter(tmp_path, combos=combos, settings=settings, env=env, leaps=upstream) as krouter:
        assert krouter.chat("daily").headers["x-krouter-model"] == "two/ok"


NATIVE = {"lanes": load_lanes()[:2]}


def test_an_entry_listed_twice_does_not_change_the_status(tmp_path: Path) -> None:
    combos = {"daily": {"models": ["only/x", "only/x"]}}
    url = "http://127.0.0.1:1/v1"
    settings = f'[provider.only]\nbase_urls = {{ responses = "{url}" }}\n'
    with Krouter(tmp_path, combos=combos, settings=settings, edges=NATIVE) as krouter:
        assert krouter.chat("daily").status_code == 501
        skips = [step["reason"] for step in krouter.last_route["steps"]]
        assert skips == [Skip.NEEDS_TRANSLATION, Skip.ALREADY_TRIED]


NAMES = [
    ("demo", "demo/assistant"),
    ("combo/demo", "demo/assistant"),
    ("fast", "local/ok"),
    ("fast-1", "local/glob"),
    ("fast-12", "local/longer"),
    ("claude-mine", "local/mine"),
    ("claude-demo", "local/aliased"),
    ("local/direct", "local/direct"),
    ("fusion-panel", None),
]


def test_names_are_looked_up_in_order(tmp_path: Path, upstream: Upstream) -> None:
    settings = f"""
[aliases]
"demo" = "local/not-before-a-combo"
"fast" = "local/ok"
"fast*" = "local/glob"
"fast-1*2" = "local/longer"
"claude-demo" = "local/aliased"
[provider.local]
base_url = "{upstream.url}/v1"
"""
    combos = {"mine": {"models": ["local/mine"]}}
    with Krouter(tmp_path, combos=combos, settings=settings) as krouter:
        for name, served in NAMES:
            reply = krouter.chat(name)
            assert reply.headers.get("x-krouter-model") == served, name
            if served is None:  # the panel is known, and its providers have no account
                assert reply.status_code == 503
            assert krouter.http.get(f"/v1/models/{name}").status_code == 200
        listed = [model["id"] for model in krouter.http.get("/v1/models").json()["data"]]
        assert {"mine", "fast", "claude-demo"} <= set(listed)
        assert "fast*" not in listed


@pytest.mark.parametrize(
    ("reply_model", "dialect", "seen"),
    [
        ("auto", "chat", "up"),
        ("auto", "messages", "daily"),
        ("served", "chat", "up"),
        ("served", "messages", "up"),
        ("requested", "chat", "daily"),
        ("requested", "messages", "daily"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_the_model_a_reply_names(
    tmp_path: Path, upstream: Upstream, reply_model: str, dialect: str, seen: str, stream: bool
) -> None:
    routing = f'[routing]\nreply_model = "{reply_model}"\n'
    settings, env = provider_settings(upstream.url, one="a")
    combos = {"daily": {"models": ["one/up"]}}
    with Krouter(tmp_path, combos=combos, settings=routing + settings, env=env) as krouter:
        text = krouter.ask(dialect, "daily", stream).text.replace(" ", "")
        assert f'"model":"{seen}"' in text
        assert f'"model":"{"up" if seen == "daily" else "daily"}"' not in text


def test_a_reload_keeps_locks_but_for_a_changed_credential(
    tmp_path: Path, upstream: Upstream
) -> None:
    settings, env = provider_settings(upstream.url, one="a", two="x")
    with Krouter(tmp_path, settings=settings, env={**env, "NEW": "new"}) as krouter:
        krouter.chat("one/r:status=401")
        krouter.chat("two/r:status=401")
        assert set(krouter.locks()) == {"one/a/*", "two/x/*"}
        changed = settings.replace("env:ONE_A", "env:NEW")
        assert changed != settings
        (krouter.home / "krouter.toml").write_text(changed)
        krouter.served.house.refresh()
        assert set(krouter.locks()) == {"two/x/*"}


def test_settings_are_kept_while_an_editor_replaces_the_file(
    tmp_path: Path, upstream: Upstream
) -> None:
    settings, env = provider_settings(upstream.url, one="a")
    with Krouter(tmp_path, settings=settings, env=env) as krouter:
        house = krouter.served.house
        (tmp_path / "krouter.toml").rename(tmp_path / "aside")
        house.refresh()
        assert "one" in krouter.router.world.registry.providers
        os.rename(tmp_path / "aside", tmp_path / "krouter.toml")
        house.refresh()
        assert krouter.chat("one/ok").status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_connection_is_used_again(
    tmp_path: Path, upstream: Upstream, dialect: str, stream: bool
) -> None:
    settings, env = provider_settings(upstream.url, one="a")
    with Krouter(tmp_path, settings=settings, env=env) as krouter:
        for _ in range(5):
            assert krouter.ask(dialect, "one/ok", stream).status_code == 200
            krouter.idle()
        assert upstream.open_connections == 1


def test_health_tells_details_to_those_with_a_key(tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json", "laptop", 0.0)
    with Krouter(tmp_path, combos={"bad": {"modles": []}}) as krouter:
        shown = krouter.http.get("/health").json()
        assert shown.keys() == {"name", "status", "version"}
        assert shown["status"] == "degraded"
        whole = krouter.http.get("/health", headers={"x-api-key": key}).json()
        assert any("modles" in problem for problem in whole["problems"])


def test_the_depth_of_combos_is_guarded_at_run_time_too(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        loop = {"a": Combo(name="a", models=(Entry(model="b"),))}
        loop["b"] = Combo(name="b", models=(Entry(model="a"), Entry(model="demo/x")))
        world = replace(krouter.router.world, combos=loop)
        plan = plan_for(loop["a"], world, Ask("chat"))
        found = leaves(Site((plan,), Timeouts()), world, Ask("chat"))
        assert [(leaf.name, leaf.obstacle and leaf.obstacle.reason) for leaf in found] == [
            ("b", Skip.NESTED_TOO_DEEPLY),
            ("demo/x", None),
        ]
