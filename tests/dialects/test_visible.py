from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.dialects import DIALECTS
from krouter.dialects.visible import visible_text
from tests.dialects.streams import shaped
from tests.upstream.content import Ask, Content
from tests.upstream.replies import DIALECTS as UPSTREAMS
from tests.upstream.script import Behaviour

BLOCK = {"type": "text", "text": "b"}


def chat(content: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content, **more}}]}


def output(*items: Any) -> dict[str, Any]:
    return {"object": "response", "output": list(items)}


def message(*parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(parts)}


def said(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def parts(*given: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(given)}}]}


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"text":"no"}'}}


@pytest.mark.parametrize(
    ("dialect", "reply", "text"),
    [
        ("chat", chat("a"), "a"),
        ("chat", chat(["a", BLOCK, {"text": "c"}]), "abc"),
        ("chat", chat(BLOCK), "b"),
        ("chat", chat([{"type": "refusal", "refusal": "no"}, BLOCK]), "b"),
        ("chat", chat([{"type": "thinking", "thinking": [BLOCK]}, BLOCK]), "b"),
        ("chat", chat([{"type": "image_url", "text": "no"}, 7, None, ["x"], {"text": 3}]), ""),
        ("chat", chat(None, reasoning_content="hm", reasoning="hm", tool_calls=[CALL]), ""),
        ("chat", chat("  \n", refusal="I cannot."), ""),
        ("chat", chat("  a\n"), "  a\n"),
        ("chat", chat(7), ""),
        ("chat", {"choices": [*chat("a")["choices"], *chat("b")["choices"]]}, "a"),
        ("chat", {"choices": [{"text": "old"}]}, "old"),
        ("chat", {"choices": [{"finish_reason": "stop"}]}, ""),
        ("chat", {"choices": []}, ""),
        ("chat", {"choices": None}, ""),
        ("chat", {"object": "chat.completion"}, ""),
        ("chat", {"choices": [{"message": {"content": "a"}}], "error": None}, "a"),
        ("chat", {"error": {"message": "broke"}}, None),
        ("chat", {**chat("a"), "error": {"message": "broke"}}, None),
        ("chat", {"choices": ["a"]}, None),
        ("chat", {"content": [BLOCK]}, None),
        ("chat", ["a"], None),
        ("messages", {"content": [BLOCK, {**BLOCK, "citations": []}]}, "bb"),
        ("messages", {"type": "message", "content": "a"}, "a"),
        ("messages", {"content": [{"type": "thinking", "thinking": "hm"}, BLOCK]}, "b"),
        ("messages", {"content": [{"type": "redacted_thinking", "data": "x"}]}, ""),
        ("messages", {"content": [{"type": "tool_use", "input": {"text": "no"}}]}, ""),
        ("messages", {"content": [{"type": "web_search_tool_result", "content": [BLOCK]}]}, ""),
        ("messages", {"type": "message", "content": None}, ""),
        ("messages", {"type": "message"}, ""),
        ("messages", {"content": None}, None),
        ("messages", {"type": "error", "error": {"message": "broke"}}, None),
        ("messages", chat("a"), None),
        ("responses", output(message(said("a"), said("b")), message(said("c"))), "abc"),
        ("responses", output({"type": "reasoning", "summary": [said("no")]}), ""),
        ("responses", output({"type": "reasoning", "content": [said("no")]}), ""),
        ("responses", output(message({"type": "refusal", "refusal": "no"})), ""),
        ("responses", output({"type": "function_call"}, message(said("a"))), "a"),
        ("responses", output({"type": "message", "content": "a"}), "a"),
        ("responses", {"object": "response", "output": None}, ""),
        ("responses", {"object": "response"}, ""),
        ("responses", {**output(message(said("a"))), "error": {"code": "server_error"}}, None),
        ("responses", {"output": None}, None),
        ("responses", {"output": ["a"]}, None),
        ("gemini", parts({"text": "a"}, {"text": "b"}), "ab"),
        ("gemini", parts({"text": "hm", "thought": True}, {"text": "a", "thought": False}), "a"),
        ("gemini", parts({"functionCall": {"name": "f", "args": {"text": "no"}}}), ""),
        ("gemini", parts({"text": "a", "thoughtSignature": "c2ln"}), "a"),
        ("gemini", {"candidates": [*parts({"text": "a"})["candidates"], {"content": {}}]}, "a"),
        ("gemini", {"candidates": [{"finishReason": "SAFETY"}]}, ""),
        ("gemini", {"candidates": []}, ""),
        ("gemini", {"promptFeedback": {"blockReason": "SAFETY"}}, ""),
        ("gemini", {"error": {"code": 500}}, None),
        ("gemini", chat("a"), None),
        ("embeddings", {"data": []}, None),
    ],
)  # fmt: skip
def test_what_is_seen_of_a_reply(dialect: str, reply: Any, text: str | None) -> None:
    assert visible_text(dialect, json.dumps(reply).encode()) == text


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("raw", [b"", b"null", b"7", b'"a"', b"{", b"<html>", b"\xff", b"[" * 9999])
def test_what_is_no_reply(dialect: str, raw: bytes) -> None:
    assert visible_text(dialect, raw) is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb'{"choices":[{"message":{"content":"cut \ud83d"}}],"x":NaN}', "cut \ufffd"),
        (rb'{"choices":[{"message":{"content":"\ud83d\ude00"}}],"x":"\ude00"}', "\U0001f600"),
        (b'{"choices":[{"message":{"content":"a\xff"}}]}', "a\ufffd"),
        (b'{"choices":[{"message":{"content":"a"},"x":1e999,"y":%s}]}' % (b"9" * 400), "a"),
    ],
)
def test_a_reply_that_is_not_quite_json(raw: bytes, text: str) -> None:
    assert visible_text("chat", raw) == text


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("text", ["All is well.", None])
@pytest.mark.parametrize("thinking", ["hm", None])
def test_whole_replies(dialect: str, text: str | None, thinking: str | None) -> None:
    ask = Ask(dialect, "m", False, False, None, 1, 1, 1)
    content = Content(thinking, text, ("f", '{"a":1}'), 3, 4)
    reply = UPSTREAMS[dialect].reply(ask, content, Behaviour())
    assert visible_text(dialect, json.dumps(reply).encode()) == (text or "")


NAMES = "choices message content text type output candidates parts thought".split()


@given(st.sampled_from(list(DIALECTS)), shaped(*NAMES))
def test_any_json_is_read_or_told_apart(dialect: str, reply: Any) -> None:
    text = visible_text(dialect, json.dumps(reply).encode())
    assert text is None or text == "" or text.strip()
    assert text is None or text.encode().decode() == text
