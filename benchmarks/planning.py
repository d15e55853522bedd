"""What it costs to put a combo in order: `make bench`.

A combo of ten entries and a body of 200 kB, in microseconds. Parsing is to split the body at its
top level and to decode the latest message; planning is the rest of looking for attachments in that
message, and to decide the order. Beside it stands its limit; exit status 1 when it is missed.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from krouter.body import Body
from krouter.dialects.needs import needs
from krouter.load import House
from krouter.naming import resolve
from krouter.paths import resolve_paths
from krouter.reporter import Figure, Report
from krouter.standing import plan_for
from krouter.wire import HttpWire
from krouter.world import Ask, World

LIMIT = 100.0
ROUNDS = 2000
MODELS = [
    "glm/glm-5.1",
    "ds/deepseek-v4-pro",
    "cc/claude-sonnet-4-6",
    "openai/gpt-5.1",
    "gemini/gemini-3-pro-preview",
    "anthropic/claude-opus-4-6",
    "xai/grok-4",
    "mistral/mistral-large-latest",
    "groq/llama-3.3-70b-versatile",
    "openrouter/qwen/qwen3-coder",
]
PIXELS = "iVBORw0KGgo" * 9000


def talk(size: int, last: Any) -> bytes:
    """A conversation with tool calls of about `size` bytes that ends in a user's message."""
    turns: list[dict[str, Any]] = []
    while len(turns) * 2000 < size:
        call = {"name": "read", "arguments": '{"path": "a.py"}'}
        turns += [
            {"role": "user", "content": "look at this " + "word " * 700},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "def f():\n    return 1\n" * 180},
            {"role": "assistant", "content": "done"},
        ]
    turns.append({"role": "user", "content": last})
    return json.dumps({"model": "ten", "messages": turns}).encode()


def screenshot() -> list[dict[str, Any]]:
    url = f"data:image/png;base64,{PIXELS}"
    return [{"type": "text", "text": "why?"}, {"type": "image_url", "image_url": {"url": url}}]


@contextmanager
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as home:
        combos = Path(home, "combos")
        combos.mkdir()
        (combos / "ten.json").write_text(json.dumps({"models": MODELS}))
        env = {"GLM_API_KEY": "x", "DEEPSEEK_API_KEY": "x", "ANTHROPIC_API_KEY": "x"}
        paths = resolve_paths(home=Path(home), env=env, cwd=Path(home))
        house = House(paths, env, HttpWire())
        house.pool.quota.note("glm", "env", Report(figures=(Figure("glm-5.1", 0.4),)), "reported")
        yield house.router.world


def microseconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1000


def main() -> int:
    print(f"{len(MODELS)} entries, medians of {ROUNDS}, load {os.getloadavg()[0]:.1f}")
    missed = 0
    with world() as here:
        combo = resolve("ten", here).combo
        bodies = {"text": talk(200_000, "and now?"), "screenshot": talk(100_000, screenshot())}
        for name, raw in bodies.items():
            body = Body.parse(raw)
            found = needs("chat", body)
            parsing = microseconds(partial(Body.parse, raw))
            latest = json.dumps(json.loads(raw)["messages"][-1]).encode()
            decoding = microseconds(partial(msgspec.json.decode, latest))
            looking = microseconds(partial(needs, "chat", body)) - decoding
            ordering = microseconds(partial(plan_for, combo, here, Ask("chat", needs=found)))
            took = looking + ordering
            verdict = "ok" if took < LIMIT else "MISSED"
            missed += took >= LIMIT
            print(
                f"{name:11} {len(raw) // 1000} kB: parsing {parsing:4.0f} + {decoding:3.0f} µs,"
                f" planning {took:4.0f} µs ({looking:.0f} looking for attachments,"
                f" {ordering:.0f} ordering)  limit {LIMIT:.0f} µs  {verdict}"
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
