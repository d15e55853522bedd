from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects.history import FIELD
from krouter.dialects.needs import has_images, holds
from krouter.dialects.strip import without, without_images
from tests.dialects.test_needs import (
    BLOCKS,
    IMAGE,
    LINK,
    PDF,
    PNG,
    USER,
    answered,
    body,
    content,
    conversations,
)

MARK = {"type": "ephemeral"}
CLAUDE_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}
INPUT_IMAGE = {"type": "input_image", "image_url": PNG}
PART = {"inlineData": {"mimeType": "image/png", "data": "A"}}
TEXT = {"type": "text", "text": "hi"}
OMITTED = {"type": "text", "text": "[image omitted]"}


def stripped(dialect: str, *items: Any) -> Any:
    before = body(dialect, *items)
    after = without_images(dialect, before)
    assert not has_images(dialect, after)
    return json.loads(after.raw)[FIELD[dialect]]


@pytest.mark.parametrize(
    ("dialect", "item", "left"),
    [
        ("chat", content("chat", TEXT, IMAGE, TEXT), content("chat", TEXT, TEXT)),
        ("chat", content("chat", TEXT, IMAGE), {"role": "user", "content": "hi"}),
        ("chat", content("chat", IMAGE, IMAGE), {"role": "user", "content": "[image omitted]"}),
        (
            "chat",
            {"role": "user", "content": f"a {PNG} b {PDF}"},
            {"role": "user", "content": f"a [image omitted] b {PDF}"},
        ),
        (
            "chat",
            {"role": "tool", "tool_call_id": "t", "content": [IMAGE]},
            {"role": "tool", "tool_call_id": "t", "content": "[image omitted]"},
        ),
        (
            "chat",
            {"role": "tool", "tool_call_id": "t", "content": PNG},
            {"role": "tool", "tool_call_id": "t", "content": "[image omitted]"},
        ),
        ("chat", {**USER, "images": ["A"], "id": 1}, {**USER, "id": 1}),
        ("chat", {"role": "user", "images": ["A"]}, {"role": "user", "content": "[image omitted]"}),
        (
            "chat",
            {**USER, "attachments": [{"url": LINK}, {"contentType": "application/pdf"}]},
            {**USER, "attachments": [{"contentType": "application/pdf"}]},
        ),
        ("messages", content("messages", TEXT, CLAUDE_IMAGE), content("messages", TEXT)),
        ("messages", content("messages", CLAUDE_IMAGE), content("messages", OMITTED)),
        (
            "messages",
            content("messages", TEXT, {**CLAUDE_IMAGE, "cache_control": MARK}),
            content("messages", TEXT, {**OMITTED, "cache_control": MARK}),
        ),
        (
            "messages",
            content(
                "messages",
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "is_error": True,
                    "content": [CLAUDE_IMAGE],
                    "cache_control": MARK,
                },
            ),
            content(
                "messages",
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "is_error": True,
                    "content": [OMITTED],
                    "cache_control": MARK,
                },
            ),
        ),
        (
            "messages",
            content("messages", {"type": "tool_result", "tool_use_id": "t", "content": PNG}),
            content(
                "messages",
                {"type": "tool_result", "tool_use_id": "t", "content": "[image omitted]"},
            ),
        ),
        (
            "responses",
            content("responses", INPUT_IMAGE),
            content("responses", {"type": "input_text", "text": "[image omitted]"}),
        ),
        (
            "responses",
            {"type": "function_call_output", "call_id": "t", "output": [INPUT_IMAGE]},
            {
                "type": "function_call_output",
                "call_id": "t",
                "output": [{"type": "input_text", "text": "[image omitted]"}],
            },
        ),
        (
            "responses",
            {"type": "image_generation_call", "id": "i", "result": "A"},
            {"role": "assistant", "content": "[image omitted]"},
        ),
        ("gemini", content("gemini", PART), content("gemini", {"text": "[image omitted]"})),
        (
            "gemini",
            content("gemini", {"functionResponse": {"name": "f", "id": "1", "parts": [PART]}}),
            content(
                "gemini",
                {
                    "functionResponse": {
                        "name": "f",
                        "id": "1",
                        "response": {"output": "[image omitted]"},
                    }
                },
            ),
        ),
        (
            "gemini",
            content("gemini", {"functionResponse": {"name": "f", "response": {}, "parts": [PART]}}),
            content("gemini", {"functionResponse": {"name": "f", "response": {}}}),
        ),
    ],
)
def test_what_is_left_of_an_item(dialect: str, item: Any, left: Any) -> None:
    assert stripped(dialect, USER, item, USER) == [USER, left, USER]


