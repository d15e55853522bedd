"""What a reply says, before any dialect gives it a shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

import msgspec

from tests.upstream.script import Behaviour

WORDS = ("All", "is", "well", "at", "the", "upstream", "provider,")
THOUGHT = "The caller wants an answer, so I give one."
SIGNATURE = "c2lnbmVkIGJ5IHRoZSB1cHN0cmVhbQ=="


@dataclass(frozen=True, slots=True)
class Ask:
    """What a reply depends on in a request."""

    dialect: str
    model: str
    stream: bool
    include_usage: bool
    tool: tuple[str, dict[str, Any]] | None
    tokens: int
    serial: int
    created: int
    fields: dict[str, Any] = field(default_factory=dict)
    """The whole body."""


@dataclass(frozen=True, slots=True)
class Content:
    """One answer; `call` is a tool's name and its arguments as JSON."""

    thinking: str | None
    text: str | None
    call: tuple[str, str] | None
    tokens_in: int
    tokens_out: int


def read_ask(dialect: str, body: Any, size: int, serial: int, created: int) -> Ask:
    fields = body if isinstance(body, dict) else {}
    options = fields.get("stream_options")
    return Ask(
        dialect=dialect,
        model=str(fields.get("model", "")),
        stream=fields.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        tool=read_tool(fields),
        tokens=max(1, size // 4),
        serial=serial,
        created=created,
        fields=fields,
    )


def read_tool(body: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The first tool and its schema, if this is a turn for a call."""
    tools = body.get("tools")
    if not isinstance(tools, list) or _holds_result(body.get("messages") or body.get("input")):
        return None
    for tool in tools:
        fields = tool.get("function", tool) if isinstance(tool, dict) else {}
        if name := fields.get("name"):
            return name, fields.get("parameters") or fields.get("input_schema") or {}
    return None


def _holds_result(messages: Any) -> bool:
    if not isinstance(messages, list) or not messages or not isinstance(messages[-1], dict):
        return False
    last = messages[-1]
    blocks = last.get("content")
    is_output = str(last.get("type")).endswith("_call_output")
    return (
        is_output
        or last.get("role") == "tool"
        or (
            isinstance(blocks, list)
            and any(
                isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks
            )
        )
    )


def compose(ask: Ask, behaviour: Behaviour) -> Content:
    thinking = THOUGHT if behaviour.thinking else None
    call = None if behaviour.thinking == "only" else choose_call(ask, behaviour)
    text = behaviour.text
    if behaviour.thinking == "only":
        text = None
    elif text is None and call is None:
        text = write_words(behaviour.chunks)
    written = "".join(filter(None, (thinking, text, call and call[0] + call[1])))
    counts = behaviour.usage or (ask.tokens, max(1, len(written) // 4))
    return Content(thinking, text, call, *counts)


def choose_call(ask: Ask, behaviour: Behaviour) -> tuple[str, str] | None:
    if behaviour.tool is None:
        return None
    name, schema = ask.tool or ("", {})
    name = behaviour.tool or name
    if not name:
        return None
    return name, behaviour.args or msgspec.json.encode(fill_in(schema)).decode()


def fill_in(schema: Any) -> Any:
    """A small value that a JSON Schema accepts."""
    if not isinstance(schema, dict):
        return "x"
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema or not schema else "string")
    match str(kind[0] if isinstance(kind, list) else kind).lower():
        case "object":
            properties = schema.get("properties", {})
            return {name: fill_in(properties.get(name)) for name in schema.get("required", ())}
        case "array":
            return [fill_in(schema.get("items"))] * schema.get("minItems", 0)
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "x" * max(1, schema.get("minLength", 1))


def write_words(chunks: int) -> str:
    return " ".join(islice(cycle(WORDS), max(chunks, len(WORDS)))).rstrip(",") + "."


def cut_text(text: str, count: int) -> list[str]:
    """The text in `count` pieces, fewer if it is shorter than that."""
    count = max(1, min(count, len(text)))
    return [
        text[len(text) * part // count : len(text) * (part + 1) // count] for part in range(count)
    ]
