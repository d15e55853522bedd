"""A caller of each dialect runs a tool and is told what only that knew, when the first entry fails
in whichever way: through providers of its own dialect and of another, streamed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import anthropic
import openai
import pytest

from tests.harness import Krouter
from tests.upstream import ToolUser, Upstream

OTHER = {"chat": "messages", "messages": "chat", "responses": "chat", "gemini": "messages"}
ADDRESS = {"chat": "/v1", "messages": "", "responses": "/v1", "gemini": ""}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"door": {"type": "string"}}}
QUESTION = "What is the word of the front door?"

FAULTS = {
    "429": "status=429;retry-after=30",
    "529": "status=529",
    "reset": "reset",
    "error first": "error=0",
    "cut before any event": "end=0",
    "guarded, cut before content": "end=1",
    "guarded, empty": "empty=done",
}
"""How the first entry fails, by name."""

Tool = Callable[[str], str]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        for name, fault in FAULTS.items():
            upstream.script(model_of(name), [fault])
        upstream.script("good", [ToolUser("word_of", {"door": "front"})])
        yield upstream


def model_of(fault: str) -> str:
    """The model that fails so."""
    return fault.replace(" ", "-").replace(",", "")


def combo_of(fault: str, spoken: str) -> str:
    return f"{model_of(fault)}-{spoken}"


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    settings = "".join(
        f'[provider.{name}-{spoken}]\nspeaks = ["{spoken}"]\nbase_url = "{upstream.url}{base}"\n'
        for name in ("busy", "good")
        for spoken, base in ADDRESS.items()
    )
    combos = {
        combo_of(fault, spoken): {
            "models": [f"busy-{spoken}/{model_of(fault)}", f"good-{spoken}/good"],
            "streamGuard": "first" if fault.startswith("guarded") else "off",
        }
        for fault in FAULTS
        for spoken in ADDRESS
    }
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, combos=combos, settings=settings) as krouter:
        yield krouter


def chat(krouter: Krouter, combo: str, tool: Tool) -> str:
    offered: Any = {"type": "function", "function": {"name": "word_of", "parameters": SCHEMA}}
    turns: list[Any] = [{"role": "user", "content": QUESTION}]
    with openai.OpenAI(base_url=f"{krouter.url}/v1", api_key="none", max_retries=0) as client:
        for _ in range(2):
            with client.chat.completions.stream(
                model=combo, messages=turns, tools=[offered]
            ) as stream:
                said = stream.get_final_completion().choices[0].message
            turns.append(said)
            for call in said.tool_calls or ():
                told = tool(call.function.arguments)
                turns.append({"role": "tool", "tool_call_id": call.id, "content": told})
    return said.content or ""


def responses(krouter: Krouter, combo: str, tool: Tool) -> str:
    offered: Any = {"type": "function", "name": "word_of", "parameters": SCHEMA, "strict": False}
    turns: list[Any] = [{"role": "user", "content": QUESTION}]
    with openai.OpenAI(base_url=f"{krouter.url}/v1", api_key="none", max_retries=0) as client:
        for _ in range(2):
            with client.responses.stream(model=combo, input=turns, tools=[offered]) as stream:
                reply = stream.get_final_response()
            for item in reply.output:
                turns.append(item.to_dict())
                if item.type == "function_call":
                    told = {"call_id": item.call_id, "output": tool(item.arguments)}
                    turns.append({"type": "function_call_output", **told})
    return reply.output_text


def messages(krouter: Krouter, combo: str, tool: Tool) -> str:
    offered: Any = {"name": "word_of", "input_schema": SCHEMA}
    turns: list[Any] = [{"role": "user", "content": QUESTION}]
    with anthropic.Anthropic(base_url=krouter.url, api_key="none", max_retries=0) as client:
        for _ in range(2):
            with client.messages.stream(
                model=combo, max_tokens=64, messages=turns, tools=[offered]
            ) as stream:
                said = stream.get_final_message()
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": tool(json.dumps(block.input)),
                }
                for block in said.content
                if block.type == "tool_use"
            ]
            turns += [
                {"role": "assistant", "content": said.content},
                {"role": "user", "content": results},
            ]
    return "".join(block.text for block in said.content if block.type == "text")


def gemini(krouter: Krouter, combo: str, tool: Tool) -> str:
    declared = {"name": "word_of", "parameters": SCHEMA}
    turns: list[Any] = [{"role": "user", "parts": [{"text": QUESTION}]}]
    for _ in range(2):
        reply = krouter.gemini(
            combo, True, contents=turns, tools=[{"functionDeclarations": [declared]}]
        )
        assert reply.status_code == 200, reply.text
        chunks = [json.loads(line[6:]) for line in reply.text.splitlines() if line]
        parts = [part for one in chunks for part in one["candidates"][0]["content"]["parts"]]
        turns.append({"role": "model", "parts": parts})
        answers = [
            {
                "name": part["functionCall"]["name"],
                "response": {"output": tool(json.dumps(part["functionCall"]["args"]))},
            }
            for part in parts
            if "functionCall" in part
        ]
        turns.append({"role": "user", "parts": [{"functionResponse": each} for each in answers]})
    return "".join(part.get("text", "") for part in parts)


CALLERS = {"chat": chat, "messages": messages, "responses": responses, "gemini": gemini}


NOT_THERE = ("gemini", "native", "guarded, cut before content")
"""Gemini's first event holds content already."""
CASES = [each for each in product(CALLERS, ("native", "translated"), FAULTS) if each != NOT_THERE]


@pytest.mark.parametrize(("dialect", "lane", "fault"), CASES)
def test_a_caller_is_told_what_only_its_tool_knows(
    served: Krouter, upstream: Upstream, dialect: str, lane: str, fault: str
) -> None:
    """Each caller sends its two requests once, and the entry that fails is asked for the first."""
    served.forget()
    proof = secrets.token_hex(8)
    asked: list[str] = []

    def tool(arguments: str) -> str:
        asked.append(json.loads(arguments)["door"])
        return proof

    before = len(upstream.requests)
    combo = combo_of(fault, dialect if lane == "native" else OTHER[dialect])
    answer = CALLERS[dialect](served, combo, tool)
    assert answer == f"The tool said: {proof}"
    assert asked == ["front"]
    models = [request.model for request in upstream.requests[before:]]
    assert models[0] == model_of(fault)
    assert [model for model in models if model == "good"] == ["good"] * 2
