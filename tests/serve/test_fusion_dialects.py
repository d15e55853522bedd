"""Fusion for callers of every dialect, with panel and judge on providers of every dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from krouter_adapters.litellm_lane.lane import LIBRARY

from tests.harness import Krouter
from tests.serve.test_pairings import CALLERS, CHECKS, MODES, SPOKEN, read, settings_for
from tests.upstream import Upstream

PANEL = [f"two-{spoken}/{spoken}:text=Saw%20{spoken}" for spoken in SPOKEN]
BEST = {"onJudgeFailure": "best"}
COMBOS: dict[str, Any] = {
    **{
        f"judged-{spoken}": {
            "models": PANEL,
            "strategy": "fusion",
            "judge": f"two-{spoken}/j:text=The%20whole",
        }
        for spoken in SPOKEN
    },
    **{
        f"best-{spoken}": {
            "models": [f"two-{spoken}/m:text=A", f"two-{spoken}/m:thinking;text=Longest%20one"],
            "strategy": "fusion",
            "judge": f"one-{spoken}/j:status=500",
            "fusionTuning": BEST,
        }
        for spoken in SPOKEN
    },
    "none": {"models": [f"one-{s}/{s}:status=500" for s in SPOKEN], "strategy": "fusion"},
    "nobody": {
        "models": ["one-chat/m:empty=text", "one-messages/m:status=529"],
        "strategy": "fusion",
    },
    "cut": {"models": PANEL, "strategy": "fusion", "judge": "one-chat/j:error=2"},
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    LIBRARY.get()
    settings, env = settings_for(upstream.url)
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, combos=COMBOS, settings=settings, env=env) as krouter:
        yield krouter


@pytest.fixture
def krouter(served: Krouter, upstream: Upstream) -> Krouter:
    upstream.clear()
    served.forget()
    served.router.routes.clear()
    return served


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=SPOKEN)
def spoken(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=MODES)
def streamed(request: pytest.FixtureRequest) -> bool:
    return request.param == "stream"


CALLED = {"name": "look", "arguments": {"at": "the moon"}}
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "chat": {
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
            }
        ],
        "messages": [
            {"role": "user", "content": "Is it full?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "look", "arguments": json.dumps(CALLED["arguments"])},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "It is full."},
        ],
    },
    "messages": {
        "tools": [{"name": "look", "input_schema": {"type": "object", "properties": {}}}],
        "messages": [
            {"role": "user", "content": "Is it full?"},
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "tool_use",
                        "id": "call_1",
                        "name": "look",
                        "input": CALLED["arguments"],
                    }
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "It is full."}
                ],
            },
        ],
    },
    "responses": {
        "tools": [
            {
                "type": "function",
                "name": "look",
                "parameters": {"type": "object", "properties": {}},
            }
        ],
        "input": [
            {"role": "user", "content": "Is it full?"},
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "look",
                "arguments": json.dumps(CALLED["arguments"]),
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "It is full."},
        ],
    },
    "gemini": {
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "look", "parameters": {"type": "object", "properties": {}}}
                ]
            }
        ],
        "contents": [
            {"role": "user", "parts": [{"text": "Is it full?"}]},
            {
                "role": "model",
                "parts": [{"functionCall": {"name": "look", "args": CALLED["arguments"]}}],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "look", "response": {"output": "It is full."}}}
                ],
            },
        ],
    },
}

PROTOCOL = ("tool_use", "tool_call", "function_call", "functionCall", "functionResponse", "toolU")


def text_of(reply: Any, caller: str, streamed: bool) -> str:
    assert reply.status_code == 200, reply.text
    if streamed:
        found = CHECKS[caller](reply.content)
        assert found.ending == "complete"
        return found.text
    text: str = read(reply.json(), caller).text
    return text


def test_panel_and_judge_of_every_dialect(
    krouter: Krouter, upstream: Upstream, caller: str, spoken: str, streamed: bool
) -> None:
    """A tool loop: the panel is shown it as text, the judge as it was."""
    reply = krouter.ask(caller, f"judged-{spoken}", streamed, **CONVERSATIONS[caller])
    assert text_of(reply, caller, streamed) == "The whole"
    assert {n for n in reply.headers if n.startswith("x-krouter")} == {"x-krouter-route"}
    copies = [each for each in upstream.requests if not each.model.startswith("j:")]
    [judge] = [each for each in upstream.requests if each.model.startswith("j:")]
    assert len(copies) == len(SPOKEN)
    for copy in copies:
        body = copy.body.decode()
        assert not any(word in body for word in PROTOCOL), body
        assert not any(name in copy.json for name in ("tools", "tool_choice", "toolConfig"))
        assert "look" in body
        assert "the moon" in body
        assert "It is full." in body
    keys = [each.header["idempotency-key"] for each in upstream.requests]
    assert len(set(keys)) == len(keys) == 5
    told = judge.body.decode()
    assert "tools" in judge.json
    assert all(f"Saw {name}" in told for name in SPOKEN)
    assert "call_1" in told or spoken == "gemini" or caller == "gemini"
    krouter.idle()
    route = krouter.last_route
    assert {each["outcome"] for each in route["voices"]} == {"answered"}
    assert route["outcome"] == "answered"
    assert route["dropped"] == [] or spoken != caller


def test_the_best_in_place_of_the_judges(
    krouter: Krouter, caller: str, spoken: str, streamed: bool
) -> None:
    reply = krouter.ask(caller, f"best-{spoken}", streamed)
    assert text_of(reply, caller, streamed) == "Longest one"


def test_the_503_is_of_the_callers_dialect(krouter: Krouter, caller: str, streamed: bool) -> None:
    reply = krouter.ask(caller, "none", streamed)
    assert reply.status_code == 503
    message = reply.json()["error"]["message"]
    assert message.startswith("All fusion panel models failed: ")
    assert message.count("500 server error") == len(SPOKEN)


def test_a_judge_that_breaks_off_is_an_error_event(krouter: Krouter, caller: str) -> None:
    reply = krouter.ask(caller, "cut", True)
    assert CHECKS[caller](reply.content).ending == "error"


def test_a_text_as_input_is_not_lost(krouter: Krouter, upstream: Upstream) -> None:
    krouter.responses("judged-responses", input="What is it?")
    [judge] = [each for each in upstream.requests if each.model.startswith("j:")]
    first, last = judge.json["input"]
    assert "What is it?" in json.dumps(first)
    assert "Saw chat" in json.dumps(last)
