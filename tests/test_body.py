from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body, BodyError, dump

BLANKS = st.text(" \t\n\r", max_size=2)
NUMBERS = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.sampled_from(["1E5", "1e+05", "-0", "-0.0", "1.50", "0.1e-7", "12345678901234567890.0"]),
)
ESCAPED = st.sampled_from(
    ["\\u0041", "\\n", "\\/", '\\"', "\\\\", "\\ud83d\\ude00", "é", "😀", "/"]
)
TEXTS = st.lists(st.one_of(ESCAPED, st.sampled_from("abc{}[]:,")), max_size=4).map(
    lambda parts: f'"{"".join(parts)}"'
)


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.lists(values, max_size=3), BLANKS).map(
        lambda made: f"[{made[1]}{f'{made[1]},'.join(made[0])}{made[1]}]"
    )


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.lists(st.tuples(TEXTS, BLANKS, values), max_size=3), BLANKS).map(write)


def write(made: tuple[list[tuple[str, str, str]], str]) -> str:
    members, blank = made
    body = ",".join(f"{blank}{name}{gap}:{gap}{value}{gap}" for name, gap, value in members)
    return f"{{{blank}{body}}}"


VALUES = st.recursive(
    st.one_of(NUMBERS, TEXTS, st.sampled_from(["true", "false", "null"])),
    lambda inner: st.one_of(arrays(inner), objects(inner)),
    max_leaves=8,
)
OBJECTS = st.tuples(BLANKS, objects(VALUES), BLANKS).map(lambda parts: "".join(parts).encode())


COMPACT = st.lists(st.tuples(TEXTS, st.one_of(NUMBERS, TEXTS)), max_size=5).map(
    lambda made: f"{{{','.join(f'{name}:{value}' for name, value in made)}}}".encode()
)
PRINTABLE = bytes(0x20 if n < 0x20 or n in b'"\\' else n for n in range(256))


def values_of(raw: bytes) -> dict[str, bytes]:
    return {k: bytes(v) for k, v in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items()}


@given(OBJECTS, st.dictionaries(st.sampled_from(["a", "A", "model", "b"]), st.integers()))
def test_an_edit_changes_the_named_fields_and_no_other_byte_of_a_value(
    raw: bytes, changes: dict[str, int]
) -> None:
    body = Body.parse(raw)
    drop = sorted(body.fields)[:1]
    edited = values_of(body.edited(changes, drop))
    kept = {k: v for k, v in values_of(raw).items() if k not in drop and k not in changes}
    assert {k: v for k, v in edited.items() if k not in changes} == kept
    assert {k: v for k, v in edited.items() if k in changes} == {
        k: b"%d" % v for k, v in changes.items() if k not in drop
    }


@given(st.one_of(OBJECTS, COMPACT))
def test_an_edit_of_one_field_changes_its_value_alone(raw: bytes) -> None:
    body = Body.parse(raw)
    for name, value in body.fields.items():
        edited = body.edited({name: [7]})
        assert values_of(edited) == {**values_of(raw), name: b"[7]"}
        if len(body.fields) == len(pairs(raw)):
            assert Body.parse(edited).edited({name: value}) == raw


@given(st.binary(max_size=9), st.integers(8180, 8200), st.integers(0, 9000))
def test_bytes_that_are_no_utf8_are_found_wherever_they_stand(
    strange: bytes, before: int, after: int
) -> None:
    text = b"".join((b"x" * before, strange, "é".encode() * after))
    raw = b'{"a":"' + text.translate(PRINTABLE) + b'"}'
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        with pytest.raises(BodyError, match=f"byte {error.start} is invalid"):
            Body.parse(raw)
    else:
        assert Body.parse(raw).raw is raw


@given(OBJECTS)
def test_no_edit_gives_the_same_bytes(raw: bytes) -> None:
    assert Body.parse(raw).edited({}, ["not there"]) is raw


@given(OBJECTS)
def test_a_field_set_to_its_own_bytes_gives_the_same_bytes(raw: bytes) -> None:
    body = Body.parse(raw)
    if len(body.fields) == len(pairs(raw)):
        assert body.edited(dict(body.fields)) == raw


