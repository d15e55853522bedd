"""Messages events in, chat chunks out.

Sources: the Anthropic API reference, "Streaming messages"; the OpenAI API reference, "Streaming".
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from krouter.dialects.chat import CHAT, DONE
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
    """Fed the events of one messages stream, it returns the same reply as chat chunks.

    `names` maps tool names as sent to the caller's own; `lost` is what of the reply chat has no
    place for. `signed`: with blocks of thinking beside the reasoning, as LiteLLM has them.
    """

    def __init__(self, names: Mapping[str, str] | None = None, *, signed: bool = False) -> None:
        self.lost: set[str] = set()
        self._signed = signed
        self._names = names or {}
        self._closed = False
        self._started = False
        self._usage: Json = {}
        self._stop: Any = None
        self._calls: list[_Call] = []
        # By the index of the block, which some hosts use again, and others leave out.
        self._running: dict[int | None, _Call] = {}
        self._spoke = self._said = self._apart = False
        self._open(None)

    def feed(self, data: Json) -> bytes:
        """The chunks an event gives; empty for an event that chat has no word for."""
        if self._closed or not isinstance(data, dict):
            return b""
        match data.get("type"):
            case "content_block_delta":
                return self._delta(data)
            case "message_start":
                return self._message(data)
            case "content_block_start":
                return self._block(data)
            case "content_block_stop":
                return self._block_stop(as_index(data.get("index")))
            case "message_delta":
                self._count(data.get("usage"))
                stop = as_dict(data.get("delta")).get("stop_reason")
                self._stop = stop if isinstance(stop, str) and stop else self._stop
            case "message_stop":
                return self._end()
            case "error":
                return self.error(as_dict(data.get("error")))
        return b""

    def plain(self, data: Json) -> str:
        """The text of an event that does no more than go on with the text before; else empty."""
        if self._closed or self._apart or not self._said:
            return ""
        delta = data.get("delta")
        if data.get("type") != "content_block_delta" or type(delta) is not dict:
            return ""
        return as_text(delta.get("text")) if delta.get("type") == "text_delta" else ""

    def end(self) -> bytes:
        """Nothing: `message_stop` is the only end."""
        return b""

    def error(self, error: Json) -> bytes:
        """An error chunk. Nothing follows it."""
        self._closed = True
        return chat_chunk(chat_error({"type": "error", "error": as_dict(error)}))

    def _open(self, message: Json | None) -> None:
        fields = message or {}
        self._base = {
            "id": prefixed_id(fields.get("id"), "chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": as_text(fields.get("model")),
        }
        base = to_json(self._base).encode()[:-1]
        self._lead = b"data: " + base + b',"choices":[{"index":0,"delta":{'
        self._text_lead = self._lead + b'"content":'
        self._thought_lead = self._lead + b'"reasoning_content":'

    def _message(self, data: Json) -> bytes:
        if self._started:
            return b""
        message = as_dict(data.get("message"))
        self._count(message.get("usage"))
        self._open(message)
        return self._role()

    def _role(self) -> bytes:
        self._started = True
        return self._lead + b'"role":"assistant","content":""' + _TAIL

    def _begun(self, chunk: bytes) -> bytes:
        self._spoke = True
        return chunk if self._started else self._role() + chunk

    def _delta(self, data: Json) -> bytes:
        delta = data.get("delta")
        if not isinstance(delta, dict):
            return b""
        match delta.get("type"):
            case "text_delta":
                return self._text(delta.get("text"))
            case "thinking_delta":
                return self._thought(delta.get("thinking"))
            case "input_json_delta":
                return self._input(as_index(data.get("index")), delta.get("partial_json"))
            case "signature_delta" if self._signed and as_text(delta.get("signature")):
                signature = as_text(delta.get("signature"))
                return self._block_of_thinking({"type": "thinking", "signature": signature})
            case "citations_delta":
                self.lost.add("citations")
        return b""

    def _block_of_thinking(self, block: Json) -> bytes:
        blocks = to_json([block]).encode()
        return self._begun(self._lead + b'"thinking_blocks":' + blocks + _TAIL)

    def _text(self, text: Any) -> bytes:
        if type(text) is not str or not text:
            return b""
        if self._apart and self._said:
            text = _SEPARATOR + text
        self._said, self._apart = True, False
        return self._begun(self._text_lead + quoted(text) + _TAIL)

    def _thought(self, text: Any) -> bytes:
        if type(text) is not str or not text:
            return b""
        return self._begun(self._thought_lead + quoted(text) + _TAIL)

    def _block(self, data: Json) -> bytes:
        block, index = as_dict(data.get("content_block")), as_index(data.get("index"))
        kind = block.get("type")
        if kind == "redacted_thinking" and self._signed:
            return self._block_of_thinking(block)
        self.lost |= untold_block(block)
        if kind == "text":
            return self._text(block.get("text"))
        self._apart = True
        if kind == "thinking":
            return self._thought(block.get("thinking"))
        running = self._running.get(index)
        if running and running.id and running.id == block.get("id"):
            return b""
        before = self._block_stop(index)
        return before + self._call(index, block) if kind == "tool_use" else before

    def _call(self, index: int | None, block: Json) -> bytes:
        name = as_text(block.get("name"))
        if not name:
            return self.error(NAMELESS)
        call = _Call(len(self._calls), as_text(block.get("id")), block.get("input"))
        self._calls.append(call)
        self._running[index] = call
        told = {
            "index": call.number,
            "id": call.id or new_id("call_"),
            "type": "function",
            "function": {"name": self._names.get(name, name), "arguments": ""},
        }
        return self._begun(self._tool_calls(to_json(told).encode()))

    def _input(self, index: int | None, piece: Any) -> bytes:
        call = self._running.get(index)
        if call is None or type(piece) is not str or not piece:
            return b""
        call.pieces.append(piece)
        return self._arguments(call.number, piece)

    def _arguments(self, number: int, piece: str) -> bytes:
        head = f'{{"index":{number},"function":{{"arguments":'.encode()
        return self._tool_calls(head + quoted(piece) + b"}}")

    def _tool_calls(self, call: bytes) -> bytes:
        return self._lead + b'"tool_calls":[' + call + b"]" + _TAIL

    def _block_stop(self, index: int | None) -> bytes:
        """What came in no pieces is told now; a call without input still has arguments in chat."""
        call = self._running.pop(index, None)
        if call is None or call.pieces:
            return b""
        if broken(call.given):
            call.pieces.append(call.given)
        else:
            call.pieces.append(to_json(arguments_object(call.given)[0]))
        return self._arguments(call.number, call.pieces[0])

    def _end(self) -> bytes:
        """Only a stop reason and `message_stop` together are the end of a reply."""
        if self._stop is None:
            return b""
        reason = ending(self._stop, said=self._spoke)
        finish = finish_reason(reason, calls=bool(self._calls))
        if reason == FAILED:
            return self.error(failed_with(self._stop))
        out = [b"" if self._started else self._role()]
        out += [self._block_stop(index) for index in list(self._running)]
        if finish == "tool_calls" and any(broken("".join(c.pieces)) for c in self._calls):
            return b"".join(out) + self.error(CUT_CALL)
        self._closed = True
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish}
        out.append(chat_chunk({**self._base, "choices": [choice]}))
        usage = usage_to_chat(self._usage)
        out.append(chat_chunk({**self._base, "choices": [], "usage": usage}))
        return b"".join([*out, DONE])

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
