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
from krouter.dialects.long import parsed
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


def same(dialect: str, raw: bytes) -> None:
    in_one_go = partial(parsed, dialect, long=0)
    assert read(dialect, in_one_go, raw) == read(dialect, Body.parse, raw)


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
        body = parsed(dialect, written(dialect, "100 kB", "daily"))
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
    assert dialect in parsed(dialect, raw, long=0).outlines
