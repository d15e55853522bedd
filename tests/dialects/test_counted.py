"""How much is said in a stream, of every dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krouter.body import Body
from krouter.dialects import get
from krouter.dialects.counted import Counted, length_of
from krouter.sse import Event, encode


@pytest.mark.parametrize(
    ("dialect", "event", "length"),
    [
        ("chat", {"choices": [{"index": 0, "delta": {"content": "two"}}]}, 3),
        ("chat", {"choices": [{"index": 1, "delta": {"content": "two"}}]}, 0),
        ("chat", {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}, 0),
        ("chat", {"choices": [{"index": 0, "delta": {"content": None}}]}, 0),
        ("chat", {"choices": []}, 0),
        ("messages", {"type": "x", "delta": {"type": "text_delta", "text": "häß"}}, 3),
        ("messages", {"type": "x", "delta": {"type": "thinking_delta", "thinking": "hm"}}, 0),
        ("messages", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, 0),
        ("responses", {"type": "response.output_text.delta", "delta": "two"}, 3),
        ("responses", {"type": "response.function_call_arguments.delta", "delta": "{}"}, 0),
        ("gemini", {"candidates": [{"content": {"parts": [{"text": "a"}, {"text": "b"}]}}]}, 2),
        ("gemini", {"candidates": [{"content": {"parts": [{"text": "a", "thought": True}]}}]}, 0),
        ("gemini", {"candidates": []}, 0),
        ("embeddings", {"choices": [{"index": 0, "delta": {"content": "two"}}]}, 0),
    ],
)
def test_what_one_event_says(dialect: str, event: dict[str, Any], length: int) -> None:
    assert length_of(dialect, json.dumps(event).encode()) == length


@pytest.mark.parametrize("data", [b"[DONE]", b"{", b"[]", b"\xff", b'{"delta": 1}'])
def test_what_is_no_event_says_nothing(data: bytes) -> None:
    assert length_of("chat", data) == 0


def test_the_dialect_is_as_it_was_but_for_the_count() -> None:
    chat = get("chat")
    counted, body = Counted(chat), Body.parse(b"{}")
    assert (counted.name, counted.keep_alive) == (chat.name, chat.keep_alive)
    assert counted.length is None
    tracker, plain = counted.tracker(body, "m"), chat.tracker(body, "m")
    for delta in ({"role": "assistant", "content": "ab"}, {"content": "c"}):
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        data = json.dumps({"id": "i", "model": "n", "choices": [choice]}).encode()
        event = Event(encode(data), b"", data)
        assert tracker.feed(event) == plain.feed(event)
    assert counted.length == 3
    assert (tracker.started, tracker.has_content) == (True, True)
    assert counted.ending(tracker) == chat.ending(plain)
    told = (500, "broke", {})
    assert counted.error_event(*told, tracker) == chat.error_event(*told, plain)
