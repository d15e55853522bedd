"""What the strictest clients ask of a reply that is no stream, and of an error, in each dialect.

Sources: the API references of the four dialects; measured: pydantic-ai needs a chat reply's `id`,
Copilot the whole `output` of responses, opencode `usage`, Claude Code the type of an error.

An empty reply, which the last entry of a walk may give, need not say why it ended: krouter invents
no reason for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.responses_validator import RESPONSE, check_output, check_usage
from tests.validators import (
    FINISH_REASONS,
    STOP_REASONS,
    TOOL_ID,
    check_gemini_counts,
    check_gemini_stream,
)

CHAT_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


def check_chat_body(reply: dict[str, Any]) -> None:
    assert reply["id"]
    assert isinstance(reply["id"], str)
    assert reply["object"] == "chat.completion"
    assert type(reply["created"]) is int
    assert isinstance(reply["model"], str)
    (choice,) = reply["choices"]
    assert choice["index"] == 0
    message = choice["message"]
    said = message["content"] or message.get("tool_calls") or message.get("reasoning_content")
    assert choice["finish_reason"] in FINISH_REASONS or not (said or choice["finish_reason"])
    assert message["role"] == "assistant"
    assert isinstance(message["content"], str | None)
    calls = message.get("tool_calls") or []
    for call in calls:
        assert call["id"]
        assert call["type"] in ("function", "custom")
        if call["type"] == "function":
            assert call["function"]["name"]
            assert isinstance(call["function"]["arguments"], str)
    assert len({call["id"] for call in calls}) == len(calls), "a call is found by its id"
    if "usage" in reply:
        assert all(type(reply["usage"][name]) is int for name in CHAT_COUNTS)


def check_messages_body(reply: dict[str, Any]) -> None:
    assert reply["id"].startswith("msg_")
    assert (reply["type"], reply["role"]) == ("message", "assistant")
    assert isinstance(reply["model"], str)
    said = any(block.get("text", "said") for block in reply["content"])
    assert reply["stop_reason"] in STOP_REASONS or not (said or reply["stop_reason"])
    assert "stop_sequence" in reply
    assert all(type(reply["usage"][name]) is int for name in ("input_tokens", "output_tokens"))
    ids = []
    for block in reply["content"]:
        match block["type"]:
            case "text":
                assert isinstance(block["text"], str)
            case "thinking":
                assert isinstance(block["thinking"], str)
                assert isinstance(block["signature"], str)
            case "redacted_thinking":
                assert block["data"]
            case "tool_use":
                assert TOOL_ID.fullmatch(block["id"])
                assert block["name"]
                assert isinstance(block["input"], dict)
                ids.append(block["id"])
            case kind:
                raise AssertionError(f"unknown block {kind}")
    assert len(set(ids)) == len(ids), "a call is found by its id"


def check_responses_body(reply: dict[str, Any]) -> None:
    assert reply.keys() >= RESPONSE
    assert reply["id"].startswith("resp_")
    assert reply["object"] == "response"
    assert isinstance(reply["model"], str)
    assert reply["status"] in ("completed", "incomplete", "failed")
    assert bool(reply["error"]) is (reply["status"] == "failed")
    if reply["output"] or reply["status"] != "incomplete":
        assert bool(reply["incomplete_details"]) is (reply["status"] == "incomplete")
    check_output(reply["output"])
    if reply["status"] != "failed":
        check_usage(reply["usage"])


def check_gemini_body(reply: dict[str, Any] | list[Any]) -> None:
    """A list is a stream that was not asked for as events."""
    chunks = reply if isinstance(reply, list) else [reply]
    raw = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    heard = check_gemini_stream(raw)
    if isinstance(reply, list):
        assert heard.ending != "open", "a stream has an end"
    else:
        assert heard.ending == "complete" or not (heard.text or heard.thinking or heard.calls)
        check_gemini_counts(reply["usageMetadata"])


def check_embeddings_body(reply: dict[str, Any]) -> None:
    assert reply["object"] == "list"
    assert [datum["index"] for datum in reply["data"]] == list(range(len(reply["data"])))
    assert all(isinstance(datum["embedding"], list | str) for datum in reply["data"])
    assert isinstance(reply["model"], str)


def check_count_body(reply: dict[str, Any]) -> None:
    assert type(reply["input_tokens"]) is int


def check_openai_error(reply: dict[str, Any]) -> None:
    error = reply["error"]
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)


def check_messages_error(reply: dict[str, Any]) -> None:
    assert reply["type"] == "error"
    assert isinstance(reply["error"]["type"], str)
    assert isinstance(reply["error"]["message"], str)
    assert reply["error"]["message"]


def check_gemini_error(reply: dict[str, Any]) -> None:
    error = reply["error"]
    assert type(error["code"]) is int
    assert isinstance(error["status"], str)
    assert isinstance(error["message"], str)
    assert error["message"]


BODIES: Mapping[str, Callable[[Any], None]] = {
    "chat": check_chat_body,
    "messages": check_messages_body,
    "responses": check_responses_body,
    "gemini": check_gemini_body,
    "embeddings": check_embeddings_body,
    "count": check_count_body,
}
ERRORS: Mapping[str, Callable[[Any], None]] = {
    "chat": check_openai_error,
    "messages": check_messages_error,
    "responses": check_openai_error,
    "gemini": check_gemini_error,
    "embeddings": check_openai_error,
    "count": check_messages_error,
}
