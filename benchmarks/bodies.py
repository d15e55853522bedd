"""The requests that are sent: two messages, and a coding agent's with tools and tool history."""

from __future__ import annotations

import json
from typing import Any

SIZES = ("1 kB", "100 kB")
_FUNCTIONS = 16
_ROUNDS = 12
"""Of a question or an instruction, a call and its result; in chat they are 27 messages."""
CALLER, NUMBER = b"[[[caller]]]", b"[[[number]]]"
"""What stands all over a coding agent's conversation, and in its last message, to be replaced: so
each conversation is another, and each turn."""
_PROSE = "Prefer small edits; read a file before it is changed, and say what was left out and why. "
_FIRST = CALLER.decode() + _PROSE * 20
_LAST = f"And now the other one? {NUMBER.decode()}"
_CODE = 'def area(shape: "Shape") -> float:\n\treturn shape.width * shape.height  # in \u33a1\n'
_RESULT = (CALLER.decode() + _CODE) * 45


def body(dialect: str, size: str, model: str, *, stream: bool = False) -> bytes:
    """A request of about `size` in `dialect` ("chat" or "messages")."""
    if size == "1 kB":
        system, turns, tools = _PROSE * 5, [{"role": "user", "content": "word " * 80}], []
    elif dialect == "chat":
        system, turns, tools = _PROSE * 160, _chat_history(), _chat_tools()
    else:
        system, turns, tools = _PROSE * 160, _messages_history(), _messages_tools()
    told: dict[str, Any] = {"model": model, "max_tokens": 1024, "stream": stream}
    if dialect == "chat":
        told["messages"] = [{"role": "system", "content": system}, *turns]
        if stream:
            told["stream_options"] = {"include_usage": True}
    else:
        told |= {"system": system, "messages": turns}
    if tools:
        told["tools"] = tools
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def _schema(number: int) -> dict[str, Any]:
    said = {"type": "string", "description": _PROSE * 3}
    fields = {f"{name}_{number}": said for name in ("path", "pattern", "text")}
    return {"type": "object", "properties": fields, "required": [f"path_{number}"]}


def _chat_tools() -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": name, "description": told, "parameters": schema}}
        for name, told, schema in _tools()
    ]


def _messages_tools() -> list[dict[str, Any]]:
    return [
        {"name": name, "description": told, "input_schema": schema}
        for name, told, schema in _tools()
    ]


def _tools() -> list[tuple[str, str, dict[str, Any]]]:
    return [(f"tool_{n}", _PROSE * 8, _schema(n)) for n in range(_FUNCTIONS)]


def _chat_history() -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = [{"role": "user", "content": _FIRST}]
    for number in range(_ROUNDS):
        call = {"name": "tool_0", "arguments": json.dumps({"path_0": f"src/shape_{number}.py"})}
        calls = [{"id": f"call_{number}", "type": "function", "function": call}]
        turns += [
            {"role": "assistant", "content": "I read it first.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": _RESULT},
        ]
    return [*turns, {"role": "user", "content": _LAST}]


def _messages_history() -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = [{"role": "user", "content": _FIRST}]
    for number in range(_ROUNDS):
        call = {"type": "tool_use", "id": f"call_{number}", "name": "tool_0"}
        result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": _RESULT}
        said = {"type": "text", "text": "I read it first."}
        turns += [
            {"role": "assistant", "content": [said, {**call, "input": {"path_0": f"{number}.py"}}]},
            {"role": "user", "content": [result]},
        ]
    turns[-1]["content"].append({"type": "text", "text": _LAST})
    return turns
