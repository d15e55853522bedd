"""What keys with a budget have spent, hour by hour, in a small SQLite file.

Each request is added in one statement of its own, so a process that is killed loses nothing, and
several processes may add to the same file. Where it cannot be written the sums are kept in memory
and written later: no request waits for the file, or fails because of it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from krouter.private import check_regular, make_private

HOUR = 3600
KEPT_SECONDS = 40 * 86_400
"""Longer than the longest period."""
LOOK_AGAIN = 1.0
"""Seconds after which what other processes have added is looked for."""
BUSY_SECONDS = 0.02
"""How long another process that writes is waited for; requests wait meanwhile."""
LARGEST = 2**62

_TABLE = (
    "CREATE TABLE IF NOT EXISTS spent (key TEXT NOT NULL, hour INTEGER NOT NULL,"
    " cost INTEGER NOT NULL, unpriced INTEGER NOT NULL, PRIMARY KEY (key, hour)) WITHOUT ROWID"
)
_ADD = (
    "INSERT INTO spent (key, hour, cost, unpriced) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (key, hour)"
    " DO UPDATE SET cost = MIN(cost + excluded.cost, ?5), unpriced = unpriced + excluded.unpriced"
)
_SUM = "SELECT cost, unpriced FROM spent WHERE key = ? AND hour >= ?"
_ODD = (
    "SELECT 1 FROM spent WHERE typeof(hour) <> 'integer' OR typeof(cost) <> 'integer'"
    " OR typeof(unpriced) <> 'integer' OR cost < 0 OR unpriced < 0 LIMIT 1"
)
_TIDY = "DELETE FROM spent WHERE hour < ?"


class Spent(NamedTuple):
    """Money in `PER_DOLLAR` parts of a US dollar, and how many attempts had no known price."""

    cost: int = 0
    unpriced: int = 0

    def plus(self, other: Spent) -> Spent:
        return Spent(self.cost + other.cost, self.unpriced + other.unpriced)


class Spending:
    """`now` gives epoch seconds; `warn` is given a line when trouble begins and when it is over.
    `problem` is what is wrong, empty when all is well."""

    def __init__(
        self, path: Path, now: Callable[[], float], warn: Callable[[str], None] = lambda text: None
    ) -> None:
        self.problem = ""
        self._path, self._now, self._warn = path, now, warn
        self._db: sqlite3.Connection | None = None
        self._stamp: tuple[int, int] | None = None
        self._read: dict[tuple[str, int], tuple[float, Spent]] = {}
        """What the file held of a key since an hour, and when that was read."""
        self._unwritten: dict[tuple[str, int], Spent] = {}
        self._failed_at: float | None = None
        for file in _files(path):
            make_private(file)

    def since(self, key: str, start: int) -> Spent:
        """What `key` has spent since `start`, the beginning of an hour."""
        now = self._now()
        known = self._read.get((key, start))
        if known is None or not 0 <= now - known[0] < LOOK_AGAIN:
            self._write(now)
            total = self._sum(key, start, now)
            self._read = {of: each for of, each in self._read.items() if of[0] != key}
            self._read[key, start] = now, total
        total = self._read[key, start][1]
        for (whose, hour), each in self._unwritten.items():
            if whose == key and hour >= start:
                total = total.plus(each)
        return total

    def add(self, key: str, spent: Spent) -> None:
        """What a request of now has cost."""
        now = self._now()
        at = key, int(now) // HOUR * HOUR
        self._unwritten[at] = self._unwritten.get(at, Spent()).plus(spent)
        self._write(now)

    def close(self) -> None:
        """Writes what is not written yet. It may be used again."""
        self._failed_at = None
        self._write(self._now())
        self._let_go()

    def _sum(self, key: str, start: int, now: float) -> Spent:
        """What the file holds; while it cannot be written it may be read all the same."""
        if self._is_due(now):
            with suppress(OSError), self._guard(now):
                return _total(self._open(), key, start) if self._path.exists() else Spent()
        told = read_spent(self._path, key, start, wait=0)
        return self._read.get((key, start), (now, Spent()))[1] if told is None else told

    def _write(self, now: float) -> None:
        if not self._unwritten or not self._is_due(now):
            return
        with suppress(OSError), self._guard(now):
            db = self._open()
            with db:
                for (key, hour), spent in self._unwritten.items():
                    cost = min(spent.cost, LARGEST)
                    db.execute(_ADD, (key, hour, cost, spent.unpriced, LARGEST))
            for of, spent in self._unwritten.items():
                self._note(of, spent)
            self._unwritten.clear()

    def _note(self, of: tuple[str, int], spent: Spent) -> None:
        for (key, start), (at, known) in self._read.items():
            if key == of[0] and of[1] >= start:
                self._read[key, start] = at, known.plus(spent)

    def _is_due(self, now: float) -> bool:
        return self._failed_at is None or not 0 <= now - self._failed_at < LOOK_AGAIN

    @contextmanager
    def _guard(self, now: float) -> Iterator[None]:
        """Raises OSError for whatever goes wrong, and remembers it."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._suffer(error, now)
            raise OSError from error
        self._failed_at = None
        if self.problem:
            self.problem = ""
            self._warn(f"{self._path} is written again.")

    def _suffer(self, error: Exception, now: float) -> None:
        self._failed_at = now
        self._let_go()
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if _is_corrupt(error):
            why = self._set_aside(now)
        was_well = not self.problem
        self.problem = f"{self._path}: {why}. What keys spend is kept in memory meanwhile."
        if was_well:
            self._warn(self.problem)

    def _set_aside(self, now: float) -> str:
        """A corrupt file gives way to a new one, which takes in what is known of it."""
        aside = self._path.with_name(f"{self._path.name}.corrupt-{int(now)}")
        with suppress(OSError):
            os.replace(self._path, aside)
            for tail in ("-wal", "-shm"):
                Path(f"{self._path}{tail}").unlink(missing_ok=True)
        for at, (_, known) in self._read.items():
            self._unwritten[at] = self._unwritten.get(at, Spent()).plus(known)
        self._read.clear()
        return f"it was corrupt, and is {aside.name} now; what was spent before may be missing"

    def _open(self) -> sqlite3.Connection:
        """The file, made where it is not there; another one that has taken its place."""
        if self._db is not None and self._stamp == _stamp(self._path):
            return self._db
        self._let_go()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for file in _files(self._path):
            check_regular(file)
            make_private(file)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        db = self._db = sqlite3.connect(self._path, BUSY_SECONDS)
        self._stamp = _stamp(self._path)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        with db:
            db.execute(_TABLE)
            db.execute(_TIDY, (int(self._now()) - KEPT_SECONDS,))
        if db.execute(_ODD).fetchone():
            raise _odd()
        return db

    def _let_go(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
        self._db = self._stamp = None


def read_spent(path: Path, key: str, start: int, wait: float = 1.0) -> Spent | None:
    """What is in the file, which another process may be writing; None where it cannot be read."""
    try:
        if not path.exists():
            return Spent()
        for file in _files(path):
            check_regular(file)
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, timeout=wait, uri=True)) as db:
            return _total(db, key, start)
    except (sqlite3.Error, OSError):
        return None


def _total(db: sqlite3.Connection, key: str, start: int) -> Spent:
    rows = db.execute(_SUM, (key, start)).fetchall()
    if not all(isinstance(each, int) and each >= 0 for row in rows for each in row):
        raise _odd()
    return Spent(sum(cost for cost, _ in rows), sum(unpriced for _, unpriced in rows))


def _odd() -> sqlite3.Error:
    return sqlite3.DataError("something in it is no sum")


def _files(path: Path) -> list[Path]:
    """The file, and those that SQLite has beside it."""
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]


def _is_corrupt(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
