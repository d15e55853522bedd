"""The items of Responses and the turns of Gemini with what tools were called for, and what they
said, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from krouter.dialects.history import decoded
from krouter.dialects.tooltext import (
    Said,
    answer_text,
    arguments_in,
    beside_in,
    call_text,
    listed,
    name_in,
    result_blocks,
    result_text,
    results_in,
    said_in,
    text_block,
    told,
)
from krouter.dialects.toolturns import Turns

_Item = dict[str, Any]


class ResponsesTurns(Turns):
    _marks = re.compile(rb'"(?:[a-z_]{0,60}_(?:call|output)|mcp_[a-z_]{1,60})"')

    def __init__(self) -> None:
        super().__init__()
        self._reasoning: list[msgspec.Raw] = []
        """Waits for the item after it: OpenAI refuses reasoning without what followed it."""
        self._is_orphaned = False
        """Reasoning is left out, which OpenAI would miss at a later message of the same turn that
        has its id."""

    def add(self, raw: msgspec.Raw) -> None:
        is_of_interest = self._is_orphaned or b'"reasoning"' in bytes(raw)
        item = decoded(raw) if is_of_interest or self.may_hold(bytes(raw)) else None
        if isinstance(item, dict) and item.get("type") == "reasoning":
            self._reasoning.append(raw)
        elif not (isinstance(item, dict) and self._took(item)):
            self._flush()
            self._keep(raw)

    def end(self) -> None:
        self._flush()

    def _flush(self) -> None:
        for raw in self._reasoning:
            self._keep(raw)
        self._reasoning.clear()

    def _took(self, item: _Item) -> bool:
        if kind := _kind_of_item(item):
            if kind.endswith("_output") or kind == "mcp_approval_response":
                self._take_output(item)
            else:
                self._take_call(item, kind)
            return True
        if self._is_orphaned and not self._reasoning and item.get("role") == "assistant":
            if "id" in item:
                self._put({key: value for key, value in item.items() if key != "id"})
            return "id" in item
        self._is_orphaned = False
        return False

    def _take_call(self, item: _Item, kind: str) -> None:
        self._is_orphaned = self._is_orphaned or bool(self._reasoning)
        self._reasoning.clear()
        is_named = item.get("name") or (kind == "mcp_list_tools" and name_in(item))
        call = item if is_named else {**item, "name": kind.removesuffix("_call")}
        name = self._names.called(call, item.get("call_id"), item.get("id"))
        if kind == "mcp_list_tools":
            lines = (*_tools_in(item), said_in(results_in(item), keep=False).text)
            text = "\n".join((f"[The tools of {name}]", *filter(None, lines)))
            self._say("assistant", [text_block(text, "output_text")])
            return
        blocks = [text_block(call_text(name, arguments_in(item)), "output_text")]
        said = _image(item) if kind == "image_generation_call" else _said(results_in(item))
        if said.text:
            text = result_text(name, said.text, _has_failed(item))
            blocks.append(text_block(text, "output_text"))
        self._say("assistant", blocks)
        if said.attachments:
            said.text = ""
            self._say("user", result_blocks(name, said, kind="input_text"))

    def _take_output(self, item: _Item) -> None:
        self._is_orphaned = False
        self._flush()
        said = _said([*results_in(item), beside_in(item)])
        call_id = item.get("call_id", item.get("approval_request_id"))
        by_own_id = self._names.known(item.get("id"))  # as a local shell's output has it
        name = self._names.of(call_id, name_in(item) or by_own_id)
        self._say("user", result_blocks(name, said, _has_failed(item), "input_text"))

    def _say(self, role: str, blocks: list[_Item]) -> None:
        self._join({"type": "message", "role": role, "content": blocks}, "content")


_TOOL_ITEM = re.compile(r"[a-z_]{0,60}_(?:call|output)|mcp_[a-z_]{1,60}").fullmatch


def _kind_of_item(item: _Item) -> str:
    """The type of an item that a tool is called with, or has answered with; empty for others."""
    kind = item.get("type")
    return kind if isinstance(kind, str) and _TOOL_ITEM(kind) else ""


def _has_failed(item: _Item) -> bool:
    return bool(item.get("error")) or item.get("status") == "failed"


def _tools_in(listing: _Item) -> Iterator[str]:
    for tool in listed(listing.get("tools")):
        named = tool if isinstance(tool, dict) else {"name": tool}
        yield ": ".join(told(named[key]) for key in ("name", "description") if named.get(key))


def _said(blocks: list[Any]) -> Said:
    said = said_in(blocks, keep=True)
    said.attachments = [_as_input(block) for block in said.attachments]
    return said


def _image(item: _Item) -> Said:
    """The image that a tool has made, which stands in its call as bare base64."""
    data = item.get("result")
    if not isinstance(data, str) or not data:
        return _said(listed(data))
    form = item.get("output_format")
    url = f"data:image/{form if isinstance(form, str) else 'png'};base64,{data}"
    return Said("", [{"type": "input_image", "image_url": url}])


def _as_input(block: _Item) -> _Item:
    """An attachment as a user's message has it."""
    kind, url = block.get("type"), block.get("image_url", block.get("url"))
    if kind == "computer_screenshot" or (kind == "image" and isinstance(url, str)):
        named = {"image_url": url, "file_id": block.get("file_id")}
        given = {key: value for key, value in named.items() if value is not None}
        return {"type": "input_image", **given}
    return block


