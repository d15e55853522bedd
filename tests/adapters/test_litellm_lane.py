"""The LiteLLM lane by itself: where it goes, what it sends, what it says was lost."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from krouter_adapters.litellm_lane.ways import aim
from msgspec.structs import replace

from krouter.adapter import Unsendable, lane_for, load_lanes
from krouter.dialects.base import Kind
from krouter.providers import Provider
from tests.adapters.lanes import LANE, SECRET, TOOLS, FakeWire, ask, call, own, provider, row
from tests.upstream import Upstream

CHAT_REPLY = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
).encode()
MESSAGES_REPLY = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
).encode()
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)


def image(url: str) -> list[dict[str, Any]]:
    picture = {"type": "image_url", "image_url": {"url": url}}
    return [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, picture]}]


DATA = f"data:image/png;base64,{PIXEL}"


@pytest.mark.parametrize(
    ("to", "name", "body", "url"),
    [
        (row("anthropic"), "anthropic", "messages", "https://api.anthropic.com/v1/messages"),
        (row("cc"), "anthropic", "messages", "https://api.anthropic.com/v1/messages"),
        (row("openai"), "openai", "chat", "https://api.openai.com/v1/chat/completions"),
        (row("groq"), "groq", "chat", "https://api.groq.com/openai/v1/chat/completions"),
        (row("together"), "together_ai", "chat", "https://api.together.ai/v1/chat/completions"),
        (row("kimi-coding"), "anthropic", "messages", "https://api.kimi.com/coding/v1/messages"),
        (row("gemini"), "gemini", "gemini", None),
        (row("cohere_chat"), "cohere_chat", "other", None),
        (row("nano-gpt"), "nano-gpt", "chat", None),
        (own(chat="http://h/v1"), "custom_openai", "chat", "http://h/v1/chat/completions"),
        (own(messages="http://h"), "anthropic", "messages", "http://h/v1/messages"),
        (own(responses="http://h"), "openai", "responses", "http://h/v1/responses"),
    ],
    ids=lambda value: value.name if isinstance(value, Provider) else None,
)  # fmt: skip
def test_where_a_call_goes(to: Provider, name: str, body: str, url: str | None) -> None:
    found = aim(to)
    assert found is not None
    assert (found.name, found.body, found.url) == (name, body, url)


@pytest.mark.parametrize(
    "to", [row("demo"), row("deepgram"), row("azure")],
    ids=lambda to: to.name,
)  # fmt: skip
def test_what_it_cannot_reach(to: Provider) -> None:
    assert aim(to) is None
    assert not LANE.speaks(to, "chat")


@pytest.mark.parametrize(
    ("to", "dialect", "lane"),
    [
        (row("anthropic"), "messages", "native"),
        (row("anthropic"), "chat", "litellm"),
        (row("groq"), "chat", "native"),
        (row("groq"), "messages", "litellm"),
        (row("gemini"), "chat", "native"),
        (row("gemini"), "messages", "litellm"),
        (row("demo"), "chat", "demo"),
        (row("cohere_chat"), "chat", "litellm"),
        (row("cohere_chat"), "responses", "litellm"),
        (row("deepgram"), "chat", None),
    ],
)
def test_the_provider_s_own_dialect_comes_first(
    to: Provider, dialect: str, lane: str | None
) -> None:
    found = lane_for(load_lanes(), to, dialect)
    assert (found.name if found else None) == lane


def test_the_credential_travels_as_the_row_says() -> None:
    wire = FakeWire(b"{}")
    ask(call("chat"), row("cc"), wire=wire)
    headers = dict(wire.sent[0].headers)
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert "x-api-key" not in headers
    assert "oauth-2025-04-20" in headers["anthropic-beta"].split(",")


def test_a_keyless_provider_is_sent_no_key() -> None:
    wire = FakeWire(CHAT_REPLY)
    ask(call("messages"), own(chat="http://h/v1"), secret=None, wire=wire)
    ask(call("chat"), provider("lm_studio", "http://h/v1"), secret=None, wire=wire)
    for request in wire.sent:
        assert not {"authorization", "x-api-key", "api-key"} & {n for n, _ in request.headers}
        assert b"no-key" not in request.body
        assert not [value for _, value in request.headers if "no-key" in value]


MEANT_FOR_THE_MAKER = {
    "Codex": (
        *("x-codex-turn-state", "x-codex-window-id", "x-openai-subagent", "x-client-request-id"),
        *("x-oai-attestation", "x-responsesapi-include-timing-metrics", "session-id", "originator"),
    ),
    "Claude Code": (
        *("x-claude-code-session-id", "x-claude-code-agent-id", "x-claude-remote-session-id"),
        *("x-anthropic-additional-protection", "x-app", "x-stainless-lang", "anthropic-beta"),
    ),
    "Copilot CLI": ("x-github-api-version", "x-copilot-request-id", "x-initiator"),
    "Gemini CLI": ("x-goog-api-client", "x-gemini-api-privileged-user-id"),
}
MEANT_FOR_ANY = {"x-team": "a", "x-session-affinity": "b", "x-apple": "c", "idempotency-key": "d"}


@pytest.mark.parametrize("client", MEANT_FOR_THE_MAKER)
@pytest.mark.parametrize(
    ("dialect", "to", "reply"),
    [
        ("responses", own(chat="http://h/v1"), CHAT_REPLY),
        ("messages", own(chat="http://h/v1"), CHAT_REPLY),
        ("chat", own(messages="http://h"), MESSAGES_REPLY),
    ],
)
def test_what_a_client_tells_its_own_maker_stays_here(
    client: str, dialect: str, to: Provider, reply: bytes
) -> None:
    wire = FakeWire(reply)
    own_words = [(name, "state") for name in MEANT_FOR_THE_MAKER[client]]
    asked = replace(call(dialect), headers=[*own_words, *MEANT_FOR_ANY.items()])
    assert ask(asked, to, wire=wire).status == 200
    sent = dict(wire.sent[0].headers)
    assert "state" not in sent.values()
    assert {name: sent.get(name) for name in MEANT_FOR_ANY} == MEANT_FOR_ANY


def test_litellm_does_not_name_itself() -> None:
    wire = FakeWire(CHAT_REPLY)
    for name in ("perplexity", "novita", "openrouter"):
        ask(call("chat"), provider(name, "http://h/v1"), wire=wire)
    names = {name for request in wire.sent for name, _ in request.headers}
    assert not names & {"x-pplx-integration", "x-novita-source", "http-referer", "x-title"}


def test_a_body_cannot_steer_the_library() -> None:
    wire = FakeWire(CHAT_REPLY)
    steering = {
        "api_base": "http://elsewhere",
        "api_key": "other",
        "custom_llm_provider": "azure",
        "extra_headers": {"x-evil": "1"},
        "extra_body": {"evil": 1},
        "drop_params": False,
        "vertex_credentials": "file",
        "aws_access_key_id": "a",
        "mock_response": "x",
    }
    got = ask(call("chat", **steering), provider("nano-gpt", "http://h/v1"), wire=wire)
    assert set(got.dropped) == set(steering)
    assert wire.sent[0].url.startswith("http://h/v1")
    assert set(wire.body) == {"model", "messages"} or set(wire.body) == {
        "model",
        "messages",
        "stream",
    }
    assert "x-evil" not in dict(wire.sent[0].headers)


def test_tools_are_kept_for_models_litellm_does_not_know() -> None:
    wire = FakeWire(CHAT_REPLY)
    asked = call("chat", tools=TOOLS["chat"], tool_choice="auto", parallel_tool_calls=False)
    got = ask(asked, provider("nano-gpt", "http://h/v1"), wire=wire)
    assert wire.body["tools"] == TOOLS["chat"]
    assert (wire.body["tool_choice"], wire.body["parallel_tool_calls"]) == ("auto", False)
    assert got.dropped == ()


@pytest.mark.parametrize(
    ("name", "fields", "dropped"),
    [
        ("v0", {"temperature": 0.5, "seed": 1}, {"temperature", "seed"}),
        ("gemini", {"logit_bias": {"1": 2}, "user": "u", "seed": 1}, {"logit_bias", "user"}),
        ("cohere_chat", {"logprobs": True, "temperature": 0.5}, {"logprobs"}),
        ("nano-gpt", {"max_completion_tokens": 5, "temperature": 0.5}, set()),
        ("mistral", {"seed": 4}, set()),
    ],
)
def test_what_the_class_drops_is_named(
    name: str, fields: dict[str, Any], dropped: set[str]
) -> None:
    got = ask(call("chat", **fields), provider(name, "http://h/v1"), wire=FakeWire(CHAT_REPLY))
    assert set(got.dropped) == dropped


@pytest.mark.parametrize(
    ("fields", "dropped"),
    [
        ({"parallel_tool_calls": True, "tools": TOOLS["chat"]}, ()),
        ({"n": 2, "logprobs": True, "top_logprobs": 3}, ("logprobs", "n", "top_logprobs")),
        ({"n": 1, "logprobs": False}, ()),
    ],
)
@pytest.mark.parametrize("name", ["vertex_ai", "cohere_chat"])
def test_what_its_reply_could_not_be_read_for_is_named(
    name: str, fields: dict[str, Any], dropped: tuple[str, ...]
) -> None:
    wire = FakeWire(b"{}")
    to = provider(name, "http://h/v2")
    heard = ask(call("chat", **fields), to, "gemini-2.5-pro", wire=wire)
    assert tuple(sorted(set(heard.dropped) - {"parallel_tool_calls"})) == dropped
    if name == "vertex_ai":
        assert "parallel_tool_calls" not in heard.dropped


@pytest.mark.parametrize("stream", [False, True])
def test_the_query_of_a_gemini_address_stays_behind_its_path(stream: bool) -> None:
    wire = FakeWire(b"{}")
    ask(call("chat", stream), own(gemini="http://h/v1beta?tenant=1"), "m", wire=wire)
    path, _, query = wire.sent[-1].url.partition("?")
    assert (
        path
        == f"http://h/v1beta/models/m:{'streamGenerateContent' if stream else 'generateContent'}"
    )
    assert query == ("tenant=1&alt=sse" if stream else "tenant=1")


def test_an_entry_s_params_are_chat_s_whatever_the_caller_speaks() -> None:
    wire = FakeWire(CHAT_REPLY)
    given = {"reasoning_effort": "high", "seed": 7, "max_completion_tokens": 9}
    ask(call("messages"), own(chat="http://h/v1"), "gpt-5", wire=wire, **given)
    assert {name: wire.body.get(name) for name in given} == given
    assert "max_tokens" not in wire.body
    wire = FakeWire(b"{}")
    ask(call("chat", temperature=1), own(messages="http://h"), wire=wire, temperature=0, stop="x")
    assert wire.body["temperature"] == 0
    assert wire.body["stop_sequences"] == ["x"]


def test_anthropic_s_losses_are_named() -> None:
    wire = FakeWire(b"{}")
    asked = call("chat", n=2, seed=1, logit_bias={"1": 2}, temperature=0.5)
    got = ask(asked, own(messages="http://h"), model="claude-sonnet-4-5", wire=wire)
    assert set(got.dropped) == {"n", "seed", "logit_bias"}
    assert wire.body["temperature"] == 0.5


def test_a_messages_caller_hears_its_own_names() -> None:
    asked = call("messages", temperature=0.5, stop_sequences=["x"])
    got = ask(asked, provider("v0", "http://h/v1"), wire=FakeWire(CHAT_REPLY))
    assert "stop_sequences" in got.dropped
    assert "stop" not in got.dropped


@pytest.mark.parametrize("name", ["deepseek", "publicai", "docker_model_runner", "heroku"])
def test_an_image_that_a_class_flattens_away_is_named(name: str) -> None:
    got = ask(
        call("chat", messages=image(DATA)),
        provider(name, "http://h"),
        wire=FakeWire(CHAT_REPLY),
    )
    assert "image" in got.dropped


@pytest.mark.parametrize("name", ["gigachat", "nlp_cloud", "a2a"])
def test_a_text_only_provider_is_given_text(name: str) -> None:
    wire = FakeWire(b"{}")
    got = ask(call("chat", messages=image(DATA)), provider(name, "http://h"), wire=wire)
    assert "image" in got.dropped
    assert PIXEL.encode() not in wire.sent[0].body


def test_an_image_reaches_gemini() -> None:
    wire = FakeWire(b"{}")
    got = ask(call("chat", messages=image(DATA)), provider("gemini", "http://h/v1beta"), wire=wire)
    assert PIXEL in json.dumps(wire.body)
    assert got.dropped == ()


@pytest.mark.parametrize(
    ("name", "model"), [("vertex_ai", "claude-opus-5"), ("clarifai", "not-three-parts")]
)
def test_what_cannot_be_built_says_so(name: str, model: str) -> None:
    with pytest.raises(Unsendable) as caught:
        ask(call("chat"), provider(name, "http://h/v1"), model=model, wire=FakeWire())
    assert name in str(caught.value)


def test_a_thought_s_signature_goes_back_beside_its_call() -> None:
    part = {
        "functionCall": {"name": "weather", "args": {"city": "Oslo"}},
        "thoughtSignature": "c2lnbmF0dXJl",
    }
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    wire = FakeWire(json.dumps({"candidates": [candidate]}).encode())
    to = provider("gemini", "http://h/v1beta")
    first = ask(call("chat", tools=TOOLS["chat"]), to, "gemini-3-pro-preview", wire=wire)
    message = first.json["choices"][0]["message"]
    (tool_call,) = message["tool_calls"]
    assert len(tool_call["id"]) <= 40
    assert "c2lnbmF0dXJl" not in first.raw.decode()
    history = [
        {"role": "user", "content": "hello"},
        message,
        {"role": "tool", "tool_call_id": tool_call["id"], "content": "rain"},
    ]
    asked = call("chat", messages=history, tools=TOOLS["chat"])
    ask(asked, to, "gemini-3-pro-preview", wire=wire)
    sent = [p for content in wire.body["contents"] for p in content["parts"]]
    assert [p["thoughtSignature"] for p in sent if "thoughtSignature" in p] == ["c2lnbmF0dXJl"]


def test_odd_tool_names_come_back_as_they_were() -> None:
    reply = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "tool_use", "id": "t", "name": "get_weather", "input": {}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    wire = FakeWire(json.dumps(reply).encode())
    tool = {"type": "function", "function": {"name": "get.weather", "parameters": {}}}
    got = ask(call("chat", tools=[tool]), own(messages="http://h"), wire=wire)
    sent = wire.body["tools"][0]["name"]
    assert sent == "get_weather"
    (tool_call,) = got.json["choices"][0]["message"]["tool_calls"]
    assert tool_call["function"]["name"] == "get.weather"


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("finish", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_a_reply_that_gemini_calls_failed_is_an_error(dialect: str, finish: str) -> None:
    with Upstream() as up:
        to = provider("gemini", f"{up.url}/v1beta")
        whole = ask(call(dialect), to, f"finish={finish}")
        stream = ask(call(dialect, True), to, f"finish={finish}")
    assert whole.reading.kind is Kind.ERROR
    assert stream.tracker.error
    assert not stream.tracker.complete


@pytest.mark.parametrize(
    "program",
    [
        "import krouter",
        "import contextlib, sys; sys.argv = ['krouter', '--help']\n"
        "from krouter.cli import main\nwith contextlib.suppress(SystemExit): main()",
        "from krouter.adapter import load_lanes, load_rows; rows = load_rows();"
        " [lane.speaks(row, 'chat') for lane in load_lanes() for row in rows]",
    ],
    ids=["import", "help", "lanes"],
)
def test_litellm_is_not_imported_before_it_is_needed(program: str) -> None:
    code = f"{program}\nimport sys; assert 'litellm' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
