"""Replies that are odd, and what is told of them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from krouter_adapters.litellm_lane.lane import LIBRARY, LitellmLane
from krouter_adapters.litellm_lane.load import Loader

from krouter.adapter import Target, Unsendable
from krouter.dialects.base import Kind
from krouter.stream import Relay
from tests.adapters.lanes import (
    LANE,
    SECRET,
    TOOLS,
    FakeWire,
    ask,
    call,
    own,
    provider,
)
from tests.adapters.test_litellm_traps import Downloads
from tests.validators import check_chat_stream, check_messages_stream

STREAM = "text/event-stream"


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "choices": [choice]}


def sse(*events: Any, done: bool = True) -> bytes:
    lines = [e if isinstance(e, bytes) else json.dumps(e).encode() for e in events]
    named = [
        b"event: %s\n" % e["type"].encode() if isinstance(e, dict) and "type" in e else b""
        for e in events
    ]
    body = b"".join(b"%sdata: %s\n\n" % pair for pair in zip(named, lines, strict=True))
    return body + (b"data: [DONE]\n\n" if done else b"")


def message(*content: Any, stop: str = "end_turn") -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 2}
    head = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    return {**head, "content": list(content), "stop_reason": stop, "stop_sequence": None}


def message_events(*deltas: Any, block: Any, stop: str = "end_turn") -> list[Any]:
    start = {**message(), "stop_reason": None}
    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]


def gemini(*texts: str) -> list[Any]:
    """Events that all say STOP."""
    return [
        {
            "candidates": [
                {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}
            ],
            "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 2},
        }
        for text in texts
    ]


ODD = [
    pytest.param(b"\\ud83d", id="half an emoji"),
    pytest.param(b"\xff", id="a byte that is not UTF-8"),
]


@pytest.mark.parametrize("odd", ODD)
def test_odd_text_of_a_chat_host_is_told_in_messages(odd: bytes) -> None:
    said = sse(chunk({"content": "a"}), b'{"choices":[{"index":0,"delta":{"content":"%s"}}]}' % odd)
    wire = FakeWire(said[: -len(b"data: [DONE]\n\n")], sse(chunk({}, "stop")), kind=STREAM)
    heard = ask(call("messages", True), own(chat="http://h/v1"), wire=wire)
    check_messages_stream(heard.raw)
    assert b"chat.completion.chunk" not in heard.raw
    assert heard.tracker.complete
    assert not heard.tracker.malformed


@pytest.mark.parametrize("odd", ODD)
def test_odd_text_of_a_messages_host_is_told_in_chat(odd: bytes) -> None:
    events = sse(
        *message_events({"type": "text_delta", "text": "@@"}, block={"type": "text", "text": ""}),
        done=False,
    )
    wire = FakeWire(events.replace(b"@@", odd), kind=STREAM)
    heard = ask(call("chat", True), own(messages="http://h"), wire=wire)
    check_chat_stream(heard.raw)
    assert b"content_block" not in heard.raw
    assert heard.tracker.complete
    whole = json.dumps(message({"type": "text", "text": "@@"})).encode().replace(b"@@", odd)
    told = ask(call("chat"), own(messages="http://h"), wire=FakeWire(whole))
    assert told.reading.kind is Kind.ANSWER


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("dialect", ["responses", "gemini"])
@pytest.mark.parametrize(("kind", "field"), [("text", "text"), ("thinking", "thinking")])
def test_odd_text_of_a_messages_host_is_told_in_other_dialects(
    kind: str, field: str, dialect: str, odd: bytes
) -> None:
    delta = {"type": f"{kind}_delta", field: "@@"}
    events = sse(*message_events(delta, block={"type": kind, field: ""}), done=False)
    wire = FakeWire(events.replace(b"@@", odd), kind=STREAM)
    said = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
    thinks = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
    asked = call(dialect, True, **said, **thinks)
    heard = ask(asked, own(messages="http://h"), wire=wire)
    assert heard.tracker.complete
    assert not heard.tracker.malformed
    assert ("\\ud83d" if odd.startswith(b"\\") else "\\ufffd") in json.dumps(heard.events)


def test_numbers_that_are_none_harm_nothing() -> None:
    end = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop","logprobs":NaN}]}'
    wire = FakeWire(sse(chunk({"content": "a"}), end), kind=STREAM)
    heard = ask(call("messages", True), own(chat="http://h/v1"), wire=wire)
    assert check_messages_stream(heard.raw).reason == "end_turn"


@pytest.mark.parametrize("garbage", [b"{not json", b"[1]", b'"words"', b"\xff\xfe"])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_what_is_no_event_is_left_out_and_counted(dialect: str, garbage: bytes) -> None:
    if dialect == "messages":
        raw, to = sse(chunk({"content": "a"}), garbage, chunk({}, "stop")), own(chat="http://h/v1")
    else:
        first, *rest = message_events(
            {"type": "text_delta", "text": "a"}, block={"type": "text", "text": ""}
        )
        raw, to = sse(first, garbage, *rest, done=False), own(messages="http://h")
    heard = ask(call(dialect, True), to, wire=FakeWire(raw, kind=STREAM))
    assert heard.tracker.malformed == 1
    assert heard.tracker.complete


FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "x",
        "schema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    },
}
OLD = "claude-3-5-haiku-20241022"
ANSWER = {"type": "tool_use", "id": "t", "name": "json_tool_call", "input": {"a": "x"}}


def test_json_that_is_asked_for_by_a_tool_comes_back_as_text() -> None:
    wire = FakeWire(json.dumps(message(ANSWER, stop="tool_use")).encode())
    heard = ask(call("chat", response_format=FORMAT), own(messages="http://h"), OLD, wire=wire)
    assert [tool["name"] for tool in wire.body["tools"]] == ["json_tool_call"]
    (choice,) = heard.json["choices"]
    assert json.loads(choice["message"]["content"]) == {"a": "x"}
    assert choice["finish_reason"] == "stop"
    assert not choice["message"].get("tool_calls")


def test_the_same_streamed() -> None:
    pieces = ({"type": "input_json_delta", "partial_json": part} for part in ('{"a":', '"x"}'))
    events = message_events(*pieces, block={**ANSWER, "input": {}}, stop="tool_use")
    wire = FakeWire(sse(*events, done=False), kind=STREAM)
    asked = call("chat", True, response_format=FORMAT)
    heard = check_chat_stream(ask(asked, own(messages="http://h"), OLD, wire=wire).raw)
    assert json.loads(heard.text) == {"a": "x"}
    assert heard.reason == "stop"


def test_beside_the_caller_s_own_tools_the_format_is_named_as_lost() -> None:
    wire = FakeWire(b"{}")
    asked = call("chat", response_format=FORMAT, tools=TOOLS["chat"])
    heard = ask(asked, own(messages="http://h"), OLD, wire=wire)
    assert [tool["name"] for tool in wire.body["tools"]] == ["weather"]
    assert wire.body.get("tool_choice", {}).get("type") in (None, "auto")
    assert "response_format" in heard.dropped


FILES: dict[str, Callable[[str], dict[str, Any]]] = {
    "id": lambda url: {"file": {"file_id": url}},
    "beside data": lambda url: {
        "file": {"file_data": "data:application/pdf;base64,aGk=", "file_id": url}
    },
    "after a blank": lambda url: {"file": {"file_data": f"\t{url}"}},
    "large letters": lambda url: {"file": {"file_id": url.replace("http", "HTTP")}},
}


@pytest.mark.parametrize("part", FILES)
@pytest.mark.parametrize("role", ["user", "tool", "assistant"])
@pytest.mark.parametrize("name", ["openai", "mistral", "gemini", "bedrock", "cohere_chat"])
def test_files_behind_a_link_are_refused_and_not_fetched(name: str, role: str, part: str) -> None:
    wire = FakeWire(b"{}")
    with Downloads() as server:
        held = {"type": "file", **FILES[part](server.url)}
        said = [{"role": role, "tool_call_id": "t", "content": [held]}]
        with pytest.raises(Unsendable, match="must be data URIs"):
            ask(call("chat", messages=said), provider(name, "http://h/v1"), wire=wire)
        assert not server.came()
    assert not wire.sent


def test_a_signature_stays_with_its_own_call() -> None:
    def reply(city: str, signature: str | None) -> bytes:
        part: dict[str, Any] = {
            "functionCall": {"id": "call_1", "name": "weather", "args": {"city": city}}
        }
        if signature:
            part["thoughtSignature"] = signature
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        return json.dumps({"candidates": [candidate]}).encode()

    to, model = provider("gemini", "http://h/v1beta"), "gemini-3-pro-preview"
    ask(call("chat", tools=TOOLS["chat"]), to, model, wire=FakeWire(reply("Oslo", "U0lHLUE=")))
    own_call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
    }
    history = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [own_call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    wire = FakeWire(b"{}")
    ask(call("chat", messages=history, tools=TOOLS["chat"]), to, model, wire=wire)
    assert "U0lHLUE=" not in json.dumps(wire.body)


@pytest.mark.parametrize(
    "error",
    [
        {"type": "usage_limit_reached", "message": "m", "resets_at": 1234},
        {"code": 429, "message": "m", "metadata": {"headers": {"X-RateLimit-Reset": "120"}}},
        {"code": 429, "message": "m", "details": [{"retryDelay": "37s"}]},
    ],
    ids=str,
)  # fmt: skip
def test_an_error_inside_a_stream_keeps_what_it_says(error: dict[str, Any]) -> None:
    wire = FakeWire(sse({"error": error}), kind=STREAM)
    heard = ask(call("messages", True), own(chat="http://h/v1"), wire=wire)
    assert heard.tracker.error_status == 429
    told = json.loads(heard.tracker.error)["error"]
    kept = {key: value for key, value in error.items() if key not in ("type", "code")}
    assert kept.items() <= told.items()


class Silent(FakeWire):
    """A provider that says all, and then neither ends nor speaks."""

    async def send(self, request: Any, connect: float) -> Any:
        reply = await super().send(request, connect)
        chunk_of = reply.chunk

        async def chunk() -> bytes:
            return await chunk_of() or await asyncio.Event().wait() or b""

        reply.chunk = chunk  # type: ignore[method-assign]
        return reply


def test_a_reply_that_has_said_all_ends_properly_though_its_provider_falls_silent() -> None:
    wire = Silent(sse(chunk({"content": "a"}), chunk({}, "stop"), done=False), kind=STREAM)

    async def run() -> tuple[bytes, Relay]:
        asked = call("messages", True)
        reply = await LANE.send(asked, Target(own(chat="http://h/v1"), "m", SECRET), wire)
        relay = Relay(reply, asked.dialect.tracker(asked.body, None), stall=0.05)
        raw = b""
        while piece := await relay.next():
            raw += piece
        return raw, relay

    raw, relay = asyncio.run(run())
    assert check_messages_stream(raw).reason == "end_turn"
    assert not relay.broken


def test_a_gemini_that_says_stop_more_than_once_ends_once() -> None:
    events = gemini("a", "b", "c")
    wire = FakeWire(sse(*events, done=False), kind=STREAM)
    heard = check_chat_stream(ask(call("chat", True), own(gemini="http://h"), wire=wire).raw)
    assert (heard.text, heard.reason) == ("abc", "stop")


@pytest.mark.parametrize("budget", [1, 2000, 20_000])
def test_a_budget_for_thinking_reaches_gemini_as_it_is(budget: int) -> None:
    wire = FakeWire(b"{}")
    thinking = {"type": "enabled", "budget_tokens": budget}
    asked = call("messages", thinking=thinking, max_tokens=64_000)
    ask(asked, own(gemini="http://h"), "gemini-2.5-pro", wire=wire)
    assert wire.body["generationConfig"]["thinkingConfig"]["thinkingBudget"] == budget


class Watched:
    """Says which thread translates."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def request(self, *args: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        return LIBRARY.get().request(*args)


