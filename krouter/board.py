"""What is known right now: locks with their back-off and probes, and calls in flight.

In memory and bounded; one process needs no server for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from cachetools import LRUCache, TTLCache
from msgspec import Struct

from krouter.dialects.thinking import digest
from krouter.errors import Failure, Lock, Scope, Verdict
from krouter.features import Feature

BACKOFF_BASE = 2.0
"""Seconds of the first back-off lock; each further one is twice as long."""
BACKOFF_MOST = 300.0
HOUR = 3600.0
DAY = 24 * HOUR
PROBE_SECONDS = 10.0
"""How long one request may probe before others follow without its answer."""
_PASSING = frozenset((Failure.OVERLOADED, Failure.SERVER_ERROR, Failure.TIMED_OUT))
"""Overload and silence, which may be over before the lock is."""

Pair = tuple[str, str]
"""Provider and account."""
Target = tuple[str, str]
"""Provider and model."""
Key = tuple[str, str, str]
"""Provider, account, model; `*` for all of them."""


class Block(StrEnum):
    """Why an account may not be used for a model right now."""

    LOCKED = "locked"
    PROBING = "being probed"


class Ticket(Struct, frozen=True, eq=False):
    """One call under way: when it began, in epoch seconds and in the order of events. `request`
    tells the request that makes several at once."""

    provider: str
    account: str
    model: str
    began: float
    serial: int
    request: str = ""


@dataclass(slots=True)
class LockState:
    """One lock, kept after it ends until a success clears it. Serials are the board's."""

    failure: Failure
    status: int
    message: str
    level: int = 0
    """How many back-offs in a row."""
    misses: int = 0
    """How many failures in a row, those without a lock included."""
    until: float = 0.0
    backs_off: bool = False
    """Set by back-off, not until a stated or fixed time."""
    failed: int = 0
    """Serial of the last failure."""
    counted: int = 0
    """Serial of the failure that last raised the level."""
    probe: Ticket | None = None
    open: bool = False
    """A probe's first byte has come since the lock ended."""
    advisory: bool = False
    """Not a failure but a figure, which may be wrong."""

    @property
    def soft(self) -> bool:
        """Whether the walk may ignore it when nothing else is left."""
        return self.advisory or self.failure in _PASSING

    def may_probe(self, now: float) -> bool:
        return 0 < self.until <= now and not self.open and self.probe is None

    def block(self, now: float, request: str = "") -> Block | None:
        """One request probes, with all the calls that it makes at once."""
        if self.until > now:
            return Block.LOCKED
        if self.open or self.probe is None or now - self.probe.began >= PROBE_SECONDS:
            return None
        return None if request and self.probe.request == request else Block.PROBING

    def close(self, verdict: Verdict, until: float) -> None:
        self.failure, self.status, self.message = verdict.failure, verdict.status, verdict.message
        self.backs_off = verdict.lock is not None and verdict.lock.seconds is None
        self.until, self.open, self.probe = until, False, None


@dataclass(frozen=True, slots=True)
class Blocked:
    """An account that is locked, or locked for all but one probing request.

    `lock` is the one that counts most of those in the way, `until` when the last of them ends.
    """

    why: Block
    lock: LockState
    until: float

    @property
    def soft(self) -> bool:
        return self.lock.soft


class Makers:
    """Which provider signed which thinking, by digest, for a day."""

    def __init__(self, now: Callable[[], float], size: int = 100_000) -> None:
        self._maker: TTLCache[str, str] = TTLCache(size, DAY, now)

    def note(self, maker: str, signatures: Iterable[str]) -> None:
        for signature in signatures:
            self._maker[digest(signature)] = maker

    def foreign(self, maker: str, digests: Iterable[str]) -> frozenset[str]:
        """Those known to be of another maker's."""
        return frozenset(d for d in digests if self._maker.get(d, maker) != maker)


T = TypeVar("T")


