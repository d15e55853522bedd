"""Whole replies, chat to messages and back.

Sources: the OpenAI API reference, "Chat Completions"; the Anthropic API reference, "Messages".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from krouter.dialects.thinking import UNSIGNED
from krouter_adapters.litellm_lane.translate.chat_parts import content_texts, untold
from krouter_adapters.litellm_lane.translate.chat_stream import messages_error
from krouter_adapters.litellm_lane.translate.messages_stream import chat_error, untold_block
from krouter_adapters.litellm_lane.translate.shapes import (
    CUT_CALL,
    FAILED,
    NAMELESS,
    THINKING,
    Json,
    arguments_object,
    as_dict,
    as_dicts,
    as_list,
    as_text,
    broken,
    ending,
    failed_with,
    finish_reason,
    new_id,
    prefixed_id,
    stop_reason,
    to_json,
    tool_id_out,
    usage_to_chat,
    usage_to_messages,
)


def chat_reply_to_messages(
    reply: Json, names: Mapping[str, str], lost: set[str] | None = None
) -> Json:
    """A chat completion as a message, an error where it was cut, empty where it is no completion.

    `names` maps tool names as sent to the caller's own; `lost` is told what of the reply messages
    has no place for. The reply is whole, so one without a finish reason has ended too.
    """
    choice, message = _said(reply)
    if message is None:
        return {}
    said = list(_thinking_and_text(message))
    calls, cut, nameless = _tool_uses(message, names)
    finish, stopped_by = choice.get("finish_reason"), choice.get("stop_reason")
    sequence = stopped_by if isinstance(stopped_by, str) and finish == "stop" else None
    reason = ending(finish, said=bool(said or calls or cut or finish is None))
    if reason == FAILED:
        return _messages_error(as_dict(choice.get("error")) or failed_with(finish))
    reason = stop_reason(
        reason,
        calls=bool(calls or cut),
        refused=bool(as_text(message.get("refusal"))),
        stopped_by=sequence,
    )
    if nameless or (cut and reason == "tool_use"):
        return _messages_error(NAMELESS if nameless else CUT_CALL)
    if lost is not None:
        lost |= {"choices"} if len(as_list(reply.get("choices"))) > 1 else set()
        lost |= untold(message) | ({"logprobs"} if choice.get("logprobs") else set())
    content = [*said, *calls]
    return {
        "id": prefixed_id(reply.get("id"), "msg_"),
        "type": "message",
        "role": "assistant",
        "model": as_text(reply.get("model")),
        "content": content,
        "stop_reason": reason if content or finish is not None else None,
        "stop_sequence": sequence if reason == "stop_sequence" else None,
        "usage": usage_to_messages(reply.get("usage")),
    }


def _said(reply: Json) -> tuple[Json, Json | None]:
    """The first choice and its message; no message where the reply is no completion."""
    choices = as_dict(reply).get("choices")
    if not choices:
        empty = isinstance(choices, list) or as_dict(reply).get("object") == "chat.completion"
        return {}, {} if empty else None
    choice = as_list(choices)[0] if as_list(choices) else None
    if not isinstance(choice, dict):
        return {}, None
    message = choice.get("message")
    if message is None:
        return choice, {"content": choice.get("text")}
    return choice, message if isinstance(message, dict) else None


def _messages_error(error: Json) -> Json:
    return {"type": "error", "error": messages_error(error)}


def _thinking_and_text(message: Json) -> Iterator[Json]:
    signed = list(_signed(message))
    yield from signed
    thought = message.get("reasoning_content")
    if not isinstance(thought, str):
        thought = message.get("reasoning")
    if isinstance(thought, str) and thought and not signed:
        yield {"type": "thinking", "thinking": thought, "signature": UNSIGNED}
    content = message.get("content")
    if isinstance(content, str) and content:
        yield {"type": "text", "text": content}
    for kind, text in content_texts(content):
        signature = {"signature": UNSIGNED} if kind == "thinking" else {}
        yield {"type": kind, kind: text, **signature}
    refusal = as_text(message.get("refusal"))
    if refusal:
        yield {"type": "text", "text": refusal}


def _signed(message: Json) -> Iterator[Json]:
    """Claude's thinking with its signatures, as LiteLLM's classes hand it on."""
    for block in as_dicts(message.get("thinking_blocks")):
        thought, signature = as_text(block.get("thinking")), as_text(block.get("signature"))
        if block.get("type") == "redacted_thinking" and as_text(block.get("data")):
            yield {"type": "redacted_thinking", "data": block["data"]}
        elif signature:
            yield {"type": "thinking", "thinking": thought, "signature": signature}


def _tool_uses(message: Json, names: Mapping[str, str]) -> tuple[list[Json], bool, bool]:
    """The calls, whether one was left out since its arguments break off, and whether one has no
    name: no tool may run on what it was not given whole."""
    calls = as_dicts(message.get("tool_calls"))
    legacy = message.get("function_call")
    if isinstance(legacy, dict) and not calls:
        calls = [{"function": legacy}]
    out: list[Json] = []
    cut = nameless = False
    used: set[str] = set()
    for call in calls:
        function = as_dict(call.get("function")) or as_dict(call.get("custom"))
        name, arguments = as_text(function.get("name")), function.get("arguments")
        if not name:
            nameless = nameless or bool(arguments)
            continue
        if broken(arguments):
            cut = True
            continue
        call_id = tool_id_out(call.get("id"))
        call_id = new_id("toolu_") if call_id in used else call_id
        used.add(call_id)
        value, _ = arguments_object(function.get("arguments", function.get("input")))
        own = names.get(name, name)
        out.append({"type": "tool_use", "id": call_id, "name": own, "input": value})
    return out, cut, nameless


def messages_reply_to_chat(
    reply: Json,
    names: Mapping[str, str] | None = None,
    lost: set[str] | None = None,
    *,
    signed: bool = False,
) -> Json:
    """A message as a chat completion, or an error where it was cut. `lost` is told what of it chat
    has no place for. `signed`: blocks of thinking stand beside the reasoning, as LiteLLM has it."""
    blocks = as_dicts(as_dict(reply).get("content"))
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    stop = reply.get("stop_reason")
    reason = ending(stop, said=bool(blocks) or stop is None)
    finish = finish_reason(reason, calls=bool(uses))
    if reason == FAILED:
        return chat_error({"error": failed_with(stop)})
    if not all(as_text(block.get("name")) for block in uses):
        return chat_error({"error": NAMELESS})
    cut = [block for block in uses if broken(block.get("input"))]
    if cut and finish == "tool_calls":
        return chat_error({"error": CUT_CALL})
    if lost is not None:
        lost |= {name for block in blocks for name in untold_block(block)}
        lost -= set(THINKING) if signed else set()
    calls = [_call(block, names or {}) for block in uses if block not in cut]
    thought = "".join(
        as_text(block.get("thinking")) for block in blocks if block.get("type") == "thinking"
    )
    text = joined_text(blocks, [block.get("type") for block in blocks])
    message: Json = {"role": "assistant", "content": text or None, "refusal": None}
    if thought:
        message["reasoning_content"] = thought
    if signed and (thinking := [block for block in blocks if block.get("type") in THINKING]):
        message["thinking_blocks"] = thinking
    if calls:
        message["tool_calls"] = calls
    elif not text:
        message["content"] = ""
    empty = stop is None and not (text or thought or calls)
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": None if empty else finish,
    }
    return {
        "id": prefixed_id(reply.get("id"), "chatcmpl-"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": as_text(reply.get("model")),
        "choices": [choice],
        "usage": usage_to_chat(reply.get("usage")),
    }


def joined_text(blocks: list[Json], kinds: list[Any]) -> str:
    """The text of blocks, of which `kinds` says what they are. Text blocks side by side are one
    text in pieces; with something else between them they are two."""
    out: list[str] = []
    apart = False
    for block, kind in zip(blocks, kinds, strict=True):
        text = as_text(block.get("text")) if kind == "text" else ""
        if text:
            out.append("\n\n" + text if apart and out else text)
            apart = False
        elif kind != "text":
            apart = True
    return "".join(out)


def _call(block: Json, names: Mapping[str, str]) -> Json:
    name = as_text(block.get("name"))
    value, _ = arguments_object(block.get("input"))
    return {
        "id": as_text(block.get("id")) or new_id("call_"),
        "type": "function",
        "function": {"name": names.get(name, name), "arguments": to_json(value)},
    }
