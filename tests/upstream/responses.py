"""OpenAI Responses: replies, stream events and errors as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from tests.upstream import chat
from tests.upstream.content import SIGNATURE, Ask, Content, cut_text
from tests.upstream.script import Behaviour

Event = tuple[str | None, Any]
Item = tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]
"""As it is added, the events of its own, and as it is done."""

CUTS = ("max_output_tokens", "content_filter")
"""Why a response is incomplete."""

error = chat.error


def error_event(payload: dict[str, Any]) -> Event:
    """As OpenAI really sends it, with the error nested; its number is left to chance."""
    return "error", {"type": "error", "sequence_number": 99, **payload}


def usage(content: Content) -> dict[str, Any]:
    return {
        "input_tokens": content.tokens_in,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": content.tokens_out,
        "output_tokens_details": {
            "reasoning_tokens": content.tokens_out // 2 if content.thinking else 0
        },
        "total_tokens": content.tokens_in + content.tokens_out,
    }


def status_of(behaviour: Behaviour) -> str | None:
    if "finish" in behaviour.no or behaviour.empty not in ("", "done"):
        return None
    return "incomplete" if behaviour.finish in CUTS else behaviour.finish or "completed"


def base(ask: Ask) -> dict[str, Any]:
    return {
        "id": f"resp_{ask.serial:024d}",
        "object": "response",
        "created_at": ask.created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": ask.model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None,
        "x_upstream": {"kept": True},
    }


def reply(ask: Ask, content: Content, behaviour: Behaviour) -> dict[str, Any]:
    status = status_of(behaviour)
    body = base(ask) | {"status": status}
    if status == "incomplete":
        cut = behaviour.finish if behaviour.finish in CUTS else CUTS[0]
        body["incomplete_details"] = {"reason": cut}
    if status == "failed":
        body["error"] = {"code": "server_error", "message": "The upstream says: failed."}
    body["output"] = [done for _, _, done in items(ask, content, behaviour)]
    if behaviour.empty == "null":
        body["output"] = None
    if behaviour.empty == "missing":
        del body["output"]
    if "usage" not in behaviour.no:
        body["usage"] = usage(content)
    return body


def items(ask: Ask, content: Content, behaviour: Behaviour) -> Iterator[Item]:
    if behaviour.empty:
        if behaviour.empty == "text":
            yield message(ask, "", behaviour)
        return
    if content.thinking:
        yield reasoning(ask, content.thinking)
    if content.text is not None:
        yield message(ask, content.text, behaviour)
    if content.call:
        yield call(ask, *content.call)


def reasoning(ask: Ask, thought: str) -> Item:
    item = {"id": f"rs_{ask.serial:024d}", "type": "reasoning", "summary": []}
    part = {"type": "summary_text", "text": ""}
    whole = part | {"text": thought}
    at = {"item_id": item["id"], "summary_index": 0}
    events = [
        {"type": "response.reasoning_summary_part.added", **at, "part": part},
        *(
            {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
            for piece in cut_text(thought, 2)
        ),
        {"type": "response.reasoning_summary_text.done", **at, "text": thought},
        {"type": "response.reasoning_summary_part.done", **at, "part": whole},
    ]
    return item, events, item | {"summary": [whole], "encrypted_content": SIGNATURE}


def message(ask: Ask, text: str, behaviour: Behaviour) -> Item:
    item = {"id": f"msg_{ask.serial:024d}", "type": "message", "role": "assistant", "content": []}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    whole = part | {"text": text}
    at = {"item_id": item["id"], "content_index": 0}
    events = [
        {"type": "response.content_part.added", **at, "part": part},
        *(
            {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
            for piece in cut_text(text, behaviour.chunks)
            if piece
        ),
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": whole},
    ]
    done = item | {"status": "completed", "content": [whole]}
    return item | {"status": "in_progress"}, events, done


def named(tools: Any, name: str) -> dict[str, str]:
    """A tool that stands in a namespace is called by both names: `name` may be SPACE.TOOL."""
    space, dot, inner = name.rpartition(".")
    for tool in tools if isinstance(tools, list) and dot else ():
        if tool.get("type") == "namespace" and tool.get("name") == space:
            return {"namespace": space, "name": inner}
    return {"name": name}


def call(ask: Ask, name: str, arguments: str) -> Item:
    item = {
        "id": f"fc_{ask.serial:024d}",
        "type": "function_call",
        "status": "in_progress",
        "call_id": f"call_{ask.serial:024d}",
        **named(ask.fields.get("tools"), name),
        "arguments": "",
    }
    name = item["name"]
    kind, at = "response.function_call_arguments", {"item_id": item["id"]}
    events = [
        *({"type": f"{kind}.delta", **at, "delta": piece} for piece in cut_text(arguments, 2)),
        {"type": f"{kind}.done", **at, "name": name, "arguments": arguments},
    ]
    return item, events, item | {"status": "completed", "arguments": arguments}


def events(ask: Ask, content: Content, behaviour: Behaviour) -> Iterator[Event]:
    numbers = count()
    for event in unnumbered(ask, content, behaviour):
        yield event["type"], {**event, "sequence_number": next(numbers)}


def unnumbered(ask: Ask, content: Content, behaviour: Behaviour) -> Iterable[dict[str, Any]]:
    yield {"type": "response.created", "response": base(ask)}
    yield {"type": "response.in_progress", "response": base(ask)}
    for index, (added, own, done) in enumerate(items(ask, content, behaviour)):
        at = {"output_index": index}
        yield {"type": "response.output_item.added", **at, "item": added}
        yield from ({**event, **at} for event in own)
        yield {"type": "response.output_item.done", **at, "item": done}
    if "done" in behaviour.no or "finish" in behaviour.no or behaviour.empty == "missing":
        return
    whole = reply(ask, content, behaviour)
    kind = whole["status"] or "completed"
    yield {"type": f"response.{kind}", "response": whole}
