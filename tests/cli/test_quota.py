"""`krouter quota` against a krouter on a real socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from krouter.cli.quota import _span
from krouter.keys import add_key
from krouter.quota import Poll
from krouter.reporter import Balance, Report, Window
from tests.cli.conftest import CANARY, Home, run
from tests.harness import Krouter, provider_settings

SETTINGS, ENV = provider_settings("http://127.0.0.1:1", one="a", two="a b")


@pytest.fixture
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    combos = {"daily": {"models": ["one/m", "two/m"]}}
    home = tmp_path_factory.mktemp("served")
    with Krouter(home, combos=combos, settings=SETTINGS, env=ENV) as krouter:
        yield krouter


def test_what_is_known_is_listed(home: Home, krouter: Krouter) -> None:
    pool, now = krouter.served.house.pool, krouter.clock.now
    windows = (Window("5h", 0.5, now + 3 * 3600 + 300),)
    report = Report(windows=windows, balances=(Balance("key limit", 2.5, of=10.0),))
    pool.quota.note("one", "a", report, "polled")
    pool.quota.polls["two", "b"] = Poll(now, now + 120, 1, "status 403")
    told = home.run("quota", "set", "one", "m", "0.015", "--resets-at", "2d", "--url", krouter.url)
    assert told.exit_code == 0
    assert told.stderr == "one/a: 2% (spent) of m is left.\n"
    krouter.clock.forward(12)
    listed = home.run("quota", "--url", krouter.url)
    rows = [line.split() for line in listed.stdout.splitlines()]
    assert rows == [
        "PROVIDER ACCOUNT WHAT LEFT RESETS IN AGE SOURCE".split(),
        "one a 5h 50% 3 h 4 min 12 s polled".split(),
        "one a key limit 2.50 of 10.00 USD - 12 s polled".split(),
        "one a m 2% (spent) 1 d 23 h 12 s reported".split(),
    ]
    assert listed.stderr == "two/b: status 403; asked again in 1 min\n"
    found = home.json("quota", "--url", krouter.url)
    assert [found[k][0]["account"] for k in ("figures", "windows", "balances")] == ["a"] * 3
    assert found["failing"][0]["problem"] == "status 403"


def test_the_figure_that_was_set_is_printed(home: Home, krouter: Krouter) -> None:
    args = ("quota", "set", "two", "m", "1", "--account", "b", "--url", krouter.url)
    told = home.json(*args)
    assert (told["account"], told["remaining"], told["resets_at"]) == ("b", 1, None)


def test_a_model_may_be_named_with_its_provider(home: Home, krouter: Krouter) -> None:
    told = home.json("quota", "set", "one", "one/m", "0.5", "--url", krouter.url)
    assert (told["model"], told["combos"]) == ("m", ["daily"])


def test_a_figure_that_orders_nothing_is_warned_of(home: Home, krouter: Krouter) -> None:
    told = home.run("quota", "set", "one", "typo", "0.5", "--url", krouter.url)
    assert told.exit_code == 0
    assert told.stderr.endswith("it orders nothing: no entry of a combo names one/typo.\n")


def test_options_before_the_subcommand_count(home: Home, krouter: Krouter) -> None:
    before = ("quota", "--json", "--url", krouter.url, "set", "one", "m", "0.5")
    told = run(*before)
    assert (told.exit_code, json.loads(told.stdout)["model"]) == (0, "m")
    home.settings(f"[server]\nport = {krouter.url.rpartition(':')[2]}\n")
    assert run("quota", "--home", str(home.path), "set", "one", "m", "0.5").exit_code == 0


def test_nothing_known_is_said(home: Home, krouter: Krouter) -> None:
    result = home.run("quota", "--url", krouter.url)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "Nothing is known yet" in result.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("one", "m", "2"), "'REMAINING': 2.0 is not in the range 0<=x<=1"),
        (("one", "m", "nan"), "'REMAINING': is not a number from 0 to 1"),
        (("two", "m", "0.5"), "--account: required field is missing: two has the accounts a, b"),
        (("one", "m", "0.5", "--account", "z"), "--account: unknown account 'z'"),
        (("nine", "m", "0.5"), "PROVIDER: unknown provider 'nine'"),
        (("one", " m", "0.5"), "MODEL: must not begin or end with a blank"),
        (("one", "m", "0.5", "--resets-at", "never"), "a span such as 2h30m"),
    ],
)
def test_a_wrong_argument_is_named_as_it_was_given(
    home: Home, krouter: Krouter, args: tuple[str, ...], says: str
) -> None:
    result = home.run("quota", "set", *args, "--url", krouter.url)
    assert result.exit_code == 2
    assert says in result.stderr


def test_the_server_is_looked_for_where_the_settings_say(home: Home, krouter: Krouter) -> None:
    port = krouter.url.rpartition(":")[2]
    home.settings(f'[server]\nhost = "0.0.0.0"\nport = {port}\n')
    assert home.run("quota").exit_code == 0


def test_where_none_runs_it_says_so(home: Home) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        home.settings(f"[server]\nport = {bound.getsockname()[1]}\n")
        result = home.run("quota")
    assert result.exit_code == 3
    assert "no krouter answers at http://127.0.0.1:" in result.stderr
    assert "Start one with krouter serve, or name another with --url" in result.stderr


def test_a_bad_url_and_bad_settings(home: Home) -> None:
    assert home.run("quota", "--url", "nowhere").exit_code == 2
    home.settings("[server]\nport = 'x'\n")
    assert home.run("quota").exit_code == 3


def test_a_key_is_taken_from_the_environment(home: Home, tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    key = add_key(served / "keys.json", "laptop", 0.0)
    with Krouter(served) as krouter:
        refused = home.run("quota", "--url", krouter.url, env={"KROUTER_KEY": CANARY})
        assert refused.exit_code == 1
        assert "KROUTER_KEY" in refused.stderr
        found = home.run("quota", "--url", krouter.url, env={"KROUTER_KEY": key})
        assert found.exit_code == 0


def test_a_proxy_of_the_environment_is_not_asked(
    home: Home, krouter: Krouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert home.run("quota", "--url", krouter.url).exit_code == 0


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-3, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h 0 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_spans(seconds: float, expected: str) -> None:
    assert _span(seconds) == expected


def test_set_needs_its_arguments() -> None:
    args: Any = ("quota", "set", "glm")
    assert run(*args).exit_code == 2
