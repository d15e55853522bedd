from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.body import Body
from krouter.dialects.history import FIELD, from_the_end
from krouter.dialects.media import may_hold
from krouter.dialects.needs import has_images, holds, needs
from krouter.dialects.strip import without
from tests.dialects.streams import shaped

PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="
WAV = "data:audio/wav;base64,UklGRg=="
MP4 = "data:video/mp4;base64,AAAA"
TXT = "data:text/plain;base64,aGk="
LINK = "https://example.com/a"
NONE: set[str] = set()

# A block as clients send it, the dialects it belongs to, and what it is.
BLOCKS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("chat", {"type": "text", "text": f"see {PNG}"}, NONE),
    ("chat", {"type": "image_url", "image_url": {"url": PNG}}, {"image"}),
    ("chat", {"type": "image_url", "image_url": LINK}, {"image"}),
    ("chat", {"type": "image", "image": PNG}, {"image"}),
    ("chat", {"type": "file", "file": {"file_data": PDF, "filename": "a.bin"}}, {"pdf"}),
    ("chat", {"type": "file", "file": {"file_data": PNG}}, {"image"}),
    ("chat", {"type": "file", "file": {"file_data": WAV}}, {"audio"}),
    ("chat", {"type": "file", "file": {"file_data": MP4}}, {"video"}),
    ("chat", {"type": "file", "file": {"file_data": TXT}}, NONE),
    ("chat", {"type": "file", "file": {"file_id": "file-1"}}, {"pdf"}),
    ("chat", {"type": "file", "file": {"file_id": "f", "filename": "a.PNG"}}, {"image"}),
    ("chat", {"type": "file", "file": {"file_id": "f", "filename": "notes.md"}}, NONE),
    ("chat", {"type": "file", "file": {"file_id": "f", "filename": "a.docx"}}, {"pdf"}),
    ("chat", {"type": "file", "mediaType": "image/webp", "data": "AAAA"}, {"image"}),
    ("chat", {"type": "file", "mediaType": "application/octet-stream"}, {"pdf"}),
    ("chat", {"type": "file", "mediaType": "application/json", "data": "e30="}, NONE),
    ("chat", {"type": "file_url", "file_url": {"url": f"{LINK}.mp3?x=1.png"}}, {"audio"}),
    ("chat", {"type": "input_audio", "input_audio": {"data": "A", "format": "wav"}}, {"audio"}),
    ("chat", {"type": "audio_url", "audio_url": {"url": LINK}}, {"audio"}),
    ("chat", {"type": "audio", "audio": "A"}, {"audio"}),
    ("chat", {"type": "input_video", "video": LINK}, {"video"}),
    ("chat", {"type": "video_url", "video_url": {"url": LINK}}, {"video"}),
    ("chat", {"type": "video", "video": [LINK]}, {"video"}),
    (
        "messages",
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}},
        {"image"},
    ),
    ("messages", {"type": "image", "source": {"type": "url", "url": LINK}}, {"image"}),
    (
        "messages",
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf"}},
        {"pdf"},
    ),
    ("messages", {"type": "document", "source": {"type": "url", "url": LINK}}, {"pdf"}),
    ("messages", {"type": "document", "source": {"type": "file", "file_id": "f"}}, {"pdf"}),
    (
        "messages",
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": PNG}},
        NONE,
    ),
    ("messages", {"type": "document", "source": {"media_type": "audio/mpeg"}}, {"audio"}),
    ("messages", {"type": "document", "source": {"media_type": "video/mp4"}}, {"video"}),
    ("messages", {"type": "document", "source": {"media_type": "image/gif"}}, {"image"}),
    (
        "messages",
        {"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}},
        {"image"},
    ),
    ("messages", {"type": "document", "source": {"type": "content", "content": "words"}}, NONE),
    ("messages", {"type": "document"}, {"pdf"}),
    ("messages", {"type": "tool_use", "input": {"type": "image", "image_url": PNG}}, NONE),
    ("responses", {"type": "input_text", "text": PNG}, NONE),
    ("responses", {"type": "input_image", "image_url": PNG, "detail": "auto"}, {"image"}),
    ("responses", {"type": "input_image", "file_id": "f"}, {"image"}),
    ("responses", {"type": "input_file", "filename": "a.pdf", "file_data": PDF}, {"pdf"}),
    ("responses", {"type": "input_file", "file_url": f"{LINK}.png"}, {"image"}),
    ("responses", {"type": "input_file", "file_url": LINK}, {"pdf"}),
    ("responses", {"type": "input_file", "file_data": TXT}, NONE),
    ("responses", {"type": "input_audio", "input_audio": {"data": "A"}}, {"audio"}),
    ("responses", {"type": "input_video", "video_url": LINK}, {"video"}),
    ("gemini", {"text": PNG}, NONE),
    ("gemini", {"inlineData": {"mimeType": "image/png", "data": "A"}}, {"image"}),
    ("gemini", {"inline_data": {"mime_type": "image/png", "data": "A"}}, {"image"}),
    ("gemini", {"fileData": {"mimeType": "application/pdf", "fileUri": LINK}}, {"pdf"}),
    ("gemini", {"file_data": {"mime_type": "audio/ogg", "file_uri": LINK}}, {"audio"}),
    ("gemini", {"fileData": {"mimeType": "video/mp4", "fileUri": LINK}}, {"video"}),
    ("gemini", {"fileData": {"fileUri": "https://www.youtube.com/watch?v=1"}}, {"video"}),
    ("gemini", {"inlineData": {"mimeType": "text/plain", "data": "A"}}, NONE),
    ("gemini", {"fileData": {"fileUri": "gs://bucket/a"}}, {"pdf"}),
    ("gemini", {"functionCall": {"name": "f", "args": {"inlineData": 1}}}, NONE),
]

