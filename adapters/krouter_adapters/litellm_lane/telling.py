"""What a provider's reply says, told in the caller's dialect: whole replies, and streams event by
event. Pure functions and machines; `reply` takes in what comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from krouter.adapter import Call
from krouter.body import dump
from krouter.dialects.base import read_loosely
from krouter.dialects.chat import DONE
from krouter_adapters.litellm_lane.json_tool import Untooled, untooled
from krouter_adapters.litellm_lane.read import (
    BROKEN,
    Reader,
    ReadReply,
    before_class,
    end_of,
    failure_in,
    looks_right,
    tidied,
    unread,
    whole_chat,
)
from krouter_adapters.litellm_lane.through import Teller, Through
from krouter_adapters.litellm_lane.translate import (
    ChatToGemini,
    ChatToMessages,
    ChatToResponses,
    CustomCalls,
    MessagesToChat,
    ResponsesToChat,
    Told,
    beside_calls,
    chat_chunk,
    chat_error,
    chat_reply_to_gemini,
    chat_reply_to_messages,
    chat_reply_to_responses,
    messages_reply_to_chat,
    prefixed_id,
    responses_reply_to_chat,
    with_customs,
)
from krouter_adapters.litellm_lane.translate.shapes import Json
from krouter_adapters.litellm_lane.ways import Aim

NO_REPLY = b"{}"
"""What no dialect takes for a reply."""


def _unread(event: Json) -> Iterator[Json]:
    """Chunks of a chat body are read by no class."""
    yield event


@dataclass(frozen=True, slots=True)
class Shape:
    """How to read the reply to one request."""

    aim: Aim
    model: str
    names: Mapping[str, str]
    """Tool names as the provider says them → as the caller knows them."""
    dropped: tuple[str, ...]
    read: ReadReply = dict
    chunks: Callable[[], Reader] = lambda: _unread
    fake: bool = False
    """The caller wants a stream, and the provider was asked for a whole reply."""
    json_tool: bool = False
    """The reply is the call of a tool that the caller does not know."""
    maker: str = ""
    """Who signs the reasoning of a body of responses."""
    told: Told | None = None
    """What a reply to a caller of responses or gemini must know of the request."""
    customs: frozenset[str] = frozenset()
    """Tools that a caller of chat has as custom ones, and the provider as functions."""


def translated(
    raw: bytes, shape: Shape, dialect: str = "chat", lost: set[str] | None = None
) -> bytes:
    """A whole reply in the caller's dialect; an error as it is, nothing for what is no reply.
    `lost` is told what of it the caller's dialect has no place for."""
    reply = json_object(raw)
    if reply is None:
        return b""
    if reply.get("error"):
        return dump(reply)
    if not looks_right(shape.aim, reply):
        return NO_REPLY
    try:
        names, chat = shape.names, reply
        if shape.aim.body == "messages":
            reply = untooled(reply) if shape.json_tool else reply
            signed = dialect in _SIGNED
            names, chat = {}, messages_reply_to_chat(reply, names, lost, signed=signed)
        elif shape.aim.body == "responses":
            signed = dialect in _SIGNED
            chat = responses_reply_to_chat(reply, shape.maker, signed=signed, lost=lost)
        elif shape.aim.body != "chat":
            chat = whole_chat(shape.aim, reply, shape.read, shape.model)
            if lost is not None:
                lost |= unread(shape.aim, reply)
        if chat.get("error") or dialect == "chat":
            return dump(with_customs(_renamed(chat, names), shape.customs))
        return dump(_WHOLE[dialect](chat, names, shape, lost))
    except Exception:  # whatever a class stumbles over is no reply of the provider's
        return NO_REPLY


_WHOLE: Mapping[str, Callable[[Json, Mapping[str, str], Shape, set[str] | None], Json]] = {
    "messages": lambda chat, names, _, lost: chat_reply_to_messages(chat, names, lost),
    "responses": lambda chat, names, shape, lost: chat_reply_to_responses(
        chat, names, shape.told, lost
    ),
    "gemini": lambda chat, names, shape, lost: chat_reply_to_gemini(chat, names, shape.told, lost),
}
"""A completion as a reply of a dialect."""
_SIGNED = frozenset(("messages", "responses", "gemini"))
"""Dialects whose callers keep the signatures of another's thinking."""


def json_object(raw: bytes) -> Json | None:
    """A JSON object. Google wraps the error of a stream in a list."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        value = read_loosely(raw, object)
    if isinstance(value, dict):
        return value
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, dict) and first.get("error") else None


def _renamed(chat: Json, names: Mapping[str, str]) -> Json:
    """The caller's own tool names in a completion or a chunk."""
    if not names:
        return chat
    for choice in chat.get("choices") or ():
        for call in (choice.get("message") or choice.get("delta") or {}).get("tool_calls") or ():
            function = call.get("function") or {}
            if function.get("name") in names:
                function["name"] = names[function["name"]]
    return chat


