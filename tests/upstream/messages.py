"""Anthropic Messages: replies, stream events and errors as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tests.upstream.content import SIGNATURE, Ask, Content, cut_text
from tests.upstream.script import Behaviour

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
Event = tuple[str | None, Any]
Block = tuple[dict[str, Any], list[dict[str, Any]]]


def error(status: int, message: str, behaviour: Behaviour, serial: int) -> dict[str, Any]:
    detail = {"type": behaviour.type or KINDS.get(status, "api_error"), "message": message}
    if behaviour.code:
        detail["code"] = behaviour.code
    return {"type": "error", "error": detail, "request_id": f"req_{serial:024d}"}


def error_event(payload: dict[str, Any]) -> Event:
    return "error", payload


def usage(content: Content, tokens_out: int) -> dict[str, Any]:
    return {
        "input_tokens": content.tokens_in,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": tokens_out,
        "service_tier": "standard",
    }


def stop_reason(content: Content, behaviour: Behaviour) -> str | None:
    if "finish" in behaviour.no or behaviour.empty not in ("", "done"):
        return None
    return behaviour.finish or ("tool_use" if content.call else "end_turn")


def reply(ask: Ask, content: Content, behaviour: Behaviour) -> dict[str, Any]:
    body = base(ask) | {"stop_reason": stop_reason(content, behaviour), "stop_sequence": None}
    if behaviour.empty != "missing":
        blocks = [whole for _, whole in zip_blocks(ask, content, behaviour)]
        body["content"] = None if behaviour.empty == "null" else blocks
    if "usage" not in behaviour.no:
        body["usage"] = usage(content, content.tokens_out)
    return body


def base(ask: Ask) -> dict[str, Any]:
    return {
        "id": f"msg_{ask.serial:024d}",
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "x_upstream": {"kept": True},
    }


def zip_blocks(
    ask: Ask, content: Content, behaviour: Behaviour
) -> Iterator[tuple[list[Event], dict[str, Any]]]:
    """Every block twice: as its stream events, and whole."""
    for index, (start, deltas) in enumerate(blocks(ask, content, behaviour)):
        opened = {"type": "content_block_start", "index": index, "content_block": start}
        streamed: list[Event] = [("content_block_start", opened)]
        whole = dict(start)
        for delta in deltas:
            event = {"type": "content_block_delta", "index": index, "delta": delta}
            streamed.append(("content_block_delta", event))
            extend(whole, delta)
        streamed.append(("content_block_stop", {"type": "content_block_stop", "index": index}))
        if start["type"] == "tool_use" and content.call:
            whole["input"] = decode_arguments(content.call[1])
        yield streamed, whole


def extend(block: dict[str, Any], delta: dict[str, Any]) -> None:
    for key in ("text", "thinking", "signature"):
        if key in delta:
            block[key] = block.get(key, "") + delta[key]


def decode_arguments(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments


def blocks(ask: Ask, content: Content, behaviour: Behaviour) -> Iterator[Block]:
    if behaviour.empty:
        if behaviour.empty == "text":
            yield {"type": "text", "text": ""}, []
        return
    if content.thinking:
        thoughts = [
            {"type": "thinking_delta", "thinking": piece} for piece in cut_text(content.thinking, 2)
        ]
        sign = {"type": "signature_delta", "signature": SIGNATURE}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, sign]
    if content.text is not None:
        pieces = cut_text(content.text, behaviour.chunks)
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in pieces],
        )
    if content.call:
        name, arguments = content.call
        start = {"type": "tool_use", "id": f"toolu_{ask.serial:024d}", "name": name, "input": {}}
        pieces = cut_text(arguments, 2)
        yield start, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def events(ask: Ask, content: Content, behaviour: Behaviour) -> Iterator[Event]:
    counted = "usage" not in behaviour.no
    opened = base(ask) | {"content": [], "stop_reason": None, "stop_sequence": None}
    if counted:
        opened["usage"] = usage(content, 1)
    yield "message_start", {"type": "message_start", "message": opened}
    for number, (streamed, _) in enumerate(zip_blocks(ask, content, behaviour)):
        yield streamed[0]
        if number == 0:
            yield "ping", {"type": "ping"}
        yield from streamed[1:]
    if "finish" not in behaviour.no and behaviour.empty != "missing":
        delta = {"stop_reason": stop_reason(content, behaviour), "stop_sequence": None}
        closing: dict[str, Any] = {"type": "message_delta", "delta": delta}
        if counted:
            closing["usage"] = usage(content, content.tokens_out)
        yield "message_delta", closing
    if "done" not in behaviour.no:
        yield "message_stop", {"type": "message_stop"}
