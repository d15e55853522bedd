"""The turns of chat and messages with what tools were called for, and what they said, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from krouter.dialects.history import decoded
from krouter.dialects.media import ATTACHMENTS, ON_MESSAGE
from krouter.dialects.tooltext import (
    Names,
    arguments_in,
    call_text,
    listed,
    name_in,
    result_blocks,
    said_in,
    text_block,
    told,
)

_Item = dict[str, Any]


class Turns:
    """Takes the items of a conversation in their order, and makes those of its copy."""

    _marks: re.Pattern[bytes]
    """What can make an item one of tools, as it stands in JSON: within a text the quote behind it
    would be escaped."""

    def __init__(self) -> None:
        self.items: list[msgspec.Raw | _Item] = []
        self.changed = False
        self._names = Names()
        self._open: _Item | None = None
        """The last item where it was made here, and more may join it."""

    def may_hold(self, raw: bytes) -> bool:
        """False where JSON surely holds nothing of tools."""
        return bool(self._marks.search(raw))

    def add(self, raw: msgspec.Raw) -> None:
        item = decoded(raw) if self._is_of_interest(bytes(raw)) else None
        if not (isinstance(item, dict) and self._took(item)):
            self._keep(raw)

    def end(self) -> None:
        """All items have been added."""

    def _is_of_interest(self, raw: bytes) -> bool:
        return self.may_hold(raw)

    def _took(self, item: _Item) -> bool:
        """Whether the item stands in the copy in another form."""
        raise NotImplementedError

    def _keep(self, raw: msgspec.Raw) -> None:
        self._open = None
        self.items.append(raw)

    def _put(self, item: _Item) -> None:
        self.changed = True
        self._open = None
        self.items.append(item)

    def _join(self, item: _Item, key: str) -> None:
        """Adds its blocks to the open item of its role, else opens it."""
        self.changed = True
        opened = self._open
        if opened is not None and opened["role"] == item["role"]:
            opened[key] += item[key]
        else:
            self._open = item
            self.items.append(item)


class ChatTurns(Turns):
    _marks = re.compile(rb'"[tf](?:ool(?:_calls)?|unction(?:_call)?)"')

    def __init__(self) -> None:
        super().__init__()
        self._made: list[_Item] = []

    def end(self) -> None:
        for item in self._made:
            item["content"] = _plain(item["content"])

    def _is_of_interest(self, raw: bytes) -> bool:
        return self._open is not None or super()._is_of_interest(raw)

    def _took(self, item: _Item) -> bool:
        if item.get("role") in ("tool", "function"):
            self._take_result(item)
        elif not _CALLS.isdisjoint(item):
            self._take_calls(item)
        else:
            return item.get("role") == "user" and self._joined(item)
        return True

    def _take_calls(self, item: _Item) -> None:
        calls = [call for key in sorted(_CALLS & item.keys()) for call in listed(item[key])]
        made = {key: value for key, value in item.items() if key not in _CALLS}
        if calls:
            made["content"] = _with_texts(item.get("content"), [self._call(call) for call in calls])
        self._put(made)

    def _call(self, call: Any) -> str:
        if not isinstance(call, dict):
            return call_text(self._names.called({}), call)
        inner = next((call[key] for key in _kinds(call) if isinstance(call.get(key), dict)), call)
        return call_text(self._names.called(inner, call.get("id")), arguments_in(inner))

    def _take_result(self, item: _Item) -> None:
        said = said_in(item.get("content"), keep=True)
        said.mark = item.get("cache_control") or said.mark
        name = self._names.of(item.get("tool_call_id"), name_in(item))
        beside = {key: item[key] for key in item if key in ON_MESSAGE or key in ATTACHMENTS}
        if self._open is not None and not beside.keys().isdisjoint(self._open):
            self._open = None
        if self._open is None:
            self._made.append({"role": "user", "content": []})
            self._join(self._made[-1], "content")
        self._made[-1]["content"] += result_blocks(name, said)
        self._made[-1].update(beside)

    def _joined(self, item: _Item) -> bool:
        """Some providers refuse two turns of the user's in a row."""
        opened, content = self._open, item.get("content")
        if opened is None or not isinstance(content, (str, list)):
            return False
        others = {key: value for key, value in item.items() if key not in ("role", "content")}
        if not others.keys().isdisjoint(opened):
            return False
        if content:
            opened["content"] += content if isinstance(content, list) else [text_block(content)]
        opened.update(others)
        if isinstance(content, list):
            self._made.pop()
        self._open = None
        return True


_CALLS = frozenset(("tool_calls", "function_call"))


def _kinds(call: _Item) -> Iterator[str]:
    if isinstance(kind := call.get("type"), str):
        yield kind
    yield from ("function", "custom")


class MessagesTurns(Turns):
    _marks = re.compile(rb'"[a-z_]{0,60}tool_(?:use|result)"')

    def _took(self, item: _Item) -> bool:
        blocks = listed(item.get("content"))
        kinds = [_kind_of_block(block) for block in blocks]
        if not any(kinds):
            return False
        # Anthropic takes no images in a model's turn, and no blanks at its end.
        by_model = item.get("role") == "assistant"
        made: list[Any] = []
        for kind, block in zip(kinds, blocks, strict=True):
            made += self._as_text(kind, block, by_model) if kind else [block]
        self._put({**item, "content": made})
        return True

    def _as_text(self, kind: str, block: _Item, by_model: bool) -> list[_Item]:
        if kind == "tool_use":
            name = self._names.called(block, block.get("id"))
            return [
                text_block(call_text(name, arguments_in(block)), mark=block.get("cache_control"))
            ]
        content = block.get("content")
        said = said_in(content, keep=not by_model)
        said.mark = block.get("cache_control") or said.mark
        said.text = said.text.rstrip() if by_model else said.text
        name = self._names.of(block.get("tool_use_id"), name_in(block))
        told_kind = content.get("type") if isinstance(content, dict) else None
        failed = bool(block.get("is_error")) or str(told_kind).endswith("_error")
        return result_blocks(name, said, failed)


_TOOL_BLOCK = re.compile(r"[a-z_]{0,60}(tool_use|tool_result)").fullmatch


def _kind_of_block(block: Any) -> str:
    """`tool_use` or `tool_result`, whoever's tool it is; empty for another block."""
    kind = block.get("type") if isinstance(block, dict) else None
    found = _TOOL_BLOCK(kind) if isinstance(kind, str) else None
    return found[1] if found else ""


_PLAIN = {"type", "text"}


def _plain(blocks: list[_Item]) -> list[_Item] | str:
    """Blocks of text alone as one text, which every provider takes."""
    if any(block.keys() != _PLAIN or block["type"] != "text" for block in blocks):
        return blocks
    return "\n\n".join(block["text"] for block in blocks)


def _with_texts(content: Any, texts: list[str]) -> list[Any] | str:
    if isinstance(content, (list, dict)) and content:
        return [*listed(content), *map(text_block, texts)]
    before = [told(content)] if content not in (None, "", [], {}) else []
    return "\n\n".join((*before, *texts))
