"""What is written anew looks as it did."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krouter.serve.layout import WIDTHS, Layout, laid_out, layout_of

VALUE = {"models": ["a/b", {"model": "c/d", "reads": ["image", "pdf"]}], "strategy": "fallback"}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
LAYOUTS = st.builds(
    Layout, st.sampled_from(["  ", "    ", "\t"]), st.sampled_from(WIDTHS), st.booleans()
)


@pytest.mark.parametrize("indent", [2, 4, "\t"])
def test_an_expanded_file_stays_as_it_is(indent: int | str) -> None:
    text = json.dumps(VALUE, indent=indent, ensure_ascii=False) + "\n"
    assert laid_out(VALUE, layout_of(text)) == text


def test_short_lists_stay_on_one_line() -> None:
    text = (
        '{\n    "models": ["a/b", {"model": "c/d", "reads": ["image", "pdf"]}],\n'
        '    "strategy": "fallback"\n}\n'
    )
    assert laid_out(VALUE, layout_of(text)) == text


def test_a_file_on_one_line_stays_on_one() -> None:
    text = json.dumps(VALUE)
    assert laid_out(VALUE, layout_of(text)) == f"{text}\n"
    assert laid_out({**VALUE, "judge": "e/f"}, layout_of(f"{text}\n")).count("\n") == 1


@settings(max_examples=60)
@given(VALUES, LAYOUTS)
def test_the_value_is_the_same_in_any_layout(value: object, layout: Layout) -> None:
    assert json.loads(laid_out(value, layout)) == value
