"""The machines between chat and responses, judged by OpenAI's SDK and by a check of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from krouter_adapters.litellm_lane.through import Through
from krouter_adapters.litellm_lane.translate import (
    ChatToMessages,
    ChatToResponses,
    MessagesToChat,
    ResponsesToChat,
    Told,
    chat_chunk,
    chat_reply_to_responses,
    responses_reply_to_chat,
)
from krouter_adapters.litellm_lane.translate.responses_shapes import echo_of
from krouter_adapters.litellm_lane.translate.sealed import seal, unseal

from krouter.dialects import get
from krouter.dialects.base import Kind
from krouter.dialects.tool_names import Tool
from tests.adapters.translate.responses_check import Responses, heard_in
from tests.adapters.translate.scripts import (
    NAMES,
    WORDS,
    Script,
    chat_chunks,
    chunk,
    messages_events,
    scripts,
    usage_of,
)
from tests.dialects.streams import JSON, shaped
from tests.validators import Heard, check_messages_stream, events

TOLD = Told({"patch": Tool("patch", "custom"), "mcp__fs__read": Tool("read", namespace="mcp__fs")})
TOLD = Told(TOLD.tools, echo_of({}), "host")


def to_responses(chunks: list[Any], told: Told = TOLD) -> bytes:
    machine = ChatToResponses({}, told)
    return b"".join([*map(machine.feed, chunks), machine.end()])


def ended(*chunks: Any, finish: str = "stop", **more: Any) -> Responses:
    return heard_in(to_responses([*chunks, chunk({}, finish, **more)]))


def call(**fields: Any) -> dict[str, Any]:
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return chunk({"tool_calls": [{**fields, "function": function}]})


@pytest.fixture(scope="module")
def played() -> Iterator[Any]:
    """The final response that OpenAI's SDK makes of a stream."""
    raw = [b""]

    def answer(request: httpx2.Request) -> httpx2.Response:
        kind = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=kind, content=raw[0])

    def play(stream: bytes) -> Any:
        raw[0] = stream
        with client.responses.stream(model="m", input=".") as events:
            return events.get_final_response()

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    with openai.OpenAI(api_key="k", http_client=http, max_retries=0) as client:
        yield play


# Chat to responses


@given(st.data())
def test_any_chat_stream_becomes_the_same_response(played: Any, data: st.DataObject) -> None:
    script = data.draw(scripts())
    raw = to_responses(data.draw(chat_chunks(script)))
    heard = heard_in(raw).heard
    assert (heard.ending, heard.reason) == ("complete", "completed")
    assert (heard.thinking, heard.text, heard.calls) == (script.thinking, script.text, script.calls)
    prompt, cached, output = script.usage
    assert (heard.usage["input_tokens"], heard.usage["output_tokens"]) == (prompt, output)
    assert heard.usage["input_tokens_details"]["cached_tokens"] == cached
    response = played(raw)
    assert response.output_text == script.text
    made = [(i.name, json.loads(i.arguments)) for i in response.output if i.type == "function_call"]
    assert made == script.calls


