"""Requests and whole replies against golden files, and what must hold for any of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from krouter_adapters.litellm_lane.translate import (
    chat_reply_to_messages,
    finish_gemini_request,
    finish_messages_request,
    messages_reply_to_chat,
    messages_to_chat,
    prepare_chat,
    takes,
)
from krouter_adapters.litellm_lane.translate.sealed import seal
from krouter_adapters.litellm_lane.translate.shapes import tool_id_back, tool_id_out

from krouter.dialects import get
from tests.adapters.translate.conftest import Adapt
from tests.adapters.translate.scripts import VALUES, WORDS
from tests.dialects.streams import JSON, shaped
from tests.validators import TOOL_ID

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> list[Any]:
    cases = json.loads((GOLDEN / f"{name}.json").read_text())
    return [pytest.param(case, id=key) for key, case in cases.items()]


@pytest.mark.parametrize("case", golden("messages_to_chat"))
def test_messages_to_chat(case: Any, adapt: Adapt, capsys: pytest.CaptureFixture[str]) -> None:
    given_body = copy.deepcopy(case["input"])
    got = messages_to_chat(given_body, adapt, frozenset(case.get("keep", ())))
    assert got.body == case["output"]
    assert (got.names, got.dropped) == (case["names"], case["dropped"])
    assert given_body == case["input"], "the caller's own object is left as it is"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("form", ["thinking", "sealed"])
def test_a_host_gets_the_thinking_of_its_form(adapt: Adapt, form: str) -> None:
    """Claude's signatures go to Claude, the sealed reasoning of responses to its host."""
    blocks: dict[str, Any] = {
        "thinking": {"type": "thinking", "thinking": "hm", "signature": "claude's"},
        "sealed": {"type": "redacted_thinking", "data": seal("host", [])},
    }
    content = [*blocks.values(), {"type": "text", "text": "hi"}]
    body = {"messages": [{"role": "assistant", "content": content}]}
    got = messages_to_chat(body, adapt, frozenset({form}))
    assert got.body["messages"][0]["thinking_blocks"] == [blocks[form]]
    assert got.dropped == ["thinking of another provider"]


@pytest.mark.parametrize("target", ["chat", "messages", "gemini"])
def test_prepare_chat(target: Any) -> None:
    for case in json.loads((GOLDEN / f"prepare_chat_{target}.json").read_text()).values():
        given_body = copy.deepcopy(case["input"])
        got = prepare_chat(given_body, target)
        assert (got.body, got.dropped) == (case["output"], case["dropped"])
        assert given_body == case["input"], "the caller's own object is left as it is"


@pytest.mark.parametrize("case", golden("finish_messages_request"))
def test_finish_messages_request(case: Any) -> None:
    built = copy.deepcopy(case["input"])
    got, dropped = finish_messages_request(built, case["original"], 128000)
    assert (got, dropped) == (case["output"], case["dropped"])


@pytest.mark.parametrize("case", golden("chat_reply_to_messages"))
def test_chat_reply_to_messages(case: Any) -> None:
    got = chat_reply_to_messages(case["input"], {})
    for block, wanted in zip(got["content"], case["output"]["content"], strict=True):
        if wanted.get("id") == "toolu_made":
            assert TOOL_ID.fullmatch(block["id"])
            block["id"] = "toolu_made"
    assert got == case["output"]


@pytest.mark.parametrize("case", golden("messages_reply_to_chat"))
def test_messages_reply_to_chat(case: Any) -> None:
    got = messages_reply_to_chat(case["input"])
    assert got.pop("created") > 0
    assert {**got, "created": 0} == case["output"]


# What must hold for any conversation


