"""What the strictest clients ask of a stream, in one place for each dialect.

Sources: the Anthropic and OpenAI API references; measured: Copilot needs `event:` lines, opencode
`message_start.usage`, `message_delta`, `message_stop` and no unknown event, Claude Code
`content_block_stop`; opencode, Continue and Zed need `tool_calls[].index`, pydantic-ai `id` and
`model`; Gemini CLI breaks on comments, the Google Gen AI SDK on fields of another type.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from krouter.sse import Event, Splitter

Ending = Literal["complete", "error", "open"]
TOOL_ID = re.compile(r"[A-Za-z0-9_-]+")
STOP_REASONS = {
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
}
FINISH_REASONS = {"stop", "length", "tool_calls", "content_filter"}
GEMINI_REASONS = {"STOP", "MAX_TOKENS", "SAFETY"}
DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


@dataclass
class Heard:
    """What a client makes of a stream."""

    ending: Ending = "open"
    text: str = ""
    thinking: str = ""
    signatures: list[str] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)


def events(raw: bytes) -> list[Event]:
    """All but comments, which say nothing to a client."""
    splitter = Splitter()
    found = splitter.feed(raw)
    assert not splitter.flush(), "the last event has no blank line after it"
    return [event for event in found if event.data is not None]


def check_messages_stream(raw: bytes) -> Heard:
    """Raises AssertionError for anything a strict client of messages would stumble over."""
    reader = _Messages()
    for event in events(raw):
        assert event.data is not None
        data = json.loads(event.data)
        assert event.name.decode() == data["type"], "the event line names the type"
        reader.feed(data)
    return reader.heard


class _Messages:
    def __init__(self) -> None:
        self.heard = Heard()
        self.started = False
        self.block: dict[str, Any] | None = None
        self.pieces: list[str] = []
        self.index = 0
        self.ids: set[str] = set()
        self.inputs: list[tuple[str, str]] = []

    def feed(self, data: dict[str, Any]) -> None:
        assert self.heard.ending == "open", "nothing follows the end"
        kind = data["type"]
        if kind == "ping":
            return
        if kind == "error":
            assert isinstance(data["error"]["type"], str)
            assert data["error"]["message"]
            self.heard.ending = "error"
            return
        assert self.started is (kind != "message_start"), "message_start comes first, and once"
        getattr(self, f"on_{kind}")(data)

    def on_message_start(self, data: dict[str, Any]) -> None:
        self.started = True
        message = data["message"]
        assert message["id"].startswith("msg_")
        assert (message["type"], message["role"], message["content"]) == (
            "message",
            "assistant",
            [],
        )
        assert isinstance(message["model"], str)
        assert message["stop_reason"] is None
        assert message["stop_sequence"] is None
        assert isinstance(message["usage"]["input_tokens"], int)
        assert isinstance(message["usage"]["output_tokens"], int)

    def on_content_block_start(self, data: dict[str, Any]) -> None:
        assert self.block is None, "blocks do not overlap"
        assert self.heard.reason is None
        assert data["index"] == self.index
        self.block, self.pieces = data["content_block"], []
        match self.block["type"]:
            case "text":
                assert self.block["text"] == ""
            case "thinking":
                assert self.block["thinking"] == ""
                assert isinstance(self.block["signature"], str)
            case "redacted_thinking":
                assert self.block["data"]
                self.heard.signatures.append(self.block["data"])
            case "tool_use":
                assert TOOL_ID.fullmatch(self.block["id"])
                assert self.block["id"] not in self.ids
                assert self.block["name"]
                assert self.block["input"] == {}
                self.ids.add(self.block["id"])
            case kind:
                raise AssertionError(f"unknown block {kind}")

    def on_content_block_delta(self, data: dict[str, Any]) -> None:
        assert self.block is not None
        assert data["index"] == self.index
        if data["delta"]["type"] == "signature_delta":
            assert self.block["type"] == "thinking"
            self.heard.signatures.append(data["delta"]["signature"])
            return
        kind, key = DELTAS[self.block["type"]]
        assert data["delta"]["type"] == kind
        assert data["delta"][key]
        self.pieces.append(data["delta"][key])

    def on_content_block_stop(self, data: dict[str, Any]) -> None:
        assert self.block is not None
        assert data["index"] == self.index
        self.index += 1
        whole = "".join(self.pieces)
        match self.block["type"]:
            case "text":
                self.heard.text += whole
            case "thinking":
                self.heard.thinking += whole
            case "tool_use":
                self.inputs.append((self.block["name"], whole))
        self.block = None

    def on_message_delta(self, data: dict[str, Any]) -> None:
        assert self.block is None
        assert data["delta"]["stop_reason"] in STOP_REASONS
        assert "stop_sequence" in data["delta"]
        counts = [count for name, count in data["usage"].items() if name.endswith("_tokens")]
        assert all(isinstance(count, int) and count >= 0 for count in counts)
        assert {"input_tokens", "output_tokens"} <= data["usage"].keys()
        self.heard.reason, self.heard.usage = data["delta"]["stop_reason"], data["usage"]

    def on_message_stop(self, data: dict[str, Any]) -> None:
        assert self.heard.reason is not None
        self.heard.ending = "complete"
        for name, text in self.inputs:
            self.heard.calls.append((name, _arguments(text, cut=self.heard.reason == "max_tokens")))


def check_chat_stream(raw: bytes) -> Heard:
    """Raises AssertionError for anything a strict client of chat would stumble over."""
    reader = _Chat()
    for event in events(raw):
        assert event.data is not None
        assert event.name == b"", "chat has no event lines"
        reader.feed(event.data)
    return reader.heard


class _Chat:
    def __init__(self) -> None:
        self.heard = Heard()
        self.same: Any = None
        self.calls: list[dict[str, str]] = []

    def feed(self, raw: bytes) -> None:
        assert self.heard.ending == "open", "nothing follows the end"
        if raw == b"[DONE]":
            assert self.heard.reason, "[DONE] comes after a finish reason"
            self.heard.ending = "complete"
            cut = self.heard.reason == "length"
            self.heard.calls = [
                (call["name"], _arguments(call["said"], cut=cut or _is_text(call)))
                for call in self.calls
            ]
            return
        chunk = json.loads(raw)
        if "error" in chunk:
            assert chunk["error"]["message"]
            self.heard.ending = "error"
            return
        self._chunk(chunk)

    def _chunk(self, chunk: dict[str, Any]) -> None:
        same = [chunk[key] for key in ("id", "object", "created", "model")]
        assert self.same in (None, same), "every chunk has the same head"
        assert isinstance(same[0], str)
        assert same[0]
        assert same[1] == "chat.completion.chunk"
        assert isinstance(same[2], int)
        first, self.same = self.same is None, same
        if not chunk["choices"]:
            assert self.heard.reason, "usage comes after the finish reason"
            self.heard.usage = chunk["usage"]
            return
        (choice,) = chunk["choices"]
        assert choice["index"] == 0
        assert (choice["delta"].get("role") == "assistant") is first
        assert self.heard.reason is None, "no content after the finish reason"
        self._delta(choice["delta"])
        if choice["finish_reason"] is not None:
            assert choice["finish_reason"] in FINISH_REASONS
            self.heard.reason = choice["finish_reason"]

    def _delta(self, delta: dict[str, Any]) -> None:
        self.heard.text += delta.get("content") or ""
        self.heard.thinking += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls") or ():
            kind = "custom" if "custom" in call else "function"
            called, key = call[kind], "input" if kind == "custom" else "arguments"
            if call["index"] == len(self.calls):
                assert call["id"]
                assert call["type"] == kind
                assert called["name"]
                self.calls.append({"kind": kind, "name": called["name"], "said": ""})
            else:
                assert call.keys() == {"index", kind}
                assert called.keys() == {key}
                assert self.calls[call["index"]]["kind"] == kind
            self.calls[call["index"]]["said"] += called[key]


def check_gemini_stream(raw: bytes) -> Heard:
    """Raises AssertionError for anything a strict client of Gemini's would stumble over."""
    lines = [line for line in raw.splitlines() if line]
    assert all(line.startswith(b"data: ") for line in lines), "no comments, and a space before data"
    reader = _Gemini()
    for event in events(raw):
        assert event.data is not None
        assert event.name == b"", "Gemini has no event lines"
        reader.feed(json.loads(event.data))
    return reader.heard


