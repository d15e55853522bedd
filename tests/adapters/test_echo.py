"""Most events of a translated stream are told without being read: as if they had been."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from krouter_adapters.litellm_lane.echo import Echo
from krouter_adapters.litellm_lane.reply import ALIVE, Stream
from krouter_adapters.litellm_lane.telling import Shape
from krouter_adapters.litellm_lane.translate import ChatToMessages
from krouter_adapters.litellm_lane.ways import Aim, Form

from krouter.adapter import Call
from krouter.body import Body
from krouter.dialects import get
from krouter.sse import Event, Splitter
from krouter.wire import Canned, WireError

EVENT = b'event: x\ndata: {"n":1,"content":"@@","end":null}\n\n'


def event(text: str | bytes) -> bytes:
    return EVENT.replace(b"@@", text.encode() if isinstance(text, str) else text)


def peek(asked: Event) -> bytes:
    """Tells the text of an event whose number is 1."""
    told = json.loads(asked.data or b"{}")
    text = json.dumps(told["content"], ensure_ascii=False).encode()
    return b"said: " + text + b".\n" if told.get("n") == 1 else b""


def learnt(chunk: bytes = event("a"), whole: bytes = b"") -> Echo:
    echo = Echo(peek)
    (one,) = Splitter().feed(whole or chunk)
    echo.learn(chunk, one, peek(one))
    return echo


@pytest.mark.parametrize(
    "text", ["b", "Hello, ", "\\n", "\\\\", '\\"}}', "ü", "漢字", "  ", "\x7f"]
)
def test_an_event_with_another_text_is_told(text: str) -> None:
    assert learnt().told(event(text)) == b'said: "' + text.encode() + b'".\n'


def test_several_are_told_at_once() -> None:
    told = learnt().told(event("b") + event("c\\n") + event("d"))
    assert told == b'said: "b".\nsaid: "c\\n".\nsaid: "d".\n'


@pytest.mark.parametrize(
    "other",
    [
        b"",
        event("")[:-1],
        event(""),
        event("b") + event(""),
        event("b") + event("c")[:-1],
        event("b") + b"\n",
        event("b").replace(b"null", b"true"),
        event("b").replace(b"1", b"2"),
        event("b").replace(b"event: x\n", b""),
        event("b").replace(b"\n", b"\r\n"),
        event("b") + event("c").replace(b"1", b"2") + event("d"),
        event('b","m":"c'),
        event("\\"),
        event("\\") + event("n"),
        event("\\x"),
        event("\\/"),
        event("\\u00fc"),
        event("\\ud83d"),
        event("\n"),
        event("\t"),
        event(b"\xff"),
        event(b"\xed\xa0\x80"),
        event("b") + event(b"\xc3") + event(b"\xbc"),
        EVENT[: EVENT.index(b"@@")] + EVENT[EVENT.index(b"@@") + 3 :],
    ],
)
def test_all_others_have_to_be_read(other: bytes) -> None:
    assert learnt().told(other) == b""


@pytest.mark.parametrize(
    "chunk",
    [
        event("a").replace(b"1", b"2"),
        event("a").replace(b'"n"', b'"text":"b","n"'),
        event("a").replace(b'"end"', b'"content":"a","end"'),
        event("a").replace(b"\n", b"\r\n"),
        event("\\u0061"),
        b'data: {"n":1,\ndata: "content":"a"}\n\n',
    ],
)
def test_an_event_is_learnt_only_if_its_text_is_all_that_is_told(chunk: bytes) -> None:
    assert learnt(chunk).told(chunk) == b""


def test_the_rest_of_an_event_is_no_event() -> None:
    rest = event("a").removeprefix(b"event: x\nda")
    assert learnt(rest, event("a")).told(rest) == b""


def test_what_is_learnt_is_forgotten() -> None:
    echo = learnt()
    echo.forget()
    assert echo.told(event("b")) == b""


def test_learning_in_vain_has_an_end_which_a_success_puts_off() -> None:
    asked: list[bytes] = []

    def counted(one: Event) -> bytes:
        asked.append(one.data or b"")
        return peek(one)

    def learn(echo: Echo, chunk: bytes) -> None:
        (one,) = Splitter().feed(chunk)
        echo.learn(chunk, one, peek(one))

    in_vain, echo = event("a").replace(b"1", b"2"), Echo(counted)
    for _ in range(3):
        learn(echo, in_vain)
    learn(echo, event("a"))
    assert echo.told(event("b"))
    for _ in range(9):
        learn(echo, in_vain)
    assert len(asked) == 4 + 4


# Whole streams, as they come and with each event cut in two, which no echo knows.


def stream(chunks: Iterable[bytes], provider: Form, caller: str) -> Stream:
    raw = b'{"model":"m","messages":[],"input":[],"contents":[]}'
    call = Call(get(caller), Body.parse(raw), [], "m", True)
    shape = Shape(Aim("any", "http://h", provider), "m", {}, ())
    return Stream(Canned(200, "text/event-stream", iter(chunks)), call, shape)


def told(chunks: list[bytes], provider: Form, caller: str) -> tuple[bytes, set[str], str]:
    """What a caller gets, what was lost, and what broke it."""

    async def read() -> tuple[bytes, set[str], str]:
        reply = stream(chunks, provider, caller)
        whole, broke = [], ""
        try:
            while piece := await reply.chunk():
                whole.append(piece)
        except WireError as error:
            broke = error.detail
        return _without_chance(b"".join(whole)), set(reply.dropped), broke

    return asyncio.run(read())


def _without_chance(raw: bytes) -> bytes:
    """Times and ids that are made up differ from one run to the next, signs of life by how the
    events come."""
    raw = re.sub(b"(?m)^" + ALIVE, b"", raw)
    raw = re.sub(rb'"created(_at)?":\d+', b'"created":0', raw)
    return re.sub(rb"(?<=[a-z][_-])[0-9a-f]{16,}", b"0", raw)


def halves(chunks: list[bytes]) -> list[bytes]:
    raw = b"".join(chunks)
    ends = [at.end() - 1 for at in re.finditer(rb"\n\n", raw)]
    return [raw[a:b] for a, b in zip([0, *ends], [*ends, len(raw)], strict=True) if b > a]


def _sse(told: Any, name: str = "", ascii: bool = False) -> bytes:
    data = json.dumps(told, ensure_ascii=ascii, separators=(",", ":")).encode("utf-8", "replace")
    return (b"event: %b\n" % name.encode() if name else b"") + b"data: " + data + b"\n\n"


TEXTS = st.text(st.sampled_from('ab {}"\\/\n\t\x01\x7fü漢😀\ud83d'), max_size=6)


def _chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "choices": [choice], **more}


def _chat_odds() -> list[dict[str, Any]]:
    call = {"index": 0, "id": "t1", "function": {"name": "f", "arguments": "{}"}}
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    return [
        _chunk({"reasoning_content": "hm"}),
        _chunk({"content": "x", "reasoning_content": "hm"}),
        _chunk({"content": "x", "annotations": [{"type": "url_citation"}]}),
        _chunk({"tool_calls": [call]}),
        _chunk({"content": "x"}, usage=usage),
        _chunk({"content": "x"}, "stop"),
        _chunk({"content": "x"}, note="y"),
        {"choices": [], "usage": usage},
        {"choices": [{"index": 1, "delta": {"content": "other"}}]},
        {"choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": {"content": []}}]},
        {"choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [{}]}}]},
        {"choices": [{"index": 0, "message": {"content": "x"}}]},
        {"choices": [{"text": "x"}]},
        {"error": {"message": "overloaded", "code": 529}},
    ]


CHAT = st.one_of(
    st.builds(lambda t, a: _sse(_chunk({"content": t}), ascii=a), TEXTS, st.booleans()),
    st.sampled_from([_sse(odd) for odd in _chat_odds()]),
    st.sampled_from([b": alive\n\n", b"data: nonsense\n\n", b"data: [DONE]\n\n"]),
)


def _begun(chunk: dict[str, Any]) -> ChatToMessages:
    machine = ChatToMessages({})
    machine.feed(chunk)
    return machine


@pytest.mark.parametrize("odd", [each for each in _chat_odds() if "note" not in each])
def test_a_chunk_that_tells_more_than_text_is_not_plain(odd: dict[str, Any]) -> None:
    assert _begun(_chunk({"content": "a"})).plain(odd) == ""


def test_a_chunk_is_plain_once_text_is_being_told_in_deltas() -> None:
    plain = _chunk({"content": "x", "refusal": None}, note="y")
    assert _begun(_chunk({"content": "a"})).plain(plain) == "x"
    assert _begun(_chunk({"reasoning_content": "a"})).plain(plain) == ""
    assert _begun({"choices": [{"message": {"content": "a"}}]}).plain(plain) == ""
    closed = _begun(_chunk({"content": "a"}))
    closed.error({"message": "x"})
    assert closed.plain(plain) == ""


def _event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def _delta(delta: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return _event("content_block_delta", index=index, delta=delta)


def _block(block: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return _event("content_block_start", index=index, content_block=block)


_MESSAGES_ODDS = [
    _event("message_start", message={"id": "msg_1", "model": "m"}),
    _block({"type": "text", "text": ""}),
    _block({"type": "text", "text": "x"}, 1),
    _block({"type": "thinking", "thinking": ""}),
    _block({"type": "tool_use", "id": "t1", "name": "f", "input": {}}, 1),
    _block({"type": "web_search_tool_result", "content": []}),
    _delta({"type": "thinking_delta", "thinking": "hm"}),
    _delta({"type": "input_json_delta", "partial_json": "{}"}, 1),
    _delta({"type": "citations_delta", "citation": {}}),
    _delta({"type": "text_delta", "text": "x"}, 1),
    _event("content_block_stop", index=0),
    _event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
    _event("message_stop"),
    _event("error", error={"type": "overloaded_error", "message": "x"}),
]
_START = [_sse(each, each["type"]) for each in _MESSAGES_ODDS[:2]]
MESSAGES = st.one_of(
    st.builds(
        lambda t, n: _sse(_delta({"type": "text_delta", "text": t}), n),
        TEXTS,
        st.sampled_from(["", "content_block_delta"]),
    ),
    st.builds(lambda t: _sse({"index": 0, "delta": {"type": "text_delta", "text": t}}, "y"), TEXTS),
    st.sampled_from([_sse(each, each["type"]) for each in _MESSAGES_ODDS]),
    st.just(b": alive\n\n"),
)


def repeated(events: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Runs of events, two of which may come at once."""
    runs = st.builds(lambda one, times: [one] * times, events, st.integers(1, 4))
    lists = st.lists(runs, min_size=1, max_size=8).map(lambda each: [*chain(*each)])
    return st.builds(lambda some, pair: list(_paired(some, pair)), lists, st.booleans())


