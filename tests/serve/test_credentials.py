"""Credentials that cannot be had, or are mended while krouter runs, on real sockets."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from krouter.cli.serve import welcome
from tests.harness import Krouter, Start, calls, provider_settings
from tests.serve.test_reload import eventually
from tests.upstream import Upstream


def with_account(upstream: Upstream, key: str) -> str:
    """Settings with one account of `one`, beside whatever the environment gives."""
    settings, _ = provider_settings(upstream.url, one="")
    return f'{settings}[[account]]\nprovider = "one"\nname = "c"\nkey = "{key}"\npriority = 1\n'


def problems(krouter: Krouter) -> str:
    return "\n".join(krouter.http.get("/health").json()["problems"])


def test_only_the_first_request_waits_for_a_command_and_it_is_tried_again_behind(
    start: Start, upstream: Upstream, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    command = f"if [ -e {mended} ]; then echo one-c; else sleep 0.5; exit 3; fi"
    settings = with_account(upstream, f"command:{command}")
    krouter = start("one/m", "two/m", accounts={"two": "x"}, settings=settings)
    assert problems(krouter) == ""
    for _ in range(3):
        began = time.monotonic()
        assert krouter.chat("daily").headers["x-krouter-model"] == "two/m"
    assert time.monotonic() - began < 0.5
    assert problems(krouter).endswith("$.account[1].key: the command 'if' failed with status 3.")
    alone = krouter.chat("one/m")
    assert (alone.status_code, alone.headers["retry-after"]) == (503, "2")
    mended.touch()
    assert eventually(lambda: krouter.chat("daily").headers["x-krouter-model"] == "one/m")
    assert (calls(upstream)[-1], problems(krouter)) == ("one-c m", "")


@pytest.mark.parametrize("missing", ["file", "token"])
def test_a_file_that_is_mended_counts_at_once(
    start: Start, upstream: Upstream, tmp_path: Path, missing: str
) -> None:
    key = tmp_path / "key"
    if missing == "token":
        key.write_text('{"access_token": "old", "expires_at": 1}')
    krouter = start("one/m", accounts={}, settings=with_account(upstream, f"file:{key}"))
    assert krouter.chat("daily").status_code == 503
    says = {"file": "cannot be read", "token": "expired at 1970-01-01"}
    assert says[missing] in problems(krouter)
    key.write_text("one-c")
    assert krouter.chat("daily").status_code == 200
    assert problems(krouter) == ""


def test_a_refused_key_that_is_mended_in_its_file_is_no_longer_locked(
    start: Start, upstream: Upstream, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("one-old")
    upstream.script("m", ["status=401"], key="one-old")
    krouter = start("one/m", accounts={}, settings=with_account(upstream, f"file:{key}"))
    assert krouter.chat("daily").status_code == 401
    assert krouter.locks() == {"one/c/*": (7, 120.0)}
    key.write_text("one-newer")
    assert eventually(lambda: "CONFIG one/c: its credential is new" in krouter.lines)
    assert krouter.locks() == {}
    assert krouter.chat("daily").status_code == 200


def test_what_check_calls_an_error_is_told_by_the_server(start: Start, upstream: Upstream) -> None:
    entry = {"model": "one/m", "accounts": ["work"]}
    krouter = start(entry, accounts={}, settings=with_account(upstream, "env:NOT_SET"))
    variable, account = problems(krouter).splitlines()
    assert variable.endswith("$.account[0].key: the environment variable NOT_SET is not set.")
    assert account == "the combo daily: $.models[0].accounts[0]: one has no account 'work'."
    assert krouter.http.get("/health").json()["status"] == "degraded"
    told = [line for line in welcome(krouter.served) if line.startswith("  problem    ")]
    assert told == [f"  problem    {variable}", f"  problem    {account}"]


def test_a_lock_outlives_a_new_priority_but_no_new_key(
    start: Start, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script("m", ["status=402"], key="one-c")
    settings = with_account(upstream, "env:C")
    krouter = start("one/m", accounts={}, settings=settings, env={"C": "one-c", "D": "one-d"})
    assert krouter.chat("daily").status_code == 402
    file = tmp_path / "krouter.toml"
    file.write_text(settings.replace("priority = 1", "priority = 22"))
    assert eventually(lambda: krouter.router.world.accounts["one"][0].priority == 22)
    assert list(krouter.locks()) == ["one/c/*"]
    file.write_text(settings.replace("env:C", "env:D"))
    assert eventually(lambda: krouter.router.world.accounts["one"][0].key == "env:D")
    assert krouter.locks() == {}
