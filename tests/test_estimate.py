"""What of a request is counted, and how well the estimate fits."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from krouter_adapters.tokenizer import Tokenizer, load_tokenizer

from krouter.body import Body
from krouter.estimate import DOCUMENT, IMAGE, MESSAGE, by_characters, countable

PIXELS = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 500}


def body(**fields: Any) -> Body:
    return Body.parse(msgspec.json.encode({"model": "daily", "messages": [], **fields}))


def said(*blocks: Any) -> list[Any]:
    return [{"role": "user", "content": list(blocks)}]


@pytest.mark.parametrize(
    ("fields", "text", "fixed"),
    [
        ({}, "", 0),
        ({"system": "Be brief."}, "Be brief.", 0),
        ({"system": [{"type": "text", "text": "a", "cache_control": {}}]}, "a", 0),
        ({"messages": [{"role": "user", "content": "hi"}]}, "hi", MESSAGE),
        ({"messages": said({"type": "text", "text": "a"}, {"type": "image", "source": PIXELS})},
         "a", MESSAGE + IMAGE),
        ({"messages": said({"type": "document", "source": PIXELS})}, "", MESSAGE + DOCUMENT),
        ({"messages": said({"type": "document", "source": {"type": "text", "data": "page"}})},
         "page", MESSAGE),
        ({"messages": said({"type": "tool_use", "id": "1", "name": "ls", "input": {"a": 1}})},
         'ls\n{"a":1}', MESSAGE),
        ({"messages": said({"type": "tool_result", "tool_use_id": "1", "content": [
            {"type": "text", "text": "x"}, {"type": "image", "source": PIXELS}]})},
         "x", MESSAGE + IMAGE),
        ({"messages": said({"type": "thinking", "thinking": "hm", "signature": "c2ln"})},
         "hm", MESSAGE),
        ({"messages": said({"type": "redacted_thinking", "data": "secret"})}, "", MESSAGE),
        ({"tools": [{"name": "ls", "input_schema": {}, "cache_control": {"type": "ephemeral"}}]},
         '{"name":"ls","input_schema":{}}', MESSAGE),
        ({"systemInstruction": {"parts": [{"text": "a"}]}, "contents": [{"role": "user", "parts": [
            {"text": "b"}, {"inlineData": {"mimeType": "image/png", "data": "iVBOR"}},
            {"fileData": {"fileUri": "gs://x"}}, {"functionCall": {"name": "ls"}}]}]},
         'a\nb\n{"functionCall":{"name":"ls"}}', 2 * MESSAGE + IMAGE + DOCUMENT),
        ({"messages": "no list", "tools": 7, "system": 3}, "", 0),
    ],
)  # fmt: skip
def test_what_is_counted(fields: Any, text: str, fixed: int) -> None:
    assert countable(body(**fields)) == (text, fixed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(
        ["type", "text", "content", "source", "input", "name", "data"]), inner),
    max_leaves=20,
)  # fmt: skip


@given(JSON, JSON, JSON)
def test_any_body_can_be_counted(system: Any, messages: Any, tools: Any) -> None:
    text, fixed = countable(body(system=system, messages=messages, tools=tools))
    assert by_characters(text) >= 0
    assert fixed >= 0


TEXTS = {
    "code": Path(__file__).read_text(),
    "words": "The quick brown fox can't jump over 1234567 lazy dogs; HTTPServer didn't.\r\n\n  x",
    "chinese": "你好，世界。这是一个测试。" * 20,
    "emoji": "👩‍👩‍👧 <|endoftext|> é e\u0301",
    "empty": "",
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    found = load_tokenizer()
    assert found is not None
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_the_tokenizer_is_o200k(
    tokenizer: Tokenizer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tokenizer.vocabulary.parent))
    known = tiktoken.get_encoding("o200k_base")
    assert tokenizer.count(TEXTS[name]) == len(known.encode_ordinary(TEXTS[name]))


@pytest.mark.parametrize("run", ["a", "ab1_", "YWJj/+", "你好"])
def test_a_run_without_a_blank_is_counted_in_pieces(
    tokenizer: Tokenizer, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, it would take the square of its length."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tokenizer.vocabulary.parent))
    text = run * (4000 // len(run))
    exact = len(tiktoken.get_encoding("o200k_base").encode_ordinary(text))
    assert abs(tokenizer.count(text) - exact) <= 0.03 * exact
    assert tokenizer.count("a" * 5_000_000) > 500_000


@pytest.mark.parametrize(("name", "within"), [("code", 0.35), ("chinese", 0.6)])
def test_characters_are_near(tokenizer: Tokenizer, name: str, within: float) -> None:
    exact = tokenizer.count(TEXTS[name])
    assert abs(by_characters(TEXTS[name]) - exact) < within * exact


def test_a_tokenizer_that_has_died_begins_again(tokenizer: Tokenizer) -> None:
    own = Tokenizer(tokenizer.vocabulary)
    assert own.count("hello") == 1
    assert own.process_id is not None
    os.kill(own.process_id, signal.SIGKILL)
    with pytest.raises(OSError, match="no answer"):
        own.count("hello")
    assert own.count("hello") == 1


def test_a_tokenizer_without_its_vocabulary_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no answer"):
        Tokenizer(tmp_path / "none").count("hello")
