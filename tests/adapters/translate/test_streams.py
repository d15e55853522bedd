"""Both state machines, judged by the SDKs and by the validators."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from krouter_adapters.litellm_lane.telling import ToChat
from krouter_adapters.litellm_lane.through import Through
from krouter_adapters.litellm_lane.translate import ChatToMessages, MessagesToChat, chat_chunk

from krouter.body import Body
from krouter.dialects import get
from krouter.errors import Evidence, Failure
from krouter.errortext import read_error
from krouter.sse import encode
from krouter.verdict import classify
from tests.adapters.translate.scripts import (
    Script,
    chat_chunks,
    chunk,
    messages_events,
    scripts,
    usage_of,
)
from tests.dialects.streams import JSON, shaped
from tests.validators import Heard, check_chat_stream, check_messages_stream, events


def to_messages(chunks: list[Any], names: dict[str, str] | None = None) -> bytes:
    machine = ChatToMessages(names or {})
    return b"".join([*map(machine.feed, chunks), machine.end()])


def to_chat(happened: list[tuple[str, Any]]) -> bytes:
    machine = Through(MessagesToChat(), ToChat({}), is_chat=True)
    return b"".join(machine.feed(typed(*each)) for each in happened)


def typed(name: str, data: Any) -> Any:
    return {"type": name, **data} if isinstance(data, dict) else data


def call(**fields: Any) -> dict[str, Any]:
    """A piece of a call; `name` and `arguments` go into its function."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return chunk({"tool_calls": [{**fields, "function": function}]})


def ended(*chunks: Any, finish: str = "stop", **more: Any) -> Heard:
    return check_messages_stream(to_messages([*chunks, chunk({}, finish, **more)]))


class Played:
    """SDK clients that are answered with `raw`."""

    def __init__(self) -> None:
        self.raw = b""
        http = httpx2.Client(transport=httpx2.MockTransport(self._answer))
        self.anthropic = anthropic.Anthropic(api_key="k", http_client=http, max_retries=0)
        self.openai = openai.OpenAI(api_key="k", http_client=http, max_retries=0)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=self.raw)

    def message(self, raw: bytes) -> Any:
        self.raw = raw
        asked: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "."}]}
        with self.anthropic.messages.stream(**asked) as stream:
            return stream.get_final_message()

    def completion(self, raw: bytes) -> Any:
        self.raw = raw
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "."}]}
        with self.openai.chat.completions.stream(**asked) as stream:
            return stream.get_final_completion()


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    played = Played()
    with played.anthropic, played.openai:
        yield played


# Chat to messages


@given(st.data())
def test_any_chat_stream_becomes_the_same_message(played: Played, data: st.DataObject) -> None:
    script = data.draw(scripts())
    raw = to_messages(data.draw(chat_chunks(script)))
    heard = check_messages_stream(raw)
    assert heard.ending == "complete"
    assert (heard.thinking, heard.text) == (script.thinking, script.text)
    assert (heard.calls, heard.reason) == (script.calls, script.stop)
    prompt, cached, output = script.usage
    assert heard.usage["input_tokens"] == prompt - cached
    assert heard.usage["cache_read_input_tokens"] == cached
    assert heard.usage["output_tokens"] == output

    message = played.message(raw)
    said = {"text": "", "thinking": ""}
    for block in message.content:
        if block.type in said:
            said[block.type] += getattr(block, block.type)
    calls = [(b.name, b.input) for b in message.content if b.type == "tool_use"]
    assert said == {"text": script.text, "thinking": script.thinking}
    assert calls == script.calls
    assert (message.stop_reason, message.usage.output_tokens) == (script.stop, output)


@given(st.data())
def test_a_cut_chat_stream_is_never_whole(data: st.DataObject) -> None:
    chunks = data.draw(chat_chunks(data.draw(scripts())))
    finish = next(n for n, c in enumerate(chunks) if c["choices"][0]["finish_reason"])
    cut = data.draw(st.integers(0, finish))
    raw = to_messages(chunks[:cut])
    assert not raw or check_messages_stream(raw).ending == "open"


@given(st.lists(st.one_of(JSON, shaped("choices", "delta", "content", "tool_calls", "usage"))))
def test_chunks_of_any_form_never_raise(chunks: list[Any]) -> None:
    assert check_messages_stream(to_messages(chunks)).ending in ("open", "error")


