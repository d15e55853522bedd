"""The conversation in a request body, item by item; what is not changed stays as it came."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from krouter.body import Body, dump
from krouter.dialects.base import UNREADABLE

FIELD: Mapping[str, str] = {
    "chat": "messages",
    "messages": "messages",
    "responses": "input",
    "gemini": "contents",
}
"""The field of each dialect's body that holds the conversation."""

SYSTEM: Mapping[str, tuple[str, ...]] = {
    "messages": ("system",),
    "responses": ("instructions",),
    "gemini": ("systemInstruction", "system_instruction"),
}
"""Those that hold the system prompt, where that is no part of the conversation."""

_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


def raw_history(dialect_name: str, body: Body) -> bytes:
    """The conversation as it was sent; empty if there is none."""
    raw = body.fields.get(FIELD[dialect_name])
    return b"" if raw is None else bytes(raw)


def items_of(dialect_name: str, body: Body) -> list[Any]:
    """The items, decoded. A lone text is a message of the user's."""
    conversation = body.value(FIELD[dialect_name])
    if isinstance(conversation, str):
        return [{"role": "user", "content": conversation}]
    if isinstance(conversation, dict):
        return [conversation]
    return conversation if isinstance(conversation, list) else []


def raw_prompts(dialect_name: str, body: Body) -> dict[str, msgspec.Raw]:
    """The system prompt outside the conversation, by its field, as it was sent."""
    fields = SYSTEM.get(dialect_name, ())
    return {name: body.fields[name] for name in fields if name in body.fields}


def prompt_item(raw: msgspec.Raw) -> dict[str, Any]:
    """A system prompt as an item of the conversation."""
    value = decoded(raw)
    inner = value if isinstance(value, dict) and "parts" in value else {"content": value}
    return {**inner, "role": "system"}


def raw_items(dialect_name: str, body: Body) -> list[msgspec.Raw]:
    """The items as they were sent. A lone text is a message of the user's, and Gemini takes a lone
    item for a list of one."""
    raw = raw_history(dialect_name, body)
    match raw[:1]:
        case b"[":
            return _split(raw)
        case b"{":
            return [msgspec.Raw(raw)]
        case b'"':
            return [msgspec.Raw(b'{"role":"user","content":' + raw + b"}")]
    return []


def with_items(dialect_name: str, body: Body, changes: Mapping[int, dict[str, Any] | None]) -> Body:
    """The body with some items replaced, or left out where None; the same body for no changes."""
    if not changes:
        return body
    items = raw_items(dialect_name, body)
    for at, item in changes.items():
        items[at] = msgspec.Raw(b"" if item is None else dump(item))
    kept = [item for item in items if bytes(item)]
    return Body.parse(body.edited({FIELD[dialect_name]: kept}))


def decoded(raw: bytes | msgspec.Raw) -> Any:
    """A value as `Body.value` reads it; None if it cannot be decoded."""
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        pass
    try:
        return json.loads(bytes(raw))
    except (ValueError, RecursionError):
        return None
