"""Claude's thinking on its way through callers of other dialects, and back to its maker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from krouter.adapter import Call
from krouter.body import Body
from krouter.dialects import get
from krouter.sse import encode
from tests.adapters.lanes import PARAMETERS, FakeWire, ask, own
from tests.adapters.translate.responses_check import heard_in

CLAUDE = "claude-opus-4-6"
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
HIDDEN = {"type": "thinking", "thinking": "", "signature": "c2lnbmVkLTE="}
SAID = {"type": "thinking", "thinking": "\n hm", "signature": "c2lnbmVkLTI="}
MORE = {"type": "thinking", "thinking": "so", "signature": "c2lnbmVkLTM="}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}


def whole(blocks: list[Any]) -> bytes:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": CLAUDE}
    return json.dumps(
        {**head, "content": blocks, "stop_reason": "tool_use", "usage": usage}
    ).encode()


def told(blocks: list[Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": {}}}
    for index, block in enumerate(blocks):
        at = {"index": index}
        deltas: list[dict[str, Any]] = []
        begun = block
        if block["type"] == "thinking":
            begun = {"type": "thinking", "thinking": "", "signature": ""}
            if block["thinking"]:
                deltas.append({"type": "thinking_delta", "thinking": block["thinking"]})
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif block["type"] == "tool_use":
            begun = {**block, "input": {}}
            deltas.append({"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
        yield {"type": "content_block_start", **at, "content_block": begun}
        for delta in deltas:
            yield {"type": "content_block_delta", **at, "delta": delta}
        yield {"type": "content_block_stop", **at}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}
    yield {"type": "message_stop"}


def wire_of(blocks: list[Any], stream: bool) -> FakeWire:
    if not stream:
        return FakeWire(whole(blocks))
    events = (encode(json.dumps(event).encode(), event["type"]) for event in told(blocks))
    return FakeWire(*events, kind="text/event-stream")


def call(dialect: str, stream: bool, body: dict[str, Any]) -> Call:
    raw = json.dumps({"model": "asked", **body}).encode()
    return Call(get(dialect), Body.parse(raw), [], "asked", stream)


def through_responses(wire: FakeWire, stream: bool) -> dict[str, Any]:
    """The body of the next request of a caller that keeps what it was told."""
    tools = [{"type": "function", "name": "weather", "parameters": PARAMETERS}]
    asked = [{"role": "user", "content": "q"}]
    got = ask(call("responses", stream, {"input": asked, "tools": tools}), TO, CLAUDE, wire=wire)
    output = heard_in(got.raw).response["output"] if stream else got.json["output"]
    assert all(item["encrypted_content"] for item in output[:-1])
    assert all(part["text"] for item in output[:-1] for part in item["summary"])
    result = {"type": "function_call_output", "call_id": output[-1]["call_id"], "output": "sunny"}
    return {"input": [*asked, *output, result], "tools": tools}


def through_gemini(wire: FakeWire, stream: bool) -> dict[str, Any]:
    declared = {"name": "weather", "parametersJsonSchema": PARAMETERS}
    tools = [{"functionDeclarations": [declared]}]
    asked = {"role": "user", "parts": [{"text": "q"}]}
    got = ask(call("gemini", stream, {"contents": [asked], "tools": tools}), TO, CLAUDE, wire=wire)
    replies = got.events if stream else [got.json]
    parts = [part for reply in replies for part in reply["candidates"][0]["content"]["parts"]]
    made = next(part["functionCall"] for part in parts if "functionCall" in part)
    result = {"name": "weather", "id": made["id"], "response": {"output": "sunny"}}
    turns = [
        asked,
        {"role": "model", "parts": parts},
        {"role": "user", "parts": [{"functionResponse": result}]},
    ]
    return {"contents": turns, "tools": tools}


TO = own(messages="http://messages.test")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "blocks", [[HIDDEN], [REDACTED], [SAID, HIDDEN], [HIDDEN, REDACTED, SAID, MORE]]
)
@pytest.mark.parametrize("dialect", ["responses", "gemini"])
def test_thinking_comes_back_as_its_maker_signed_it(
    dialect: str, blocks: list[Any], stream: bool
) -> None:
    through = through_responses if dialect == "responses" else through_gemini
    body = through(wire_of([*blocks, USE], stream), stream)
    wire = FakeWire(whole([USE]))
    got = ask(call(dialect, False, body), TO, CLAUDE, wire=wire)
    assert got.dropped == ()
    turn = wire.body["messages"][1]["content"]
    assert turn[:-1] == blocks
    assert turn[-1]["input"] == USE["input"]
