"""A request without tools: what was called and answered stays in it as text."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from krouter.body import Body, dump
from krouter.dialects.history import FIELD, raw_history, raw_items
from krouter.dialects.toolitems import GeminiTurns, ResponsesTurns
from krouter.dialects.toolturns import ChatTurns, MessagesTurns, Turns

_COMMON = frozenset(
    "tools tool_choice stream_options parallel_tool_calls functions function_call".split()
)
TOOL_FIELDS: Mapping[str, frozenset[str]] = {
    "chat": _COMMON | {"web_search_options"},
    "messages": _COMMON | {"mcp_servers"},
    "responses": _COMMON | {"max_tool_calls"},
    "gemini": _COMMON | {"toolConfig", "tool_config"},
}
"""The top-level fields of each dialect that a request without tools and stream does not have."""

_TURNS: Mapping[str, type[Turns]] = {
    "chat": ChatTurns,
    "messages": MessagesTurns,
    "responses": ResponsesTurns,
    "gemini": GeminiTurns,
}


def without_tools(dialect_name: str, body: Body) -> Body:
    """The copy of a request that a panel's model is sent: not streamed, no tools nor what goes with
    them, and the tool calls and results of the conversation as text."""
    if dialect_name not in TOOL_FIELDS:
        return body
    changes: dict[str, msgspec.Raw] = {}
    if "stream" in body.fields and body.value("stream") is not False:
        changes["stream"] = msgspec.Raw(b"false")
    if (items := _as_text(dialect_name, body)) is not None:
        changes[FIELD[dialect_name]] = msgspec.Raw(dump(items))
    drop = TOOL_FIELDS[dialect_name]
    if not changes and drop.isdisjoint(body.fields):
        return body
    left = {name: raw for name, raw in body.fields.items() if name not in drop}
    return Body(body.edited(changes, drop), {**left, **changes})


def _as_text(dialect_name: str, body: Body) -> list[msgspec.Raw] | None:
    """The items of the conversation; None where no tool is in it."""
    turns = _TURNS[dialect_name]()
    if not turns.may_hold(raw_history(dialect_name, body)):
        return None
    try:
        for raw in raw_items(dialect_name, body):
            turns.add(raw)
        turns.end()
        items = [msgspec.Raw(dump(i)) if isinstance(i, dict) else i for i in turns.items]
    except RecursionError:  # nested so deeply that it was read but cannot be written
        return None
    return items if turns.changed else None
