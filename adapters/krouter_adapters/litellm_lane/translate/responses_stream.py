"""Responses events in, chat chunks out; whole responses as chat completions.

Sources: the OpenAI API reference, "Responses streaming" and "Streaming".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from krouter.dialects.responses_stream import is_said
from krouter_adapters.litellm_lane.translate.responses_shapes import (
    reasoning_text,
    usage_from_responses,
)
from krouter_adapters.litellm_lane.translate.sealed import remember_reasoning, seal
from krouter_adapters.litellm_lane.translate.shapes import (
    CUT_CALL,
    NAMELESS,
    Json,
    arguments_text,
    as_dict,
    as_dicts,
    as_index,
    as_text,
    beside_calls,
    broken,
    new_id,
    prefixed_id,
    quoted,
    to_json,
)

_APART = "\n\n"
_ENDS = {"max_output_tokens": "length", "content_filter": "content_filter"}
_KINDS = ("message", "reasoning", "function_call", "custom_tool_call")
_ARGUMENTS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_LAST = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class _Item:
    """One item of the output, as far as it has come."""

    __slots__ = ("call_id", "done", "kind", "number", "part", "said")

    def __init__(self, kind: str, number: int = -1) -> None:
        self.kind = kind
        self.number = number
        self.call_id = ""
        self.said: list[str] = []
        self.part: Any = None
        self.done = False

    def may_be(self, whole: Json) -> bool:
        """Whether nothing speaks against its being this one of the whole output."""
        call_id = as_text(whole.get("call_id"))
        same_call = not call_id or not self.call_id or call_id == self.call_id
        return same_call and self.kind == whole.get("type")


class ResponsesToChat:
    """Fed the events of one stream of responses, it gives the chunks of the same reply as chat.

    `maker` signs the reasoning; `signed`: it goes to a caller that keeps it. `lost` is what of the
    reply chat has no place for. What a host sends in no pieces is told from the whole item.
    """

    def __init__(self, maker: str, *, signed: bool) -> None:
        self.lost: set[str] = set()
        self.closed = False
        self._maker = maker
        self._signed = signed
        self._head: Json = {}
        self._lead = b""
        self._items: dict[int, _Item] = {}
        self._by_id: dict[str, int] = {}
        self._calls: list[Json] = []
        self._sealed: list[Json] = []
        self._told_text = self._told_thought = False

    def feed(self, event: Json) -> Iterator[Json]:
        """Chunks, or an object with `error`. After the last one `closed` is set."""
        kind = event.get("type")
        if self.closed or not isinstance(kind, str):
            return
        item = self._items.get(as_index(event.get("output_index")) or 0)
        if item is not None and item.done and kind.endswith(".delta"):
            return  # the whole item has been told
        if kind == "response.output_text.delta":
            yield from self._text(item, event, "content")
        elif kind in _THOUGHTS:
            yield from self._text(item, event, "reasoning_content")
        elif kind in _ARGUMENTS:
            yield from self._arguments(item, event.get("delta"))
        elif kind == "response.refusal.delta":
            yield from self._text(item, event, "refusal")
        elif kind == "response.output_item.added":
            yield from self._added(event)
        elif kind == "response.output_item.done":
            yield from self._done(as_index(event.get("output_index")) or 0, event.get("item"))
        elif kind in _LAST:
            yield from self._ended(as_dict(event.get("response")), kind)
        elif kind == "error":
            yield self._failed(as_dict(event.get("error")) or event)
        elif kind == "response.created":
            yield from self._begun(as_dict(event.get("response")))

    def plain(self, event: Json) -> str:
        """The text of an event that does no more than go on with the text before; else empty."""
        if self.closed or event.get("type") != "response.output_text.delta":
            return ""
        item = self._items.get(as_index(event.get("output_index")) or 0)
        return as_text(event.get("delta")) if item is not None and item.said else ""

    def told(self, piece: str) -> bytes:
        """Such a text as the chunk that `feed` would give."""
        if not self._lead:
            head = to_json(self._head).encode()[:-1]
            self._lead = b"data: " + head + b',"choices":[{"index":0,"delta":{"content":'
        return self._lead + quoted(piece) + b'},"logprobs":null,"finish_reason":null}]}\n\n'

    def _begun(self, response: Json) -> Iterator[Json]:
        if self._head:
            return
        self._head = {
            "id": prefixed_id(response.get("id"), "chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": as_text(response.get("model")),
        }
        yield self._chunk({"role": "assistant", "content": ""})

    def _chunk(self, delta: Json, finish: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._head, "choices": [choice]}

    def _failed(self, error: Json) -> Json:
        self.closed = True
        return {"error": _told_error(error)}

    def _text(self, item: _Item | None, event: Json, field: str) -> Iterator[Json]:
        text = event.get("delta")
        if type(text) is not str or not text:
            return
        if not self._head:
            yield from self._begun({})
        if item is None:
            item = self._items[as_index(event.get("output_index")) or 0] = _Item(
                "reasoning" if field == "reasoning_content" else "message"
            )
            self._name(as_index(event.get("output_index")) or 0, event.get("item_id"))
        yield self._chunk({field: self._apart(item, event, field) + text})
        item.said.append(text)

    def _apart(self, item: _Item, event: Json, field: str) -> str:
        """What stands between two items of text, or two parts of one."""
        part = event.get("summary_index", event.get("content_index"))
        is_new = not item.said or (part != item.part and field == "reasoning_content")
        item.part = part
        if not is_new:
            return ""
        if field == "reasoning_content":
            before, self._told_thought = self._told_thought, True
        else:
            before, self._told_text = self._told_text, True
        return _APART if before else ""

    def _added(self, event: Json) -> Iterator[Json]:
        given, index = as_dict(event.get("item")), as_index(event.get("output_index")) or 0
        kind = as_text(given.get("type"))
        if kind not in _KINDS:
            self.lost.add(kind[:80] or "unknown")
        if index not in self._items:
            self._items[index] = _Item(kind)
        self._items[index].call_id = as_text(given.get("call_id"))
        self._name(index, given.get("id"), given.get("call_id"))
        if kind.endswith("_call") and kind in _KINDS:
            yield from self._call(self._items[index], given)

    def _name(self, index: int, *ids: Any) -> None:
        for each in filter(None, map(as_text, ids)):
            self._by_id.setdefault(each, index)

    def _call(self, item: _Item, given: Json) -> Iterator[Json]:
        name = as_text(given.get("name"))
        if item.number >= 0 or not name:
            return
        if not self._head:
            yield from self._begun({})
        item.number = len(self._calls)
        call: Json = {
            "id": as_text(given.get("call_id")) or as_text(given.get("id")) or new_id("call_"),
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        self._calls.append({**call, "function": dict(call["function"])})
        yield self._chunk({"tool_calls": [{"index": item.number, **call}]})

    def _arguments(self, item: _Item | None, piece: Any) -> Iterator[Json]:
        if item is None or item.number < 0 or type(piece) is not str or not piece:
            return
        if item.kind == "custom_tool_call":
            return  # chat wants JSON: the item as a whole is told
        item.said.append(piece)
        call = {"index": item.number, "function": {"arguments": piece}}
        yield self._chunk({"tool_calls": [call]})

    def _done(self, index: int, given: Any) -> Iterator[Json]:
        """The whole item. What of it did not come in pieces is told now."""
        whole = as_dict(given)
        kind = as_text(whole.get("type"))
        if index not in self._items:
            yield from self._added({"item": whole, "output_index": index})
        item = self._items[index]
        if item.done:
            return
        item.done = True
        self._name(index, whole.get("id"), whole.get("call_id"))
        if kind == "message":
            yield from self._message_done(item, whole)
        elif kind == "reasoning":
            yield from self._reasoning_done(item, whole)
        elif kind in _KINDS:
            yield from self._call_done(item, whole)

    def _message_done(self, item: _Item, whole: Json) -> Iterator[Json]:
        parts = as_dicts(whole.get("content"))
        if any(part.get("annotations") for part in parts):
            self.lost.add("annotations")
        if item.said:
            return
        for part in parts:
            for key, field in (("text", "content"), ("refusal", "refusal")):
                yield from self._text(item, {"delta": part.get(key), "output_index": 0}, field)

    def _reasoning_done(self, item: _Item, whole: Json) -> Iterator[Json]:
        if not item.said:
            yield from self._text(item, {"delta": reasoning_text(whole)}, "reasoning_content")
        if not as_text(whole.get("encrypted_content")):
            return
        kept = {key: whole.get(key) for key in ("type", "summary", "encrypted_content")}
        self._sealed.append(kept)
        if self._signed:
            if not self._head:
                yield from self._begun({})
            sealed = seal(self._maker, [kept])
            yield self._chunk({"thinking_blocks": [_block("".join(item.said), sealed)]})
            self._told_thought = False  # what follows is a block of its own

    def _call_done(self, item: _Item, whole: Json) -> Iterator[Json]:
        yield from self._call(item, whole)
        if item.number < 0:
            yield self._failed(NAMELESS)
            return
        if not item.said:
            piece = _given(whole)
            item.said.append(piece)
            call = {"index": item.number, "function": {"arguments": piece}}
            yield self._chunk({"tool_calls": [call]})
        self._calls[item.number]["function"]["arguments"] = "".join(item.said)

    def _places(self, output: list[Json]) -> list[int]:
        """Which item of the stream each one of the whole output is, a new number for a new one.

        A host may number the two differently, leaving reasoning out of the whole, or make ids for
        each event: an item is looked for by its ids, then in its place, then by its text.
        """
        free, found = dict(self._items), dict[int, int]()
        for looked_for in ("id", "place", "text"):
            by_text = looked_for == "text"
            texts = {"".join(item.said): at for at, item in free.items() if by_text and item.said}
            for at, whole in enumerate(output):
                if looked_for == "id":
                    ids = (as_text(whole.get(key)) for key in ("call_id", "id"))
                    likely = [self._by_id.get(each, -1) for each in ids]
                else:
                    likely = [at if looked_for == "place" else texts.get(_text_of(whole), -1)]
                fits = (i for i in likely if i in free and free[i].may_be(whole))
                if at not in found and (index := next(fits, None)) is not None:
                    found[at] = index
                    del free[index]
        new = max(self._items, default=-1) + 1
        return [found.get(at, new + at) for at in range(len(output))]

    def _ended(self, response: Json, kind: str) -> Iterator[Json]:
        status = as_text(response.get("status")) or kind.removeprefix("response.")
        if kind in ("response.failed", "response.cancelled") or status in ("failed", "cancelled"):
            yield self._failed(failure_of(response))
            return
        yield from self._begun(response)
        output = as_dicts(response.get("output"))
        for index, whole in zip(self._places(output), output, strict=True):
            yield from self._done(index, whole)
            if self.closed:
                return
        for item in self._items.values():
            if item.number >= 0 and not item.done:
                self._calls[item.number]["function"]["arguments"] = "".join(item.said)
        finish = finish_of(response, kind, self._calls)
        if finish == "tool_calls" and _any_broken(self._calls):
            yield self._failed(CUT_CALL)
            return
        remember_reasoning(self._maker, self._calls, self._sealed)
        self.closed = True
        yield self._chunk({}, finish)
        yield {**self._head, "choices": [], "usage": usage_from_responses(response.get("usage"))}


def _text_of(whole: Json) -> str:
    told = (part.get("text") or part.get("refusal") for part in as_dicts(whole.get("content")))
    is_thought = whole.get("type") == "reasoning"
    return reasoning_text(whole) if is_thought else "".join(map(as_text, told))


def _told_error(error: Json) -> Json:
    """An error that may be an event itself, whose type and number say nothing."""
    is_event = error.get("type") == "error"
    left_out = ("type", "sequence_number") if is_event else ()
    return {key: value for key, value in error.items() if key not in left_out}


def _given(whole: Json) -> str:
    """A call's arguments; the text of a custom tool as JSON."""
    if whole.get("type") == "custom_tool_call":
        return to_json({"input": as_text(whole.get("input"))})
    return arguments_text(whole.get("arguments")) or "{}"


