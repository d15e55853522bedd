"""What is known right now: locks with their back-off and probes, and calls in flight.

In memory and bounded; one process needs no server for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from cachetools import LRUCache

from krouter.errors import Failure, Lock, Scope, Verdict

BACKOFF_BASE = 2.0
"""Seconds of the first back-off lock; each further one is twice as long."""
BACKOFF_MOST = 300.0
PROBE_SECONDS = 10.0
"""How long one request may probe before others follow without its answer."""

Key = tuple[str, str, str]
"""Provider, account, model; `*` for all of them."""


class Block(StrEnum):
    """Why an account may not be used for a model right now."""

    LOCKED = "locked"
    PROBING = "being probed"


@dataclass(slots=True)
class LockState:
    """One lock, kept after it ends until a success clears it."""

    failure: Failure
    row: int
    status: int
    message: str
    level: int = 0
    """How many back-offs in a row."""
    misses: int = 0
    """How many failures in a row, those without a lock included."""
    until: float = 0.0
    set_at: float = 0.0
    probe_at: float | None = None
    open: bool = False
    """A probe's first byte has come since the lock ended."""

    def may_probe(self, now: float) -> bool:
        return 0 < self.until <= now and not self.open and self.probe_at is None


@dataclass(frozen=True, slots=True)
class Ticket:
    """One call under way: when it began (epoch seconds) and the locks it probes."""

    provider: str
    account: str
    model: str
    began: float
    probes: tuple[LockState, ...] = ()


@dataclass(frozen=True, slots=True)
class Blocked:
    """An account that is locked, or locked for all but one probing request."""

    why: Block
    lock: LockState

    @property
    def soft(self) -> bool:
        """Whether the walk may ignore it when nothing else is left: overload and silence pass."""
        return self.lock.row in (9, 10, 11)


class Board:
    """`now` gives epoch seconds."""

    def __init__(self, now: Callable[[], float], size: int = 10_000) -> None:
        self.now = now
        self._locks: LRUCache[Key, LockState] = LRUCache(size)
        self._in_flight: dict[tuple[str, str], int] = {}
        self._queues: dict[tuple[str, str], deque[asyncio.Future[None]]] = {}

    def locks(self) -> Iterator[tuple[Key, LockState]]:
        """Every lock that is in force."""
        now = self.now()
        return ((key, lock) for key, lock in list(self._locks.items()) if lock.until > now)

    def blocked(self, provider: str, account: str, model: str) -> Blocked | None:
        """The lock that ends last among those that stand in the way."""
        if not self._locks:
            return None
        now = self.now()
        found: Blocked | None = None
        for lock in self._known(provider, account, model):
            why = _block(lock, now)
            if why and (found is None or lock.until > found.lock.until):
                found = Blocked(why, lock)
        return found

    def begin(self, provider: str, account: str, model: str) -> Ticket:
        """A call goes out; where a lock has just ended, it is the probe."""
        pair = (provider, account)
        self._in_flight[pair] = self._in_flight.get(pair, 0) + 1
        now = self.now()
        probes = [lock for lock in self._known(provider, account, model) if lock.may_probe(now)]
        for lock in probes:
            lock.probe_at = now
        return Ticket(provider, account, model, now, tuple(probes))

    def first_byte(self, ticket: Ticket) -> None:
        """A probe has its first byte: others may follow."""
        for lock in ticket.probes:
            lock.open = True

    def end(self, ticket: Ticket) -> None:
        """A call is over, however it ended."""
        pair = (ticket.provider, ticket.account)
        left = self._in_flight.get(pair, 0) - 1
        if left > 0:
            self._in_flight[pair] = left
        else:
            self._in_flight.pop(pair, None)
        for lock in ticket.probes:
            lock.probe_at = None
        self._wake(pair)

    def succeed(self, ticket: Ticket) -> None:
        """Clears the locks known when the call began; a later one speaks of later calls."""
        if not self._locks:
            return
        for key in _keys(ticket.provider, ticket.account, ticket.model):
            lock = self._locks.get(key)
            if lock is not None and lock.set_at <= ticket.began:
                del self._locks[key]

    def fail(self, ticket: Ticket, verdict: Verdict) -> float | None:
        """Sets the lock the verdict asks for; how many seconds from now it lasts, if any."""
        if verdict.lock is None:
            return None
        now = self.now()
        key = _key(verdict.lock.scope, ticket.provider, ticket.account, ticket.model)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = LockState(verdict.failure, verdict.row, 0, "")
        lock.misses += 1
        seconds = _length(lock, verdict.lock, now)
        if seconds is not None:
            lock.failure, lock.row = verdict.failure, verdict.row
            lock.status, lock.message = verdict.status, verdict.message
            lock.until, lock.set_at, lock.open = max(lock.until, now + seconds), now, False
        return seconds

    def has_room(self, provider: str, account: str, limit: int | None) -> bool:
        return limit is None or self._in_flight.get((provider, account), 0) < limit

    async def wait_for_room(self, provider: str, account: str, limit: int | None) -> None:
        """Waits in line for a place; a cancelled wait leaves the line."""
        pair = (provider, account)
        while not self.has_room(provider, account, limit):
            turn = asyncio.get_running_loop().create_future()
            queue = self._queues.setdefault(pair, deque())
            queue.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake(pair)
                raise
            finally:
                if turn in queue:
                    queue.remove(turn)
                if not queue:
                    self._queues.pop(pair, None)

    def _wake(self, pair: tuple[str, str]) -> None:
        queue = self._queues.get(pair)
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    @property
    def in_flight(self) -> int:
        return sum(self._in_flight.values())

    def _known(self, provider: str, account: str, model: str) -> Iterator[LockState]:
        if self._locks:
            for key in _keys(provider, account, model):
                lock = self._locks.get(key)
                if lock is not None:
                    yield lock


def _block(lock: LockState, now: float) -> Block | None:
    if lock.until > now:
        return Block.LOCKED
    if lock.open or lock.probe_at is None or now - lock.probe_at >= PROBE_SECONDS:
        return None
    return Block.PROBING


def _length(lock: LockState, asked: Lock, now: float) -> float | None:
    if asked.seconds is not None:
        return asked.seconds
    if asked.from_second and lock.misses < 2:
        return None
    if lock.until > now:  # calls that were under way together count as one failure
        return lock.until - now
    lock.level += 1
    return min(BACKOFF_BASE * 2.0 ** min(lock.level - 1, 10), BACKOFF_MOST)


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
