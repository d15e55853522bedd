"""The text of a custom tool, in the arguments of the function that stands for it."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from krouter.dialects.text_tools import TextArgument, grammar_in_words, unwrapped, wrapped


def in_pieces(arguments: str, cuts: list[int]) -> str:
    reader, at, told = TextArgument(), 0, []
    for cut in sorted(cuts):
        told.append(reader.feed(arguments[at:cut]))
        at = max(at, cut)
    told += [reader.feed(arguments[at:]), reader.end()]
    assert all(piece.encode() is not None for piece in told)
    return "".join(told)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input":"*** Begin\\n+a\\n"}', "*** Begin\n+a\n"),
        (' {\n "input" : "a" } ', "a"),
        ('{"input":""}', ""),
        (r'{"input":"\"\\\/\b\f\n\r\t"}', '"\\/\b\f\n\r\t'),
        (r'{"input":"\u00e4\uD83D\ude00!"}', "ä😀!"),
        # Halves of a pair stand for no character.
        (r'{"input":"a\ud83d"}', "a�"),
        (r'{"input":"\ud83dx\ude00"}', "�x�"),
        (r'{"input":"\ud83d\ud83d\ude00"}', "�😀"),
        # Breaks off.
        ('{"input":"ab', "ab"),
        ('{"input":"ab\\', "ab\\"),
        (r'{"input":"ab\u00', r"ab\u00"),
        (r'{"input":"ab\ud83d', "ab�"),
        # Not quite JSON: its meaning is clear.
        ('{"input":"a\nb"}', "a\nb"),
        (r'{"input":"\d+\u12 \uwxyz"}', r"\d+\u12 \uwxyz"),
        ('{"input":"a"', "a"),
        ('{"input":"a","more":1}', "a"),
        # Other forms: the model has not looked at the schema.
        ("*** Begin Patch", "*** Begin Patch"),
        ("", ""),
        ("{}", "{}"),
        ('{"in', '{"in'),
        ("  {", "  {"),
        ('{"input":', '{"input":'),
        ('{"input":1}', '{"input":1}'),
        ('{"input":null}', '{"input":null}'),
        ('{"patch":"a\\n"}', '{"patch":"a\\n"}'),
        ('{"inputs":"a"}', '{"inputs":"a"}'),
        ('{"a":1,"input":"a"}', '{"a":1,"input":"a"}'),
        ('"text"', '"text"'),
        ('[{"input":"a"}]', '[{"input":"a"}]'),
        (" " * 5000 + '{"input":"a"}', " " * 5000 + '{"input":"a"}'),
    ],
)
def test_unwrapped(arguments: str, text: str) -> None:
    assert unwrapped(arguments) == text
    assert in_pieces(arguments, list(range(len(arguments)))) == text
    for cut in range(min(len(arguments), 60)):
        assert in_pieces(arguments, [cut]) == text


SPLIT = st.lists(st.integers(0, 80), max_size=12)


@given(st.text(), SPLIT, st.booleans(), st.sampled_from([None, 1]))
@example("😀" * 3, list(range(80)), True, None)
def test_any_text_comes_back_at_any_split(
    text: str, cuts: list[int], escaped: bool, indent: int | None
) -> None:
    assert unwrapped(wrapped(text)) == text or wrapped(text) == text
    arguments = json.dumps({"input": text}, ensure_ascii=escaped, indent=indent)
    assert in_pieces(arguments, cuts) == text


PIECES = ["{", '"input"', ":", '"', "\\", "u", "d83d", "\\ud83d", "\\ude00", "\\n", " ", "}",
          ",", "x", "😀", "\ud83d", "\ude00", '{"input":"']  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join), SPLIT)
def test_a_split_changes_nothing(arguments: str, cuts: list[int]) -> None:
    reader = TextArgument()
    once = reader.feed(arguments) + reader.end()
    reader, at, told = TextArgument(), 0, ""
    for cut in [*sorted(cuts), len(arguments)]:
        told += reader.feed(arguments[at:cut])
        at = max(at, cut)
    assert told + reader.end() == once


def test_text_goes_on_as_soon_as_it_has_come() -> None:
    reader = TextArgument()
    pieces = ['{"inp', 'ut": "*** Be', "gin\\", 'n+\\"', "\\ud8", "3d\\ude", '00 e"', "}"]
    assert [reader.feed(piece) for piece in pieces] == [
        "", "*** Be", "gin", '\n+"', "", "", "😀 e", "",
    ]  # fmt: skip
    assert reader.end() == ""


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (None, ""),
        ({"type": "text"}, ""),
        ({"type": "grammar"}, ""),
        ({"type": "grammar", "definition": "a:  b"}, "The input must follow this grammar:\na:  b"),
        ({"type": "grammar", "grammar": {"syntax": "regex", "definition": "a  b"}},
         "The input must follow this regex grammar:\na  b"),
    ],
)  # fmt: skip
def test_a_grammar_is_told_as_it_is(form: object, words: str) -> None:
    assert grammar_in_words({"type": "custom", "name": "x", "format": form}) == words
