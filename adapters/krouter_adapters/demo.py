"""The built-in provider: answers in this process, needs no account and no network."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from krouter.adapter import Call, Target
from krouter.dialects.history import items_of
from krouter.providers import Provider
from krouter.sse import encode
from krouter.wire import Canned, Incoming, Wire
from krouter_adapters.litellm_lane.translate.responses_events import (
    ChatToResponses,
    chat_reply_to_responses,
)

REMINDER = "<system-reminder>"
_numbers = itertools.count(1)


class Demo:
    """The lane to builtin providers; speaks every dialect of krouter's."""

    name = "demo"

    def speaks(self, provider: Provider, dialect: str) -> bool:
        return provider.builtin and dialect in WRITERS

    async def send(self, call: Call, target: Target, wire: Wire) -> Incoming:
        asked = last_text(items_of(call.dialect.name, call.body))
        script = Script(target.model, reply_text(asked), len(call.body.raw) // 4 or 1)
        whole, events = WRITERS[call.dialect.name]
        if call.stream:
            return Canned(200, "text/event-stream; charset=utf-8", events(script))
        return Canned(200, "application/json", iter((msgspec.json.encode(whole(script)),)))

    async def ready(self) -> None:
        """It always is."""

    def warm_up(self) -> None:
        """It is always ready."""


@dataclass(frozen=True, slots=True)
class Script:
    """What is said. `prompt_tokens` are about a quarter of the request's bytes; what is said has a
    token a word, unless `said_tokens` says otherwise."""

    model: str
    text: str
    prompt_tokens: int
    number: int = field(default_factory=lambda: next(_numbers))
    created: int = field(default_factory=lambda: int(time.time()))
    said_tokens: int | None = None

    @property
    def output(self) -> int:
        return len(self.words) if self.said_tokens is None else self.said_tokens

    @property
    def words(self) -> list[str]:
        return self.text.split(" ")

    def pieces(self) -> Iterator[str]:
        """The text word by word, each with the blank before it."""
        for place, word in enumerate(self.words):
            yield word if place == 0 else f" {word}"


def last_text(messages: Any) -> str:
    """The last text of the last user message; empty where there is none. What a client puts around
    it, as Claude Code its reminders, is not what the user has said."""
    turns = messages if isinstance(messages, list) else []
    users = [
        turn for turn in turns if isinstance(turn, dict) and turn.get("role", "user") == "user"
    ]
    content = users[-1].get("content", users[-1].get("parts")) if users else None
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    found = [block.get("text") for block in blocks if isinstance(block, dict)]
    texts = [text for text in found if isinstance(text, str)]
    said = [text for text in texts if not text.lstrip().startswith(REMINDER)]
    return (said or texts or [""])[-1]


def reply_text(asked: str) -> str:
    """The demo's whole wit."""
    said = " ".join(asked.split())
    quoted = said if len(said) <= 200 else f"{said[:199]}…"
    return (
        f"Hello from krouter's built-in demo model. You said: “{quoted}” "
        "To hear from a real model, set a provider's key, such as ANTHROPIC_API_KEY, "
        "and ask for one of your combos."
    )


def _chat_whole(script: Script) -> dict[str, Any]:
    message = {"role": "assistant", "content": script.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    head = _chat_head(script, "chat.completion")
    return {**head, "choices": [choice], "usage": _chat_usage(script)}


def _chat_head(script: Script, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-demo-{script.number}",
        "object": kind,
        "created": script.created,
        "model": script.model,
    }


def _chat_usage(script: Script) -> dict[str, int]:
    output = script.output
    return {
        "prompt_tokens": script.prompt_tokens,
        "completion_tokens": output,
        "total_tokens": script.prompt_tokens + output,
    }


def _chat_chunks(script: Script) -> Iterator[dict[str, Any]]:
    head = _chat_head(script, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**head, "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in script.pieces():
        yield chunk({"content": piece})
    yield chunk({}, "stop")
    yield {**head, "choices": [], "usage": _chat_usage(script)}


def _chat_events(script: Script) -> Iterator[bytes]:
    yield from (encode(msgspec.json.encode(chunk)) for chunk in _chat_chunks(script))
    yield encode(b"[DONE]")


def _responses_whole(script: Script) -> dict[str, Any]:
    return chat_reply_to_responses(_chat_whole(script), {})


def _responses_events(script: Script) -> Iterator[bytes]:
    teller = ChatToResponses({})
    yield from filter(None, map(teller.feed, _chat_chunks(script)))
    yield teller.end()


def _messages_whole(script: Script) -> dict[str, Any]:
    return {
        **_messages_head(script, script.output),
        "content": [{"type": "text", "text": script.text}],
        "stop_reason": "end_turn",
    }


def _messages_head(script: Script, output: int) -> dict[str, Any]:
    return {
        "id": f"msg_demo_{script.number}",
        "type": "message",
        "role": "assistant",
        "model": script.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _messages_usage(script, output),
    }


def _messages_usage(script: Script, output: int) -> dict[str, int]:
    return {"input_tokens": script.prompt_tokens, "output_tokens": output}


def _messages_events(script: Script) -> Iterator[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return encode(msgspec.json.encode({"type": kind, **fields}), kind)

    yield event("message_start", message=_messages_head(script, 1))
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for piece in script.pieces():
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    yield event("content_block_stop", index=0)
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    yield event("message_delta", delta=ended, usage=_messages_usage(script, script.output))
    yield event("message_stop")


def _gemini_chunk(script: Script, text: str, reason: str = "") -> dict[str, Any]:
    content = {"parts": [{"text": text}], "role": "model"}
    output = script.output
    return {
        "candidates": [
            {"content": content, **({"finishReason": reason} if reason else {}), "index": 0}
        ],
        "usageMetadata": {
            "promptTokenCount": script.prompt_tokens,
            "candidatesTokenCount": output,
            "totalTokenCount": script.prompt_tokens + output,
        },
        "modelVersion": script.model,
        "responseId": f"demo-{script.number}",
    }


def _gemini_whole(script: Script) -> dict[str, Any]:
    return _gemini_chunk(script, script.text, "STOP")


def _gemini_events(script: Script) -> Iterator[bytes]:
    *pieces, last = script.pieces()
    for piece in pieces:
        yield encode(msgspec.json.encode(_gemini_chunk(script, piece)))
    yield encode(msgspec.json.encode(_gemini_chunk(script, last, "STOP")))


WRITERS: Mapping[
    str, tuple[Callable[[Script], dict[str, Any]], Callable[[Script], Iterator[bytes]]]
] = {
    "chat": (_chat_whole, _chat_events),
    "messages": (_messages_whole, _messages_events),
    "responses": (_responses_whole, _responses_events),
    "gemini": (_gemini_whole, _gemini_events),
}
