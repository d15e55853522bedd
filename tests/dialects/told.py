"""Streams of every dialect, as providers send them and as they may."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

BODIES = {
    "chat": b'{"model":"m","messages":[]}',
    "messages": b'{"model":"m","messages":[]}',
    "responses": b'{"model":"m","input":"hi"}',
    "gemini": b'{"contents":[]}',
}

TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "hi",
            "é😀",
            "\n\n",
            '"',
            "\\",
            "\ud83d",
            "\x00",
            '","finish_reason":"stop"',
            'data: {"error":{}}',
            "\n\ndata: [DONE]\n\n",
            "event: error\ndata: {}\n\n",
            '"signature"',
            '"tool_calls"',
            "thoughtSignature",
        ]
    ),
    st.text(max_size=4),
)
ODD = st.one_of(
    st.none(),
    st.sampled_from(["", "stop", "error", 0, 1, True, [], {}, {"type": "x"}, 10**30]),
    TEXTS,
)

Told = tuple[str, Any]
"""The name of an event and its data."""


def one_of(**told: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=told)


def chat(text: Any, **choice: Any) -> Any:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None} | choice
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}


def counts(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(dict.fromkeys(names, st.one_of(st.integers(0, 9), ODD)))


CHATS = counts("prompt_tokens", "completion_tokens")
CALLS = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}
CHAT: st.SearchStrategy[Told] = st.one_of(
    TEXTS.map(lambda text: ("", chat(text))),
    TEXTS.map(lambda text: ("", chat(text))),
    one_of(index=ODD, finish_reason=ODD, usage=CHATS, delta=ODD).map(
        lambda choice: ("", chat("x", **choice))
    ),
    CHATS.map(lambda usage: ("", chat("x") | {"usage": usage})),
    CHATS.map(lambda usage: ("", chat("x") | {"x_groq": {"usage": usage}})),
    one_of(choices=ODD, usage=ODD, x_groq=ODD, error=ODD).map(lambda more: ("", more)),
    st.just(("", chat("", delta=CALLS))),
    st.just(("", chat("", finish_reason="stop"))),
    st.just(("error", {"message": "no"})),
)


def block(kind: str, **told: Any) -> Told:
    return kind, {"type": kind, "index": 0, **told}


def delta(told: dict[str, Any]) -> Told:
    return block("content_block_delta", delta=told)


TOKENS = counts("input_tokens", "output_tokens")
MESSAGES: st.SearchStrategy[Told] = st.one_of(
    TEXTS.map(lambda text: delta({"type": "text_delta", "text": text})),
    TEXTS.map(lambda text: delta({"type": "text_delta", "text": text})),
    TEXTS.map(lambda text: delta({"type": "signature_delta", "signature": text})),
    TEXTS.map(lambda data: block("content_block_start", content_block={"type": "text"})),
    TOKENS.map(lambda usage: ("message_start", {"type": "message_start", "message": usage})),
    st.tuples(ODD, TOKENS).map(
        lambda told: block("message_delta", delta={"stop_reason": told[0]}, usage=told[1])
    ),
    st.sampled_from([block("content_block_stop"), ("ping", {}), ("error", {"error": {}})]),
    st.just(block("message_stop")),
)


def response(kind: str, **told: Any) -> Told:
    return f"response.{kind}", {"type": f"response.{kind}", **told}


RESPONSES: st.SearchStrategy[Told] = st.one_of(
    TEXTS.map(lambda text: response("output_text.delta", delta=text)),
    st.tuples(TEXTS, st.integers(0, 99)).map(
        lambda told: response("output_text.delta", delta=told[0], sequence_number=told[1])
    ),
    ODD.map(lambda item: response("output_item.done", item={"type": "reasoning", "x": item})),
    TEXTS.map(
        lambda text: response(
            "output_item.done", item={"type": "reasoning", "encrypted_content": text}
        )
    ),
    TOKENS.map(lambda usage: response("in_progress", response={"usage": usage})),
    st.sampled_from([response("output_text.done"), ("error", {"type": "error"})]),
    TOKENS.map(lambda usage: response("completed", response={"usage": usage})),
)


def gemini(text: Any, **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [{"text": text, **more}]}, "index": 0}]}


GEMINI: st.SearchStrategy[Told] = st.one_of(
    st.tuples(TEXTS, st.one_of(ODD, counts("promptTokenCount", "candidatesTokenCount"))).map(
        lambda told: ("", gemini(told[0]) | {"usageMetadata": told[1]})
    ),
    TEXTS.map(lambda text: ("", gemini(text, thoughtSignature=text))),
    one_of(candidates=ODD, promptFeedback=ODD, error=ODD).map(lambda more: ("", more)),
    ODD.map(lambda reason: ("", {"candidates": [{"finishReason": reason}]})),
)

SAID = {
    "chat": ("", chat("hi")),
    "messages": delta({"type": "text_delta", "text": "hi"}),
    "responses": response("output_text.delta", delta="hi", sequence_number=4),
    "gemini": ("", gemini("hi")),
}
TOLD = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES, "gemini": GEMINI}

ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r\n", "\r"])


@st.composite
def rendered(draw: Any, told: Told, end: str) -> bytes:
    """One event, mostly in the form that providers send, else in one that they may."""
    name, data = told
    if draw(st.integers(0, 5)):
        head = f"event: {name}{end}" if name else ""
        text = json.dumps(data, separators=(",", ":"))
        usual: str = f"{head}data: {text}{end}{end}"
        return usual.encode()
    if isinstance(data, dict) and draw(st.booleans()):
        data = dict(draw(st.permutations(list(data.items()))))
    text = json.dumps(data, indent=draw(st.sampled_from([None, 1])))
    text = draw(st.sampled_from([text, text[:-1], text + " ", f"{text},{text}", "[DONE]", "", "7"]))
    lines = [f"data:{draw(st.sampled_from(['', ' ', '  ']))}{line}" for line in text.split("\n")]
    if name or draw(st.booleans()):
        lines.insert(draw(st.integers(0, 1)), f"event: {name}")
    if draw(st.booleans()):
        lines.insert(0, draw(st.sampled_from([": alive", "id: 7", "", "data", "event"])))
    odd: str = end.join(lines) + end + draw(ENDS)
    return odd.encode()


@st.composite
def streams(draw: Any, dialect: str) -> bytes:
    end = draw(ENDS)
    said = draw(st.lists(st.just(SAID[dialect]), max_size=2))
    told = said + draw(st.lists(TOLD[dialect], max_size=10))
    raw: bytes = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf", b": hi\n\n"]))
    raw += b"".join(draw(rendered(each, end)) for each in told)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(raw)))
        odd = draw(st.sampled_from([b"", b"\n", b"\r", b'"', b"\\", b"\x00", b"\xff", b",", b"}"]))
        raw = raw[:at] + odd + raw[at + draw(st.integers(0, 2)) :]
    return raw
