"""The messages of a chat request, as LiteLLM's classes can take them.

Its classes for Anthropic and Gemini raise on arguments that are no JSON, and leave out parts,
names and reasoning without a word; those are repaired, carried otherwise, or named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from krouter_adapters.litellm_lane.translate.conversation import decoded
from krouter_adapters.litellm_lane.translate.shapes import (
    Dropped,
    Json,
    arguments_object,
    as_dict,
    as_dicts,
    as_list,
    as_text,
    part_text,
    to_json,
)
from krouter_adapters.litellm_lane.ways import Form

_SYSTEM = ("system", "developer")
_PARTS = ("text", "image_url", "file")


class History:
    def __init__(self, target: Form, dropped: Dropped) -> None:
        self._target = target
        self._strict = target in ("messages", "gemini")
        self._dropped = dropped
        self._made = 0
        self._legacy: list[str] = []

    def messages(self, messages: list[Any]) -> list[Json]:
        turned = [self._message(m) for m in messages if isinstance(m, dict)]
        ordered = _ordered(turned)
        if self._target == "messages" and ordered:
            _with_user(ordered)
        return ordered

    def _message(self, message: Json) -> Json:
        role = message.get("role")
        out = dict(message)
        if self._strict and role not in ("tool", "function") and out.pop("name", None):
            self._dropped.add("messages.name")
        if role == "developer":
            out["role"] = "system"
        if role == "function":
            out["role"] = "tool"
            out.pop("name", None)
            out["tool_call_id"] = self._legacy.pop(0) if self._legacy else self._new_id()
        if role == "assistant":
            self._assistant(out)
        if isinstance(out.get("content"), list):
            out["content"] = [part for p in out["content"] for part in self._part(p)]
        return out

    def _new_id(self) -> str:
        self._made += 1
        return f"call_{self._made}"

    def _assistant(self, out: Json) -> None:
        legacy = out.pop("function_call", None)
        if isinstance(legacy, dict) and not out.get("tool_calls"):
            call_id = self._new_id()
            self._legacy.append(call_id)
            out["tool_calls"] = [{"id": call_id, "type": "function", "function": legacy}]
        if "tool_calls" in out:
            calls = [self._call(call) for call in as_dicts(out.pop("tool_calls"))]
            if calls:
                out["tool_calls"] = calls
        refusal = out.pop("refusal", None)
        if isinstance(refusal, str) and refusal and not part_text(out.get("content")):
            out["content"] = refusal
        if out.pop("audio", None):
            self._dropped.add("messages.audio")
        self._reasoning(out)

    def _reasoning(self, out: Json) -> None:
        blocks = as_dicts(out.pop("thinking_blocks", None))
        signed = [block for block in blocks if block.get("signature") or block.get("data")]
        if signed:
            out["thinking_blocks"] = signed
        if self._target != "messages":
            return
        thoughts = [out.pop(key, None) for key in ("reasoning_content", "reasoning")]
        if not signed and any(thoughts + blocks):
            self._dropped.add("messages.reasoning_content")

    def _call(self, call: Json) -> Json:
        function = as_dict(call.get("function"))
        custom = as_dict(call.get("custom"))
        if custom and not function:
            function = {"name": custom.get("name"), "arguments": {"input": custom.get("input")}}
        value, changed = arguments_object(function.get("arguments"))
        arguments = function.get("arguments")
        if changed:
            self._dropped.add("messages.tool_calls.arguments")
        if changed or not isinstance(arguments, str) or not arguments.strip().startswith("{"):
            arguments = to_json(value)
        kept = {key: value for key, value in call.items() if key != "custom"}
        kept["id"] = as_text(call.get("id")) or self._new_id()
        return {**kept, "type": "function", "function": {**function, "arguments": arguments}}

    def _part(self, part: Any) -> Iterator[Json]:
        if isinstance(part, str):
            yield {"type": "text", "text": part}
            return
        if not isinstance(part, dict):
            return
        kind = part.get("type")
        if kind == "refusal":
            yield {"type": "text", "text": as_text(part.get("refusal"))}
        elif kind == "image_url":
            yield self._image(part)
        elif kind == "file" and self._strict:
            yield from self._file(part, as_dict(part.get("file")))
        elif kind in _PARTS or not self._strict or self._takes(kind):
            yield part
        else:
            self._dropped.add(f"messages.{kind}")

    def _takes(self, kind: Any) -> bool:
        return kind == "input_audio" and self._target == "gemini"

    def _image(self, part: Json) -> Json:
        image = part.get("image_url")
        if isinstance(image, str):
            image = {"url": image}
        fields = as_dict(image)
        if self._target == "messages" and fields.get("detail") not in (None, "auto"):
            self._dropped.add("messages.image_url.detail")
        return {**part, "image_url": fields}

    def _file(self, part: Json, file: Json) -> Iterator[Json]:
        file_id, data = as_text(file.get("file_id")), as_text(file.get("file_data"))
        if not data and "://" not in file_id:
            self._dropped.add("messages.file.file_id")
            return
        text = _plain_text(data) if self._target == "messages" else None
        if text is None:
            yield part
            return
        name = as_text(file.get("filename"))
        yield {"type": "text", "text": f"[Document: {name}]\n{text}" if name else text}


def _plain_text(data: str) -> str | None:
    head, comma, body = data.partition(",")
    if not comma or not head.startswith("data:text/") or not head.endswith(";base64"):
        return None
    return decoded(body)


def _ordered(messages: list[Json]) -> list[Json]:
    """Results directly after their calls and in the order of the calls: Gemini pairs them by name
    and place, Anthropic wants them all in the next turn."""
    out: list[Json] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        out.append(message)
        index += 1
        if "tool_calls" not in message or message.get("role") != "assistant":
            continue
        order = [as_text(call.get("id")) for call in as_dicts(message["tool_calls"])]
        if not order:
            continue
        results: dict[str, Json] = {}
        between: list[Json] = []
        while index < len(messages):
            role = messages[index].get("role")
            if role == "tool":
                call_id = as_text(messages[index].get("tool_call_id"))
                results[call_id] = _both(results.get(call_id), messages[index])
            elif role in _SYSTEM and len(results) < len(order):
                between.append(messages[index])
            else:
                break
            index += 1
        places = {call_id: place for place, call_id in enumerate(order)}
        ids = sorted(results, key=lambda call_id: places.get(call_id, len(order)))
        out += [results[call_id] for call_id in ids] + between
    return out


def _both(first: Json | None, second: Json) -> Json:
    """Two results of one call as one: Anthropic and Gemini refuse a second."""
    if first is None:
        return second
    contents = [message.get("content") for message in (first, second)]
    if all(isinstance(content, str) for content in contents):
        return {**first, "content": "\n".join(contents)}  # type: ignore[arg-type]
    joined: list[Any] = []
    for content in contents:
        text = [{"type": "text", "text": content}] if isinstance(content, str) else []
        joined += text or as_list(content)
    return {**first, "content": joined}


def _with_user(messages: list[Json]) -> None:
    """Anthropic wants a turn besides the system prompt: the last instruction becomes the user's."""
    if all(message.get("role") in _SYSTEM for message in messages):
        messages[-1] = {**messages[-1], "role": "user"}
