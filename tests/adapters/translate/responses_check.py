"""What strict clients ask of a translated stream of responses."""

from __future__ import annotations

import json
from typing import Any

from tests.validators import Heard, events

_PARTS = {"content_part": "content_index", "reasoning_summary_part": "summary_index"}
_WHOLE = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_summary_text": "text",
    "function_call_arguments": "arguments",
    "custom_tool_call_input": "input",
}


class Responses:
    """Raises AssertionError for anything out of order; `heard` is what a client makes of it."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.response: dict[str, Any] = {}
        self.done: list[dict[str, Any]] = []
        self.item: dict[str, Any] | None = None
        self.part: dict[str, Any] | None = None
        self.pieces: list[str] = []
        self.number = 0

    def feed(self, name: str, data: dict[str, Any]) -> None:
        assert self.heard.ending in ("open", "error"), "nothing follows the end"
        assert name == data["type"], "the event line names the type"
        assert data["sequence_number"] == self.number
        self.number += 1
        kind = data["type"].removeprefix("response.")
        assert self.number > 1 or kind in ("created", "error"), "a response is created first"
        if kind == "error":
            assert data["error"]["message"]
            self.heard.ending = "error"
        elif kind in ("created", "in_progress"):
            assert self.number == (1 if kind == "created" else 2)
            assert data["response"]["status"] == "in_progress"
            assert data["response"]["output"] == []
        elif kind == "failed":
            assert self.heard.ending == "error"
            assert data["response"]["error"]["message"]
        elif kind in ("completed", "incomplete"):
            self._end(kind, data["response"])
        else:
            assert self.heard.ending == "open"
            self._within(kind, data)

    def _end(self, kind: str, response: dict[str, Any]) -> None:
        assert self.item is None
        assert self.heard.ending == "open"
        assert response["status"] == kind
        assert response["output"] == self.done
        assert bool(response["incomplete_details"]) is (kind == "incomplete")
        usage = response["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        self.heard.ending, self.heard.usage, self.heard.reason = "complete", usage, kind
        self.response = response

    def _within(self, kind: str, data: dict[str, Any]) -> None:
        assert data["output_index"] == len(self.done)
        what, _, step = kind.rpartition(".")
        if what == "output_item":
            self._item(step, data["item"])
            return
        assert self.item is not None
        assert data["item_id"] == self.item["id"]
        if what in _PARTS:
            assert data[_PARTS[what]] == 0
            assert (self.part is None) is (step == "added")
            self.part = data["part"] if step == "added" else None
        elif what == "output_text.annotation":
            assert self.part is not None
        elif step == "delta":
            assert data["delta"]
            self.pieces.append(data["delta"])
        else:
            assert step == "done"
            assert data[_WHOLE[what]] == "".join(self.pieces)

    def _item(self, step: str, item: dict[str, Any]) -> None:
        assert self.part is None
        if step == "added":
            assert self.item is None
            assert item["status"] == "in_progress"
            self.item, self.pieces = item, []
            return
        assert self.item is not None
        assert item["id"] == self.item["id"]
        self.item = None
        self.done.append(item)
        said = "".join(self.pieces)
        match item["type"]:
            case "message":
                (part,) = item["content"]
                assert part.get("text", part.get("refusal")) == said
                self.heard.text += said
            case "reasoning":
                assert "".join(part["text"] for part in item["summary"]) == said
                self.heard.thinking += said
                self.heard.signatures.append(item["encrypted_content"])
            case "function_call":
                assert item["call_id"]
                assert item["arguments"] == said
                whole = item["status"] == "completed"
                self.heard.calls.append((item["name"], json.loads(said) if whole else said))
            case "custom_tool_call":
                assert item["input"] == said
                self.heard.calls.append((item["name"], said))
            case kind:
                raise AssertionError(f"unknown item {kind}")


def heard_in(raw: bytes) -> Responses:
    reader = Responses()
    for event in events(raw):
        reader.feed(event.name.decode(), json.loads(event.data or b""))
    return reader