def pairs(raw: bytes) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = json.loads(raw, object_pairs_hook=list)
    return found


@given(st.one_of(st.binary(), OBJECTS.flatmap(lambda raw: st.binary(max_size=3).map(raw.__add__))))
def test_parse_raises_nothing_but_body_error(raw: bytes) -> None:
    with contextlib.suppress(BodyError):
        body = Body.parse(raw)
        assert isinstance(json.loads(raw), dict)
        assert all(body.value(name, ...) is not ... for name in body.fields)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a":"\xff"}', "byte 6 is invalid"),
        (b'{"a":NaN}', "not JSON"),
        (b'{"a":Infinity}', "not JSON"),
        (b'{"a":1} x', "trailing"),
        (b'{"a":1}{"a":1}', "trailing"),
        (b'{"a":1,}', "trailing comma"),
        (b'{"a":01}', "invalid number"),
        (b'{"a":"\n"}', "invalid character"),
        (b'{"a":', "truncated"),
        (b"{'a':1}", "not JSON"),
        (b'{"a":"\\ud83d"}', "half of a surrogate pair"),
        (b'{"a":"\\ude00 text that goes on"}', "half of a surrogate pair"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"a":' + b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_said(raw: bytes, said: str) -> None:
    with pytest.raises(BodyError, match=said):
        Body.parse(raw)


@pytest.mark.parametrize(
    ("raw", "changes", "drop", "edited"),
    [
        (b'{"model":"a"}', {"model": "b"}, [], b'{"model":"b"}'),
        (b'{"a":1E5,"model":"a"}', {"model": "b"}, [], b'{"a":1E5,"model":"b"}'),
        (b' { "a" : 1 , "b" : 2 } \n', {"a": 3}, [], b' { "a" : 3 , "b" : 2 } \n'),
        (b'{"a":1 ,\n "b":2}', {}, ["a"], b'{\n "b":2}'),
        (b'{"a":1,"b":2 , "c":3}', {}, ["b"], b'{"a":1 , "c":3}'),
        (b'{"a":1}', {}, ["a"], b"{}"),
        (b"{ }", {"a": [1]}, [], b'{"a":[1]}'),
        (b'{"a":1\n}', {"b": None}, [], b'{"a":1,"b":null\n}'),
        (b'{"a":1}', {"b": 1}, ["a", "b"], b"{}"),
        (b'{"\\u0061":1,"b":2}', {"a": 3}, [], b'{"\\u0061":3,"b":2}'),
        (b'{"model":"a","b":1,"model":"c"}', {"model": "d"}, [], b'{"model":"d","b":1}'),
        (b'{"a":{"a":1},"a":{"a":1}}', {"a": 0}, [], b'{"a":0}'),
        (b'{"a":{"x":12,"b":3},"b":4,"a":1234567}', {"b": 0}, [], b'{"a":1234567,"b":0}'),
        ('{"é":"ü","b":2}'.encode(), {"b": "ß"}, [], '{"é":"ü","b":"ß"}'.encode()),
    ],
)
def test_edits(raw: bytes, changes: dict[str, Any], drop: list[str], edited: bytes) -> None:
    assert Body.parse(raw).edited(changes, drop) == edited


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a":1E5}', 100000.0),
        (b'{"a":[1e999]}', [float("inf")]),
        (b'{"a":1234567890123456789012345678901234567890}', int("1234567890" * 4)),
        (b'{"a":' + b"9" * 5000 + b"}", "default"),
        (b'{"b":1}', "default"),
        (b'{"a":null}', None),
        (b'{"a":1,"a":2}', 2),
    ],
)
def test_values(raw: bytes, value: Any) -> None:
    assert Body.parse(raw).value("a", "default") == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'.encode()),
        ({"a": "\ud83d"}, b'{"a":"\\ud83d"}'),
        (10**30, b"1" + b"0" * 30),
    ],
)
def test_dump(value: Any, text: bytes) -> None:
    assert dump(value) == text
