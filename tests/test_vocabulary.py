"""What a record may hold of what others have written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.arguments import CHAT_FIELDS
from krouter.features import FIELDS, INSIDE
from krouter.vocabulary import CODES, MOST_NAMES, OTHER, WORDS, known_code, known_name, known_names

TRANSLATION = Path(__file__).parent.parent / "adapters"


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("rate_limit_exceeded", "rate_limit_exceeded"),
        ("Insufficient_Quota", "insufficient_quota"),
        ("RESOURCE_EXHAUSTED", "resource_exhausted"),
        ("canary", ""),
        ("c2stQ2FuYXJ5", ""),
        ("429", ""),
        ("", ""),
    ],
)
def test_an_error_code_is_kept_if_it_is_known(code: str, kept: str) -> None:
    assert known_code(code) == kept


@pytest.mark.parametrize(
    "name",
    ["image", "tools[*].strict", "messages.role=tool", "temperature=0.7", "web_search_20250305"],
)
def test_the_name_of_a_part_of_a_request_is_kept(name: str) -> None:
    assert known_name(name) == name


@pytest.mark.parametrize(
    "name", ["my_secret_sentence_key", "tools.zqcanary_20250101", "metadata.zq", "messages.role=zq"]
)
def test_what_a_caller_has_made_up_is_not(name: str) -> None:
    assert known_name(name) == OTHER


@given(st.lists(st.text(max_size=400), max_size=300))
def test_what_is_kept_is_bounded_and_of_known_words(names: list[str]) -> None:
    kept = known_names(names)
    assert len(kept) <= MOST_NAMES
    assert len(kept) == len(set(kept))
    words = {word for name in kept if name != OTHER for word in re.findall(r"[A-Za-z_]{3,}", name)}
    assert all(part in WORDS or part.strip("_") in WORDS for part in words)


def literal_names() -> Iterator[str]:
    for path in TRANSLATION.rglob("*.py"):
        for name in re.findall(r'(?:dropped|lost)\.add\(f?"([^"]*)"\)', path.read_text()):
            yield re.sub(r"\{[^}]*\}", "", name)


@pytest.mark.parametrize("name", sorted({*FIELDS, *INSIDE, *CHAT_FIELDS, *literal_names()}))
def test_krouters_own_names_are_known(name: str) -> None:
    assert known_name(name) == name


def test_codes_are_in_lower_case() -> None:
    assert all(code == code.lower() for code in CODES)
