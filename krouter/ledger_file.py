"""The file of the ledger as it is written: opened, appended to, kept small, set aside if corrupt.

Nothing here waits for long: what cannot be done now raises `Trouble`, and is asked for again.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from krouter.ledger_journal import Kept, NewerLine, left_over
from krouter.ledger_schema import (
    DELETE_REQUEST,
    MIGRATIONS,
    Foreign,
    NewerVersion,
    check,
    check_ours,
    give_file_id,
    insert,
    insert_new,
    migrate,
    rows_of,
    version_of,
)
from krouter.private import make_private

DAY = 86_400.0
MEGABYTE = 1_000_000
BUSY_SECONDS = 1.0
TIDY_SECONDS = 600.0
"""How often old records are looked for."""
STEP = 200
"""How many requests, and pages, go at once, so that writing goes on between."""
AT_ONCE = 16
"""How many requests are inserted by one statement at most."""
WAL_BYTES = 4_000_000
OF_A_VALUE = sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError
"""What SQLite says of a value, and not of the file."""

Connect = Callable[[Path], sqlite3.Connection]
Inode = tuple[int, int]


class Trouble(Exception):
    """The ledger cannot be written now; the text says why and what to do. `may_pass` says that
    it may work at once, in a new file."""

    def __init__(self, text: str, may_pass: bool = False) -> None:
        super().__init__(text)
        self.may_pass = may_pass


def open_file(path: Path) -> sqlite3.Connection:
    """A connection that opens no transactions by itself and waits `BUSY_SECONDS` for a lock."""
    return sqlite3.connect(path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)


class LedgerFile:
    """`now` gives epoch seconds. Opened when it is first needed, and again when the file at
    `path` is another one. A corrupt one is set aside, unless `replaces` is false."""

    def __init__(
        self,
        path: Path,
        now: Callable[[], float],
        connect: Connect | None = None,
        replaces: bool = True,
    ) -> None:
        self.path = path
        self._replaces = replaces
        self._now, self._connect = now, connect or open_file
        self._db: sqlite3.Connection | None = None
        self._inode: Inode | None = None
        self._tidied: float | None = None
        self._bounds = (0, 0)

    def write(self, routes: Sequence[Kept]) -> list[str]:
        """All in one transaction; why those that could not be kept could not.

        Raises Trouble, and then none of them is written.
        """
        with self._guard():
            db = self._open()
            db.execute("BEGIN IMMEDIATE")
            new = [each for each in routes if not each.route.revision]
            told_anew = [each for each in routes if each.route.revision]
            left = told_anew if _write_new(db, new) else routes
            refused = [problem for each in left if (problem := _write(db, each))]
            db.execute("COMMIT")
            return refused

    def adopt(self) -> list[str]:
        """Takes in what processes that have ended had put and not written; why some of it cannot
        be kept. Raises Trouble, and what is not taken in stays."""
        refused: list[str] = []
        with self._guard():
            for left in left_over(self.path):
                try:
                    kept, unread = left.kept()
                except NewerLine:
                    continue
                refused += self.write(kept) if kept else []
                refused += ["a line of a journal cannot be read"] * unread
                left.remove()
        return refused

    def tidy(self, days: int, megabytes: int) -> bool:
        """Deletes a few of the requests that are too old or too many, the oldest first, and gives
        back their room; whether there may be more to do. Raises Trouble."""
        with self._guard():
            db = self._open()
            size, used = _sizes(db)
            most = megabytes * MEGABYTE
            if size <= most and not self._is_due((days, megabytes)):
                return False
            deleted = _delete(db, _older(db, self._now() - days * DAY))
            if used > most and not deleted:
                deleted = _delete(db, _oldest(db, used - most))
            freed = _give_back(db)
            if deleted or freed:
                return True
            self._tidied, self._bounds = self._now(), (days, megabytes)
            _forget_combos(db)
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            return False

    def close(self) -> None:
        """Moves all that is written into the file itself, as far as others let it."""
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.let_go()

    def _is_due(self, bounds: tuple[int, int]) -> bool:
        if self._tidied is None or bounds != self._bounds:
            return True
        return abs(self._now() - self._tidied) >= TIDY_SECONDS

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Every fault of the file as Trouble; the file is opened anew after one."""
        try:
            yield
        except (sqlite3.Error, OSError, NewerVersion, Foreign) as error:
            self.let_go()
            is_corrupt = _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
            if is_corrupt and self._replaces:
                raise self._set_aside() from error
            raise Trouble(f"The ledger {self.path} is not written: {_explain(error)}.") from error

    def let_go(self) -> None:
        """Closes the file until it is needed again."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _open(self) -> sqlite3.Connection:
        if self._db is not None and _inode(self.path) != self._inode:
            self.let_go()
        if self._db is None:
            _create(self.path)
            self._inode, self._tidied = _inode(self.path), None
            self._db = self._connect(self.path)
            _prepare(self._db)
        return self._db

    def _set_aside(self) -> Trouble:
        """Renames the file, what belongs to it first: a new one must not find an old log."""
        said = f"The ledger {self.path} is corrupt"
        if _inode(self.path) != self._inode:
            return Trouble(f"{said}; another process has set it aside.", may_pass=True)
        aside = _free_name(self.path, self._now())
        try:
            for suffix in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    os.rename(f"{self.path}{suffix}", f"{aside}{suffix}")
        except OSError as error:
            return Trouble(f"{said} and cannot be set aside: {error.strerror}. Move it away.")
        return Trouble(f"{said}; it is kept as {aside}, and a new one is begun.", may_pass=True)


def _write_new(db: sqlite3.Connection, routes: Sequence[Kept]) -> bool:
    """Many with each statement; False, and none of them, where one cannot be written so: its id is
    there already, or SQLite refuses what it holds."""
    try:
        for start in range(0, len(routes), AT_ONCE):
            some = routes[start : start + AT_ONCE]
            insert_new(db, [rows_of(each.route, each.encoded) for each in some])
    except Exception as error:
        if isinstance(error, sqlite3.Error) and not isinstance(error, OF_A_VALUE):
            raise
        db.execute("ROLLBACK")
        db.execute("BEGIN IMMEDIATE")
        return False
    return True


def _write(db: sqlite3.Connection, kept: Kept) -> str:
    """Why the route cannot be kept, whatever the state of the file; empty if it was."""
    try:
        rows = rows_of(kept.route, kept.encoded)
        check(rows)
    except Exception as error:  # of whatever kind: it must not keep the others waiting
        return f"{type(error).__name__}: {error}"
    return "" if insert(db, rows) else f"another one has its id {kept.route.id} already"


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("BEGIN")
    check_ours(db)
    version = version_of(db)
    db.execute("COMMIT")
    if version > len(MIGRATIONS):
        raise NewerVersion(version, len(MIGRATIONS))
    if version == 0:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}").fetchall()
    migrate(db)
    give_file_id(db)


def _create(path: Path) -> None:
    """An empty file that only its owner may read, where there is none. One that is there is not
    opened here: closing it would let go of the locks that this process holds on it. A link to
    nothing yet is followed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    for suffix in ("", "-wal", "-shm"):
        make_private(path.with_name(path.name + suffix))


