"""How long krouter takes to start: `make bench`.

Each figure is the median of several fresh processes, in seconds of wall time; a limit stands
beside it. Exit status 1 when a limit is missed.
"""

from __future__ import annotations

import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROUNDS = 7
PYTHON = sys.executable
KROUTER = str(Path(PYTHON).with_name("krouter"))
BODY = b'{"model": "demo", "messages": [{"role": "user", "content": "hello"}]}'


class Figure(NamedTuple):
    """What is measured, once, and what it may take, in seconds."""

    name: str
    measure: Callable[[], float]
    limit: float


def timed(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def import_time() -> float:
    """Of `import krouter`, without the interpreter's own start."""
    code = "import time; t = time.perf_counter(); import krouter; print(time.perf_counter() - t)"
    done = subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def first_request() -> float:
    """From the start of `krouter serve` until its first answer has been read."""
    with tempfile.TemporaryDirectory() as home:
        began = time.perf_counter()
        server = subprocess.Popen(
            [KROUTER, "serve", "--home", home, "--port", "0"], stderr=subprocess.PIPE, text=True
        )
        try:
            address = read_address(server)
            ask_demo(address)
            return time.perf_counter() - began
        finally:
            server.terminate()
            server.communicate()


def read_address(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None
    for line in server.stderr:
        if "http://" in line:
            return line.partition("http://")[2].split()[0]
    raise RuntimeError("krouter serve ended without saying where it listens")


def ask_demo(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request("POST", "/v1/chat/completions", BODY, {"content-type": "application/json"})
    reply = connection.getresponse()
    reply.read()
    connection.close()
    if reply.status != 200:
        raise RuntimeError(f"the demo combo answered {reply.status}")


FIGURES = (
    Figure("import krouter", import_time, 0.25),
    Figure("krouter --help", lambda: timed([KROUTER, "--help"]), 0.4),
    Figure("krouter serve, first answer", first_request, 1.5),
)


def main() -> int:
    print(f"medians of {ROUNDS} fresh processes, {os.cpu_count()} cores, load {os.getloadavg()[0]}")
    missed = 0
    for figure in FIGURES:
        figure.measure()  # once for the file cache
        seconds = statistics.median(figure.measure() for _ in range(ROUNDS))
        verdict = "ok" if seconds < figure.limit else "MISSED"
        missed += seconds >= figure.limit
        print(f"{figure.name:30} {seconds:6.3f} s   limit {figure.limit} s   {verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
