"""Listeners of `/api/live` that take nothing, may listen no longer, or come at a bad time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from krouter.keys import Limits, add_key, change_key, remove_key
from tests.harness import Krouter
from tests.serve.test_view_api import Ear


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


def connections(krouter: Krouter) -> list[Any]:
    return list(krouter.served.server.server_state.connections)


@contextmanager
def deaf(krouter: Krouter) -> Iterator[socket.socket]:
    """One who reads nothing, once krouter can send it no more."""
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.connect(("127.0.0.1", int(krouter.url.rpartition(":")[2])))
        caller.sendall(b"GET /api/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        heard = b""
        while b"hello" not in heard:
            heard += caller.recv(100)
        for _ in range(400):
            krouter.router.world.log("TEST", "x" * 20_000)
        wait_until(lambda: any(each.flow.write_paused for each in connections(krouter)))
        krouter.router.world.log("TEST", "one more, which cannot be sent")
        yield caller


def test_one_who_reads_nothing_does_not_keep_krouter_from_ending(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter, deaf(krouter):
        krouter.served.stop()
        wait_until(lambda: not connections(krouter), 10)


def test_one_who_reads_nothing_for_long_is_hung_up_on(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        live = krouter.served.app.live
        live.patience = 0.1
        with deaf(krouter), httpx.stream("GET", f"{krouter.url}/api/live") as other:
            ear = Ear(other)
            ear.until("hello")
            wait_until(lambda: len(connections(krouter)) == 1)
            krouter.router.world.log("TEST", "the others")
            ear.until("log", text="the others")
        wait_until(lambda: not live.is_looking)


@pytest.mark.parametrize("how", ["removed", "limited", "first"])
def test_who_may_listen_no_longer_is_told_no_more(tmp_path: Path, how: str) -> None:
    keys = tmp_path / "keys.json"
    token = "" if how == "first" else add_key(keys, "ear", 0.0)
    if token:
        add_key(keys, "other", 0.0)
    with Krouter(tmp_path) as krouter:
        headers = {"x-krouter-key": token} if token else {}
        with httpx.stream("GET", f"{krouter.url}/api/live", headers=headers) as reply:
            ear = Ear(reply)
            ear.until("hello")
            if how == "removed":
                remove_key(keys, "ear")
            elif how == "limited":
                change_key(keys, "ear", lambda key: Limits(rpm=5))
            else:
                add_key(keys, "first", 0.0)
            krouter.served.reload()
            with pytest.raises(AssertionError, match="nothing more came"):
                ear.until("never")


def test_a_view_that_cannot_be_made_at_first_is_told_once_it_can(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        world = krouter.router.world
        broken: Any = None
        krouter.router.world = replace(world, settings=broken)
        with httpx.stream("GET", f"{krouter.url}/api/live") as reply:
            ear = Ear(reply)
            ear.until("hello")
            world.log("TEST", "line")
            ear.until("log", text="line")
            krouter.router.world = world
            told = ear.until("view", settings=True)
        assert {"daily", "demo"} <= set(told["combos"])
