"""Chat chunks in, messages events out.

Sources: the OpenAI API reference, "Streaming"; the Anthropic API reference, "Streaming messages".
"""

from __future__ import annotations

from krouter.dialects.messages import error_type
from krouter.dialects.thinking import UNSIGNED
from krouter.errortext import ErrorText, read_error, stands_for
from krouter.sse import encode
from krouter_adapters.litellm_lane.translate.chat_blocks import Block, ChatBlocks
from krouter_adapters.litellm_lane.translate.chat_parts import REDACTED, TEXT, THOUGHT, TOOL
from krouter_adapters.litellm_lane.translate.shapes import (
    Json,
    as_dict,
    as_text,
    new_id,
    prefixed_id,
    quoted,
    stop_reason,
    to_json,
    tool_id_out,
    usage_to_messages,
)

_DELTA_OF = {
    TEXT: ("text_delta", "text"),
    THOUGHT: ("thinking_delta", "thinking"),
    TOOL: ("input_json_delta", "partial_json"),
}


class ChatToMessages(ChatBlocks):
    """Fed the chunks of one chat stream, it returns the events of the same reply as messages."""

    def error(self, error: Json) -> bytes:
        self._closed = True
        return _event("error", {"error": messages_error(as_dict(error))})

    def peek(self, chunk: Json) -> bytes:
        text = self.plain(chunk)
        return self._more(text) if text else b""

    def _start(self, chunk: Json) -> bytes:
        self._started = True
        usage = usage_to_messages(self._usage)
        message: Json = {
            "id": prefixed_id(chunk.get("id"), "msg_"),
            "type": "message",
            "role": "assistant",
            "model": as_text(chunk.get("model")),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**usage, "output_tokens": 0},
        }
        return _event("message_start", {"message": message})

    def _complete(self, reason: str, *, calls: bool) -> bytes:
        reason = stop_reason(
            reason, calls=calls, refused=self._refused, stopped_by=self._stopped_by
        )
        out = [b"" if self._started else self._start({}), *self._drain(finished=True)]
        self._closed = True
        sequence = self._stopped_by if reason == "stop_sequence" else None
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        usage = usage_to_messages(self._usage)
        out.append(_event("message_delta", {"delta": delta, "usage": usage}))
        out.append(_event("message_stop", {}))
        return b"".join(out)

    def _close(self, block: Block) -> bytes:
        place = {"index": self._index}
        self._index += 1
        stop = _event("content_block_stop", place)
        if block.kind != THOUGHT:
            return stop
        delta = {"type": "signature_delta", "signature": block.signature or UNSIGNED}
        return _event("content_block_delta", {**place, "delta": delta}) + stop

    def _more(self, text: str) -> bytes:
        return self._head + quoted(text) + b"}}\n\n"

    def _piece(self, block: Block) -> bytes:
        if not block.head:
            block.head = _head_of(self._index, block.kind)
            self._head = block.head if block.kind == TEXT else b""
        pieces, block.parts = "".join(block.parts), []
        return block.head + quoted(pieces) + b"}}\n\n"

    def _open(self, block: Block) -> bytes:
        block.opened = True
        if block.kind == TOOL:
            call_id = tool_id_out(block.id)
            if call_id in self._sent_ids:
                call_id = new_id("toolu_")
            self._sent_ids.add(call_id)
            name = self._names.get(block.name, block.name)
            content: Json = {"type": TOOL, "id": call_id, "name": name, "input": {}}
        elif block.kind == REDACTED:
            content = {"type": REDACTED, "data": "".join(block.parts)}
        elif block.kind == THOUGHT:
            content = {"type": THOUGHT, "thinking": "", "signature": ""}
        else:
            content = {"type": TEXT, "text": ""}
        start = {"index": self._index, "content_block": content}
        return _event("content_block_start", start)


def _event(kind: str, fields: Json) -> bytes:
    return encode(to_json({"type": kind, **fields}).encode(), kind)


def _head_of(index: int, kind: str) -> bytes:
    name, key = _DELTA_OF[kind]
    return (
        "event: content_block_delta\n"
        f'data: {{"type":"content_block_delta","index":{index},'
        f'"delta":{{"type":"{name}","{key}":'
    ).encode()


def messages_error(error: Json) -> Json:
    """An error object of any host with a type that clients of messages know. All else it says, such
    as when to come again, is kept."""
    inner = error.get("message")
    error = {**error, **inner} if isinstance(inner, dict) else error
    text, _ = read_error(to_json({"error": error}).encode())
    status = stands_for(text) or 500
    kind = error_type(status)
    told = bool(error.get("code")) and stands_for(ErrorText(type=kind, code=text.code)) == status
    code = {} if told or text.type in ("", kind) else {"code": text.type}
    message = text.message or "The provider sent an error without a message."
    return {**error, **code, "type": kind, "message": message}
