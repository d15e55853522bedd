"""What the strictest clients of OpenAI responses ask of a stream.

Sources: the OpenAI API reference; OpenAI's SDKs, whose `stream()` wants `response.created` first,
one id throughout, every item and part begun before its deltas, and `logprobs` beside text;
measured: Codex needs `response.output_item.done` of one item at a time, opencode `usage`, Copilot
the whole `output`.
"""

from __future__ import annotations

import json
from typing import Any

from tests.validators import Heard, events

RESPONSE = frozenset(
    (
        *("id", "object", "created_at", "status", "error", "incomplete_details", "instructions"),
        *("metadata", "model", "output", "parallel_tool_calls", "temperature", "tool_choice"),
        *("tools", "top_p", "usage"),
    )
)
STATUS = {
    "response.created": ("in_progress", "queued"),
    "response.queued": ("queued",),
    "response.in_progress": ("in_progress",),
    "response.completed": ("completed",),
    "response.incomplete": ("incomplete",),
    "response.failed": ("failed",),
}
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
DONE_ITEMS = {"message": "content", "reasoning": "summary", **CALLS}


def check_responses_stream(raw: bytes) -> Heard:
    """Raises AssertionError for anything a strict client of responses would stumble over."""
    reader = _Responses()
    for event in events(raw):
        assert event.data is not None
        data = json.loads(event.data)
        assert event.name.decode() == data["type"], "the event line names the type"
        reader.feed(data)
    assert not reader.failing, "response.failed follows an error"
    return reader.heard


