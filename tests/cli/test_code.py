"""`krouter code` with a `claude` that tells what it was started with."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from krouter.keys import add_key
from tests.cli.conftest import put_program
from tests.harness import Krouter, provider_settings

TELLS = """
print(json.dumps({"args": sys.argv[1:], "env": dict(os.environ), "pid": os.getpid()}))
sys.exit(7)
"""
WAITS = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
print("ready", flush=True)
signal.pause()
"""
MAIN = "from krouter.cli import main; main()"


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, user: Path) -> Iterator[Krouter]:
    settings, env = provider_settings("http://127.0.0.1:1", one="a")
    combos = {"daily": {"models": ["one/m"]}}
    home = tmp_path_factory.mktemp("served")
    with Krouter(home, combos=combos, settings=settings, env=env) as krouter:
        yield krouter


def started(user: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    path = {"PATH": f"{user / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"}
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, "code", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **path, **env},
    )


def told(user: Path, *args: str, **env: str) -> Any:
    put_program(user / "bin", "claude", TELLS)
    process = started(user, *args, **env)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (7, "")
    found = json.loads(out)
    assert found["pid"] == process.pid, "it runs in place of krouter"
    return found


def test_claude_code_finds_krouter_in_its_environment(served: Krouter, user: Path) -> None:
    env = {"ANTHROPIC_API_KEY": "sk-mine", "KEPT": "yes"}
    found = told(user, "--url", served.url, "--model", "demo", **env)["env"]
    assert found["ANTHROPIC_BASE_URL"] == served.url
    assert found["ANTHROPIC_AUTH_TOKEN"] == "none"
    assert found["ANTHROPIC_MODEL"] == "demo"
    assert "ANTHROPIC_API_KEY" not in found
    assert found["KEPT"] == "yes"


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ((), []),
        (("-p", "hi", "--model", "opus"), ["-p", "hi", "--model", "opus"]),
        (("--resume", "--help"), ["--resume", "--help"]),
        (("--", "--model", "opus"), ["--model", "opus"]),
        (("-c", "--", "x"), ["-c", "--", "x"]),
        (("--no-login", "-p", "", "a b", "--url=x"), ["-p", "", "a b", "--url=x"]),
    ],
)
def test_arguments_pass_untouched(
    served: Krouter, user: Path, given: tuple[str, ...], passed: list[str]
) -> None:
    found = told(user, f"--url={served.url}", *given)
    assert found["args"] == passed
    assert found["env"]["ANTHROPIC_MODEL"] == "daily"


def test_signals_are_its_own(served: Krouter, user: Path) -> None:
    ignored = user / "ignored"
    # A shell: Python itself ignores two signals from its start.
    script = f"#!/bin/sh\ngrep SigIgn /proc/self/status >{ignored}\nexec {user / 'bin' / 'waits'}\n"
    put_program(user / "bin", "waits", WAITS)
    put_program(user / "bin", "claude", "").write_text(script)
    process = started(user, "--url", served.url)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 9
    if sys.platform == "linux":
        mask = int(ignored.read_text().split()[1], 16)
        # others may be ignored by whoever started the tests, as SIGHUP is by nohup
        assert not any(mask >> (number - 1) & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))


def test_without_claude_code_it_says_how_to_install_it(served: Krouter, user: Path) -> None:
    process = started(user, "--url", served.url, PATH=str(user / "nothing"))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "npm install -g @anthropic-ai/claude-code" in err


def test_without_a_krouter_it_says_how_to_start_one(user: Path) -> None:
    put_program(user / "bin", "claude", TELLS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        process = started(user, "--url", f"http://127.0.0.1:{taken.getsockname()[1]}")
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (3, "")
    assert "krouter serve" in err


def test_a_program_that_cannot_be_run_is_said(served: Krouter, user: Path) -> None:
    put_program(user / "bin", "claude", "").write_text("#!/no/such/interpreter\n")
    process = started(user, "--url", served.url)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot be run" in err


@pytest.mark.parametrize("args", [("--model",), ("--key", "a b"), ("--url", "nowhere")])
def test_a_wrong_option_of_its_own_is_exit_code_2(user: Path, args: tuple[str, ...]) -> None:
    put_program(user / "bin", "claude", TELLS)
    process = started(user, *args)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")


@pytest.mark.parametrize(
    "given",
    [
        {"ANTHROPIC_BASE_URL": "https://elsewhere"},
        {"ANTHROPIC_BASE_URL": "{url}/v1/messages"},
        {"CLAUDE_CODE_USE_BEDROCK": "1"},
    ],
)
@pytest.mark.parametrize("folder", ["", "work"])
def test_settings_that_lead_elsewhere_are_refused(
    served: Krouter, user: Path, given: dict[str, str], folder: str
) -> None:
    """They win over the variables: Claude Code would be started for another server, silently."""
    put_program(user / "bin", "claude", TELLS)
    file = user / folder / ".claude" / "settings.json"
    file.parent.mkdir()
    env = {name: value.format(url=served.url) for name, value in given.items()}
    file.write_text(json.dumps({"env": env}))
    process = started(user, "--url", served.url)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert next(iter(given)) in err
    assert ".claude/settings.json" in err


def test_a_wrong_key_in_settings_is_refused(tmp_path: Path, user: Path) -> None:
    key = add_key(tmp_path / "keys.json", "me", 0.0)
    put_program(user / "bin", "claude", TELLS)
    file = user / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"env": {"ANTHROPIC_AUTH_TOKEN": "kr-wrong"}}))
    with Krouter(tmp_path) as krouter:
        process = started(user, "--url", krouter.url, "--model", "demo", KROUTER_KEY=key)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "ANTHROPIC_AUTH_TOKEN" in err
    assert "kr-wrong" not in err


def test_settings_that_agree_are_no_matter(served: Krouter, user: Path) -> None:
    file = user / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": served.url}, "model": "opus"}))
    told(user, "--url", served.url)


def test_another_model_in_settings_is_warned_of(served: Krouter, user: Path) -> None:
    put_program(user / "bin", "claude", TELLS)
    file = user / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"env": {"ANTHROPIC_MODEL": "demo"}}))
    process = started(user, "--url", served.url)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 7
    assert "ANTHROPIC_MODEL is 'demo' in ~/.claude/settings.json" in err