KEYS = (
    "content reasoning thinking_blocks data signature type tool_calls index id function name "
    "arguments refusal function_call"
).split()


@given(st.lists(shaped(*KEYS)), st.sampled_from(["stop", "tool_calls", "length", "odd"]))
def test_deltas_of_any_form_make_a_sound_stream(deltas: list[Any], finish: str) -> None:
    choices = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    raw = to_messages([*choices, chunk({}, finish)])
    assert check_messages_stream(raw).ending in ("complete", "error")


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("tool_calls", "end_turn"),
        ("end_turn", "end_turn"),
        ("eos_token", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("SAFETY", "refusal"),
        ("pause_turn", "pause_turn"),
        ("sensitive", "refusal"),
        ("content-filter", "refusal"),
        ("prompt_blocked", "refusal"),
        ("model_length", "max_tokens"),
        ("repetition_truncation", "max_tokens"),
        ("contextLengthReached", "max_tokens"),
        ("REASON_MAX_LEN", "max_tokens"),
        ("not_finished", "max_tokens"),
        ("token_budget_spent", "max_tokens"),
        ("normal", "end_turn"),
        ("stop_token", "end_turn"),
        ("executed", "end_turn"),
        ("odd", "end_turn"),
    ],
)
def test_finish_reasons_without_calls(finish: str, stop: str) -> None:
    assert ended(chunk({"content": "a"}), finish=finish).reason == stop


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "tool_use"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
    ],
)
def test_finish_reasons_with_calls(finish: str, stop: str) -> None:
    assert ended(call(index=0, id="c", name="f", arguments="{}"), finish=finish).reason == stop


@pytest.mark.parametrize(
    "finish",
    [
        "error",
        "MALFORMED_FUNCTION_CALL",
        "network_error",
        "insufficient_system_resource",
        "abort",
        "upstream_timeout",
        "rate_limit_exceeded",
        "server-error",
    ],
)
def test_a_finish_that_says_broken_is_an_error(finish: str) -> None:
    assert ended(chunk({"content": "a"}), finish=finish).ending == "error"
    text = {"type": "text", "text": "a"}
    assert check_chat_stream(to_chat(happened(text, stop=finish))).ending == "error"


def test_an_odd_finish_without_content_is_an_error() -> None:
    assert ended(chunk({"role": "assistant"}), finish="odd").ending == "error"
    assert check_chat_stream(to_chat(happened(stop="odd"))).ending == "error"


@pytest.mark.parametrize(
    ("arguments", "finish", "ending"),
    [
        ('{"x":"ab', "tool_calls", "error"),
        ('{"x":"ab', "stop", "error"),
        ('{"x":1}</tool_call>', "tool_calls", "error"),
        ("x", "tool_calls", "error"),
        ('{"x":"ab', "length", "complete"),
        ("x", "length", "complete"),
        ('{"x":"ab', "content_filter", "complete"),
    ],
)
def test_no_tool_runs_on_arguments_that_break_off(arguments: str, finish: str, ending: str) -> None:
    raw = to_messages([call(index=0, id="c", name="f", arguments=arguments), chunk({}, finish)])
    assert json.loads(events(raw)[-1].data or b"")["type"] == (
        "error" if ending == "error" else "message_stop"
    )


@pytest.mark.parametrize(
    ("stop", "ending"), [("tool_use", "error"), ("end_turn", "error"), ("max_tokens", "complete")]
)
def test_no_tool_runs_on_input_that_breaks_off(stop: str, ending: str) -> None:
    start = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"x":"ab'}
    told = happened(start, stop=stop)
    told.insert(2, ("content_block_delta", {"index": 0, "delta": delta}))
    assert check_chat_stream(to_chat(told)).ending == ending


def whole(said: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": said, "finish_reason": finish}], **more}


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        ([whole({"role": "assistant", "content": "whole"}, "stop")], "whole"),
        ([whole({"content": "in "}), whole({"content": "pieces"}, "stop")], "in pieces"),
        ([{"choices": [{"index": 0, "text": "old", "finish_reason": "stop"}]}], "old"),
        ([chunk({"content": "once"}), whole({"content": "once"}, "stop")], "once"),
        ([chunk({"role": "assistant"}), whole({"content": "late"}, "stop")], "late"),
    ],
)
def test_a_message_in_place_of_a_delta(chunks: list[Any], text: str) -> None:
    assert check_messages_stream(to_messages(chunks)).text == text


