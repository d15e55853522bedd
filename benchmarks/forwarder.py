"""The yardstick, a bare forwarder: `python -m benchmarks.forwarder PORT UPSTREAM`.

Plain ASGI on uvicorn, uvloop and httptools, with aiohttp to the provider. It passes bytes both
ways and does nothing else: no key, no choice, no record.
"""

from __future__ import annotations

import sys
from typing import Any

import aiohttp
import uvicorn

_HOP_BY_HOP = frozenset(
    b"connection keep-alive transfer-encoding te trailer upgrade host content-length".split()
)


class Forwarder:
    """An ASGI app in front of `upstream`."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        url = self._upstream + scope["path"]
        body = await _read(receive)
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name not in _HOP_BY_HOP
        }
        async with self._session.post(url, data=body, headers=headers) as reply:
            kept = [
                (name.lower(), value)
                for name, value in reply.raw_headers
                if name.lower() == b"content-length" or name.lower() not in _HOP_BY_HOP
            ]
            await send({"type": "http.response.start", "status": reply.status, "headers": kept})
            async for piece in reply.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def _read(receive: Any) -> bytes:
    pieces, more = [], True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


if __name__ == "__main__":
    uvicorn.run(
        Forwarder(sys.argv[2]),
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
