"""What the LiteLLM lane costs: `python -m benchmarks.litellm_lane`.

The longest stall of the event loop while LiteLLM is imported (median of fresh processes, a limit
beside it), then CPU per request built and per streamed chunk, the least of several rounds. Exit
status 1 when the limit is missed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from krouter_adapters.litellm_lane.lane import LIBRARY
from krouter_adapters.litellm_lane.telling import ToChat
from krouter_adapters.litellm_lane.through import Teller, Through
from krouter_adapters.litellm_lane.translate import (
    ChatToMessages,
    ChatToResponses,
    MessagesToChat,
    ResponsesToChat,
)
from krouter_adapters.litellm_lane.ways import aim

from krouter.adapter import Call, Target
from krouter.body import Body
from krouter.dialects import get
from krouter.providers import Provider

STALL_LIMIT = 0.3
PROCESSES = 3
ROUNDS = 5
LOADING = """
import asyncio, time
from krouter_adapters.litellm_lane.lane import LIBRARY

async def main():
    began = last = time.perf_counter()
    longest, waiting = 0.0, asyncio.ensure_future(LIBRARY.ready())
    while not waiting.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    print(longest, last - began)

asyncio.run(main())
"""


def loading() -> tuple[float, float]:
    """The longest stall and the whole time, in seconds."""
    done = subprocess.run([sys.executable, "-c", LOADING], check=True, capture_output=True)
    stall, whole = done.stdout.split()
    return float(stall), float(whole)


def call(dialect: str, turns: int) -> Call:
    said = [
        {"role": ("user", "assistant")[turn % 2], "content": "word " * (800 if turns > 1 else 4)}
        for turn in range(turns)
    ]
    body = {"model": "m", "max_tokens": 64, "messages": said}
    return Call(get(dialect), Body.parse(json.dumps(body).encode()), [], "m", False)


def cpu(step: Callable[[], object], times: int) -> float:
    """Microseconds of CPU a step."""
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(times):
            step()
        least = min(least, (time.process_time() - began) / times)
    return least * 1e6


TARGETS = {
    "chat": Provider("c", base_urls={"chat": "http://h/v1"}, own=True),
    "messages": Provider("m", base_urls={"messages": "http://h"}, litellm="anthropic", own=True),
    "gemini": Provider(
        "gemini", litellm="gemini", litellm_base="http://h/v1beta", known_by_litellm=True
    ),
}


def building(dialect: str, body: str, turns: int) -> float:
    library = LIBRARY.get()
    goal = aim(TARGETS[body])
    assert goal is not None
    asked, target = call(dialect, turns), Target(TARGETS[body], "m", "key")
    return cpu(lambda: library.request(asked, target, goal), 30 if turns > 1 else 100)


CHUNK = {"id": "c", "choices": [{"index": 0, "delta": {"content": "word "}}]}
MESSAGES_EVENT = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "text_delta", "text": "word "},
}
RESPONSES_EVENT = {"type": "response.output_text.delta", "output_index": 0, "delta": "word "}


def tellers() -> Iterator[tuple[str, Teller, dict[str, Any]]]:
    """A machine for each way through the lane, and one more piece of text for it."""
    yield "chat to messages", ChatToMessages({}), CHUNK
    yield "chat to responses", ChatToResponses({}), CHUNK
    yield "messages to chat", Through(MessagesToChat(), ToChat({}), is_chat=True), MESSAGES_EVENT
    yield (
        "messages to responses",
        Through(MessagesToChat(signed=True), ChatToResponses({})),
        MESSAGES_EVENT,
    )
    yield (
        "responses to messages",
        Through(ResponsesToChat("h", signed=True), ChatToMessages({})),
        RESPONSES_EVENT,
    )


def chunks() -> None:
    for name, teller, piece in tellers():
        teller.feed(piece)
        print(f"chunk {name}: {cpu(partial(teller.feed, piece), 20_000):.2f} µs")


def main() -> int:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]}")
    runs = [loading() for _ in range(PROCESSES)]
    stall = statistics.median(stall for stall, _ in runs)
    whole = statistics.median(whole for _, whole in runs)
    verdict = "ok" if stall < STALL_LIMIT else "MISSED"
    print(f"loading {whole:.1f} s; longest stall {stall:.3f} s, limit {STALL_LIMIT} s, {verdict}")
    for dialect, body in (("messages", "chat"), ("chat", "messages"), ("messages", "gemini")):
        small, big = building(dialect, body, 1), building(dialect, body, 31)
        print(f"build {dialect} to {body}: {small:.0f} µs small, {big:.0f} µs with 31 turns")
    chunks()
    return 0 if stall < STALL_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