class Learned(Generic[T]):
    """What models were found to refuse, each for an hour after it last mattered."""

    def __init__(self, now: Callable[[], float], size: int = 10_000) -> None:
        self._refused: TTLCache[Target, frozenset[T]] = TTLCache(size, HOUR, now)
        self._is_new = True

    def note(self, provider: str, model: str, *refused: T) -> None:
        self._is_new = False
        self._refused[provider, model] = self.refused(provider, model).union(refused)

    def refused(self, provider: str, model: str) -> frozenset[T]:
        if self._is_new:
            return frozenset()
        found: frozenset[T] = self._refused.get((provider, model), frozenset())
        return found

    def forget(self, provider: str, model: str) -> None:
        """What was taken for a refusal was none."""
        self._refused.pop((provider, model), None)

    def mattered(self, provider: str, model: str) -> None:
        """Keeps what is known for another hour."""
        if found := self.refused(provider, model):
            self._refused[provider, model] = found


class Turns:
    """One rotation a name, shared by all callers: how many requests have gone through it."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        self._lock = threading.Lock()

    def take(self, name: str) -> int:
        """The number of requests before this one, which counts from now on."""
        with self._lock:
            taken = self._taken.get(name, 0)
            self._taken[name] = taken + 1
            return taken

    def peek(self, name: str) -> int:
        """The same without counting."""
        return self._taken.get(name, 0)

    def counts(self) -> dict[str, int]:
        """How many requests each has had."""
        with self._lock:
            return dict(self._taken)

    def resume(self, counts: Mapping[str, int]) -> None:
        """Goes on from what others have counted."""
        with self._lock:
            self._taken.update(counts)

    def restart(self, names: Iterable[str] | None = None) -> None:
        """Those of `names`, or all, start again from their first entry."""
        with self._lock:
            for name in list(self._taken) if names is None else names:
                self._taken.pop(name, None)


class Board:
    """`now` gives epoch seconds."""

    def __init__(self, now: Callable[[], float], size: int = 10_000) -> None:
        self.now = now
        self.turns = Turns()
        self.images: Learned[None] = Learned(now)
        """Models that take no images."""
        self.features: Learned[Feature] = Learned(now)
        self.makers = Makers(now)
        self._locks: LRUCache[Key, LockState] = LRUCache(size)
        self._in_flight: dict[Pair, int] = {}
        self._queues: dict[Pair, deque[asyncio.Future[Pair]]] = {}
        self._serial = 0

    def locks(self) -> Iterator[tuple[Key, LockState]]:
        """Every lock that is in force."""
        now = self.now()
        return ((key, lock) for key, lock in list(self._locks.items()) if lock.until > now)

    def put(self, key: Key, lock: LockState, until: float) -> None:
        """A lock that was set elsewhere, until a time of this board's."""
        # serials are a board's own
        moved = replace(lock, until=until, failed=0, counted=0, probe=None)
        self._locks[key] = moved

    def lock_at(self, key: Key) -> LockState | None:
        """The lock of exactly this key, whether in force or not."""
        return self._locks.get(key)

    def blocked(self, provider: str, account: str, model: str, request: str = "") -> Blocked | None:
        """The lock in the way, if any: one that may not be ignored before one that may, then
        the one that ends last."""
        if not self._locks:
            return None
        now = self.now()
        known = self._known(provider, account, model)
        found = [(why, lock) for lock in known if (why := lock.block(now, request))]
        if not found:
            return None
        why, lock = max(found, key=lambda pair: (not pair[1].soft, pair[1].until))
        return Blocked(why, lock, max(lock.until for _, lock in found))

    def begin(
        self, provider: str, account: str, model: str, request: str = "", *, taken: bool = False
    ) -> Ticket:
        """A call goes out; where a lock has just ended, it is the probe. `taken` says that its
        place is one that `wait_for_room` gave."""
        if not taken:
            pair = (provider, account)
            self._in_flight[pair] = self._in_flight.get(pair, 0) + 1
        now = self.now()
        ticket = Ticket(provider, account, model, now, self._next(), request)
        for lock in self._known(provider, account, model):
            if lock.may_probe(now):
                lock.probe = ticket
        return ticket

    def first_byte(self, ticket: Ticket) -> None:
        """A probe has its first byte: others may follow."""
        for lock in self._probed(ticket):
            lock.open = True

    def end(self, ticket: Ticket) -> None:
        """A call is over, however it ended."""
        for lock in self._probed(ticket):
            lock.probe = None
        self.leave((ticket.provider, ticket.account))

    def succeed(self, ticket: Ticket) -> None:
        """Clears the locks known when the call began; a later one speaks of later calls."""
        if not self._locks:
            return
        for key in _keys(ticket.provider, ticket.account, ticket.model):
            lock = self._locks.get(key)
            if lock is not None and lock.failed < ticket.serial:
                del self._locks[key]

    def fail(self, ticket: Ticket, verdict: Verdict) -> float | None:
        """Sets the lock the verdict asks for; how many seconds from now it lasts, if any."""
        asked = verdict.lock
        if asked is None:
            return None
        key = _key(asked.scope, ticket.provider, ticket.account, ticket.model)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = LockState(verdict.failure, 0, "")
        lock.misses += 1
        lock.failed = self._next()
        now = self.now()
        until = _until(lock, asked, ticket, now)
        if until > lock.until or (lock.backs_off and asked.seconds is not None):
            lock.close(verdict, until)
        return lock.until - now if lock.until > now else None

    def signed_in(self, provider: str, account: str) -> None:
        """Clears the lock of a refused credential, which has been replaced."""
        key = (provider, account, "*")
        lock = self._locks.get(key)
        if lock is not None and lock.failure is Failure.NOT_SIGNED_IN:
            del self._locks[key]

    def forget(self, provider: str, account: str) -> None:
        """Clears every lock of an account, whose credential has been replaced."""
        for key in [key for key in self._locks if key[:2] == (provider, account)]:
            del self._locks[key]

    def has_room(self, provider: str, account: str, limit: int | None) -> bool:
        return limit is None or self._in_flight.get((provider, account), 0) < limit

    async def wait_for_room(self, limits: Mapping[Pair, int | None]) -> Pair:
        """The first account to have a place, which is taken: `begin` the call with it, or `leave`.

        The places of an account go to those who wait in the order in which they came.
        """
        for pair, limit in limits.items():
            if self.has_room(*pair, limit):
                self._in_flight[pair] = self._in_flight.get(pair, 0) + 1
                return pair
        turn: asyncio.Future[Pair] = asyncio.get_running_loop().create_future()
        for pair in limits:
            self._queues.setdefault(pair, deque()).append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(turn.result())
            raise
        finally:
            self._leave_lines(limits, turn)

    def _leave_lines(self, pairs: Mapping[Pair, object], turn: asyncio.Future[Pair]) -> None:
        for pair in pairs:
            queue = self._queues.get(pair)
            if queue and turn in queue:
                queue.remove(turn)
            if queue is not None and not queue:
                del self._queues[pair]

    def leave(self, pair: Pair) -> None:
        """Gives a place back, to the first who waits for it."""
        queue = self._queues.get(pair)
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(pair)
                return
        left = self._in_flight.get(pair, 0) - 1
        if left > 0:
            self._in_flight[pair] = left
        else:
            self._in_flight.pop(pair, None)

    def under_way(self, provider: str, account: str) -> int:
        """How many calls an account has now."""
        return self._in_flight.get((provider, account), 0)

    @property
    def in_flight(self) -> int:
        return sum(self._in_flight.values())

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def _probed(self, ticket: Ticket) -> Sequence[LockState]:
        known = self._known(ticket.provider, ticket.account, ticket.model)
        return [lock for lock in known if lock.probe is ticket] if known else ()

    def _known(self, provider: str, account: str, model: str) -> Sequence[LockState]:
        if not self._locks:
            return ()
        found = map(self._locks.get, _keys(provider, account, model))
        return [lock for lock in found if lock is not None]


def _until(lock: LockState, asked: Lock, ticket: Ticket, now: float) -> float:
    """When the lock ends after one more failure. Calls that were under way together count as
    one back-off."""
    if asked.seconds is not None:
        return now + asked.seconds
    if asked.from_second and lock.misses < 2:
        return lock.until
    if lock.until > now or ticket.serial < lock.counted:
        return lock.until
    lock.level += 1
    lock.counted = lock.failed
    return now + min(BACKOFF_BASE * 2.0 ** min(lock.level - 1, 10), BACKOFF_MOST)


def _keys(provider: str, account: str, model: str) -> tuple[Key, Key, Key]:
    return (provider, account, model), (provider, account, "*"), (provider, "*", model)


def _key(scope: Scope, provider: str, account: str, model: str) -> Key:
    match scope:
        case Scope.ACCOUNT:
            return provider, account, "*"
        case Scope.MODEL:
            return provider, "*", model
        case _:
            return provider, account, model