class ToChat:
    """Chunks in chat form, told as chat."""

    def __init__(self, names: Mapping[str, str], customs: frozenset[str] = frozenset()) -> None:
        self.lost: set[str] = set()
        self._customs = CustomCalls(customs)
        self._names = names
        self._finished = False

    def feed(self, event: Json) -> bytes:
        chunk = self._customs.turned(_renamed(event, self._names))
        choices = chunk.get("choices") or ()
        self._finished |= any(choice.get("finish_reason") for choice in choices)
        return chat_chunk(chunk)

    def peek(self, event: Json) -> bytes:
        return b""

    def end(self) -> bytes:
        return DONE if self._finished else b""

    def error(self, error: Json) -> bytes:
        return chat_chunk(chat_error({"error": error}))


TELLERS: Mapping[str, Callable[[Mapping[str, str], Shape], Teller]] = {
    "chat": lambda names, shape: ToChat(names, shape.customs),
    "messages": lambda names, _: ChatToMessages(names),
    "responses": lambda names, shape: ChatToResponses(names, shape.told),
    "gemini": lambda names, shape: ChatToGemini(names, shape.told),
}
"""Of chunks in chat form."""


class _FromClass:
    """Events read by a class of LiteLLM's, told by another teller."""

    def __init__(self, shape: Shape, teller: Teller) -> None:
        self._aim = shape.aim
        self._model = shape.model
        self._chunks = shape.chunks()
        self._end_of = end_of(shape.aim) or _no_end
        self.lost = teller.lost
        self._teller = teller
        self._usage: Json | None = None
        self._head: Json = {}
        self._called = False
        self._finish: str | None = None

    def feed(self, event: Json) -> bytes:
        finish = self._end_of(event)
        self.lost |= unread(self._aim, event)
        chunks = list(self._chunks(before_class(self._aim, event)))
        told = b"".join(map(self._told, chunks))
        if finish == BROKEN:
            return told + self.error(failure_in(event))
        if looks_right(self._aim, event):
            told = told or self._begin(chunks[0] if chunks else {})
        self._finish = finish or self._finish  # some events of Gemini say it before the last
        return told

    def peek(self, event: Json) -> bytes:
        return b""

    def _told(self, chunk: Json) -> bytes:
        self._usage = _usage(chunk.get("usage")) or self._usage
        told = b""
        for choice in chunk.get("choices") or ():
            delta = tidied(choice.get("delta") or {})
            delta.pop("role", None)
            self._called = self._called or bool(delta.get("tool_calls"))
            if any(delta.values()):
                told += self._begin(chunk) + self._teller.feed(self._chunk(delta))
        return told

    def _begin(self, chunk: Json) -> bytes:
        if self._head:
            return b""
        own_id = prefixed_id(chunk.get("id"), "chatcmpl-")
        self._head = {"id": own_id, "created": chunk.get("created") or 0}
        return self._teller.feed(self._chunk({"role": "assistant", "content": ""}))

    def _chunk(self, delta: Json, finish: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._outer(), "choices": [choice]}

    def _outer(self) -> Json:
        head = self._head or {"id": "chatcmpl-none", "created": 0}
        return {**head, "object": "chat.completion.chunk", "model": self._model}

    def end(self) -> bytes:
        if self._finish is None:
            return b""
        finish = beside_calls(self._finish, calls=self._called)
        told = self._teller.feed(self._chunk({}, finish))
        if self._usage:
            told += self._teller.feed({**self._outer(), "choices": [], "usage": self._usage})
        return told + self._teller.end()

    def error(self, error: Json) -> bytes:
        return self._teller.error(error)


def _usage(usage: Any) -> Json | None:
    return dict(usage) if isinstance(usage, dict) and any(usage.values()) else None


def _no_end(event: Json) -> None:
    """Of a provider whose streams never say that they are over; it is asked for none."""


def teller_of(call: Call, shape: Shape) -> Teller:
    dialect = call.dialect.name
    is_chat, signed = dialect == "chat", dialect in _SIGNED
    teller = TELLERS[dialect](shape.names, shape)
    if shape.aim.body == "messages":
        plain = MessagesToChat(signed=signed)
        return Through(Untooled(plain) if shape.json_tool else plain, teller, is_chat=is_chat)
    if shape.aim.body == "responses":
        return Through(ResponsesToChat(shape.maker, signed=signed), teller, is_chat=is_chat)
    return teller if shape.aim.body == "chat" else _FromClass(shape, teller)


def pieces_of(chat: Json) -> Iterator[Json]:
    """A completion as chunks."""
    head = {**chat, "object": "chat.completion.chunk"}
    usage = head.pop("usage", None)
    for choice in chat["choices"]:
        delta = dict(choice.get("message") or {})
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{**call, "index": place} for place, call in enumerate(calls)]
        index, finish = choice.get("index") or 0, choice.get("finish_reason")
        yield {**head, "choices": [{"index": index, "delta": delta, "finish_reason": None}]}
        yield {**head, "choices": [{"index": index, "delta": {}, "finish_reason": finish}]}
    if usage:
        yield {**head, "choices": [], "usage": usage}
