"""A provider's reply on its way back: read as what it is, told in the caller's dialect.

What is no reply of the provider's (an error, garbage, HTML) is handed on as it came, so that the
walk sees it. A proper end is told only where the provider has told one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from krouter.adapter import Call
from krouter.body import dump
from krouter.dialects.base import read_loosely
from krouter.dialects.chat import DONE
from krouter.errors import Fault
from krouter.sse import Event, SSEError, encode, whole_events
from krouter.wire import Headers, Incoming, WireError
from krouter_adapters.litellm_lane.frames import frames_for, is_wrapped
from krouter_adapters.litellm_lane.json_tool import Untool, untooled
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
from krouter_adapters.litellm_lane.through import FromResponses, Teller, Through
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

MOST_REPLY = 64 << 20
NO_REPLY = b"{}"
"""What no dialect takes for a reply."""
MOST_UNREAD = 1 << 20
"""Bytes kept of a body that holds no event, such as an error's."""
ALIVE = b":\n\n"
"""Tells that the provider is not silent, where an event says nothing to the caller."""

SSE = "text/event-stream; charset=utf-8"


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


def received(reply: Incoming, call: Call, shape: Shape) -> Incoming:
    """The reply in the caller's dialect."""
    reply.dropped = shape.dropped
    if not 200 <= reply.status < 300:
        return reply
    if shape.fake:
        return FakeStream(reply, call, shape)
    wrapped = call.stream and is_wrapped(shape.aim.name)
    if shape.aim.body == call.dialect.name and not wrapped and not shape.customs:
        return reply
    if not call.stream:
        return Whole(reply, call, shape)
    return Stream(reply, call, shape)


def _headers(reply: Incoming, kind: str) -> Headers:
    own = [(n, v) for n, v in reply.headers if n.lower() != "content-type"]
    return [*own, ("content-type", kind)]


class Whole:
    """A JSON reply."""

    def __init__(self, reply: Incoming, call: Call, shape: Shape) -> None:
        self.status = reply.status
        self.headers = _headers(reply, "application/json")
        self.dropped = shape.dropped
        self._reply = reply
        self._dialect = call.dialect.name
        self._shape = shape

    async def chunk(self) -> bytes:
        """Nothing is known of it before it is whole."""
        return await self.read(MOST_REPLY)

    async def read(self, limit: int) -> bytes:
        raw = await self._reply.read(limit)
        lost: set[str] = set()
        told = translated(raw, self._shape, self._dialect, lost)
        self.dropped = _with_lost(self.dropped, lost)
        return told or raw

    def ending(self) -> bytes:
        """It begins with its end."""
        return b""

    def close(self) -> None:
        self._reply.close()


def _with_lost(dropped: tuple[str, ...], lost: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*dropped, *sorted(lost)))) if lost else dropped


def translated(
    raw: bytes, shape: Shape, dialect: str = "chat", lost: set[str] | None = None
) -> bytes:
    """A whole reply in the caller's dialect; an error as it is, nothing for what is no reply.
    `lost` is told what of it the caller's dialect has no place for."""
    reply = _object(raw)
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


def _object(raw: bytes) -> Json | None:
    """A JSON object. Google wraps the error of a stream in a list."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        value = read_loosely(raw, object)
    if isinstance(value, list) and value and isinstance(value[0], dict) and value[0].get("error"):
        value = value[0]
    return value if isinstance(value, dict) else None


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


class _ToChat:
    """Chunks in chat form, told as chat."""

    def __init__(self, names: Mapping[str, str], customs: frozenset[str]) -> None:
        self.lost: set[str] = set()
        self._customs = CustomCalls(customs)
        self._names = names
        self._finished = False

    def feed(self, event: Json) -> bytes:
        chunk = self._customs.turned(_renamed(event, self._names))
        choices = chunk.get("choices") or ()
        self._finished |= any(choice.get("finish_reason") for choice in choices)
        return chat_chunk(chunk)

    def end(self) -> bytes:
        return DONE if self._finished else b""

    def error(self, error: Json) -> bytes:
        return chat_chunk(chat_error({"error": error}))


_TELLERS: Mapping[str, Callable[[Mapping[str, str], Shape], Teller]] = {
    "chat": lambda names, shape: _ToChat(names, shape.customs),
    "messages": lambda names, _: ChatToMessages(names),
    "responses": lambda names, shape: ChatToResponses(names, shape.told),
    "gemini": lambda names, shape: ChatToGemini(names, shape.told),
}
"""Of chunks in chat form."""


class _Untooled:
    """Events of a messages body in which the call of krouter's own tool is the answer."""

    def __init__(self, teller: MessagesToChat) -> None:
        self.lost = teller.lost
        self._teller = teller
        self._untool = Untool()

    def feed(self, event: Json) -> bytes:
        return self._teller.feed(self._untool.event(event))

    def end(self) -> bytes:
        return self._teller.end()

    def error(self, error: Json) -> bytes:
        return self._teller.error(error)


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