USER = {"role": "user", "content": "look"}
SAID = {"role": "assistant", "content": "ok"}


def body(dialect: str, *items: Any) -> Body:
    return Body.parse(json.dumps({"model": "m", FIELD[dialect]: list(items)}).encode())


def content(dialect: str, *blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts" if dialect == "gemini" else "content": list(blocks)}


def answered(dialect: str, *blocks: Any) -> list[dict[str, Any]]:
    """A step in which a tool has returned these blocks."""
    match dialect:
        case "messages":
            result = {"type": "tool_result", "tool_use_id": "t", "content": list(blocks)}
            call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
            return [content(dialect, call, role="assistant"), content(dialect, result)]
        case "responses":
            output = {"type": "function_call_output", "call_id": "t", "output": list(blocks)}
            return [{"type": "function_call", "call_id": "t", "name": "f"}, output]
        case "gemini":
            answer = {"functionResponse": {"name": "f", "response": {}, "parts": list(blocks)}}
            call = {"functionCall": {"name": "f", "args": {}}}
            return [content(dialect, call, role="model"), content(dialect, answer)]
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]}
    return [call, {"role": "tool", "tool_call_id": "t", "content": list(blocks)}]


@pytest.mark.parametrize(("dialect", "block", "read"), BLOCKS)
def test_every_block_counts_wherever_it_may_stand(
    dialect: str, block: dict[str, Any], read: set[str]
) -> None:
    asked = content(dialect, block)
    asks = content(dialect, {"text": "a"})
    reply = content(dialect, {"text": "b"}, role="model" if dialect == "gemini" else "assistant")
    assert needs(dialect, body(dialect, asked)) == read
    assert needs(dialect, body(dialect, asked, asks)) == read
    assert needs(dialect, body(dialect, asked, *answered(dialect, {"text": "c"}))) == read
    assert needs(dialect, body(dialect, asks, *answered(dialect, block))) == read
    assert needs(dialect, body(dialect, asked, reply, asks)) == NONE
    assert needs(dialect, body(dialect, asks, *answered(dialect, block), reply, asks)) == NONE
    for earlier in ([asked], answered(dialect, block)):
        held = body(dialect, *earlier, reply, asks)
        assert holds(dialect, held) == read
        assert has_images(dialect, held) == ("image" in read)


