"""One caller: it sends a request, notes what comes and when, and may hang up."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from krouter.rehearsal.reading import Came, Reading, read_reply
from krouter.route import Route

Message = Any


class Caller:
    """The other end of one request over ASGI. Times are in seconds of the loop; `hang_up` is after
    how many the caller leaves."""

    def __init__(self, request: bytes, hang_up: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._request: bytes | None = request
        self._loop, self._hang_up = loop, hang_up
        self.began = loop.time()
        self.status: int | None = None
        self.headers: list[tuple[str, str]] = []
        self.pieces: list[tuple[float, bytes]] = []
        self.head: float | None = None
        self.route: Route | None = None
        self.left = False

    async def receive(self) -> Message:
        """The request, and then the caller's silence until it leaves."""
        if self._request is not None:
            body, self._request = self._request, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self._hang_up is None:
            await self._loop.create_future()
        else:
            await asyncio.sleep(self.began + self._hang_up - self._loop.time())
        self.left = True
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.head = message["status"], self._loop.time()
            self.headers = [(n.decode(), v.decode()) for n, v in message["headers"]]
        elif message["body"] and not self.left:
            self.pieces.append((self._loop.time(), message["body"]))

    @property
    def is_stream(self) -> bool:
        return any(n == "content-type" and "event-stream" in v for n, v in self.headers)

    def read(self, dialect: str) -> Reading:
        """What it makes of what has come."""
        if self.left:
            return Reading(Came.GONE)
        if self.status is None:
            return Reading(Came.HUNG)
        whole = b"".join(piece for _, piece in self.pieces)
        return read_reply(dialect, self.status, self.is_stream, whole)

    def silence(self, signs: Collection[bytes], end: float) -> float:
        """The longest wait after the first piece for more than a sign of life."""
        last, longest = None, 0.0
        for at, piece in self.pieces:
            if piece not in signs:
                longest = longest if last is None else max(longest, at - last)
                last = at
        return longest if last is None else max(longest, end - last)

    def first(self, signs: Collection[bytes]) -> float | None:
        """When the first piece came that is no mere sign of life."""
        for at, piece in self.pieces:
            if piece not in signs:
                return at
        return None
