"""Replies of providers that speak neither chat nor messages, read into chat form.

LiteLLM's classes read what a reply says. How it ends is read here, from the provider's own words:
the classes say `stop` where a reply was cut, or went wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from krouter_adapters.litellm_lane.signatures import remember
from krouter_adapters.litellm_lane.translate import beside_calls, prefixed_id
from krouter_adapters.litellm_lane.translate.shapes import Json, as_dicts
from krouter_adapters.litellm_lane.ways import Aim

ReadReply = Callable[[Json], Json]
"""A whole reply of the provider's in chat form."""
Reader = Callable[[Json], Iterator[Json]]
"""One event of the provider's as chat chunks. It keeps state: one for each stream."""

BROKEN = "error"
"""The finish reason of a reply that its provider itself calls failed."""

_GEMINI_ENDS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "OTHER": "content_filter",
    "MODEL_ARMOR": "content_filter",
}
_COHERE_ENDS = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "ERROR_TOXIC": "content_filter",
}
_BEDROCK_ENDS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
_GIGACHAT_ENDS = {
    "stop": "stop",
    "length": "length",
    "function_call": "tool_calls",
    "blacklist": "content_filter",
}
_OLLAMA_ENDS = {"stop": "stop", "length": "length"}


def gemini_end(event: Json) -> str | None:
    """The finish reason of a gemini reply or event; None where it has not ended."""
    for candidate in as_dicts(event.get("candidates")):
        if reason := candidate.get("finishReason"):
            return _GEMINI_ENDS.get(str(reason), BROKEN)
    feedback = event.get("promptFeedback")
    blocked = feedback.get("blockReason") if isinstance(feedback, dict) else None
    return "content_filter" if blocked else None


def _cohere_end(event: Json) -> str | None:
    if "type" not in event:  # a whole reply
        return _COHERE_ENDS.get(str(event.get("finish_reason")), BROKEN)
    if event["type"] != "message-end":
        return None
    delta = event.get("delta")
    reason = delta.get("finish_reason") if isinstance(delta, dict) else None
    return _COHERE_ENDS.get(str(reason), BROKEN)


def _bedrock_end(event: Json) -> str | None:
    reason = event.get("stopReason")
    return None if reason is None else _BEDROCK_ENDS.get(str(reason), BROKEN)


def _gigachat_end(event: Json) -> str | None:
    for choice in as_dicts(event.get("choices")):
        if reason := choice.get("finish_reason"):
            return _GIGACHAT_ENDS.get(str(reason), BROKEN)
    return None


def _ollama_end(event: Json) -> str | None:
    if event.get("done") is not True:
        return None
    return _OLLAMA_ENDS.get(str(event.get("done_reason") or "stop"), "stop")


_ENDS: Mapping[str, Callable[[Json], str | None]] = {
    "cohere": _cohere_end,
    "cohere_chat": _cohere_end,
    "bedrock": _bedrock_end,
    "gigachat": _gigachat_end,
    "ollama": _ollama_end,
    "ollama_chat": _ollama_end,
}


def end_of(aim: Aim) -> Callable[[Json], str | None] | None:
    """Reads how a reply or an event of this provider ends; None where LiteLLM's class has to."""
    return gemini_end if aim.body == "gemini" else _ENDS.get(aim.name)


def failure_in(event: Json) -> Json:
    """The error of a reply that its provider calls failed."""
    candidate = next(iter(as_dicts(event.get("candidates"))), {})
    reason = candidate.get("finishReason") or event.get("stopReason") or "an error"
    told = candidate.get("finishMessage") or f"The provider ended the reply with {reason}."
    return {"message": told, "type": "server_error", "code": str(reason).lower()}


def looks_right(aim: Aim, reply: Json) -> bool:
    """Whether a JSON object is a reply of this provider's at all."""
    match aim.body:
        case "chat":
            return "choices" in reply or reply.get("object") == "chat.completion"
        case "messages":
            return reply.get("type") == "message" or isinstance(reply.get("content"), list)
        case "responses":
            return reply.get("object") == "response" or isinstance(reply.get("output"), list)
        case "gemini":
            return not _GEMINI_SIGNS.isdisjoint(reply)
    return any(key in reply for key in _SIGNS.get(aim.name, reply))


# Gemini leaves out what is empty: an answer without candidates still has its counts.
_GEMINI_SIGNS = frozenset(("candidates", "promptFeedback", "usageMetadata", "modelVersion"))

# What a whole reply holds, at the least.
_SIGNS: Mapping[str, tuple[str, ...]] = {
    "a2a": ("result",),
    "bedrock": ("output",),
    "bytez": ("output",),
    "cohere": ("message",),
    "cohere_chat": ("message",),
    "databricks_agent": ("output", "choices", "messages"),
    "gigachat": ("choices",),
    "nlp_cloud": ("generated_text",),
    "ollama": ("response",),
    "ollama_chat": ("message",),
}


def before_class(aim: Aim, event: Json) -> Json:
    """What the class is given: an event it would misread is put in the form it knows."""
    if aim.body == "gemini":
        return _gemini_event(event)
    if aim.name in ("cohere", "cohere_chat"):
        kind = event.get("type")
        if kind in ("message-end", "tool-plan-delta", "citation-start"):
            return {"event": kind, "data": event, "index": event.get("index") or 0}
    return event


