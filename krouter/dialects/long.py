"""A long body, of which each byte is looked at once as JSON.

Nearly all of it is a conversation and tools, which `Body.parse` would only find the end of, to be
read again at once. So they are read first, where clients put them, and the rest is split without
them. Where that does not succeed, all is done as ever: what comes of it is the same.
"""

from __future__ import annotations

from typing import Any

from krouter.body import Body, check_text
from krouter.dialects.base import UNREADABLE
from krouter.dialects.cursor import are_flat
from krouter.dialects.history import FIELD
from krouter.dialects.outline import turns_in

LONG = 8 << 10
_NEAR = 32 << 10
"""Bytes in which a conversation begins, or a system prompt behind it ends."""
_OPENINGS = {
    "chat": b'"messages":[',
    "messages": b'"messages":[',
    "responses": b'"input":[',
}
_SYSTEM = {"messages": b'"system":'}
_TOOLS = b',"tools":['
_CLOSING = b"]"
_LAST = b"]}"


def parsed(dialect_name: str, raw: bytes, long: int = LONG) -> Body:
    """A body, as `Body.parse` gives it, and its outline where that is known by now. Raises
    BodyError."""
    check_text(raw)
    found = _read_once(dialect_name, raw) if len(raw) >= long else None
    return Body.split(raw) if found is None else found


def _read_once(dialect_name: str, raw: bytes) -> Body | None:
    opening = _OPENINGS.get(dialect_name)
    if opening is None or (found := raw.find(opening, 0, _NEAR)) < 0:
        return None
    begin = found + len(opening) - 1
    if (tools := raw.rfind(_TOOLS, begin)) < 0:
        return None
    end = _end(dialect_name, raw, begin, tools)
    if not raw.startswith(_CLOSING, end - 1):
        return None
    name, view = FIELD[dialect_name], memoryview(raw)
    lists = {name: slice(begin, end)}
    made: dict[str, Any] = {}
    try:
        if dialect_name == "chat" and raw.endswith(_LAST):
            lists["tools"] = slice(tools + len(_TOOLS) - 1, len(raw) - 1)
            made["tools"] = are_flat(view[lists["tools"]])
        made[dialect_name] = turns_in(dialect_name, view[lists[name]])
    except UNREADABLE:
        return None
    body = Body.around(raw, lists)
    if body is not None:
        body.outlines.update(made)
    return body


def _end(dialect_name: str, raw: bytes, begin: int, tools: int) -> int:
    """Where a conversation ends, in front of the tools or of a system prompt before them."""
    system = _SYSTEM.get(dialect_name)
    if system is not None and raw.find(system, 0, begin) < 0:
        found = raw.rfind(b"]," + system, max(begin, tools - _NEAR), tools)
        if found >= 0:
            return found + 1
    return tools
