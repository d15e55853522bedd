"""From what was asked and how to behave to the bytes of a reply."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from types import ModuleType

import msgspec

from tests.upstream import chat, embeddings, gemini, messages, replicate, responses, sse
from tests.upstream.content import Ask, compose
from tests.upstream.script import Behaviour, Break
from tests.upstream.wire import PHRASES

JSON = "application/json"
SSE = "text/event-stream; charset=utf-8"
HTML = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>Sign in</body></html>"
DIALECTS: dict[str, ModuleType] = {
    "chat": chat,
    "messages": messages,
    "count": messages,
    "embeddings": embeddings,
    "gemini": gemini,
    "responses": responses,
    "created": replicate,
    "polled": replicate,
    "canceled": replicate,
}


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply ready to be sent: the pieces that are sent, and the length it claims."""

    status: int
    headers: tuple[tuple[str, str], ...]
    pieces: list[bytes]
    length: int | None


def build(ask: Ask, behaviour: Behaviour) -> Reply:
    """The reply; a broken one holds the pieces that come before the break."""
    reply = choose(ask, behaviour)
    if behaviour.gzip:
        reply = compress(reply)
    if behaviour.broken:
        reply = cut(reply, behaviour.broken, behaviour.half)
    return replace(reply, headers=head(ask, reply, behaviour))


def choose(ask: Ask, behaviour: Behaviour) -> Reply:
    if behaviour.body is not None:
        return whole(behaviour.status, JSON, behaviour.body)
    if behaviour.garbage:
        return garbage(ask, behaviour)
    if behaviour.error is not None:
        return error_inside(ask, behaviour)
    if not 200 <= behaviour.status < 300:
        return whole(behaviour.status, JSON, error_body(ask, behaviour, behaviour.status))
    if ask.dialect == "count":
        return whole(behaviour.status, JSON, b'{"input_tokens":%d}' % ask.tokens)
    return stream(ask, behaviour) if ask.stream else answer(ask, behaviour)


def answer(ask: Ask, behaviour: Behaviour) -> Reply:
    blank = {"events": b"", "comments": b" \n" * behaviour.chunks}.get(behaviour.empty)
    if blank is not None:
        return whole(behaviour.status, JSON, blank)
    return whole(behaviour.status, JSON, answer_body(ask, behaviour))


def answer_body(ask: Ask, behaviour: Behaviour) -> bytes:
    reply = DIALECTS[ask.dialect].reply(ask, compose(ask, behaviour), behaviour)
    return msgspec.json.encode(reply)


def stream(ask: Ask, behaviour: Behaviour) -> Reply:
    if behaviour.empty in ("events", "comments"):
        pieces = silence(ask, behaviour)
    else:
        pieces = frame(answer_events(ask, behaviour), behaviour)
    return Reply(behaviour.status, (("content-type", SSE),), pieces, None)


def silence(ask: Ask, behaviour: Behaviour) -> list[bytes]:
    if behaviour.empty == "events":
        return []
    ping = frame([("ping", {"type": "ping"})], behaviour)[0] if ask.dialect == "messages" else b""
    return [sse.COMMENT + ping] * behaviour.chunks


def answer_events(ask: Ask, behaviour: Behaviour) -> Iterable[sse.Event]:
    events: Iterable[sse.Event] = DIALECTS[ask.dialect].events(
        ask, compose(ask, behaviour), behaviour
    )
    return events


def frame(events: Iterable[sse.Event], behaviour: Behaviour) -> list[bytes]:
    return sse.frame(events, behaviour.sse, "event" not in behaviour.no)


def error_body(ask: Ask, behaviour: Behaviour, status: int) -> bytes:
    return msgspec.json.encode(error_payload(ask, behaviour, status))


def error_payload(ask: Ask, behaviour: Behaviour, status: int) -> dict[str, object]:
    message = behaviour.message or f"The upstream says: {PHRASES.get(status, 'Overloaded')}."
    payload: dict[str, object] = DIALECTS[ask.dialect].error(status, message, behaviour, ask.serial)
    return payload


def error_inside(ask: Ask, behaviour: Behaviour) -> Reply:
    """An error under status 200; the behaviour's status only names its kind."""
    status = behaviour.status if behaviour.status >= 300 else 500
    if behaviour.error == "json" or not ask.stream:
        return whole(200, JSON, error_body(ask, behaviour, status))
    count = int(behaviour.error or 0)
    event = DIALECTS[ask.dialect].error_event(error_payload(ask, behaviour, status))
    events = [*islice(answer_events(ask, behaviour), count), event]
    return Reply(200, (("content-type", SSE),), frame(events, behaviour), None)


def garbage(ask: Ask, behaviour: Behaviour) -> Reply:
    status = behaviour.status
    match behaviour.garbage:
        case "html":
            return whole(status, "text/html; charset=utf-8", HTML)
        case "text":
            return whole(status, "text/plain; charset=utf-8", b"upstream connect error")
        case "json":
            return whole(status, JSON, b'{"ok":true,"data":[1,2,3]}')
        case "none":
            return whole(status, SSE if ask.stream else JSON, b"")
        case _:
            body = answer_body(ask, behaviour)
            return whole(status, JSON, body[: len(body) // 2])


def whole(status: int, kind: str, body: bytes) -> Reply:
    middle = len(body) // 2
    pieces = [piece for piece in (body[:middle], body[middle:]) if piece]
    return Reply(status, (("content-type", kind),), pieces, len(body))


def compress(reply: Reply) -> Reply:
    """The same pieces, each of them readable as soon as it has come."""
    packer = zlib.compressobj(wbits=31)
    pieces = [packer.compress(p) + packer.flush(zlib.Z_SYNC_FLUSH) for p in reply.pieces]
    pieces[-1:] = [b"".join([*pieces[-1:], packer.flush()])]
    length = None if reply.length is None else sum(map(len, pieces))
    return replace(
        reply, pieces=pieces, length=length, headers=(*reply.headers, ("content-encoding", "gzip"))
    )


def cut(reply: Reply, broken: Break, half: bool) -> Reply:
    """What is sent before the break; only a proper end tells the true length."""
    after = broken.after or 0
    pieces = reply.pieces[:after]
    if half and after < len(reply.pieces):
        piece = reply.pieces[after]
        pieces.append(piece[: len(piece) // 2])
    proper = broken.kind == "end" and reply.length is not None
    return replace(reply, pieces=pieces, length=sum(map(len, pieces)) if proper else reply.length)


def head(ask: Ask, reply: Reply, behaviour: Behaviour) -> tuple[tuple[str, str], ...]:
    given = {name.lower() for name, _ in behaviour.headers}
    framing = (
        ("transfer-encoding", "chunked")
        if reply.length is None
        else ("content-length", str(reply.length))
    )
    name = "x-request-id" if ask.dialect in ("chat", "responses") else "request-id"
    own = (*reply.headers, framing, (name, f"req_{ask.serial:024d}"))
    return (*(pair for pair in own if pair[0] not in given), *behaviour.headers)
