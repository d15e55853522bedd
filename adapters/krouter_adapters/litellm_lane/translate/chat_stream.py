"""Chat chunks in, messages events out.

Sources: the OpenAI API reference, "Streaming"; the Anthropic API reference, "Streaming messages".
Blocks of a message follow one another and are never mixed, so what arrives mixed is put in order:
the first open block is sent as it comes, later ones wait until it is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from krouter.dialects.messages import error_type
from krouter.dialects.thinking import UNSIGNED
from krouter.errortext import read_error, stands_for
from krouter.sse import encode
from krouter_adapters.litellm_lane.translate.shapes import (
    CUT_CALL,
    FAILED,
    NAMELESS,
    Json,
    arguments_object,
    arguments_text,
    as_dict,
    as_dicts,
    as_index,
    as_text,
    broken,
    ending,
    failed_with,
    from_json,
    new_id,
    prefixed_id,
    quoted,
    stop_reason,
    to_json,
    tool_id_out,
    usage_to_messages,
)

_TEXT, _THINKING, _TOOL, _REDACTED = "text", "thinking", "tool_use", "redacted_thinking"
_DELTA_OF = {
    _TEXT: ("text_delta", "text"),
    _THINKING: ("thinking_delta", "thinking"),
    _TOOL: ("input_json_delta", "partial_json"),
}
_OTHERS = (
    "reasoning_content",
    "reasoning",
    "refusal",
    "tool_calls",
    "function_call",
    "thinking_blocks",
    "images",
    "audio",
    "annotations",
)
_SAYS = ("content", *_OTHERS)
_UNTOLD = ("images", "audio", "annotations")


class _Block:
    """One block to come: its pieces wait here until it is the one being sent."""

    __slots__ = ("head", "id", "kind", "live", "name", "opened", "parts", "signature", "whole")

    def __init__(self, kind: str, call_id: str = "") -> None:
        self.kind = kind
        self.id = call_id
        self.name = ""
        self.signature = ""
        self.parts: list[str] = []
        self.whole: list[str] = []
        self.head = b""
        self.opened = False
        self.live = kind != _TOOL

    def add(self, text: str) -> None:
        if text:
            self.parts.append(text)
            if self.kind == _TOOL:
                self.whole.append(text)

    @property
    def arguments(self) -> str:
        return "".join(self.whole)

    def is_whole(self) -> bool:
        """Whether nothing more can belong to it once something else has begun."""
        if self.kind != _TOOL:
            return True
        if not self.name or not self.whole or not self.whole[-1].rstrip().endswith("}"):
            return False
        return isinstance(from_json(self.arguments), dict)


class ChatToMessages:
    """Fed the chunks of one chat stream, it returns the events of the same reply as messages.

    `names` maps tool names as sent to the caller's own; `lost` is what of the reply messages has
    no place for.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.lost: set[str] = set()
        self._names = names
        self._started = self._closed = False
        self._finish = ""
        self._stopped_by: str | None = None
        self._refused = self._in_deltas = False
        self._usage: Any = None
        self._blocks: list[_Block] = []
        self._calls: list[_Block] = []
        self._by_index: dict[int, _Block] = {}
        self._by_id: dict[str, _Block] = {}
        self._sent_ids: set[str] = set()
        self._index = 0
        self._head = b""

    def feed(self, chunk: Json) -> bytes:
        """The events a chunk gives; empty for a chunk that says nothing."""
        if self._closed or not isinstance(chunk, dict):
            return b""
        if chunk.get("error"):
            return self.error(as_dict(chunk["error"]) or {"message": as_text(chunk["error"])})
        choices, usage = chunk.get("choices"), chunk.get("usage")
        is_chunk = isinstance(choices, list) or chunk.get("object") == "chat.completion.chunk"
        if not is_chunk and not isinstance(usage, dict):
            return b""
        choice = _first_choice(choices) if isinstance(choices, list) else None
        usage = usage or _usage_elsewhere(chunk, choice)
        if isinstance(usage, dict) and any(usage.values()):
            self._usage = usage
        start = b"" if self._started else self._start(chunk)
        return start + self._choice(choice) if choice is not None else start

    def end(self) -> bytes:
        """The rest of a reply that its provider has finished; empty where it has not."""
        if self._closed or not self._finish:
            return b""
        reason = ending(self._finish, said=bool(self._index or self._blocks))
        if reason == FAILED:
            return self.error(failed_with(self._finish))
        waiting = [block for block in self._blocks if block.kind == _TOOL]
        if any(not block.name and block.arguments.strip() for block in waiting):
            return self.error(NAMELESS)
        calls = bool(self._sent_ids) or any(block.name for block in waiting)
        reason = stop_reason(
            reason, calls=calls, refused=self._refused, stopped_by=self._stopped_by
        )
        if reason == _TOOL and any(broken(block.arguments) for block in waiting):
            return self.error(CUT_CALL)
        out = [b"" if self._started else self._start({}), *self._drain(finished=True)]
        self._closed = True
        sequence = self._stopped_by if reason == "stop_sequence" else None
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        usage = usage_to_messages(self._usage)
        out.append(_event("message_delta", {"delta": delta, "usage": usage}))
        out.append(_event("message_stop", {}))
        return b"".join(out)

    def error(self, error: Json) -> bytes:
        """An error event. Nothing follows it."""
        self._closed = True
        return _event("error", {"error": messages_error(as_dict(error))})

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

    def _choice(self, choice: Json) -> bytes:
        out = self._delta(delta) if (delta := self._delta_of(choice)) else b""
        if choice.get("logprobs"):
            self.lost.add("logprobs")
        reason = choice.get("finish_reason")
        return out + self._finished(reason, choice) if reason else out

    def _delta_of(self, choice: Json) -> Json:
        """Some hosts send a `message` in place of the delta; others send the whole of it once more
        at the end."""
        delta = as_dict(choice.get("delta"))
        if not self._in_deltas:
            delta = delta or as_dict(choice.get("message"))
            if not delta and isinstance(choice.get("text"), str):
                delta = {"content": choice["text"]}
            self._in_deltas = choice.get("delta") is delta and any(map(delta.get, _SAYS))
        return delta

    def _finished(self, reason: Any, choice: Json) -> bytes:
        if not isinstance(reason, str):
            return b""
        if ending(reason, said=True) == FAILED:
            return self.error(as_dict(choice.get("error")) or failed_with(reason))
        self._finish = self._finish or reason
        # vLLM names here the stop string that matched.
        if isinstance(choice.get("stop_reason"), str) and reason == "stop":
            self._stopped_by = choice["stop_reason"]
        return b""

    def _delta(self, delta: Json) -> bytes:
        text = delta.get("content")
        # The common case: one more piece of the text that is being sent.
        if self._head and type(text) is str and text and not any(map(delta.get, _OTHERS)):
            return self._head + quoted(text) + b"}}\n\n"
        thought = delta.get("reasoning_content")
        if not isinstance(thought, str):
            thought = delta.get("reasoning")
        if isinstance(thought, str) and thought:
            self._add_text(_THINKING, thought)
        if delta.get("thinking_blocks"):
            self._sign(as_dicts(delta["thinking_blocks"]))
        self.lost |= untold(delta)
        if isinstance(text, str) and text:
            self._add_text(_TEXT, text)
        elif text:
            for kind, piece in content_texts(text):
                self._add_text(kind, piece)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            self._add_text(_TEXT, refusal)
        calls = delta.get("tool_calls")
        if calls:
            self._add_calls(as_dicts(calls))
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            self._add_call({"function": legacy}, 0)
        return self._drained()

    def _sign(self, thoughts: list[Json]) -> None:
        """Claude's signatures, as LiteLLM's classes hand them on beside the reasoning."""
        for thought in thoughts:
            data, signature = thought.get("data"), thought.get("signature")
            if thought.get("type") == _REDACTED and isinstance(data, str) and data:
                block = _Block(_REDACTED)
                block.add(data)
                self._blocks.append(block)
            elif isinstance(signature, str) and self._blocks and self._blocks[-1].kind == _THINKING:
                self._blocks[-1].signature = signature

    def _add_calls(self, calls: list[Json]) -> None:
        for place, call in enumerate(calls):
            if call.get("custom"):
                self.lost.add("tool_calls.custom")
            index = as_index(call.get("index"))
            self._add_call(call, place if index is None and len(calls) > 1 else index)

    def _drained(self) -> bytes:
        if not self._blocks:
            return b""
        first = self._blocks[0]
        if first.opened and len(self._blocks) == 1 and first.kind != _REDACTED:
            return self._piece(first) if first.parts else b""
        return b"".join(self._drain(finished=False))

    def _add_text(self, kind: str, text: str) -> None:
        last = self._blocks[-1] if self._blocks else None
        if last is None or last.kind != kind:
            last = _Block(kind)
            self._blocks.append(last)
        last.add(text)

    def _add_call(self, call: Json, index: int | None) -> None:
        function = as_dict(call.get("function"))
        name, call_id = as_text(function.get("name")), as_text(call.get("id"))
        arguments = arguments_text(function.get("arguments"))
        block = self._call_of(index, call_id, name, arguments)
        if block is None:
            if not (name or call_id or arguments):
                return
            block = self._new_call(call_id)
        if index is not None:
            self._by_index[index] = block
        if call_id:
            block.id = block.id or call_id
            self._by_id.setdefault(call_id, block)
        if name and not block.opened:
            block.name = name if name.startswith(block.name) else block.name + name
        block.add(arguments)

    def _call_of(self, index: int | None, call_id: str, name: str, args: str) -> _Block | None:
        """The call a piece belongs to. Hosts leave out the index, or count every call as 0; others
        make a new id for each piece."""
        known = self._by_id.get(call_id) if call_id else None
        at = self._by_index.get(index) if index is not None else None
        if index is None:
            at = known or (self._calls[-1] if self._calls else None)
        elif at is None:
            return None if name else known
        if at is None or known is at:
            return at
        if call_id and at.id and call_id != at.id:
            if known is not None:
                return known
            return None if name or at.is_whole() else at
        if name and not call_id:
            return None if self._begins_another(at, name, args) else at
        return at

    def _begins_another(self, at: _Block, name: str, args: str) -> bool:
        if not at.name or (not at.opened and not at.whole):
            return False
        if name != at.name:
            return bool(at.whole)
        return bool(args.strip()) and at.is_whole()

    def _new_call(self, call_id: str) -> _Block:
        block = _Block(_TOOL, call_id)
        self._blocks.append(block)
        self._calls.append(block)
        return block

    def _drain(self, *, finished: bool) -> Iterator[bytes]:
        """Sends the first block's pieces, and goes on to the next while the first is whole."""
        while self._blocks:
            first = self._blocks[0]
            over = finished or (len(self._blocks) > 1 and first.is_whole())
            yield from self._send(first, over=over)
            if not over:
                return
            if first.opened:
                yield self._close(first)
            self._head = b""
            self._blocks.pop(0)

    def _close(self, block: _Block) -> bytes:
        place = {"index": self._index}
        self._index += 1
        stop = _event("content_block_stop", place)
        if block.kind != _THINKING:
            return stop
        delta = {"type": "signature_delta", "signature": block.signature or UNSIGNED}
        return _event("content_block_delta", {**place, "delta": delta}) + stop

    def _send(self, block: _Block, *, over: bool) -> Iterator[bytes]:
        if block.kind == _TOOL and not self._ready(block, over=over):
            return
        if not block.parts and (block.kind != _TOOL or block.opened):
            return
        if not block.opened:
            yield self._open(block)
        if block.parts and block.kind != _REDACTED:
            yield self._piece(block)

    def _piece(self, block: _Block) -> bytes:
        """The pieces waiting in a block that is open."""
        if not block.head:
            block.head = _head_of(self._index, block.kind)
            self._head = block.head if block.kind == _TEXT else b""
        pieces, block.parts = "".join(block.parts), []
        return block.head + quoted(pieces) + b"}}\n\n"

    def _ready(self, block: _Block, *, over: bool) -> bool:
        """Whether a call can be sent: it has a name, and its arguments are an object. Arguments
        that begin otherwise are held until they are whole, and made one."""
        if not block.name:
            return False
        if block.live:
            return True
        begun = block.arguments.lstrip()
        if begun.startswith("{"):
            block.live = True
            return True
        if over:
            value, _ = arguments_object("" if broken(begun) else begun)
            block.parts = [to_json(value)] if value else []
            block.live = True
        return over

    def _open(self, block: _Block) -> bytes:
        block.opened = True
        if block.kind == _TOOL:
            call_id = tool_id_out(block.id)
            if call_id in self._sent_ids:
                call_id = new_id("toolu_")
            self._sent_ids.add(call_id)
            name = self._names.get(block.name, block.name)
            content: Json = {"type": _TOOL, "id": call_id, "name": name, "input": {}}
        elif block.kind == _REDACTED:
            content = {"type": _REDACTED, "data": "".join(block.parts)}
        elif block.kind == _THINKING:
            content = {"type": _THINKING, "thinking": "", "signature": ""}
        else:
            content = {"type": _TEXT, "text": ""}
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


