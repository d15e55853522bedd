"""What only shows where the lane and the translation meet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krouter.dialects.base import Kind
from tests.adapters.lanes import FakeWire, Got, ask, call, own
from tests.validators import check_chat_stream

CHAT, MESSAGES = own(chat="http://up.test/v1"), own(messages="http://up.test")


def answered(dialect: str, reply: Any) -> Got:
    """A whole reply of a provider that speaks the other dialect."""
    to = CHAT if dialect == "messages" else MESSAGES
    return ask(call(dialect), to, wire=FakeWire(json.dumps(reply).encode()))


@pytest.mark.parametrize(
    ("message", "finish", "kind"),
    [
        ("said", "stop", Kind.GARBAGE),
        ({"content": "part"}, "insufficient_system_resource", Kind.ERROR),
        ({"content": "part"}, "error", Kind.ERROR),
        ({"content": None}, None, Kind.EMPTY),
        ({"content": None}, "length", Kind.EMPTY),
        ({"content": "x"}, "odd", Kind.ANSWER),
        (None, "content_filter", Kind.ANSWER),
    ],
)
def test_a_whole_completion_is_judged(message: Any, finish: Any, kind: Kind) -> None:
    reply = {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    assert answered("messages", reply).reading.kind == kind


def test_what_a_whole_reply_loses_is_named() -> None:
    choice = {"message": {"content": "a", "audio": {"id": "x"}}, "finish_reason": "stop"}
    assert answered("messages", {"choices": [choice]}).dropped == ("audio",)
    blocks = [{"type": "text", "text": "a", "citations": [{}]}]
    reply = {"type": "message", "content": blocks, "stop_reason": "end_turn"}
    assert answered("chat", reply).dropped == ("citations",)


def test_an_event_s_name_stands_for_a_type_it_lacks() -> None:
    events = [
        (b"message_start", {"message": {"id": "msg_1"}}),
        (b"content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "a"}}),
        (b"message_delta", {"delta": {"stop_reason": "end_turn"}}),
        (b"message_stop", {}),
    ]
    raw = b"".join(
        b"event: %s\ndata: %s\n\n" % (name, json.dumps(data).encode()) for name, data in events
    )
    wire = FakeWire(raw, kind="text/event-stream")
    heard = check_chat_stream(ask(call("chat", stream=True), MESSAGES, wire=wire).raw)
    assert (heard.text, heard.ending) == ("a", "complete")


def sent(goal: str, model: str, dialect: str = "chat", **fields: Any) -> tuple[Any, Got]:
    """The body that goes out to a provider of that kind, and the reply."""
    wire = FakeWire(json.dumps(REPLIES[goal]).encode())
    to = {"chat": CHAT, "messages": MESSAGES, "gemini": own(gemini="http://up.test/v1beta")}[goal]
    got = ask(call(dialect, **fields), to, model, wire=wire)
    return wire.body, got


REPLIES: dict[str, Any] = {
    "chat": {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]},
    "messages": {
        "type": "message",
        "content": [{"type": "text", "text": "a"}],
        "stop_reason": "end_turn",
    },
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    },
}


@pytest.mark.parametrize(
    ("model", "fields", "most"),
    [
        ("claude-3-haiku-20240307", {}, 4096),
        ("claude-3-5-haiku-20241022", {}, 8192),
        ("glm-5", {}, 8192),
        ("claude-opus-4-6", {}, 128000),
        ("glm-5", {"max_tokens": 77}, 77),
        ("glm-5", {"max_completion_tokens": 78}, 78),
    ],
)
def test_a_limit_that_the_model_can_reach(model: str, fields: dict[str, Any], most: int) -> None:
    assert sent("messages", model, **fields)[0]["max_tokens"] == most


@pytest.mark.parametrize(
    ("goal", "model", "named"),
    [
        ("messages", "glm-5", True),
        ("messages", "claude-opus-4-6", False),
        ("gemini", "gemini-2.5-pro", False),
        ("gemini", "gemini-2.0-flash", True),
    ],
)
def test_thinking_that_is_not_asked_for_is_named(goal: str, model: str, named: bool) -> None:
    _, got = sent(goal, model, reasoning_effort="high", max_tokens=9000)
    assert ("reasoning_effort" in got.dropped) is named
    assert "reasoning_effort" not in sent(goal, model, reasoning_effort="none")[1].dropped


def tool(parameters: Any) -> list[Any]:
    return [{"type": "function", "function": {"name": "f", "parameters": parameters}}]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize("depth", [2, 60, 150])
def test_a_schema_reaches_gemini_whole(depth: int) -> None:
    properties = {
        "c": {"type": "string", "enum": ["x"]},
        "e": {"enum": [1, 2], "type": "integer"},
        "i": {"type": "number", "exclusiveMinimum": 0},
        "g": {"type": "string", "format": "uri", "pattern": "^x"},
        "h": {"type": "object", "patternProperties": {"a": {"type": "string"}}},
        "n": nested(depth),
    }
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    for dialect, tools in (
        ("chat", tool(schema)),
        ("messages", [{"name": "f", "input_schema": schema}]),
    ):
        body, got = sent("gemini", "gemini-2.5-pro", dialect, tools=tools)
        (declared,) = body["tools"][0]["function_declarations"]
        assert declared == {"name": "f", "parametersJsonSchema": schema}
        assert got.dropped == ()


def test_two_results_of_one_call_are_one() -> None:
    function = {"name": "f", "arguments": "{}"}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]
    body, _ = sent("messages", "claude-opus-4-6", messages=messages, tools=tool({}))
    (result,) = body["messages"][-1]["content"]
    assert result["content"] == "1\n2"
    uses = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f"}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "1"},
                {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text"}]},
                {"type": "text", "text": "go on"},
            ],
        },
    ]
    body, _ = sent("chat", "m", "messages", messages=uses)
    assert [message["role"] for message in body["messages"]] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]


def test_a_turn_of_thinking_alone_is_named() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s=="}
    turns = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [thought]},
        {"role": "user", "content": "go on"},
    ]
    assert sent("chat", "m", "messages", messages=turns)[1].dropped == ("thinking",)
