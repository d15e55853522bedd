"""A provider that costs next to nothing: `python -m benchmarks.provider` prints its port.

It answers /chat/completions and /messages, whole or as a stream, with fixed bytes. `GET
/set?chunks=100&pace=0.02` says how long streams are and how many seconds pass between two chunks
(0: all at once), and answers how many requests came since it was asked last.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import uvloop

HELLO = "Hello, and welcome."
WORD = "w0rd"
"""In each chunk once, with a number behind it: LiteLLM ends a stream of a hundred equal chunks."""
_NUMBERS = 8
_USAGE = {"prompt_tokens": 9, "completion_tokens": 100, "total_tokens": 109}
_SPENT = {"input_tokens": 9, "output_tokens": 100}


def _event(told: dict[str, Any]) -> bytes:
    name = f"event: {told['type']}\n" if "type" in told else ""
    return f"{name}data: {json.dumps(told, separators=(',', ':'))}\n\n".encode()


def _chat(*choices: dict[str, Any], kind: str = "chat.completion.chunk") -> dict[str, Any]:
    head = {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "fast"}
    return {**head, "choices": [{"index": 0, "logprobs": None, **each} for each in choices]}


class Events(NamedTuple):
    """What a stream is made of, each piece an HTTP chunk of one event or more."""

    first: bytes
    words: list[bytes]
    end: bytes


def _chat_events() -> Events:
    first = _chat({"delta": {"role": "assistant", "content": ""}, "finish_reason": None})
    words = [
        _event(_chat({"delta": {"content": f"{WORD}{number} "}, "finish_reason": None}))
        for number in range(_NUMBERS)
    ]
    last = _chat({"delta": {}, "finish_reason": "stop"})
    end = _event(last) + _event({**_chat(), "usage": _USAGE}) + b"data: [DONE]\n\n"
    return Events(_event(first), words, end)


def _message(content: list[dict[str, Any]], reason: str | None) -> dict[str, Any]:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fast"}
    end = {"stop_reason": reason, "stop_sequence": None, "usage": _SPENT}
    return {**head, "content": content, **end}


def _messages_events() -> Events:
    block = {"index": 0, "content_block": {"type": "text", "text": ""}}
    first = _event({"type": "message_start", "message": _message([], None)})
    first += _event({"type": "content_block_start", **block})
    deltas = [{"type": "text_delta", "text": f"{WORD}{number} "} for number in range(_NUMBERS)]
    words = [_event({"type": "content_block_delta", "index": 0, "delta": each}) for each in deltas]
    end = _event({"type": "content_block_stop", "index": 0})
    reason = {"stop_reason": "end_turn", "stop_sequence": None}
    end += _event({"type": "message_delta", "delta": reason, "usage": _SPENT})
    return Events(first, words, end + _event({"type": "message_stop"}))


def _whole(dialect: str) -> bytes:
    if dialect == "messages":
        told = _message([{"type": "text", "text": HELLO}], "end_turn")
    else:
        said = {"role": "assistant", "content": HELLO}
        told = _chat({"message": said, "finish_reason": "stop"}, kind="chat.completion")
        told["usage"] = _USAGE
    return _reply(json.dumps(told, separators=(",", ":")).encode())


def _reply(body: bytes) -> bytes:
    return _OK + b"application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def _pieces(events: Events, chunks: int) -> list[bytes]:
    """What is written at one time, in a paced stream; the head goes with the first chunk."""
    words = [_chunked(events.words[number % _NUMBERS]) for number in range(chunks)]
    first = _STREAM + _chunked(events.first)
    return [b"".join((first, *words[:1])), *words[1:], _chunked(events.end) + b"0\r\n\r\n"]


_UNKNOWN = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: "
_STREAM = _OK + b"text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Script:
    """What is answered at present, by dialect."""

    def __init__(self) -> None:
        self.asked = 0
        self.whole = {dialect: _whole(dialect) for dialect in ("chat", "messages")}
        self.set(chunks=100, pace=0.0)

    def set(self, *, chunks: int, pace: float) -> None:
        self.pace = pace
        events = {"chat": _chat_events(), "messages": _messages_events()}
        self.paced = {name: _pieces(each, chunks) for name, each in events.items()}
        self.flat = {name: b"".join(pieces) for name, pieces in self.paced.items()}

    def answer(self, query: str) -> bytes:
        told = {name: values[0] for name, values in parse_qs(query).items()}
        self.set(chunks=int(told["chunks"]), pace=float(told["pace"]))
        asked, self.asked = self.asked, 0
        return _reply(str(asked).encode())


class Provider(asyncio.Protocol):
    """One connection."""

    def __init__(self, script: Script, loop: asyncio.AbstractEventLoop) -> None:
        self._script = script
        self._loop = loop
        self._buffer = b""
        self._missing = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if self._missing > len(self._buffer):
            return
        head, end, _ = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        _, found, length = head.lower().partition(b"content-length:")
        self._missing = len(head) + 4 + (int(length.split(b"\r", 1)[0]) if found else 0)
        if self._missing <= len(self._buffer):
            request, self._buffer, self._missing = self._buffer, b"", 0
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        target = request.split(b" ", 2)[1]
        script = self._script
        if request.startswith(b"GET"):
            asked = urlsplit(target.decode())
            known = asked.path == "/set"
            self._transport.write(script.answer(asked.query) if known else _UNKNOWN)
            return
        script.asked += 1
        dialect = "messages" if b"/messages" in target else "chat"
        at = request.find(b'"stream"')
        if at < 0 or b"true" not in request[at : at + 16]:
            self._transport.write(script.whole[dialect])
        elif script.pace:
            self._next(iter(script.paced[dialect]), script.pace)
        else:
            self._transport.write(script.flat[dialect])

    def _next(self, pieces: Iterator[bytes], pace: float) -> None:
        if piece := next(pieces, None):
            self._transport.write(piece)
            self._loop.call_later(pace, self._next, pieces, pace)


async def provide() -> None:
    """Listens until killed."""
    loop, script = asyncio.get_running_loop(), Script()
    server = await loop.create_server(lambda: Provider(script, loop), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(provide())
