"""Tokens as tools write them, and when they expire."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.tokens import Token, read_token


def jwt(**claims: Any) -> str:
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJub25lIn0.{middle}.c2ln"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" sk-plain \n", Token("sk-plain")),
        ("a.b.c", Token("a.b.c")),
        (jwt(exp=1_800_000_000), Token(jwt(exp=1_800_000_000), 1_800_000_000)),
        (jwt(sub="me"), Token(jwt(sub="me"))),
        ('{"access_token": "t", "expires_at": 1800000000}', Token("t", 1_800_000_000)),
        ('{"accessToken": "t", "expiresAt": 1800000000000}', Token("t", 1_800_000_000)),
        ('{"token": " t ", "expires_at": "1800000000"}', Token("t", 1_800_000_000)),
        ('{"token": "t", "expiry": "2027-01-15T08:00:00Z"}', Token("t", 1_800_000_000)),
        ('{"token": "t", "expires_at": "2027-01-15T08:00:00"}', Token("t", 1_800_000_000)),
        ('{"token": "t", "expires_at": "soon"}', Token("t")),
        ('{"token": "t", "expires_at": true}', Token("t")),
        (
            '{"claudeAiOauth": {"accessToken": "t", "refreshToken": "r", "expiresAt": 18e11}}',
            Token("t", 1_800_000_000),
        ),
        (
            json.dumps({"OPENAI_API_KEY": None, "tokens": {"access_token": jwt(exp=18e8)}}),
            Token(jwt(exp=18e8), 1_800_000_000),
        ),
        ('{"expires_at": 1, "other": {"a": "b"}}', None),
        ('{"access_token": ""}', None),
        ("{", None),
    ],
)
def test_reading(text: str, expected: Token | None) -> None:
    assert read_token(text) == expected


@given(st.text() | st.from_regex(r"\{.*\}") | st.from_regex(r"[\w-]+\.[\w-]+\.[\w-]+"))
def test_nothing_is_too_odd(text: str) -> None:
    read_token(text)


@given(st.dictionaries(st.sampled_from(["exp", "token", "expires_at"]), st.floats() | st.text()))
def test_no_claim_and_no_field_is_too_odd(values: dict[str, Any]) -> None:
    read_token(jwt(**values))
    read_token(json.dumps(values))