def _teller(call: Call, shape: Shape) -> Teller:
    dialect = call.dialect.name
    if shape.aim.body == "messages":
        plain = MessagesToChat(shape.names, signed=dialect in _SIGNED)
        told: Teller = _Untooled(plain) if shape.json_tool else plain
        as_it_is = dialect == "chat" and not shape.customs
        return told if as_it_is else Through(told, _TELLERS[dialect]({}, shape))
    teller = _TELLERS[dialect](shape.names, shape)
    if shape.aim.body == "responses":
        reader = ResponsesToChat(shape.maker, signed=dialect in _SIGNED)
        return FromResponses(reader, teller, is_chat=dialect == "chat")
    return teller if shape.aim.body == "chat" else _FromClass(shape, teller)


class Stream:
    """An event stream, by what comes rather than by what its head says it is. A body without any
    event is handed on as it came."""

    def __init__(self, reply: Incoming, call: Call, shape: Shape) -> None:
        self.status = reply.status
        self.headers = _headers(reply, SSE)
        self.dropped = shape.dropped
        self._reply = reply
        self._frames = frames_for(shape.aim.name)
        self._teller = _teller(call, shape)
        self._by_name = shape.aim.body == "messages"
        self._unread: bytes | None = b""
        """What has come before the first event; None from then on."""
        self._over = False

    async def chunk(self) -> bytes:
        if self._over:
            while await self._reply.chunk():
                pass
            return b""
        raw = await self._reply.chunk()
        try:
            events = self._frames.feed(raw) if raw else whole_events(self._frames.flush())
        except SSEError as error:
            raise WireError(Fault.GARBAGE, str(error)) from None
        if self._unread is not None and not any(event.data for event in events):
            return self._without_events(raw)
        self._unread = None
        told = b"".join(self._told(events))
        self.dropped = _with_lost(self.dropped, self._teller.lost)
        if raw:
            return told or ALIVE
        return told + self._ended()

    def _without_events(self, raw: bytes) -> bytes:
        self._unread = ((self._unread or b"") + raw)[:MOST_UNREAD]
        if raw:
            return ALIVE
        self._over = True
        return self._unread if self._unread.lstrip()[:1] in (b"{", b"[") else b""

    def _told(self, events: list[Event]) -> Iterator[bytes]:
        for event in events:
            if self._over:
                return
            yield self._one(event)

    def _one(self, event: Event) -> bytes:
        data = event.data
        if not data:
            return ALIVE if event.raw.startswith(b":") else b""
        if data.startswith(b"[DONE]"):
            return self._ended()
        value = _object(data)
        if value is None:
            return encode(data)  # the walk counts it, and leaves it out
        if event.name == b"error" or value.get("error"):
            return self._failed(value)
        if self._by_name and event.name:
            value.setdefault("type", event.name.decode("utf-8", "replace"))
        try:
            return self._teller.feed(value)
        except Exception as error:
            raise WireError(
                Fault.GARBAGE, f"an event cannot be read: {type(error).__name__}"
            ) from None

    def _failed(self, value: Json) -> bytes:
        self._over = True
        error = value.get("error") or value
        return self._teller.error(error if isinstance(error, dict) else {"message": str(error)})

    def _ended(self) -> bytes:
        """The proper end, if the provider has told one."""
        if self._over:
            return b""
        self._over = True
        return self._teller.end()

    async def read(self, limit: int) -> bytes:
        whole = b""
        while piece := await self.chunk():
            whole += piece
            if len(whole) > limit:
                raise WireError(Fault.GARBAGE, f"the reply is longer than {limit} bytes")
        return whole

    def ending(self) -> bytes:
        return self._ended()

    def close(self) -> None:
        self._reply.close()


class FakeStream:
    """A whole reply for a caller that wants a stream: LiteLLM can read no stream of the provider's,
    or one that never says that it is over."""

    def __init__(self, reply: Incoming, call: Call, shape: Shape) -> None:
        self.status = reply.status
        self.headers = _headers(reply, SSE)
        self.dropped = shape.dropped
        self._reply = reply
        self._call = call
        self._shape = shape
        self._told = False

    async def chunk(self) -> bytes:
        if self._told:
            return b""
        self._told = True
        return await self.read(MOST_REPLY)

    async def read(self, limit: int) -> bytes:
        raw = await self._reply.read(limit)
        shape = self._shape
        teller = _TELLERS[self._call.dialect.name](shape.names, shape)
        reply = _object(raw)
        if reply is not None and reply.get("error"):
            error = reply["error"]
            return teller.error(error if isinstance(error, dict) else {"message": str(error)})
        lost: set[str] = set()
        chat = _object(translated(raw, shape, lost=lost))
        if chat is not None and isinstance(chat.get("error"), dict):
            return teller.error(chat["error"])
        if chat is None or not chat.get("choices"):
            raise WireError(Fault.GARBAGE, "no reply of this provider")
        told = b"".join(teller.feed(chunk) for chunk in _pieces(chat)) + teller.end()
        self.dropped = _with_lost(self.dropped, lost | teller.lost)
        return told

    def ending(self) -> bytes:
        """It begins with its end."""
        return b""

    def close(self) -> None:
        self._reply.close()


def _pieces(chat: Json) -> Iterator[Json]:
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
