"""A whole reply as the stream it would have been.

Sources: the API references of OpenAI, Anthropic and Google on streaming. What a reply holds is
moved, not decoded: numbers and texts stay spelled as they came.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from krouter.body import Body, dump
from krouter.dialects import DIALECTS
from krouter.dialects.base import Kind
from krouter.dialects.chat import DONE, asks_usage
from krouter.dialects.raw import (
    EMPTY,
    NULL,
    Fields,
    as_text,
    elements,
    fields_of,
    is_said,
    is_text,
    one_line,
    over,
    text_of,
    with_default,
)
from krouter.dialects.replay_responses import responses_events
from krouter.errortext import read_error
from krouter.sse import encode

_UNREADABLE = "The reply of the model could not be read."


def as_stream(dialect_name: str, raw: bytes, body: Body) -> bytes:
    """A whole reply to `body` as the SSE bytes of a complete stream that says the same.

    What the dialect streams in no way of its own stands whole in one event. A reply that is an
    error, or none of the dialect's, becomes an error event. Raises KeyError for a dialect that has
    no streams.
    """
    dialect = DIALECTS[dialect_name]
    whole = one_line(raw)
    reading = dialect.read_reply(whole) if whole is not None else None
    if whole is None or reading is None or reading.kind is Kind.GARBAGE:
        return dialect.error_event(502, _UNREADABLE, {}, dialect.tracker(body, None))
    if reading.kind is Kind.ERROR:
        text, _ = read_error(whole)
        message = text.message or _UNREADABLE
        return dialect.error_event(reading.status or 500, message, {}, dialect.tracker(body, None))
    return b"".join(_WRITERS[dialect_name](whole, body))


def _model(reply: Mapping[str, Any], body: Body) -> Any:
    return with_default(reply, "model", with_default(body.fields, "model", EMPTY))


def _without(fields: Fields, *names: str) -> Fields:
    return {name: value for name, value in fields.items() if name not in names}


# OpenAI Chat Completions

_THINKING = ("reasoning", "reasoning_content", "reasoning_details", "thinking_blocks")


def _chat(whole: bytes, body: Body) -> Iterator[bytes]:
    reply = fields_of(whole)
    frame = {
        "id": with_default(reply, "id", f"chatcmpl-{secrets.token_hex(12)}"),
        "object": "chat.completion.chunk",
        "created": reply["created"] if is_said(reply.get("created")) else int(time.time()),
        "model": _model(reply, body),
        **_without(reply, "id", "object", "created", "model", "choices", "usage", "error"),
    }
    for at, raw in enumerate(elements(reply.get("choices")) or [msgspec.Raw(b"{}")]):
        for choice in _choices(at, fields_of(raw)):
            yield encode(dump({**frame, "choices": [choice]}))
    usage = reply.get("usage")
    if is_said(usage) and asks_usage(body):
        yield encode(dump({**frame, "choices": [], "usage": usage}))
    yield DONE


def _choices(at: int, choice: Fields) -> Iterator[Fields]:
    """One choice of a reply as the choice of one chunk after the other."""
    message = fields_of(choice.get("message")) or {"content": choice.get("text", NULL)}
    index = choice["index"] if is_said(choice.get("index")) else at
    logprobs = choice.get("logprobs", NULL)
    calls = [_call(number, raw) for number, raw in enumerate(elements(message.get("tool_calls")))]
    for delta in (*_deltas(message), *({"tool_calls": [call]} for call in calls)):
        said = NULL
        if is_said(delta.get("content")) and "role" not in delta:
            said, logprobs = logprobs, NULL
        yield {"index": index, "delta": delta, "logprobs": said, "finish_reason": None}
    over = _without(choice, "index", "message", "text", "delta", "usage")
    reason = with_default(choice, "finish_reason", "tool_calls" if calls else "stop")
    yield {**over, "index": index, "delta": {}, "logprobs": logprobs, "finish_reason": reason}


def _deltas(message: Fields) -> Iterator[Fields]:
    content = message.get("content")
    begun = EMPTY if is_text(content) else NULL
    yield {"role": with_default(message, "role", "assistant"), "content": begun}
    rest = {name: value for name, value in message.items() if is_said(value)}
    if thinking := {name: rest.pop(name) for name in _THINKING if name in rest}:
        yield thinking
    if "content" in rest:
        yield {"content": rest["content"]}
    if beside := _without(rest, "role", "content", "tool_calls"):
        yield beside


def _call(at: int, raw: msgspec.Raw) -> Fields:
    call = fields_of(raw)
    told = {
        "index": at,
        "id": with_default(call, "id", f"call_{secrets.token_hex(12)}"),
        "type": with_default(call, "type", "function"),
        **_without(call, "index", "id", "type"),
    }
    if function := fields_of(call.get("function")):
        told["function"] = {**function, "arguments": as_text(function.get("arguments"))}
    return told


# Anthropic Messages

_AT_THE_END = ("container", "stop_details")


def _messages(whole: bytes, body: Body) -> Iterator[bytes]:
    reply = fields_of(whole)
    counts = over({"input_tokens": 0, "output_tokens": 0}, fields_of(reply.get("usage")))
    message = {
        "id": with_default(reply, "id", f"msg_{secrets.token_hex(12)}"),
        "type": "message",
        "role": "assistant",
        "model": _model(reply, body),
        **_without(reply, "id", "type", "role", "model", "context_management", *_AT_THE_END),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**counts, "output_tokens": 0},
    }
    yield _event("message_start", message=message)
    blocks = [*filter(None, map(fields_of, _blocks(reply.get("content"))))]
    for index, block in enumerate(blocks):
        begun, deltas = _block(block)
        yield _event("content_block_start", index=index, content_block=begun)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    calls = any(text_of(block.get("type")) == "tool_use" for block in blocks)
    delta = {
        "stop_reason": with_default(reply, "stop_reason", "tool_use" if calls else "end_turn"),
        "stop_sequence": reply.get("stop_sequence", NULL),
        **{name: reply[name] for name in _AT_THE_END if name in reply},
    }
    managed = {name: reply[name] for name in ("context_management",) if name in reply}
    yield _event("message_delta", delta=delta, usage=counts, **managed)
    yield _event("message_stop")


def _event(kind: str, **fields: Any) -> bytes:
    return encode(dump({"type": kind, **fields}), kind)


def _blocks(content: msgspec.Raw | None) -> list[msgspec.Raw]:
    if content is not None and is_text(content):
        return [msgspec.Raw(dump({"type": "text", "text": content}))]
    return elements(content)


def _block(block: Fields) -> tuple[Fields, list[Fields]]:
    """A block as it begins, and what is added to it."""
    kind = text_of(block.get("type"))
    if kind == "text":
        cited = elements(block.get("citations"))
        begun = {**block, "text": "", **({"citations": []} if cited else {})}
        cites: list[Fields] = [{"type": "citations_delta", "citation": each} for each in cited]
        return begun, [*_added("text_delta", "text", block.get("text")), *cites]
    if kind == "thinking":
        thought = _added("thinking_delta", "thinking", block.get("thinking"))
        signed = _added("signature_delta", "signature", block.get("signature"))
        return {**block, "thinking": "", "signature": ""}, [*thought, *signed]
    if kind.endswith("tool_use"):
        given = block.get("input")
        json = as_text(given) if is_said(given) else None
        return {**block, "input": {}}, _added("input_json_delta", "partial_json", json)
    return block, []


def _added(kind: str, name: str, value: msgspec.Raw | None) -> list[Fields]:
    return [{"type": kind, name: value}] if is_text(value) and is_said(value) else []


def _responses(whole: bytes, body: Body) -> Iterator[bytes]:
    reply = fields_of(whole)
    return responses_events(reply, text_of(_raw(_model(reply, body))))


def _raw(value: Any) -> msgspec.Raw:
    return value if isinstance(value, msgspec.Raw) else EMPTY


def _gemini(whole: bytes, body: Body) -> Iterator[bytes]:
    """A chunk of a stream has the form of a whole reply."""
    yield encode(whole)


_WRITERS: Mapping[str, Callable[[bytes, Body], Iterator[bytes]]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": _responses,
    "gemini": _gemini,
}
