from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.dialects.alike import Alike, text_in

TEXT = text_in("content", "arguments")


def event(text: str, **more: object) -> bytes:
    told = {"id": "x", "delta": {"content": text}, "end": None} | more
    return b"data: " + json.dumps(told).encode() + b"\n\n"


def alike(*, of: bytes = event("a")) -> Alike:
    made = Alike(TEXT)
    made.learn(of)
    return made


@given(st.lists(st.text(max_size=5)), st.booleans())
def test_events_with_another_text_are_alike(texts: list[str], spaced: bool) -> None:
    events = b"".join(map(event, texts))
    if not spaced:
        events = events.replace(b'": ', b'":')
    known = alike(of=event("a") if spaced else event("a").replace(b'": ', b'":'))
    assert known.size(events) == len(events)


@pytest.mark.parametrize(
    "other",
    [
        event("a", end="stop"),
        event("a", id="y"),
        event("a")[:-3] + b" }\n\n",
        event("a").replace(b'"a"', b'"a","x":"b"'),
        event("a").replace(b'"a"', b'"\\"'),
        event("a").replace(b'"a"', b'"\\x"'),
        event("a").replace(b'"a"', b'"\\u12"'),
        event("a").replace(b'"a"', b'"a\tb"'),
        event("a").replace(b'"a"', b'"a\n\n"'),
        event("a").replace(b'"a"', b"1"),
        b": alive\n\n",
        b"data: [DONE]\n\n",
        b"event: x\n" + event("a"),
    ],
)
def test_all_others_are_not(other: bytes) -> None:
    known = alike()
    assert known.size(other) == 0
    assert known.size(event("b") + other + event("c")) == len(event("b"))
    assert known.size(other + event("c")) == 0


def test_half_an_escape_is_not_made_whole_by_the_next_event() -> None:
    halves = event("a").replace(b'"a"', b'"\\"') + event("n")
    assert alike().size(halves) == 0


@pytest.mark.parametrize(
    "odd",
    [
        event(""),
        b'data: {"content": 1}\n\n',
        b'data: {"x": "\\"content\\": \\"b\\""}\n\n',
        b'data: {"content": "a", "long": "%b"}\n\n' % (b"x" * 100),
    ],
)
def test_only_what_has_a_text_in_a_field_is_learned(odd: bytes) -> None:
    assert alike(of=odd).size(odd) == 0


@given(st.text(), st.text())
def test_what_is_alike_is_the_same_json_but_for_the_text(name: str, text: str) -> None:
    """Whatever stands in the names and texts around it."""
    first = {name: '"content": "', "x": [{"arguments": "a"}], text: None}
    second = {name: '"content": "', "x": [{"arguments": text}], text: None}
    one, other = (b"data: " + json.dumps(each).encode() + b"\n\n" for each in (first, second))
    if alike(of=one).size(other):
        assert json.loads(other[6:]) == second
