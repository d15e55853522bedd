from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects import DIALECTS, get
from krouter.dialects.base import Kind
from krouter.dialects.replay import as_stream
from krouter.dialects.visible import visible_text
from tests.dialects.streams import play, shaped
from tests.responses_validator import check_responses_stream
from tests.upstream import Behaviour, Upstream, sse
from tests.upstream.content import Ask, Content
from tests.upstream.replies import DIALECTS as UPSTREAMS
from tests.validators import (
    Heard,
    check_chat_stream,
    check_gemini_stream,
    check_messages_stream,
    events,
)

CHECKS: Mapping[str, Callable[[bytes], Heard]] = {
    "chat": check_chat_stream,
    "messages": check_messages_stream,
    "responses": check_responses_stream,
    "gemini": check_gemini_stream,
}
BODY = Body.parse(b'{"model":"asked","stream":true,"stream_options":{"include_usage":true}}')
PLAIN = Body.parse(b'{"model":"asked"}')
SHORT = {
    "chat": ["length", "content_filter"],
    "messages": ["max_tokens", "stop_sequence", "refusal"],
    "responses": ["max_output_tokens", "content_filter"],
    "gemini": ["MAX_TOKENS", "SAFETY"],
}


def replayed(dialect: str, reply: Any, body: Body = BODY) -> bytes:
    return as_stream(dialect, json.dumps(reply).encode(), body)


def datas(raw: bytes) -> list[Any]:
    return [json.loads(event.data or b"") for event in events(raw) if event.data != b"[DONE]"]


def same_as_streamed(dialect: str, content: Content, finish: str = "") -> Heard:
    """The replay of a whole reply says what the upstream streams of the same."""
    behaviour = Behaviour(finish=finish)
    ask = Ask(dialect, "m", False, True, None, 1, 1, 1)
    reply = UPSTREAMS[dialect].reply(ask, content, behaviour)
    streamed = UPSTREAMS[dialect].events(ask, content, behaviour)
    expected = CHECKS[dialect](b"".join(sse.frame(streamed, frozenset(), True)))
    raw = replayed(dialect, reply)
    heard = CHECKS[dialect](raw)
    assert heard == expected
    assert visible_text(dialect, json.dumps(reply).encode()) in ("", heard.text)
    tracker = get(dialect).tracker(BODY, None)
    assert play(tracker, raw) == raw
    assert tracker.complete
    assert tracker.has_content or not (content.text or content.call or content.thinking)
    reading = get(dialect).read_reply(json.dumps(reply).encode())
    assert (tracker.usage, tuple(tracker.signed)) == (reading.usage, reading.signed)
    return heard


CALL = ("look_up", '{"city": "Łódź", "n": [1.0, 2e5], "deep": {"a": null}}')


@pytest.mark.parametrize("dialect", CHECKS)
@pytest.mark.parametrize("thinking", [None, "So it is."])
@pytest.mark.parametrize("text", [None, "All is well.\n\nReally \U0001f600"])
@pytest.mark.parametrize("call", [None, CALL, ("f", "{}")])
def test_a_replay_says_what_the_reply_says(
    dialect: str, thinking: str | None, text: str | None, call: tuple[str, str] | None
) -> None:
    heard = same_as_streamed(dialect, Content(thinking, text, call, 11, 7))
    assert (heard.ending, heard.text, heard.thinking) == ("complete", text or "", thinking or "")
    assert heard.calls == ([(call[0], json.loads(call[1]))] if call else [])


@pytest.mark.parametrize(
    ("dialect", "finish"), [(name, each) for name, some in SHORT.items() for each in some]
)
def test_a_replay_ends_as_the_reply_did(dialect: str, finish: str) -> None:
    heard = same_as_streamed(dialect, Content("hm", "So far", None, 3, 5), finish)
    assert heard.reason == finish


@given(
    st.sampled_from(list(CHECKS)),
    st.one_of(st.none(), st.text(min_size=1)),
    st.one_of(st.none(), st.text(min_size=1)),
    st.one_of(st.none(), st.dictionaries(st.text(), st.one_of(st.text(), st.integers(0, 9)))),
    st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)),
)
def test_any_content(
    dialect: str,
    thinking: str | None,
    text: str | None,
    arguments: dict[str, Any] | None,
    tokens: tuple[int, int],
) -> None:
    call = None if arguments is None else ("f", json.dumps(arguments))
    same_as_streamed(dialect, Content(thinking, text, call, *tokens))


