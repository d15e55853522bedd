"""What the outline of a conversation shows is what a look at all of it shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects.base import CallError
from krouter.dialects.cursor import as_chat
from krouter.dialects.history import FIELD
from krouter.dialects.needs import needs
from krouter.dialects.outline import outline
from krouter.dialects.stored import stored_field
from krouter.dialects.thinking import UNSIGNED, thinking_digests, unsigned_digests

PNG = "data:image/png;base64,iVBORw0KGgo="
TYPES = (
    "text input_text tool_use tool_result web_search_tool_result thinking redacted_thinking"
    " reasoning function_call function_call_output message item_reference document image"
    " input_image image_url input_audio computer_screenshot"
).split()
TEXTS = st.sampled_from(["", "def", PNG, f"\n {PNG}\t", f"\u00a0{PNG}", f"see {PNG}", "data:", "ü"])
SIGNED = st.sampled_from(["c2ln", UNSIGNED, "krouter1.x", 7, None])
ODD = st.sampled_from([None, 7, "x", [], {}, [{"type": "image"}], {"type": "image"}])
FILE = st.fixed_dictionaries({}, optional={"mimeType": st.just("image/png"), "data": TEXTS})


def marked(blocks: st.SearchStrategy[Any], **more: st.SearchStrategy[Any]) -> Any:
    said = TEXTS | blocks | ODD
    parts = st.fixed_dictionaries({}, optional={"parts": blocks | ODD, "response": ODD})
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | ODD,
            "text": TEXTS,
            "content": said,
            "signature": SIGNED,
            "thoughtSignature": SIGNED,
            "thought_signature": SIGNED,
            **more,
        },
    ) | st.fixed_dictionaries(
        {"type": st.sampled_from(TYPES)},
        optional={
            "data": SIGNED,
            "encrypted_content": SIGNED,
            "source": FILE | ODD,
            "inlineData": FILE | ODD,
            "file_data": FILE | ODD,
            "output": said,
            "parts": blocks | ODD,
            "functionResponse": parts | ODD,
            "function_response": parts | ODD,
            **more,
        },
    )


BLOCKS = st.recursive(
    st.lists(marked(st.just([])), max_size=2),
    lambda inner: st.lists(marked(inner), max_size=2),
    max_leaves=4,
)
ROLES = st.sampled_from(["user", "assistant", "tool", "function", "system", "developer", None])
ITEMS = st.lists(
    marked(BLOCKS, role=ROLES, parts=BLOCKS | ODD)
    | st.fixed_dictionaries({"role": ROLES, "content": TEXTS | BLOCKS})
    | st.fixed_dictionaries(
        {"role": ROLES},
        optional={
            "content": TEXTS | BLOCKS,
            "images": ODD,
            "audio": ODD,
            "video_url": ODD,
            "attachments": ODD,
        },
    ),
    max_size=5,
)
WRITTEN: tuple[Callable[[Any], str], ...] = (
    json.dumps,
    lambda value: json.dumps(value, ensure_ascii=False, indent=1),
    lambda value: (
        json.dumps(value).replace("data", "\\u0064\\u0061ta").replace("type", "t\\u0079pe")
    ),
)


def of(dialect: str, written: str) -> Body:
    return Body.parse(f'{{"model":"daily","{FIELD[dialect]}":{written}}}'.encode())


def is_chat(body: Body) -> bool:
    try:
        return as_chat(body).body is body
    except CallError:
        return False


def looks(dialect: str, body: Body) -> dict[str, Any]:
    return {
        "needs": needs(dialect, body),
        "signed": thinking_digests(dialect, body),
        "unsigned": unsigned_digests(dialect, body),
        "stored": stored_field(dialect, body),
        "chat": dialect != "chat" or is_chat(body),
    }


@given(st.sampled_from(sorted(FIELD)), ITEMS, st.sampled_from(WRITTEN))
@example("chat", [{"role": "tool", "content": f" {PNG}"}], json.dumps)
@example("messages", [{"role": "user", "content": [{"type": "image"}]}], json.dumps)
def test_the_outline_shows_what_a_look_at_all_shows(
    dialect: str, items: list[Any], written: Callable[[Any], str]
) -> None:
    """A number among the items says nothing, but there is no outline of them."""
    odd = of(dialect, written([7, *items]))
    assert outline(dialect, odd) is None
    assert looks(dialect, of(dialect, written(items))) == looks(dialect, odd)


@pytest.mark.parametrize(
    ("dialect", "item"),
    [
        ("chat", {"role": "user", "content": "a"}),
        ("chat", {"role": "user", "content": [{"type": "text", "text": "a"}]}),
        ("chat", {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}),
        ("messages", {"role": "user", "content": [{"type": "tool_result", "content": "a"}]}),
        ("messages", {"role": "assistant", "content": [{"type": "thinking", "signature": "s"}]}),
        ("responses", {"type": "function_call_output", "output": "a"}),
        ("responses", {"type": "reasoning", "summary": [], "encrypted_content": "s"}),
        ("gemini", {"role": "user", "parts": [{"functionResponse": {"response": {}}}]}),
    ],
)
def test_what_clients_send_has_an_outline(dialect: str, item: dict[str, Any]) -> None:
    found = outline(dialect, of(dialect, json.dumps([item])))
    assert found is not None
    assert [turn.role for turn, _ in found] == [item.get("role")]


def test_an_outline_is_made_once() -> None:
    body = of("chat", '[{"role":"user","content":"a"}]')
    assert outline("chat", body) is outline("chat", body)
