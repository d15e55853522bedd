"""Cursor's bodies at the chat endpoint, over a socket: chat goes on, and chat comes back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import Start
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
