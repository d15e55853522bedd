"""The ledger: every route that is over, kept in a file by a thread of its own.

A request only puts its route into a backlog, and appends it to a journal, so that no crash takes
it. What happens to the file never stops or slows one: while it cannot be written the routes wait,
and the oldest are lost once there are too many.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from os import getpid
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING
from weakref import WeakSet

from krouter.ledger_journal import Journal, Kept, has_left_over
from krouter.route import Route

if TYPE_CHECKING:
    from krouter.ledger_file import Connect, LedgerFile

BACKLOG = 10_000
"""How many routes wait at most."""
BATCH = 1000
"""How many are written in one transaction at most."""
GATHER_SECONDS = 0.25
"""After a batch, for how long the next one gathers; the journal has it meanwhile."""
ADOPT_SECONDS = 60.0
"""How often what others have left is looked for at most."""
IDLE_SECONDS = 600.0
FORK_SECONDS = 30.0
"""How long a fork waits for the file at most, which is in use for parts of a second."""


@dataclass(frozen=True, slots=True)
class LedgerState:
    """How the ledger is. `problem` says what is wrong and what to do, empty when all is well;
    `waiting` routes are not written yet, `lost` ones never will be."""

    path: Path
    problem: str
    waiting: int
    lost: int


def back_off(failures: int) -> float:
    """Seconds until the file is tried again, after so many failures in a row."""
    return float(min(0.25 * 2 ** min(failures - 1, 10), 30.0))


class Ledger:
    """`days` and `megabytes` bound what is kept. `warn` is given a line when trouble begins and
    when it is over, in the thread of the ledger; `now` gives epoch seconds.

    It may be used from any thread, and begins its own, a daemon, with the first route. A process
    that is to lose nothing calls `close` before it ends. `connect`, `retry`, `gather` and
    `fork_wait` stand for `ledger_file.open_file`, `back_off`, `GATHER_SECONDS` and `FORK_SECONDS`.
    """

    def __init__(
        self,
        path: Path,
        *,
        days: int,
        megabytes: int,
        warn: Callable[[str], None],
        now: Callable[[], float] = time.time,
        connect: Connect | None = None,
        retry: Callable[[int], float] = back_off,
        gather: float = GATHER_SECONDS,
        fork_wait: float = FORK_SECONDS,
    ) -> None:
        self.path = path
        self._limits = days, megabytes
        self._warn, self._now, self._connect = warn, now, connect
        self._retry, self._gather, self._fork_wait = retry, gather, fork_wait
        self._backlog: deque[Kept | threading.Event] = deque()
        self._under_way: list[Kept | threading.Event] = []
        self._bell: SimpleQueue[None] = SimpleQueue()
        """Wakes the thread; a queue, since that is far cheaper than an event."""
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._owner = 0
        """The process that the thread is of; a forked one has none of its own yet."""
        self._idle = self._stopping = self._forking = self._barred = False
        self._failures = self._lost = 0
        self._problem = ""
        self._has_refused = False
        self._file: LedgerFile | None = None
        self._journal = Journal(path)
        self._adopted: float | None = None
        self._using = threading.Lock()
        """Held while the file is used."""
        _ledgers.add(self)

    def begin(self) -> None:
        """Takes in what processes that have ended had no time to write, where there is any."""
        if has_left_over(self.path):
            self._start()

    def put(self, route: Route) -> None:
        """Keeps a route that is over, or a later revision of one that was kept: where a journal
        can be written, it outlives this process from now on. Never raises, and waits for no lock
        of the file."""
        if self._owner != getpid():
            self._start()
        kept = self._journal.keep(route)
        self._backlog.append(kept)
        if self._idle or kept.encoded is None:  # a large one is not to wait in memory
            self._idle = False
            self._bell.put(None)
        if len(self._backlog) > BACKLOG:
            self._drop()

    def flush(self, timeout: float) -> bool:
        """Waits, for seconds at most, until what was put before is written; whether it is. A file
        in trouble is tried again at once."""
        if not self._backlog and not self._under_way and self._owner != getpid():
            return True
        self._start()
        if self._owner != getpid():
            return False
        mark = threading.Event()
        self._backlog.append(mark)
        self._bell.put(None)
        return mark.wait(timeout)

    def close(self, timeout: float) -> bool:
        """Writes what waits, moves it into the file itself and ends the thread, in `timeout`
        seconds at most; whether all is written. What is not is told, and stays in the journal. A
        later `put` begins anew."""
        thread = self._thread
        if thread is not None and self._owner == getpid():
            self._stopping = True
            self._bell.put(None)
            thread.join(timeout)
        waiting = self._waiting()
        if in_memory := sum(each.segment is None for each in waiting):
            self._say(f"{in_memory} requests are lost: the ledger {self.path} is not written.")
        if in_journal := len(waiting) - in_memory:
            self._say(
                f"{in_journal} requests are not in the ledger {self.path} yet; they wait beside it"
                " until krouter runs again."
            )
        return not waiting

    def configure(self, days: int, megabytes: int) -> None:
        """Other bounds, from now on."""
        self._limits = days, megabytes
        self._bell.put(None)

    @property
    def state(self) -> LedgerState:
        return LedgerState(self.path, self._problem, len(self._waiting()), self._lost)

    def _waiting(self) -> list[Kept]:
        return _routes((*self._under_way, *self._backlog.copy()))

    def _start(self) -> None:
        """A thread begun as the program ends could die holding a lock of Python's own; what is put
        then stays in the journal, as it does where the file may not be opened."""
        with self._starting:
            if self._owner == getpid() or self._barred or not threading.main_thread().is_alive():
                return
            self._bell = SimpleQueue()
            self._idle = self._stopping = False
            self._thread = threading.Thread(target=self._run, name="krouter-ledger", daemon=True)
            self._owner = getpid()
            try:
                self._thread.start()
            except RuntimeError:  # no more threads can be begun: the next put tries again
                self._owner = 0

    def _drop(self) -> None:
        with suppress(IndexError):
            dropped = self._backlog.popleft()
            if isinstance(dropped, Kept):
                self._lost += 1
                self._journal.settle((dropped,))

    def _run(self) -> None:
        try:
            with self._using:  # a process forked in the midst of an import could never end it
                from krouter.ledger_file import LedgerFile
            file = self._file = LedgerFile(self.path, self._now, self._connect)
            while not self._stopping:
                self._rest(self._round(file))
            while self._backlog and self._failures < 2:
                self._round(file)
            self._end(file)
        finally:
            self._owner = 0

    def _end(self, file: LedgerFile) -> None:
        """What the children of this process have left is taken in too."""
        with self._using:
            with suppress(Exception):
                self._refuse(file.adopt())
            file.close()
        self._journal.close()

    def _rest(self, seconds: float | None) -> None:
        """Until a flush, a close, or so many seconds; None is until a route comes."""
        self._idle = is_idle = seconds is None
        with suppress(Empty):
            if not is_idle or not self._backlog:
                self._bell.get(timeout=IDLE_SECONDS if seconds is None else seconds)
            while True:
                self._bell.get_nowait()
        self._idle = False

    def _round(self, file: LedgerFile) -> float | None:
        """Writes a batch and tidies a little; how long to rest then, as `_rest` takes it."""
        from krouter.ledger_file import Trouble

        batch = self._take()
        try:
            with self._using:
                if routes := _routes(batch):
                    self._refuse(file.write(routes))
                    self._recover()
                self._settle(batch)
                self._adopt(file)
                more = file.tidy(*self._limits)
            self._recover()
        except Trouble as trouble:
            return self._suffer(str(trouble), trouble.may_pass)
        except Exception as error:  # whatever it is, it must not end the thread
            return self._suffer(f"The ledger {self.path} is not written: {error!r}.", False)
        if more or len(batch) == BATCH:
            return 0.0
        return self._gather if batch else None

    def _adopt(self, file: LedgerFile) -> None:
        now = time.monotonic()
        if self._adopted is None or now - self._adopted >= ADOPT_SECONDS:
            self._refuse(file.adopt())
            self._adopted = now

    def _take(self) -> list[Kept | threading.Event]:
        batch = self._under_way
        with suppress(IndexError):
            while len(batch) < BATCH:
                batch.append(self._backlog.popleft())
        return batch

    def _settle(self, batch: list[Kept | threading.Event]) -> None:
        self._under_way = []
        self._journal.settle(_routes(batch))
        self._journal.mend()
        for mark in batch:
            if isinstance(mark, threading.Event):
                mark.set()

    def _refuse(self, problems: list[str]) -> None:
        self._lost += len(problems)
        if problems and not self._has_refused:
            self._has_refused = True
            self._say(f"A request cannot be kept in the ledger: {problems[0]}. Others are.")

    def _suffer(self, text: str, may_pass: bool) -> float:
        """The batch waits again; for how many seconds."""
        self._backlog.extendleft(reversed(self._under_way))
        self._under_way = []
        while len(self._backlog) > BACKLOG:
            self._drop()
        self._failures += 1
        if may_pass and self._failures == 1:
            self._say(text)
            return 0.0
        was_well, self._problem = not self._problem, text
        if was_well:
            self._say(text)
        return self._retry(self._failures)

    def _recover(self) -> None:
        self._failures = 0
        if self._problem:
            self._problem = ""
            self._say(f"The ledger {self.path} is written again; {self._lost} requests were lost.")

    def _say(self, text: str) -> None:
        with suppress(Exception):
            self._warn(text)

    def before_fork(self) -> None:
        """SQLite must have nothing open in a process that forks: the new one would believe that
        it holds the locks of the old one. The file comes before the journal, as whoever uses it
        takes them."""
        self._forking = self._using.acquire(timeout=self._fork_wait)
        if self._forking and self._file is not None:
            self._file.let_go()
        self._journal.before_fork(self._fork_wait)

    def after_fork(self, is_child: bool) -> None:
        """The new process has neither the thread nor the file, and of the backlog what no journal
        holds: that is left to the old one. Where the file was in use for too long it neither opens
        nor closes it: what it puts stays in its journal, for others to take in."""
        self._journal.after_fork(is_child)
        if is_child:
            if not self._forking:
                self._barred = True
                self._problem = f"The ledger {self.path} was in use as this process was forked."
                _never_closed.append(self._file)
            self._using, self._starting, self._file = threading.Lock(), threading.Lock(), None
            waiting, self._under_way, self._adopted = self._waiting(), [], None
            self._backlog = deque(each for each in waiting if each.segment is None)
        elif self._forking:
            self._using.release()


def _routes(batch: Iterable[Kept | threading.Event]) -> list[Kept]:
    return [each for each in batch if isinstance(each, Kept)]


_ledgers: WeakSet[Ledger] = WeakSet()
_never_closed: list[LedgerFile | None] = []
"""Files that a forked process has open and may not touch."""


def _before_fork() -> None:
    for ledger in list(_ledgers):
        ledger.before_fork()


def _after_fork(is_child: bool) -> None:
    for ledger in list(_ledgers):
        ledger.after_fork(is_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=partial(_after_fork, False),
        after_in_child=partial(_after_fork, True),
    )
