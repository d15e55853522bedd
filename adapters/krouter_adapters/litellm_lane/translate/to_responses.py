"""Chat requests as responses requests, for a provider that speaks nothing else.

Sources: the OpenAI API reference, "Responses" and "Chat Completions".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from krouter_adapters.litellm_lane.translate.custom_tools import as_responses_tool
from krouter_adapters.litellm_lane.translate.responses_shapes import custom_input
from krouter_adapters.litellm_lane.translate.sealed import reasoning_before, unseal
from krouter_adapters.litellm_lane.translate.shapes import (
    Dropped,
    Json,
    Translated,
    arguments_text,
    as_dict,
    as_dicts,
    as_list,
    as_text,
)

_SAME = (
    "model",
    "temperature",
    "top_p",
    "metadata",
    "user",
    "service_tier",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
)
_HANDLED = frozenset(
    (
        *_SAME,
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "tools",
        "tool_choice",
        "response_format",
        "verbosity",
        "reasoning_effort",
        "stream_options",
        "store",
    )
)

# Values that ask for what happens anyway.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "stop": ([],),
}
ENCRYPTED = "reasoning.encrypted_content"


def chat_to_responses(
    body: Json,
    maker: str,
    *,
    summary: bool,
    thinks: bool = True,
    customs: Mapping[str, Json] | None = None,
) -> Translated:
    """`maker` takes its own reasoning back. `summary`: the caller can be told of the reasoning;
    `thinks`: the model is not known to do without any, for which OpenAI would refuse the request;
    `customs` are the tools that the caller has as custom ones.

    Nothing is stored at the provider, whatever was asked for: its reasoning travels instead.
    """
    dropped = Dropped()
    out: Json = {key: body[key] for key in _SAME if body.get(key) is not None}
    instructions, rest = _instructions(as_dicts(body.get("messages")))
    if instructions:
        out["instructions"] = instructions
    history = _History(maker, dropped, customs or {})
    out["input"] = [item for message in rest for item in history.items(message)]
    out["store"] = False
    if thinks:
        out["include"] = [ENCRYPTED]
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    if most is not None:
        out["max_output_tokens"] = most
    _tools(out, body, customs or {})
    _text(out, body, dropped)
    effort = body.get("reasoning_effort")
    if effort is not None:
        out["reasoning"] = {"effort": effort, **({"summary": "auto"} if summary else {})}
    if body.get("store"):
        dropped.add("store")
    for key, value in body.items():
        if key not in _HANDLED and value is not None and value not in _NEUTRAL.get(key, ()):
            dropped.add(key)
    return Translated(out, {}, dropped.names())


def _instructions(messages: list[Json]) -> tuple[str, list[Json]]:
    """The text of the first system messages, and the messages that follow."""
    begun = 0
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            break
        begun += 1
    texts = [text for message in messages[:begun] for text in _texts(message.get("content"))]
    if begun == len(messages) and begun:
        return "", [{**messages[0], "role": "user"}, *messages[1:]]
    return "\n\n".join(texts), messages[begun:]


def _texts(content: Any) -> Iterator[str]:
    parts = [{"text": content}] if isinstance(content, str) else as_dicts(content)
    return filter(None, (as_text(part.get("text")) for part in parts))


def _tools(out: Json, body: Json, customs: Mapping[str, Json]) -> None:
    tools: list[Json] = []
    for tool in as_dicts(body.get("tools")):
        function = as_dict(tool.get("function"))
        if custom := customs.get(as_text(function.get("name"))):
            tools.append(as_responses_tool(custom))
            continue
        named: Json = {key: function[key] for key in ("name", "description") if key in function}
        tools.append(
            {
                "type": "function",
                **named,
                "parameters": function.get("parameters") or {"type": "object", "properties": {}},
                # Left out, it would mean true here and false in chat.
                "strict": bool(function.get("strict")),
            }
        )
    if not tools:
        return
    out["tools"] = tools
    choice = body.get("tool_choice")
    if choice is not None:
        name = as_dict(as_dict(choice).get("function")).get("name")
        kind = "custom" if name in customs else "function"
        out["tool_choice"] = {"type": kind, "name": name} if name else choice


def _text(out: Json, body: Json, dropped: Dropped) -> None:
    text: Json = {}
    wanted = as_dict(body.get("response_format"))
    match wanted.get("type"):
        case "json_schema":
            text["format"] = {"type": "json_schema", **as_dict(wanted.get("json_schema"))}
            text["format"].setdefault("name", "reply")
        case "json_object":
            text["format"] = {"type": "json_object"}
        case "text" | None:
            pass
        case kind:
            dropped.add(f"response_format.{kind}")
    if body.get("verbosity") is not None:
        text["verbosity"] = body["verbosity"]
    if text:
        out["text"] = text


class _History:
    """The conversation, each message as items."""

    def __init__(self, maker: str, dropped: Dropped, customs: Mapping[str, Json]) -> None:
        self._maker = maker
        self._dropped = dropped
        self._customs = customs
        self._custom_calls: set[str] = set()
        self._sent: set[str] = set()

    def items(self, message: Json) -> Iterator[Json]:
        content = message.get("content")
        if message.get("name") and message.get("role") != "tool":
            self._dropped.add("messages.name")
        match message.get("role"):
            case "assistant":
                yield from self._assistant(message)
            case "tool":
                call_id = as_text(message.get("tool_call_id"))
                output = self._output(content)
                kind = "custom_tool_call" if call_id in self._custom_calls else "function_call"
                yield {"type": f"{kind}_output", "call_id": call_id, "output": output}
            case "user":
                yield from _messages("user", list(self._parts(content)))
            case "system" | "developer":
                yield from _messages("developer", list(self._parts(content)))
            case role:
                self._dropped.add(f"messages.role={role}")

    def _assistant(self, message: Json) -> Iterator[Json]:
        yield from self._reasoning(message)
        texts = [{"type": "output_text", "text": text} for text in _texts(message.get("content"))]
        yield from _messages("assistant", texts)
        for call in as_dicts(message.get("tool_calls")):
            yield self._call(as_text(call.get("id")), as_dict(call.get("function")))

    def _call(self, call_id: str, function: Json) -> Json:
        name = as_text(function.get("name"))
        arguments = arguments_text(function.get("arguments")) or "{}"
        called = {"call_id": call_id, "name": name}
        if name not in self._customs:
            return {"type": "function_call", **called, "arguments": arguments}
        self._custom_calls.add(call_id)
        return {"type": "custom_tool_call", **called, "input": custom_input(arguments)}

    def _reasoning(self, message: Json) -> Iterator[Json]:
        """The provider's own reasoning, from where the caller kept it, or from memory."""
        blocks = as_dicts(message.get("thinking_blocks"))
        sealed = [block.get("signature") or block.get("data") for block in blocks]
        found = [item for text in sealed for item in unseal(self._maker, text)]
        calls = as_dicts(message.get("tool_calls"))
        found = found or reasoning_before(self._maker, calls)
        if not found and (blocks or message.get("reasoning_content") or message.get("reasoning")):
            self._dropped.add("messages.reasoning_content")
        for item in found:
            key = as_text(item.get("encrypted_content"))
            if item.get("type") == "reasoning" and key and key not in self._sent:
                self._sent.add(key)
                yield {"type": "reasoning", "summary": item.get("summary") or []} | {
                    "encrypted_content": key
                }

    def _output(self, content: Any) -> Any:
        parts = list(self._parts(content))
        if all(part["type"] == "input_text" for part in parts):
            return "".join(part["text"] for part in parts)
        return parts

    def _parts(self, content: Any) -> Iterator[Json]:
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for part in as_list(content):
            if isinstance(part, dict) and (made := self._part(part)) is not None:
                yield made

    def _part(self, part: Json) -> Json | None:
        kind = part.get("type")
        match kind:
            case "text":
                return {"type": "input_text", "text": as_text(part.get("text"))}
            case "image_url":
                image = as_dict(part.get("image_url"))
                url = image.get("url") or as_text(part.get("image_url"))
                return {
                    "type": "input_image",
                    "image_url": url,
                    "detail": image.get("detail") or "auto",
                }
            case "file":
                file = as_dict(part.get("file"))
                held = {key: file[key] for key in _FILE if file.get(key)}
                if "://" in as_text(held.get("file_id")):
                    held["file_url"] = held.pop("file_id")
                return {"type": "input_file", **held}
            case "input_audio":
                return {"type": "input_audio", "input_audio": part.get("input_audio")}
        self._dropped.add(f"messages.{kind}")
        text = as_text(part.get("text"))
        return {"type": "input_text", "text": text} if text else None


_FILE = ("filename", "file_data", "file_id")


def _messages(role: str, parts: list[Json]) -> Iterator[Json]:
    if parts:
        yield {"type": "message", "role": role, "content": parts}
