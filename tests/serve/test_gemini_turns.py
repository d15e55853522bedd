"""Two turns with a tool, from a caller of Gemini's to providers of every dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.harness import Krouter
from tests.upstream import Upstream
from tests.validators import check_gemini_stream

SPOKEN = {"chat": "/v1", "messages": "", "gemini": "", "responses": ""}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    settings = "".join(
        f'[provider.{spoken}-one]\nspeaks = ["{spoken}"]\nkey = "env:KEY"\n'
        f'base_url = "{upstream.url}{base}"\n'
        for spoken, base in SPOKEN.items()
    )
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, settings=settings, env={"KEY": "the-key"}) as krouter:
        yield krouter


@pytest.fixture
def krouter(served: Krouter, upstream: Upstream) -> Krouter:
    upstream.clear()
    served.forget()
    return served


ARGUMENTS = {"city": "Zürich", "days": [1, {"a": None}]}
TOOLS = [
    {
        "functionDeclarations": [
            {
                "name": "weather.at",
                "description": "The weather.",
                "parameters": {
                    "type": "OBJECT",
                    "properties": {"city": {"type": "STRING"}},
                    "required": ["city"],
                },
            }
        ]
    }
]
ASKS = {"role": "user", "parts": [{"text": "How is the weather?"}]}
CONFIG = {"maxOutputTokens": 5000, "thinkingConfig": {"includeThoughts": True}}


def turn(krouter: Krouter, model: str, stream: bool, *contents: Any) -> dict[str, Any]:
    """What the model says to `contents`, as a content."""
    reply = krouter.gemini(
        model,
        stream,
        contents=list(contents),
        tools=TOOLS,
        systemInstruction={"parts": [{"text": "Be brief."}]},
        generationConfig=CONFIG,
    )
    assert reply.status_code == 200, reply.text
    raw = reply.content if stream else b"data: " + json.dumps(reply.json()).encode() + b"\n\n"
    assert check_gemini_stream(raw).ending == "complete"
    chunks = [json.loads(event[6:]) for event in raw.decode().split("\n\n") if event]
    parts = [part for one in chunks for part in one["candidates"][0]["content"]["parts"]]
    return {"role": "model", "parts": parts}


def called(content: dict[str, Any]) -> dict[str, Any]:
    (call,) = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
    return call  # type: ignore[no-any-return]


def answers(call: dict[str, Any]) -> dict[str, Any]:
    own_id = {"id": call["id"]} if "id" in call else {}
    response = {"name": call["name"], "response": {"output": "Sunny."}, **own_id}
    return {"role": "user", "parts": [{"functionResponse": response}]}


def has_answered(body: Any, spoken: str) -> bool:
    """Whether the provider has been told the tool's result beside its call."""
    if spoken == "chat":
        call, result = body["messages"][-2:]
        (made,) = call["tool_calls"]
        same = made["id"] == result["tool_call_id"] and result["content"] == "Sunny."
        return same and json.loads(made["function"]["arguments"]) == ARGUMENTS
    if spoken == "messages":
        use, (result,) = body["messages"][-2]["content"][-1], body["messages"][-1]["content"]
        same = use["id"] == result["tool_use_id"] and "Sunny." in json.dumps(result["content"])
        return same and use["input"] == ARGUMENTS
    if spoken == "responses":
        made, result = body["input"][-2:]
        same = made["call_id"] == result["call_id"] and result["output"] == "Sunny."
        return same and json.loads(made["arguments"]) == ARGUMENTS
    call, result = body["contents"][-2:]
    return called(call)["args"] == ARGUMENTS and "Sunny." in json.dumps(result)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("spoken", SPOKEN)