class _Gemini:
    def __init__(self) -> None:
        self.heard = Heard()
        self.same: Any = None

    def feed(self, chunk: dict[str, Any]) -> None:
        assert self.heard.ending == "open", "nothing follows the end"
        if "error" in chunk:
            error = chunk["error"]
            assert isinstance(error["code"], int)
            assert isinstance(error["status"], str)
            assert error["message"]
            self.heard.ending = "error"
            return
        same = [chunk["modelVersion"], chunk["responseId"]]
        assert self.same in (None, same), "every chunk has the same head"
        assert isinstance(same[0], str)
        assert same[1]
        self.same = same
        (candidate,) = chunk["candidates"]
        assert candidate["index"] == 0
        assert candidate["content"]["role"] == "model"
        for part in candidate["content"]["parts"]:
            self._part(part)
        if "finishReason" in candidate:
            assert candidate["finishReason"] in GEMINI_REASONS
            self.heard.reason, self.heard.ending = candidate["finishReason"], "complete"
            check_gemini_counts(chunk["usageMetadata"])
            self.heard.usage = chunk["usageMetadata"]

    def _part(self, part: dict[str, Any]) -> None:
        if signature := part.get("thoughtSignature"):
            assert base64.b64decode(signature, validate=True)
            self.heard.signatures.append(signature)
        if call := part.get("functionCall"):
            assert call["name"]
            assert isinstance(call["args"], dict)
            assert isinstance(call.get("id", ""), str)
            self.heard.calls.append((call["name"], call["args"]))
        elif part.get("thought"):
            self.heard.thinking += part["text"]
        else:
            self.heard.text += part["text"]


def check_gemini_counts(usage: dict[str, Any]) -> None:
    assert {"promptTokenCount", "candidatesTokenCount", "totalTokenCount"} <= usage.keys()
    assert all(isinstance(count, int) and count >= 0 for count in usage.values())


def _is_text(call: dict[str, str]) -> bool:
    """Cursor takes the patch itself where others take arguments."""
    return call["kind"] == "custom" or call["name"] == "ApplyPatch"


def _arguments(text: str, *, cut: bool) -> Any:
    if cut:
        return text
    value = json.loads(text or "{}")
    assert isinstance(value, dict)
    return value
