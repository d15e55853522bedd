"""Requests of responses against golden files, and what must hold for any of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from krouter_adapters.litellm_lane.translate import (
    chat_to_responses,
    responses_to_chat,
    takes_of_responses,
)
from krouter_adapters.litellm_lane.translate.sealed import remember_reasoning, seal

from tests.adapters.translate.scripts import WORDS
from tests.dialects.streams import JSON, shaped

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> list[Any]:
    cases = json.loads((GOLDEN / f"{name}.json").read_text())
    return [pytest.param(case, id=key) for key, case in cases.items()]


@pytest.mark.parametrize("case", golden("responses_to_chat"))
def test_responses_to_chat(case: Any) -> None:
    given_body = copy.deepcopy(case["input"])
    got = responses_to_chat(given_body, frozenset(case["keep"]), "host")
    tools = {name: [t.kind, t.namespace, t.name] for name, t in got.told.tools.items()}
    assert got.translated.body == case["output"]
    assert (tools, got.translated.dropped) == (case["tools"], case["dropped"])
    assert given_body == case["input"], "the caller's own object is left as it is"


@pytest.mark.parametrize("case", golden("chat_to_responses"))
def test_chat_to_responses(case: Any) -> None:
    given_body = copy.deepcopy(case["input"])
    got = chat_to_responses(given_body, "host", summary=True)
    assert (got.body, got.dropped) == (case["output"], case["dropped"])
    assert given_body == case["input"], "the caller's own object is left as it is"


def test_thinking_goes_back_to_a_host_of_messages() -> None:
    case = json.loads((GOLDEN / "responses_to_chat.json").read_text())["codex"]
    keep = takes_of_responses("anthropic", "glm-5", "messages")
    (said,) = [
        message
        for message in responses_to_chat(case["input"], keep, "host").translated.body["messages"]
        if message["role"] == "assistant"
    ]
    assert said["thinking_blocks"] == [{"type": "thinking", "thinking": "hm", "signature": "s=="}]


def test_reasoning_sealed_for_responses_is_no_thinking_of_claudes() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": seal("host", [])}
    reasoning = {"type": "reasoning", "summary": [], "encrypted_content": seal("host", [block])}
    said = {"type": "message", "role": "assistant", "content": "hi"}
    got = responses_to_chat({"input": [reasoning, said]}, frozenset({"thinking"}), "host")
    assert got.translated.body["messages"] == [{"role": "assistant", "content": "hi"}]
    assert got.translated.dropped == ["thinking of another provider"]


def test_claude_elsewhere_thinks_in_no_loop_that_began_without() -> None:
    items = [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ]
    keep = takes_of_responses("bedrock", "anthropic.claude-opus-4-6", "other")
    body = {"input": ["q", *items], "reasoning": {"effort": "high"}}
    got = responses_to_chat(body, keep, "host").translated
    assert "reasoning_effort" not in got.body
    assert got.dropped == ["reasoning.effort"]


def test_reasoning_is_remembered_for_callers_that_cannot_keep_it() -> None:
    call = {"id": "c9", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    item = {"type": "reasoning", "summary": [], "encrypted_content": "E"}
    remember_reasoning("host", [call], [item])
    echoed = {**call, "function": {"name": "f", "arguments": '{ "a": 1 }'}}
    body = {"messages": [{"role": "assistant", "tool_calls": [echoed]}]}
    for maker, kept in (("host", True), ("another", False)):
        items = chat_to_responses(body, maker, summary=False).body["input"]
        assert (item in items) is kept


def test_a_model_that_does_not_reason_is_not_asked_for_reasoning() -> None:
    body = {"messages": [{"role": "user", "content": "q"}], "reasoning_effort": "low"}
    got = chat_to_responses(body, "host", summary=False, thinks=False).body
    assert "include" not in got
    assert got["reasoning"] == {"effort": "low"}


# What must hold for any conversation


@st.composite
def inputs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns with text, calls and results in any order an agent sends them."""
    out: list[dict[str, Any]] = []
    for turn in range(draw(st.integers(1, 3))):
        out.append({"role": "user", "content": draw(WORDS)})
        ids = [f"c{turn}_{n}" for n in range(draw(st.integers(0, 3)))]
        said = {"role": "assistant", "content": [{"type": "output_text", "text": draw(WORDS)}]}
        calls = [
            {
                "type": "function_call",
                "call_id": i,
                "name": "f",
                "arguments": json.dumps(draw(JSON)),
            }
            for i in ids
        ]
        out += draw(st.permutations([said, *calls]))
        if draw(st.booleans()):
            out.append({"role": "developer", "content": draw(WORDS)})
        results = [
            {"type": "function_call_output", "call_id": i, "output": draw(WORDS)} for i in ids
        ]
        out += draw(st.permutations(results))
    return out


@given(inputs())
def test_nothing_of_a_conversation_is_lost(items: list[dict[str, Any]]) -> None:
    got = responses_to_chat({"input": items}).translated
    messages = got.body["messages"]
    assert got.dropped == []
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    wanted = [item for item in items if item.get("type") == "function_call"]
    assert [(c["id"], c["function"]["arguments"]) for c in calls] == [
        (item["call_id"], item["arguments"]) for item in wanted
    ]
    results = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    outputs = [item for item in items if item.get("type") == "function_call_output"]
    assert results == {item["call_id"]: item["output"] for item in outputs}
    told = json.dumps(messages)
    for item in items:
        content = item.get("content", "")
        text = content if isinstance(content, str) else content[0]["text"]
        assert json.dumps(text)[1:-1] in told


@given(inputs())
def test_results_follow_their_calls(items: list[dict[str, Any]]) -> None:
    open_calls: set[str] = set()
    for message in responses_to_chat({"input": items}).translated.body["messages"]:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls
        open_calls = {call["id"] for call in message.get("tool_calls", ())}


@given(inputs())
def test_there_and_back_keeps_calls_and_results(items: list[dict[str, Any]]) -> None:
    chat = responses_to_chat({"input": items}).translated.body
    back = chat_to_responses(chat, "host", summary=False).body["input"]
    for kind in ("function_call", "function_call_output"):
        told = [item for item in back if item.get("type") == kind]
        wanted = [item for item in items if item.get("type") == kind]
        assert sorted(map(str, told)) == sorted(map(str, wanted))


KEYS = (
    "type role content input call_id name arguments output summary encrypted_content text action"
).split()


@given(st.lists(st.one_of(JSON, shaped(*KEYS))), JSON, JSON)
def test_a_body_of_any_form_never_raises(items: list[Any], tools: Any, choice: Any) -> None:
    body = {"input": items, "tools": tools, "tool_choice": choice, "text": choice, "include": tools}
    responses_to_chat(body, frozenset({"reasoning_content", "thinking"}), "host")
    chat_to_responses({"messages": items, "tools": tools, "tool_choice": choice}, "h", summary=True)