def completion(script: Script) -> dict[str, Any]:
    calls = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(value)},
        }
        for n, (name, value) in enumerate(script.calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": script.text or None}
    message |= {"reasoning_content": script.thinking} if script.thinking else {}
    message |= {"tool_calls": calls} if calls else {}
    choice = {"index": 0, "message": message, "finish_reason": script.finish}
    return {"id": "chatcmpl-1", "model": "m", "choices": [choice], "usage": usage_of(script)}


def bare(value: Any) -> Any:
    """Without ids and times, which are new each time."""
    if isinstance(value, list):
        return [bare(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {k: bare(v) for k, v in value.items() if k not in ("id", "created_at", "call_id")}


@given(scripts(), st.data())
def test_a_whole_reply_says_the_same_as_a_stream(script: Script, data: st.DataObject) -> None:
    whole = chat_reply_to_responses(completion(script), {}, TOLD)
    streamed = heard_in(to_responses(data.draw(chat_chunks(script)))).response
    for response in (whole, streamed):
        for item in response["output"]:
            if "arguments" in item:
                item["arguments"] = json.loads(item["arguments"])
    assert bare(whole) == bare(streamed)


ARGUMENTS = st.sampled_from(['{"a": 1}', '{ "x":"\\u00e9" , "n": 1.50}', '{"a":[1 ,2]}\n', "{}"])


@given(st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=3), st.integers(1, 4))
def test_arguments_pass_byte_for_byte(calls: list[tuple[str, str]], size: int) -> None:
    """From a chat host to a caller of responses and, as a provider of responses, back."""
    chunks = []
    for n, (name, text) in enumerate(calls):
        chunks.append(call(index=n, id=f"c{n}", name=name, arguments=""))
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        chunks += [call(index=n, arguments=piece) for piece in pieces]
    raw = to_responses([*chunks, chunk({}, "tool_calls")])
    items = heard_in(raw).response["output"]
    assert [(i["call_id"], i["name"], i["arguments"]) for i in items] == [
        (f"c{n}", *each) for n, each in enumerate(calls)
    ]
    back = [c for c in read(raw) if c["choices"] and c["choices"][0]["delta"].get("tool_calls")]
    said = [""] * len(calls)
    for each in back:
        (piece,) = each["choices"][0]["delta"]["tool_calls"]
        said[piece["index"]] += piece["function"]["arguments"]
    assert said == [text for _, text in calls]


@given(st.data())
def test_a_cut_chat_stream_is_never_complete(data: st.DataObject) -> None:
    chunks = data.draw(chat_chunks(data.draw(scripts())))
    finish = next(n for n, c in enumerate(chunks) if c["choices"][0]["finish_reason"])
    assert heard_in(to_responses(chunks[: data.draw(st.integers(0, finish))])).heard.ending == (
        "open"
    )


KEYS = (
    "content reasoning thinking_blocks data signature type tool_calls index id function name "
    "arguments refusal function_call annotations"
).split()


@given(st.lists(shaped(*KEYS)), st.sampled_from(["stop", "tool_calls", "length", "odd", "error"]))
def test_deltas_of_any_form_make_a_sound_stream(deltas: list[Any], finish: str) -> None:
    choices = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    raw = to_responses([*choices, chunk({}, finish)])
    assert heard_in(raw).heard.ending in ("complete", "error")


@given(st.lists(st.one_of(JSON, shaped("choices", "delta", "content", "tool_calls", "usage"))))
def test_chunks_of_any_form_never_raise(chunks: list[Any]) -> None:
    assert heard_in(to_responses(chunks)).heard.ending in ("open", "error")


@pytest.mark.parametrize(
    ("finish", "reason", "details"),
    [
        ("stop", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        ("model_length", "incomplete", "max_output_tokens"),
        ("odd", "completed", None),
    ],
)
def test_how_a_reply_ends(finish: str, reason: str, details: str | None) -> None:
    got = ended(chunk({"content": "a"}), finish=finish)
    assert got.heard.reason == reason
    assert (got.response["incomplete_details"] or {}).get("reason") == details
    assert got.done[0]["status"] == ("completed" if reason == "completed" else "incomplete")


@pytest.mark.parametrize(
    ("arguments", "finish", "ending"),
    [
        ('{"x":"ab', "tool_calls", "error"),
        ('{"x":"ab', "length", "complete"),
        ("x", "stop", "error"),
        ("x", "length", "complete"),
    ],
)
@pytest.mark.parametrize("name", ["f", "patch"])
def test_no_tool_runs_on_arguments_that_break_off(
    name: str, arguments: str, finish: str, ending: str
) -> None:
    got = ended(call(index=0, id="c", name=name, arguments=arguments), finish=finish)
    assert got.heard.ending == ending
    assert all(item["status"] == "incomplete" for item in got.done)


@pytest.mark.parametrize(
    ("arguments", "given_text"),
    [
        ('{"input":"*** Begin\\n+ä"}', "*** Begin\n+ä"),
        ('{"input":""}', ""),
        ('{"patch":"x"}', '{"patch":"x"}'),
        ("plain", ""),
    ],
)
def test_a_custom_tool_gets_its_text(arguments: str, given_text: str) -> None:
    finish = "length" if arguments == "plain" else "tool_calls"
    got = ended(call(index=0, id="c", name="patch", arguments=arguments), finish=finish)
    (item,) = got.done
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "patch", given_text)


def test_a_tool_of_a_namespace_comes_back_in_it() -> None:
    got = ended(call(index=0, id="c", name="mcp__fs__read", arguments="{}"))
    assert (got.done[0]["namespace"], got.done[0]["name"]) == ("mcp__fs", "read")


def test_a_refusal_and_citations() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "u", "title": "t"}}
    got = ended(chunk({"content": "a"}), chunk({"annotations": [cited]}), chunk({"refusal": "no"}))
    text, refusal = (item["content"][0] for item in got.done)
    assert text["annotations"] == [{"type": "url_citation", "url": "u", "title": "t"}]
    assert refusal == {"type": "refusal", "refusal": "no"}


