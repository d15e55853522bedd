"""OpenAI Chat Completions: replies, stream events and errors as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.upstream.content import Ask, Content, cut_text
from tests.upstream.script import Behaviour

DONE = "[DONE]"
KINDS = {
    400: ("invalid_request_error", "invalid_value"),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("permission_error", "permission_denied"),
    404: ("invalid_request_error", "model_not_found"),
    408: ("timeout_error", "timeout"),
    413: ("invalid_request_error", "request_too_large"),
    422: ("invalid_request_error", "unprocessable_entity"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
Event = tuple[str | None, Any]


def error(status: int, message: str, behaviour: Behaviour, serial: int) -> dict[str, Any]:
    kind, code = KINDS.get(status, ("server_error", "server_error"))
    return {
        "error": {
            "message": message,
            "type": behaviour.type or kind,
            "param": None,
            "code": behaviour.code or code,
        }
    }


def error_event(payload: dict[str, Any]) -> Event:
    return None, payload


def usage(content: Content) -> dict[str, Any]:
    return {
        "prompt_tokens": content.tokens_in,
        "completion_tokens": content.tokens_out,
        "total_tokens": content.tokens_in + content.tokens_out,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": content.tokens_out // 2 if content.thinking else 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def finish_reason(content: Content, behaviour: Behaviour) -> str | None:
    if "finish" in behaviour.no or behaviour.empty not in ("", "done"):
        return None
    return behaviour.finish or ("tool_calls" if content.call else "stop")


def base(ask: Ask, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{ask.serial:024d}",
        "object": kind,
        "created": ask.created,
        "model": ask.model,
        "service_tier": "default",
        "system_fingerprint": "fp_upstream",
        "x_upstream": {"kept": True},
    }


def reply(ask: Ask, content: Content, behaviour: Behaviour) -> dict[str, Any]:
    body = base(ask, "chat.completion")
    if behaviour.empty != "missing":
        choice = {
            "index": 0,
            "message": message(ask, content, behaviour),
            "logprobs": None,
            "finish_reason": finish_reason(content, behaviour),
        }
        body["choices"] = [] if behaviour.empty == "list" else [choice]
    if "usage" not in behaviour.no:
        body["usage"] = usage(content)
    return body


def message(ask: Ask, content: Content, behaviour: Behaviour) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": content.text, "refusal": None}
    if behaviour.empty:
        return said | {"content": None if behaviour.empty == "null" else ""}
    if content.thinking:
        said["reasoning_content"] = content.thinking
    if content.call:
        said["tool_calls"] = [call(ask, *content.call)]
    return said


def call(ask: Ask, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"call_{ask.serial:024d}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def events(ask: Ask, content: Content, behaviour: Behaviour) -> Iterator[Event]:
    finish = finish_reason(content, behaviour)
    frame = base(ask, "chat.completion.chunk")
    if ask.include_usage:
        frame["usage"] = None
    for delta in deltas(ask, content, behaviour):
        yield None, frame | {"choices": [choice(delta, None)]}
    if behaviour.empty == "missing":
        yield None, frame
    if behaviour.empty == "list":
        yield None, frame | {"choices": []}
    if finish:
        yield None, frame | {"choices": [choice({}, finish)]}
    if ask.include_usage and "usage" not in behaviour.no and behaviour.empty != "missing":
        yield None, frame | {"choices": [], "usage": usage(content)}
    if "done" not in behaviour.no:
        yield None, DONE


def choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def deltas(ask: Ask, content: Content, behaviour: Behaviour) -> Iterator[dict[str, Any]]:
    if behaviour.empty in ("missing", "list"):
        return
    opening = None if behaviour.empty == "null" or content.text is None else ""
    yield {"role": "assistant", "content": opening, "refusal": None}
    if behaviour.empty:
        return
    for piece in cut_text(content.thinking or "", 2):
        if piece:
            yield {"reasoning_content": piece}
    for piece in cut_text(content.text or "", behaviour.chunks):
        if piece:
            yield {"content": piece}
    if content.call:
        name, arguments = content.call
        yield {"tool_calls": [{"index": 0, **call(ask, name, "")}]}
        for piece in cut_text(arguments, 2):
            yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
