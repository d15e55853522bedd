"""Replies as scripts, and every way a provider may stream them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = st.sampled_from(["get_weather", "bash", "read_file", "a-b_c"])
VALUES = st.dictionaries(WORDS, st.one_of(WORDS, st.integers(-9, 9), st.lists(WORDS, max_size=2)))


@dataclass
class Script:
    """What a model says: thinking, then text, then calls."""

    thinking: str = ""
    text: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    usage: tuple[int, int, int] = (0, 0, 0)
    """Prompt, cached part of it, output."""

    @property
    def finish(self) -> str:
        return "tool_calls" if self.calls else "stop"

    @property
    def stop(self) -> str:
        return "tool_use" if self.calls else "end_turn"


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    prompt = draw(st.integers(1, 999))
    return Script(
        draw(st.one_of(st.just(""), WORDS)),
        draw(st.one_of(st.just(""), WORDS)),
        draw(st.lists(st.tuples(NAMES, VALUES), max_size=3)),
        (prompt, draw(st.integers(0, prompt)), draw(st.integers(1, 999))),
    )


def pieces(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "model": "m", "created": 1, "choices": [choice], **more}


def usage_of(script: Script) -> dict[str, Any]:
    prompt, cached, output = script.usage
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


@st.composite
def chat_chunks(draw: st.DrawFn, script: Script) -> list[dict[str, Any]]:
    """One of the many streams that say `script`: cut anywhere, the calls' pieces mixed, with ids
    and indices or without."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    key = draw(st.sampled_from(["reasoning_content", "reasoning"]))
    deltas += [{key: piece} for piece in pieces(draw, script.thinking)]
    deltas += [{"content": piece} for piece in pieces(draw, script.text)]
    deltas += draw(call_deltas(script.calls))
    out = [chunk(delta) for delta in deltas]
    usage = usage_of(script)
    if draw(st.booleans()):
        return [*out, chunk({}, script.finish), {"id": "x", "choices": [], "usage": usage}]
    return [*out, chunk({"content": None}, script.finish, usage=usage)]


@st.composite
def call_deltas(draw: st.DrawFn, calls: list[Any]) -> list[dict[str, Any]]:
    style = draw(st.sampled_from(["plain", "all index 0", "no index", "whole", "late id"]))
    queues = [
        _call_pieces(draw, number, name, value, style) for number, (name, value) in enumerate(calls)
    ]
    # The first piece of each call keeps its place, the rest may be mixed.
    mixed = style in ("plain", "all index 0", "late id") and draw(st.booleans())
    if not mixed:
        return [{"tool_calls": [piece]} for queue in queues for piece in queue]
    out = [{"tool_calls": [queue.pop(0)]} for queue in queues]
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        out.append({"tool_calls": [queue.pop(0)]})
    return out


def _call_pieces(
    draw: st.DrawFn, number: int, name: str, value: Any, style: str
) -> list[dict[str, Any]]:
    arguments = json.dumps(value) if value or draw(st.booleans()) else ""
    if style == "whole":
        whole = {"name": name, "arguments": arguments}
        return [{"index": number, "id": f"call_{number}", "type": "function", "function": whole}]
    first, *rest = pieces(draw, arguments)
    head = {"id": f"call_{number}", "function": {"name": name, "arguments": first}}
    out = [head, *({"function": {"arguments": piece}} for piece in rest)]
    if style == "all index 0":
        return [{**piece, "index": 0, "id": f"call_{number}"} for piece in out]
    if style == "no index":
        return out
    if style == "late id" and rest:
        out[1]["id"] = out[0].pop("id")
    return [{**piece, "index": number} for piece in out]


@st.composite
def messages_events(draw: st.DrawFn, script: Script) -> list[tuple[str, dict[str, Any]]]:
    prompt, cached, output = script.usage
    start = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": prompt - cached,
            "cache_read_input_tokens": cached,
            "output_tokens": 1,
        },
    }
    out: list[tuple[str, dict[str, Any]]] = [("message_start", {"message": start}), ("ping", {})]
    blocks: list[tuple[dict[str, Any], str, str, str]] = []
    if script.thinking:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        blocks.append((block, "thinking_delta", "thinking", script.thinking))
    if script.text:
        blocks.append(({"type": "text", "text": ""}, "text_delta", "text", script.text))
    for number, (name, value) in enumerate(script.calls):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
        said = json.dumps(value) if value or draw(st.booleans()) else ""
        blocks.append((block, "input_json_delta", "partial_json", said))
    for index, (block, kind, key, said) in enumerate(blocks):
        out.append(("content_block_start", {"index": index, "content_block": block}))
        for piece in pieces(draw, said):
            delta = {"type": kind, key: piece}
            out.append(("content_block_delta", {"index": index, "delta": delta}))
        if kind == "thinking_delta":
            delta = {"type": "signature_delta", "signature": "s=="}
            out.append(("content_block_delta", {"index": index, "delta": delta}))
        out.append(("content_block_stop", {"index": index}))
    ended = {"stop_reason": script.stop, "stop_sequence": None}
    out.append(("message_delta", {"delta": ended, "usage": {"output_tokens": output}}))
    out.append(("message_stop", {}))
    return [(name, {"type": name, **data}) for name, data in out]
