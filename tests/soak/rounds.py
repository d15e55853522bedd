"""What is asked of a server, and what must hold then."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from krouter.ledger_reader import LedgerReader
from tests.harness import provider_settings
from tests.soak.callers import Outcome, ask_all, questions
from tests.soak.provider import PASSING, SILENT, WAYS, Provider
from tests.upstream import Upstream

STREAMS = 500
MIXED = 2000
GROWTH = 96 << 20
"""Bytes of memory that a round may leave behind: what the allocator keeps, and the routes that are
remembered."""

UNLUCKY = 20
"""How many of a thousand may get an error though nothing befell their own request: the connection
it went over was just closed, or the machine was busy for longer than the limits."""

TIMES = {"firstByte": 3, "stall": 3, "attempt": 3, "total": 8}
PLAIN = ["plain", "turns", "nested", "guarded", "kept"]
OTHERS = ["across", "panel"]


def combos() -> dict[str, Any]:
    three = ["one/m1", "two/m2", "one/m3"]
    return {
        "plain": {"models": three, "timeouts": TIMES},
        "turns": {"models": three, "strategy": "round-robin", "timeouts": TIMES},
        "nested": {"models": ["plain", "two/m4"], "timeouts": TIMES},
        "guarded": {"models": three, "streamGuard": "first", "timeouts": TIMES},
        "kept": {"models": three, "streamGuard": "full", "timeouts": TIMES},
        "across": {"models": ["far/m5", "one/m6", "far/m7"], "timeouts": TIMES},
        "panel": {
            "models": three,
            "strategy": "fusion",
            "fusionTuning": {"stragglerGraceMs": 0, "panelHardTimeoutMs": 3000},
            "timeouts": TIMES,
        },
        "crowd": {"models": three},
        "duo": {"models": ["two/main", "one/spare"]},
    }


def furnish(home: Path, upstream: Upstream) -> dict[str, str]:
    """Settings and combos in a home, and the environment they want."""
    settings, env = provider_settings(upstream.url, one="a b c", two="x y z")
    far = f'[provider.far]\nspeaks = ["chat"]\nbase_url = "{upstream.url}/v1"\n'
    account = '[[account]]\nprovider = "far"\nname = "f"\nkey = "env:ONE_A"\n'
    kept = "[ledger]\ndays = 3650\n"
    (home / "krouter.toml").write_text(settings + far + account + kept)
    (home / "combos").mkdir(exist_ok=True)
    for name, combo in combos().items():
        (home / "combos" / f"{name}.json").write_text(json.dumps(combo))
    return env


def mixed(
    url: str,
    upstream: Upstream,
    seed: int,
    count: int = MIXED,
    begun: Callable[[], object] = bool,
) -> Outcome:
    """Requests of all kinds. `begun` is called with each reply that begins."""
    provider = Provider(upstream, seed, (*WAYS, *SILENT))
    asked = questions(random.Random(seed), count, [*PLAIN * 2, *OTHERS])
    met = provider.met.__getitem__
    return asyncio.run(ask_all(url, asked, met, at_once=64, begun=begun))


def crowd(url: str, upstream: Upstream, seed: int, count: int = STREAMS) -> tuple[Outcome, int]:
    """Streams that are all open at the same time: each waits, a part of it said, until every
    other has begun or ended. How many there were at once is told too."""
    provider = Provider(upstream, seed, PASSING, f"gate=crowd-{seed},1")
    gate = upstream.gate(f"crowd-{seed}")
    asked = questions(random.Random(seed), count, ["crowd"], stream=True, leaves=False)
    waiting = set(range(count))

    async def run() -> tuple[Outcome, int]:
        done = most = 0

        def begun() -> None:
            nonlocal done, most
            done += 1
            waiting.discard(done)
            if done == count:
                most = upstream.open_connections
                gate.open()

        outcome = await ask_all(url, asked, provider.met.__getitem__, at_once=count, begun=begun)
        return outcome, most

    return asyncio.run(run())


def is_all_told(outcome: Outcome, home: Path) -> set[str]:
    """The routes that were answered and are not in the ledger."""
    reader = LedgerReader(home / "ledger.db")
    return outcome.routes - {row.id for row in reader.requests(limit=10**7)}


def settled(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Everything is back to where it was."""
    assert not any(after[each] for each in ("in_flight", "open", "busy", "callers")), after
    assert after["left"] == {}
    assert after["tasks"] <= before["tasks"]
    assert after["files"] <= before["files"]
    assert after["memory"] <= before["memory"] + GROWTH


def problems(outcome: Outcome, count: int) -> str:
    """What is wrong with it; empty where nothing is."""
    if outcome.wrong:
        return f"{len(outcome.wrong)} of {count}:\n" + "\n".join(outcome.wrong[:9])
    if outcome.counts["unlucky"] > max(UNLUCKY, count * UNLUCKY / 1000):
        return f"errors where nothing had failed: {outcome.counts}"
    if outcome.counts.total() != count or outcome.counts["answered"] < count // 2:
        return f"too few are answered: {outcome.counts}"
    return ""