def test_a_tool_is_called_and_its_result_told(
    krouter: Krouter, upstream: Upstream, spoken: str, stream: bool
) -> None:
    upstream.script("m", [f"tool;thinking;args={quote(json.dumps(ARGUMENTS))}"])
    said = turn(krouter, f"{spoken}-one/m", stream, ASKS)
    call = called(said)
    assert (call["name"], call["args"]) == ("weather.at", ARGUMENTS)
    content = turn(krouter, f"{spoken}-one/m", stream, ASKS, said, answers(call))
    krouter.idle()
    assert not any("functionCall" in part for part in content["parts"])
    assert has_answered(upstream.requests[-1].json, spoken)
    assert krouter.last_route["outcome"] == "answered"


def test_claudes_thinking_comes_back_beside_the_call(krouter: Krouter, upstream: Upstream) -> None:
    upstream.script("m", ["tool;thinking", "tool", "tool"])
    said = turn(krouter, "messages-one/m", True, ASKS)
    signatures = [part["thoughtSignature"] for part in said["parts"] if "functionCall" in part]
    # Gemini CLI keeps no thoughts in its history, and the SDK writes signatures in its own way.
    kept = [part for part in said["parts"] if not part.get("thought")]
    kept[-2]["thoughtSignature"] = signatures[0].replace("+", "-").replace("/", "_")
    said = {**said, "parts": kept}
    turn(krouter, "messages-one/m", True, ASKS, said, answers(called(said)))
    blocks = upstream.requests[-1].json["messages"][-2]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
    assert blocks[0]["signature"]

    krouter.idle()
    turn(krouter, "gemini-one/m", True, ASKS, said, answers(called(said)))
    told = upstream.requests[-1].json["contents"][-2]["parts"]
    assert [part.get("thoughtSignature") for part in told if "functionCall" in part] == [
        "skip_thought_signature_validator"
    ]
    krouter.idle()
    assert "thinking of another provider" in krouter.last_route["dropped"]


def test_reasoning_of_responses_is_no_signature_of_claudes(
    krouter: Krouter, upstream: Upstream
) -> None:
    """The providers share a host."""
    upstream.script("m", ["tool;thinking", "tool", "tool"])
    said = turn(krouter, "responses-one/m", True, ASKS)
    assert any("thoughtSignature" in part for part in said["parts"])
    turn(krouter, "responses-one/m", True, ASKS, said, answers(called(said)))
    assert b'"encrypted_content":' in upstream.requests[-1].body
    krouter.idle()
    turn(krouter, "messages-one/m", True, ASKS, said, answers(called(said)))
    assert b'"signature"' not in upstream.requests[-1].body
    krouter.idle()
    assert "thinking of another provider" in krouter.last_route["dropped"]


def test_a_signature_of_gemini_is_not_shown_to_others(krouter: Krouter, upstream: Upstream) -> None:
    upstream.script("m", ["tool", "ok", "ok"])
    said = turn(krouter, "gemini-one/m", False, ASKS)
    krouter.idle()
    turn(krouter, "gemini-one/m", False, ASKS, said, answers(called(said)))
    assert b"thoughtSignature" in upstream.requests[-1].body
    reply = krouter.gemini("chat-one/m", contents=[ASKS, said, answers(called(said))])
    assert reply.headers["x-krouter-dropped"] == "thoughtSignature"
    assert b"ignature" not in upstream.requests[-1].body


def test_what_cannot_be_carried_is_named(krouter: Krouter) -> None:
    reply = krouter.gemini(
        "chat-one/m",
        tools=[{"googleSearch": {}}],
        safetySettings=[{"category": "x"}],
        generationConfig={"topK": 3, "candidateCount": 2},
    )
    assert reply.headers["x-krouter-dropped"] == (
        "tools.googleSearch, topK, candidateCount, safetySettings"
    )


def test_an_image_is_seen_by_the_order_and_by_the_provider(
    krouter: Krouter, upstream: Upstream
) -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    for spoken in SPOKEN:
        krouter.gemini(f"{spoken}-one/m", contents=[{"parts": [image, {"text": "What is it?"}]}])
        assert b"iVBORw0KGgo=" in upstream.requests[-1].body
