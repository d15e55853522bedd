"""Calls of responses to providers of other dialects, and of others to a provider of responses,
over real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.lanes import ask, call, own
from tests.adapters.translate.responses_check import heard_in
from tests.harness import Krouter
from tests.upstream import Upstream
from tests.validators import check_chat_stream, check_messages_stream

SETTINGS = """
[provider.chat]
base_urls = {{ chat = "{url}/v1" }}
[provider.messages]
base_urls = {{ messages = "{url}" }}
[provider.responses]
base_urls = {{ responses = "{url}" }}
"""
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "name": "weather", "parameters": PARAMETERS}
OF_CHAT = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
TOOLS: dict[str, Any] = {
    "chat": [OF_CHAT],
    "messages": [{"name": "weather", "input_schema": PARAMETERS}],
}
OTHERS = ("chat", "messages")


@pytest.fixture(scope="module")
def up() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory, up: Upstream) -> Iterator[Krouter]:
    home: Path = tmp_path_factory.mktemp("home")
    with Krouter(home, settings=SETTINGS.format(url=up.url)) as running:
        yield running


@pytest.fixture(autouse=True)
def fresh(krouter: Krouter, up: Upstream) -> None:
    up.clear()
    krouter.forget()


def response(krouter: Krouter, model: str, stream: bool, **fields: Any) -> dict[str, Any]:
    """The whole response, either way."""
    reply = krouter.responses(model, stream, **fields)
    assert reply.status_code == 200, reply.text
    if not stream:
        whole: dict[str, Any] = reply.json()
        return whole
    read = heard_in(reply.content)
    assert read.heard.ending == "complete"
    return read.response


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("to", OTHERS)
def test_a_tool_is_called_and_its_result_answered(
    krouter: Krouter, up: Upstream, to: str, stream: bool
) -> None:
    first = response(krouter, f"{to}/m:thinking;tool", stream, tools=[TOOL])
    assert (first["status"], first["model"]) == ("completed", "m:thinking;tool")
    kinds = [item["type"] for item in first["output"]]
    assert kinds[0] == "reasoning"
    assert kinds[-1] == "function_call"
    made = first["output"][-1]
    assert (made["name"], "city" in json.loads(made["arguments"])) == ("weather", True)
    assert first["usage"]["input_tokens"] > 0
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "sunny"}
    history = [{"role": "user", "content": "q"}, *first["output"], result]
    second = response(krouter, f"{to}/m:text=done", stream, input=history, tools=[TOOL])
    assert second["output"][0]["content"][0]["text"] == "done"
    sent = up.requests[-1].json["messages"]
    if to == "chat":
        assert sent[-2]["tool_calls"][0]["function"]["arguments"] == made["arguments"]
        assert sent[-1] == {"role": "tool", "tool_call_id": made["call_id"], "content": "sunny"}
    else:
        blocks = sent[-2]["content"]
        assert blocks[0]["type"] == "thinking"
        assert blocks[0]["signature"]
        assert blocks[-1]["input"] == json.loads(made["arguments"])
        assert sent[-1]["content"][0]["tool_use_id"] == made["call_id"]


@pytest.mark.parametrize("to", OTHERS)
def test_reasoning_of_one_provider_stays_from_another(
    krouter: Krouter, up: Upstream, to: str
) -> None:
    first = response(krouter, f"{to}/m:thinking", False)
    krouter.forget()
    moved = [*first["output"], {"role": "user", "content": "go on"}]
    with Upstream() as other:
        lane = own(messages=other.url)
        got = ask(call("responses", input=moved), lane, "claude-opus-4-6")
        assert got.status == 200
        assert "thinking" not in json.dumps(other.requests[-1].json["messages"])
        assert "input.reasoning" in got.dropped


@pytest.mark.parametrize("to", [*OTHERS, "responses"])
@pytest.mark.parametrize("caller", ["chat", "messages", "responses"])
@pytest.mark.parametrize("word", ["error=0", "close=0", "status=503", "garbage=html"])
def test_what_fails_first_falls_over(
    krouter: Krouter, up: Upstream, caller: str, to: str, word: str
) -> None:
    reply = krouter.ask(caller, f"{to}/m:{word}", True)
    assert reply.status_code >= 500
    assert reply.json()["error"]["message"]


@pytest.mark.parametrize("word", ["error=4", "close=4", "reset=4", "end=4", "no=finish,done"])
@pytest.mark.parametrize("to", OTHERS)
def test_a_stream_that_breaks_is_never_complete(krouter: Krouter, to: str, word: str) -> None:
    reply = krouter.responses(f"{to}/m:{word};chunks=9", True)
    assert b"event: response.completed" not in reply.content
    assert b"event: response.incomplete" not in reply.content
    assert reply.content.count(b"event: response.failed") == 1
    assert heard_in(reply.content).heard.ending == "error"


def test_a_response_that_fails_holds_what_came_before(krouter: Krouter) -> None:
    reply = krouter.responses("messages/m:thinking;error=9;chunks=9", True)
    failed = json.loads(reply.content.rpartition(b"\ndata: ")[2])["response"]
    assert (failed["status"], reply.content.count(b"event: response.failed")) == ("failed", 1)
    assert [item["type"] for item in failed["output"]] == ["reasoning"]
    assert failed["store"] is False


CHECKS = {"chat": check_chat_stream, "messages": check_messages_stream}


@pytest.mark.parametrize("word", ["error=5", "close=5", "end=5", "finish=failed", "no=done"])
@pytest.mark.parametrize("caller", OTHERS)
def test_a_response_that_breaks_is_never_whole(krouter: Krouter, caller: str, word: str) -> None:
    reply = krouter.ask(caller, f"responses/m:{word};chunks=9", True)
    assert CHECKS[caller](reply.content).ending == "error"


@pytest.mark.parametrize("to", OTHERS)
@pytest.mark.parametrize("word", ["finish=length", "finish=max_tokens"])
def test_a_reply_at_its_limit_is_incomplete(krouter: Krouter, to: str, word: str) -> None:
    got = krouter.responses(f"{to}/m:{word}").json()
    assert got["status"] == "incomplete"
    assert got["incomplete_details"] == {"reason": "max_output_tokens"}


def test_an_odd_tool_comes_back_as_it_was(krouter: Krouter, up: Upstream) -> None:
    tools = [
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "fs", "description": "", "tools": [TOOL]},
    ]
    arguments = "%7B%22input%22%3A%22a%5Cnb%22%7D"
    got = response(krouter, f"chat/m:tool=patch;args={arguments}", True, tools=tools)
    assert got["output"][-1]["input"] == "a\nb"
    got = response(krouter, "messages/m:tool=fs__weather", True, tools=tools)
    assert (got["output"][-1]["namespace"], got["output"][-1]["name"]) == ("fs", "weather")


@pytest.mark.parametrize("to", OTHERS)
def test_a_tool_in_the_form_of_chat_is_a_tool(krouter: Krouter, up: Upstream, to: str) -> None:
    chosen = {"type": "function", "function": {"name": "weather"}}
    reply = krouter.responses(f"{to}/m:tool", tools=[OF_CHAT], tool_choice=chosen)
    assert "x-krouter-dropped" not in reply.headers
    call = reply.json()["output"][-1]
    assert (call["type"], call["name"]) == ("function_call", "weather")
    sent = up.requests[-1].json
    if to == "chat":
        assert (sent["tools"], sent["tool_choice"]) == ([OF_CHAT], chosen)
    else:
        assert sent["tools"][0]["input_schema"]["required"] == PARAMETERS["required"]
        assert sent["tool_choice"]["name"] == "weather"


@pytest.mark.parametrize("tool", [{"type": "function"}, {"type": "custom", "custom": {}}])
@pytest.mark.parametrize("to", OTHERS)
def test_a_tool_without_a_name_is_refused(
    krouter: Krouter, up: Upstream, to: str, tool: dict[str, Any]
) -> None:
    reply = krouter.responses(f"{to}/m", tools=[TOOL, tool])
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "The tool tools[1] has no name."
    assert not up.requests


def test_what_was_dropped_is_told(krouter: Krouter) -> None:
    reply = krouter.responses("chat/m", tools=[{"type": "web_search"}], truncation="auto")
    assert reply.headers["x-krouter-dropped"].split(", ") == ["tools.web_search", "truncation"]


# To a provider of responses


@pytest.mark.parametrize("stream", [False, True])
def test_messages_of_a_provider_of_responses(krouter: Krouter, up: Upstream, stream: bool) -> None:
    model, tools = "responses/m:thinking;tool", TOOLS["messages"]
    reply = krouter.messages(model, stream, tools=tools, thinking={"type": "adaptive"})
    sent = up.requests[-1]
    assert sent.path == "/v1/responses"
    assert (sent.json["store"], sent.json["max_output_tokens"]) == (False, 64)
    assert sent.json["include"] == ["reasoning.encrypted_content"]
    assert sent.json["tools"][0]["name"] == "weather"
    if stream:
        heard = check_messages_stream(reply.content)
        assert (heard.reason, heard.calls[0][0]) == ("tool_use", "weather")
        thought = {"thinking": heard.thinking, "signature": heard.signatures[0]}
        use: dict[str, Any] = {"name": "weather", "input": heard.calls[0][1], "id": "toolu_1"}
        blocks = [{"type": "thinking", **thought}, {"type": "tool_use", **use}]
    else:
        blocks = reply.json()["content"]
    result = {"type": "tool_result", "tool_use_id": blocks[-1]["id"], "content": "sunny"}
    turns = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [result]},
    ]
    answer = krouter.messages("responses/m:text=done", stream, messages=turns, tools=tools)
    assert b"done" in answer.content
    items = up.requests[-1].json["input"]
    kinds = ["message", "reasoning", "function_call", "function_call_output"]
    assert [i["type"] for i in items if i.get("role") != "assistant"] == kinds
    assert items[1]["encrypted_content"]
    assert json.loads(items[-2]["arguments"]) == blocks[-1]["input"]


@pytest.mark.parametrize("stream", [False, True])
def test_chat_of_a_provider_of_responses(krouter: Krouter, up: Upstream, stream: bool) -> None:
    reply = krouter.chat("responses/m:thinking;tool", stream, tools=TOOLS["chat"])
    if stream:
        heard = check_chat_stream(reply.content)
        assert (heard.reason, heard.calls[0][0], heard.ending) == (
            "tool_calls",
            "weather",
            "complete",
        )
        return
    message = reply.json()["choices"][0]["message"]
    assert message["reasoning_content"]
    assert "thinking_blocks" not in message
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sunny"}
    krouter.chat("responses/m", messages=[{"role": "user", "content": "q"}, message, result])
    items = up.requests[-1].json["input"]
    assert [item["type"] for item in items if item.get("role") != "assistant"] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]


def test_its_true_status_reaches_the_caller(krouter: Krouter) -> None:
    reply = krouter.chat("responses/m:status=400;message=too%20odd")
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "too odd"
    reply = krouter.messages("responses/m:status=429;retry-after=7")
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "7")
