"""What Cursor sends to the chat endpoint, as chat: bodies of OpenAI's Responses for OpenAI's names,
tools and blocks of Anthropic's for Claude's, a flat custom tool among chat tools for others.

The reply is a chat completion whatever the request looked like; Cursor takes the call of a custom
tool as a function's whose arguments are the raw text. Source: Cursor's forum and gateways' reports,
and the API references of the three dialects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from krouter.body import Body, dump
from krouter.dialects.base import UNREADABLE, CallError, Dialect
from krouter.dialects.chat import CHAT, said_as_error
from krouter.dialects.outline import outline
from krouter.dialects.text_calls import TextCalls
from krouter.dialects.text_tools import as_function, takes_text, wrapped
from krouter.dialects.tool_names import Tool, Tools, each_tool

_FOREIGN = frozenset(("input", "instructions", "system"))
"""Fields that a chat body has not."""
_LEFT_OUT = frozenset(
    "input instructions system messages tools tool_choice reasoning text include truncation store"
    " previous_response_id prompt_cache_retention max_output_tokens stop_sequences conversation"
    " background max_tool_calls client_metadata".split()
)
"""Fields that are put in another way, or that chat has not."""


_BLOCKS = frozenset(("tool_use", "tool_result"))
"""Blocks of Anthropic's that chat has not."""


class Turned(NamedTuple):
    """A body in chat's form, and the dialect that its reply is told in."""

    body: Body
    dialect: Dialect


class _Tool(msgspec.Struct):
    name: Any = msgspec.UNSET
    function: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_tools = msgspec.json.Decoder(list[_Tool]).decode


def as_chat(body: Body) -> Turned:
    """`body` in chat's form; the same object where it has it already. Raises CallError for what
    refers to another request."""
    if not _is_foreign(body):
        return Turned(body, CHAT)
    if body.value("previous_response_id") or body.value("conversation"):
        raise CallError("krouter keeps no conversation: send the whole of it as 'input'.")
    offer = _offer(_dicts(body.value("tools")))
    changes = {**_options(body, offer), "messages": _conversation(body, offer)}
    if offer.tools:
        changes["tools"] = offer.tools
    kept = {name: raw for name, raw in body.fields.items() if name not in _LEFT_OUT}
    chat = Body.parse(
        msgspec.json.encode(kept | {n: msgspec.Raw(dump(v)) for n, v in changes.items()})
    )
    return Turned(chat, TextCalls(offer.texts) if offer.texts else CHAT)


def _is_foreign(body: Body) -> bool:
    if not _FOREIGN.isdisjoint(body.fields):
        return True
    return _has_flat(body) or _has_blocks(body)


def _has_flat(body: Body) -> bool:
    known: bool | None = body.outlines.get("tools")
    if known is not None:
        return known
    tools = body.fields.get("tools")
    try:
        return tools is not None and are_flat(tools)
    except UNREADABLE:
        return False


def are_flat(tools: msgspec.Raw | memoryview) -> bool:
    """Whether any of them is not in chat's form. Raises what `UNREADABLE` holds for what is no list
    of tools."""
    unset = msgspec.UNSET
    return any(tool.function is unset and tool.name is not unset for tool in _tools(tools))


def _has_blocks(body: Body) -> bool:
    turns = outline(CHAT.name, body)
    if turns is not None:
        found = [block for _, blocks in turns for block in blocks]
        return any(_is_foreign_block(block.type) for block in found) if found else False
    contents = [message.get("content") for message in _dicts(body.value("messages"))]
    return any(_is_foreign_block(block.get("type")) for said in contents for block in _dicts(said))


def _is_foreign_block(kind: Any) -> bool:
    return isinstance(kind, str) and kind in _BLOCKS


def _options(body: Body, offer: _Offer) -> dict[str, Any]:
    """The fields that chat has under another name or in another form."""
    changes: dict[str, Any] = {}
    if (most := body.value("max_output_tokens")) is not None:
        changes["max_tokens"] = most
    if (stop := body.value("stop_sequences")) is not None:
        changes["stop"] = stop
    reasoning, text = _dict(body.value("reasoning")), _dict(body.value("text"))
    if effort := reasoning.get("effort"):
        changes["reasoning_effort"] = effort
    if verbosity := text.get("verbosity"):
        changes["verbosity"] = verbosity
    if (form := _dict(text.get("format"))) and form.get("type") != "text":
        changes["response_format"] = _format(form)
    choice = body.value("tool_choice")
    if choice is not None:
        changes["tool_choice"] = _choice(choice, offer)
    if _dict(choice).get("disable_parallel_tool_use"):
        changes["parallel_tool_calls"] = False
    return changes


