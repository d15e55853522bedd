"""Calls through the LiteLLM lane: to a provider on a socket, or to one that is a list of bytes."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from krouter_adapters.litellm_lane.lane import LIBRARY, LitellmLane
from krouter_adapters.rows import load_rows

from krouter.adapter import Call, Target
from krouter.body import Body
from krouter.dialects import get
from krouter.dialects.base import Reading, Tracker
from krouter.providers import Provider
from krouter.sse import Splitter
from krouter.wire import Headers, HttpWire, Incoming, Outgoing, Wire
from tests.emitted import STREAMS, whole_events

LANE = LitellmLane()
SECRET = "sk-the-account-s-own"
AWS_KEY = "AKIAOFTHEACCOUNT:its/secret+key"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "chat": [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}],
    "messages": [{"name": "weather", "input_schema": PARAMETERS}],
}


class Got(NamedTuple):
    """A reply, read as its dialect reads it: `reading` of a whole one, `tracker` of a stream."""

    status: int
    headers: dict[str, str]
    raw: bytes
    dropped: tuple[str, ...]
    reading: Reading
    tracker: Tracker

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def events(self) -> list[Any]:
        """The data of every event of a stream that is JSON."""
        split = Splitter()
        events = [*split.feed(self.raw), *split.flush()]
        return [json.loads(e.data) for e in events if e.data and e.data[:1] == b"{"]


def call(dialect: str, stream: bool = False, **fields: Any) -> Call:
    said: Any = [{"role": "user", "content": "hello"}]
    body = {"model": "asked", "input" if dialect == "responses" else "messages": said}
    body["stream"] = stream
    body |= {"max_tokens": 64} if dialect == "messages" else {}
    raw = json.dumps({**body, **fields}).encode()
    return Call(get(dialect), Body.parse(raw), [], "asked", stream)


def secret_for(name: str) -> str:
    """A credential of the form that a provider takes."""
    return AWS_KEY if name.startswith("sagemaker") else SECRET


def provider(name: str, base: str | None = None) -> Provider:
    """One that only LiteLLM knows."""
    return Provider(name, litellm=name, litellm_base=base, known_by_litellm=True)


def row(name: str) -> Provider:
    return next(row for row in load_rows() if row.name == name)


def own(**base_urls: str) -> Provider:
    prefix = "openai" if "chat" in base_urls else "anthropic"
    return Provider("own", base_urls=base_urls, litellm=prefix, own=True)  # type: ignore[arg-type]


async def got(asked: Call, target: Target, wire: Wire) -> Got:
    reply = await LANE.send(asked, target, wire)
    raw = b""
    try:
        if asked.stream and reply.status == 200:
            while chunk := await reply.chunk():
                raw += chunk
        else:
            raw = await reply.read(1 << 24)
    finally:
        reply.close()
    tracker = asked.dialect.tracker(asked.body, None)
    split, told = Splitter(), b""
    for event in [*split.feed(raw), *split.flush()]:
        changed = tracker.feed(event)
        told += event.raw if changed is None else changed
    if asked.stream and reply.status == 200:
        STREAMS[asked.dialect.name](whole_events(told))
    headers = {name.lower(): value for name, value in reply.headers}
    return Got(reply.status, headers, raw, reply.dropped, asked.dialect.read_reply(raw), tracker)


def ask(
    asked: Call,
    to: Provider,
    model: str = "m",
    secret: str | None = SECRET,
    wire: Any = None,
    **params: Any,
) -> Got:
    """One call, over a real wire unless told otherwise. `params` are the entry's."""

    async def run() -> Got:
        used = wire or HttpWire()
        try:
            return await got(asked, Target(to, model, secret, params=params), used)
        finally:
            await used.close()

    return asyncio.run(run())


class Bytes:
    """A reply that is there already."""

    def __init__(self, status: int, headers: Headers, chunks: Iterable[bytes]) -> None:
        self.status = status
        self.headers = headers
        self.dropped: tuple[str, ...] = ()
        self._chunks = list(chunks)

    async def chunk(self) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""

    async def read(self, limit: int) -> bytes:
        whole, self._chunks = b"".join(self._chunks), []
        return whole

    def ending(self) -> bytes:
        return b""

    def close(self) -> None:
        self._chunks = []


class FakeWire:
    """Answers everything with the same bytes, and keeps what was sent."""

    def __init__(self, *chunks: bytes, kind: str = "application/json", status: int = 200) -> None:
        self._reply = status, [("content-type", kind)], chunks
        self.sent: list[Outgoing] = []

    async def send(self, request: Outgoing, connect: float) -> Incoming:
        self.sent.append(request)
        return Bytes(*self._reply)

    async def close(self) -> None: ...

    @property
    def body(self) -> Any:
        return json.loads(self.sent[-1].body)


def hurry(put: Callable[[Any, str, float], None] = setattr) -> None:
    """LiteLLM waits half a second before it asks how a prediction does, and between askings."""
    LIBRARY.get()
    handler = importlib.import_module("litellm.llms.replicate.chat.handler")
    put(handler, "REPLICATE_POLLING_DELAY_SECONDS", 0.005)
