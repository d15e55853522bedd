"""A model that calls one tool and answers with what the tool said, for callers that run tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.upstream.book import Request
from tests.upstream.script import Behaviour

SAID = "The tool said: "
ASSISTANTS = frozenset({"assistant", "model"})
NESTED = ("tools", "function_declarations", "functionDeclarations")


@dataclass(frozen=True, slots=True)
class ToolUser:
    """A step of a script: calls `tool` where the request offers it, then repeats its result.

    A request without that tool, as for a title, is answered plainly."""

    tool: str
    arguments: dict[str, Any]

    def __call__(self, request: Request) -> Behaviour:
        body = request.json
        if results := list(latest_results(body)):
            return Behaviour(text=SAID + "\n".join(results))
        if self.tool not in offered(body.get("tools")):
            return Behaviour()
        return Behaviour(tool=self.tool, args=msgspec.json.encode(self.arguments).decode())


def offered(tools: Any) -> Iterator[str]:
    """The names of all tools, those in groups too."""
    for tool in tools if isinstance(tools, list) else ():
        fields = tool.get("function", tool)
        inner = [name for name in NESTED if name in fields]
        for name in inner:
            yield from offered(fields[name])
        if not inner and "name" in fields:
            yield fields["name"]


def latest_results(body: dict[str, Any]) -> Iterator[str]:
    """What tools have said since the assistant last spoke, as text."""
    turns = body.get("messages") or body.get("input") or body.get("contents")
    for turn in since_assistant(turns if isinstance(turns, list) else []):
        if str(turn.get("type")).endswith("_call_output"):
            yield text_of(turn.get("output"))
        elif turn.get("role") == "tool":
            yield text_of(turn.get("content"))
        else:
            yield from results_inside(turn.get("content") or turn.get("parts"))


def since_assistant(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The turns at the end that no assistant wrote."""
    count = 0
    for turn in reversed(turns):
        kind = str(turn.get("type"))
        if turn.get("role") in ASSISTANTS or kind == "reasoning" or kind.endswith("_call"):
            break
        count += 1
    return turns[len(turns) - count :]


def results_inside(blocks: Any) -> Iterator[str]:
    for block in blocks if isinstance(blocks, list) else ():
        if block.get("type") == "tool_result":
            yield text_of(block.get("content"))
        for name in ("functionResponse", "function_response"):
            if name in block:
                yield text_of_response(block[name].get("response"))


def text_of_response(response: Any) -> str:
    """Gemini's functions give objects, whose `output` is the text of a function that gives one."""
    text = response.get("output") if isinstance(response, dict) else None
    return text if isinstance(text, str) else msgspec.json.encode(response).decode()


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block["text"]) for block in blocks if "text" in block)
