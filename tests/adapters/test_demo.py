from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from krouter_adapters.demo import Demo, last_text, reply_text

from krouter.adapter import Call, Target
from krouter.body import Body
from krouter.dialects import DIALECTS, get
from krouter.dialects.base import Kind
from krouter.errors import Fault
from krouter.providers import Provider
from krouter.sse import Splitter
from krouter.wire import HttpWire, Incoming, WireError
from tests.dialects.streams import play
from tests.harness import Krouter

DEMO = Provider("demo", speaks=("chat", "messages"), builtin=True)
SAID = "hello “you”"


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    with Krouter(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def chat(krouter: Krouter) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{krouter.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def messages(krouter: Krouter) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=krouter.url, api_key="none", max_retries=0) as client:
        yield client


def asked(**fields: Any) -> Any:
    return {"model": "demo", "messages": [{"role": "user", "content": SAID}], **fields}


def test_a_chat_completion(chat: openai.OpenAI) -> None:
    reply = chat.chat.completions.create(**asked())
    assert (reply.object, len(reply.choices)) == ("chat.completion", 1)
    assert reply.id.startswith("chatcmpl-demo-")
    assert reply.created > 1_700_000_000
    assert reply.model
    choice = reply.choices[0]
    assert (choice.index, choice.finish_reason, choice.message.role) == (0, "stop", "assistant")
    assert choice.message.content == reply_text(SAID)
    assert reply.usage is not None
    assert reply.usage.completion_tokens == len(reply_text(SAID).split(" "))
    assert reply.usage.prompt_tokens > 0
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


@pytest.mark.parametrize("include_usage", [False, True])
def test_a_streamed_chat_completion(chat: openai.OpenAI, include_usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    with chat.chat.completions.create(**asked(stream=True, **options)) as stream:
        chunks = list(stream)
    whole = chat.chat.completions.create(**asked())
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert (chunks[0].model, chunks[0].object) == (whole.model, "chat.completion.chunk")
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert told[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in told) == reply_text(SAID)
    assert [choice.finish_reason for choice in told] == [None] * (len(told) - 1) + ["stop"]
    usage = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usage) == include_usage
    assert not include_usage or (chunks[-1].usage, chunks[-1].choices) == (usage[0], [])


def test_the_openai_sdks_own_reading_of_a_stream(chat: openai.OpenAI) -> None:
    with chat.chat.completions.stream(**asked()) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == reply_text(SAID)
    assert final.choices[0].finish_reason == "stop"


def test_a_chat_stream_ends_with_done(krouter: Krouter) -> None:
    assert krouter.chat("demo", stream=True).text.endswith("\n\ndata: [DONE]\n\n")


def test_a_message(messages: anthropic.Anthropic) -> None:
    reply = messages.messages.create(**asked(max_tokens=9))
    assert reply.id.startswith("msg_demo_")
    assert (reply.type, reply.role, reply.model) == ("message", "assistant", "demo")
    assert (reply.stop_reason, reply.stop_sequence) == ("end_turn", None)
    assert [(block.type, block.text) for block in reply.content] == [("text", reply_text(SAID))]
    assert reply.usage.input_tokens > 0
    assert reply.usage.output_tokens == len(reply_text(SAID).split(" "))


def test_a_streamed_message(messages: anthropic.Anthropic) -> None:
    with messages.messages.stream(**asked(max_tokens=9)) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    whole = messages.messages.create(**asked(max_tokens=9))
    assert final.id.startswith("msg_demo_")
    assert final.model_dump(exclude={"id", "usage"}) == whole.model_dump(exclude={"id", "usage"})
    assert final.usage.output_tokens == whole.usage.output_tokens
    raw = [kind for kind in kinds if kind not in ("text", "content_block_delta")]
    assert raw == [
        *("message_start", "content_block_start", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]


def test_every_event_of_a_message_is_whole(krouter: Krouter) -> None:
    text = krouter.messages("demo", stream=True).text
    events = [block.split("\n") for block in text.removesuffix("\n\n").split("\n\n")]
    for name, data in events:
        assert json.loads(data.removeprefix("data: "))["type"] == name.removeprefix("event: ")
    start = json.loads(events[0][1].removeprefix("data: "))["message"]
    assert start["usage"].keys() >= {"input_tokens", "output_tokens"}
    assert (start["content"], start["stop_reason"]) == ([], None)


@pytest.mark.parametrize("stream", [False, True])
def test_two_replies_have_two_ids(krouter: Krouter, stream: bool) -> None:
    assert krouter.chat("demo", stream).text != krouter.chat("demo", stream).text


async def answer(dialect: str, raw: bytes) -> Incoming:
    body = Body.parse(raw)
    call = Call(get(dialect), body, [], "demo", body.value("stream") is True)
    return await Demo().send(call, Target(DEMO, "hello"), HttpWire())


async def whole(reply: Incoming) -> bytes:
    return b"".join([piece async for piece in pieces(reply)])


async def pieces(reply: Incoming) -> Any:
    while piece := await reply.chunk():
        yield piece


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize(
    "messages",
    [
        *(b"[]", b"null", b"{}", b'"hi"', b"[null]", b'[{"role":"user"}]'),
        *(b'[{"role":"user","content":7}]', b'[{"role":"user","content":[null,{"text":1}]}]'),
        b'[{"role":"user","content":[{"type":"text","text":"a\\nb"},{"type":"image"}]}]',
        b'[{"role":"user","content":"\\u0000\\u2028\\r\\ndata: x\\n\\n"}]',
        b'[{"role":"user","content":"' + b"long " * 100_000 + b'"}]',
    ],
)
def test_whatever_is_asked_is_answered(dialect: str, messages: bytes) -> None:
    raw = b'{"model":"demo","messages":' + messages
    reading = get(dialect).read_reply(asyncio.run(both(dialect, raw + b"}")))
    assert reading.kind is Kind.ANSWER
    assert reading.usage is not None
    assert min(reading.usage.input, reading.usage.output) > 0
    streamed = asyncio.run(both(dialect, raw + b',"stream":true}'))
    live = get(dialect).tracker(Body.parse(raw + b"}"), None)
    play(live, streamed)
    assert (live.complete, live.closed, live.malformed) == (True, True, 0)
    assert live.usage is not None


async def both(dialect: str, raw: bytes) -> bytes:
    return await whole(await answer(dialect, raw))


def test_what_the_last_user_said() -> None:
    turns = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "mine"},
    ]
    assert last_text(turns) == "b"
    reminder = {"type": "text", "text": "<system-reminder>\nBe kind.\n</system-reminder>"}
    for blocks in ([reminder, {"text": "mine"}], [{"text": "mine"}, reminder]):
        assert last_text([{"role": "user", "content": blocks}]) == "mine"
    assert last_text([{"role": "user", "content": [{"type": "tool_result"}]}]) == ""
    assert len(reply_text("x" * 1000)) < 500


