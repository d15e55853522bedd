"""Conversations in chat form that hold nothing but text and calls of tools, as most do.

A class of LiteLLM's writes such a conversation in one way whatever else a request asks for, so it
is written here, turn by turn, as the class would write it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from krouter_adapters.litellm_lane.translate.shapes import Json

_FIELDS = {
    "system": frozenset(("role", "content")),
    "user": frozenset(("role", "content")),
    "assistant": frozenset(("role", "content", "tool_calls", "reasoning_content")),
    "tool": frozenset(("role", "content", "tool_call_id", "name")),
}
_CALL = frozenset(("id", "type", "function"))
_FUNCTION = frozenset(("name", "arguments"))
_TEXT = {"type", "text"}


class Kind(NamedTuple):
    """What of a plain conversation decides how the rest of its request is written."""

    system: bool
    """It begins with instructions, and has no others."""
    calls: bool

    def stand_in(self) -> list[Json]:
        """The shortest conversation of this kind."""
        said: list[Json] = [{"role": "system", "content": "."}] if self.system else []
        said.append({"role": "user", "content": "."})
        if self.calls:
            call = {"id": "call", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            said.append({"role": "assistant", "content": ".", "tool_calls": [call]})
            said.append({"role": "tool", "tool_call_id": "call", "content": "."})
        return said


def kind_of(messages: list[Any]) -> Kind | None:
    """None for a conversation that is not plain."""
    system = calls = False
    for place, message in enumerate(messages):
        role = message.get("role")
        known = _FIELDS.get(role) if isinstance(role, str) else None
        if known is None or not known.issuperset(message):
            return None
        if role == "system":
            if place:
                return None
            system = True
        if not _is_plain(message.get("content"), role):
            return None
        if "tool_calls" in message:
            if not all(map(_is_call, message["tool_calls"])):
                return None
            calls = True
    return Kind(system, calls) if messages else None


def _is_plain(content: Any, role: str) -> bool:
    if isinstance(content, str):
        return True
    if content is None:
        return role == "assistant"
    return isinstance(content, list) and all(map(_is_text, content))


def _is_text(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.keys() == _TEXT
        and part["type"] == "text"
        and isinstance(part["text"], str)
    )


def _is_call(call: Any) -> bool:
    if not isinstance(call, dict) or call.keys() != _CALL or call["type"] != "function":
        return False
    function = call["function"]
    return (
        isinstance(call["id"], str)
        and isinstance(function, dict)
        and function.keys() == _FUNCTION
        and isinstance(function["name"], str)
        and isinstance(function["arguments"], str)
    )


_ID = re.compile(r"(?!srvtoolu_)[A-Za-z0-9_-]+").fullmatch
_BILLING = "x-anthropic-billing-header"


class Turns(NamedTuple):
    """A conversation in the words of messages."""

    messages: list[Json]
    system: list[Json]


def turns_of(messages: list[Json], kind: Kind) -> Turns | None:
    """A plain conversation in the words of messages; None for one with something in it that the
    class puts right, such as a text of blanks."""
    system: list[Json] = []
    if kind.system:
        system = _texts(messages[0]["content"])
        if not system or any(block["text"].startswith(_BILLING) for block in system):
            return None
        messages = messages[1:]
    out: list[Json] = []
    for message in messages:
        role = message["role"]
        blocks = (_said if role == "assistant" else _heard)(message)
        if not blocks:
            return None
        side = "assistant" if role == "assistant" else "user"
        if out and out[-1]["role"] == side:
            out[-1]["content"] += blocks
        else:
            out.append({"role": side, "content": blocks})
    if not out or (kind.calls and _has_twins(out)):
        return None
    if out[-1]["role"] == "assistant":  # Anthropic refuses an answer that is begun with a blank
        for block in out[-1]["content"]:
            if block["type"] == "text":
                block["text"] = block["text"].rstrip()
    return Turns(out, system)


def _texts(content: Any) -> list[Json]:
    """The blocks of a content; none if one of them is empty."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    if not all(part["text"].strip() for part in content):
        return []
    return [{"type": "text", "text": part["text"]} for part in content]


def _heard(message: Json) -> list[Json]:
    content = message["content"]
    if message["role"] == "user":
        return _texts(content)
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str) or not _ID(call_id):
        return []
    if not isinstance(content, str):
        content = [{"type": "text", "text": part["text"]} for part in content]
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content}]


def _said(message: Json) -> list[Json]:
    content, calls = message.get("content"), message.get("tool_calls") or ()
    if "reasoning_content" in message:
        return []
    blocks = [] if content is None else _texts(content)
    if content and not blocks:
        return []
    for call in calls:
        try:
            value = msgspec.json.decode(call["function"]["arguments"])
        except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
            return []
        if not _ID(call["id"]) or not isinstance(value, dict):
            return []
        name = call["function"]["name"]
        blocks.append({"type": "tool_use", "id": call["id"], "name": name, "input": value})
    return blocks


def _has_twins(turns: list[Json]) -> bool:
    """Whether two calls of one turn have the same id."""
    for turn in turns:
        ids = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        if len(ids) > len(set(ids)):
            return True
    return False
