"""Bodies that a provider packs, though it is asked for plain ones."""

from __future__ import annotations

import asyncio
import zlib

from krouter.errors import Fault, WireError
from krouter.http_reply import HttpReply, ReplyBody

MOST_AT_ONCE = 1 << 20
"""Bytes that one chunk may grow to, however few it was packed into."""

_STEP = 16 << 10
"""Packed bytes that are unpacked in one go."""

_GZIP = 16 + zlib.MAX_WBITS
_PACKED = ("gzip", "x-gzip", "deflate")
_UNREADABLE = ("br", "zstd")


def plain(reply: HttpReply) -> HttpReply | Unpacked:
    """`reply`, unpacked where it is packed. Raises WireError where that cannot be done; an encoding
    that is not known at all passes as it is."""
    coding = reply.coding
    if coding in _UNREADABLE and reply.status not in (204, 304):
        reply.close()
        raise WireError(Fault.GARBAGE, f"the reply is packed with {coding}")
    return Unpacked(reply) if coding in _PACKED else reply


class Unpacked(ReplyBody):
    """A packed reply as it is before packing. As everywhere, a gzip stream may lack its end."""

    def __init__(self, reply: HttpReply) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.dropped = reply.dropped
        self._reply = reply
        self._gzip = reply.coding != "deflate"
        self._unpacker: zlib._Decompress | None = None
        self._packed = memoryview(b"")

    async def chunk(self) -> bytes:
        while True:
            packed = self._packed
            if packed:  # others have their turn, however much is packed into a little
                await asyncio.sleep(0)
            else:
                packed = memoryview(await self._reply.chunk())
            if not packed:
                return self._end()
            try:
                plain = self._unpack(packed)
            except zlib.error:
                self._reply.close()
                raise WireError(Fault.CUT, "the packing of the reply is broken") from None
            if plain:
                return plain

    def _unpack(self, packed: memoryview) -> bytes:
        """As much as may be given at once; the rest is kept packed. A gzip stream may be several in
        a row; what follows any other is nobody's."""
        unpacker = self._unpacker
        if unpacker is None:
            self._unpacker = unpacker = zlib.decompressobj(self._window(packed[0]))
        elif unpacker.eof:
            self._packed = packed[:0]
            return b""
        step = packed[:_STEP]
        plain = unpacker.decompress(step, MOST_AT_ONCE)
        left = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        self._packed = packed[len(step) - len(left) :]
        if unpacker.eof and self._gzip:
            self._unpacker = None
        return plain

    def _window(self, first: int) -> int:
        """Deflate comes with zlib's header, and without."""
        if self._gzip:
            return _GZIP
        return zlib.MAX_WBITS if first & 0xF == zlib.DEFLATED else -zlib.MAX_WBITS

    def _end(self) -> bytes:
        if self._unpacker is not None and not self._unpacker.eof and not self._gzip:
            raise WireError(Fault.CUT, "the packing of the reply is cut short")
        return b""

    def close(self) -> None:
        self._packed = self._packed[:0]
        self._reply.close()