@pytest.mark.parametrize(
    ("dialect", "items", "read"),
    [
        ("chat", [{"role": "user", "content": f"see {PNG} and {WAV}"}], {"image", "audio"}),
        ("chat", [{"role": "user", "content": f"({PDF})"}], {"pdf"}),
        ("chat", [{"role": "user", "content": f"<video src='{MP4}'>"}], {"video"}),
        ("chat", [{"role": "user", "content": "write data:image/ and data:audio/"}], NONE),
        ("chat", [USER, SAID, {"role": "tool", "content": f"a css file: {PNG}"}], NONE),
        ("chat", [USER, SAID, {"role": "tool", "content": PNG}], {"image"}),
        ("responses", [{"type": "function_call_output", "output": PNG}], {"image"}),
        ("responses", [{"type": "function_call_output", "output": f"a {PNG}"}], NONE),
        ("messages", [content("messages", {"type": "tool_result", "content": PNG})], {"image"}),
        (
            "responses",
            [{"type": "computer_call_output", "output": {"type": "computer_screenshot"}}],
            {"image"},
        ),
        ("responses", [{"role": "user", "content": f"{PNG}"}], {"image"}),
        ("responses", [{"type": "input_image", "image_url": LINK}], {"image"}),
        ("chat", [{**USER, "images": [LINK]}], {"image"}),
        ("chat", [{**USER, "images": []}], NONE),
        ("chat", [{**USER, "image_url": LINK, "audio": {"data": "A"}}], {"image", "audio"}),
        ("chat", [{**SAID, "audio": {"id": "audio_1"}}], NONE),
        ("chat", [{**USER, "attachments": [{"contentType": "application/pdf"}]}], {"pdf"}),
        ("chat", [{**USER, "attachments": [{"url": LINK}]}], {"image"}),
        ("chat", [{**USER, "attachments": [{"mediaType": "text/csv", "url": LINK}]}], NONE),
        ("chat", [{**USER, "experimental_attachments": [{"url": WAV}, 7]}], {"audio"}),
        ("chat", [{**USER, "attachments": [PDF, "a.mp4", LINK]}], {"pdf", "video", "image"}),
        ("gemini", [{"parts": {"inlineData": {"mimeType": "image/png"}}}], {"image"}),
    ],
)
def test_attachments_beside_the_blocks(
    dialect: str, items: list[dict[str, Any]], read: set[str]
) -> None:
    assert needs(dialect, body(dialect, *items)) == read


def test_a_lone_text_and_a_lone_content() -> None:
    assert needs("responses", Body.parse(json.dumps({"input": PNG}).encode())) == {"image"}
    lone = {"contents": content("gemini", {"inlineData": {"mimeType": "image/png"}})}
    assert needs("gemini", Body.parse(json.dumps(lone).encode())) == {"image"}


IMAGE = {"type": "image_url", "image_url": {"url": PNG}}


def test_a_system_message_ends_no_turn() -> None:
    reminder = {"role": "system", "content": "be brief"}
    assert needs("chat", body("chat", content("chat", IMAGE), reminder, USER)) == {"image"}


def test_a_turn_that_holds_a_tool_result_is_part_of_the_turn_before() -> None:
    """Claude Code adds reminders to the message of a tool result."""
    image = content("messages", {"type": "image"})
    step = answered("messages", {"type": "text", "text": "done"})
    assert needs("messages", body("messages", image, *step, USER)) == {"image"}
    assert needs("messages", body("messages", image, *step, SAID, USER)) == NONE


def test_a_history_cut_at_a_tool_result_counts_whole() -> None:
    image = answered("messages", {"type": "image"})[1]
    assert needs("messages", body("messages", image, SAID, image)) == {"image"}


@pytest.mark.parametrize("dialect", FIELD)
def test_no_conversation_needs_nothing(dialect: str) -> None:
    for raw in (b"{}", b'{"messages":null,"input":7,"contents":"image"}', b'{"model":"image"}'):
        assert needs(dialect, Body.parse(raw)) == NONE