def _paired(events: list[bytes], pair: bool) -> Iterator[bytes]:
    half = len(events) // 2 if pair else 0
    yield from events[: len(events) - half]
    if half:
        yield b"".join(events[-half:])


@pytest.mark.parametrize(
    ("provider", "caller", "events"),
    [
        ("chat", "messages", [_sse(_chunk({"content": f"<{n}>"})) for n in range(6)]),
        (
            "messages",
            "chat",
            [_sse(_delta({"type": "text_delta", "text": f"<{n}>"})) for n in range(6)],
        ),
    ],
)
def test_every_text_is_told_once_and_in_its_place(
    provider: Form, caller: str, events: list[bytes]
) -> None:
    for chunks in (events, [*events[:4], b"".join(events[4:])], [b"".join(events)]):
        raw, _, _ = told(chunks, provider, caller)
        assert re.findall(rb"<(\d)>", raw) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert all(json.loads(each.data or b"") for each in Splitter().feed(raw))


@settings(max_examples=150, deadline=None)
@given(repeated(CHAT), st.sampled_from(["messages", "gemini", "responses"]))
@example([_sse(_chunk({"content": text})) for text in "abcd"], "messages")
def test_a_chat_stream_is_told_as_if_each_event_were_read(chunks: list[bytes], to: str) -> None:
    assert told(chunks, "chat", to) == told(halves(chunks), "chat", to)


@settings(max_examples=150, deadline=None)
@given(repeated(MESSAGES), st.sampled_from(["chat", "gemini", "responses"]))
@example([_sse(_delta({"type": "text_delta", "text": text})) for text in "abcd"], "chat")
def test_a_messages_stream_is_told_as_if_each_event_were_read(chunks: list[bytes], to: str) -> None:
    assert told([*_START, *chunks], "messages", to) == told(
        halves([*_START, *chunks]), "messages", to
    )
