"""Cursor's bodies at the chat endpoint, over a socket: chat goes on, and chat comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.harness import Krouter, Start
from tests.upstream import Upstream

CHAT = "/v1/chat/completions"
FLAT = {"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}}
CLAUDES = {"name": "ls", "input_schema": {"type": "object", "properties": {}}}
BODIES: list[dict[str, Any]] = [
    {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
     "messages": [], "tools": [FLAT], "reasoning": {"effort": "low"}, "store": False},
    {"system": [{"type": "text", "text": "Be brief."}], "tools": [CLAUDES],
     "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
]  # fmt: skip


@pytest.mark.parametrize("entry", ["one/m:tool", "two/m:tool"])
@pytest.mark.parametrize("body", BODIES)
def test_a_foreign_body_is_answered_in_chat(
    start: Start, upstream: Upstream, body: dict[str, Any], entry: str
) -> None:
    krouter = start(entry)
    reply = krouter.http.post(CHAT, json={"model": "daily", "stream": False, **body})
    assert reply.status_code == 200
    assert reply.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "ls"
    (sent,) = upstream.requests
    assert sent.json["messages"][-1] == {"role": "user", "content": "hi"}
    assert sent.json["tools"][0]["function"]["name"] == "ls"
    assert not {"input", "system", "reasoning", "store"} & sent.json.keys()
    streamed = krouter.http.post(CHAT, json={"model": "daily", "stream": True, **body})
    assert '"object":"chat.completion.chunk"' in streamed.text.replace(" ", "")
    assert streamed.text.rstrip().endswith("data: [DONE]")


def test_another_requests_id_is_refused(start: Start) -> None:
    krouter = start("one/a")
    body = {"model": "daily", "input": "hi", "previous_response_id": "resp_1"}
    reply = krouter.http.post(CHAT, json=body)
    assert reply.status_code == 400
    assert "keeps no conversation" in reply.json()["error"]["message"]


PATCH = {"type": "custom", "name": "ApplyPatch", "description": "Edits.",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin"}}  # fmt: skip
TEXT = '*** Begin\n+"ä😀" \\d\n*** End'
PLACES = {
    "native": "",
    "translated": """
[provider.other]
speaks = ["messages"]
base_url = "{url}"
[[account]]
provider = "other"
key = "env:ONE_A"
""",
    "responses": """
[provider.other]
speaks = ["responses"]
base_url = "{url}"
[[account]]
provider = "other"
key = "env:ONE_A"
""",
}


def pieces(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                yield from choice["delta"].get("tool_calls") or ()


def told(krouter: Krouter, *, stream: bool, **body: Any) -> tuple[str, str]:
    """The name and the arguments of the call that comes back."""
    reply = krouter.http.post(CHAT, json={"model": "daily", "stream": stream, **body})
    assert reply.status_code == 200, reply.text
    if not stream:
        (call,) = reply.json()["choices"][0]["message"]["tool_calls"]
        return call["function"]["name"], call["function"]["arguments"]
    assert reply.text.rstrip().endswith("data: [DONE]")
    functions = [piece["function"] for piece in pieces(reply.text)]
    names = [name for function in functions if (name := function.get("name"))]
    return names[0], "".join(function.get("arguments") or "" for function in functions)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("escaped", [False, True])
def test_a_patch_comes_as_its_text_and_goes_as_an_argument(
    start: Start, upstream: Upstream, place: str, stream: bool, escaped: bool
) -> None:
    given = quote(json.dumps({"input": TEXT}, ensure_ascii=escaped), safe="")
    entry = f"{'one' if place == 'native' else 'other'}/m:tool;args={given};split=7"
    krouter = start(entry, settings=PLACES[place].format(url=upstream.url))
    asked = [{"role": "user", "content": "go"}]
    assert told(krouter, stream=stream, messages=asked, tools=[PATCH]) == ("ApplyPatch", TEXT)
    said = {"id": "c", "type": "function", "function": {"name": "ApplyPatch", "arguments": TEXT}}
    back = [*asked, {"role": "assistant", "content": [], "tool_calls": [said]},
            {"role": "tool", "tool_call_id": "c", "content": "done"}]  # fmt: skip
    again = {"model": "daily", "messages": back, "tools": [PATCH]}
    assert krouter.http.post(CHAT, json=again).status_code == 200
    sent = upstream.requests[-1].json
    if place == "native":
        assert json.loads(sent["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {
            "input": TEXT
        }
    elif place == "translated":
        assert sent["messages"][1]["content"][0]["input"] == {"input": TEXT}
    else:
        assert json.loads(sent["input"][1]["arguments"]) == {"input": TEXT}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("arguments", ["{}", '{"path":"a"}', "*** Begin"])
def test_a_model_that_ignores_the_schema(start: Start, stream: bool, arguments: str) -> None:
    krouter = start(f"one/m:tool;args={quote(arguments, safe='')}")
    asked = [{"role": "user", "content": "go"}]
    found = told(krouter, stream=stream, messages=asked, tools=[PATCH])
    assert found == ("ApplyPatch", arguments)


@pytest.mark.parametrize("stream", [False, True])
def test_other_tools_keep_their_arguments(start: Start, upstream: Upstream, stream: bool) -> None:
    given = quote('{"input": "x"}', safe="")
    krouter = start(f"one/m:tool=ls;args={given}")
    asked = [{"role": "user", "content": "go"}]
    found = told(krouter, stream=stream, messages=asked, tools=[PATCH, FLAT])
    assert found == ("ls", '{"input": "x"}')


def test_a_body_of_blocks_alone(start: Start, upstream: Upstream) -> None:
    used = {"type": "tool_use", "id": "t", "name": "ls", "input": {}}
    failed = {"type": "tool_result", "tool_use_id": "t", "content": "no", "is_error": True}
    said = [{"role": "assistant", "content": [used]}, {"role": "user", "content": [failed]}]
    krouter = start("one/a")
    reply = krouter.http.post(CHAT, json={"model": "daily", "messages": said})
    assert reply.json()["object"] == "chat.completion"
    (sent,) = upstream.requests
    assert sent.json["messages"][1:] == [
        {"role": "tool", "tool_call_id": "t", "content": "Error: no"}
    ]
