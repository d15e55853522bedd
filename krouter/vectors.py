"""Vectors of one combo can be compared: entries that give others are never mixed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from krouter.adapter import Adapter, Call, Target, Unsendable
from krouter.dialects.embeddings import EMBEDDINGS, vector_size
from krouter.providers import Provider
from krouter.wire import Incoming, Wire

KEPT = 1000
"""How many combos, each with its `dimensions` asked for, are remembered."""


class Given(NamedTuple):
    """How long the vectors are that a combo gives, and which of its entries gave them first."""

    size: int
    entry: str


@dataclass(slots=True)
class Vectors:
    """What the entries of combos have given so far, as long as krouter runs."""

    _given: dict[tuple[str, object], Given] = field(default_factory=dict)

    def check(self, combo: str, dimensions: object, entry: str, raw: bytes) -> None:
        """Notes what `entry` gives in its reply. Raises Unsendable where another gave vectors that
        are longer or shorter; the one that gave them may change its mind."""
        size = vector_size(raw)
        if size is None:
            return
        key = combo, dimensions
        known = self._given.get(key)
        if known is not None and known.entry != entry and known.size != size:
            raise Unsendable(
                f"{entry} gives vectors of {size} numbers, but the combo {combo} has given some of"
                f" {known.size}, from {known.entry}: they cannot be compared. Ask for the same"
                " 'dimensions', or list models with vectors of one size.",
                raw,
            )
        if known is not None and known.entry != entry:
            return
        if known is None and len(self._given) >= KEPT:
            del self._given[next(iter(self._given))]
        self._given[key] = Given(size, entry)


class OfOneSize:
    """A lane that gives no reply whose first vector is not as long as the combo's others."""

    def __init__(self, lane: Adapter, vectors: Vectors, combo: str, entry: str) -> None:
        self.name = lane.name
        self.lane = lane
        self.vectors = vectors
        self.combo = combo
        self.entry = entry

    def speaks(self, provider: Provider, dialect: str) -> bool:
        return self.lane.speaks(provider, dialect)

    async def send(self, call: Call, target: Target, wire: Wire) -> Incoming:
        reply = await self.lane.send(call, target, wire)
        return _Measured(reply, self, call) if 200 <= reply.status < 300 else reply

    async def ready(self) -> None:
        await self.lane.ready()

    def warm_up(self) -> None:
        self.lane.warm_up()


class _Measured:
    """A reply whose vectors are measured once it is whole."""

    def __init__(self, reply: Incoming, lane: OfOneSize, call: Call) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.dropped = reply.dropped
        self._reply = reply
        self._lane = lane
        self._dimensions = repr(call.body.value("dimensions"))

    async def chunk(self) -> bytes:
        return await self._reply.chunk()

    async def read(self, limit: int) -> bytes:
        raw = await self._reply.read(limit)
        lane = self._lane
        lane.vectors.check(lane.combo, self._dimensions, lane.entry, raw)
        return raw

    def ending(self) -> bytes:
        return self._reply.ending()

    def close(self) -> None:
        self._reply.close()


def guarded(lane: Adapter, call: Call, vectors: Vectors, combo: str, entry: str) -> Adapter:
    """`lane`, for a combo's embeddings one that measures them."""
    is_one = combo and call.dialect is EMBEDDINGS
    return OfOneSize(lane, vectors, combo, entry) if is_one else lane
