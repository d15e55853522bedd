"""Messages events in, chat chunks out.

Sources: the Anthropic API reference, "Streaming messages"; the OpenAI API reference, "Streaming".
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from krouter.dialects.chat import CHAT
from krouter.errortext import read_error, stands_for
from krouter.sse import encode
from krouter_adapters.litellm_lane.translate.shapes import (
    CUT_CALL,
    FAILED,
    NAMELESS,
    Json,
    arguments_object,
    as_dict,
    as_index,
    as_text,
    broken,
    ending,
    failed_with,
    finish_reason,
    from_json,
    new_id,
    prefixed_id,
    quoted,
    to_json,
    usage_to_chat,
)

_SEPARATOR = "\n\n"


class _Call:
    """One tool call. `given` is the input that its start held already: some hosts send it whole
    there, and some send it again in pieces."""

    __slots__ = ("given", "id", "number", "pieces")

    def __init__(self, number: int, call_id: str, given: Any) -> None:
        self.number = number
        self.id = call_id
        self.given = given
        self.pieces: list[str] = []


class MessagesToChat:
    """Fed the events of one messages stream, it gives the chunks of the same reply as chat.

    `lost` is what of the reply chat has no place for. `signed`: with blocks of thinking beside the
    reasoning, as LiteLLM has them.
    """

    def __init__(self, *, signed: bool = False) -> None:
        self.lost: set[str] = set()
        self.closed = False
        self._signed = signed
        self._started = False
        self._usage: Json = {}
        self._stop: Any = None
        self._calls: list[_Call] = []
        # By the index of the block, which some hosts use again, and others leave out.
        self._running: dict[int | None, _Call] = {}
        self._spoke = self._said = self._apart = False
        self._open(None)

    def feed(self, event: Json) -> Iterator[Json]:
        """Chunks, or an object with `error`. After the last one `closed` is set."""
        if self.closed or not isinstance(event, dict):
            return
        match event.get("type"):
            case "content_block_delta":
                yield from self._delta(event)
            case "message_start":
                yield from self._message(event)
            case "content_block_start":
                yield from self._block(event)
            case "content_block_stop":
                yield from self._block_stop(as_index(event.get("index")))
            case "message_delta":
                self._count(event.get("usage"))
                stop = as_dict(event.get("delta")).get("stop_reason")
                self._stop = stop if isinstance(stop, str) and stop else self._stop
            case "message_stop":
                yield from self._end()
            case "error":
                yield self._failed(as_dict(event.get("error")))

    def plain(self, event: Json) -> str:
        """The text of an event that does no more than go on with the text before; else empty."""
        if self.closed or self._apart or not self._said:
            return ""
        delta = event.get("delta")
        if event.get("type") != "content_block_delta" or type(delta) is not dict:
            return ""
        return as_text(delta.get("text")) if delta.get("type") == "text_delta" else ""

    def told(self, piece: str) -> bytes:
        """Such a text as the chunk that `feed` would give."""
        return self._lead + quoted(piece) + _TAIL

    def _failed(self, error: Json) -> Json:
        self.closed = True
        return {"error": error}

    def _open(self, message: Json | None) -> None:
        fields = message or {}
        self._base = {
            "id": prefixed_id(fields.get("id"), "chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": as_text(fields.get("model")),
        }
        base = to_json(self._base).encode()[:-1]
        self._lead = b"data: " + base + b',"choices":[{"index":0,"delta":{"content":'

    def _chunk(self, delta: Json, finish: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._base, "choices": [choice]}

    def _message(self, event: Json) -> Iterator[Json]:
        if not self._started:
            message = as_dict(event.get("message"))
            self._count(message.get("usage"))
            self._open(message)
            yield self._role()

    def _role(self) -> Json:
        self._started = True
        return self._chunk({"role": "assistant", "content": ""})

    def _begun(self, delta: Json) -> Iterator[Json]:
        self._spoke = True
        if not self._started:
            yield self._role()
        yield self._chunk(delta)

    def _delta(self, event: Json) -> Iterator[Json]:
        delta = as_dict(event.get("delta"))
        match delta.get("type"):
            case "text_delta":
                yield from self._text(delta.get("text"))
            case "thinking_delta":
                yield from self._thought(delta.get("thinking"))
            case "input_json_delta":
                yield from self._input(as_index(event.get("index")), delta.get("partial_json"))
            case "signature_delta" if self._signed and as_text(delta.get("signature")):
                block = {"type": "thinking", "signature": delta["signature"]}
                yield from self._begun({"thinking_blocks": [block]})
            case "citations_delta":
                self.lost.add("citations")

    def _text(self, text: Any) -> Iterator[Json]:
        if type(text) is not str or not text:
            return
        if self._apart and self._said:
            text = _SEPARATOR + text
        self._said, self._apart = True, False
        yield from self._begun({"content": text})

    def _thought(self, text: Any) -> Iterator[Json]:
        if type(text) is str and text:
            yield from self._begun({"reasoning_content": text})

    def _block(self, event: Json) -> Iterator[Json]:
        block, index = as_dict(event.get("content_block")), as_index(event.get("index"))
        kind = block.get("type")
        if kind == "redacted_thinking" and self._signed:
            yield from self._begun({"thinking_blocks": [block]})
            return
        self.lost |= untold_block(block)
        if kind == "text":
            yield from self._text(block.get("text"))
            return
        self._apart = True
        if kind == "thinking":
            yield from self._thought(block.get("thinking"))
            return
        running = self._running.get(index)
        if running and running.id and running.id == block.get("id"):
            return
        yield from self._block_stop(index)
        if kind == "tool_use":
            yield from self._call(index, block)

    def _call(self, index: int | None, block: Json) -> Iterator[Json]:
        name = as_text(block.get("name"))
        if not name:
            yield self._failed(NAMELESS)
            return
        call = _Call(len(self._calls), as_text(block.get("id")), block.get("input"))
        self._calls.append(call)
        self._running[index] = call
        told = {
            "index": call.number,
            "id": call.id or new_id("call_"),
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        yield from self._begun({"tool_calls": [told]})

    def _input(self, index: int | None, piece: Any) -> Iterator[Json]:
        call = self._running.get(index)
        if call is not None and type(piece) is str and piece:
            call.pieces.append(piece)
            yield self._arguments(call.number, piece)

    def _arguments(self, number: int, piece: str) -> Json:
        return self._chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})

    def _block_stop(self, index: int | None) -> Iterator[Json]:
        """What came in no pieces is told now; a call without input still has arguments in chat."""
        call = self._running.pop(index, None)
        if call is None or call.pieces:
            return
        if broken(call.given):
            call.pieces.append(call.given)
        else:
            call.pieces.append(to_json(arguments_object(call.given)[0]))
        yield self._arguments(call.number, call.pieces[0])

    def _end(self) -> Iterator[Json]:
        """Only a stop reason and `message_stop` together are the end of a reply."""
        if self._stop is None:
            return
        reason = ending(self._stop, said=self._spoke)
        finish = finish_reason(reason, calls=bool(self._calls))
        if reason == FAILED:
            yield self._failed(failed_with(self._stop))
            return
        if not self._started:
            yield self._role()
        for index in list(self._running):
            yield from self._block_stop(index)
        if finish == "tool_calls" and any(broken("".join(c.pieces)) for c in self._calls):
            yield self._failed(CUT_CALL)
            return
        self.closed = True
        yield self._chunk({}, finish)
        yield {**self._base, "choices": [], "usage": usage_to_chat(self._usage)}

    def _count(self, usage: Any) -> None:
        """The counts of `message_delta` are totals and replace those of `message_start`."""
        fields = as_dict(usage).items()
        self._usage.update({key: value for key, value in fields if value is not None})


_TAIL = b'},"logprobs":null,"finish_reason":null}]}\n\n'


_TOLD = ("text", "thinking", "tool_use")


def untold_block(block: Json) -> set[str]:
    """What of a block has no place in chat."""
    kind = block.get("type")
    lost = set() if kind in _TOLD or not isinstance(kind, str) else {kind[:80]}
    return lost | {"citations"} if block.get("citations") else lost


def chat_chunk(chunk: Json) -> bytes:
    """One chunk as SSE."""
    return encode(to_json(chunk).encode())


def chat_error(told: Json) -> Json:
    """An error of any provider's in chat's form. All it says besides is kept."""
    text, _ = read_error(to_json(told).encode())
    message = text.message or "The provider sent an error without a message."
    body = CHAT.error_body(stands_for(text) or 500, message, {}, told)
    return as_dict(from_json(body.decode()))
