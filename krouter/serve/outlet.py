"""One caller's reply on its way out: its head, its events, and a sign of life while it waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from krouter.answer import Answer
from krouter.headers import NameCache
from krouter.serve.intake import Send
from krouter.serve.whole import Whole
from krouter.wire import Headers

LOOKS = 15
"""How often to look, while a caller waits that long, whether it has waited long enough."""


class Outlet:
    """What one caller is sent, over ASGI's `send`, or `whole` where that can be.

    After `watch`, the caller gets a keep-alive whenever it has been sent nothing for a while. The
    first one begins the reply, if nothing else has: as a stream with status 200, whatever comes of
    the request. Who sends events sets `spoke`; who is done calls `stop`.
    """

    def __init__(self, send: Send, whole: Whole | None = None) -> None:
        self.spoke = False
        """The caller has been sent something since this was last looked at."""
        self._send = send
        self._whole = whole
        self.begun = False
        """The head of the reply is sent."""
        self._quiet_since = 0.0
        self._seconds = 0.0
        self._keep_alive = b""
        self._head: Callable[[], Headers] = list
        self._timer: asyncio.TimerHandle | None = None
        self._beat: asyncio.Task[None] | None = None

    def watch(self, keep_alive: bytes, seconds: float, head: Callable[[], Headers]) -> None:
        """From now on, `keep_alive` goes out after every `seconds` of silence, or a little more.
        `head` gives the headers of a reply that begins with one."""
        self._keep_alive, self._seconds, self._head = keep_alive, seconds, head
        loop = asyncio.get_running_loop()
        self._quiet_since = loop.time()
        self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Looks again and again, so that an event costs no more than to say that it `spoke`."""
        loop = asyncio.get_running_loop()
        now, step = loop.time(), self._seconds / LOOKS
        if self.spoke:
            self.spoke, self._quiet_since = False, now
        elif now - self._quiet_since > self._seconds - step / 2:
            self._quiet_since = now
            if self._beat is None or self._beat.done():
                self._beat = loop.create_task(self._live())
        self._timer = loop.call_later(step, self._look)

    async def _live(self) -> None:
        with contextlib.suppress(OSError):  # the caller's socket broke
            if not self.begun:
                await self._begin(200, self._head())
            await self._body(self._keep_alive, more=True)

    def _begin(self, status: int, headers: Headers) -> Awaitable[None]:
        self.begun = True
        return self._send(
            {"type": "http.response.start", "status": status, "headers": raw(headers)}
        )

    def _body(self, content: bytes, *, more: bool) -> Awaitable[None]:
        return self._send({"type": "http.response.body", "body": content, "more_body": more})

    async def begin(self, answer: Answer) -> None:
        """The head of a stream, unless a keep-alive has sent one."""
        if self._beat is not None:  # which may wait for the caller to read
            await self._beat
        if not self.begun:
            await self._begin(answer.status, answer.headers)

    async def end(self, last: bytes = b"") -> None:
        self._stop_timer()
        if self._beat is not None:
            await self._beat
        await self._body(last, more=False)

    async def whole(self, answer: Answer) -> None:
        """An answer that is no stream: an event, to a caller whose reply has begun."""
        self._stop_timer()
        if self._beat is not None:
            await self._beat
        if self.begun:
            await self._body(answer.event(), more=False)
            return
        answer.headers = [*answer.headers, ("content-length", str(len(answer.body)))]
        if self._whole is not None and self._whole(answer.status, raw(answer.headers), answer.body):
            self.begun = True
            return
        await self._begin(answer.status, answer.headers)
        await self._body(answer.body, more=False)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Nothing more is sent."""
        self._stop_timer()
        if self._beat is not None:
            self._beat.cancel()


_names = NameCache[str, bytes](lambda name: name.encode("latin-1", "replace"))


def raw(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI takes them."""
    return [(_names[name], value.encode("utf-8", "surrogateescape")) for name, value in headers]
