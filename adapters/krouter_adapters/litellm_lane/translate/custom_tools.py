"""Custom tools of chat, which take any text: a function of one text where nothing else is known.

Source: the OpenAI API reference, "Chat Completions".
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from krouter.dialects import text_tools
from krouter.dialects.text_tools import TextArgument, unwrapped
from krouter_adapters.litellm_lane.translate.messages_stream import chat_error
from krouter_adapters.litellm_lane.translate.shapes import (
    CUT_CALL,
    Dropped,
    Json,
    as_dict,
    as_dicts,
    as_list,
    as_text,
)


def custom_of(tool: Json) -> Json | None:
    """What a custom tool of chat holds; None for any other tool."""
    custom = as_dict(tool.get("custom"))
    return custom if tool.get("type") == "custom" and as_text(custom.get("name")) else None


def customs_of(tools: Any) -> dict[str, Json]:
    """The custom tools among `tools`, by name."""
    found = (custom_of(tool) for tool in as_dicts(tools))
    return {custom["name"]: custom for custom in found if custom}


def as_function(custom: Json, dropped: Dropped) -> Json:
    """A custom tool as a function tool."""
    if text_tools.has_grammar(custom):
        dropped.add("tools.format")
    return text_tools.as_function({**custom, "type": "custom"}, custom["name"])


def as_responses_tool(custom: Json) -> Json:
    """A custom tool as responses has it, where the grammar lies flat."""
    kept: Json = {key: custom[key] for key in ("name", "description") if key in custom}
    form = as_dict(custom.get("format"))
    if form:
        grammar = as_dict(form.get("grammar"))
        kept["format"] = {k: v for k, v in form.items() if k != "grammar"} | grammar
    return {"type": "custom", **kept}


def with_customs(chat: Json, customs: Set[str]) -> Json:
    """A completion in which calls of custom tools are the custom calls that the caller knows; an
    error where one of them was cut."""
    for choice in as_dicts(chat.get("choices")) if customs else ():
        message = as_dict(choice.get("message"))
        if choice.get("finish_reason") == "tool_calls" and _any_cut(message, customs):
            return chat_error({"error": CUT_CALL})
        if message.get("tool_calls"):
            message["tool_calls"] = [_custom(call, customs) for call in message["tool_calls"]]
    return chat


def _any_cut(message: Json, customs: Set[str]) -> bool:
    functions = [as_dict(call.get("function")) for call in as_dicts(message.get("tool_calls"))]
    return any(_is_cut(f.get("arguments")) for f in functions if f.get("name") in customs)


def _is_cut(arguments: Any) -> bool:
    text = TextArgument()
    text.feed(as_text(arguments))
    return text.is_cut


def _custom(call: Any, customs: Set[str]) -> Any:
    function = as_dict(as_dict(call).get("function"))
    if function.get("name") not in customs:
        return call
    kept = {key: value for key, value in call.items() if key != "function"}
    text = unwrapped(as_text(function.get("arguments")))
    return {**kept, "type": "custom", "custom": {"name": function["name"], "input": text}}


class CustomCalls:
    """Turns the calls in the chunks of one stream."""

    def __init__(self, customs: Set[str]) -> None:
        self._customs = customs
        self._open: dict[tuple[Any, Any], TextArgument] = {}
        """By the places of choice and call."""
        self._last: dict[Any, Any] = {}
        """The place of each choice's last call: some hosts say it only once."""

    def turned(self, chunk: Json) -> Json:
        """The chunk as the caller is told it; an error where a call was cut."""
        for choice in as_dicts(chunk.get("choices")) if self._customs else ():
            at = choice.get("index") or 0
            delta = choice.get("delta")
            if not isinstance(delta, dict):
                delta = choice["delta"] = {}
            calls = [c for call in as_list(delta.get("tool_calls")) for c in self._call(at, call)]
            if finish := choice.get("finish_reason"):
                if finish == "tool_calls" and self._any_cut(at):
                    return chat_error({"error": CUT_CALL})
                calls += self._rest(at)
            delta.pop("tool_calls", None)
            if calls:
                delta["tool_calls"] = calls
        return chunk

    def _call(self, at: Any, call: Any) -> list[Any]:
        function = as_dict(as_dict(call).get("function"))
        place = as_dict(call).get("index", self._last.get(at, 0))
        self._last[at] = place
        name, piece = function.get("name"), as_text(function.get("arguments"))
        text = self._open.get((at, place))
        if text is not None and name in (None, "", *self._customs):
            return _more(place, text.feed(piece))
        if name not in self._customs:
            return [call]
        text = self._open[at, place] = TextArgument()
        kept = {key: value for key, value in call.items() if key != "function"}
        custom = {"name": name, "input": text.feed(piece)}
        return [{**kept, "index": place, "type": "custom", "custom": custom}]

    def _any_cut(self, at: Any) -> bool:
        return any(text.is_cut for key, text in self._open.items() if key[0] == at)

    def _rest(self, at: Any) -> list[Json]:
        """What has been held back until the end."""
        mine = [key for key in self._open if key[0] == at]
        return [more for key in mine for more in _more(key[1], self._open.pop(key).end())]


def _more(place: Any, text: str) -> list[Json]:
    return [{"index": place, "custom": {"input": text}}] if text else []
