"""What it costs to keep a request in the ledger and to count it: `make bench`.

Routes as those of the combo `daily` are put at a steady pace into a ledger in an empty folder. The
CPU time is that of the whole process, the ledger's own thread with it, in microseconds a request.
Beside it stands its limit; exit status 1 when it is missed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from krouter.board import Board
from krouter.dialects.base import Usage
from krouter.ledger import Ledger
from krouter.load import House
from krouter.metrics import Metrics
from krouter.naming import resolve
from krouter.paths import resolve_paths
from krouter.plan import Plan
from krouter.route import Attempt, End, Route
from krouter.router import new_route_id
from krouter.standing import plan_for
from krouter.wire import HttpWire
from krouter.world import Ask, World

LIMITS = {"ledger": 70.0, "metrics": 8.0}
NUMBER = 5000
AT_ONCE = 16
PER_SECOND = 2000.0
ROUNDS = 3


def routes(world: World) -> list[Route]:
    """Requests to `daily` that its first entry has answered."""
    combo = resolve("daily", world).combo
    return [_route(number, plan_for(combo, world, Ask("chat"))) for number in range(NUMBER)]


def _route(number: int, plan: Plan) -> Route:
    began = time.time() + number / PER_SECOND
    route = Route(new_route_id(), began, "chat", "daily", False, "daily")
    route.note_plan(plan)
    entry = plan.steps[0].entry.model
    provider, model = entry.split("/", 1)
    attempt = Attempt(entry, model, "env", "native", began + 0.0003, provider, places=(1,))
    attempt.first_byte, attempt.ended = began + 0.0011, began + 0.0013
    attempt.outcome, attempt.status = End.ANSWERED, 200
    attempt.usage, attempt.cost = Usage(9, 100), 432_000_000
    route.add(attempt)
    route.serve(attempt)
    route.status, route.outcome, route.ended = 200, End.ANSWERED, began + 0.0014
    return route


def put(given: list[Route], folder: str, at: float = PER_SECOND) -> float:
    """Microseconds of CPU a route."""
    path = Path(folder, "ledger.db")
    ledger = Ledger(path, days=30, megabytes=200, warn=print)
    began, clock = time.process_time(), time.perf_counter()
    for number, route in enumerate(given):
        ledger.put(route)
        if number % AT_ONCE == 0:
            time.sleep(max(clock + number / at - time.perf_counter(), 0))
    assert ledger.close(60)
    return (time.process_time() - began) / len(given) * 1e6


def book(given: list[Route]) -> float:
    metrics = Metrics(lambda: Board(time.time))
    began = time.process_time()
    for route in given:
        metrics.book(route)
    return (time.process_time() - began) / len(given) * 1e6


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        paths = resolve_paths(home=Path(home), env={}, cwd=Path(home))
        keys = dict.fromkeys(("GLM_API_KEY", "DEEPSEEK_API_KEY", "ANTHROPIC_API_KEY"), "x")
        given = routes(House(paths, keys, HttpWire(), ledger=False).router.world)
    print(f"{NUMBER} requests of daily, least of {ROUNDS}, load {os.getloadavg()[0]:.1f}")
    took = {"ledger": float("inf"), "metrics": float("inf")}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            took["ledger"] = min(took["ledger"], put(given, folder))
        took["metrics"] = min(took["metrics"], book(given))
    missed = [name for name, limit in LIMITS.items() if took[name] >= limit]
    for name, limit in LIMITS.items():
        verdict = "MISSED" if name in missed else "ok"
        print(f"{name:8} {took[name]:5.1f} µs a request  limit {limit:.0f} µs  {verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