def test_usage_is_told_to_a_chat_caller_who_asked() -> None:
    reply = {"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": 1}}
    assert check_chat_stream(replayed("chat", reply)).usage == {"prompt_tokens": 1}
    assert b"usage" not in replayed("chat", reply, PLAIN)


def test_what_is_missing_is_made_up_for() -> None:
    chat = {
        "choices": [
            {
                "message": {
                    "content": "a",
                    "tool_calls": [
                        {"function": {"name": "f", "arguments": {"a": 1}}},
                        {"function": {"name": "g"}},
                    ],
                }
            }
        ]
    }
    heard = check_chat_stream(replayed("chat", chat))
    assert (heard.text, heard.calls, heard.reason) == (
        "a",
        [("f", {"a": 1}), ("g", {})],
        "tool_calls",
    )
    messages = {"content": [{"type": "text", "text": "a"}], "usage": {"input_tokens": None}}
    heard = check_messages_stream(replayed("messages", messages))
    assert (heard.text, heard.reason) == ("a", "end_turn")
    assert heard.usage == {"input_tokens": 0, "output_tokens": 0}
    responses = {
        "output": [
            {"type": "message", "content": "a"},
            {"type": "function_call", "name": "f", "arguments": {"a": 1}},
        ]
    }
    heard = check_responses_stream(replayed("responses", responses))
    assert (heard.text, heard.calls, heard.reason) == ("a", [("f", {"a": 1})], "completed")
    for dialect, reply in (("chat", chat), ("messages", messages), ("responses", responses)):
        raw = replayed(dialect, reply)
        assert b'"model":"asked"' in raw
        assert b'"model":""' in replayed(dialect, reply, Body.parse(b"{}"))


def test_every_choice_of_chat() -> None:
    reply = {
        "choices": [
            {"index": at, "message": {"content": f"{at}"}, "finish_reason": "stop"}
            for at in range(3)
        ]
    }
    body = Body.parse(b'{"n":3}')
    raw = replayed("chat", reply, body)
    tracker = get("chat").tracker(body, None)
    assert play(tracker, raw) == raw
    assert tracker.complete
    said = [choice for data in datas(raw) for choice in data["choices"]]
    assert [
        (each["index"], each["delta"]["content"]) for each in said if each["delta"].get("content")
    ] == [(0, "0"), (1, "1"), (2, "2")]


def test_chat_keeps_what_stands_beside_the_text() -> None:
    message = {
        "role": "assistant",
        "content": "a",
        "reasoning": "hm",
        "reasoning_details": [{}],
        "annotations": [{"type": "url_citation"}],
        "images": [{"x": 1}],
        "refusal": None,
    }
    reply = {
        "id": "x",
        "citations": ["u"],
        "choices": [
            {
                "message": message,
                "logprobs": {"content": [1]},
                "finish_reason": "stop",
                "native_finish_reason": "STOP",
            }
        ],
    }
    begun, thought, said, beside, over = datas(replayed("chat", reply))
    choices = [each["choices"][0] for each in (begun, thought, said, beside, over)]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"reasoning": "hm", "reasoning_details": [{}]},
        {"content": "a"},
        {"annotations": [{"type": "url_citation"}], "images": [{"x": 1}]},
        {},
    ]
    assert [choice["logprobs"] for choice in choices] == [None, None, {"content": [1]}, None, None]
    assert choices[-1]["native_finish_reason"] == "STOP"
    assert begun["citations"] == over["citations"] == ["u"]


def test_messages_keeps_what_it_has_no_deltas_for() -> None:
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"x": 1}]}
    cited = {"type": "text", "text": "a", "citations": [{"cited_text": "b"}]}
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    reply = {
        "id": "msg_1",
        "type": "message",
        "model": "m",
        "content": [search, found, "x", cited],
        "container": {"id": "c"},
        "context_management": {"y": 1},
        "stop_reason": "end_turn",
    }
    told = datas(replayed("messages", reply))
    starts = [each["content_block"] for each in told if each["type"] == "content_block_start"]
    assert starts == [{**search, "input": {}}, found, {**cited, "text": "", "citations": []}]
    deltas = [(each["index"], each["delta"]) for each in told if "index" in each if "delta" in each]
    assert deltas == [
        (0, {"type": "input_json_delta", "partial_json": '{"query": "q"}'}),
        (2, {"type": "text_delta", "text": "a"}),
        (2, {"type": "citations_delta", "citation": {"cited_text": "b"}}),
    ]
    assert told[-2]["delta"]["container"] == {"id": "c"}
    assert told[-2]["context_management"] == {"y": 1}


