"""What a chunk or a message of chat holds, in the ways in which hosts are known to write it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from krouter_adapters.litellm_lane.translate.shapes import (
    Json,
    as_dict,
    as_dicts,
    as_index,
    as_text,
)

TEXT, THOUGHT, TOOL, REDACTED = "text", "thinking", "tool_use", "redacted_thinking"
"""The kinds of blocks."""
OTHERS = (
    "reasoning_content",
    "reasoning",
    "refusal",
    "tool_calls",
    "function_call",
    "thinking_blocks",
    "images",
    "audio",
    "annotations",
)
"""What a delta may say beside its content."""
_UNTOLD = ("images", "audio", "annotations")
_BESIDE_CHOICES = ("error", "usage", "x_groq")
_BESIDE_DELTA = ("finish_reason", "index", "logprobs", "usage")


def first_choice(choices: list[Any]) -> Json | None:
    if choices and type(choices[0]) is dict and not choices[0].get("index"):
        first: Json = choices[0]
        return first
    for choice in as_dicts(choices):
        if not as_index(choice.get("index")):
            return choice
    return None


def sole_text(chunk: Json) -> str:
    """The text of a chunk whose one choice is the first, with more of it in its delta and nothing
    else; empty for any other."""
    choices = chunk.get("choices")
    if type(choices) is not list or len(choices) != 1 or any(map(chunk.get, _BESIDE_CHOICES)):
        return ""
    choice = choices[0]
    if type(choice) is not dict or any(map(choice.get, _BESIDE_DELTA)):
        return ""
    delta = choice.get("delta")
    if type(delta) is not dict or (len(delta) > 1 and any(map(delta.get, OTHERS))):
        return ""
    return as_text(delta.get("content"))


def usage_elsewhere(chunk: Json, choice: Json | None) -> Any:
    """Moonshot counts inside the choice, Groq inside a field of its own."""
    return (choice or {}).get("usage") or as_dict(chunk.get("x_groq")).get("usage")


def untold(said: Json) -> set[str]:
    """What of a chat message or delta has no place in messages."""
    lost = {key for key in _UNTOLD if said.get(key)}
    for part in as_dicts(said.get("content")):
        if part.get("type") not in (None, TEXT, THOUGHT):
            lost.add(str(part["type"])[:80])
    return lost


def content_texts(content: Any) -> Iterator[tuple[str, str]]:
    """Content in parts, as Mistral sends it: text, and thinking that holds text parts."""
    for part in as_dicts(content):
        inner = part.get("thinking")
        thought = (
            inner
            if isinstance(inner, str)
            else "".join(as_text(piece.get("text")) for piece in as_dicts(inner))
        )
        if thought:
            yield THOUGHT, thought
        elif as_text(part.get("text")):
            yield TEXT, part["text"]