def test_an_error_says_what_the_host_said() -> None:
    error = {"message": "slow down", "type": "rate_limit_error", "code": 429, "resets_in": 7}
    raw = to_responses(
        [
            chunk({"content": "a"}, usage={"prompt_tokens": 3, "completion_tokens": 2}),
            {"error": error},
        ]
    )
    failed = json.loads(events(raw)[-1].data or b"")["response"]
    assert failed["error"]["code"] == "rate_limit_exceeded"
    assert (failed["error"]["message"], failed["error"]["resets_in"]) == ("slow down", 7)
    assert failed["usage"]["output_tokens"] == 2


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}, Kind.ANSWER),
        ({"choices": [{"message": {"content": None}, "finish_reason": None}]}, Kind.EMPTY),
        ({"choices": [{"message": {"content": None}, "finish_reason": "length"}]}, Kind.EMPTY),
        ({"choices": [{"message": {"content": "a"}, "finish_reason": "error"}]}, Kind.ERROR),
        ({"choices": []}, Kind.EMPTY),
        ({"choices": [{"message": "said"}]}, Kind.GARBAGE),
        ({"x": 1}, Kind.GARBAGE),
    ],
)
def test_a_whole_completion_is_judged(reply: Any, kind: Kind) -> None:
    made = chat_reply_to_responses(reply, {}, TOLD)
    assert get("responses").read_reply(json.dumps(made).encode()).kind == kind


# Messages through chat to responses


@given(st.data())
def test_any_messages_stream_becomes_the_same_response(data: st.DataObject) -> None:
    script = data.draw(scripts())
    machine = Through(MessagesToChat(signed=True), ChatToResponses({}, TOLD))
    told = data.draw(messages_events(script))
    got = heard_in(b"".join(machine.feed(event) for _, event in told))
    assert got.heard.reason == "completed"
    assert (got.heard.thinking, got.heard.text) == (script.thinking, script.text)
    assert got.heard.calls == script.calls
    for sealed in got.heard.signatures:
        assert unseal("another", sealed) == []
        thought = {"type": "thinking", "thinking": script.thinking, "signature": "s=="}
        assert unseal("host", sealed) == [thought]


# Responses to chat


def read(raw: bytes, signed: bool = False) -> list[Any]:
    reader = ResponsesToChat("host", signed=signed)
    return [c for e in events(raw) for c in reader.feed(json.loads(e.data or b""))]


def through(raw: bytes) -> Heard:
    machine = Through(ResponsesToChat("host", signed=True), ChatToMessages({}))
    told = [machine.feed(json.loads(event.data or b"")) for event in events(raw)]
    return check_messages_stream(b"".join(told))


@given(st.data())
def test_any_response_becomes_the_same_message(data: st.DataObject) -> None:
    script = data.draw(scripts())
    raw = to_responses(data.draw(chat_chunks(script)))
    heard = through(raw)
    assert (heard.ending, heard.reason) == ("complete", script.stop)
    assert (heard.thinking, heard.text, heard.calls) == (script.thinking, script.text, script.calls)
    prompt, cached, output = script.usage
    assert heard.usage["input_tokens"] == prompt - cached
    assert (heard.usage["cache_read_input_tokens"], heard.usage["output_tokens"]) == (
        cached,
        output,
    )
    last = json.loads(events(raw)[-1].data or b"")["response"]
    for sealed in heard.signatures:
        (item,) = unseal("host", sealed)
        assert item["encrypted_content"] == last["output"][0]["encrypted_content"]


@given(st.data())
def test_a_whole_response_says_the_same_as_its_stream(data: st.DataObject) -> None:
    raw = to_responses(data.draw(chat_chunks(data.draw(scripts()))))
    response = json.loads(events(raw)[-1].data or b"")["response"]
    whole = responses_reply_to_chat(response, "host", signed=False)
    message, chunks = whole["choices"][0]["message"], read(raw)
    deltas = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
    for key in ("content", "reasoning_content"):
        assert (message.get(key) or "") == "".join(delta.get(key) or "" for delta in deltas)
    assert whole["usage"] == chunks[-1]["usage"]
    assert whole["choices"][0]["finish_reason"] == chunks[-2]["choices"][0]["finish_reason"]
    assert len(message.get("tool_calls", ())) == len(
        {c["tool_calls"][0]["index"] for c in deltas if c.get("tool_calls")}
    )