class _Responses:
    def __init__(self) -> None:
        self.heard = Heard()
        self.failing = False
        self.number = -1
        self.id = ""
        self.item: dict[str, Any] | None = None
        self.part: dict[str, Any] | None = None
        self.pieces: list[str] = []
        self.parts: list[str] = []
        self.thoughts: list[str] = []
        self.output: list[dict[str, Any]] = []

    def feed(self, data: dict[str, Any]) -> None:
        kind = data["type"]
        assert self.heard.ending == "open", "nothing follows the end"
        assert type(data["sequence_number"]) is int
        assert data["sequence_number"] > self.number, "events are numbered in their order"
        self.number = data["sequence_number"]
        assert bool(self.id) is (kind != "response.created"), "response.created is first, and once"
        assert not self.failing or kind == "response.failed"
        if kind == "error":
            assert data.get("message") or data["error"]["message"]
            self.failing = True
            return
        if kind in STATUS:
            self._response(kind, data["response"])
        getattr(self, "on_" + kind.removeprefix("response.").replace(".", "_"))(data)

    def _response(self, kind: str, response: dict[str, Any]) -> None:
        assert response.keys() >= RESPONSE
        assert response["status"] in STATUS[kind]
        assert response["object"] == "response"
        assert isinstance(response["model"], str)
        assert isinstance(response["output"], list)
        assert isinstance(response["tools"], list)
        assert self.id in ("", response["id"]), "it is one response"
        self.id = response["id"]
        assert self.id.startswith("resp_")

    def on_created(self, data: dict[str, Any]) -> None:
        assert data["response"]["output"] == []

    on_queued = on_in_progress = on_created

    def on_output_item_added(self, data: dict[str, Any]) -> None:
        assert self.item is None, "items do not overlap"
        assert data["output_index"] == len(self.output)
        self.item = item = data["item"]
        assert item["id"] not in [done["id"] for done in self.output]
        self.pieces, self.parts, self.thoughts = [], [], []
        kind = item["type"]
        if kind == "message":
            assert item["role"] == "assistant"
        if kind in CALLS:
            assert item["call_id"]
            assert item["name"]
        if kind in DONE_ITEMS:
            assert not item[DONE_ITEMS[kind]], "an item begins empty"
            assert kind == "reasoning" or item["status"] == "in_progress"

    def _open_item(self, data: dict[str, Any], *kinds: str) -> dict[str, Any]:
        assert self.item is not None, "an item is begun first"
        assert data["output_index"] == len(self.output)
        if kinds:
            assert data["item_id"] == self.item["id"]
            assert self.item["type"] in kinds
        return self.item

    def on_content_part_added(self, data: dict[str, Any]) -> None:
        self._open_item(data, "message", "reasoning")
        assert self.part is None, "parts do not overlap"
        assert data["content_index"] == len(self.parts)
        self.part, self.pieces = data["part"], []
        assert not self.part[self._key()]
        if self.part["type"] == "output_text":
            assert self.part["annotations"] == []

    def _key(self) -> str:
        assert self.part is not None, "a part is begun first"
        return "refusal" if self.part["type"] == "refusal" else "text"

    def _delta(self, data: dict[str, Any]) -> None:
        assert isinstance(data["delta"], str)
        assert data["delta"], "a delta says something"
        self.pieces.append(data["delta"])

    def on_output_text_delta(self, data: dict[str, Any]) -> None:
        self._open_item(data, "message")
        assert isinstance(data["logprobs"], list)
        assert self._key() == "text"
        assert data["content_index"] == len(self.parts)
        self._delta(data)

    def on_output_text_done(self, data: dict[str, Any]) -> None:
        self._open_item(data, "message")
        assert isinstance(data["logprobs"], list)
        assert data["text"] == "".join(self.pieces)

    def on_refusal_delta(self, data: dict[str, Any]) -> None:
        self._open_item(data, "message")
        assert self._key() == "refusal"
        self._delta(data)

    def on_refusal_done(self, data: dict[str, Any]) -> None:
        assert data["refusal"] == "".join(self.pieces)

    def on_content_part_done(self, data: dict[str, Any]) -> None:
        self._open_item(data, "message", "reasoning")
        assert data["content_index"] == len(self.parts)
        whole = "".join(self.pieces)
        assert data["part"][self._key()] == whole
        self.parts.append(whole)
        self.part = None

    def on_reasoning_summary_part_added(self, data: dict[str, Any]) -> None:
        self._open_item(data, "reasoning")
        assert data["summary_index"] == len(self.thoughts)
        assert data["part"] == {"type": "summary_text", "text": ""}
        self.part, self.pieces = data["part"], []

    def on_reasoning_summary_text_delta(self, data: dict[str, Any]) -> None:
        self._open_item(data, "reasoning")
        assert self._key() == "text"
        assert data["summary_index"] == len(self.thoughts)
        self._delta(data)

    def on_reasoning_summary_text_done(self, data: dict[str, Any]) -> None:
        assert data["text"] == "".join(self.pieces)

    def on_reasoning_summary_part_done(self, data: dict[str, Any]) -> None:
        whole = "".join(self.pieces)
        assert data["summary_index"] == len(self.thoughts)
        assert data["part"] == {"type": "summary_text", "text": whole}
        self.thoughts.append(whole)
        self.part = None

    def on_reasoning_text_delta(self, data: dict[str, Any]) -> None:
        self._open_item(data, "reasoning")
        assert type(data["content_index"]) is int
        self._delta(data)

    def on_reasoning_text_done(self, data: dict[str, Any]) -> None:
        assert data["text"] == "".join(self.pieces)

    def on_function_call_arguments_delta(self, data: dict[str, Any]) -> None:
        self._open_item(data, "function_call")
        self._delta(data)

    def on_function_call_arguments_done(self, data: dict[str, Any]) -> None:
        assert data["arguments"] == "".join(self.pieces)

    def on_custom_tool_call_input_delta(self, data: dict[str, Any]) -> None:
        self._open_item(data, "custom_tool_call")
        self._delta(data)

    def on_custom_tool_call_input_done(self, data: dict[str, Any]) -> None:
        assert data["input"] == "".join(self.pieces)

    def on_output_item_done(self, data: dict[str, Any]) -> None:
        begun, item = self._open_item(data), data["item"]
        assert self.part is None, "a part is done before its item"
        same = ("id", "type", "call_id", "name", "role")
        assert [begun.get(key) for key in same] == [item.get(key) for key in same]
        match item["type"]:
            case "message":
                assert item["status"] in ("completed", "incomplete")
                said = [part.get("text", part.get("refusal")) for part in item["content"]]
                assert said == self.parts
                self.heard.text += "".join(self.parts)
            case "reasoning":
                assert [part["text"] for part in item["summary"]] == self.thoughts
                self.heard.thinking += "".join(self.thoughts or self.pieces)
                if signature := item.get("encrypted_content"):
                    self.heard.signatures.append(signature)
            case kind if kind in CALLS:
                assert item["status"] in ("completed", "incomplete")
                assert item[CALLS[kind]] == "".join(self.pieces)
        self.output.append(item)
        self.item = None

    def on_completed(self, data: dict[str, Any]) -> None:
        response = data["response"]
        assert self.item is None, "every item is done before the end"
        assert response["output"] == self.output, "the last event holds the whole output"
        assert response["error"] is None
        check_usage(response["usage"])
        self.heard.usage = response["usage"]
        self.heard.ending, self.heard.reason = "complete", response["status"]
        for item in self.output:
            if item["type"] == "function_call":
                self.heard.calls.append((item["name"], self._arguments(item)))
            elif item["type"] == "custom_tool_call":
                self.heard.calls.append((item["name"], item["input"]))

    def _arguments(self, call: dict[str, Any]) -> Any:
        if self.heard.reason == "incomplete":
            return call["arguments"]
        return json.loads(call["arguments"])

    def on_incomplete(self, data: dict[str, Any]) -> None:
        assert data["response"]["incomplete_details"]["reason"]
        self.on_completed(data)
        self.heard.reason = data["response"]["incomplete_details"]["reason"]

    def on_failed(self, data: dict[str, Any]) -> None:
        error = data["response"]["error"]
        assert isinstance(error["code"], str)
        assert isinstance(error["message"], str)
        assert error["message"]
        self.heard.ending, self.failing = "error", False


def check_output(items: list[dict[str, Any]]) -> None:
    """The items of a whole response."""
    for item in items:
        match item["type"]:
            case "message":
                assert item["role"] == "assistant"
                assert item["status"] in ("completed", "incomplete")
                for part in item["content"]:
                    assert isinstance(part.get("text", part.get("refusal")), str)
                    assert part["type"] != "output_text" or isinstance(part["annotations"], list)
            case "reasoning":
                assert all(isinstance(part["text"], str) for part in item["summary"])
            case kind if kind in CALLS:
                assert item["call_id"]
                assert item["name"]
                assert isinstance(item[CALLS[kind]], str)
    ids = [item["id"] for item in items]
    assert len(set(ids)) == len(ids), "an item is found by its id"


def check_usage(usage: dict[str, Any]) -> None:
    counts = [
        *(usage[key] for key in ("input_tokens", "output_tokens", "total_tokens")),
        usage["input_tokens_details"]["cached_tokens"],
        usage["output_tokens_details"]["reasoning_tokens"],
    ]
    assert all(type(count) is int and count >= 0 for count in counts)
