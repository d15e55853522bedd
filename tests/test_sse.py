from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.sse import Event, Splitter, SSEError, encode, with_data

ENDS = st.sampled_from(["\n", "\r\n", "\r"])
LINES = st.one_of(
    st.sampled_from(
        [
            "",
            "",
            "",
            "data",
            "data:",
            "data: ",
            "data:  two",
            'data: {"a":1}',
            "data:tight",
            "data: [DONE]",
            "event: ping",
            "event:",
            "event",
            "event: a: b",
            ": comment",
            ":",
            "id: 7",
            "retry: 10",
            "datax: no",
            " data: no",
            "\ufeffdata: marked",
        ]
    ),
    st.text("dat:e \ufeff\x00é", max_size=6),
)
MIXED = st.lists(st.tuples(LINES, ENDS), max_size=14).map(
    lambda lines: "".join(line + end for line, end in lines)
)
UNIFORM = st.tuples(st.lists(LINES, max_size=14), ENDS).map(
    lambda made: "".join(line + made[1] for line in made[0])
)
STREAMS = st.tuples(st.sampled_from(["", "\ufeff"]), st.one_of(MIXED, UNIFORM), LINES).map(
    lambda parts: "".join(parts).encode()
)


def reference(raw: bytes) -> list[tuple[str, str]]:
    """The events a browser would dispatch, as the standard's rules read."""
    text = raw.decode().removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    events, data, name = [], "", ""
    for line in text.split("\n")[:-1]:
        if line == "":
            if data:
                events.append((name, data.removesuffix("\n")))
            data, name = "", ""
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data += value + "\n"
        elif field == "event":
            name = value
    return events


def cut(raw: bytes, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    longest = chance.choice([1, 2, 5, 50])
    chunks = []
    while raw:
        size = chance.randint(1, longest)
        chunks.append(raw[:size])
        raw = raw[size:]
    return chunks


def split(chunks: list[bytes]) -> list[Event]:
    splitter = Splitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return [*events, *splitter.flush()]


@given(STREAMS, st.integers())
def test_any_stream_in_any_chunks(raw: bytes, seed: int) -> None:
    events = split(cut(raw, seed))
    joined = b"".join(event.raw for event in events)
    assert joined in (raw, raw + b"\n", raw + b"\n\n")
    read = [(e.name.decode(), e.data.decode()) for e in events if e.data is not None]
    assert read == reference(joined)


@given(STREAMS, st.integers())
def test_each_raw_event_stands_for_itself(raw: bytes, seed: int) -> None:
    for place, event in enumerate(split(cut(raw, seed))):
        # A byte order mark counts at the very start only.
        alone = reference(b"\n" + event.raw if place else event.raw)
        assert len(alone) == (event.data is not None)


@given(STREAMS, st.integers())
def test_the_chunks_make_no_difference_to_events(raw: bytes, seed: int) -> None:
    whole = [(e.name, e.data) for e in split([raw] if raw else []) if e.data is not None]
    assert [(e.name, e.data) for e in split(cut(raw, seed)) if e.data is not None] == whole


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_event_is_given_at_its_last_byte(end: str) -> None:
    splitter = Splitter()
    raw = f"event: a{end}data: 1{end}{end}".encode()
    assert [splitter.feed(raw[i : i + 1]) for i in range(len(raw))] == [
        *[[] for _ in raw[1:]],
        [Event(raw, b"a", b"1")],
    ]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a", [(b"data: a\n\n", b"a")]),
        (b"data: a\n", [(b"data: a\n\n", b"a")]),
        (b"data: a\r\n", [(b"data: a\r\n\n", b"a")]),
        (b"data: a\r", [(b"data: a\r\n\n", b"a")]),
        (b"data: a\n\n\n", [(b"data: a\n\n", b"a"), (b"\n", None)]),
        (b"data: a\r\r", [(b"data: a\r\r", b"a")]),
        (b"data: a\r\n\r", [(b"data: a\r\n\r", b"a")]),
        (b": bye", [(b": bye\n\n", None)]),
        (b"data:\n\n", [(b"data:\n\n", b"")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"\xef\xbb\xbfdata: a\n\n", b"a")]),
        (
            b"data: a\n\n\xef\xbb\xbfdata: b\n\n",
            [(b"data: a\n\n", b"a"), (b"\xef\xbb\xbfdata: b\n\n", None)],
        ),
    ],
)
def test_ends_and_marks(stream: bytes, events: list[tuple[bytes, bytes | None]]) -> None:
    assert [(event.raw, event.data) for event in split([stream])] == events


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_an_event_beyond_the_limit_is_refused(piece: int) -> None:
    splitter = Splitter(limit=100)
    assert len(splitter.feed((b"data: " + b"x" * 90 + b"\n\n") * 5)) == 5
    long = b"data: " + b"x" * 100
    with pytest.raises(SSEError, match="longer than 100 bytes"):
        [splitter.feed(long[i : i + piece]) for i in range(0, len(long), piece)]


def test_encode_keeps_the_lines_of_its_data() -> None:
    assert encode(b"a") == b"data: a\n\n"
    assert encode(b"a\nb", "e") == b"event: e\ndata: a\ndata: b\n\n"


@pytest.mark.parametrize(
    ("raw", "data", "becomes"),
    [
        (b"data: old\n\n", b"new", b"data: new\n\n"),
        (b"data:old\r\n\r\n", b"new", b"data:new\r\n\r\n"),
        (
            b": data: old\nevent: e\ndata: old\nid: 1\n\n",
            b"new",
            b": data: old\nevent: e\ndata: new\nid: 1\n\n",
        ),
        (b"\xef\xbb\xbfdata: old\n\n", b"new", b"\xef\xbb\xbfdata: new\n\n"),
        (b"data: a\ndatax\ndata:b\rdata\n\n", b"1\n2\n3", b"data: 1\ndatax\ndata:2\rdata: 3\n\n"),
        (b"event: e\ndata: old\n\n", b"1\n2", b"event: e\ndata: 1\ndata: 2\n\n"),
    ],
)
def test_other_data_in_the_same_lines(raw: bytes, data: bytes, becomes: bytes) -> None:
    event = split([raw])[0]
    assert with_data(event, data) == becomes


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_long_event_of_many_pieces_is_not_looked_at_again_with_each(end: bytes) -> None:
    """Or a provider could keep the event loop busy for minutes with a megabyte."""
    splitter, line = Splitter(), b"data: " + b"x" * 250 + end
    began = time.process_time()
    for _ in range(8192):
        assert splitter.feed(line) == []
        assert time.process_time() - began < 5
    (found,) = splitter.feed(end + b"d")
    assert found.raw == line * 8192 + end
