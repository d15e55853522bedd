"""A provider's event stream on its way to the caller: prime it, pass it on, end it properly."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import dropwhile
from typing import Any

from krouter.blot import blotted
from krouter.dialects.base import Tracker
from krouter.errors import Fault
from krouter.sse import Event, Splitter, SSEError, whole_events
from krouter.wire import Incoming, WireError

DRAIN_SECONDS = 0.5
"""How long to wait for a provider to end its reply after the last event, to keep the connection."""


LAST_WORDS_SECONDS = 2.0
"""How long to wait for what a provider says after an error event."""

MOST_IDLE = 64 << 10
"""Bytes of comments and pings kept while waiting for the first event."""

MOST_HELD = 64 << 20
"""Bytes of a stream held back; what grows beyond goes on as it comes."""


class Silence(Exception):
    """Nothing has come from the provider for longer than allowed."""


class Watchdog:
    """Limits single waits of one task, with a timer that is not re-armed for every chunk."""

    __slots__ = ("_fired", "_loop", "_seconds", "_since", "_task", "_timer")

    def __init__(self, seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._since: float | None = None
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fired = False

    async def wait(self, step: Callable[[], Awaitable[bytes]]) -> bytes:
        """What `step()` gives; Silence when it takes too long."""
        if self._seconds is None:
            return await step()
        self._task = asyncio.current_task()
        self._since = self._loop.time()
        if self._timer is None:
            self._arm(self._since + self._seconds)
        try:
            return await step()
        except asyncio.CancelledError:
            if self._fired and self._task is not None and self._task.uncancel() == 0:
                raise Silence from None
            raise
        finally:
            self._since = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        self._timer = self._loop.call_at(when, self._check)

    def _check(self) -> None:
        assert self._seconds is not None
        now = self._loop.time()
        since = now if self._since is None else self._since
        if now - since < self._seconds:
            self._arm(since + self._seconds)
        elif self._task is not None:
            self._timer, self._fired = None, True
            self._task.cancel()


class Relay:
    """One stream. `prime` it before anything goes to the caller, `hold` it where all of it is to
    come first, then take it with `next`.

    What is passed on is byte for byte what arrived, cut at event ends, but for what the tracker
    replaces or leaves out.
    """

    def __init__(
        self, reply: Incoming, tracker: Tracker, stall: float | None, *secrets: str | None
    ) -> None:
        self.tracker = tracker
        self.fault: Fault | None = None
        """What broke the stream, if anything did."""
        self.detail = ""
        self.primed = False
        """The stream has come as far as `prime` was told to wait for."""
        self.closing: Callable[[], bytes] = bytes
        """Gives the last bytes for the caller once the provider has no more."""
        self._reply = reply
        self._secrets = [secret for secret in secrets if secret]
        self._splitter = Splitter()
        self._watchdog = Watchdog(stall)
        self._watched = partial(self._watchdog.wait, reply.chunk)
        self._ready: list[bytes] = []
        self._until: Callable[[Tracker], bool] = _never
        self._idle = 0
        self._tail = b""
        self._ended = False
        self._finished = False

    async def prime(self, first_byte: Callable[[], None], until: Callable[[Tracker], bool]) -> None:
        """Reads until an event satisfies `until`, or until there is no hope of one; see `primed`
        and `fault`. Silence before the first byte is for the caller of this to limit."""
        self._until = until
        if not self.over and await self._read(self._reply.chunk):
            first_byte()
        while not (self.over or self.primed or self._is_garbage):
            await self._read(self._watched)

    async def hold(self, most: int = MOST_HELD) -> bool:
        """Reads on until nothing more is to come; False for a stream of more than `most` bytes,
        which is not over then."""
        size = counted = 0
        while not self.over:
            size += sum(map(len, self._ready[counted:]))
            counted = len(self._ready)
            if size > most:
                return False
            await self._read(self._watched)
        return True

    @property
    def body(self) -> bytes:
        """What has come in place of events, where none has, less the signs of life before it."""
        return b"".join((*dropwhile(_is_comment, self._ready), self._tail))

    @property
    def _is_garbage(self) -> bool:
        return self.tracker.malformed > 0 and not self.tracker.started

    @property
    def over(self) -> bool:
        """Nothing more is to come from the provider."""
        return self._ended or self.tracker.closed or self.fault is not None

    @property
    def broken(self) -> bool:
        """The stream is over without its proper end or an error event of the provider's own."""
        return self.over and not self.tracker.complete and not self.tracker.error

    async def next(self) -> bytes:
        """The next whole events for the caller; empty when there are no more."""
        while not self._ready:
            if self._finished:
                return b""
            if self.over:
                self._finished = True
                return blotted(self.closing(), self._secrets)
            await self._read(self._watched)
        ready, self._ready = b"".join(self._ready), []
        return ready

    async def _read(self, chunk_of: Callable[[], Awaitable[bytes]]) -> bool:
        """One chunk taken in; whether there was one."""
        try:
            chunk = await self._chunk(chunk_of)
            self._take(self._splitter.feed(chunk) if chunk else self._rest())
        except WireError as error:
            return self._cut(error.fault, error.detail)
        except Silence:
            return self._cut(Fault.TIMEOUT, "the provider fell silent")
        except SSEError as error:
            return self._break(Fault.GARBAGE, str(error))
        self._ended = self._ended or not chunk
        return bool(chunk)

    async def _chunk(self, chunk_of: Callable[[], Awaitable[bytes]]) -> bytes:
        """After an error event the end is near, or is taken to have come."""
        if not self.tracker.error:
            return await chunk_of()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                return await chunk_of()
        return b""

    def _cut(self, fault: Fault, detail: str) -> bool:
        """A break after the reply had said all does it no harm."""
        self._take(self._splitter.feed(self._reply.ending()))
        return self._break(fault, detail)

    def _break(self, fault: Fault, detail: str) -> bool:
        self.fault, self.detail = fault, detail
        return False

    def _rest(self) -> list[Event]:
        """An event that lacks only its blank line, never one that was cut in its middle."""
        left = self._splitter.flush()
        if left and not self.tracker.started:
            self._tail = left[0].raw
        return whole_events(left)

    def _take(self, events: list[Event]) -> None:
        tracker = self.tracker
        for event in events:
            if tracker.closed:
                return
            changed = tracker.feed(event)
            if not self.primed:
                self.primed = self._until(tracker)
            if not tracker.started and self._too_idle(event):
                continue
            piece = event.raw if changed is None else changed
            if tracker.error:
                piece = blotted(piece, self._secrets)
            if piece:
                self._ready.append(piece)

    def _too_idle(self, event: Event) -> bool:
        """Comments and pings before the first event are kept up to a limit."""
        self._idle += len(event.raw)
        return self._idle > MOST_IDLE

    async def drain(self) -> None:
        """Gives the provider a moment to end its reply: to tell the tokens, and so that the
        connection can be kept."""
        if self.fault is not None or self._ended:
            return
        with contextlib.suppress(TimeoutError, WireError, SSEError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while chunk := await self._reply.chunk():
                    for event in () if self.tracker.closed else self._splitter.feed(chunk):
                        self.tracker.feed(event)
                self._ended = True

    def close(self) -> None:
        """What has come can still be taken with `next`."""
        self._ended = True
        self._watchdog.stop()
        self._reply.close()


def _is_comment(piece: bytes) -> bool:
    return piece.startswith(b":")


def _never(tracker: Tracker) -> bool:
    return False
