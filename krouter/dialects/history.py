"""The conversation in a request body, item by item; what is not changed stays as it came."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
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
"""The field of each dialect's body that holds the conversation; one that is not here has none."""

SYSTEM: Mapping[str, tuple[str, ...]] = {
    "messages": ("system",),
    "responses": ("instructions",),
    "gemini": ("systemInstruction", "system_instruction"),
}
"""Those that hold the system prompt, where that is no part of the conversation."""

_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
_is_empty = re.compile(rb"\[\s*+\]").fullmatch


def raw_history(dialect_name: str, body: Body) -> bytes:
    """The conversation as it was sent; empty if there is none."""
    raw = body.fields.get(FIELD.get(dialect_name, ""))
    return b"" if raw is None else bytes(raw)


def empty_field(dialect_name: str, body: Body) -> str:
    """The field of a conversation without any message; empty where there are some, or where the
    body is of a dialect without conversations."""
    name = FIELD.get(dialect_name, "")
    raw = body.fields.get(name)
    return name if raw is not None and _is_empty(raw) else ""


def items_of(dialect_name: str, body: Body) -> list[Any]:
    """The items, decoded. A lone text is a message of the user's."""
    conversation = body.value(FIELD.get(dialect_name, ""))
    if isinstance(conversation, str):
        return [{"role": "user", "content": conversation}]
    if isinstance(conversation, dict):
        return [conversation]
    return conversation if isinstance(conversation, list) else []


_OPENINGS = {"responses": (b'{"role":', b'{"type":')}
_ROLE = (b'{"role":',)
_TRIES = 8
_BRACES = 64
_BLANK = b" \t\r\n"


def from_the_end(dialect_name: str, body: Body) -> Iterator[Any]:
    """The items of `items_of`, the last first, each decoded when it is asked for.

    An item is found by how clients begin one. In JSON these bytes stand in no text, where their
    quotes would be escaped; and what lies between them and the item after is one JSON object only
    if it is an item, not a part of one. Where that does not find it, all is decoded.
    """
    raw = raw_history(dialect_name, body)
    if raw[:1] != b"[":
        yield from reversed(items_of(dialect_name, body))
        return
    end, count = len(raw) - 1, 0
    while found := _item_before(raw, end, dialect_name):
        item, end = found
        count += 1
        yield item
    if raw[1:end].strip():
        items = items_of(dialect_name, body)
        yield from reversed(items[: len(items) - count])


def _item_before(raw: bytes, end: int, dialect_name: str) -> tuple[Any, int] | None:
    """The item in front of the comma or bracket at `end`, and where the one before it ends."""
    at, view = end, memoryview(raw)
    for _ in range(_TRIES):
        at = opening_before(raw, at, dialect_name)
        if at < 0:
            return None
        try:
            item = msgspec.json.decode(view[at:end])
        except UNREADABLE:
            continue
        at -= 1
        while raw[at] in _BLANK:
            at -= 1
        return item, at
    return None


def opening_before(raw: bytes, at: int, dialect_name: str) -> int:
    """Where clients of a dialect seem to begin an item before `at`; -1 for nowhere. One brace is
    found much faster than a longer text, as long as there are few, as in an image."""
    openings = _OPENINGS.get(dialect_name, _ROLE)
    for _ in range(_BRACES):
        at = raw.rfind(b"{", 0, at)
        if at < 0 or raw.startswith(openings, at):
            return at
    return max(raw.rfind(opening, 0, at) for opening in openings)


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