@pytest.mark.parametrize(
    "last",
    [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": True}]},
        {**chunk({}, "stop"), "x_groq": {"usage": True}},
        {**chunk({}, "stop"), "usage": True},
    ],
    ids=["moonshot", "groq", "openai"],
)
def test_usage_is_found_wherever_it_stands(last: dict[str, Any]) -> None:
    counts = '{"prompt_tokens": 5, "completion_tokens": 2}'
    last = json.loads(json.dumps(last).replace('"usage": true', f'"usage": {counts}'))
    heard = check_messages_stream(to_messages([chunk({"content": "a"}), last]))
    assert (heard.usage["input_tokens"], heard.usage["output_tokens"]) == (5, 2)
    tracker = get("chat").tracker(Body.parse(b"{}"), None)
    for event in events(encode(json.dumps(last).encode())):
        tracker.feed(event)
    assert tracker.usage is not None
    assert (tracker.usage.input, tracker.usage.output) == (5, 2)


def test_what_a_stream_loses_is_told() -> None:
    machine = ChatToMessages({})
    lossy = {"content": "a", "images": [{}], "audio": {"id": "a"}}
    lossless = {"choices": [{"index": 0, "delta": lossy, "logprobs": {"content": []}}]}
    for each in (chunk({"content": "x"}), lossless):
        machine.feed(each)
    assert machine.lost == {"images", "audio", "logprobs"}
    back = Through(MessagesToChat(), ToChat({}), is_chat=True)
    cited = {"type": "citations_delta", "citation": {}}
    back.feed({"type": "content_block_delta", "index": 0, "delta": cited})
    for name, data in happened({"type": "server_tool_use"}, {"type": "redacted_thinking"}):
        back.feed(typed(name, data))
    assert back.lost == {"citations", "server_tool_use", "redacted_thinking"}


def test_a_matched_stop_string_is_named() -> None:
    choice = {"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}
    raw = to_messages([chunk({"content": "a"}), {"choices": [choice]}])
    assert check_messages_stream(raw).reason == "stop_sequence"
    assert b'"stop_sequence":"END"' in raw


def test_refusal_is_text_and_a_stop_reason() -> None:
    heard = ended(chunk({"refusal": "I can"}), chunk({"refusal": "not"}))
    assert (heard.text, heard.reason) == ("I cannot", "refusal")


def test_thinking_between_texts_and_parts_of_content() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thinking, {"type": "text", "text": "b"}]
    heard = ended(chunk({"content": "a"}), chunk({"content": parts}))
    assert (heard.text, heard.thinking) == ("ab", "hm")


def test_signatures_of_claude_are_kept() -> None:
    thought = {"type": "thinking", "thinking": "hm"}
    hidden = {"type": "redacted_thinking", "data": "x"}
    heard = ended(
        chunk({"reasoning_content": "hm", "thinking_blocks": [thought]}),
        chunk({"reasoning_content": "", "thinking_blocks": [{**thought, "signature": "s=="}]}),
        chunk({"thinking_blocks": [hidden]}),
        chunk({"content": "a"}),
    )
    assert (heard.thinking, heard.signatures, heard.text) == ("hm", ["s==", "x"], "a")


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([call(index=0, id="a", name="f", arguments='{"x":1}')], [("f", {"x": 1})]),
        ([call(name="f", arguments="{}")], [("f", {})]),
        ([call(index=0, name="f"), call(index=0)], [("f", {})]),
        ([call(index=0, id="a", name="f", arguments=None)], [("f", {})]),
        ([call(index=0, id="a", name="f", arguments="null")], [("f", {})]),
        ([call(index=0, id="a", name="f", arguments={"x": 1})], [("f", {"x": 1})]),
        ([call(index=0, id="a", name="f", arguments='"{\\"x\\":1}"')], [("f", {"x": 1})]),
        ([call(index=0, id="a", name="f", arguments="[1]")], [("f", {"input": [1]})]),
        # The arguments come before the name.
        (
            [call(index=0, id="a", arguments='{"x"'), call(index=0, name="f", arguments=":1}")],
            [("f", {"x": 1})],
        ),
        # The name is in every piece.
        (
            [call(index=0, name="f", arguments='{"x"'), call(index=0, name="f", arguments=":1}")],
            [("f", {"x": 1})],
        ),
        # The name is empty after the first piece.
        (
            [call(index=0, id="a", name="f"), call(index=0, id="a", name="", arguments="{}")],
            [("f", {})],
        ),
        # The name comes in two pieces.
        ([call(index=0, id="a", name="get_"), call(index=0, name="x")], [("get_x", {})]),
        # The name grows.
        ([call(index=0, id="a", name="get_"), call(index=0, name="get_x")], [("get_x", {})]),
        # Whole calls, all with index 0 and no id.
        (
            [call(index=0, name="f", arguments='{"x":1}'), call(index=0, name="f", arguments="{}")],
            [("f", {"x": 1}), ("f", {})],
        ),
        ([call(name="f", arguments="{}"), call(name="g", arguments="{}")], [("f", {}), ("g", {})]),
        # All calls have one id.
        (
            [call(index=n, id="c", name="f", arguments="{}") for n in range(2)],
            [("f", {}), ("f", {})],
        ),
        # A new id for each piece.
        (
            [
                call(index=0, id="a", name="f", arguments='{"x"'),
                call(index=0, id="b", arguments=":1}"),
            ],
            [("f", {"x": 1})],
        ),
        # Two calls in one chunk without index.
        (
            [
                chunk({"tool_calls": [{"function": {"name": n, "arguments": ""}} for n in "fg"]}),
                chunk({"tool_calls": [{"function": {"arguments": "{}"}}] * 2}),
            ],
            [("f", {}), ("g", {})],
        ),
        ([chunk({"function_call": {"name": "f", "arguments": "{}"}})], [("f", {})]),
    ],
)
def test_calls_as_hosts_send_them(pieces: list[Any], calls: list[Any]) -> None:
    heard = ended(*pieces)
    assert (heard.calls, heard.reason) == (calls, "tool_use")


