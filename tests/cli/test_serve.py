from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import CANARY, Home

COMMAND = [sys.executable, "-c", "from krouter.cli import main; main()"]
DEADLINE = 60.0
HELLO = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}


class Server:
    """`krouter serve` as a process; `lines` is what it has said on stderr so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = self.until(r"serves (http://\S+)")[1]

    def until(self, pattern: str) -> re.Match[str]:
        """Reads stderr up to the first line in which `pattern` is found."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if match := re.search(pattern, line):
                return match
        raise AssertionError(f"no line with {pattern!r} in {self.lines}")

    def ask(self, **headers: str) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/chat/completions", json=HELLO, headers=headers)

    def end(self, number: int) -> tuple[int, str]:
        """Exit code and stdout after the signal."""
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.lines += self.process.stderr.read().splitlines()
        return code, self.process.stdout.read()


@contextmanager
def serving(home: Home, *args: str) -> Iterator[Server]:
    process = subprocess.Popen(
        [*COMMAND, *args, "--home", str(home.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **home.env},
    )
    with process:
        try:
            yield Server(process)
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_without_any_key_and_ends_on_a_signal(home: Home, number: int) -> None:
    with serving(home, "serve", "--port", "0") as server:
        reply = server.ask()
        assert reply.status_code == 200
        assert reply.json()["choices"][0]["message"]["content"]
        assert server.end(number) == (0, "")
    said = "\n".join(server.lines)
    assert f"home       {home.path}" in said
    assert "none has an account yet; the combo demo answers" in said
    assert "none needed" in said
    assert "COMBO" not in said


def test_the_start_names_providers_and_problems_but_no_secret(home: Home) -> None:
    home.env = {"GLM_API_KEY": CANARY}
    home.combo("typo", {"models": ["demo/a"], "strategi": 1})
    home.settings("[routing]\naccount_sticky_limit = 4\n")
    with serving(home, "serve", "--port", "0") as server:
        assert server.end(signal.SIGTERM)[0] == 0
    said = "\n".join(server.lines)
    assert "providers  glm\n" in said
    assert "typo.json: $.strategi: unknown field 'strategi'" in said
    assert CANARY not in said


def test_each_step_is_printed_with_the_time(home: Home) -> None:
    with serving(home, "-l", "--port", "0") as server:
        server.ask()
        server.until(r"^\[\d\d:\d\d:\d\d\] COMBO demo: trying demo/assistant")
        server.until(r"^\[\d\d:\d\d:\d\d\] ROUTE ")
        httpx.post(f"{server.url}/v1/messages", json={**HELLO, "model": "a\x1b[31m\nb"})
        server.until(r"^\[\d\d:\d\d:\d\d\] COMBO a\N{REPLACEMENT CHARACTER}\[31m")
        assert server.end(signal.SIGTERM)[0] == 0


def test_a_file_that_changes_is_reported_without_log_too(home: Home) -> None:
    with serving(home, "serve", "--port", "0") as server:
        server.until("keys ")
        home.combo("typo", {"models": ["demo/a"], "strategi": 1})
        server.until(r"^\[.*\] CONFIG .*typo.json: \$.strategi: unknown field")
        server.ask()
        assert server.end(signal.SIGTERM)[0] == 0


def test_a_key_added_while_it_serves_is_asked_for(home: Home) -> None:
    with serving(home, "serve", "--port", "0") as server:
        assert server.ask().status_code == 200
        key = home.run("keys", "add", "laptop").stdout.strip()
        end = time.monotonic() + DEADLINE
        while server.ask().status_code != 401:
            assert time.monotonic() < end, "the new key is not asked for"
        assert server.ask(authorization=f"Bearer {key}").status_code == 200
        assert server.end(signal.SIGTERM)[0] == 0


def test_a_busy_port_is_exit_code_3(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        result = home.run("serve", "--port", str(port))
    assert result.exit_code == 3
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
    assert "Choose another with --port." in result.stderr


def test_another_address_needs_a_key(home: Home) -> None:
    result = home.run("serve", "--port", "0", "--host", "0.0.0.0")
    assert result.exit_code == 3
    assert "krouter keys add NAME" in result.stderr


def test_the_combos_of_another_folder(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "others"
    folder.mkdir()
    (folder / "mine.json").write_text('{"models": ["demo/assistant"]}')
    with serving(home, "serve", "--port", "0", "--combos", str(folder)) as server:
        names = [m["id"] for m in httpx.get(f"{server.url}/v1/models").json()["data"]]
        assert "mine" in names
        assert server.end(signal.SIGTERM)[0] == 0
