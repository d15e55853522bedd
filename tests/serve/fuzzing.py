"""Streams at random: what a provider says, what goes wrong with it, and what it thereby told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from krouter.errors import Fault
from krouter.sse import encode
from krouter.wire import Headers, WireError
from tests.responses_validator import check_responses_stream
from tests.upstream import gemini, responses
from tests.upstream.content import Ask, Content
from tests.upstream.script import Behaviour
from tests.validators import Heard, check_chat_stream, check_gemini_stream, check_messages_stream

WORDS = ("hello", " wörld", " \\n", "🦊", " data: x", "\u2028", " [DONE]", "[]{}", " \r\n", "0")
NAMES = ("get_weather", "bash", "a-b_c")


class Said(NamedTuple):
    """What a model says."""

    thinking: list[str]
    text: list[str]
    calls: list[tuple[str, list[str]]]


def _said(dice: Random) -> Said:
    def words(most: int) -> list[str]:
        return [dice.choice(WORDS) for _ in range(dice.randint(0, most))]

    calls = [(dice.choice(NAMES), ["{", '"a": ', "[1]}"]) for _ in range(dice.choice((0, 0, 1, 2)))]
    return Said(words(2), words(3) or ([] if calls else ["hi"]), calls)


def chat_events(dice: Random) -> list[bytes]:
    what = _said(dice)
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return encode(json.dumps({**head, "choices": [choice]}).encode())

    out = [event({"role": "assistant", "content": ""})]
    out += [event({"reasoning_content": piece}) for piece in what.thinking]
    out += [event({"content": piece}) for piece in what.text]
    for index, (name, pieces) in enumerate(what.calls):
        function = {"name": name, "arguments": ""}
        call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        out.append(event({"tool_calls": [call]}))
        rest = [{"index": index, "function": {"arguments": piece}} for piece in pieces]
        out += [event({"tool_calls": [call]}) for call in rest]
    out.append(event({}, "tool_calls" if what.calls else "stop"))
    if dice.random() < 0.5:
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
        out.append(encode(json.dumps({**head, "choices": [], "usage": usage}).encode()))
    return [*out, b"data: [DONE]\n\n"]


def messages_events(dice: Random) -> list[bytes]:
    what = _said(dice)

    def event(kind: str, **fields: Any) -> bytes:
        return encode(json.dumps({"type": kind, **fields}).encode(), kind)

    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "daily"}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None}  # type: ignore[dict-item]
    message["usage"] = {"input_tokens": 5, "output_tokens": 1}  # type: ignore[assignment]
    out = [event("message_start", message=message), event("ping")]
    blocks: list[tuple[dict[str, Any], str, str, list[str]]] = []
    if what.thinking:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        blocks.append((block, "thinking_delta", "thinking", what.thinking))
    if what.text:
        blocks.append(({"type": "text", "text": ""}, "text_delta", "text", what.text))
    for number, (name, pieces) in enumerate(what.calls):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
        blocks.append((block, "input_json_delta", "partial_json", pieces))
    for index, (block, kind, key, pieces) in enumerate(blocks):
        out.append(event("content_block_start", index=index, content_block=block))
        for piece in pieces:
            delta = {"type": kind, key: piece}
            out.append(event("content_block_delta", index=index, delta=delta))
        out.append(event("content_block_stop", index=index))
    stop = {"stop_reason": "tool_use" if what.calls else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": 5, "output_tokens": 3}
    return [*out, event("message_delta", delta=stop, usage=usage), event("message_stop")]


def _content(dice: Random) -> tuple[Ask, Content, Behaviour]:
    what = _said(dice)
    call = (what.calls[0][0], "".join(what.calls[0][1])) if what.calls else None
    text = "".join(what.text) or None
    content = Content("".join(what.thinking) or None, text, call, 5, 3)
    ask = Ask("", "m", True, True, None, 5, dice.randint(1, 99), 1)
    return ask, content, Behaviour(chunks=dice.randint(1, 4))


def gemini_events(dice: Random) -> list[bytes]:
    given = gemini.events(*_content(dice))
    return [encode(json.dumps(data).encode()) for _, data in given]


def responses_events(dice: Random) -> list[bytes]:
    given = responses.events(*_content(dice))
    return [encode(json.dumps(data).encode(), name or "") for name, data in given]


def told(raw: bytes) -> Iterator[tuple[str, Any]]:
    """Name and data of every whole event, read by the standard's rules and by nothing of krouter's;
    the last one may lack its blank line."""
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    name, data = "", []
    for line in [*re.split("\r\n|\n|\r", text), ""]:
        if line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            name = value if field == "event" else name
            data += [value] if field == "data" else []
            continue
        try:
            yield name, json.loads("\n".join(data))
        except ValueError:
            yield name, "\n".join(data)
        name, data = "", []


def chat_ended(raw: bytes) -> bool:
    choices = (
        choice
        for _, data in told(raw)
        if isinstance(data, dict) and isinstance(data.get("choices"), list)
        for choice in data["choices"]
    )
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def messages_ended(raw: bytes) -> bool:
    seen = [(data.get("type") or name, data) for name, data in told(raw) if isinstance(data, dict)]
    deltas = (data.get("delta") for kind, data in seen if kind == "message_delta")
    reason = any(isinstance(delta, dict) and delta.get("stop_reason") for delta in deltas)
    return reason and any(kind == "message_stop" for kind, _ in seen)


def gemini_ended(raw: bytes) -> bool:
    return any(
        isinstance(candidate, dict) and candidate.get("finishReason")
        for _, data in told(raw)
        if isinstance(data, dict) and isinstance(data.get("candidates"), list)
        for candidate in data["candidates"]
    )


def responses_ended(raw: bytes) -> bool:
    seen = [(data.get("type") or name, data) for name, data in told(raw) if isinstance(data, dict)]
    ends = ("response.completed", "response.incomplete")
    return any(kind in ends and isinstance(data.get("response"), dict) for kind, data in seen)


class Spoken(NamedTuple):
    """A dialect: how a provider streams in it, what tells a proper end, and what a strict client
    makes of a stream."""

    events: Callable[[Random], list[bytes]]
    ended: Callable[[bytes], bool]
    check: Callable[[bytes], Heard]


SPOKEN = {
    "chat": Spoken(chat_events, chat_ended, check_chat_stream),
    "messages": Spoken(messages_events, messages_ended, check_messages_stream),
    "gemini": Spoken(gemini_events, gemini_ended, check_gemini_stream),
    "responses": Spoken(responses_events, responses_ended, check_responses_stream),
}


class Sent(NamedTuple):
    """What goes over the wire. `whole`: every event, in some shape; `sound`: no event that is not
    the dialect's own."""

    raw: bytes
    end: Exception | None
    whole: bool
    sound: bool