@given(st.data())
def test_a_host_that_sends_whole_items_only_loses_nothing(data: st.DataObject) -> None:
    script = data.draw(scripts())
    told = [json.loads(e.data or b"") for e in events(to_responses(data.draw(chat_chunks(script))))]
    kept = data.draw(st.sampled_from([("created", "output_item.done"), ("created",), ()]))
    names = {f"response.{name}" for name in (*kept, "completed")}
    machine = Through(ResponsesToChat("host", signed=True), ChatToMessages({}))
    raw = b"".join(machine.feed(event) for event in told if event["type"] in names)
    heard = check_messages_stream(raw)
    assert (heard.thinking, heard.text, heard.calls) == (script.thinking, script.text, script.calls)


@given(st.data())
def test_a_cut_response_is_never_whole(data: st.DataObject) -> None:
    told = events(to_responses(data.draw(chat_chunks(data.draw(scripts())))))
    cut = told[: data.draw(st.integers(0, len(told) - 1))]
    reader = ResponsesToChat("host", signed=True)
    chunks = [c for e in cut for c in reader.feed(json.loads(e.data or b""))]
    assert not reader.closed
    assert all(c["choices"] and c["choices"][0]["finish_reason"] is None for c in chunks)


EVENTS = st.sampled_from(
    [
        f"response.{name}"
        for name in (
            "created output_text.delta output_item.added output_item.done completed failed"
            " function_call_arguments.delta reasoning_text.delta incomplete"
        ).split()
    ]
)


@given(st.lists(st.tuples(EVENTS, shaped("item", "output_index", "delta", "response", "name"))))
def test_events_of_any_form_never_raise(told: list[Any]) -> None:
    machine = Through(ResponsesToChat("host", signed=True), ChatToMessages({}))
    given_events = [
        {**(fields if isinstance(fields, dict) else {}), "type": k} for k, fields in told
    ]
    raw = b"".join(map(machine.feed, given_events))
    assert check_messages_stream(raw).ending in ("open", "complete", "error")


INCOMPLETE = {"status": "incomplete"}


@pytest.mark.parametrize(
    ("last", "finish"),
    [
        ({"status": "completed"}, "stop"),
        ({"incomplete_details": {"reason": "max_output_tokens"}, **INCOMPLETE}, "length"),
        ({"incomplete_details": {"reason": "content_filter"}, **INCOMPLETE}, "content_filter"),
        ({"status": "incomplete"}, "length"),
        ({"status": "failed", "error": {"code": "server_error", "message": "x"}}, None),
        ({"status": "cancelled"}, None),
        ({"status": "in_progress"}, None),
        ({"output": [{"type": "message", "content": [{"type": "output_text", "text": "x"}]}]},
         "stop"),
    ],
)  # fmt: skip
def test_how_a_response_ends(last: dict[str, Any], finish: str | None) -> None:
    reply = {"object": "response", "output": [], **last}
    got = responses_reply_to_chat(reply, "host", signed=False)
    assert (got.get("choices") or [{}])[0].get("finish_reason") == finish
    assert ("error" in got) is (finish is None)


@pytest.mark.parametrize("output", [None, [], [{"type": "message", "content": []}]])
def test_a_response_that_says_nothing_has_no_finish_reason(output: Any) -> None:
    got = responses_reply_to_chat({"object": "response", "output": output}, "host", signed=False)
    assert got["choices"][0]["finish_reason"] is None


def test_reasoning_that_says_nothing_in_the_clear_is_kept() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"}
    text = {"type": "message", "content": [{"type": "output_text", "text": "a"}]}
    response = {"status": "completed", "output": [item, text]}
    event = {"type": "response.completed", "response": response}
    machine = Through(ResponsesToChat("host", signed=True), ChatToMessages({}))
    heard = check_messages_stream(machine.feed(event))
    (sealed,) = heard.signatures
    assert unseal("host", sealed)[0]["encrypted_content"] == "E"


def test_what_a_response_loses_is_named() -> None:
    output = [{"type": "web_search_call", "id": "ws"}, {"type": "mcp_call"}]
    lost: set[str] = set()
    responses_reply_to_chat({"status": "completed", "output": output}, "m", signed=False, lost=lost)
    assert lost == {"web_search_call", "mcp_call"}


