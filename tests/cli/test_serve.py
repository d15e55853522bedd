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
from tests.emitted import judge
from tests.harness import provider_settings
from tests.upstream import Upstream

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
        url = f"{self.url}/v1/chat/completions"
        return judge(httpx.post(url, json=HELLO, headers=headers))

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


def test_what_if_is_offered(home: Home) -> None:
    with serving(home, "serve", "--port", "0") as server:
        told = httpx.post(f"{server.url}/api/whatif", json={"combo": "demo"})
        assert (told.status_code, told.json()["reply"]["from"]) == (200, "demo/assistant")
        assert server.end(signal.SIGTERM)[0] == 0


def test_each_step_is_printed_with_the_time(home: Home) -> None:
    with serving(home, "-l", "--port", "0") as server:
        server.ask()
        server.until(r"^\[\d\d:\d\d:\d\d\] COMBO demo: trying demo/assistant")
        server.until(r"^\[\d\d:\d\d:\d\d\] ROUTE ")
        judge(httpx.post(f"{server.url}/v1/messages", json={**HELLO, "model": "a\x1b[31m\nb"}))
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


def test_an_address_of_another_machine_is_not_the_fault_of_the_port(home: Home) -> None:
    home.run("keys", "add", "a")
    result = home.run("serve", "--port", "20128", "--host", "192.0.2.1")  # kept for documents
    assert result.exit_code == 3
    assert "Choose another with --host." in result.stderr


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


ORDER = ("glm/glm-5.1", "ds/deepseek-v4-pro", "cc/claude-sonnet-4-6")
SCREENSHOT = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]


def asks(server: Server, content: object) -> None:
    body = {"model": "daily", "messages": [{"role": "user", "content": content}]}
    reply = judge(httpx.post(f"{server.url}/v1/chat/completions", json=body))
    assert reply.status_code == 200, reply.text
    server.until(r"\] ROUTE ")


def test_a_switch_is_printed_only_where_another_entry_goes_first(
    home: Home, upstream: Upstream
) -> None:
    settings, env = provider_settings(upstream.url, glm="a", ds="a", cc="a")
    home.settings(settings)
    home.env = env
    home.combo("daily", {"models": list(ORDER)})
    with serving(home, "-l", "--port", "0") as server:
        asks(server, "hello")
        asks(server, SCREENSHOT)
        quota = {"provider": "glm", "model": "glm-5.1", "remaining": 0.5}
        httpx.post(f"{server.url}/api/quota", json=quota)
        asks(server, "hello")
        quota = {"provider": "ds", "model": "deepseek-v4-pro", "remaining": 0.9}
        httpx.post(f"{server.url}/api/quota", json=quota)
        asks(server, "hello")
        asks(server, SCREENSHOT)
        assert server.end(signal.SIGTERM)[0] == 0
    lines = [line for line in server.lines if "auto-switch" in line]
    assert [re.sub(r"^\[\d\d:\d\d:\d\d\] ", "", line) for line in lines] == [
        "COMBO daily: Capacity auto-switch: image → cc/claude-sonnet-4-6",
        "COMBO daily: Quota auto-switch: most left → ds/deepseek-v4-pro",
        "COMBO daily: Capacity auto-switch: image → cc/claude-sonnet-4-6",
    ]
    tried = [line for line in server.lines if re.search(r"\] COMBO daily: trying ", line)]
    assert [line.split(" trying ")[1].split()[0] for line in tried] == [
        ORDER[0], ORDER[2], ORDER[0], ORDER[1], ORDER[2],
    ]  # fmt: skip


def test_a_served_request_is_listed_drawn_and_explained(home: Home, upstream: Upstream) -> None:
    settings, env = provider_settings(upstream.url, glm="a", ds="a", cc="a")
    home.settings(settings)
    home.env = env
    home.combo("daily", {"models": list(ORDER)})
    with serving(home, "serve", "--port", "0") as server:
        body = {"model": "daily", "messages": [{"role": "user", "content": SCREENSHOT}]}
        reply = judge(httpx.post(f"{server.url}/v1/chat/completions", json=body))
        assert server.end(signal.SIGTERM)[0] == 0
    route = reply.headers["x-krouter-route"]
    assert f"  {route}  daily         {ORDER[2]}    200 answered" in home.run("log").stdout
    drawn = " ".join(home.run("route", route[:-2]).stdout.split())
    assert (
        f"{ORDER[2]} went first, though 3rd in the list: the latest message carries an image, which"
        f" it reads; {ORDER[0]} and {ORDER[1]} do not read it."
    ) in drawn
    assert home.json("explain", "--route", route)["same"]
    assert home.json("usage")["total"]["requests"] == 1