def _format(form: Mapping[str, Any]) -> Mapping[str, Any]:
    if form.get("type") != "json_schema" or "json_schema" in form:
        return form
    schema = {name: value for name, value in form.items() if name != "type"}
    return {"type": "json_schema", "json_schema": schema}


_CHOICES = {"any": "required", "auto": "auto", "none": "none", "required": "required"}


def _choice(choice: Any, offer: _Offer) -> Any:
    if not isinstance(choice, dict) or "function" in choice:
        return choice
    if choice.get("name"):
        return {"type": "function", "function": {"name": offer.sent(choice)}}
    return _CHOICES.get(str(choice.get("type")), choice)


@dataclass(slots=True)
class _Offer:
    """The tools of a request, in chat's form."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    """The names of those that take a text."""
    names: Tools = field(default_factory=Tools)

    def sent(self, named: Mapping[str, Any]) -> Any:
        """The name in chat of the tool that something names, which need not be among these."""
        name, space = named.get("name"), named.get("namespace")
        if not isinstance(name, str):
            return name
        space = space if isinstance(space, str) else ""
        found = self.names.find(name, space)
        return found or (self.names.name_of(Tool(name, namespace=space)) if space else name)

    def add(self, tool: dict[str, Any], namespace: Mapping[str, Any]) -> None:
        if "function" in tool or "name" not in tool:
            self.tools.append(tool)
            return
        space, name = namespace.get("name"), tool["name"]
        if space and isinstance(name, str):
            name = self.names.name_of(Tool(name, namespace=space))
        if takes_text(tool):
            self.texts.add(str(name))
        self.tools.append(as_function(tool, name, namespace))


def _offer(tools: list[dict[str, Any]]) -> _Offer:
    """Names of one namespace and those without any must not be the same: the latter stay."""
    offer = _Offer()
    for tool in tools:
        own = _dict(tool.get("function")).get("name", tool.get("name"))
        if isinstance(own, str) and tool.get("type") != "namespace":
            offer.names.keep(Tool(own))
    for tool, namespace in each_tool(tools, _is_tool):
        offer.add(tool, namespace)
    return offer


def _is_tool(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") != "namespace"


def _conversation(body: Body, offer: _Offer) -> list[dict[str, Any]]:
    """`messages`, or `input` where that is empty, behind the system prompt."""
    prompts = map(_flat_text, (body.value("instructions"), body.value("system")))
    messages: list[dict[str, Any]] = [{"role": "system", "content": p} for p in prompts if p]
    given = body.value("messages") or body.value("input") or []
    for item in [given] if isinstance(given, str) else given if isinstance(given, list) else []:
        for message in _messages(item, offer):
            _append(messages, message)
    return messages


def _append(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """The calls of one turn, which are items of their own, belong to one message."""
    last = messages[-1] if messages else {}
    if message.pop("joins", False) and last.get("role") == "assistant":
        last["tool_calls"] = [*last.get("tool_calls", ()), *message["tool_calls"]]
    else:
        messages.append(message)


def _messages(item: Any, offer: _Offer) -> Iterator[dict[str, Any]]:
    """What one message, or one item of `input`, is in chat. Reasoning stays behind: it is
    encrypted, or signed for another dialect."""
    if isinstance(item, str):
        yield {"role": "user", "content": item}
    if not isinstance(item, dict):
        return
    kind = item.get("type", "message")
    if kind in ("function_call", "custom_tool_call"):
        said = item.get("arguments", item.get("input"))
        call = _call(item, said, offer, text=kind == "custom_tool_call")
        yield {"role": "assistant", "content": None, "tool_calls": [call], "joins": True}
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield _result(item.get("call_id"), item.get("output"))
    elif kind == "item_reference":
        raise CallError("krouter keeps no items: send the whole of them, not an item_reference.")
    elif kind == "message":
        yield from _spoken(item, offer)


def _call(item: Mapping[str, Any], arguments: Any, offer: _Offer, *, text: bool) -> dict[str, Any]:
    """`item` names the tool. Of one that takes a text the arguments may be that text itself."""
    name = offer.sent(item)
    if isinstance(arguments, dict):
        arguments = dump(arguments).decode()
    elif text or str(name) in offer.texts:
        arguments = wrapped(str(arguments or ""))
    function = {"name": name, "arguments": arguments or "{}"}
    return {"id": item.get("call_id", item.get("id")), "type": "function", "function": function}


def _result(call_id: Any, output: Any, *, failed: bool = False) -> dict[str, Any]:
    content = output if isinstance(output, str) else _content("tool", list(_parts(output)))
    if failed:
        content = _as_error(content or "")
    return {"role": "tool", "tool_call_id": call_id, "content": content or ""}


def _as_error(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return said_as_error(content)
    return [{"type": "text", "text": said_as_error("")}, *content]


_KEPT = ("name", "tool_calls", "function_call", "tool_call_id", "reasoning_content", "refusal")


def _spoken(message: dict[str, Any], offer: _Offer) -> Iterator[dict[str, Any]]:
    """A message with a role. Anthropic's tool results come before what the user says beside."""
    role = "system" if message.get("role") == "developer" else message.get("role", "user")
    content = message.get("content")
    blocks = _dicts(content)
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for each in results:
        failed = bool(each.get("is_error"))
        yield _result(each.get("tool_use_id"), each.get("content"), failed=failed)
    kept = {name: message[name] for name in _KEPT if name in message}
    calls = [
        _call(block, block.get("input"), offer, text=False)
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    if calls:
        kept["tool_calls"] = calls
    elif "tool_calls" in kept:
        kept["tool_calls"] = [_recalled(call, offer) for call in _dicts(kept["tool_calls"])]
    said = content if isinstance(content, str) else _content(role, list(_parts(content)))
    if said or kept or not results:
        yield {"role": role, "content": said or (None if "tool_calls" in kept else ""), **kept}


def _recalled(call: dict[str, Any], offer: _Offer) -> dict[str, Any]:
    """Cursor sends a custom tool's text back as the arguments themselves."""
    function = _dict(call.get("function"))
    if str(function.get("name")) not in offer.texts:
        return call
    return _call({**function, "id": call.get("id")}, function.get("arguments"), offer, text=True)


def _content(role: str, parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Parts, or one text where that says the same: only a user's message may hold more."""
    texts = [part.get("text") for part in parts if part.keys() == {"type", "text"}]
    if len(texts) == len(parts) and (role != "user" or len(parts) < 2):
        return "\n".join(filter(None, texts))
    return parts


_TEXTS = frozenset(("text", "input_text", "output_text"))
_NO_PARTS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", "reasoning"))


def _parts(content: Any) -> Iterator[dict[str, Any]]:
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, str):
            yield {"type": "text", "text": block}
        elif isinstance(block, dict) and str(block.get("type")) not in _NO_PARTS:
            yield _part(block, str(block.get("type")))


def _part(block: dict[str, Any], kind: str) -> dict[str, Any]:
    source = _dict(block.get("source"))
    if kind in _TEXTS or kind == "refusal":
        mark = {"cache_control": block["cache_control"]} if block.get("cache_control") else {}
        return {"type": "text", "text": block.get("text") or block.get("refusal") or "", **mark}
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": _address(source)}}
    if kind == "input_image":
        url = {"url": block.get("image_url"), "detail": block.get("detail")}
        return {"type": "image_url", "image_url": {k: v for k, v in url.items() if v is not None}}
    if kind == "document" and source.get("type") == "text":
        return {"type": "text", "text": source.get("data") or ""}
    if kind == "document":
        file = {"filename": block.get("title") or "document.pdf", "file_data": _address(source)}
        return {"type": "file", "file": file}
    if kind == "input_file":
        names = ("filename", "file_data", "file_id")
        return {"type": "file", "file": {name: block[name] for name in names if name in block}}
    return block


def _address(source: Mapping[str, Any]) -> str:
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return str(source.get("url") or "")


def _flat_text(value: Any) -> str:
    texts = [value] if isinstance(value, str) else [part.get("text") for part in _dicts(value)]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