@given(WORDS, st.lists(st.dictionaries(WORDS, WORDS), max_size=2))
def test_a_seal_opens_for_its_maker_alone(maker: str, items: list[Any]) -> None:
    sealed = seal(maker, items)
    assert unseal(maker, sealed) == items
    assert unseal(maker + "x", sealed) == []
    assert unseal(maker, sealed[: len(sealed) // 2]) in ([], items)
    assert unseal(maker, chat_chunk({}).decode()) == []


# What LiteLLM's own bridges lose or garble (and clients break on), one by one


def test_items_are_told_one_after_another() -> None:
    """LiteLLM's bridge closes the text only after the calls, and tells of calls late."""
    machine = ChatToResponses({}, TOLD)
    machine.feed(chunk({"content": "a"}))
    begun = machine.feed(call(index=0, id="c", name="f", arguments='{"x'))
    names = [event.name.decode() for event in events(begun)]
    assert names.index("response.output_item.done") < names.index("response.output_item.added")
    assert names[-1] == "response.function_call_arguments.delta"


def test_every_event_of_a_text_is_told_as_it_comes() -> None:
    """LiteLLM's stream of responses is a fake one for some hosts."""
    machine = ChatToResponses({}, TOLD)
    machine.feed(chunk({"content": "a"}))
    for text in ("b", "c"):
        (event,) = events(machine.feed(chunk({"content": text})))
        assert json.loads(event.data or b"")["delta"] == text


def test_usage_and_output_are_never_null() -> None:
    """Without usage opencode asks again and again; without output Copilot fails."""
    got = ended(chunk({"content": "a"}))
    assert got.response["usage"]["input_tokens_details"] == {
        "cached_tokens": 0,
        "cache_write_tokens": 0,
    }
    assert got.response["output"]


def test_reasoning_tokens_are_counted() -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 3}}
    usage = {"prompt_tokens": 5, "completion_tokens": 7, **details}
    got = ended(chunk({"content": "a"}), usage=usage)
    assert got.heard.usage["output_tokens_details"] == {"reasoning_tokens": 3}
    raw = to_responses([chunk({"content": "a"}), chunk({}, "stop", usage=usage)])
    assert read(raw)[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}


def test_what_the_sdk_reads_of_the_request_is_there(played: Any) -> None:
    tools = [{"type": "function", "name": "f", "parameters": {}, "strict": False}]
    told = Told({}, echo_of({"tools": tools, "tool_choice": "required", "temperature": 0.5}), "h")
    response = played(to_responses([chunk({"content": "a"}), chunk({}, "stop")], told))
    assert (response.tools[0].name, response.tool_choice) == ("f", "required")
    assert (response.temperature, response.parallel_tool_calls) == (0.5, True)
    assert response.id.startswith("resp_")


def test_ids_stay_the_same_from_event_to_event() -> None:
    told = [
        json.loads(e.data or b"")
        for e in events(
            to_responses([call(index=0, id="c", name="f", arguments="{}"), chunk({}, "stop")])
        )
    ]
    ids = {e.get("item_id") or e["item"]["id"] for e in told if "item_id" in e or "item" in e}
    assert len(ids) == 1
    assert len({event["response"]["id"] for event in told if "response" in event}) == 1


def test_pieces_of_an_item_that_is_done_are_left_out() -> None:
    reader = ResponsesToChat("host", signed=False)
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    late = {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{}"}
    done = {"type": "response.output_item.done", "output_index": 0, "item": call}
    assert list(reader.feed(done))
    assert list(reader.feed(late)) == []


@given(st.data())
def test_nothing_is_told_twice_however_the_whole_is_numbered(data: st.DataObject) -> None:
    raw = to_responses(data.draw(chat_chunks(data.draw(scripts()))))
    told = [json.loads(event.data or b"") for event in events(raw)]
    output = told[-1]["response"]["output"]
    left_out = data.draw(st.sampled_from(["reasoning", "message", "function_call", ""]))
    output[:] = [item for item in output if item["type"] != left_out]
    if data.draw(st.booleans()):  # some hosts make ids for each event
        for at, item in enumerate(output):
            item["id"] = f"other_{at}"

    def without_head(chunks: list[Any]) -> list[Any]:
        return [chunk["choices"] for chunk in chunks]

    reader = ResponsesToChat("host", signed=True)
    got = [chunk for event in told for chunk in reader.feed(event)]
    assert without_head(got) == without_head(read(raw, signed=True))


def test_what_only_the_whole_holds_is_told() -> None:
    """Under a number that another item had in the stream."""
    reader = ResponsesToChat("host", signed=False)
    first = {"type": "function_call", "id": "f", "call_id": "a", "name": "look", "arguments": "{}"}
    second = {**first, "call_id": "b"}
    said = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "hi"}]}
    events = [{"type": "response.output_item.done", "output_index": 0, "item": first}]
    events += [{"type": "response.completed", "response": {"output": [second, said, first]}}]
    deltas = [c["choices"][0]["delta"] for e in events for c in reader.feed(e) if c["choices"]]
    calls = [call["id"] for d in deltas for call in d.get("tool_calls", ()) if "id" in call]
    assert calls == ["a", "b"]
    assert "".join(delta.get("content") or "" for delta in deltas) == "hi"
