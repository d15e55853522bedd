"""What a fusion adds to its panel and its judge: `make bench`.

A panel of three, whose members take 40, 60 and 80 ms, and a judge that takes 40 ms, for a coding
agent's request of 100 kB with tools and tool history. What is added is the caller's time for the
whole request, less that of the calls to the slowest member and to the judge, as its route records
them. Beside it stands its limit; exit status 1 when it is missed.
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
from tests.upstream import Upstream

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
    assert reply.status == 200, said
    connection.request("GET", f"/api/routes/{reply.headers['x-krouter-route']}")
    route = json.loads(connection.getresponse().read())
    connection.close()
    times = [each["ended"] - each["began"] for each in route["steps"]]
    *panel, judge = times
    assert len(panel) == len(PANEL)
    return float((took - max(panel) - judge) * 1000)


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
