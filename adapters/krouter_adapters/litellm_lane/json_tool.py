"""The tool by which LiteLLM's class for Anthropic asks older models for JSON of a schema.

Its call is the answer: the caller, who knows of no such tool, is told it as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from krouter_adapters.litellm_lane.through import StreamReader
from krouter_adapters.litellm_lane.translate.shapes import Json, as_dict, as_dicts, to_json

JSON_TOOL = "json_tool_call"


def has_json_tool(data: Mapping[str, Any]) -> bool:
    """Whether it is among the tools of a body of messages or chat."""
    tools = as_dicts(data.get("tools"))
    return any((as_dict(tool.get("function")) or tool).get("name") == JSON_TOOL for tool in tools)


def _is_call(block: Json) -> bool:
    return block.get("type") == "tool_use" and block.get("name") == JSON_TOOL


def untooled(reply: Json) -> Json:
    """A whole reply with the call as text."""
    blocks = as_dicts(reply.get("content"))
    told = [
        {"type": "text", "text": to_json(block.get("input"))} if _is_call(block) else block
        for block in blocks
    ]
    stop = reply.get("stop_reason")
    return {**reply, "content": told, "stop_reason": "end_turn" if stop == "tool_use" else stop}


class Untooled:
    """A reader of the events of a stream in which the call is read as text."""

    def __init__(self, reader: StreamReader) -> None:
        self.lost = reader.lost
        self.plain, self.told = reader.plain, reader.told
        self._reader = reader
        self._calls: set[Any] = set()

    @property
    def closed(self) -> bool:
        return self._reader.closed

    def feed(self, event: Json) -> Iterator[Json]:
        return self._reader.feed(self._event(event))

    def _event(self, event: Json) -> Json:
        match event.get("type"):
            case "content_block_start" if _is_call(as_dict(event.get("content_block"))):
                self._calls.add(event.get("index"))
                given = as_dict(event["content_block"].get("input"))
                text = to_json(given) if given else ""
                return {**event, "content_block": {"type": "text", "text": text}}
            case "content_block_delta" if event.get("index") in self._calls:
                text = as_dict(event.get("delta")).get("partial_json") or ""
                return {**event, "delta": {"type": "text_delta", "text": text}}
            case "message_delta":
                delta = as_dict(event.get("delta"))
                if delta.get("stop_reason") == "tool_use":
                    return {**event, "delta": {**delta, "stop_reason": "end_turn"}}
        return event
