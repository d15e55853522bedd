"""Custom tools of chat callers, at providers of functions only and at one that knows both."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krouter.dialects.base import Kind
from tests.adapters.lanes import FakeWire, Got, ask, call, own
from tests.adapters.test_lane_replies import (
    STREAM,
    chunk,
    message,
    message_events,
    parts_of_gemini,
    sse,
)

GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /.+/"}}
CUSTOM = {"name": "cu", "description": "Takes text.", "format": GRAMMAR}
TOOL = {"type": "custom", "custom": CUSTOM}
CHOICE = {"type": "custom", "custom": {"name": "cu"}}
SAID = {"id": "call_1", "type": "custom", "custom": {"name": "cu", "input": "old"}}
TURNS = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": None, "tool_calls": [SAID]},
    {"role": "tool", "tool_call_id": "call_1", "content": "done"},
]
TEXT = '*** a "quoted"\ntext'
ARGUMENTS = json.dumps({"input": TEXT})


def responses_reply(**item: Any) -> dict[str, Any]:
    called = {"id": "i", "call_id": "c", "name": "cu", "status": "completed", **item}
    head = {"id": "r", "object": "response", "created_at": 1, "model": "m"}
    return {**head, "status": "completed", "output": [called], "usage": None}


USE = {"type": "tool_use", "id": "toolu_1", "name": "cu"}
CALLED = responses_reply(type="custom_tool_call", input=TEXT)
PIECES = (ARGUMENTS[:9], ARGUMENTS[9:])
CHAT_CALL = {"index": 0, "id": "c", "type": "function"}
FIRST_PIECE = {**CHAT_CALL, "function": {"name": "cu", "arguments": PIECES[0]}}
CALL_CHUNKS = [
    piece | {"model": "m"}
    for piece in (
        chunk({"role": "assistant", "tool_calls": [FIRST_PIECE]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": PIECES[1]}}]}),
        chunk({}, "tool_calls"),
    )
]
CHAT_MESSAGE = {"tool_calls": [{"id": "c", "function": {"name": "cu", "arguments": ARGUMENTS}}]}
REPLIES: dict[str, tuple[Any, bytes]] = {
    "messages": (
        message({**USE, "input": {"input": TEXT}}, stop="tool_use"),
        sse(
            *message_events(
                *({"type": "input_json_delta", "partial_json": piece} for piece in PIECES),
                block={**USE, "input": {}},
                stop="tool_use",
            ),
            done=False,
        ),
    ),
    "gemini": (
        made := parts_of_gemini({"functionCall": {"name": "cu", "args": {"input": TEXT}}}),
        sse(made, done=False),
    ),
    "responses": (CALLED, sse({"type": "response.completed", "response": CALLED}, done=False)),
}


def sent(to: str, stream: bool, reply: bytes, **fields: Any) -> tuple[Any, Got]:
    wire = FakeWire(reply, kind=STREAM if stream else "application/json")
    fields = {"tools": [TOOL], **fields}
    got = ask(call("chat", stream, **fields), own(**{to: "http://up.test"}), wire=wire)
    return wire.body, got


@pytest.mark.parametrize("to", REPLIES)
def test_a_custom_call_comes_back_as_one(to: str) -> None:
    whole, events = REPLIES[to]
    _, got = sent(to, False, json.dumps(whole).encode())
    choice = got.json["choices"][0]
    (made,) = choice["message"]["tool_calls"]
    assert (made["type"], made["custom"]) == ("custom", {"name": "cu", "input": TEXT})
    assert "function" not in made
    assert choice["finish_reason"] == "tool_calls"
    _, got = sent(to, True, events)
    assert got.tracker.complete
    assert not got.tracker.error
    told = [c for e in got.events for x in e["choices"] for c in x["delta"].get("tool_calls", ())]
    assert (told[0]["type"], told[0]["custom"]["name"]) == ("custom", "cu")
    assert "".join(piece["custom"]["input"] for piece in told) == TEXT
    assert got.raw.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("to", ["messages", "gemini"])
def test_a_custom_tool_is_a_function_of_one_text(to: str) -> None:
    body, got = sent(to, False, json.dumps(REPLIES[to][0]).encode(), messages=TURNS)
    assert "tools.format" in got.dropped
    assert "tools.custom" not in got.dropped
    if to == "messages":
        (tool,) = body["tools"]
        schema = tool["input_schema"]
        assert body["messages"][1]["content"][0]["input"] == {"input": "old"}
    else:
        (tool,) = body["tools"][0]["function_declarations"]
        schema = tool["parametersJsonSchema"]
    assert tool["name"] == "cu"
    assert list(schema["properties"]) == schema["required"] == ["input"]
    assert "Takes text." in tool["description"]
    assert "start: /.+/" in tool["description"]


def test_a_provider_of_responses_knows_custom_tools() -> None:
    reply = json.dumps(CALLED).encode()
    body, got = sent("responses", False, reply, messages=TURNS, tool_choice=CHOICE)
    form = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    about = {"name": "cu", "description": "Takes text."}
    assert body["tools"] == [{"type": "custom", **about, "format": form}]
    assert body["tool_choice"] == {"type": "custom", "name": "cu"}
    _, called, output = body["input"]
    assert called == {"type": "custom_tool_call", "call_id": "call_1", "name": "cu", "input": "old"}
    assert output == {"type": "custom_tool_call_output", "call_id": "call_1", "output": "done"}
    assert got.dropped == ()


def test_a_choice_of_a_custom_tool_is_kept() -> None:
    reply = json.dumps(REPLIES["messages"][0]).encode()
    body, _ = sent("messages", False, reply, tool_choice=CHOICE)
    assert body["tool_choice"]["name"] == "cu"
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [CHOICE]}}
    other = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    body, _ = sent("messages", False, reply, tools=[TOOL, other], tool_choice=allowed)
    assert [tool["name"] for tool in body["tools"]] == ["cu"]


def test_functions_beside_a_custom_tool_stay_functions() -> None:
    other = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    uses = {**USE, "input": {"input": "a"}}, {**USE, "id": "toolu_2", "name": "f", "input": {}}
    reply = json.dumps(message(*uses, stop="tool_use")).encode()
    _, got = sent("messages", False, reply, tools=[TOOL, other])
    kinds = [made["type"] for made in got.json["choices"][0]["message"]["tool_calls"]]
    assert kinds == ["custom", "function"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_host_of_chat_is_given_a_function_and_gives_a_custom_call(stream: bool) -> None:
    whole = {"choices": [{"index": 0, "message": CHAT_MESSAGE, "finish_reason": "tool_calls"}]}
    body, got = sent("chat", stream, sse(*CALL_CHUNKS) if stream else json.dumps(whole).encode())
    assert body["tools"][0]["type"] == "function"
    assert json.dumps(TEXT).encode() in got.raw
    assert b'"function"' not in got.raw


def test_a_custom_call_is_told_as_it_comes() -> None:
    pieces = ['{"inp', 'ut": "one ', "tw\\", 'no"', "}"]
    first = {**CHAT_CALL, "function": {"name": "cu", "arguments": ""}}
    calls = [first, *({"index": 0, "function": {"arguments": piece}} for piece in pieces)]
    chunks = [chunk({"tool_calls": [each]}) | {"model": "m"} for each in calls]
    chunks[0]["choices"][0]["delta"]["role"] = "assistant"
    _, got = sent("chat", True, sse(*chunks, CALL_CHUNKS[2]))
    told = [c for e in got.events for x in e["choices"] for c in x["delta"].get("tool_calls", ())]
    assert [piece["custom"]["input"] for piece in told] == ["", "one ", "tw", "\no"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("given", ["raw text", "{}", '{"path": "a"}'])
def test_arguments_of_another_form_are_the_text(given: str, stream: bool) -> None:
    called = {"id": "c", "index": 0, "function": {"name": "cu", "arguments": given}}
    whole = {"choices": [{"index": 0, "message": {"tool_calls": [called]},
                          "finish_reason": "tool_calls"}]}  # fmt: skip
    first = chunk({"role": "assistant", "tool_calls": [called]}) | {"model": "m"}
    events = sse(first, CALL_CHUNKS[2])
    _, got = sent("chat", stream, events if stream else json.dumps(whole).encode())
    found = got.events if stream else [got.json]
    choices = [choice for each in found for choice in each["choices"]]
    messages = [choice.get("delta") or choice.get("message") or {} for choice in choices]
    (said,) = [made for message in messages for made in message.get("tool_calls", ())]
    assert said["custom"] == {"name": "cu", "input": given}


@pytest.mark.parametrize("stream", [False, True])
def test_a_custom_call_that_was_cut_is_an_error(stream: bool) -> None:
    cut = {"tool_calls": [{"id": "c", "function": {"name": "cu", "arguments": PIECES[0]}}]}
    whole = {"choices": [{"index": 0, "message": cut, "finish_reason": "tool_calls"}]}
    events = sse(CALL_CHUNKS[0], CALL_CHUNKS[2])
    _, got = sent("chat", stream, events if stream else json.dumps(whole).encode())
    assert got.tracker.error if stream else got.reading.kind == Kind.ERROR
