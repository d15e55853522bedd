"""The plain fields of YAML, line by line."""

from __future__ import annotations

import pytest

from krouter.cli.yaml_lines import entries


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [{}]),
        ("a: 1\nb: x # c\nc: x#y\n", [{"a": "1", "b": "x", "c": "x#y"}]),
        ("d: 'it''s # it'\n", [{"d": "it's # it"}]),
        ('a: "b # c"  # d\ne: # f\n', [{"a": "b # c"}]),
        ("- a: 1\n  b: 2\n- a: 3\n", [{}, {"a": "1", "b": "2"}, {"a": "3"}]),
        ("x: 0\nl:\n- a: 1\n  b: 2\ny: 9\n", [{"x": "0", "y": "9"}, {"a": "1", "b": "2"}]),
        ("l:\n  - a: 1\n    in:\n      a: 5\n      b: 6\n    c: 3\n", [{}, {"a": "1", "c": "3"}]),
        ("l:\n  - a: 1\n    in:\n      - a: 5\n    c: 3\n", [{}, {"a": "1", "c": "3"}]),
        ("l:\n  - a: 1\nm:\n  - a: 2\n", [{}, {"a": "1"}, {"a": "2"}]),
        ("t:\n  a: 1\na: 2\na: 3\n", [{"a": "2"}]),
        ("url: http://h:1/v1\n", [{"url": "http://h:1/v1"}]),
        ("# a: 1\nno field\n:\n", [{}]),
    ],
)
def test_fields_are_found_where_they_stand(text: str, found: list[dict[str, str]]) -> None:
    assert entries(text) == found