def test_a_call_is_streamed_as_it_comes() -> None:
    machine = ChatToMessages({})
    machine.feed(call(index=0, id="a", name="f", arguments='{"x'))
    assert b"partial_json" in machine.feed(call(index=0, arguments='":1}'))
    assert machine.feed(call(index=1, id="b", name="g", arguments="{")).count(b"event:") == 3


def test_text_after_an_open_call_is_kept() -> None:
    first, last = call(index=0, id="a", name="f", arguments="{"), call(index=0, arguments="}")
    heard = ended(first, chunk({"content": "beside"}), last)
    assert (heard.text, heard.calls) == ("beside", [("f", {})])


def test_a_call_without_a_name_is_an_error() -> None:
    assert ended(call(index=0, id="a", arguments="{}")).ending == "error"


def test_tool_names_come_back_whole_and_ids_fit() -> None:
    odd = call(index=0, id="call|x.1__thought__ab+/=", name="short", arguments="{}")
    raw = to_messages([odd, chunk({}, "stop")], {"short": "a_very_long_name"})
    assert check_messages_stream(raw).calls == [("a_very_long_name", {})]


def test_usage_after_the_finish_reason_and_only_usage() -> None:
    late = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    heard = check_messages_stream(to_messages([chunk({"content": "a"}, "stop"), late]))
    assert heard.usage["input_tokens"] == 5
    assert check_messages_stream(to_messages([late])).ending == "open"


def test_other_choices_are_left_out() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}]}
    raw = to_messages([chunk({"content": "a"}), other])
    heard = check_messages_stream(raw)
    assert heard.ending == "open"
    assert b'"b"' not in raw


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "m", "code": 429}, "rate_limit_error"),
        ({"message": "m", "code": "503"}, "api_error"),
        ({"message": "m", "code": "rate_limit_exceeded"}, "rate_limit_error"),
        ({"message": "m", "type": "overloaded_error"}, "overloaded_error"),
        ({"message": {"message": "m"}}, "api_error"),
        ({"message": "m", "type": ["x"], "code": {}}, "api_error"),
        ("m", "api_error"),
    ],
)
def test_an_error_ends_the_stream(error: Any, kind: str) -> None:
    raw = to_messages([chunk({"content": "a"}), {"error": error}, chunk({}, "stop")])
    assert check_messages_stream(raw).ending == "error"
    told = json.loads(events(raw)[-1].data)["error"]
    assert (told["type"], told["message"]) == (kind, "m")