ENDS = (
    None,
    WireError(Fault.CUT, "gone"),
    WireError(Fault.RESET),
    WireError(Fault.TIMEOUT, "silent"),
)


def shaped(dice: Random, events: list[bytes]) -> list[bytes]:
    match dice.randrange(8):
        case 0:
            return [event.replace(b"\n", b"\r\n") for event in events]
        case 1:
            return [event.replace(b"\n", b"\r") for event in events]
        case 2:
            return [b"\xef\xbb\xbf" + events[0], *events[1:]]
        case 3:
            return [piece for event in events for piece in (b": still here\n\n", event)]
        case 4:
            return [re.sub(rb"(?m)^data: ", b"data:", event) for event in events]
        case 5:
            return [b"id: 7\nretry: 5\n" + event for event in events]
    return events


def damaged(dice: Random, raw: bytes) -> bytes:
    a, b = sorted((dice.randrange(len(raw) + 1), dice.randrange(len(raw) + 1)))
    match dice.randrange(5):
        case 0:
            return raw[:a] + dice.randbytes(dice.randint(1, 9)) + raw[a:]
        case 1:
            return raw[:a] + raw[b:]
        case 2:
            return raw[:b] + raw[a:b] + raw[b:]
        case 3:
            return raw.translate(bytes.maketrans(b":{n", dice.choice((b"{:n", b":{\n", b";[n"))))
    flipped = bytearray(raw)
    for _ in range(dice.randint(1, 4)):
        flipped[dice.randrange(len(raw))] = dice.randrange(256)
    return bytes(flipped)


def spoiled(dice: Random, events: list[bytes]) -> list[bytes]:
    """Whole events, but not those of a sound stream."""
    place = dice.randrange(len(events))
    match dice.randrange(5):
        case 0:
            return events[:place] + events[place + 1 :]
        case 1:
            return dice.sample(events, len(events))
        case 2:
            return [*events[:place], b"data: {oops\n\n", *events[place:]]
        case 3:
            error = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
            return [*events[:place], encode(error, "error"), *events[place:]]
    return [*events[:place], encode(b'{"error":{"message":"busy"}}'), *events[place:]]


JUNK = (b"", b"\n\n", b"<html>\n\n</html>", b'{"error":{"message":"no"}}', b'{"choices":[]}', b"[]")


STREAMS = {name: [spoken.events(Random(n)) for n in range(100)] for name, spoken in SPOKEN.items()}
"""Made once, since what goes wrong with them is what matters."""


def sent(dice: Random, dialect: str) -> Sent:
    events = dice.choice(STREAMS[dialect])
    kind = dice.random()
    if kind < 0.2:
        return Sent(b"".join(shaped(dice, events)), None, True, True)
    if kind < 0.55:
        raw = b"".join(shaped(dice, events))
        return Sent(raw[: dice.randrange(len(raw))], dice.choice(ENDS), False, True)
    if kind < 0.75:
        return Sent(b"".join(spoiled(dice, events)), dice.choice(ENDS), False, False)
    if kind < 0.97:
        return Sent(damaged(dice, b"".join(shaped(dice, events))), dice.choice(ENDS), False, False)
    junk = dice.choice((*JUNK, dice.randbytes(dice.randint(1, 99))))
    return Sent(junk, dice.choice(ENDS), False, False)


def split(dice: Random, raw: bytes) -> list[bytes]:
    size = (
        dice.choice((200, 1000, 10_000)) if dice.random() > 0.05 else dice.choice((2, 40, 40, 40))
    )
    out, at = [], 0
    while at < len(raw):
        step = dice.randint(1, size)
        out.append(raw[at : at + step])
        at += step
    return out


class FakeReply:
    """A reply that is there already."""

    def __init__(self, pieces: list[bytes], end: Exception | None, kind: str) -> None:
        self.status = 200
        self.headers: Headers = [("content-type", kind)]
        self.dropped: tuple[str, ...] = ()
        self._pieces = iter(pieces)
        self._end = end

    async def chunk(self) -> bytes:
        piece = next(self._pieces, b"")
        if not piece and self._end is not None:
            raise self._end
        return piece

    async def read(self, limit: int) -> bytes:
        return b"".join(self._pieces)

    def ending(self) -> bytes:
        return b""

    def close(self) -> None:
        self._pieces = iter(())
