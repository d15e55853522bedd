"""A provider's event stream on its way to the caller: prime it, pass it on, end it properly."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
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


ENVELOPE = 300
"""Bytes that an event has around its text, or more."""
BYTES_A_TOKEN = 4


LEAST = 1 << 10
"""Bytes of one event that are as good as a whole one: less is silence, however it is spread."""


class Watchdog:
    """Limits single waits of one task, with a timer that is not re-armed for every chunk.

    `begin` before a wait and `end` after it; a wait that goes `on` counts from the begin of the one
    before. One that takes too long is cancelled: whoever waited asks `bit` whether that is why.
    """

    __slots__ = ("_begun", "_fired", "_loop", "_seconds", "_since", "_task", "_timer")

    def __init__(self, seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._since: float | None = None
        self._begun = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fired = False

    def begin(self, on: bool = False) -> None:
        if self._seconds is None:
            return
        self._task = asyncio.current_task(self._loop)
        if not (on and self._begun):
            self._begun = self._loop.time()
        self._since = self._begun
        if self._timer is None:
            self._arm(self._since + self._seconds)

    def end(self) -> None:
        self._since = None

    def bit(self) -> bool:
        """Whether a cancellation was this watchdog's, which ends here."""
        return self._fired and self._task is not None and self._task.uncancel() == 0

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        self._timer = self._loop.call_at(when, self._check)

    def _check(self) -> None:
        assert self._seconds is not None
        now = self._loop.time()
        ends = (now if self._since is None else self._since) + self._seconds
        if now < ends:  # compared as it is armed: rounded otherwise, it would be due for ever
            self._arm(ends)
        elif self._task is not None:
            self._timer, self._fired = None, True
            self._task.cancel()


class Relay:
    """One stream. `prime` it before anything goes to the caller, `hold` it where all of it is to
    come first, then take it with `next`. Silence ends it after `stall` seconds, nothing but
    comments and pings after `quiet`.

    What is passed on is byte for byte what arrived, cut at event ends, but for what the tracker
    replaces or leaves out.
    """

    def __init__(
        self,
        reply: Incoming,
        tracker: Tracker,
        stall: float | None,
        *secrets: str | None,
        quiet: float | None = None,
    ) -> None:
        self.tracker = tracker
        self.fault: Fault | None = None
        """What broke the stream, if anything did."""
        self.detail = ""
        self.primed = False
        """The stream has come as far as `prime` was told to wait for."""
        self.closing: Callable[[], bytes] = bytes
        """Gives the last bytes for the caller once the provider has no more."""
        self.came = 0
        """About how many tokens have come: each event is one, and more if it is long."""
        self._reply = reply
        self._secrets = [secret for secret in secrets if secret]
        self._splitter = Splitter()
        self._watchdog = Watchdog(stall)
        self._quiet = quiet
        self._quiet_since: float | None = None
        self._dripped = 0
        """Bytes that have come since the last whole event, or since there were enough of them."""
        self._spoke = False
        """Something has come that is more than a sign of life."""
        self._ready: list[bytes] = []
        self._until: Callable[[Tracker], bool] = _never
        self._flows = False
        self._idle = 0
        self._tail = b""
        self._ended = False
        self._finished = False

    async def prime(self, first_byte: Callable[[], None], until: Callable[[Tracker], bool]) -> None:
        """Reads until an event satisfies `until`, or until there is no hope of one; see `primed`
        and `fault`. Silence before the first byte is for the caller of this to limit."""
        self._until = until
        if not self.over and await self._read(watched=False):
            first_byte()
        while not (self.over or self.primed or self._is_garbage):
            await self._read()

    async def hold(self, most: int = MOST_HELD) -> bool:
        """Reads on until nothing more is to come; False for a stream of more than `most` bytes,
        which is not over then."""
        size = counted = 0
        while not self.over:
            size += sum(map(len, self._ready[counted:]))
            counted = len(self._ready)
            if size > most:
                return False
            await self._read()
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
            if self.over:
                return self._last_piece()
            await self._read()
        ready, self._ready = self._ready, []
        return ready[0] if len(ready) == 1 else b"".join(ready)

    def _last_piece(self) -> bytes:
        if self._finished:
            return b""
        self._finished = True
        return blotted(self.closing(), self._secrets)

    async def _read(self, *, watched: bool = True) -> bool:
        """One chunk taken in; whether there was one."""
        watchdog = self._watchdog
        if watched:
            watchdog.begin(self._dripped > 0)
        try:
            chunk = await (self._last_words() if self.tracker.error else self._reply.chunk())
            if not chunk:
                self._feed(self._rest())
                self._ended = True
            elif whole := self._splitter.cut(chunk):
                self._dripped = 0
                self._take(whole)
                if self._spoke:
                    self._spoke, self._quiet_since = False, None
                elif self._is_too_quiet():
                    return self._cut(Fault.TIMEOUT, "the provider sends nothing but signs of life")
            else:
                dripped = self._dripped + len(chunk)
                self._dripped = dripped if dripped < LEAST else 0
        except WireError as error:
            return self._cut(error.fault, error.detail)
        except asyncio.CancelledError:
            if not watchdog.bit():
                raise
            return self._cut(Fault.TIMEOUT, "the provider fell silent")
        except SSEError as error:
            return self._break(Fault.GARBAGE, str(error))
        finally:
            watchdog.end()
        return bool(chunk)

    def _is_too_quiet(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._quiet_since is None:
            self._quiet_since = now
        return self._quiet is not None and now - self._quiet_since > self._quiet

    async def _last_words(self) -> bytes:
        """After an error event the end is near, or is taken to have come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                return await self._reply.chunk()
        return b""

    def _cut(self, fault: Fault, detail: str) -> bool:
        """A break after the reply had said all does it no harm."""
        self._feed(self._splitter.feed(self._reply.ending()))
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

    def _take(self, whole: bytes) -> None:
        """Whole events: fed until there is content, then skimmed, so that most of a stream passes
        in the pieces that it came in."""
        events = whole.count(b"data:")
        long = len(whole) - events * ENVELOPE
        self.came += events + long // BYTES_A_TOKEN if long > 0 else events
        rest = whole if self._flows else self._begun_with(whole)
        size = self.tracker.skim(rest) if self._flows else 0
        if size:
            self._spoke = True
            self._ready.append(rest[:size])
        if size < len(rest):
            self._feed(self._splitter.events(rest[size:]))

    def _begun_with(self, whole: bytes) -> bytes:
        """Feeds events until the stream flows; those after them."""
        size = 0
        for event in self._splitter.events(whole):
            self._feed((event,))
            size += len(event.raw)
            self._flows = self.primed and self.tracker.has_content
            if self._flows:
                break
        return whole[size:]

    def _feed(self, events: Iterable[Event]) -> None:
        tracker = self.tracker
        for event in events:
            if tracker.closed:
                return
            if event.data is not None and event.name != b"ping":
                self._spoke = True
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