def test_a_lone_text_stays_one_and_a_lone_content_too() -> None:
    lone = Body.parse(json.dumps({"input": f"see {PNG}"}).encode())
    assert without_images("responses", lone).value("input") == "see [image omitted]"
    one = Body.parse(json.dumps({"contents": content("gemini", PART, {"text": "a"})}).encode())
    assert without_images("gemini", one).value("contents") == [content("gemini", {"text": "a"})]


def test_other_media_go_the_same_way() -> None:
    file = {"type": "file", "file": {"file_data": PDF}}
    held = body("chat", content("chat", file, IMAGE))
    left = without("chat", held, {"pdf"})
    assert holds("chat", left) == {"image"}
    left = without("chat", held, {"pdf", "image"})
    assert left.value("messages") == [{"role": "user", "content": "[pdf omitted]"}]


def test_a_body_without_images_is_the_same_object() -> None:
    held = body("chat", content("chat", {"type": "file", "file": {"file_data": PDF}}), USER)
    assert without_images("chat", held) is held


def test_every_other_byte_stays() -> None:
    image = json.dumps(IMAGE)
    raw = (
        b'{ "model" : "m", "n":1E0,\n "messages": [{"role":"user", "content":"\\u0041 \xc3\xa9",'
        b' "x":1.50},{"role":"user","content":[%s]}, {"role":"user","content":"\\ud83d\\ude00"}],'
        b' "top_p" :0.10 }'
    )
    left = without_images("chat", Body.parse(raw % image.encode()))
    assert left.raw == (
        b'{ "model" : "m", "n":1E0,\n "messages": [{"role":"user", "content":"\\u0041 \xc3\xa9",'
        b' "x":1.50},{"role":"user","content":"[image omitted]"},{"role":"user","content":'
        b'"\\ud83d\\ude00"}], "top_p" :0.10 }'
    )


def test_huge_numbers_in_a_stripped_item_are_kept() -> None:
    huge = b"1" * 40
    held = Body.parse(
        b'{"messages":[{"content":[%s],"i":%s}]}' % (json.dumps(IMAGE).encode(), huge)
    )
    left = without_images("chat", held)
    assert not has_images("chat", left)
    assert b'"i":' + huge in left.raw


@given(conversations(), st.sampled_from(["image", "pdf", "audio", "video"]))
def test_only_attachments_of_that_medium_go(made: tuple[str, list[Any], Any], medium: Any) -> None:
    dialect, items, _ = made
    before = body(dialect, *items)
    after = without(dialect, before, {medium})
    assert holds(dialect, after) == holds(dialect, before) - {medium}
    left = after.value(FIELD[dialect])
    assert len(left) == len(items)
    for was, now in zip(items, left, strict=True):
        if medium not in holds(dialect, body(dialect, was)):
            assert now == was
        assert {k: v for k, v in was.items() if k not in ("content", "parts", "output")} == {
            k: v for k, v in now.items() if k not in ("content", "parts", "output")
        }


@pytest.mark.parametrize(("dialect", "block", "media"), BLOCKS)
def test_no_tool_result_is_left_empty(dialect: str, block: Any, media: set[Any]) -> None:
    items = answered(dialect, block)
    after = without(dialect, body(dialect, *items), media)
    result = after.value(FIELD[dialect])[-1]
    said = json.dumps(result)
    assert holds(dialect, after) == set()
    if media and dialect != "gemini":
        assert "omitted]" in said
    assert '"content": []' not in said
    assert '"output": []' not in said
    assert '"parts": []' not in said
    ids = ("tool_use_id", "tool_call_id", "call_id")
    assert any(f'"{name}": "t"' in said for name in ids) or dialect == "gemini"


@pytest.mark.parametrize(
    ("dialect", "fields", "left"),
    [
        ("messages", {"system": [TEXT, CLAUDE_IMAGE]}, {"system": [TEXT]}),
        ("messages", {"system": [CLAUDE_IMAGE]}, {"system": [OMITTED]}),
        ("messages", {"system": f"see {PNG}"}, {"system": "see [image omitted]"}),
        ("responses", {"instructions": f"see {PNG}"}, {"instructions": "see [image omitted]"}),
        (
            "gemini",
            {"systemInstruction": {"role": "system", "parts": [{"text": "hi"}, PART]}},
            {"systemInstruction": {"role": "system", "parts": [{"text": "hi"}]}},
        ),
        (
            "gemini",
            {"system_instruction": {"parts": [PART]}},
            {"system_instruction": {"parts": [{"text": "[image omitted]"}]}},
        ),
    ],
)
def test_the_system_prompt_has_images_too(
    dialect: str, fields: dict[str, Any], left: dict[str, Any]
) -> None:
    before = Body.parse(json.dumps({**fields, "n": 1}).encode())
    assert has_images(dialect, before)
    after = without_images(dialect, before)
    assert json.loads(after.raw) == {**left, "n": 1}
    assert not has_images(dialect, after)
    assert without_images(dialect, after) is after
