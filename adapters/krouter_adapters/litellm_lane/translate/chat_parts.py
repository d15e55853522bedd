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
_UNTOLD = ("images", "audio", "annotations")


def first_choice(choices: list[Any]) -> Json | None:
    if choices and type(choices[0]) is dict and not choices[0].get("index"):
        first: Json = choices[0]
        return first
    for choice in as_dicts(choices):
        if not as_index(choice.get("index")):
            return choice
    return None


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
