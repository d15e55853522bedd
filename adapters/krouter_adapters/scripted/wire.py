"""The wire to the scripted provider: where bytes would leave and come, a director decides."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from krouter.body import Body, BodyError
from krouter.dialects.needs import has_images
from krouter.errors import Fault, WireError
from krouter.headers import IDEMPOTENCY_KEY
from krouter.script import (
    TALLY,
    TEXT,
    Credentials,
    Director,
    Faults,
    Kind,
    Sent,
    Tally,
    Turn,
    fault_named,
)
from krouter.wire import Headers, Incoming, Outgoing
from krouter_adapters.scripted import replies
from krouter_adapters.scripted.replies import Answer

PING_SECONDS = 10.0
LONG = 40.0
"""Seconds that what is slow or halts takes: a caller is kept alive meanwhile, and no usual limit is
reached."""

Step = tuple[float, bytes | Fault | None]
"""Seconds of waiting, and what comes then: bytes, a break, or nothing for ever."""


class _Fields(Struct):
    model: str = ""
    stream: Any = False


_fields = msgspec.json.Decoder(_Fields).decode


class ScriptedWire:
    """Gives the replies that `director` decides on, in the time of the loop."""

    def __init__(self, director: Director, faults: Faults, credentials: Credentials) -> None:
        self.director = director
        self._faults = faults
        self._credentials = credentials

    async def send(self, request: Outgoing, connect: float) -> Incoming:
        sent = self._read(request)
        turn = self.director(sent)
        kind = fault_named(turn.fault, self._faults) if turn.fault else None
        if kind is not None and not befalls(kind, sent):
            kind = None
        return await (_fail(kind, turn, sent, connect) if kind else _answer(turn, sent))

    async def close(self) -> None:
        """Nothing is open."""

    def _read(self, request: Outgoing) -> Sent:
        place = _place(request.url)
        fields = _fields(request.body) if not place.model else _Fields(place.model, place.stream)
        provider, account, key = place.provider, "", ""
        for name, value in request.headers:
            if name in _CARRIERS:
                secret = value.removeprefix("Bearer ")
                account = self._credentials.get((provider, secret), account)
            elif name == IDEMPOTENCY_KEY:
                key = value
        tally = TALLY.get(None) or Tally()
        tally.sent += 1
        return Sent(
            provider,
            account,
            fields.model,
            place.dialect,
            fields.stream is True,
            asyncio.get_running_loop().time(),
            tally.sent,
            tally.number,
            request.body,
            tally.note,
            key,
        )


_CARRIERS = frozenset(("authorization", "x-api-key", "x-goog-api-key"))
_ENDPOINTS = {"/chat/completions": "chat", "/messages": "messages", "/responses": "responses"}
_GEMINI = re.compile(r".*/models/(?P<model>[^/]+):(?P<verb>g|streamG)enerateContent")


class _Place(Struct, frozen=True):
    """What an address tells; the model and whether it streams only where it names them."""

    provider: str
    dialect: str
    model: str = ""
    stream: bool = False


@lru_cache(maxsize=4096)
def _place(url: str) -> _Place:
    parts = urlsplit(url)
    provider = (parts.hostname or "").removesuffix(".invalid")
    if found := _GEMINI.match(parts.path):
        return _Place(provider, "gemini", unquote(found["model"]), found["verb"] == "streamG")
    dialect = next(name for end, name in _ENDPOINTS.items() if parts.path.endswith(end))
    return _Place(provider, dialect)


def befalls(kind: Kind, sent: Sent) -> bool:
    """Whether the request holds what the fault is about."""
    match kind.only_with:
        case "image":
            try:
                return has_images(sent.dialect, Body.parse(sent.body))
            except BodyError:
                return False
        case "feature":
            return b'"temperature"' in sent.body
    return True


class Played:
    """A reply whose pieces come in their time."""

    def __init__(self, status: int, headers: Headers, steps: Iterable[Step]) -> None:
        self.status = status
        self.headers = headers
        self.dropped: tuple[str, ...] = ()
        self._steps = iter(steps)

    async def chunk(self) -> bytes:
        for wait, what in self._steps:
            if wait:
                await asyncio.sleep(wait)
            if what is None:
                await _for_ever()
            if isinstance(what, Fault):
                raise WireError(what)
            if what:
                return what
        return b""

    async def read(self, limit: int) -> bytes:
        pieces, size = [], 0
        while piece := await self.chunk():
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise WireError(Fault.GARBAGE, f"the reply is longer than {limit} bytes")
        return b"".join(pieces)

    def ending(self) -> bytes:
        return b""

    def close(self) -> None:
        self._steps = iter(())


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def _asked(turn: Turn, sent: Sent) -> Answer:
    tokens = len(sent.body) // 4 or 1 if turn.input is None else turn.input
    return Answer(sent.dialect, sent.model, turn.text or TEXT, tokens, turn.output)


async def _answer(turn: Turn, sent: Sent) -> Played:
    answer = _asked(turn, sent)
    headers = [replies.EVENTS if sent.stream else replies.JSON, *turn.headers]
    if sent.stream:
        await _pass(turn.wait)
        first, rest = replies.pieces(answer)
        return Played(200, headers, ((0.0, first), (turn.took, rest)))
    await _pass(turn.wait + turn.took)
    return Played(200, headers, ((0.0, replies.whole(answer)),))


async def _pass(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)


_BROKEN = {fault.value: fault for fault in (Fault.REFUSED, Fault.RESET, Fault.DNS, Fault.TLS)}


async def _fail(kind: Kind, turn: Turn, sent: Sent, connect: float) -> Played:
    """The fault from its beginning to the head of a reply, if one comes."""
    reset = turn.reset if turn.reset is not None else kind.reset
    match kind.how:
        case "silence":
            await _for_ever()
        case "pings":
            await _pass(turn.wait)
            return _pinging(sent)
        case "slow":
            await _pass(LONG)
            return await _answer(turn, sent)
        case how if how in _BROKEN:
            await _pass(min(turn.wait, connect))
            raise WireError(_BROKEN[how])
        case "status" | "feature" | "page" | "error inside":
            await _pass(turn.wait)
            page = kind.how == "page"
            body = replies.PAGE[1] if page else replies.error(sent.dialect, kind, reset)
            status = 200 if kind.how == "error inside" else kind.status
            headers = replies.error_headers(kind, reset)
            return Played(status, [*headers, *turn.headers], ((0.0, body),))
    await _pass(turn.wait)
    steps = _broken_stream(kind, turn, sent) if sent.stream else _broken_body(kind, turn, sent)
    return Played(200, [replies.EVENTS if sent.stream else replies.JSON, *turn.headers], steps)


def _pinging(sent: Sent) -> Played:
    sign = replies.ping(sent.dialect) if sent.stream else b" \n"
    return Played(200, [replies.EVENTS if sent.stream else replies.JSON], _signs(sign))


def _signs(sign: bytes) -> Iterator[Step]:
    while True:
        yield PING_SECONDS, sign


def _broken_stream(kind: Kind, turn: Turn, sent: Sent) -> Iterator[Step]:
    first, rest = replies.halves(_asked(turn, sent))
    match kind.how:
        case "error first":
            yield 0.0, replies.error_event(sent.dialect, kind)
            return
        case "empty":
            yield 0.0, replies.hollow_events(sent.dialect, sent.model)
            return
    yield 0.0, first
    match kind.how:
        case "error midway":
            yield turn.took, replies.error_event(sent.dialect, kind)
        case "halting":
            yield LONG, rest
        case "reset midway":
            yield turn.took, Fault.RESET
        case "stall":
            yield 0.0, None


def _broken_body(kind: Kind, turn: Turn, sent: Sent) -> Iterator[Step]:
    body = replies.whole(_asked(turn, sent))
    half = len(body) // 2
    match kind.how:
        case "error first" | "error midway":
            yield turn.took, replies.error(sent.dialect, kind, None)
            return
        case "empty":
            yield turn.took, replies.hollow(sent.dialect, sent.model)
            return
    yield turn.took, body[:half]
    match kind.how:
        case "halting":
            yield LONG, body[half:]
        case "reset midway":
            yield 0.0, Fault.RESET
        case "stall":
            yield 0.0, None
