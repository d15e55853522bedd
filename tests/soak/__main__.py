"""`make soak`: ten minutes, or `python -m tests.soak MINUTES`."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

from tests.soak.rounds import (
    MIXED,
    STREAMS,
    combos,
    crowd,
    furnish,
    is_all_told,
    mixed,
    problems,
    settled,
)
from tests.soak.server import serving
from tests.upstream import Upstream

DOWN = 60.0


def say(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)


def rounds(home: Path, upstream: Upstream, ends: float) -> None:
    """Crowds and mixed requests, over files that are written all the time; after each a look at
    what is left."""
    with serving(home, furnish(home, upstream)) as server:
        assert not problems(mixed(server.url, upstream, 1, 300), 300)
        assert not problems(crowd(server.url, upstream, 2)[0], STREAMS)
        before = server.holds()
        for seed in itertools.count(3, 2):
            for ask, count in ((mixed, MIXED), (lambda *a: crowd(*a)[0], STREAMS)):
                stop = threading.Event()
                editor = threading.Thread(target=edit, args=(home, server.process, stop))
                editor.start()
                try:
                    outcome = ask(server.url, upstream, seed)  # type: ignore[operator]
                finally:
                    stop.set()
                    editor.join()
                wrong = problems(outcome, count)
                say(f"{count} requests: {dict(outcome.counts)}")
                assert not wrong, wrong
            after = server.holds()
            say(f"left over: {after}")
            settled(before, after)
            if time.monotonic() > ends:
                break
        assert server.end() == 0


def edit(home: Path, process: subprocess.Popen[str], stop: threading.Event) -> None:
    """Writes a combo in place, half of it first, and has everything read again."""
    file = home / "combos" / "plain.json"
    whole = json.dumps(combos()["plain"])
    while not stop.wait(0.2):
        file.write_text(whole[: len(whole) // 2])
        process.send_signal(signal.SIGHUP)
        file.write_text(whole)


def kills(home: Path, upstream: Upstream, times: int) -> None:
    """Killed in the midst of it, again and again: what was answered is there at the next start."""
    dice = random.Random(1)
    for number in range(times):
        with serving(home, furnish(home, upstream)) as server:
            left = itertools.count(dice.randrange(100, 1500), -1)
            die = lambda: next(left) or server.process.kill()  # noqa: B023, E731
            outcome = mixed(server.url, upstream, 1000 + number, begun=die)
            server.kill()
        with serving(home, furnish(home, upstream)) as server:
            assert server.health()["status"] == "ok"
            lost = is_all_told(outcome, home)
            say(f"killed: {len(outcome.routes)} answered, {len(lost)} lost")
            assert not lost
            assert server.end() == 0


def primary(home: Path, upstream: Upstream) -> None:
    """The primary is down for a minute of real time."""
    upstream.clear()
    with serving(home, furnish(home, upstream), faster=1) as server:

        def served() -> str:
            body = {"model": "duo", "messages": [{"role": "user", "content": "hi"}]}
            reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
            assert reply.status_code == 200
            time.sleep(0.1)
            return reply.headers["x-krouter-model"]

        assert served() == "two/main"
        upstream.script("main", ["status=503"])
        began = time.monotonic()
        while time.monotonic() - began < DOWN:
            assert served() == "one/spare"
        asked = sum(request.model == "main" for request in upstream.requests) - 1
        upstream.clear()
        began = time.monotonic()
        while served() != "two/main":
            assert time.monotonic() - began < 30
        took = time.monotonic() - began
        say(f"down for {DOWN:.0f} s: asked {asked} times, leads after {took:.1f} s")
        assert asked <= 30
        assert server.end() == 0


def main(minutes: float = 10) -> None:
    ends = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder, Upstream() as upstream:
        homes = [Path(folder) / name for name in ("primary", "kills", "rounds")]
        for home in homes:
            home.mkdir()
        primary(homes[0], upstream)
        kills(homes[1], upstream, times=max(1, round(minutes / 2)))
        rounds(homes[2], upstream, ends)
    hostile = str(Path(__file__).with_name("test_hostile.py"))
    subprocess.run([sys.executable, "-m", "pytest", "-n", "0", hostile], check=True)
    say("all is as it should be")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