NAMES = (
    "role content parts output type source file file_data inlineData mimeType images attachments"
    " functionResponse text url image document tool_result user"
).split()
SHAPES = shaped(*NAMES) | st.recursive(
    st.sampled_from([*NAMES, PNG, None, 7, "tool"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.sampled_from(sorted(FIELD)), SHAPES)
def test_any_json_can_be_read_and_stripped(dialect: str, value: Any) -> None:
    try:
        odd = Body.parse(json.dumps({FIELD[dialect]: value, "a": 1}).encode())
    except ValueError:
        return
    held = holds(dialect, odd)
    assert needs(dialect, odd) <= held
    assert "image" not in holds(dialect, without(dialect, odd, {"image"}))
    assert holds(dialect, without(dialect, odd, held)) == NONE


@pytest.mark.parametrize("depth", [5, 50, 400])
def test_deeply_nested_blocks_raise_nothing(depth: int) -> None:
    nested = '{"type":"tool_result","content":[' * depth + '{"type":"image"}' + "]}" * depth
    deep = Body.parse(f'{{"messages":[{{"content":[{{"type":"image"}},{nested}]}}]}}'.encode())
    needs("messages", deep)
    without("messages", deep, {"image"})


@st.composite
def conversations(draw: st.DrawFn) -> tuple[str, list[Any], list[tuple[str, set[str], bool]]]:
    """A dialect, items, and of each item: who speaks, what it holds, whether it has a result."""
    dialect = draw(st.sampled_from(sorted(FIELD)))
    blocks = [(b, m) for d, b, m in BLOCKS if d == dialect]
    items, notes = [], []
    for kind in draw(st.lists(st.sampled_from(["user", "assistant", "step"]), max_size=8)):
        block, media = draw(st.sampled_from(blocks))
        match kind:
            case "step":
                call, answer = answered(dialect, block)
                items += [call, answer]
                by = "user" if answer.get("role") == "user" else "tool"
                notes += [("assistant", set[str](), False), (by, media, True)]
            case "user":
                items.append(content(dialect, block))
                notes.append(("user", media, False))
            case _:
                items.append({"role": "assistant", "content": "text"})
                notes.append(("assistant", set[str](), False))
    return dialect, items, notes


def by_definition(notes: list[tuple[str, set[str], bool]]) -> set[str]:
    turns: list[tuple[int, bool]] = []
    for at, (who, _, result) in enumerate(notes):
        if who != "user":
            continue
        if at and notes[at - 1][0] == "user":
            begin, held = turns.pop()
            turns.append((begin, held or result))
        else:
            turns.append((at, result))
    begins = [begin for begin, held in turns if not held]
    latest = notes[begins[-1] :] if begins else notes
    return {medium for _, media, _ in latest for medium in media}


@given(conversations())
def test_the_latest_message_is_what_the_definition_says(
    made: tuple[str, list[Any], list[tuple[str, set[str], bool]]],
) -> None:
    dialect, items, notes = made
    assert needs(dialect, body(dialect, *items)) == by_definition(notes)
    held = {medium for _, media, _ in notes for medium in media}
    assert holds(dialect, body(dialect, *items)) == held


def test_text_that_speaks_of_attachments_is_not_decoded() -> None:
    """A quoted name inside a text ends with an escaped quote."""
    code = 'block = {"type": "image", "file": x, "document": {"inlineData": metadata: 1}}'
    said = json.dumps([{"role": "user", "content": code}, {"role": "tool", "content": code}])
    assert not may_hold(said.encode())
    assert may_hold(json.dumps(f"see {PNG}").replace("/", "\\/").encode())


ITEMS = st.lists(
    st.recursive(
        st.none() | st.integers() | st.sampled_from(['{"role":"user"}', "]},{", "user", "\\", "ü"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["role", "type", "content", "a"]), inner, max_size=4)
        ),
        max_leaves=12,
    ),
    max_size=6,
)
WRITTEN: tuple[Callable[[Any], str], ...] = (
    json.dumps,
    partial(json.dumps, separators=(",", ":")),
    partial(json.dumps, separators=(" ,\n", ":"), ensure_ascii=False),
    partial(json.dumps, indent=80),
)


@given(st.sampled_from(sorted(FIELD)), ITEMS, st.sampled_from(WRITTEN))
def test_from_the_end_are_the_same_items(
    dialect: str, items: list[Any], written: Callable[[Any], str]
) -> None:
    odd = Body.parse(f'{{"{FIELD[dialect]}": {written(items)} }}'.encode())
    assert list(from_the_end(dialect, odd)) == items[::-1]
