"""Gemini's generateContent: replies, stream events and errors as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import msgspec

from tests.upstream.content import SIGNATURE, Ask, Content, cut_text
from tests.upstream.script import Behaviour

STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
PATH = re.compile(r".*/models/(?P<model>[^/]+):(?P<verb>g|streamG)enerateContent")
Event = tuple[str | None, Any]


def model_of(path: str) -> str:
    """The model that a path names; empty for another endpoint."""
    found = PATH.match(path)
    return unquote(found["model"]) if found else ""


def asked(ask: Ask, target: str, body: Any) -> Ask:
    """Model, stream and tool stand in other places than elsewhere."""
    fields = body if isinstance(body, dict) else {}
    declared = [
        declaration
        for tool in fields.get("tools") or ()
        for name in ("function_declarations", "functionDeclarations")
        for declaration in tool.get(name, ())
    ]
    result = any("function_response" in part or "functionResponse" in part for part in last(fields))
    first = None if result or not declared else declared[0]
    schema = first and (first.get("parameters") or first.get("parametersJsonSchema") or {})
    # Without alt=sse a stream is a JSON array, which krouter never asks for.
    stream = ":streamGenerateContent" in target and "alt=sse" in target
    tool = first and (first["name"], schema)
    return replace(ask, model=model_of(target), stream=stream, tool=tool)


def last(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the last turn."""
    contents = body.get("contents") or {}
    turn = contents if isinstance(contents, dict) else contents[-1]
    parts = turn.get("parts") or []
    return parts if isinstance(parts, list) else [parts]


def error(status: int, message: str, behaviour: Behaviour, serial: int) -> dict[str, Any]:
    name = behaviour.type or STATUSES.get(status, "INTERNAL")
    return {"error": {"code": status, "message": message, "status": name}}


def error_event(payload: dict[str, Any]) -> Event:
    return None, payload


def reply(ask: Ask, content: Content, behaviour: Behaviour) -> dict[str, Any]:
    parts = nothing(behaviour) if behaviour.empty else list(pieces(content, 1))
    return frame(ask, content, behaviour, parts, finish(content, behaviour))


def events(ask: Ask, content: Content, behaviour: Behaviour) -> Iterator[Event]:
    for part in nothing(behaviour) if behaviour.empty else pieces(content, behaviour.chunks):
        yield None, frame(ask, content, behaviour, [part], None)
    yield None, frame(ask, content, behaviour, [], finish(content, behaviour))


def nothing(behaviour: Behaviour) -> list[dict[str, Any]]:
    return [{"text": ""}] if behaviour.empty == "text" else []


def finish(content: Content, behaviour: Behaviour) -> str | None:
    if "finish" in behaviour.no or behaviour.empty not in ("", "done"):
        return None
    return behaviour.finish or "STOP"


def pieces(content: Content, chunks: int) -> Iterator[dict[str, Any]]:
    if content.thinking:
        yield {"text": content.thinking, "thought": True}
    for text in cut_text(content.text or "", chunks):
        if text:
            yield {"text": text}
    if content.call:
        name, arguments = content.call
        call = {"name": name, "args": msgspec.json.decode(arguments)}
        yield {"functionCall": call, "thoughtSignature": SIGNATURE}


def frame(
    ask: Ask, content: Content, behaviour: Behaviour, parts: list[Any], reason: str | None
) -> dict[str, Any]:
    body: dict[str, Any] = {"modelVersion": ask.model, "responseId": f"resp{ask.serial:020d}"}
    if behaviour.empty not in ("missing", "list"):
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if behaviour.empty == "null":
            candidate["content"] = {"role": "model"}
        if reason:
            candidate["finishReason"] = reason
        body["candidates"] = [candidate]
    elif behaviour.empty == "list":
        body["candidates"] = []
    if "usage" not in behaviour.no:
        thoughts = content.tokens_out // 2 if content.thinking else 0
        body["usageMetadata"] = {
            "promptTokenCount": content.tokens_in,
            "candidatesTokenCount": content.tokens_out - thoughts,
            "totalTokenCount": content.tokens_in + content.tokens_out,
        }
        if thoughts:
            body["usageMetadata"]["thoughtsTokenCount"] = thoughts
    return body
