from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects.history import FIELD
from krouter.dialects.thinking import (
    ANY_SIGNATURE,
    OMITTED,
    digest,
    thinking_digests,
    without_thinking,
)
from tests.dialects.streams import shaped
from tests.dialects.test_needs import body, content

USER = {"role": "user", "content": "hi"}
OURS = {"type": "thinking", "thinking": "hm", "signature": "ours"}
THEIRS = {"type": "thinking", "thinking": "hm", "signature": "theirs"}
HIDDEN = {"type": "redacted_thinking", "data": "theirs"}
UNSIGNED = {"type": "thinking", "thinking": "theirs"}
TEXT = {"type": "text", "text": "theirs"}
CALL = {"type": "tool_use", "id": "t", "name": "f", "input": {"signature": "theirs"}}
FOREIGN = {digest("theirs")}


def said(*blocks: Any) -> dict[str, Any]:
    return content("messages", *blocks, role="assistant")


def part(*parts: Any) -> dict[str, Any]:
    return content("gemini", *parts, role="model")


def reasoning(data: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": data}


@pytest.mark.parametrize(
    ("dialect", "item", "left"),
    [
        ("messages", said(THEIRS, TEXT, CALL), said(TEXT, CALL)),
        ("messages", said(OURS, HIDDEN, THEIRS, TEXT), said(OURS, TEXT)),
        ("messages", said(UNSIGNED, TEXT), said(UNSIGNED, TEXT)),
        ("messages", said(THEIRS), said({"type": "text", "text": OMITTED})),
        ("responses", reasoning("theirs"), None),
        ("responses", reasoning("ours"), reasoning("ours")),
        (
            "responses",
            {"type": "compaction", "encrypted_content": "theirs"},
            {"type": "compaction", "encrypted_content": "theirs"},
        ),
        (
            "gemini",
            part({"text": "a", "thoughtSignature": "theirs"}, {"text": "b"}),
            part({"text": "a"}, {"text": "b"}),
        ),
        (
            "gemini",
            part({"text": "hm", "thought": True, "thought_signature": "theirs"}),
            part({"text": OMITTED}),
        ),
        (
            "gemini",
            part({"functionCall": {"name": "f"}, "thoughtSignature": "theirs"}),
            part({"functionCall": {"name": "f"}, "thoughtSignature": ANY_SIGNATURE}),
        ),
    ],
)
def test_only_foreign_thinking_goes(dialect: str, item: Any, left: Any) -> None:
    before = body(dialect, USER, item, USER)
    after = without_thinking(dialect, before, FOREIGN)
    wanted = [USER, left, USER] if left else [USER, USER]
    assert json.loads(after.raw)[FIELD[dialect]] == wanted
    assert FOREIGN.isdisjoint(thinking_digests(dialect, after))
    if left == item:
        assert after is before
    assert without_thinking(dialect, before, set()) is before


def test_the_digests_of_a_request() -> None:
    held = body("messages", USER, said(OURS, HIDDEN, UNSIGNED, TEXT, CALL))
    assert thinking_digests("messages", held) == {digest("ours"), digest("theirs")}
    assert thinking_digests("chat", body("chat", said(OURS))) == set()


RESULT = content("messages", {"type": "tool_result", "tool_use_id": "t", "content": "r"})
EDITS = [{"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}]


@pytest.mark.parametrize(
    ("thinking", "turn", "kept"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, said(THEIRS, CALL), False),
        ({"type": "enabled", "budget_tokens": 1024}, said(OURS, THEIRS, CALL), True),
        ({"type": "enabled", "budget_tokens": 1024}, said(THEIRS, TEXT), True),
        ({"type": "adaptive"}, said(THEIRS, CALL), True),
    ],
)
def test_a_fixed_budget_is_dropped_where_the_turn_has_lost_its_thinking(
    thinking: Any, turn: Any, kept: bool
) -> None:
    fields = {"thinking": thinking, "context_management": {"edits": EDITS, "x": 1}}
    raw = json.dumps({**fields, "messages": [USER, turn, RESULT]}).encode()
    after = without_thinking("messages", Body.parse(raw), FOREIGN)
    told = json.loads(after.raw)
    assert told.get("thinking") == (thinking if kept else None)
    edits = EDITS if kept else EDITS[1:]
    assert told["context_management"] == {"edits": edits, "x": 1}


@given(
    st.sampled_from(sorted(FIELD)),
    shaped("role", "content", "parts", "type", "signature", "thoughtSignature", "edits"),
)
def test_any_json_can_be_read_and_stripped(dialect: str, value: Any) -> None:
    try:
        odd = Body.parse(json.dumps({FIELD[dialect]: value, "thinking": value}).encode())
    except ValueError:
        return
    digests = thinking_digests(dialect, odd)
    left = thinking_digests(dialect, without_thinking(dialect, odd, digests))
    assert left <= {digest(ANY_SIGNATURE)}


def test_a_signature_is_known_in_either_alphabet_of_base64() -> None:
    assert digest("a+b/c=") == digest("a-b_c") != digest("a+b/d=")
