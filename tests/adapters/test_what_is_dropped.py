"""What a request loses on its way to a provider of another dialect is named, and what is named is
not sent: every field of each dialect, over every pairing."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import pytest

from krouter.adapter import Call
from krouter.body import Body
from krouter.dialects import get
from tests.adapters.lanes import PARAMETERS, FakeWire, Got, ask, own, provider
from tests.adapters.test_lane_replies import STREAM, chunk, sse

TO = {
    "chat": (own(chat="http://h/v1"), "m"),
    "messages": (own(messages="http://h"), "claude-sonnet-4-5"),
    "gemini": (own(gemini="http://h"), "gemini-2.5-pro"),
    "new-gemini": (own(gemini="http://h"), "gem-x"),
    "responses": (own(responses="http://h"), "m"),
    "groq": (provider("groq", "http://h/v1"), "llama-3.3-70b-versatile"),
    "cohere": (provider("cohere", "http://h"), "command-a-03-2025"),
    "ollama": (provider("ollama_chat", "http://h"), "qwen3"),
    "bedrock": (provider("bedrock", "http://h"), "anthropic.claude-sonnet-4-5-20250929-v1:0"),
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
BUDGET = {"type": "enabled", "budget_tokens": 2000}
FUNCTION = {"name": "weather", "description": "now", "parameters": PARAMETERS}
OF_CHAT = [{"type": "function", "function": FUNCTION}]
FIELDS: dict[str, dict[str, Any]] = {
    "chat": {
        "n": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "max_tokens": 50,
        "max_completion_tokens": 50,
        "stop": ["x"],
        "seed": 3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "logprobs": True,
        "logit_bias": {"1": 1},
        "user": "u",
        "response_format": {"type": "json_object"},
        "reasoning_effort": "high",
        "thinking": BUDGET,
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "flex",
        "verbosity": "low",
        "prompt_cache_key": "k",
        "prediction": {"type": "content", "content": "x"},
        "safety_identifier": "s",
        "odd_field": 1,
    },
    "messages": {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "stop_sequences": ["x"],
        "metadata": {"user_id": "u"},
        "thinking": BUDGET,
        "output_config": {"effort": "low"},
        "output_format": {"type": "json_schema", "schema": SCHEMA},
        "service_tier": "standard_only",
        "context_management": {"edits": [{}]},
        "container": "c",
        "mcp_servers": [{"type": "url"}],
        "odd_field": 1,
    },
    "responses": {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 50,
        "user": "u",
        "top_logprobs": 2,
        "text": {"format": {"type": "json_object"}},
        "reasoning": {"effort": "low"},
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "flex",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "truncation": "auto",
        "max_tool_calls": 3,
        "include": ["message.output_text.logprobs"],
        "odd_field": 1,
    },
    "gemini": {
        "safetySettings": [{"category": "a"}],
        "cachedContent": "c",
        "labels": {"a": "b"},
        "oddField": 1,
    },
}
CONFIG: dict[str, Any] = {
    "candidateCount": 2,
    "temperature": 0.5,
    "topP": 0.9,
    "topK": 4,
    "maxOutputTokens": 50,
    "stopSequences": ["x"],
    "seed": 3,
    "presencePenalty": 0.5,
    "frequencyPenalty": 0.5,
    "responseLogprobs": True,
    "responseMimeType": "application/json",
    "responseSchema": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
    "thinkingConfig": {"thinkingBudget": 2000},
    "responseModalities": ["AUDIO"],
    "mediaResolution": "MEDIA_RESOLUTION_LOW",
}
FIELDS["gemini"] |= {f"generationConfig.{name}": value for name, value in CONFIG.items()}
WITH_TOOLS: dict[str, dict[str, dict[str, Any]]] = {
    "chat": {
        "tool_choice": {"tool_choice": "required"},
        "parallel_tool_calls": {"parallel_tool_calls": False},
        "response_format": {"response_format": {"type": "json_object"}},
    },
    "messages": {
        "tool_choice": {"tool_choice": {"type": "any"}},
    },
    "responses": {
        "tool_choice": {"tool_choice": "required"},
        "parallel_tool_calls": {"parallel_tool_calls": False},
    },
    "gemini": {"toolConfig": {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}},
}
TOOLS: dict[str, Any] = {
    "chat": OF_CHAT,
    "messages": [{"name": "weather", "description": "now", "input_schema": PARAMETERS}],
    "responses": [{"type": "function", **FUNCTION}],
    "gemini": [
        {
            "functionDeclarations": [
                {"name": "weather", "description": "now", "parametersJsonSchema": PARAMETERS}
            ]
        }
    ],
}
SAID: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "hi"}]},
    "messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 64},
    "responses": {"input": "hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}


def sent(caller: str, to: str, **fields: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """What is said to be dropped, and what goes out."""
    raw = json.dumps({**SAID[caller], "model": "m", **fields}).encode()
    host, model = TO[to]
    wire = FakeWire(b"{}")
    got = ask(Call(get(caller), Body.parse(raw), [], "m", False), host, model, wire=wire)
    return got.dropped, wire.body


@lru_cache
def bare(caller: str, to: str, tools: bool) -> dict[str, Any]:
    dropped, body = sent(caller, to, **({"tools": TOOLS[caller]} if tools else {}))
    assert dropped == ()
    return body


def given(name: str, value: Any) -> dict[str, Any]:
    outer, _, inner = name.rpartition(".")
    return {outer: {inner: value}} if outer else {name: value}


CASES = [
    pytest.param(caller, to, given(name, value), False, id=f"{caller}-{to}-{name}")
    for caller, fields in FIELDS.items()
    for name, value in fields.items()
    for to in TO
    if to != caller
] + [
    pytest.param(caller, to, fields, True, id=f"{caller}-{to}-tools-{name}")
    for caller, cases in WITH_TOOLS.items()
    for name, fields in cases.items()
    for to in TO
    if to != caller
]


@pytest.mark.parametrize(("caller", "to", "fields", "tools"), CASES)
def test_a_field_is_either_sent_or_named(
    caller: str, to: str, fields: dict[str, Any], tools: bool
) -> None:
    offered = {"tools": TOOLS[caller]} if tools else {}
    dropped, body = sent(caller, to, **offered, **fields)
    assert bool(dropped) is (body == bare(caller, to, tools)), (dropped, body)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("caller", ["messages", "responses", "gemini"])
def test_a_second_choice_that_nobody_can_be_told_is_named(caller: str, stream: bool) -> None:
    """It is had only where an entry's parameters ask for it."""
    raw = json.dumps({**SAID[caller], "model": "m", "stream": stream}).encode()
    second = {"index": 1, "delta": {"content": "b"}, "finish_reason": None}
    told = sse(chunk({"content": "a"}), {**chunk({}), "choices": [second]}, chunk({}, "stop"))
    choices = [
        {"index": at, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
        for at in (0, 1)
    ]
    whole = json.dumps({"id": "c", "object": "chat.completion", "choices": choices}).encode()
    wire = FakeWire(told, kind=STREAM) if stream else FakeWire(whole)
    call = Call(get(caller), Body.parse(raw), [], "m", stream)
    got: Got = ask(call, *TO["chat"], wire=wire, n=2)
    assert wire.body["n"] == 2
    assert got.dropped == ("choices",)


@pytest.mark.parametrize(
    ("caller", "system"), [("messages", "system"), ("responses", "instructions")]
)
@pytest.mark.parametrize("to", ["gemini", "new-gemini"])
def test_gemini_is_told_the_system_prompt_as_one(caller: str, system: str, to: str) -> None:
    dropped, body = sent(caller, to, **{system: "be good"})
    assert dropped == ()
    assert body["system_instruction"] == {"parts": [{"text": "be good"}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