def test_sealed_thinking_of_messages() -> None:
    content = [
        {"type": "redacted_thinking", "data": "c2VhbGVk"},
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "text", "text": "a"},
    ]
    heard = check_messages_stream(replayed("messages", {"type": "message", "content": content}))
    assert (heard.signatures, heard.text) == (["c2VhbGVk", "c2ln"], "a")


@pytest.mark.parametrize("dialect", CHECKS)
def test_a_text_that_is_empty(dialect: str) -> None:
    ask = Ask(dialect, "m", False, True, None, 1, 1, 1)
    content = Content(None, "", ("f", "{}"), 1, 1)
    heard = CHECKS[dialect](replayed(dialect, UPSTREAMS[dialect].reply(ask, content, Behaviour())))
    assert (heard.ending, heard.text, heard.calls) == ("complete", "", [("f", {})])


def test_parts_and_items_of_responses() -> None:
    said = {"type": "output_text", "text": "a", "annotations": [], "logprobs": [{"token": "a"}]}
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": [
            {"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
         "encrypted_content": "c2ln"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "sh", "input": "ls"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [said, {"type": "refusal", "refusal": "no"}]},
    ]  # fmt: skip
    raw = replayed("responses", {"object": "response", "status": "completed", "output": output})
    heard = check_responses_stream(raw)
    assert (heard.text, heard.thinking, heard.calls) == ("ano", "onetwo", [("sh", "ls")])
    assert heard.signatures == ["c2ln"]
    output[1]["status"] = "completed"
    assert datas(raw)[-1]["response"]["output"] == output


def test_responses_keeps_what_it_has_no_deltas_for() -> None:
    cite = {"type": "url_citation", "url": "u"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"q": 1}}
    part = {"type": "output_text", "text": "a", "annotations": [cite]}
    odd = {"type": "output_audio", "data": "A"}
    open_thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    said = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [part, odd],
    }
    output = [search, open_thought, said]
    told = datas(replayed("responses", {"object": "response", "output": [*output, "x"], "y": 1}))
    kinds = [each["type"].removeprefix("response.") for each in told]
    assert kinds == [
        *("created", "in_progress", "output_item.added", "output_item.done"),
        *("output_item.added", "content_part.added", "reasoning_text.delta"),
        *("reasoning_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.annotation.added", "output_text.done", "content_part.done"),
        *("content_part.added", "content_part.done", "output_item.done", "completed"),
    ]
    assert told[2]["item"] == {**search, "status": "in_progress"}
    assert told[-1]["response"]["output"] == output
    assert told[0]["response"]["y"] == told[-1]["response"]["y"] == 1
    assert [each["sequence_number"] for each in told] == [*range(len(told))]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_reply_in_many_lines_is_one_event_line(end: bytes) -> None:
    lines = (
        b"{",
        b'"modelVersion":"m",',
        b'"candidates":[{"content":',
        b'{"parts":[',
        b"",
        b'{"text":"a\\r\\n","x":1.10e5}]},"finishReason":"STOP"}]}',
    )
    raw = as_stream("gemini", end.join(lines), BODY)
    assert raw.startswith(b'data: {"modelVersion":"m","candidates":[')
    assert b'"x":1.10e5' in raw
    assert raw.count(b"\n") == 2
    assert b"\r" not in raw
    assert datas(raw)[0]["candidates"][0]["content"]["parts"][0]["text"] == "a\r\n"


def test_numbers_and_texts_stay_spelled_as_they_came() -> None:
    raw = (
        rb'{"content":[{"type":"tool_use","id":"t","name":"f","input":{"a":1.10e5,"b":"\u00e9"}}]}'
    )
    assert rb'"partial_json":"{\"a\":1.10e5,\"b\":\"\\u00e9\"}"' in as_stream("messages", raw, BODY)


def test_a_reply_that_is_not_quite_json() -> None:
    raw = rb'{"choices":[{"message":{"content":"cut \ud83d"},"x":[NaN,1e999]}]}'
    assert check_chat_stream(as_stream("chat", raw, BODY)).text == "cut \ufffd"


