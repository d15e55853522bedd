"""Requests whose conversations krouter writes are what LiteLLM's classes make of all of it."""

from __future__ import annotations

import copy
import json
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from krouter_adapters.litellm_lane.build import Written
from krouter_adapters.litellm_lane.kept import Kept
from krouter_adapters.litellm_lane.lane import LIBRARY
from krouter_adapters.litellm_lane.library import Library
from krouter_adapters.litellm_lane.outline import Asked, Outlines, told
from krouter_adapters.litellm_lane.translate import prepare_chat
from krouter_adapters.litellm_lane.ways import Aim, load_ways

from tests.adapters.test_litellm_contract import MODELS
from tests.adapters.translate.test_requests import GOLDEN

CALL = {"id": "c_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
OTHER = {"id": "c_2", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}},
    },
}
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hello. "}
PARTS = {"role": "user", "content": [{"type": "text", "text": t} for t in ("One ", "two")]}
SAID = {"role": "assistant", "content": "Yes. "}
CALLED = {"role": "assistant", "content": "I look.", "tool_calls": [CALL, OTHER]}
SILENT = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c_1", "content": "1"}
RESULTS = [RESULT, {"role": "tool", "tool_call_id": "c_2", "content": ""}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
MARKED = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}

CONVERSATIONS: list[list[Any]] = [
    [USER],
    [SYSTEM, USER],
    [SYSTEM, USER, SAID, PARTS],
    [USER, SAID],
    [USER, SAID, SAID],
    [USER, USER, CALLED, *RESULTS, USER],
    [SYSTEM, USER, SILENT, RESULT],
    [SYSTEM, USER, CALLED, *RESULTS, SILENT, RESULT, SAID],
    # Of these a class makes something of its own.
    [SYSTEM, USER, SYSTEM],
    [SYSTEM, SYSTEM, USER],
    [USER, SYSTEM, USER],
    [{"role": "system", "content": ""}, USER],
    [{"role": "system", "content": "x-anthropic-billing-header: x"}, USER],
    [{"role": "user", "content": " "}],
    [USER, {"role": "assistant", "content": ""}, USER],
    [USER, {"role": "assistant", "content": " ", "tool_calls": [CALL]}, RESULT],
    [USER, {"role": "assistant", "content": "Hm", "tool_calls": [CALL, CALL]}, RESULT],
    [USER, {**CALLED, "tool_calls": [{**CALL, "id": "a:b"}]}, {**RESULT, "tool_call_id": "a:b"}],
    [USER, {**CALLED, "tool_calls": [{**CALL, "id": "srvtoolu_1"}]}],
    [{"role": "user", "content": [IMAGE, {"type": "text", "text": "What?"}]}],
    [{"role": "user", "content": [MARKED]}],
    [SAID, {**USER, "name": "ann"}],
    [RESULT, USER],
]
PARAMETERS: list[dict[str, Any]] = [
    {},
    {"max_tokens": 9, "temperature": 0.5, "stop": ["x"], "top_p": 0.9, "user": "u"},
    {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False},
    {"tools": [TOOL], "reasoning_effort": "low", "max_tokens": 9000},
    {"tools": [{**TOOL, "function": {"name": "a.b", "parameters": {"type": "object"}}}]},
    {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object", "properties": {}}},
        }
    },
]
NAMES = sorted(
    name for name, way in load_ways().items() if way.way == "classes" and way.body == "chat"
)


def written(plan: Written) -> tuple[Any, ...]:
    return plan.url, dict(plan.headers), json.dumps(plan.data), plan.names, plan.fake


def outcome(
    library: Library, goal: Aim, model: str, chat: dict[str, Any], *, outlined: bool
) -> tuple[Any, ...]:
    chat = copy.deepcopy(chat)
    try:
        if outlined:
            return written(library.plan(goal, model, chat, "a-key", stream=False))
        messages = chat.pop("messages")
        chat.pop("model", None)
        return written(library.write(goal, model, messages, chat, "a-key", stream=False))
    except Exception as error:
        return (type(error),)