def _inode(path: Path) -> Inode | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _free_name(path: Path, now: float) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    first = path.with_name(f"{path.name}.corrupt-{stamp}")
    later = (first.with_name(f"{first.name}-{number}") for number in range(2, 1000))
    return next((name for name in (first, *later) if not name.exists()), first)


def _sizes(db: sqlite3.Connection) -> tuple[int, int]:
    """Of the file, and of the pages in it that are used, in bytes."""
    page, pages = _pragma(db, "page_size"), _pragma(db, "page_count")
    return pages * page, (pages - _pragma(db, "freelist_count")) * page


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _older(db: sqlite3.Connection, before: float) -> list[tuple[int]]:
    """The first of the requests that began before a time in epoch seconds."""
    query = "SELECT number FROM requests WHERE began < ? ORDER BY began LIMIT ?"
    return db.execute(query, (before, STEP)).fetchall()


def _oldest(db: sqlite3.Connection, size: int) -> list[tuple[int]]:
    """As many of the first requests as hold so many bytes."""
    found: list[tuple[int]] = []
    query = (
        "SELECT number, length(record) FROM requests JOIN records ON request = number"
        " ORDER BY began LIMIT ?"
    )
    for number, length in db.execute(query, (STEP,)):
        if size <= 0:
            break
        found.append((number,))
        size -= length
    return found


def _delete(db: sqlite3.Connection, numbers: list[tuple[int]]) -> int:
    if numbers:
        db.execute("BEGIN IMMEDIATE")
        for sql in DELETE_REQUEST:
            db.executemany(sql, numbers)
        db.execute("COMMIT")
    return len(numbers)


def _give_back(db: sqlite3.Connection) -> int:
    free = _pragma(db, "freelist_count")
    if free:
        # `execute` would free a single page: the statement gives a row without columns for each.
        db.executescript(f"PRAGMA incremental_vacuum({STEP})")
    return free


def _forget_combos(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM combos WHERE last < (SELECT COALESCE(MIN(began), 9e999) FROM requests)")


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _explain(error: Exception) -> str:
    """What is wrong, and what a person can do."""
    if isinstance(error, NewerVersion | Foreign):
        return str(error)
    match _code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "another process holds it locked; end what has it open"
        case sqlite3.SQLITE_FULL:
            return "the disk is full; make room"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return f"its files or folder may not be written ({error}); mend their permissions"
    if isinstance(error, OSError):
        return f"{error.strerror or error}; mend its folder, or name another"
    return f"{error}; look at its disk"
