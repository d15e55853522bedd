"""How many tokens a request is, as near as can be told without its model's own tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from krouter.body import Body, dump

IMAGE = 1_500
"""Tokens of an image, whatever its size: about what Claude counts for its largest."""
DOCUMENT = 3_000
"""Tokens of a PDF or another file, whose pages are not looked at."""
MESSAGE = 4
"""Tokens around each message and each tool."""

_PICTURES = frozenset(("image", "image_url", "input_image"))
_FILES = frozenset(("document", "file", "input_file", "input_audio", "video"))
_CALLS = {"tool_use": "input", "function_call": "arguments", "custom_tool_call": "input"}
"""Where each kind of call has what it is called with."""
_UNCOUNTED = frozenset(("redacted_thinking", "reasoning", "compaction"))
"""What models have enciphered."""


class Countable(NamedTuple):
    """What is to be counted of a request: all its text, and tokens for what is no text."""

    text: str
    fixed: int


class _Gathered:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.fixed = 0

    def content(self, content: Any) -> None:
        for block in content if isinstance(content, list) else [content]:
            self._block(block)

    def _block(self, block: Any) -> None:
        if isinstance(block, str):
            self.texts.append(block)
        elif isinstance(block, dict):
            self._typed(block, str(block.get("type", "")))

    def _typed(self, block: dict[str, Any], kind: str) -> None:
        source = block.get("source")
        if kind in _PICTURES:
            self.fixed += IMAGE
        elif kind == "document" and isinstance(source, dict) and source.get("type") == "text":
            self.content(source.get("data"))
        elif kind in _FILES:
            self.fixed += DOCUMENT
        elif isinstance(text := block.get("text") or block.get("thinking"), str):
            self.texts.append(text)
        elif kind in ("tool_result", "message") or (not kind and "content" in block):
            self.content(block.get("content"))
        elif kind.endswith("_call_output"):
            self.content(block.get("output"))
        elif kind in _CALLS:
            self.plain(block.get("name"))
            self.plain(block.get(_CALLS[kind]))
        elif "inlineData" in block or "inline_data" in block:
            self.fixed += IMAGE
        elif "fileData" in block or "file_data" in block:
            self.fixed += DOCUMENT
        elif kind not in _UNCOUNTED:
            self.plain(block)

    def plain(self, value: Any) -> None:
        """A value as the model would read it."""
        self.texts.append(value if isinstance(value, str) else dump(value).decode("utf-8"))


def countable(body: Body) -> Countable:
    """The system prompt, the messages and the tools of a request, in any dialect."""
    found = _Gathered()
    found.content(body.value("system") or body.value("instructions") or [])
    for message in _items(body.value("messages")):
        found.fixed += MESSAGE
        found.content(message.get("content"))
    system = body.value("systemInstruction") or body.value("system_instruction")
    for turn in (*_items([system]), *_items(body.value("contents"))):
        found.fixed += MESSAGE
        found.content(turn.get("parts"))
    given = body.value("input") or []
    found.content(given)
    found.fixed += MESSAGE * (len(given) if isinstance(given, list) else 1)
    for tool in _items(body.value("tools")):
        found.fixed += MESSAGE
        found.plain({name: v for name, v in tool.items() if name != "cache_control"})
    return Countable("\n".join(found.texts), found.fixed)


def _items(value: Any) -> Iterator[dict[str, Any]]:
    return (
        (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())
    )


_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]")


def by_characters(text: str) -> int:
    """Without a tokenizer: 3.5 characters a token, and 0.7 tokens for each character of Chinese,
    Japanese or Korean."""
    wide = 0 if text.isascii() else len(_WIDE.findall(text))
    return round(wide * 0.7 + (len(text) - wide) / 3.5)