def _gemini_event(event: Json) -> Json:
    """The class drops the text of a reply that a filter ended, and needs a count of tokens and
    the arguments of every call."""
    candidates = [
        {
            **_with_arguments(candidate),
            **({"finishReason": "STOP"} if candidate.get("finishReason") else {}),
        }
        for candidate in as_dicts(event.get("candidates"))
    ]
    counts = event.get("usageMetadata") or {
        "promptTokenCount": 0,
        "candidatesTokenCount": 0,
        "totalTokenCount": 0,
    }
    return {**event, "candidates": candidates, "usageMetadata": counts}


def _with_arguments(candidate: Json) -> Json:
    """Gemini leaves out the arguments of a call that has none."""
    content = candidate.get("content")
    if not isinstance(content, dict) or not isinstance(parts := content.get("parts"), list):
        return candidate
    return {**candidate, "content": {**content, "parts": [_with_args(part) for part in parts]}}


def _with_args(part: Any) -> Any:
    called = part.get("functionCall") if isinstance(part, dict) else None
    if not isinstance(called, dict) or called.get("args") is not None:
        return part
    return {**part, "functionCall": {**called, "args": {}}}


_GEMINI_CODE = ("executableCode", "codeExecutionResult")


def unread(aim: Aim, event: Json) -> set[str]:
    """What of a reply or an event chat has no place for, and the class leaves out unsaid."""
    if aim.body != "gemini":
        return set()
    contents = (candidate.get("content") for candidate in as_dicts(event.get("candidates")))
    parts = [
        part
        for content in contents
        if isinstance(content, dict)
        for part in as_dicts(content.get("parts"))
    ]
    return {name for name in _GEMINI_CODE if any(part.get(name) for part in parts)}


def chat_from_generic(chunk: Mapping[str, Any]) -> Json:
    """LiteLLM's other kind of chunk in chat form."""
    delta: Json = {}
    if chunk.get("text"):
        delta["content"] = chunk["text"]
    if chunk.get("tool_use"):
        delta["tool_calls"] = [dict(chunk["tool_use"])]
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    usage = chunk.get("usage")
    return {"choices": [choice], **({"usage": dict(usage)} if usage else {})}


# What LiteLLM adds to a message that chat does not have.
_KEPT = (
    "role",
    "content",
    "reasoning_content",
    "tool_calls",
    "refusal",
    "annotations",
    "audio",
    "images",
)
_CALL = ("index", "id", "type", "function")


def tidied(message: Mapping[str, Any]) -> Json:
    """A message or a delta with what chat knows, arguments as text."""
    kept = {key: message[key] for key in _KEPT if message.get(key) is not None}
    if calls := kept.get("tool_calls"):
        kept["tool_calls"] = [_call(call, place) for place, call in enumerate(as_dicts(calls))]
    return kept


def _call(call: Json, place: int) -> Json:
    function = {k: v for k, v in (call.get("function") or {}).items() if k in ("name", "arguments")}
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        function["arguments"] = json.dumps(arguments, separators=(",", ":"))
    if not function.get("name"):
        function.pop("name", None)
    remember(call)
    index = call.get("index")
    kept = {key: call[key] for key in _CALL if call.get(key) is not None}
    return {**kept, "index": place if index is None else index, "function": function}


def whole_chat(aim: Aim, reply: Json, read: ReadReply, model: str) -> Json:
    """A whole reply in chat form. Raises whatever the class does on what it cannot read."""
    ends = end_of(aim)
    end = ends(reply) if ends else None
    if end == BROKEN:
        return {"error": failure_in(reply)}
    if aim.body == "gemini" and not as_dicts(reply.get("candidates")):
        message: Json = {"role": "assistant", "content": None}
        return _completion({}, message, end, reply.get("responseId"), model)
    chat = read(before_class(aim, reply))
    choice = next(iter(as_dicts(chat.get("choices"))), {})
    message = tidied(choice.get("message") or {})
    if aim.name in ("cohere", "cohere_chat"):
        message.setdefault("content", _cohere_text(reply))
    for call in message.get("tool_calls", ()):
        call.pop("index", None)
    if ends is None:
        end = choice.get("finish_reason")
    elif end:
        end = beside_calls(end, calls=message.get("tool_calls"))
    return _completion(chat, message, end, reply.get("responseId"), model)


def _completion(chat: Json, message: Json, end: str | None, own_id: Any, model: str) -> Json:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, **message},
        "logprobs": None,
        "finish_reason": end,
    }
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    return {
        "id": prefixed_id(own_id or chat.get("id"), "chatcmpl-"),
        "object": "chat.completion",
        "created": chat.get("created") or 0,
        "model": model,
        "choices": [choice],
        "usage": chat.get("usage") or usage,
    }


def _cohere_text(reply: Json) -> str | None:
    message = reply.get("message")
    parts = as_dicts(message.get("content")) if isinstance(message, dict) else []
    return "".join(str(part.get("text") or "") for part in parts) or None
