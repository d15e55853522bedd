"""What a running server makes of signals, and of a place to write to that is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from tests.cli.conftest import Home
from tests.cli.test_serve import COMMAND, DEADLINE, HELLO, serving
from tests.harness import provider_settings
from tests.upstream import Upstream


def use(home: Home, upstream: Upstream) -> None:
    settings, env = provider_settings(upstream.url, one="a")
    home.settings(settings)
    home.env = env


def is_refused(url: str) -> bool:
    try:
        httpx.get(f"{url}/health")
    except httpx.ConnectError:
        return True
    return False


def until(holds: object, what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, what


def test_a_stream_under_way_runs_to_its_end_and_nobody_else_is_let_in(
    home: Home, upstream: Upstream
) -> None:
    use(home, upstream)
    body = {**HELLO, "model": "one/a:chunks=9;gate=end,3", "stream": True}
    with serving(home, "serve", "--port", "0") as server:
        url = f"{server.url}/v1/chat/completions"
        with httpx.Client() as kept, httpx.stream("POST", url, json=body, timeout=60) as reply:
            assert kept.get(f"{server.url}/health").status_code == 200
            events = reply.iter_lines()
            assert next(events).startswith("data: ")
            server.process.send_signal(signal.SIGTERM)
            until(lambda: is_refused(server.url), "new callers are let in")
            with pytest.raises(httpx.TransportError):
                kept.get(f"{server.url}/health")
            assert server.process.poll() is None
            server.process.send_signal(signal.SIGTERM)  # said twice, it means no more
            upstream.gate("end").open()
            assert [line for line in events if line][-1] == "data: [DONE]"
        assert server.process.wait(DEADLINE) == 0


def test_a_hangup_reads_settings_combos_and_keys_again(home: Home) -> None:
    home.combo("typo", {"models": ["demo/a"], "strategi": 1})
    with serving(home, "serve", "--port", "0") as server:
        server.until("keys ")
        for _ in range(2):  # whatever is wrong is told each time
            server.process.send_signal(signal.SIGHUP)
            server.until(r"CONFIG .*typo.json: \$.strategi: unknown field")
            server.until(r"CONFIG reloaded: ")
        home.combo("typo", {"models": ["demo/a"]})
        home.settings('[aliases]\nquick = "typo"\n')
        key = home.run("keys", "add", "laptop").stdout.strip()
        server.process.send_signal(signal.SIGHUP)
        server.until(r"CONFIG reloaded: ")
        assert server.ask().status_code == 401
        url, given = f"{server.url}/v1/chat/completions", {"x-api-key": key}
        assert httpx.post(url, json={**HELLO, "model": "quick"}, headers=given).status_code == 200
        home.settings("[aliasses]\n")
        server.process.send_signal(signal.SIGHUP)
        server.until(r"CONFIG .*aliasses.* The settings stay as they were")
        server.until(r"CONFIG reloaded: ")
        assert httpx.post(url, json={**HELLO, "model": "quick"}, headers=given).status_code == 200
        assert server.end(signal.SIGTERM)[0] == 0


def serves(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no terminals")
def test_a_terminal_that_hangs_up_ends_its_server(home: Home) -> None:
    ours, theirs = os.openpty()
    port = free_port()
    # A shell that leads a session gets the first terminal that it opens for its own.
    shell = 'tty=$1; shift; exec "$@" <"$tty" >"$tty" 2>"$tty"'
    args = ("serve", "--port", str(port), "--home", str(home.path))
    process = subprocess.Popen(
        ["sh", "-c", shell, "sh", os.ttyname(theirs), *COMMAND, *args],
        start_new_session=True,
        env={**os.environ, **home.env},
    )
    with process:
        try:
            until(lambda: serves(port), "it does not begin")
            os.close(theirs)
            os.close(ours)
            assert process.wait(DEADLINE) == 0
        finally:
            process.kill()


def test_a_log_that_cannot_be_written_stops_nothing(home: Home) -> None:
    with serving(home, "-l", "--port", "0") as server:
        server.until("keys ")
        assert server.process.stderr is not None
        server.process.stderr.close()
        for _ in range(3):
            assert server.ask().status_code == 200
        server.process.send_signal(signal.SIGHUP)
        home.settings('[aliases]\nquick = "demo"\n')
        url = f"{server.url}/v1/chat/completions"
        body = {**HELLO, "model": "quick"}
        until(lambda: httpx.post(url, json=body).status_code == 200, "it is not followed")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(DEADLINE) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no such limit")
def test_a_crowd_is_served_where_few_files_are_allowed_at_first(home: Home) -> None:
    """Each caller is a file, beside those that a server has open anyway."""
    port = free_port()
    few = ["sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh", *COMMAND]
    with subprocess.Popen(
        [*few, "serve", "--port", str(port), "--home", str(home.path)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, **home.env},
    ) as process:
        try:
            until(lambda: serves(port), "it does not begin")
            crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
            for caller in crowd:
                caller.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert caller.recv(99).startswith(b"HTTP/1.1 200 ")
            for caller in crowd:
                caller.close()
        finally:
            process.kill()