TEXT = st.builds(lambda text: {"type": "text", "text": text}, WORDS)
IMAGE = st.just({"type": "image", "source": {"type": "url", "url": "https://e.com/a.png"}})


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns with text, calls, results and images in any order a messages request may have."""
    out: list[dict[str, Any]] = []
    for turn in range(draw(st.integers(1, 3))):
        out.append({"role": "user", "content": draw(st.one_of(WORDS, st.lists(TEXT, min_size=1)))})
        calls = [
            {"type": "tool_use", "id": f"t{turn}_{n}", "name": "f", "input": draw(VALUES)}
            for n in range(draw(st.integers(0, 3)))
        ]
        said = draw(st.lists(TEXT, max_size=2))
        out.append({"role": "assistant", "content": draw(st.permutations(said + calls))})
        if calls:
            if draw(st.booleans()):
                out.append({"role": "system", "content": draw(WORDS)})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call["id"],
                    "content": draw(st.one_of(WORDS, st.lists(st.one_of(TEXT, IMAGE)))),
                    "is_error": draw(st.booleans()),
                }
                for call in calls
            ]
            around = draw(st.lists(st.one_of(TEXT, IMAGE), max_size=2))
            out.append({"role": "user", "content": draw(st.permutations(results + around))})
    return out


def texts_in(value: Any) -> list[str]:
    """Every text of a conversation, wherever it stands."""
    if isinstance(value, list):
        return [text for item in value for text in texts_in(item)]
    if not isinstance(value, dict):
        return []
    own = [value["text"]] if value.get("type") == "text" else []
    content = value.get("content")
    return own + ([content] if isinstance(content, str) else texts_in(content))


@given(conversations())
def test_no_text_is_lost_and_calls_are_answered_at_once(adapt: Adapt, turns: list[Any]) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": turns}
    out = messages_to_chat(body, adapt).body["messages"]
    whole = "\n".join(texts_in(out))
    assert all(text in whole for text in texts_in(turns))
    assert whole.count("https://") == 0
    images = json.dumps(turns).count('{"type": "image"')
    assert json.dumps(out).count('{"type": "image_url"') == images
    for place, message in enumerate(out):
        ids = [call["id"] for call in message.get("tool_calls", ())]
        answers = out[place + 1 : place + 1 + len(ids)]
        assert sorted(m.get("tool_call_id", "") for m in answers) == sorted(ids)
    assert all(isinstance(m["content"], str) for m in out if m["role"] in ("tool", "system"))


KEYS = (
    "messages system tools tool_choice thinking output_config effort format metadata user_id "
    "stop_sequences top_k type role content text source name input id tool_use_id citations "
    "tool_calls function arguments functions function_call image_url file refusal thinking_blocks "
    "response_format max_tokens user stop custom temperature"
).split()
KINDS = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "tool", "system", "developer", "function"]),
        "type": st.sampled_from(["text", "tool_use", "tool_result", "image", "document", "file"]),
        "content": st.one_of(JSON, shaped(*KEYS)),
        "tool_calls": shaped(*KEYS),
        "source": shaped(*KEYS),
    }
)
BODIES = st.one_of(
    st.dictionaries(st.sampled_from(KEYS), st.one_of(JSON, shaped(*KEYS)), max_size=5),
    st.fixed_dictionaries({"messages": st.lists(KINDS, max_size=3)}),
)


def no_adapt(body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    return body, {}


@given(BODIES)
def test_bodies_of_any_form_never_raise(body: dict[str, Any]) -> None:
    messages_to_chat(body, no_adapt)
    messages_to_chat(body, no_adapt, frozenset(("thinking", "cache_control", "reasoning_content")))
    for target in ("chat", "messages", "gemini", "other"):
        prepare_chat(body, target)  # type: ignore[arg-type]
    finish_messages_request(body, body, None)
    finish_gemini_request(body, body)


REPLY_KEYS = (
    "id model choices message content tool_calls function name arguments finish_reason usage "
    "stop_reason type text thinking input reasoning refusal prompt_tokens prompt_tokens_details"
).split()


@given(st.dictionaries(st.sampled_from(REPLY_KEYS), st.one_of(JSON, shaped(*REPLY_KEYS))))
def test_replies_of_any_form_never_raise(reply: dict[str, Any]) -> None:
    told = chat_reply_to_messages(reply, {}, set())
    assert told.get("type", "nothing") in ("message", "error", "nothing")
    assert messages_reply_to_chat(reply, {}, set()).keys() & {"object", "error"}


@given(st.text())
def test_tool_ids_come_back(call_id: str) -> None:
    out = tool_id_out(call_id)
    assert TOOL_ID.fullmatch(out)
    assert tool_id_back(out) == call_id or not call_id


@pytest.mark.parametrize("call_id", ["toolu_b64_!", "toolu_b64_A", "toolu_b64__w"])
def test_an_id_that_only_looks_wrapped_stays(call_id: str) -> None:
    assert tool_id_back(call_id) == call_id


def test_a_reply_goes_there_and_back() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    message = {"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": [call]}
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": 7,
        "total_tokens": 19,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    reply = {"id": "chatcmpl-1", "model": "m", "choices": [choice], "usage": usage}
    back = messages_reply_to_chat(chat_reply_to_messages(reply, {}))
    got = back["choices"][0]
    assert {key: got["message"][key] for key in message} == message
    assert got["finish_reason"] == "tool_calls"
    assert back["usage"]["total_tokens"] == 19
    assert back["usage"]["prompt_tokens_details"]["cached_tokens"] == 4


def test_names_of_tools_come_back() -> None:
    call = {"id": "c", "function": {"name": "short", "arguments": "{}"}}
    reply = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    message = chat_reply_to_messages(reply, {"short": "long_name"})
    assert message["content"][0]["name"] == "long_name"
    block = {"type": "tool_use", "id": "t", "name": "a_b", "input": {}}
    chat = messages_reply_to_chat({"content": [block]}, {"a_b": "a.b"})
    assert chat["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "a.b"


def completion(message: Any, finish: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish, **more}]}


def calling(arguments: Any, name: str = "f") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"content": None, "tool_calls": [{"id": "c", "function": function}]}


@pytest.mark.parametrize(
    "reply",
    [{"choices": [None]}, completion("said", "stop"), {"choices": "x"}, {}, {"choices": [[]]}],
    ids=str,
)
def test_what_is_no_completion_becomes_no_message(reply: dict[str, Any]) -> None:
    assert chat_reply_to_messages(reply, {}) == {}


@pytest.mark.parametrize(
    ("message", "finish", "stop"),
    [
        ({"content": None}, "content_filter", "refusal"),
        ({"content": "x"}, "sensitive", "refusal"),
        ({"content": None}, "length", "max_tokens"),
        ({"content": "x"}, "repetition_truncation", "max_tokens"),
        ({"content": "x"}, "odd", "end_turn"),
        ({"content": "x"}, None, "end_turn"),
        ({"content": None}, None, None),
        ({"content": ""}, "stop", "end_turn"),
        (calling('{"x":"ab'), "length", "max_tokens"),
        (calling('{"x":"ab'), "content_filter", "refusal"),
        (calling('{"x":1}'), "stop", "tool_use"),
        (calling('{"x":"a\n"}'), "stop", "tool_use"),
        (calling('{"x":NaN}'), "stop", "tool_use"),
        (calling(""), None, "tool_use"),
        ({"content": "x", "tool_calls": [{"function": {"name": ""}}]}, "stop", "end_turn"),
    ],
)
def test_how_a_whole_reply_ends(message: Any, finish: Any, stop: str | None) -> None:
    told = chat_reply_to_messages(completion(message, finish), {})
    assert told["stop_reason"] == stop
    assert all("input" not in block.get("input", ()) for block in told["content"])


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        ({"content": "part"}, "error"),
        ({"content": "part"}, "insufficient_system_resource"),
        ({"content": "part"}, "abort"),
        ({"content": None}, "odd"),
        (calling('{"x":"ab'), "tool_calls"),
        (calling('{"x":"ab'), "stop"),
        (calling('{"x":"ab'), None),
        (calling('{"x":1}</tool_call>'), "stop"),
        (calling("{}", name=""), "tool_calls"),
    ],
)
def test_a_reply_that_was_cut_is_an_error(message: Any, finish: Any) -> None:
    told = chat_reply_to_messages(completion(message, finish), {})
    assert (told["type"], told["error"]["type"]) == ("error", "api_error")
    assert get("messages").read_reply(json.dumps(told).encode()).kind == "error"


def test_the_provider_s_own_words_for_its_failure_are_kept() -> None:
    error = {"code": 429, "message": "busy"}
    told = chat_reply_to_messages(completion({"content": "x"}, "error", error=error), {})
    assert told["error"] == {"type": "rate_limit_error", "code": 429, "message": "busy"}


@pytest.mark.parametrize(
    ("block", "stop"),
    [
        ({"type": "text", "text": "part"}, "network_error"),
        ({"type": "tool_use", "id": "t", "name": "f", "input": '{"x":"ab'}, "tool_use"),
        ({"type": "tool_use", "id": "t", "name": "", "input": {}}, "tool_use"),
    ],
)
def test_a_message_that_was_cut_is_an_error(block: dict[str, Any], stop: str) -> None:
    told = messages_reply_to_chat({"content": [block], "stop_reason": stop})
    assert get("chat").read_reply(json.dumps(told).encode()).kind == "error"


@pytest.mark.parametrize(
    ("stop", "finish"), [(None, None), ("max_tokens", "length"), ("refusal", "content_filter")]
)
def test_an_empty_message_stays_empty(stop: str | None, finish: str | None) -> None:
    told = messages_reply_to_chat({"content": [], "stop_reason": stop})
    assert told["choices"][0]["finish_reason"] == finish
    assert get("chat").read_reply(json.dumps(told).encode()).kind == "empty"


def test_input_as_text_is_read() -> None:
    block = {"type": "tool_use", "id": "t", "name": "f", "input": '{"x":1}'}
    told = messages_reply_to_chat({"content": [block], "stop_reason": "tool_use"})
    assert told["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"x":1}'


def test_what_a_reply_loses_is_told() -> None:
    lost: set[str] = set()
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]
    said = {"content": parts, "audio": {"id": "a"}, "annotations": [{}], "images": []}
    chat_reply_to_messages(completion(said, "stop", logprobs={"content": []}), {}, lost)
    assert lost == {"image_url", "audio", "annotations", "logprobs"}
    lost.clear()
    blocks = [
        {"type": "server_tool_use", "name": "web_search"},
        {"type": "web_search_tool_result", "content": []},
        {"type": "text", "text": "a", "citations": [{}]},
        {"type": "thinking", "thinking": "hm"},
    ]
    messages_reply_to_chat({"content": blocks, "stop_reason": "end_turn"}, {}, lost)
    assert lost == {"server_tool_use", "web_search_tool_result", "citations"}


def test_dropped_names_fit_a_header() -> None:
    body = {"model": "m", "messages": [], "x\r\ny: ü": 1}
    assert messages_to_chat(body, no_adapt).dropped == ["x__y___"]


def test_what_hosts_take() -> None:
    assert takes("deepseek", "deepseek-chat") == {"reasoning_content"}
    assert takes("bedrock", "anthropic.claude-x") == {"thinking", "cache_control", "top_k"}
    assert takes("groq", "llama") == frozenset()