@pytest.mark.parametrize(
    "error",
    [
        {"code": "insufficient_quota"},
        {"code": "context_length_exceeded", "type": "invalid_request_error"},
        {"code": "unauthenticated"},
        {"code": "model_overloaded"},
        {"code": "content_filter"},
        {"code": "rate_limit_exceeded", "type": "server_error"},
        {"code": 529},
        {"code": "403", "type": "x"},
        {"type": "permission_denied"},
        {"message": "Insufficient balance", "type": "unknown_error"},
    ],
    ids=str,
)
def test_an_error_is_classified_alike_in_both_dialects(error: Any) -> None:
    told = [{"error": {"message": "m", **error}}]
    native = encode(json.dumps(told[0]).encode())
    verdicts = [
        verdict_of("chat", native),
        verdict_of("messages", to_messages(told)),
    ]
    assert verdicts[0] == verdicts[1]


def verdict_of(dialect: str, raw: bytes) -> tuple[Failure, int]:
    tracker = get(dialect).tracker(Body.parse(b"{}"), None)
    for event in events(raw):
        tracker.feed(event)
    text, told = read_error(tracker.error)
    verdict = classify(Evidence(tracker.error_status, text, None, {}, told), b"{}", 0.0)
    return verdict.failure, verdict.status


def test_half_a_surrogate_pair_is_written() -> None:
    assert "\ud83d" in ended(chunk({"content": "a"}), chunk({"content": "\ud83d"})).text


# Messages to chat


@given(st.data())
def test_any_messages_stream_becomes_the_same_completion(
    played: Played, data: st.DataObject
) -> None:
    script = data.draw(scripts())
    raw = to_chat(data.draw(messages_events(script)))
    heard = check_chat_stream(raw)
    assert heard.ending == "complete"
    assert (heard.thinking, heard.text) == (script.thinking, script.text)
    assert (heard.calls, heard.reason) == (script.calls, script.finish)
    prompt, cached, output = script.usage
    assert heard.usage["prompt_tokens"] == prompt
    assert heard.usage["prompt_tokens_details"]["cached_tokens"] == cached
    assert (heard.usage["completion_tokens"], heard.usage["total_tokens"]) == (
        output,
        prompt + output,
    )

    choice = played.completion(raw).choices[0]
    calls = [
        (c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or ()
    ]
    assert (choice.message.content or "") == script.text
    assert (calls, choice.finish_reason) == (script.calls, script.finish)


@given(st.data())
def test_a_cut_messages_stream_is_never_whole(data: st.DataObject) -> None:
    happened = data.draw(messages_events(data.draw(scripts())))
    raw = to_chat(happened[: data.draw(st.integers(0, len(happened) - 1))])
    heard = check_chat_stream(raw)
    assert (heard.ending, heard.reason) == ("open", None)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["message_start", "content_block_delta", "message_delta", "x"]),
            st.one_of(JSON, shaped("type", "message", "delta", "usage", "index", "content_block")),
        )
    )
)
def test_events_of_any_form_never_raise(happened: list[tuple[str, Any]]) -> None:
    assert check_chat_stream(to_chat(happened)).ending in ("open", "error")


@given(st.data())
def test_there_and_back(data: st.DataObject) -> None:
    """Chat to messages to chat keeps text, calls, finish reason and usage."""
    script = data.draw(scripts())
    there = to_messages(data.draw(chat_chunks(script)))
    back = [(e.name.decode(), json.loads(e.data or b"")) for e in events(there)]
    heard = check_chat_stream(to_chat(back))
    assert (heard.text, heard.thinking, heard.calls) == (script.text, script.thinking, script.calls)
    assert heard.reason == script.finish
    assert heard.usage["total_tokens"] == usage_of(script)["total_tokens"]


def happened(*blocks: dict[str, Any], stop: str = "end_turn") -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = [("message_start", {"message": {"id": "msg_1", "model": "m"}})]
    for index, block in enumerate(blocks):
        out.append(("content_block_start", {"index": index, "content_block": block}))
        out.append(("content_block_stop", {"index": index}))
    out.append(("message_delta", {"delta": {"stop_reason": stop}, "usage": {"output_tokens": 3}}))
    return [*out, ("message_stop", {})]


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("compaction", "length"),
        ("refusal", "content_filter"),
        ("tool_use", "tool_calls"),
        ("odd", "stop"),
    ],
)
def test_stop_reasons(stop: str, finish: str) -> None:
    heard = check_chat_stream(to_chat(happened({"type": "text", "text": "a"}, stop=stop)))
    assert (heard.text, heard.reason, heard.ending) == ("a", finish, "complete")


