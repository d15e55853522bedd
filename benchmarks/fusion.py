"""What a fusion adds to its panel and its judge: `make bench`.

A panel of three, whose members take 40, 60 and 80 ms, and a judge that takes 40 ms, for a coding
agent's request of 100 kB with tools and tool history. What is added is the time of the whole
request, less that of the slowest member and that of the judge as their provider measures them, both
from the request's last byte to the reply's. Beside it stands its limit; exit status 1 when it is
missed.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.planning import talk
from benchmarks.startup import KROUTER, read_address
from tests.upstream import Request, Upstream

LIMIT = 10.0
ROUNDS = 40
PANEL = {"a": 0.04, "b": 0.06, "c": 0.08}
"""Seconds until each answers."""
JUDGE = "one/j:slow-headers=0.04"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "What it does, at some length. " * 20,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    for number in range(16)
]


def request() -> bytes:
    body: dict[str, Any] = json.loads(talk(85_000, "and now?"))
    return json.dumps({**body, "model": "three", "tools": TOOLS}).encode()


def added(address: str, upstream: Upstream, body: bytes) -> float:
    """Milliseconds."""
    upstream.clear()
    for name, seconds in PANEL.items():
        upstream.script(name, [f"slow-headers={seconds};text={name * 4000}"])
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.connect()
    began = time.monotonic()
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    reply = connection.getresponse()
    said = reply.read()
    took = time.monotonic() - began
    connection.close()
    assert reply.status == 200, said
    *panel, judge = upstream.requests
    assert judge.model.startswith("j:")
    slowest = max(took_by(each) for each in panel)
    return (took - slowest - took_by(judge)) * 1000


def took_by(request: Request) -> float:
    assert request.completed.wait(5)
    assert request.completed_at is not None
    return request.completed_at - request.time


def main() -> int:
    body = request()
    with tempfile.TemporaryDirectory() as home, Upstream() as upstream:
        Path(home, "combos").mkdir()
        combo = {"models": [f"one/{name}" for name in PANEL], "strategy": "fusion", "judge": JUDGE}
        Path(home, "combos", "three.json").write_text(json.dumps(combo))
        Path(home, "krouter.toml").write_text(f'[provider.one]\nbase_url = "{upstream.url}/v1"\n')
        server = subprocess.Popen(
            [KROUTER, "serve", "--home", home, "--port", "0"], stderr=subprocess.PIPE, text=True
        )
        try:
            address = read_address(server)
            added(address, upstream, body)  # once for connections
            times = [added(address, upstream, body) for _ in range(ROUNDS)]
        finally:
            server.terminate()
            server.communicate()
    median, worst = statistics.median(times), max(times)
    verdict = "ok" if median < LIMIT else "MISSED"
    print(
        f"a panel of 3 and a judge, {len(body) // 1000} kB: {median:.1f} ms added, {worst:.1f} at"
        f" most in {ROUNDS} (load {os.getloadavg()[0]:.1f})  limit {LIMIT:.0f} ms  {verdict}"
    )
    return 1 if median >= LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