def _any_broken(calls: list[Json]) -> bool:
    return any(broken(call["function"]["arguments"]) for call in calls)


def _block(text: str, sealed: str) -> Json:
    """Reasoning as a block of thinking; one that says nothing in the clear is a redacted one."""
    if not text:
        return {"type": "redacted_thinking", "data": sealed}
    return {"type": "thinking", "thinking": text, "signature": sealed}


def finish_of(response: Json, kind: str, calls: list[Json]) -> str:
    reason = as_dict(response.get("incomplete_details")).get("reason")
    if kind == "response.incomplete" or response.get("status") == "incomplete":
        return _ENDS.get(str(reason), "length")
    return beside_calls("stop", calls=calls)


def failure_of(response: Json) -> Json:
    """The error of a response that failed."""
    error = as_dict(response.get("error"))
    told = f"The provider ended the reply with {as_text(response.get('status')) or 'an error'}."
    return {**error, "message": as_text(error.get("message")) or told}


def responses_reply_to_chat(
    reply: Json, maker: str, *, signed: bool, lost: set[str] | None = None
) -> Json:
    """A response as a chat completion, or an error where it failed or is not done.

    It is read as a stream of one event, so that both ways say the same.
    """
    status = as_text(reply.get("status")) or "completed"
    if status in ("queued", "in_progress"):
        return {"error": failure_of({**reply, "error": None})}
    reader = ResponsesToChat(maker, signed=signed)
    message: Json = {"role": "assistant", "content": None, "refusal": None}
    head: Json = {}
    usage: Json = {}
    finish = None
    for chunk in reader.feed({"type": f"response.{status}", "response": reply}):
        if "error" in chunk:
            return chunk
        head = {key: chunk[key] for key in ("id", "created", "model")}
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            finish = choice["finish_reason"] or finish
            _add(message, choice["delta"])
    if not reply.get("status") and not any(map(is_said, as_dicts(reply.get("output")))):
        finish = None
    if lost is not None:
        lost |= reader.lost
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}


def _add(message: Json, delta: Mapping[str, Any]) -> None:
    """A delta put together with what came before it."""
    for key in ("content", "reasoning_content", "refusal"):
        if delta.get(key):
            message[key] = (message.get(key) or "") + delta[key]
    if blocks := delta.get("thinking_blocks"):
        message.setdefault("thinking_blocks", []).extend(blocks)
    for piece in delta.get("tool_calls", ()):
        calls = message.setdefault("tool_calls", [])
        if piece["index"] == len(calls):
            function = dict(piece["function"])
            calls.append({"id": piece["id"], "type": piece["type"], "function": function})
        else:
            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