def test_a_canned_reply_is_read_within_its_limit_and_can_be_closed() -> None:
    async def test() -> None:
        raw = b'{"model":"demo","messages":[]}'
        assert json.loads(await (await answer("chat", raw)).read(1 << 20))["model"] == "hello"
        with pytest.raises(WireError) as caught:
            await (await answer("chat", raw)).read(10)
        assert caught.value.fault is Fault.GARBAGE
        reply = await answer("chat", raw)
        reply.close()
        assert await reply.chunk() == b""

    asyncio.run(test())


def test_what_the_lane_takes() -> None:
    assert Demo().speaks(DEMO, "chat")
    assert not Demo().speaks(DEMO, "embeddings")
    assert not Demo().speaks(Provider("own", base_urls={"chat": "http://h"}), "chat")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_speaks_every_dialect(dialect: str) -> None:
    said = {"messages": "hi", "input": "hi", "contents": [{"parts": [{"text": "hi"}]}]}
    raw = json.dumps({"model": "demo", **said}).encode()
    reading = get(dialect).read_reply(asyncio.run(both(dialect, raw)))
    assert reading.kind is Kind.ANSWER
    body = Body.parse(raw)
    live = get(dialect).tracker(body, None)
    streamed = Call(get(dialect), body, [], "demo", True)

    async def events() -> bytes:
        return await whole(await Demo().send(streamed, Target(DEMO, "hello"), HttpWire()))

    for event in Splitter().feed(asyncio.run(events())):
        live.feed(event)
    assert live.complete
    assert live.usage is not None


def test_what_is_built_in_costs_nothing(krouter: Krouter) -> None:
    """Not an unknown price."""
    krouter.chat("demo")
    assert krouter.last_route["usage"]["output"] > 0
    assert (krouter.last_route["cost"], krouter.last_route["unpriced"]) == (0.0, 0)
