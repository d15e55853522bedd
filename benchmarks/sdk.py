"""A process that calls from Python: `python -m benchmarks.sdk krouter|litellm json|stream PORT`.

Prints the CPU time of the whole process, all threads, divided by the calls: the least of a few
rounds, in milliseconds. The provider at PORT sends what `benchmarks.provider` sends.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.bodies import body
from benchmarks.provider import HELLO, WORD

ROUNDS = 2
CHUNKS = 100
PACE = 0.001
CALLS = {"json": 200, "stream": 12}
AT_ONCE = 4
MESSAGES: list[dict[str, Any]] = json.loads(body("chat", "1 kB", "fast"))["messages"]

Call = Callable[..., Awaitable[Any]]


def krouter_call(port: str) -> Call:
    from krouter import Router

    settings = {"provider": {"fast": {"base_url": f"http://127.0.0.1:{port}/v1"}}}
    router = Router(combos={"bench": {"models": ["fast/fast"]}}, settings=settings, env={})

    async def call(**arguments: Any) -> Any:
        return await router.acompletion("bench", MESSAGES, **arguments)

    return call


def litellm_call(port: str) -> Call:
    os.environ.update(LITELLM_OFFLINE_MODE="true", LITELLM_LOCAL_MODEL_COST_MAP="True")
    import litellm

    base = f"http://127.0.0.1:{port}/v1"

    async def call(**arguments: Any) -> Any:
        return await litellm.acompletion(
            "hosted_vllm/fast",
            MESSAGES,
            api_base=base,
            api_key="none",
            max_retries=0,
            **arguments,
        )

    return call


async def one_json(call: Call) -> None:
    reply = await call()
    assert reply.choices[0].message.content == HELLO


async def one_stream(call: Call) -> None:
    texts = [
        chunk.choices[0].delta.content async for chunk in await call(stream=True) if chunk.choices
    ]
    assert len([text for text in texts if text and WORD in text]) == CHUNKS


async def measure(call: Call, kind: str) -> float:
    """Milliseconds of CPU a call."""
    one = one_json if kind == "json" else one_stream
    count = CALLS[kind]

    async def some() -> None:
        for _ in range(count // AT_ONCE):
            await one(call)

    await some()
    costs = []
    for _ in range(ROUNDS):
        began = time.process_time()
        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        costs.append((time.process_time() - began) / count * 1000)
    return min(costs)


def measured(who: str, kind: str, port: int) -> float:
    """The same in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.sdk", who, kind, str(port)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    _, who, kind, port = sys.argv
    print(asyncio.run(measure((krouter_call if who == "krouter" else litellm_call)(port), kind)))
