"""A long body that is read in one go is the body that it is otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bodies import body as written
from krouter.body import Body, BodyError
from krouter.dialects.cursor import as_chat
from krouter.dialects.long import KEPT, MOST_KEPT, Seen, parsed
from krouter.dialects.outline import outline

SAID = st.sampled_from(
    [
        '"a"',
        '"],\\"tools\\":["',
        "null",
        '[{"type":"text","text":"é"}]',
        '[{"type":"tool_use","id":"c"}]',
        '[{"messages":[{"role":"user"}],"tools":[{}]}]',
    ]
)
MESSAGE = st.one_of(
    SAID.map(lambda said: f'{{"role":"user","content":{said}}}'),
    SAID.map(lambda said: f'{{"role":"user","parts":{said}}}'),
    st.sampled_from(["7", "{}", '{"role":"user","role":"tool"}', '{"type":"function_call"}']),
)
TOOL = st.sampled_from(
    [
        '{"type":"function","function":{"name":"f"}}',
        '{"name":"flat"}',
        '{"function":{"required":["a"],"tools":["b"]}}',
        "1",
    ]
)


def listed(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.lists(values, max_size=3).map(lambda made: f"[{','.join(made)}]")
    return st.one_of(lists, lists, st.sampled_from(["[ ]", "[]", "{}", '"[]"', "1"]))


CONVERSATIONS = st.lists(
    SAID.map(lambda said: f'{{"role":"user","content":{said}}}'), max_size=3
).map(lambda made: f"[{','.join(made)}]")
MESSAGES, TOOLS = listed(MESSAGE), listed(TOOL)
OTHER = st.one_of(
    st.sampled_from(['"m"', "true", "1e5", "[]", '["a"]', '{"tools":[1],"messages":[2]}']),
    MESSAGES,
    TOOLS,
)
NAMES = ["messages", "contents", "input", "tools"]
ODD_NAMES = [
    "model",
    "system",
    "stream",
    "stop",
    'x\\"messages',
    "mess\\u0061ges",
    "t\\u006fols",
    "é",
    "",
]
COLON = st.sampled_from([":"] * 9 + [" :", ": "])
MEMBER = st.one_of(
    st.tuples(st.sampled_from(NAMES[:3]), COLON, MESSAGES),
    st.tuples(st.just("tools"), COLON, TOOLS),
    st.tuples(st.sampled_from(NAMES + ODD_NAMES), COLON, OTHER),
)


def joined(members: list[tuple[str, str, str]]) -> bytes:
    told = ",".join(f'"{name}"{colon}{value}' for name, colon, value in members)
    return f"{{{told}}}".encode()


USUAL = st.tuples(
    st.lists(MEMBER, max_size=1),
    st.tuples(st.sampled_from(NAMES[:1] * 2 + NAMES[:3]), st.just(":"), CONVERSATIONS),
    st.lists(st.tuples(st.just("system"), st.just(":"), OTHER), max_size=1),
    st.tuples(st.just("tools"), st.just(":"), TOOLS),
    st.lists(MEMBER, max_size=1),
).map(lambda made: [*made[0], made[1], *made[2], made[3], *made[4]])
DIALECTS = ["chat", "chat", "messages", "responses", "gemini"]
BODIES = st.one_of(USUAL, USUAL, st.lists(MEMBER, max_size=5)).map(joined)


def looks(dialect: str, body: Body) -> Any:
    """All that is known of a body."""
    fields = [(name, bytes(value)) for name, value in body.fields.items()]
    return (
        body.raw,
        fields,
        outline(dialect, body),
        dialect == "chat" and is_foreign(body),
        [body.edited({name: "other"}) for name in ("model", "tools", "new")],
        body.edited({"model": 1}, ("messages", "stop")),
    )


def is_foreign(body: Body) -> bool | str:
    try:
        return as_chat(body).body is not body
    except Exception as error:  # a body that cannot be put in chat's form
        return repr(error)


def read(dialect: str, parse: Callable[[bytes], Body], raw: bytes) -> Any:
    try:
        body = parse(raw)
    except BodyError as error:
        return str(error)
    return looks(dialect, body)


def same(dialect: str, *raws: bytes) -> None:
    """Each is read as if it were the only one."""
    in_one_go = partial(parsed, dialect, seen=seen_all())
    for raw in raws:
        assert read(dialect, in_one_go, raw) == read(dialect, Body.parse, raw)


def seen_all() -> Seen:
    """Which keeps what it can of every body."""
    return Seen(long=0, much=0)


@given(st.sampled_from(DIALECTS), BODIES)
@settings(max_examples=300)
def test_a_body_is_the_same_however_it_is_read(dialect: str, raw: bytes) -> None:
    same(dialect, raw)


@given(st.sampled_from(DIALECTS), BODIES, st.data())
def test_a_damaged_body_is_as_damaged_however_it_is_read(
    dialect: str, raw: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(raw)))
    to = data.draw(st.integers(at, min(at + 3, len(raw))))
    put = data.draw(st.sampled_from([b"", b"}", b"]", b"[", b'"', b",", b"\\", b"\xff", b"\x01"]))
    same(dialect, raw[:at] + put + raw[to:])


@pytest.mark.parametrize(
    "raw",
    [
        b'{"x\\"messages":[{"role":"user"}],"tools":[{}],"messages": []}',
        b'{"messages":[{"role":"user"}],"tools":[{}],"messages":[]}',
        b'{"x\\"messages":[{"role":"user"}],"tools":[{}],"messages":[],"n":1}',
        b'{"messages":[{"role":"user"}],"tools":[{}],"messages":[],"n":1}',
        b'{"a":{"messages":[{"role":"user"}],"tools":[{}]},"messages":[],"n":1}',
        b'{"messages":[{"role":"user"}],"tools":[{}],"n":1,"messages": [7]}',
        b'{"messages":[],"messages":[{"role":"user"}],"tools":[{"name":"flat"}]}',
        b'{"mess\\u0061ges":[],"messages":[{"role":"user"}],"tools":[{}]}',
        b'{"metadata":{"messages":[{"role":"user"}],"tools":[{}]},"messages":[]}',
        b'{"messages":[{"role":"user"}],"tools":[{}],"stop":["a"]}',
        b'{"messages":[{"role":"user"}],"tools":[{"required":["a"],"tools":["b"]}]}',
        b'{"messages":[{"role":"user"}],"tools":[{}]} ',
        b'{"messages":[{"role":"user"}]],"tools":[{}]}',
        b'{"messages":[{"role":"user"}],"tools":[{}]]}',
    ],
)
def test_what_looks_like_a_conversation_is_not_taken_for_it(raw: bytes) -> None:
    same("chat", raw)


def test_a_coding_agents_body_is_read_in_one_go() -> None:
    for dialect in ("chat", "messages"):
        body = parsed(dialect, written(dialect, "100 kB", "daily"), Seen())
        assert dialect in body.outlines
        same(dialect, body.raw)


@pytest.mark.parametrize(
    ("dialect", "raw"),
    [
        ("chat", b'{"model":"m","messages":[{"role":"user"}],"tools":[{}],"stream":true}'),
        ("messages", b'{"model":"m","messages":[{"role":"user"}],"system":[{}],"tools":[{}]}'),
        ("messages", b'{"model":"m","messages":[{"role":"user"}],"system":"a","tools":[{}]}'),
        ("messages", b'{"system":[{}],"messages":[{"role":"user"}],"tools":[{}],"stream":true}'),
        ("responses", b'{"instructions":"a","input":[{"role":"user"}],"tools":[{}],"n":1}'),
    ],
)
def test_what_clients_write_is_read_in_one_go(dialect: str, raw: bytes) -> None:
    assert dialect in parsed(dialect, raw, seen_all()).outlines


ITEM = st.sampled_from(
    [
        '{"role":"user","content":"a"}',
        '{"role":"user","content":[{"type":"text","text":"é"}]}',
        '{"role":"assistant","content":[{"role":"user","content":"b"},{"role":"user"}]}',
        '{"role":"tool","content":"],\\"tools\\":["}',
        "7",
    ]
)
ENDS = ["", ',"n":1', ',"stream":true,"stop":["a"]', "}", ',"tools":[]']


@st.composite
def turns_of_a_client(draw: st.DrawFn) -> list[bytes]:
    """A conversation that grows, and at times is another one, with tools that are mostly the
    same; what is sent is not always whole."""
    said: list[str] = draw(st.lists(ITEM, min_size=4, max_size=8))
    bodies = []
    for _ in range(draw(st.integers(2, 4))):
        said = [*said[draw(st.sampled_from([0, 0, 0, 1])) :], *draw(st.lists(ITEM, max_size=3))]
        tools = ",".join(draw(st.sampled_from([['{"name":"f"}', "1"], ['{"function":{}}'], []])))
        told = "[" + ",".join(said) + draw(st.sampled_from(["]"] * 8 + [",]", "]]", ""]))
        end = draw(st.sampled_from(ENDS))
        raw = f'{{"model":"m","messages":{told},"tools":[{tools}]{end}}}'.encode()
        at = draw(st.integers(0, len(raw)))
        bodies.append(raw if draw(st.integers(0, 5)) else raw[:at] + b"\xff" + raw[at:])
    return bodies


@given(st.sampled_from(["chat", "messages"]), turns_of_a_client())
@settings(max_examples=300)
def test_a_body_is_the_same_whatever_was_read_before(dialect: str, raws: list[bytes]) -> None:
    same(dialect, *raws)


ALSO = ["", "", "", "g"]


def talk(*said: str, tools: str = '{"name":"f"}', end: str = "") -> bytes:
    told = ",".join(f'{{"role":"user","content":"{each}"}}' for each in said)
    return f'{{"messages":[{told}],"tools":[{tools}]{end}}}'.encode()


def test_what_was_said_before_is_not_read_again() -> None:
    seen = seen_all()
    said = [outline("chat", parsed("chat", talk(*"abcdef", *new), seen)) or [] for new in ALSO]
    assert [len(each) for each in said] == [6, 6, 6, 7]
    assert said[1][0] is said[2][0] is said[3][0]
    other = outline("chat", parsed("chat", talk(*"xbcdef"), seen)) or []
    assert other[0] is not said[3][0]


def test_the_last_items_may_be_sent_otherwise_with_the_next_turn() -> None:
    seen = seen_all()
    for said in ("abcdefgh", "abcdXYZWi"):
        same("chat", talk(*said))
        parsed("chat", talk(*said), seen)
    again = outline("chat", parsed("chat", talk(*"abcdXYZWij"), seen)) or []
    assert [bytes(item.content) for item, _ in again] == [  # type: ignore[arg-type]
        f'"{each}"'.encode() for each in "abcdXYZWij"
    ]


@pytest.mark.parametrize("end", ENDS[:3])
def test_tools_are_known_wherever_they_stand(end: str) -> None:
    seen = seen_all()
    parsed("chat", talk("a", end=',"x":1'), seen)
    body = parsed("chat", talk("b", "c", end=end), seen)
    assert body.outlines["tools"] is True
    assert bytes(body.fields["tools"]) == b'[{"name":"f"}]'


@pytest.mark.parametrize(
    "raw",
    [
        talk(*"abcdef").replace(b',{"role":"user","content":"f"}]', b",]"),
        talk(*"abcdef").replace(b',{"role":"user","content":"f"}]', b",,7]"),
        talk(*"abcdef").replace(b'"f"}]', b'"f"}'),
        talk(*"abcdef").replace(b'"f"', b'"\xff"'),
        talk(*"abcdef", end=',"n":"X"').replace(b'"X"', b'"\xff"'),
        talk(*"abcdef")[:-1],
        talk(*"abcdef") + b"}",
        talk(*"abcdef", end=',"messages":[]'),
        talk(*"abcdef", end=',"tools":[]'),
        b'{"n":' + talk(*"abcdef") + b"}",
    ],
)
def test_nothing_is_known_of_what_only_begins_alike(raw: bytes) -> None:
    same("chat", talk(*"abcdefgh"), talk(*"abcdefghi"), raw, talk(*"abcdefghij"))


@pytest.mark.parametrize(
    ("known", "raw"),
    [
        (b"[A,A,A,A,A]", b"[A1A,A,A,A,A]"),
        (b"[ A,A,A,A]", b"[,A,A,A,A]"),
        (b"[A,A, A,A,A,A]", b"[A,A,,A,A,A,A]"),
        (b"[A,A,A,A,A]", b"[A,]"),
        (b"[A,A,A,A,A]", b"[A]"),
    ],
)
def test_what_is_known_and_what_is_new_make_a_list(known: bytes, raw: bytes) -> None:
    bodies = (talk("a").replace(b'[{"role":"user","content":"a"}]', each) for each in (known, raw))
    same("chat", *(each.replace(b"A", b'{"role":"user","content":"a"}') for each in bodies))


def test_no_more_is_kept_than_so_much() -> None:
    seen = Seen(long=0, much=0)
    for number in range(2 * KEPT):
        parsed("chat", talk(str(number), *"abcde", tools=f'{{"name":"f{number}"}}'), seen)
    assert seen.sizes[0] == seen.sizes[1] == KEPT
    for number in range(8):
        parsed("chat", talk(str(number), "a" * 900_000, *"bcde"), seen)
    parsed("chat", talk("a" * MOST_KEPT, *"bcde"), seen)
    assert seen.sizes[1] == 4