def test_a_large_body_is_translated_beside_the_event_loop() -> None:
    watched = Watched()
    lane = LitellmLane(Loader(lambda: watched))  # type: ignore[arg-type, return-value]

    async def send(size: int) -> None:
        asked = call("messages", messages=[{"role": "user", "content": "x" * size}])
        await lane.send(asked, Target(own(chat="http://h/v1"), "m", SECRET), FakeWire(b"{}"))

    for size in (2 << 20, 1 << 10):
        asyncio.run(send(size))
    beside, among = watched.threads
    assert (beside != among, among) == (True, threading.main_thread().name)


def test_an_address_of_the_environment_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRADIENT_AI_AGENT_ENDPOINT", "BEDROCK_MANTLE_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "http://elsewhere.invalid")
    wire = FakeWire(b"{}")
    ask(call("chat"), provider("gradient_ai", "https://inference.do-ai.run"), wire=wire)
    assert wire.sent[-1].url == "https://inference.do-ai.run/v1/chat/completions"


def test_what_a_stream_s_reply_loses_is_known_at_its_end() -> None:
    cited = {"type": "citations_delta", "citation": {"type": "web", "cited_text": "x"}}
    block = {"type": "text", "text": ""}
    events = message_events({"type": "text_delta", "text": "a"}, cited, block=block)
    wire = FakeWire(sse(*events, done=False), kind=STREAM)
    heard = ask(call("chat", True, seed=1), own(messages="http://h"), wire=wire)
    assert heard.dropped == ("seed", "citations")