@pytest.mark.parametrize("dialect", CHECKS)
@pytest.mark.parametrize("raw", [b"", b"[]", b"<html>", b"{}", b"\xff", b'{"a":' * 9999])
def test_what_is_no_reply_is_an_error(dialect: str, raw: bytes) -> None:
    assert CHECKS[dialect](as_stream(dialect, raw, BODY)).ending == "error"


@pytest.mark.parametrize(
    ("dialect", "reply"),
    [
        ("chat", {"error": {"message": "broke", "type": "rate_limit_error"}}),
        ("messages", {"type": "error", "error": {"type": "api_error", "message": "broke"}}),
        ("responses", {"object": "response", "status": "failed", "error": {"message": "broke"}}),
        ("gemini", {"error": {"code": 503, "status": "UNAVAILABLE", "message": "broke"}}),
    ],
)
def test_an_error_stays_one(dialect: str, reply: Any) -> None:
    raw = replayed(dialect, reply)
    assert CHECKS[dialect](raw).ending == "error"
    assert b"broke" in raw


NAMES = (
    "choices message content tool_calls function arguments finish_reason usage type text thinking"
    " signature input id name output summary annotations status candidates parts citations model"
).split()


@given(st.sampled_from(list(CHECKS)), shaped(*NAMES))
def test_any_json_is_replayed(dialect: str, reply: Any) -> None:
    raw = replayed(dialect, reply)
    reading = get(dialect).read_reply(json.dumps(reply).encode())
    tracker = get(dialect).tracker(BODY, None)
    play(tracker, raw)
    if reading.kind is Kind.ANSWER and dialect != "gemini":
        assert tracker.complete
    assert tracker.malformed == 0
    assert tracker.started


# The SDKs


def whole(dialect: str) -> dict[str, Any]:
    ask = Ask(dialect, "up", False, True, None, 1, 1, 1)
    told: dict[str, Any] = UPSTREAMS[dialect].reply(
        ask, Content("hm", "All is well.", ("f", '{"a":1}'), 3, 4), Behaviour()
    )
    return told


def test_openais_sdk_reads_a_chat(upstream: Upstream) -> None:
    upstream.script("replay-chat", [Behaviour(body=replayed("chat", whole("chat")))])
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k", max_retries=0)
    with client, client.chat.completions.stream(model="replay-chat", messages=[]) as stream:
        final = stream.get_final_completion()
    message = final.choices[0].message
    assert (message.content, final.choices[0].finish_reason) == ("All is well.", "tool_calls")
    assert message.tool_calls
    assert message.tool_calls[0].function.arguments == '{"a":1}'
    assert final.usage
    assert final.usage.total_tokens == 7


def test_openais_sdk_reads_a_response(upstream: Upstream) -> None:
    reply = whole("responses")
    cite = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    reply["output"][1]["content"][0]["annotations"] = [cite]
    upstream.script("replay-responses", [Behaviour(body=replayed("responses", reply))])
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k", max_retries=0)
    with client, client.responses.stream(model="replay-responses", input="hi") as stream:
        final = stream.get_final_response()
    assert final.output_text == "All is well."
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert (final.status, final.usage and final.usage.total_tokens) == ("completed", 7)


def test_anthropics_sdk_reads_a_message(upstream: Upstream) -> None:
    reply = whole("messages")
    reply["content"][1]["citations"] = [
        {"type": "char_location", "cited_text": "b", "document_index": 0, "document_title": None,
         "start_char_index": 0, "end_char_index": 1}
    ]  # fmt: skip
    upstream.script("replay-messages", [Behaviour(body=replayed("messages", reply))])
    asked: Any = {"model": "replay-messages", "messages": [], "max_tokens": 9}
    client = anthropic.Anthropic(base_url=upstream.url, api_key="k", max_retries=0)
    with client, client.messages.stream(**asked) as stream:
        final = stream.get_final_message()
    told = [block.model_dump(exclude_none=True) for block in final.content]
    assert [block["type"] for block in told] == ["thinking", "text", "tool_use"]
    assert told[0]["signature"] == reply["content"][0]["signature"]
    assert (told[1]["text"], told[1]["citations"][0]["cited_text"]) == ("All is well.", "b")
    assert (told[2]["input"], final.stop_reason) == ({"a": 1}, "tool_use")
    assert (final.usage.input_tokens, final.usage.output_tokens) == (3, 4)


def test_every_dialect_has_a_replay() -> None:
    assert CHECKS.keys() == DIALECTS.keys()
    with pytest.raises(KeyError):
        as_stream("embeddings", b"{}", BODY)
