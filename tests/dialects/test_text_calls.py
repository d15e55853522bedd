"""Replies to a caller that takes the calls of some tools as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects.base import Kind
from krouter.dialects.chat import CHAT
from krouter.dialects.text_calls import TextCalls
from krouter.sse import Splitter, encode

TEXTS = TextCalls(frozenset(["patch", "note"]))
BODY = Body.parse(b'{"model":"daily","messages":[],"stream":true}')
PATCH = '*** Begin\n+"ä😀"\\d\n'


def reply(*calls: Any, **fields: Any) -> bytes:
    message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return json.dumps({"choices": [choice], "n": 1.50, **fields}).encode()


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (json.dumps({"input": PATCH}), PATCH),
        ({"input": PATCH}, PATCH),
        ({"other": 1}, '{"other":1}'),
        ("raw", "raw"),
        ("{}", "{}"),
        (None, None),
    ],
)
def test_a_whole_reply(arguments: Any, told: Any) -> None:
    raw = reply(call("patch", arguments), call("read", arguments))
    reading = TEXTS.read_reply(raw)
    assert reading.kind is Kind.ANSWER
    shown = raw if reading.shown is None else reading.shown
    first, second = json.loads(shown)["choices"][0]["message"]["tool_calls"]
    assert first == call("patch", told)
    assert second == call("read", arguments)


def test_only_calls_are_edited() -> None:
    raw = reply(call("patch", '{"input":"a"}')).replace(b'"n": 1.5', b'"n" :  1.50E0')
    shown = TEXTS.read_reply(raw).shown
    assert shown is not None
    assert b'"n" :  1.50E0' in shown
    for other in (reply(call("read", '{"input":"a"}')), reply(call("patch", "raw")),
                  b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}',
                  b'{"error":{"message":"no"}}', b"no json"):  # fmt: skip
        assert TEXTS.read_reply(other).shown is None
        assert TEXTS.read_reply(other) == CHAT.read_reply(other)


Piece = tuple[dict[str, Any] | None, str | None]


def chunk(delta: dict[str, Any] | None, finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return encode(json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode())


def piece(arguments: Any, index: int | None = 0, **fields: Any) -> dict[str, Any]:
    function = {**({"name": fields.pop("name")} if "name" in fields else {}),
                "arguments": arguments}  # fmt: skip
    place = {} if index is None else {"index": index}
    return {"tool_calls": [{**place, **fields, "function": function}]}


def streamed(*events: bytes, rename: str | None = None, dialect: Any = TEXTS) -> bytes:
    tracker, out = dialect.tracker(BODY, rename), []
    for event in Splitter().feed(b"".join(events)):
        changed = tracker.feed(event)
        out.append(event.raw if changed is None else changed)
    assert tracker.malformed == 0
    assert tracker.complete
    return b"".join(out)


def heard(stream: bytes, choice: int = 0) -> dict[int, tuple[str, str]]:
    """Name and arguments of each call, as a client puts them together."""
    found: dict[int, tuple[str, str]] = {}
    for event in Splitter().feed(stream):
        if event.data == b"[DONE]" or event.data is None:
            continue
        for each in json.loads(event.data)["choices"]:
            for part in (each["delta"] or {}).get("tool_calls", ()):
                if each["index"] == choice:
                    name, said = found.get(part.get("index", 0), ("", ""))
                    name = part["function"].get("name") or name
                    said += part["function"].get("arguments") or ""
                    found[part.get("index", 0)] = (name, said)
    return found


DONE = b"data: [DONE]\n\n"


@given(st.text(), st.lists(st.integers(0, 60), max_size=8), st.booleans(), st.booleans())
def test_a_stream_cut_anywhere(
    text: str, cuts: list[int], escaped: bool, ends_with_it: bool
) -> None:
    arguments, at, pieces = json.dumps({"input": text}, ensure_ascii=escaped), 0, []
    for cut in [*sorted(cuts), len(arguments)]:
        pieces.append(arguments[at:cut])
        at = max(at, cut)
    deltas = [piece(part) for part in pieces]
    events = [chunk({"role": "assistant"}), chunk(piece("", id="c1", name="patch"))]
    events += [chunk(delta) for delta in deltas[:-1]]
    events.append(chunk(deltas[-1], "tool_calls" if ends_with_it else None))
    events += [] if ends_with_it else [chunk({}, "tool_calls")]
    assert heard(streamed(*events, DONE)) == {0: ("patch", text)}


def test_halves_of_an_emoji_in_the_chunks_themselves() -> None:
    """Some hosts cut their text between the two halves of a pair."""
    stream = streamed(chunk(piece('{"input":"\ud83d', name="patch")), chunk(piece('\ude00"}')),
                      chunk({}, "tool_calls"))  # fmt: skip
    assert heard(stream) == {0: ("patch", "😀")}


def test_what_is_held_back_comes_with_the_end() -> None:
    for finish in ({}, None, piece("", 0)):
        stream = streamed(chunk(piece('{"in', name="patch")), chunk(finish, "length"))
        assert heard(stream) == {0: ("patch", '{"in')}
    cut = streamed(chunk(piece('{"input":"a\\u00', name="patch")), chunk({}, "length"))
    assert heard(cut) == {0: ("patch", r"a\u00")}


@pytest.mark.parametrize("arguments", ['{"input":"*** Be', '{"inp', '{"input":"a\\'])
@pytest.mark.parametrize("finish", ["tool_calls", "length"])
def test_a_text_that_breaks_off_is_said_to(arguments: str, finish: str) -> None:
    """The caller cannot see it from the text, as it could from the JSON."""
    stream = streamed(chunk(piece(arguments, name="patch")), chunk({}, finish))
    last = json.loads(Splitter().feed(stream)[-1].data or b"")
    assert last["choices"][0]["finish_reason"] == "length"
    raw = reply(call("patch", arguments)).replace(b'"tool_calls"}', f'"{finish}"}}'.encode())
    shown = json.loads(TEXTS.read_reply(raw).shown or raw)["choices"][0]
    assert shown["finish_reason"] == "length"
    told = shown["message"]["tool_calls"][0]["function"]["arguments"]
    assert told == heard(stream)[0][1]


def test_several_calls_and_choices() -> None:
    events = [
        chunk(piece('{"input":', 0, id="c1", name="patch")),
        chunk(piece('{"input":"x"}', 1, id="c2", name="read")),
        chunk(piece('{"input":"z"}', 0, id="c3", name="note"), index=1),
        chunk(piece('"y"}', 0)),
        chunk(piece("", 1)),
        chunk({}, "tool_calls"),
        chunk({}, "tool_calls", index=1),
    ]
    stream = streamed(*events)
    assert heard(stream) == {0: ("patch", "y"), 1: ("read", '{"input":"x"}')}
    assert heard(stream, 1) == {0: ("note", "z")}


@pytest.mark.parametrize(
    ("deltas", "told"),
    [
        # Every piece has the name, or the id too.
        ([piece('{"input":"a', name="patch"), piece('b"}', name="patch")], "ab"),
        ([piece('{"input":"a', id="c", name="patch"), piece('b"}', id="c", name="patch")], "ab"),
        # Whole calls without a place, one after another.
        ([piece('{"input":"a"}', None, id="c", name="patch"),
          piece('{"input":"b"}', None, id="d", name="patch")], "ab"),
        ([piece('{"input":"a"}', None, id="c", name="patch"),
          piece('{"input":"b"}', None, id="d", name="read")], 'a{"input":"b"}'),
        # As an object, or not at all at first.
        ([piece({"input": "ab"}, name="patch")], "ab"),
        ([piece(None, name="patch"), piece('{"input":"ab"}', None)], "ab"),
        # Other forms.
        ([piece("ra", name="patch"), piece("w")], "raw"),
        ([piece('{"pa', name="patch"), piece('th":1}')], '{"path":1}'),
    ],
)  # fmt: skip
def test_hosts_ways_of_streaming_calls(deltas: list[Any], told: str) -> None:
    stream = streamed(*map(chunk, deltas), chunk({}, "tool_calls"))
    assert heard(stream)[0][1] == told


def test_a_whole_message_in_a_stream() -> None:
    message = {"role": "assistant", "tool_calls": [call("patch", '{"input":"a"}')]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    out = streamed(encode(json.dumps({"choices": [choice]}).encode()))
    (event,) = Splitter().feed(out)
    told = json.loads(event.data or b"")["choices"][0]["message"]["tool_calls"]
    assert told == [call("patch", "a")]


OTHERS = [
    b": ping\n\n",
    b'data: {"choices" : [{"index":0,"delta":{"content":"\\u00e4"} }],"x":1.0}\n\n',
    b'event: a\ndata: {"choices":[{"delta":{"content":"\\"tool_calls\\""}}]}\n\n',
    chunk(piece('{ "input":"x"}', 1, name="read")),
    chunk(piece("raw", 2, name="patch")),
    chunk({}, "tool_calls"),
    DONE,
]


def test_all_else_stays_the_providers_bytes() -> None:
    assert streamed(*OTHERS) == b"".join(OTHERS)
    assert streamed(*OTHERS, rename="n") == streamed(*OTHERS, rename="n", dialect=CHAT)


def test_the_model_is_named_too() -> None:
    out = streamed(chunk(piece('{"input":"a"}', name="patch")), chunk({}, "stop"), rename="daily")
    assert b'"daily"' in out
    assert b'"m"' not in out
    assert heard(out) == {0: ("patch", "a")}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just("patch"),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(
        "index delta message tool_calls function name arguments id finish_reason".split()), inner),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(JSON))
def test_whatever_comes_is_borne(choices: list[Any]) -> None:
    raw = json.dumps({"choices": [{"delta": {"tool_calls": choices}}, *choices]}).encode()
    TEXTS.read_reply(raw)
    tracker, plain = TEXTS.tracker(BODY, None), CHAT.tracker(BODY, None)
    for event in Splitter().feed(encode(raw) + encode(raw)):
        tracker.feed(event)
        plain.feed(event)
    assert (tracker.malformed, tracker.complete) == (plain.malformed, plain.complete)