def test_the_placeholder_for_missing_tools_cannot_be_called() -> None:
    tool_call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [tool_call]},
        {"role": "tool", "tool_call_id": "t", "content": "x"},
    ]
    wire = FakeWire(b"{}")
    ask(call("chat", messages=history), own(messages="http://h"), wire=wire)
    assert wire.body["tools"]
    assert wire.body["tool_choice"] == {"type": "none"}


def test_tools_that_are_no_list_are_named() -> None:
    wire = FakeWire(b"{}")
    assert "tools" in ask(call("chat", tools="x"), own(messages="http://h"), wire=wire).dropped


CALL = {"functionCall": {"name": "f"}}


def parts_of_gemini(*parts: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": list(parts)}
    return {"candidates": [{"content": content, "finishReason": "STOP"}]}


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
@pytest.mark.parametrize("bare", [CALL, {"functionCall": {"name": "f", "args": None}}])
def test_a_call_of_gemini_s_without_arguments_is_a_call(dialect: str, bare: Any) -> None:
    reply, to = parts_of_gemini(bare), own(gemini="http://h")
    whole = ask(call(dialect), to, wire=FakeWire(json.dumps(reply).encode()))
    assert whole.reading.kind == Kind.ANSWER
    assert b'"f"' in whole.raw
    wire = FakeWire(sse(reply, done=False), kind=STREAM)
    streamed = ask(call(dialect, True), to, wire=wire)
    assert streamed.tracker.complete
    assert not streamed.tracker.error
    assert b'"f"' in streamed.raw


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_code_that_gemini_has_run_is_named(dialect: str) -> None:
    run = {"executableCode": {"language": "PYTHON", "code": "1"}}
    ran = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
    reply, to = parts_of_gemini({"text": "a"}, run, ran), own(gemini="http://h")
    whole = ask(call(dialect), to, wire=FakeWire(json.dumps(reply).encode()))
    wire = FakeWire(sse(reply, done=False), kind=STREAM)
    streamed = ask(call(dialect, True), to, wire=wire)
    for got in (whole, streamed):
        assert {"executableCode", "codeExecutionResult"} <= set(got.dropped)