def test_server_tools_are_left_out_and_texts_around_them_kept_apart() -> None:
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "b"},
        {"type": "text", "text": "c"},
    ]
    heard = check_chat_stream(to_chat(happened(*blocks)))
    assert (heard.text, heard.calls) == ("a\n\nbc", [])


def test_input_in_the_block_start() -> None:
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}}
    heard = check_chat_stream(to_chat(happened(block, stop="tool_use")))
    assert heard.calls == [("f", {"x": 1})]


def use(call_id: str, name: str = "f", given: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given or {}}


def begun(block: dict[str, Any], **index: int) -> tuple[str, Any]:
    return ("content_block_start", {**index, "content_block": block})


def piece(text: str, **index: int) -> tuple[str, Any]:
    delta = {"type": "input_json_delta", "partial_json": text}
    return ("content_block_delta", {**index, "delta": delta})


STOPPED = ("content_block_stop", {})


@pytest.mark.parametrize(
    ("told", "calls"),
    [
        # Every block has index 0.
        (
            [
                begun(use("a"), index=0),
                piece('{"x":1}', index=0),
                ("content_block_stop", {"index": 0}),
                begun(use("b", "g"), index=0),
                piece('{"y":2}', index=0),
                ("content_block_stop", {"index": 0}),
            ],
            [("f", {"x": 1}), ("g", {"y": 2})],
        ),
        # The first is not even stopped.
        (
            [begun(use("a"), index=0), begun(use("b", "g"), index=0), piece("{}", index=0)],
            [("f", {}), ("g", {})],
        ),
        # A start comes twice.
        ([begun(use("a"), index=0)] * 2, [("f", {})]),
        # The input comes in the start and again in pieces.
        (
            [begun(use("a", given={"x": 1}), index=0), piece('{"x":1}', index=0)],
            [("f", {"x": 1})],
        ),
        # No index at all.
        (
            [begun(use("a")), piece('{"x"'), piece(":1}"), STOPPED, begun(use("b")), STOPPED],
            [("f", {"x": 1}), ("f", {})],
        ),
        # Pieces of another block's input are not the call's.
        (
            [
                begun(use("a")),
                STOPPED,
                begun({"type": "server_tool_use", "id": "s", "name": "search", "input": {}}),
                piece('{"q":1}'),
                STOPPED,
            ],
            [("f", {})],
        ),
        # Two at a time.
        (
            [
                begun(use("a"), index=0),
                begun(use("b", "g"), index=1),
                piece('{"y":2}', index=1),
                piece('{"x":1}', index=0),
            ],
            [("f", {"x": 1}), ("g", {"y": 2})],
        ),
    ],
)
def test_calls_as_hosts_of_messages_send_them(told: list[Any], calls: list[Any]) -> None:
    around = happened(stop="tool_use")
    heard = check_chat_stream(to_chat([around[0], *told, *around[1:]]))
    assert (heard.calls, heard.reason, heard.ending) == (calls, "tool_calls", "complete")


def test_a_use_without_a_name_is_an_error() -> None:
    assert check_chat_stream(to_chat(happened(use("a", ""), stop="tool_use"))).ending == "error"


def test_names_of_tools_come_back() -> None:
    machine = Through(MessagesToChat(), ToChat({"a_b": "a.b"}), is_chat=True)
    block = {"type": "tool_use", "id": "t", "name": "a_b", "input": {}}
    raw = b"".join(machine.feed(typed(*each)) for each in happened(block, stop="tool_use"))
    assert check_chat_stream(raw).calls == [("a.b", {})]


def test_an_error_event() -> None:
    error = {"type": "overloaded_error", "message": "busy"}
    raw = to_chat([*happened()[:1], ("error", {"error": error}), ("message_stop", {})])
    assert check_chat_stream(raw).ending == "error"
    assert b"busy" in raw


def test_message_stop_without_a_stop_reason_is_no_end() -> None:
    raw = to_chat([*happened()[:1], ("message_stop", {})])
    assert check_chat_stream(raw).ending == "open"


def test_chat_chunk() -> None:
    raw = chat_chunk(chunk({"content": "\ud83d"}))
    assert raw.endswith(b"\n\n")
    assert json.loads(raw[6:])["choices"][0]["delta"]["content"] == "\ud83d"


def test_an_empty_script_is_complete() -> None:
    assert Script().finish == "stop"
    assert ended().ending == "complete"
