"""A whole response as its stream: each item is added, filled and done before the next."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from krouter.body import dump
from krouter.dialects.raw import (
    Fields,
    as_text,
    elements,
    fields_of,
    is_said,
    is_text,
    over,
    text_of,
    with_default,
)
from krouter.dialects.responses_stream import blank_response
from krouter.sse import encode

_ENDS = ("completed", "incomplete")
_ZERO: Fields = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}

# Of each kind of part: the name of its events and under which name its text stands.
_PARTS: Mapping[str, tuple[str, str]] = {
    "output_text": ("response.output_text", "text"),
    "refusal": ("response.refusal", "refusal"),
    "reasoning_text": ("response.reasoning_text", "text"),
    "summary_text": ("response.reasoning_summary_text", "text"),
}
# Of each kind of call: the name of its events, under which name stands what it is called with, and
# how the id begins.
_CALLS: Mapping[str, tuple[str, str, str]] = {
    "function_call": ("response.function_call_arguments", "arguments", "fc_"),
    "custom_tool_call": ("response.custom_tool_call_input", "input", "ctc_"),
}
_IDS = {"message": "msg_", "reasoning": "rs_"}
_ONLY_WHOLE = ("output_text", "completed_at")


def responses_events(reply: Fields, model: str) -> Iterator[bytes]:
    """The events of a response; `model` names it if it does not."""
    items = [_item(raw) for raw in elements(reply.get("output")) if fields_of(raw)]
    cut = is_said(reply.get("incomplete_details"))
    status = text_of(reply.get("status"))
    whole = {
        **over(blank_response(model), reply),
        "status": status if status in _ENDS else _ENDS[cut],
        "output": items,
        "usage": over(_ZERO, fields_of(reply.get("usage"))),
    }
    begun = {name: value for name, value in whole.items() if name not in _ONLY_WHOLE}
    begun |= {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    for number, (kind, fields) in enumerate(_events(begun, items, whole)):
        yield encode(dump({"type": kind, **fields, "sequence_number": number}), kind)


_Event = tuple[str, Fields]


def _events(begun: Fields, items: list[Fields], whole: Fields) -> Iterator[_Event]:
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(items):
        at = {"output_index": index}
        added, events = _streamed(item)
        yield "response.output_item.added", {**at, "item": added}
        for kind, fields in events:
            yield kind, {"item_id": item["id"], **at, **fields}
        yield "response.output_item.done", {**at, "item": item}
    yield f"response.{whole['status']}", {"response": whole}


def _item(raw: msgspec.Raw) -> Fields:
    """An item with all that clients ask of one that is done."""
    item = fields_of(raw)
    kind = text_of(item.get("type"))
    prefix = _CALLS[kind][2] if kind in _CALLS else _IDS.get(kind, f"{kind or 'item'}_")
    item["id"] = with_default(item, "id", f"{prefix}{secrets.token_hex(24)}")
    if kind == "reasoning":
        item["summary"] = [_part(each) for each in elements(item.get("summary"))]
        if "content" in item:
            item["content"] = [_part(each) for each in elements(item["content"])]
    if kind == "message" or kind in _CALLS:
        item["status"] = with_default(item, "status", "completed")
    if kind == "message":
        item["role"] = with_default(item, "role", "assistant")
        item["content"] = [_part(each) for each in _content(item.get("content"))]
    if kind in _CALLS:
        item[_CALLS[kind][1]] = as_text(item.get(_CALLS[kind][1]))
        item["call_id"] = with_default(item, "call_id", f"call_{secrets.token_hex(12)}")
    return item


def _content(content: msgspec.Raw | None) -> list[msgspec.Raw]:
    if content is not None and is_text(content):
        return [msgspec.Raw(dump({"type": "output_text", "text": content}))]
    return elements(content)


def _part(raw: msgspec.Raw) -> Fields | msgspec.Raw:
    part = fields_of(raw)
    kind = text_of(part.get("type"))
    if kind not in _PARTS:
        return raw
    key = _PARTS[kind][1]
    part[key] = as_text(part.get(key))
    if kind == "output_text":
        part.setdefault("annotations", [])
    return part


def _streamed(item: Fields) -> tuple[Fields, Iterator[_Event]]:
    """An item as it is added, and the events that fill it."""
    begun = {**item, "status": "in_progress"} if "status" in item else item
    kind = text_of(item.get("type"))
    if kind in _CALLS:
        name, key, _ = _CALLS[kind]
        told = {"name": item["name"]} if kind == "function_call" and "name" in item else {}
        return {**begun, key: ""}, _text(name, key, item[key], {}, told)
    if kind == "message":
        return {**begun, "content": []}, _filled(item["content"])
    if kind == "reasoning":
        begun = {name: value for name, value in begun.items() if name != "encrypted_content"}
        emptied: Fields = {name: [] for name in ("summary", "content") if name in item}
        return {**begun, **emptied}, _thought(item)
    return begun, iter(())


def _thought(item: Fields) -> Iterator[_Event]:
    for index, part in enumerate(item["summary"]):
        where = {"summary_index": index}
        yield "response.reasoning_summary_part.added", {**where, "part": _emptied(part)}
        yield from _said(part, where)
        yield "response.reasoning_summary_part.done", {**where, "part": part}
    yield from _filled(item.get("content", []))


def _filled(content: list[Any]) -> Iterator[_Event]:
    for index, part in enumerate(content):
        where = {"content_index": index}
        yield "response.content_part.added", {**where, "part": _emptied(part)}
        yield from _said(part, where)
        yield "response.content_part.done", {**where, "part": part}


def _kind(part: Any) -> str:
    return text_of(part["type"]) if isinstance(part, dict) else ""


def _emptied(part: Any) -> Any:
    """A part as it begins."""
    kind = _kind(part)
    if kind not in _PARTS:
        return part
    cited: Fields = {name: [] for name in ("annotations", "logprobs") if name in part}
    return {**part, _PARTS[kind][1]: "", **cited}


def _said(part: Any, where: Fields) -> Iterator[_Event]:
    kind = _kind(part)
    if kind not in _PARTS:
        return
    name, key = _PARTS[kind]
    *said, done = _text(name, key, part[key], where, {})
    if kind == "output_text":
        said = [(delta, {**fields, "logprobs": []}) for delta, fields in said]
        done = done[0], {**done[1], "logprobs": part.get("logprobs", [])}
    yield from said
    for index, annotation in enumerate(elements(part.get("annotations"))):
        fields = {**where, "annotation_index": index, "annotation": annotation}
        yield "response.output_text.annotation.added", fields
    yield done


def _text(name: str, key: str, text: msgspec.Raw, where: Fields, more: Fields) -> Iterator[_Event]:
    if is_said(text):
        yield f"{name}.delta", {**where, "delta": text}
    yield f"{name}.done", {**where, **more, key: text}
