"""Skimming a stream comes to the same as feeding each of its events."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects import get
from krouter.dialects.base import Dialect, Tracker, Usage
from krouter.dialects.counted import Counted
from krouter.dialects.text_calls import TextCalls
from krouter.sse import Splitter
from krouter.stream import Relay
from krouter.wire import Canned
from tests.dialects.told import (
    BODIES,
    CALLS,
    SAID,
    Told,
    block,
    chat,
    delta,
    gemini,
    response,
    streams,
)


class Fed:
    """A tracker that is fed each event."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracker, name)

    def skim(self, events: bytes) -> int:
        return 0


async def relayed(chunks: Iterable[bytes], tracker: Any) -> bytes:
    relay = Relay(Canned(200, "text/event-stream", iter(chunks)), tracker, None, "sk-1")
    await relay.prime(lambda: None, lambda tracker: tracker.started)
    out = b""
    while piece := await relay.next():
        out += piece
    return out


def cut(raw: bytes, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    longest = chance.choice([1, 30, 300, 10**6])
    chunks = []
    while raw:
        size = chance.randint(1, longest)
        chunks.append(raw[:size])
        raw = raw[size:]
    return chunks


def state(tracker: Any) -> str:
    """All that a tracker knows, but for what is made at random."""
    inner = getattr(tracker, "inner", tracker)
    return masked(repr((vars(tracker) | {"inner": None}, vars(inner), tracker.usage)))


def masked(told: str) -> str:
    return re.sub(r'resp_[0-9a-f]{48}|"created_at":\d+|0x[0-9a-f]+', "", told)


def same(dialect: Dialect, body: bytes, rename: str | None, raw: bytes, seed: int) -> None:
    whole, chunks = Body.parse(body), cut(raw, seed)
    skimmed, fed = dialect.tracker(whole, rename), dialect.tracker(whole, rename)

    async def both() -> tuple[bytes, bytes]:
        return await relayed(chunks, skimmed), await relayed(chunks, Fed(fed))

    passed, expected = asyncio.run(both())
    assert masked(repr(passed)) == masked(repr(expected))
    assert state(skimmed) == state(fed)


SEEDS = st.integers(0, 2**32)
RENAMES = st.sampled_from([None, None, "mine"])


@pytest.mark.parametrize("dialect", BODIES)
@settings(max_examples=250)
@given(st.data())
def test_skimming_comes_to_the_same_as_feeding(dialect: str, data: st.DataObject) -> None:
    raw = data.draw(streams(dialect))
    same(get(dialect), BODIES[dialect], data.draw(RENAMES), raw, data.draw(SEEDS))


@settings(max_examples=40)
@given(streams("chat"), SEEDS)
def test_of_several_choices(raw: bytes, seed: int) -> None:
    same(get("chat"), b'{"model":"m","messages":[],"n":2}', None, raw, seed)


@settings(max_examples=40)
@given(streams("chat"), SEEDS)
def test_with_calls_as_text(raw: bytes, seed: int) -> None:
    same(TextCalls(frozenset("f")), BODIES["chat"], None, raw, seed)


@pytest.mark.parametrize("dialect", BODIES)
@settings(max_examples=40)
@given(st.data())
def test_and_counted(dialect: str, data: st.DataObject) -> None:
    raw = data.draw(streams(dialect))
    same(Counted(get(dialect)), BODIES[dialect], None, raw, data.draw(SEEDS))


def event(told: Told, end: str = "\n") -> bytes:
    head = f"event: {told[0]}{end}" if told[0] else ""
    return f"{head}data: {json.dumps(told[1])}{end}{end}".encode()


USUAL = {
    "chat": [
        SAID["chat"],
        ("", chat('a "word"\n', logprobs=None) | {"usage": None}),
        ("", chat("é", finish_reason="", delta={"reasoning_content": "hm"})),
        ("", chat("", delta=CALLS)),
        ("", {"choices": []}),
    ],
    "messages": [
        SAID["messages"],
        delta({"type": "thinking_delta", "thinking": "hm"}),
        block("content_block_stop"),
        ("ping", {"type": "ping"}),
        block("content_block_start", content_block={"type": "tool_use", "input": {}}),
        delta({"type": "input_json_delta", "partial_json": '{"a"'}),
    ],
    "responses": [
        SAID["responses"],
        response("reasoning_summary_text.delta", delta="hm"),
        response("output_text.done", text="hi"),
        response("function_call_arguments.delta", delta='{"a"'),
    ],
    "gemini": [
        SAID["gemini"],
        ("", gemini("hm", thought=True) | {"usageMetadata": {"candidatesTokenCount": 7}}),
    ],
}
TELLING: dict[str, list[Told]] = {
    "chat": [
        ("", chat("hi", finish_reason="stop")),
        ("", chat("hi", usage={"prompt_tokens": 1})),
        ("", chat("hi") | {"usage": {"prompt_tokens": 1}}),
        ("", chat("hi") | {"x_groq": {"usage": {"prompt_tokens": 1}}}),
        ("", chat("hi") | {"error": {"message": "no"}}),
        ("error", chat("hi")),
    ],
    "messages": [
        delta({"type": "signature_delta", "signature": "s"}),
        block("content_block_start", content_block={"type": "redacted_thinking", "data": "s"}),
        ("message_delta", {"type": "message_delta", "usage": {"output_tokens": 1}}),
        ("error", {"error": {}}),
        ("", delta({"type": "text_delta", "text": "hi"})[1]),
    ],
    "responses": [
        response("output_item.done", item={"type": "reasoning", "encrypted_content": "s"}),
        response("failed", response={}),
        ("error", {"type": "error"}),
        ("", response("output_text.delta", delta="hi")[1]),
    ],
    "gemini": [
        ("", gemini("hi", thoughtSignature="s")),
        ("", gemini("hi") | {"promptFeedback": {"blockReason": "SAFETY"}}),
        ("", gemini("hi") | {"error": {"code": 500}}),
        ("", {"candidates": [{"finishReason": "STOP"}]}),
        ("error", gemini("hi")),
    ],
}


@pytest.mark.parametrize(
    ("dialect", "told"), [(dialect, told) for dialect in TELLING for told in TELLING[dialect]]
)
def test_an_event_that_tells_something_is_fed(dialect: str, told: Told) -> None:
    tracker = begun(dialect)
    usual = event(SAID[dialect])
    assert tracker.skim(usual + event(told) + usual) in (len(usual), 0)
    assert tracker.skim(event(told)) == 0


def test_an_event_is_fed_that_is_to_be_changed_or_counted() -> None:
    said, many = event(SAID["chat"]), b'{"model":"m","messages":[],"n":2}'
    assert begun("chat").skim(said) == len(said)
    assert begun("chat", rename="mine").skim(said) == 0
    assert begun("chat", body=many).skim(said) == 0
    assert begun("gemini", rename="mine").skim(event(SAID["gemini"])) == 0


def begun(
    dialect: str, end: str = "\n", *, body: bytes | None = None, rename: str | None = None
) -> Tracker:
    """A tracker of a stream in which something has been said."""
    tracker = get(dialect).tracker(Body.parse(body or BODIES[dialect]), rename)
    for each in Splitter().feed(event(SAID[dialect], end)):
        tracker.feed(each)
    assert tracker.has_content
    return tracker


LAST = {
    "chat": ("", chat("", finish_reason="stop")),
    "messages": ("message_delta", {"type": "message_delta", "delta": {}}),
    "responses": response("completed", response={}),
    "gemini": ("", {"candidates": [{"finishReason": "STOP"}]}),
}


@pytest.mark.parametrize("dialect", BODIES)
def test_what_providers_send_is_skimmed_up_to_the_end(dialect: str) -> None:
    end = "\r\n" if dialect == "gemini" else "\n"
    usual = b"".join(event(told, end) for told in USUAL[dialect])
    tracker = begun(dialect, end)
    assert tracker.skim(usual) == len(usual)
    assert tracker.skim(usual + event(LAST[dialect], end) + usual) == len(usual)
    assert tracker.skim(event(LAST[dialect], end)) == 0
    assert not tracker.complete


def test_the_last_counts_of_what_is_skimmed_are_kept() -> None:
    tracker = begun("gemini")
    for count in (1, 2):
        counted = {"usageMetadata": {"candidatesTokenCount": count}}
        tracker.skim(event(("", gemini("hi") | counted)) + event(SAID["gemini"]))
        assert tracker.usage == Usage(0, count)


def test_a_stream_passes_in_the_pieces_it_came_in() -> None:
    words = [event(("", chat(text))) for text in ("a", "b", "c")]
    chunks = [words[0] + words[1][:9], words[1][9:] + words[2] * 50, words[2]]

    async def main() -> list[bytes]:
        tracker = get("chat").tracker(Body.parse(BODIES["chat"]), None)
        relay = Relay(Canned(200, "text/event-stream", iter(chunks)), tracker, None)
        await relay.prime(lambda: None, lambda tracker: tracker.started)
        return [await relay.next() for _ in chunks]

    assert asyncio.run(main()) == [words[0], words[1] + words[2] * 50, words[2]]
