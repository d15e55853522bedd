"""The model that uses a tool, in every dialect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.upstream import ToolUser, Upstream

CALLED = {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}]}
REMINDER = {"role": "system", "content": "Mind the time."}
OLD = [{"type": "tool_result", "tool_use_id": "t0", "content": "old"}]
BLOCK = [
    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "token"}]},
    {"type": "text", "text": "Go on."},
]
PARTS = [{"functionResponse": {"name": "look", "response": {"output": "token"}}}]
RESULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "/v1/chat/completions",
        {"messages": [CALLED, {"role": "tool", "tool_call_id": "t", "content": "token"}]},
    ),
    "chat, in parts": (
        "/v1/chat/completions",
        {"messages": [CALLED, {"role": "tool", "content": [{"type": "text", "text": "token"}]}]},
    ),
    "messages": ("/v1/messages", {"messages": [CALLED, {"role": "user", "content": BLOCK}]}),
    "messages, then a system message": (
        "/v1/messages",
        {"messages": [CALLED, {"role": "user", "content": BLOCK}, REMINDER]},
    ),
    "responses": (
        "/v1/responses",
        {
            "input": [
                {"type": "function_call", "name": "look", "call_id": "t", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "t", "output": "token"},
            ]
        },
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {"contents": [{"role": "model", "parts": []}, {"role": "user", "parts": PARTS}]},
    ),
}
OFFERS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"tools": [{"function": {"name": "look"}}]}),
    "messages": ("/v1/messages", {"tools": [{"name": "other"}, {"name": "look"}]}),
    "responses": ("/v1/responses", {"tools": [{"type": "function", "name": "look"}]}),
    "responses, in a namespace": (
        "/v1/responses",
        {"tools": [{"type": "namespace", "name": "n", "tools": [{"name": "look"}]}]},
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {"tools": [{"functionDeclarations": [{"name": "look"}]}]},
    ),
}
HELLO = [{"role": "user", "content": "hello"}]
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/messages": {"messages": [CALLED, {"role": "user", "content": OLD}, CALLED, *HELLO]},
    "/v1/responses": {"input": HELLO},
    "/v1beta/models/m:generateContent": {"contents": [{"role": "user", "parts": []}]},
}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with Upstream() as upstream, httpx.Client(base_url=upstream.url, timeout=30) as client:
        upstream.script("m", [ToolUser("look", {"at": "sea"})])
        yield client


@pytest.mark.parametrize("case", RESULTS)
def test_the_answer_is_what_the_tool_said(client: httpx.Client, case: str) -> None:
    path, body = RESULTS[case]
    reply = client.post(path, json={"model": "m", **body})
    assert "The tool said: " in reply.text
    assert "token" in reply.text
    assert "old" not in reply.text


@pytest.mark.parametrize("case", OFFERS)
def test_an_offered_tool_is_called(client: httpx.Client, case: str) -> None:
    path, offer = OFFERS[case]
    text = client.post(path, json={"model": "m", **ASKED[path], **offer}).text
    assert "look" in text
    assert "sea" in text


def test_a_tool_in_a_namespace_is_called_by_both_names() -> None:
    """Each dotted name, but only where there is such a namespace."""
    path, offer = OFFERS["responses, in a namespace"]
    with Upstream() as upstream, httpx.Client(base_url=upstream.url, timeout=30) as client:
        upstream.script("m", ["tool=n.look;args={}", "tool=o.look;args={}"])
        inside, outside = (
            client.post(path, json={"model": "m", **ASKED[path], **offer}).json()["output"][0]
            for _ in range(2)
        )
    assert (inside["namespace"], inside["name"]) == ("n", "look")
    assert (outside.get("namespace"), outside["name"]) == (None, "o.look")


@pytest.mark.parametrize("path", ASKED)
def test_without_the_tool_the_answer_is_plain(client: httpx.Client, path: str) -> None:
    text = client.post(path, json={"model": "m", **ASKED[path]}).text
    assert "All is well" in text
    assert "look" not in text
