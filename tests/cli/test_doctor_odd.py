"""`krouter doctor` and its like where something is odd: it is told, and nothing else is lost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import run
from tests.cli.test_doctor import COMBO, Told, another, doctor
from tests.harness import Krouter, provider_settings
from tests.upstream import Upstream

WELL: dict[str, Any] = {"name": "krouter", "status": "ok", "version": "1"}


@pytest.fixture
def served(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory, user: Path
) -> Iterator[Krouter]:
    settings, env = provider_settings(upstream.url, one="a")
    folder = tmp_path_factory.mktemp("served")
    with Krouter(folder, combos={"daily": COMBO}, settings=settings, env=env) as krouter:
        yield krouter


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/ä",
        "http://a..b",
        f"http://{'a' * 64}.example",
        "http://me:secret@127.0.0.1:1",
        "http://127.0.0.1:1/?key=secret",
        "http://127.0.0.1:1/#secret",
        "http://127.0.0.1:1/a b",
        "http://127.0.0.1:1/\x1b[2J",
    ],
)
def test_an_address_that_cannot_be_asked_is_refused(user: Path, url: str) -> None:
    for command in ("doctor", "env"):
        result = run(command, "claude", "--url", url)
        assert result.exit_code == 2
        assert "--url" in result.stderr


@pytest.mark.parametrize(
    "odd",
    [
        {"problems": None},
        {"problems": 5},
        {"problems": [5]},
        {"home": "/x\0y"},
        {"home": "\ud800"},
        {"home": "/" + "x" * 5000},
        {"home": 7},
        {"version": 7},
        {"name": "another"},
    ],
)
def test_a_health_that_no_krouter_tells(user: Path, odd: dict[str, Any]) -> None:
    with another(json.dumps({**WELL, **odd}).encode()) as url:
        assert Told("--url", url).faults == ["server"]
        assert run("env", "claude", "--url", url).exit_code == 3


def test_a_home_that_is_too_long_a_name(user: Path) -> None:
    with another(json.dumps({**WELL, "home": "/" + "x" * 300}).encode()) as url:
        assert "model" in Told("claude", "--url", url).faults


@contextmanager
def pouring(start: bytes, more: bytes) -> Iterator[str]:
    """Something whose answer has no end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def pour(there: socket.socket) -> None:
            with there:
                there.recv(4096)
                try:
                    there.sendall(start)
                    while not stop.is_set():
                        there.sendall(more)
                except OSError:
                    pass

        def serve() -> None:
            while True:
                there, _ = listening.accept()
                if stop.is_set():
                    there.close()
                    return
                threading.Thread(target=pour, args=(there,), daemon=True).start()

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            stop.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join()


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_an_answer_without_an_end_is_not_waited_for(user: Path, start: bytes, more: bytes) -> None:
    with pouring(start, more) as url:
        assert Told("--url", url).faults == ["server"]


def test_a_key_is_sent_to_nothing_but_a_krouter(user: Path) -> None:
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def serve() -> None:
            body = b'{"version": "1", "status": "ok"}'
            while True:
                there, _ = listening.accept()
                with there:
                    if stop.is_set():
                        return
                    seen.append(there.recv(65536))
                    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
                    there.sendall(head % len(body) + body)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        mine = {"KROUTER_KEY": "kr-canary", "ANTHROPIC_BASE_URL": url}
        try:
            told = Told("claude", "--url", url, ANTHROPIC_AUTH_TOKEN="kr-canary", **mine)
            for command in (("env", "claude"), ("quota",)):
                assert run(*command, "--url", url, env=mine).exit_code == 3
        finally:
            stop.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join()
    assert "server" in told.faults
    assert seen
    assert b"kr-canary" not in b"".join(seen)


def test_a_home_of_nobody_is_a_folder_that_is_not_there(served: Krouter) -> None:
    assert "file" in doctor(served, "codex", CODEX_HOME="~nosuchuser/x").faults
    result = run("env", "codex", "--url", served.url, env={"CODEX_HOME": "~nosuchuser/x"})
    assert result.exit_code == 0
    assert run("doctor", "--home", "~nosuchuser/x").exit_code == 3


MAIN = """
import os, sys
os.rmdir(os.getcwd())
from krouter.cli import main
main()
"""


@pytest.mark.parametrize("command", ["doctor", "env", "code"])
def test_a_working_folder_that_is_gone_is_said(served: Krouter, user: Path, command: str) -> None:
    gone = user / "gone"
    gone.mkdir()
    path = map(os.path.abspath, filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", MAIN, command, *(["claude"] if command == "env" else [])],
        cwd=gone,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (1, 3)
    assert "Traceback" not in done.stderr
    assert "working folder" in done.stderr or "not installed" in done.stderr


NOBODY = """
import os, sys
from krouter.cli import main
import krouter.cli.doctor, krouter.cli.env
"a".encode("idna")  # what is loaded late may lie where nobody may read
os.chdir("/")
os.environ.pop("HOME")
os.setuid(54321)
main()
"""


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs root's rights")
@pytest.mark.parametrize("more", [(), ("--home", "/")])
@pytest.mark.parametrize("command", ["doctor", "env"])
def test_somebody_without_a_home_is_told(
    served: Krouter, command: str, more: tuple[str, ...]
) -> None:
    path = map(os.path.abspath, filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", NOBODY, command, "codex", "--url", served.url, *more],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (1, 3)
    assert "Traceback" not in done.stderr
    assert "home folder is known" in done.stderr or "no such folder" in done.stderr