def compared(library: Library, goal: Aim, model: str, chat: dict[str, Any]) -> None:
    prepared = prepare_chat(chat, goal.body).body
    by_class = outcome(library, goal, model, prepared, outlined=False)
    for _ in "again":
        assert outcome(library, goal, model, prepared, outlined=True) == by_class, chat


MESSAGES = Aim("anthropic", "https://host.example/v1/messages", "messages")
CHAT = Aim("custom_openai", "https://host.example/v1", "chat")


@pytest.mark.parametrize("name", NAMES)
def test_a_request_is_what_the_class_makes_of_it(name: str) -> None:
    library = LIBRARY.get()
    way, model = load_ways()[name], MODELS.get(name, "m")
    goal = Aim(name, way.base or "https://host.example/v1", way.body)
    said = CONVERSATIONS if library.passes_on(name, model) else CONVERSATIONS[:3]
    for messages, parameters in zip(said, cycle(PARAMETERS), strict=False):
        compared(library, goal, model, {"messages": messages, **parameters})


@pytest.mark.parametrize("parameters", PARAMETERS)
@pytest.mark.parametrize("goal", [MESSAGES, CHAT], ids=["messages", "chat"])
def test_any_conversation_goes_with_any_parameters(goal: Aim, parameters: dict[str, Any]) -> None:
    library = LIBRARY.get()
    for messages in CONVERSATIONS:
        compared(library, goal, "m", {"messages": messages, **parameters})


@given(st.lists(st.sampled_from([m for said in CONVERSATIONS for m in said]), min_size=1))
@settings(max_examples=60, deadline=None)
def test_turns_in_any_order_are_what_the_class_makes_of_them(messages: list[Any]) -> None:
    compared(LIBRARY.get(), MESSAGES, "m", {"messages": messages, "max_tokens": 9})


@pytest.mark.parametrize("model", ["m", "claude-sonnet-4-5", "claude-opus-5", "claude-3-haiku"])
@pytest.mark.parametrize("goal", [MESSAGES, CHAT], ids=["messages", "chat"])
def test_golden_requests_are_what_the_class_makes_of_them(goal: Aim, model: str) -> None:
    library = LIBRARY.get()
    cases = json.loads((GOLDEN / "prepare_chat_messages.json").read_text())
    for case in cases.values():
        compared(library, goal, model, case["input"])


def completed(outlines: Outlines, messages: list[Any], *, asked: str = "m") -> list[Any]:
    """The conversations that a class was asked to write for this one."""
    seen: list[Any] = []

    def write(said: list[Any]) -> Written:
        seen.append(said)
        return Written("u", {}, {"messages": said, "n": 1}, dict, list, {}, fake=False)

    conversation = told("chat", messages)
    assert conversation is not None
    key = Asked(CHAT, asked, "a-key", False, conversation.kind, b"{}")
    out = outlines.completed(key, conversation, write)
    assert out is not None
    assert out.data == {"messages": messages, "n": 1}
    return seen


def test_a_class_writes_once_for_all_conversations_of_a_kind() -> None:
    outlines = Outlines()
    stand_in = [{"role": "user", "content": "."}]
    assert completed(outlines, [USER]) == [stand_in]
    assert completed(outlines, [USER, SAID, USER]) == []
    assert completed(outlines, [USER], asked="another") == [stand_in]
    assert len(completed(outlines, [SYSTEM, USER, SILENT, RESULT])) == 1


def test_what_is_kept_is_bounded() -> None:
    kept: Kept[int, int] = Kept(8 << 10)
    made: list[int] = []

    def get(key: int, size: int) -> None:
        kept.get(key, size, lambda: made.append(key) or key)

    for key in (1, 1, 2, 1):
        get(key, 1000)
    assert made == [1, 2]
    get(3, 4000)
    get(3, 4000)
    assert made == [1, 2, 3, 3], "too large to be kept"
    for key in (4, 5, 6, 2):
        get(key, 1000)
    assert made[4:] == [4, 5, 6, 2], "the one used last longest ago has gone"