def _first_choice(choices: list[Any]) -> Json | None:
    if choices and type(choices[0]) is dict and not choices[0].get("index"):
        first: Json = choices[0]
        return first
    for choice in as_dicts(choices):
        if not as_index(choice.get("index")):
            return choice
    return None


def _usage_elsewhere(chunk: Json, choice: Json | None) -> Any:
    """Moonshot counts inside the choice, Groq inside a field of its own."""
    return (choice or {}).get("usage") or as_dict(chunk.get("x_groq")).get("usage")


def untold(said: Json) -> set[str]:
    """What of a chat message or delta has no place in messages."""
    lost = {key for key in _UNTOLD if said.get(key)}
    for part in as_dicts(said.get("content")):
        if part.get("type") not in (None, _TEXT, _THINKING):
            lost.add(str(part["type"])[:80])
    return lost


def content_texts(content: Any) -> Iterator[tuple[str, str]]:
    """Content in parts, as Mistral sends it: text, and thinking that holds text parts."""
    for part in as_dicts(content):
        inner = part.get("thinking")
        thought = (
            inner
            if isinstance(inner, str)
            else "".join(as_text(piece.get("text")) for piece in as_dicts(inner))
        )
        if thought:
            yield _THINKING, thought
        elif as_text(part.get("text")):
            yield _TEXT, part["text"]


def messages_error(error: Json) -> Json:
    """An error object of any host with a type that clients of messages know. All else it says, such
    as when to come again, is kept."""
    inner = error.get("message")
    error = {**error, **inner} if isinstance(inner, dict) else error
    text, _ = read_error(to_json({"error": error}).encode())
    kind = error_type(stands_for(text) or 500)
    code = {} if error.get("code") or text.type in ("", kind) else {"code": text.type}
    message = text.message or "The provider sent an error without a message."
    return {**error, **code, "type": kind, "message": message}