class GeminiTurns(Turns):
    _marks = re.compile(
        rb'"[fetc](?:unction(?:_?[cC]all|_?[rR]esponse)?|xecutable_?[cC]ode'
        rb'|ode_?[eE]xecution_?[rR]esult|ool_?(?:[cC]all|[rR]esponse))"'
    )

    def _took(self, item: _Item) -> bool:
        parts = listed(item.get("parts"))
        is_result = item.get("role") == "function"
        if not is_result and not any(map(_has_tool, parts)):
            return False
        made = [new for part in parts for new in self._parts(part)]
        copy = {**item, "parts": made}
        if is_result:
            copy["role"] = "user"
        if copy.get("role") == "user":
            self._join(copy, "parts")
        else:
            self._put(copy)
        return True

    def _parts(self, part: Any) -> list[Any]:
        if not _has_tool(part):
            return [part]
        rest = {key: value for key, value in part.items() if key not in _REPLACED}
        made = [rest] if not _SAYING.isdisjoint(rest) else []
        for key, value in part.items():
            if key in _PARTS and value is not None:
                made += self._as_text(_PARTS[key], value)
        return made or [rest]

    def _as_text(self, kind: str, value: Any) -> list[_Item]:
        whole = {"args": value, "response": value, "output": value}
        given = value if isinstance(value, dict) else whole
        if kind == "call":
            name = self._names.called(_named(given), given.get("id"))
            return [{"text": call_text(name, arguments_in(given))}]
        if kind == "code":
            return [{"text": call_text(_CODE, arguments_in(given))}]
        if kind == "output":
            failed = given.get("outcome") in ("OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED")
            return [{"text": result_text(_CODE, answer_text(given.get("output")), failed)}]
        said = said_in(given.get("parts"), keep=True)
        answer = given.get("response")
        text = "\n".join(filter(None, (answer_text(answer), said.text)))
        failed = isinstance(answer, dict) and answer.keys() == {"error"}
        name = self._names.of(given.get("id"), name_in(_named(given)))
        return [{"text": result_text(name, text, failed)}, *said.attachments]


_CODE = "code_execution"
_PARTS: Mapping[str, str] = {
    "functionCall": "call",
    "function_call": "call",
    "toolCall": "call",
    "tool_call": "call",
    "functionResponse": "response",
    "function_response": "response",
    "toolResponse": "response",
    "tool_response": "response",
    "executableCode": "code",
    "executable_code": "code",
    "codeExecutionResult": "output",
    "code_execution_result": "output",
}
_REPLACED = frozenset((*_PARTS, "thought", "thoughtSignature", "thought_signature"))
_SAYING = frozenset(("text", "inlineData", "inline_data", "fileData", "file_data"))


def _has_tool(part: Any) -> bool:
    return isinstance(part, dict) and not _PARTS.keys().isdisjoint(part)


def _named(call: _Item) -> _Item:
    """A call of Google's own tool has its type for a name."""
    kind = call.get("toolType", call.get("tool_type"))
    return {**call, "name": kind} if kind and not call.get("name") else call
