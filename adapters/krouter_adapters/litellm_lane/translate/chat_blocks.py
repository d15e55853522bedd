"""Chat chunks in, the blocks of a reply out: what every teller of a chat stream has in common.

Source: the OpenAI API reference, "Streaming"; hosts' variations of it. Blocks follow one another
and are never mixed, so what arrives mixed is put in order: the first open block is told as it
comes, later ones wait until it is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from krouter_adapters.litellm_lane.translate.chat_parts import (
    OTHERS,
    REDACTED,
    TEXT,
    THOUGHT,
    TOOL,
    content_texts,
    first_choice,
    sole_text,
    untold,
    usage_elsewhere,
)
from krouter_adapters.litellm_lane.translate.shapes import (
    CUT_CALL,
    FAILED,
    FINISH_OF,
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
    to_json,
)

_SAYS = ("content", *OTHERS)


class Block:
    """One block to come: its pieces wait here until it is the one being sent."""

    __slots__ = tuple("cut head id kind live name opened parts signature whole".split())

    def __init__(self, kind: str, call_id: str = "") -> None:
        self.kind = kind
        self.id = call_id
        self.name = ""
        self.signature = ""
        self.parts: list[str] = []
        self.whole: list[str] = []
        self.head = b""
        self.opened = self.cut = False
        self.live = kind != TOOL

    def add(self, text: str) -> None:
        if text:
            self.parts.append(text)
            if self.kind == TOOL:
                self.whole.append(text)

    @property
    def arguments(self) -> str:
        return "".join(self.whole)

    def is_whole(self) -> bool:
        """Whether nothing more can belong to it once something else has begun."""
        if self.kind != TOOL:
            return True
        if not self.name or not self.whole or not self.whole[-1].rstrip().endswith("}"):
            return False
        return isinstance(from_json(self.arguments), dict)


class ChatBlocks:
    """Fed the chunks of one chat stream, it returns the same reply in another dialect.

    `names` maps tool names as sent to the caller's own; `lost` is what of the reply that dialect
    has no place for. A subclass says how a reply begins and ends, and how a block is opened, filled
    and closed.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.lost: set[str] = set()
        self._names = names
        self._started = self._closed = False
        self._finish = ""
        self._stopped_by: str | None = None
        self._refused = self._in_deltas = False
        self._usage: Any = None
        self._blocks: list[Block] = []
        self._calls: list[Block] = []
        self._by_index: dict[int, Block] = {}
        self._by_id: dict[str, Block] = {}
        self._sent_ids: set[str] = set()
        self._index = 0
        self._head = b""

    def feed(self, chunk: Json) -> bytes:
        """The events a chunk gives; empty for a chunk that says nothing."""
        if self._closed or not isinstance(chunk, dict):
            return b""
        if text := self.plain(chunk):
            return self._more(text)
        if chunk.get("error"):
            return self.error(as_dict(chunk["error"]) or {"message": as_text(chunk["error"])})
        choices, usage = chunk.get("choices"), chunk.get("usage")
        is_chunk = isinstance(choices, list) or chunk.get("object") == "chat.completion.chunk"
        if not is_chunk and not isinstance(usage, dict):
            return b""
        choice = first_choice(choices) if isinstance(choices, list) else None
        if isinstance(choices, list) and (len(choices) > 1 or (choices and choice is None)):
            self.lost.add("choices")  # no other dialect's caller is told more than one
        usage = usage or usage_elsewhere(chunk, choice)
        if isinstance(usage, dict) and any(usage.values()):
            self._usage = usage
        start = b"" if self._started else self._start(chunk)
        return start + self._choice(choice) if choice is not None else start

    def plain(self, chunk: Json) -> str:
        """The text of a chunk that does no more than go on with the text that is being told; else
        empty."""
        goes_on = self._head and self._in_deltas and not self._closed
        return sole_text(chunk) if goes_on else ""

    def peek(self, chunk: Json) -> bytes:
        """What `feed` would tell of such a chunk; empty for any other, or where each is told in
        another way. Changes nothing."""
        return b""

    def text(self, piece: str) -> bytes:
        """A piece of text, where it goes on with the text that is being told; else nothing."""
        return self._more(piece) if self._head and piece and not self._closed else b""

    def end(self) -> bytes:
        """The rest of a reply that its provider has finished; empty where it has not."""
        if self._closed or not self._finish:
            return b""
        reason = ending(self._finish, said=bool(self._index or self._blocks))
        if reason == FAILED:
            return self.error(failed_with(self._finish))
        waiting = [block for block in self._blocks if block.kind == TOOL]
        if any(not block.name and block.arguments.strip() for block in waiting):
            return self.error(NAMELESS)
        calls = bool(self._sent_ids) or any(block.name for block in waiting)
        is_whole = calls and FINISH_OF[reason] in ("stop", "tool_calls")
        if is_whole and any(broken(block.arguments) for block in waiting):
            return self.error(CUT_CALL)
        return self._complete(reason, calls=calls)

    def error(self, error: Json) -> bytes:
        """An error event. Nothing follows it."""
        raise NotImplementedError

    def _start(self, chunk: Json) -> bytes:
        """The beginning of a reply; sets `_started`."""
        raise NotImplementedError

    def _complete(self, reason: str, *, calls: bool) -> bytes:
        """What is still waiting, and the end of a reply that ended for `reason`."""
        raise NotImplementedError

    def _open(self, block: Block) -> bytes:
        raise NotImplementedError

    def _piece(self, block: Block) -> bytes:
        """The pieces waiting in a block that is open. For text it sets `_head`."""
        raise NotImplementedError

    def _more(self, text: str) -> bytes:
        """One more piece of the text that is being told."""
        raise NotImplementedError

    def _close(self, block: Block) -> bytes:
        raise NotImplementedError

    def _refuse(self, text: str) -> None:
        self._refused = True
        self._add_text(TEXT, text)

    def _beside(self, delta: Json) -> None:
        """What a delta holds beside text, thinking and calls."""
        self.lost |= untold(delta)

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
        # One more piece of the text that is being sent, in a chunk that tells more beside it.
        is_alone = len(delta) == 1 or not any(map(delta.get, OTHERS))
        if self._head and type(text) is str and text and is_alone:
            return self._more(text)
        thought = delta.get("reasoning_content")
        if not isinstance(thought, str):
            thought = delta.get("reasoning")
        said = isinstance(thought, str) and bool(thought)
        blocks = as_dicts(delta.get("thinking_blocks"))
        if said and not any(as_text(block.get("thinking")) for block in blocks):
            self._add_text(THOUGHT, as_text(thought))
        for block in blocks:
            self._sign(block, said=said)
        if isinstance(text, str) and text:
            self._add_text(TEXT, text)
        elif text:
            for kind, piece in content_texts(text):
                self._add_text(kind, piece)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refuse(refusal)
        calls = delta.get("tool_calls")
        if calls:
            self._add_calls(as_dicts(calls))
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            self._add_call({"function": legacy}, 0)
        self._beside(delta)
        return self._drained()

    def _sign(self, thought: Json, *, said: bool) -> None:
        """A block of Claude's thinking, as LiteLLM hands it on beside the reasoning. `said`: its
        text is part of the reasoning in this delta, else of the deltas before. A signature may
        belong to a block without any text, and covers one block only."""
        text, signature = as_text(thought.get("thinking")), as_text(thought.get("signature"))
        if thought.get("type") == REDACTED:
            if data := as_text(thought.get("data")):
                block = Block(REDACTED)
                block.add(data)
                self._blocks.append(block)
            return
        if said and text:
            self._add_text(THOUGHT, text)
        if not signature:
            return
        last = self._blocks[-1] if self._blocks else None
        if last is None or last.kind != THOUGHT or last.signature:
            last = Block(THOUGHT)
            last.add(text)
            self._blocks.append(last)
        last.signature = signature

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
        if first.opened and len(self._blocks) == 1 and first.kind != REDACTED:
            return self._piece(first) if first.parts else b""
        return b"".join(self._drain(finished=False))

    def _add_text(self, kind: str, text: str) -> None:
        last = self._blocks[-1] if self._blocks else None
        if last is None or last.kind != kind or last.signature:
            last = Block(kind)
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

    def _call_of(self, index: int | None, call_id: str, name: str, args: str) -> Block | None:
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

    def _begins_another(self, at: Block, name: str, args: str) -> bool:
        if not at.name or (not at.opened and not at.whole):
            return False
        if name != at.name:
            return bool(at.whole)
        return bool(args.strip()) and at.is_whole()

    def _new_call(self, call_id: str) -> Block:
        block = Block(TOOL, call_id)
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

    def _send(self, block: Block, *, over: bool) -> Iterator[bytes]:
        if block.kind == TOOL and not self._ready(block, over=over):
            return
        if not block.parts and (block.opened or not (block.kind == TOOL or block.signature)):
            return
        if not block.opened:
            yield self._open(block)
        if block.parts and block.kind != REDACTED:
            yield self._piece(block)

    def _ready(self, block: Block, *, over: bool) -> bool:
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
