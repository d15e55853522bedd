"""The ledger as it is read, by any process and while it is written.

Every call opens the file, read-only, and closes it again: nothing that reads holds up what writes,
and a file that was set aside is not read on. Only what a process that has ended left unwritten is
taken in first, where that can be done.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from krouter.ledger_file import LedgerFile, Trouble
from krouter.ledger_filter import ALL as ALL
from krouter.ledger_filter import Filter as Filter
from krouter.ledger_filter import LedgerError as LedgerError
from krouter.ledger_filter import NotRecorded, condition
from krouter.ledger_journal import has_left_over
from krouter.ledger_schema import MIGRATIONS, Foreign, check_ours, file_id, version_of
from krouter.records import VERSION, RecordError, decode
from krouter.route import Route

By = Literal["model", "combo", "account", "key", "day"]

BUSY_SECONDS = 5.0
SHORTEST_PREFIX = 4
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One request. Times are epoch seconds, tokens and cost sums over all its attempts, cost in
    `PER_DOLLAR` parts of a US dollar. `unpriced` attempts are not in the cost; `wasted` are those
    the caller never saw."""

    number: int
    """In the order in which they were written."""
    id: str
    began: float
    ended: float | None
    dialect: str
    asked: str
    combo: str
    stream: bool
    outcome: str
    status: int | None
    served: str
    provider: str
    model: str
    account: str
    attempts: int
    input: int
    output: int
    cached: int
    cache_write: int
    cost: int
    unpriced: int
    wasted: int
    wasted_input: int
    wasted_output: int
    wasted_cost: int
    caller: str
    """The name of the caller's key; empty without one."""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The sums over the attempts of one `key`; as in `Row`. `requests` had at least one of them,
    so that those of several keys may count one request each."""

    key: str
    requests: int
    attempts: int
    input: int
    output: int
    cached: int
    cache_write: int
    cost: int
    unpriced: int
    wasted: int
    wasted_input: int
    wasted_output: int
    wasted_cost: int
    wasted_unpriced: int
    """Of the wasted attempts, those that are not in the cost."""


class Cursor(int):
    """How far a ledger was read, and which file that was, 0 where that is not known."""

    file: int = 0

    @classmethod
    def of(cls, number: int, file: int) -> Cursor:
        cursor = cls(number)
        cursor.file = file
        return cursor

    def follows(self, other: int) -> bool:
        """Whether `other` was a place in the same file."""
        file = other.file if isinstance(other, Cursor) else 0
        return other <= self and (not file or file == self.file)


class LedgerReader:
    """Raises LedgerError, when it is made and from every call, where the file cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if has_left_over(path):
            _take_in(path)
        with self.opened():
            pass

    def route(self, id: str) -> Route:
        """The record of the request of this id, or of the only one that begins with it (four
        characters at least). Raises LedgerError for none and for several, which it names."""
        with self.opened() as db:
            number, whole = self._find(db, id)
            row = db.execute("SELECT form, record FROM records WHERE request = ?", (number,))
            form, record = row.fetchone()
            if form > VERSION:
                raise LedgerError(f"The record {whole} is of a newer krouter. Upgrade krouter.")
            try:
                return decode(record, lambda digest: combo_text(db, digest))
            except RecordError as error:
                raise LedgerError(f"The record {whole}: {error}") from None

    def requests(self, filter: Filter = ALL, limit: int = 20) -> list[Row]:
        """The newest, oldest first. The `number` of the last is a cursor for `after`."""
        return self.latest(filter, limit)[0]

    def latest(self, filter: Filter = ALL, limit: int = 20) -> tuple[list[Row], Cursor]:
        """The same, and the cursor to go on from with `after`."""
        where, values = condition(filter)
        query = f"SELECT {ROW} FROM requests r WHERE {where} ORDER BY number DESC LIMIT ?"  # noqa: S608
        with self.opened() as db:
            found = db.execute(query, (*values, limit)).fetchall()
            return [row_of(each) for each in reversed(found)], _end(db)

    def after(self, cursor: int, filter: Filter = ALL) -> tuple[list[Row], int]:
        """Those written since, and the cursor to go on from. A ledger that has begun anew since
        is read from its start; whether it has, a cursor that is a plain number can tell only
        where there are fewer requests than it says."""
        where, values = condition(filter)
        query = (
            f"SELECT {ROW} FROM requests r WHERE {where} AND number > ? AND number <= ?"  # noqa: S608
            " ORDER BY number"
        )
        with self.opened() as db:
            newest = _end(db)
            start = cursor if newest.follows(cursor) else 0
            found = db.execute(query, (*values, start, newest)).fetchall()
        return [row_of(each) for each in found], newest

    def usage(self, by: By, filter: Filter = ALL) -> list[UsageRow]:
        """What the filter's requests used, or where it names a model, their attempts at that: the
        dearest first, days (local ones) in their order.

        By model is by `provider/model`, by account by `provider/account`, of each attempt.
        """
        rows = self._usage(_KEYS[by], filter)
        if by == "day":
            return sorted(rows, key=lambda row: row.key)
        return sorted(rows, key=lambda row: (-row.cost, -row.input - row.output, row.key))

    def total(self, filter: Filter = ALL) -> UsageRow:
        """The sum over all, under the key `total`."""
        rows = self._usage(_Key("'total'"), filter)
        return rows[0] if rows else UsageRow("total", *[0] * 13)

    def _usage(self, key: _Key, filter: Filter) -> list[UsageRow]:
        where, values = condition(filter)
        join = "JOIN" if key.of_attempts else "LEFT JOIN"
        of_model = "" if filter.model is None else "AND a.entry GLOB ?"
        values = [*([filter.model] if of_model else []), *values]
        query = (
            f"SELECT {key.sql}, COUNT(DISTINCT r.number), COUNT(a.step), {_SUMS}"  # noqa: S608
            f" FROM requests r {join} attempts a ON a.request = r.number {of_model}"
            f" WHERE {where} GROUP BY 1"
        )
        with self.opened() as db:
            return [_usage_row(each) for each in db.execute(query, values)]

    def _find(self, db: sqlite3.Connection, id: str) -> tuple[int, str]:
        found = db.execute("SELECT number, id FROM requests WHERE id = ?", (id,)).fetchall()
        if not found and len(id) >= SHORTEST_PREFIX:
            found = db.execute(
                "SELECT number, id FROM requests WHERE id >= ?1 AND substr(id, 1, ?2) = ?1"
                " AND id < ?1 || char(1114111) ORDER BY id LIMIT ?3",
                (id, len(id), MOST_NAMED + 1),
            ).fetchall()
        if not found:
            raise NotRecorded(f"No request {id!r} is in {self.path}.")
        if len(found) > 1:
            names = ", ".join(name for _, name in found[:MOST_NAMED])
            more = ", …" if len(found) > MOST_NAMED else ""
            raise LedgerError(f"Several requests begin with {id!r}: {names}{more}.")
        number, whole = found[0]
        return number, whole

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The file, in one transaction. Raises LedgerError, also for what fails in it."""
        try:
            os.stat(self.path)
            with closing(_connect(self.path)) as db:
                db.execute("BEGIN")
                check_ours(db)
                self._check(version_of(db))
                yield db
        except FileNotFoundError:
            raise self._nothing() from None
        except Foreign as error:
            raise LedgerError(f"{self.path} cannot be read: {error}.") from None
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be read: {error.strerror}.") from None
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path} cannot be read: {_explain(error)}.") from error

    def _check(self, version: int) -> None:
        known = len(MIGRATIONS)
        if version > known:
            raise LedgerError(
                f"{self.path} was written by a newer krouter (its version is {version}, this one"
                f" knows up to {known}). Upgrade krouter."
            )
        if version == 0:
            raise NotRecorded(f"No request has been recorded yet: {self.path} is empty.")
        if version < known:
            raise LedgerError(
                f"{self.path} is of an older version ({version}, not {known}). It is brought up"
                " to date when the next request is recorded."
            )

    def _nothing(self) -> LedgerError:
        return NotRecorded(f"No request has been recorded yet: {self.path} does not exist.")


class _Key(NamedTuple):
    sql: str
    of_attempts: bool = False


def _named(column: str) -> _Key:
    slash = f"a.provider || '/' || a.{column}"
    return _Key(f"CASE a.provider WHEN '' THEN a.{column} ELSE {slash} END", of_attempts=True)


_KEYS: dict[By, _Key] = {
    "model": _named("model"),
    "account": _named("account"),
    "combo": _Key("r.combo"),
    "key": _Key("r.caller"),
    "day": _Key("date(r.began, 'unixepoch', 'localtime')"),
}
ROW = ", ".join(f"r.{name}" for name in Row.__dataclass_fields__)
_UNPRICED = (  # as Attempt.is_unpriced
    "a.cost IS NULL AND (a.input IS NOT NULL OR a.seen"
    " OR a.outcome IN ('timed out', 'caller gone', 'called off'))"
)
_SUMMED = (
    *("a.input", "a.output", "a.cached", "a.cache_write", "a.cost"),
    *(_UNPRICED, "a.seen = 0"),
    *("a.input * (a.seen = 0)", "a.output * (a.seen = 0)", "a.cost * (a.seen = 0)"),
    f"a.seen = 0 AND {_UNPRICED}",
)
# In two halves, since SUM fails beyond 64 bits, which is some nine million dollars.
_SUMS = ", ".join(
    f"COALESCE(SUM(({sql}) >> 32), 0), COALESCE(SUM(({sql}) & 4294967295), 0)" for sql in _SUMMED
)


def row_of(values: tuple[Any, ...]) -> Row:
    row = dict(zip(Row.__dataclass_fields__, values, strict=True))
    return Row(**row | {"stream": bool(row["stream"])})


def _usage_row(values: tuple[Any, ...]) -> UsageRow:
    key, requests, attempts, *halves = values
    sums = [(high << 32) + low for high, low in zip(halves[::2], halves[1::2], strict=True)]
    return UsageRow(key, requests, attempts, *sums)


def _end(db: sqlite3.Connection) -> Cursor:
    last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'requests'").fetchone()
    return Cursor.of(last[0] if last else 0, file_id(db))


def _take_in(path: Path) -> None:
    file = LedgerFile(path, time.time, replaces=False)
    with suppress(Trouble):
        file.adopt()
    file.close()


def combo_text(db: sqlite3.Connection, digest: str) -> bytes | None:
    found = db.execute("SELECT text FROM combos WHERE digest = ?", (digest,)).fetchone()
    return found[0] if found else None


def _connect(path: Path) -> sqlite3.Connection:
    """Read-only. Where the folder may not be written and nobody writes the ledger, its index file
    cannot be made, nor is it needed: the file is whole and does not change."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        return _probed(uri)
    except sqlite3.OperationalError as error:
        refused = _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not refused or _has_log(path):
            raise
    return _probed(f"{uri}&immutable=1")


def _probed(uri: str) -> sqlite3.Connection:
    db = sqlite3.connect(uri, BUSY_SECONDS, isolation_level=None, uri=True)
    try:
        version_of(db)
    except BaseException:
        db.close()
        raise
    return db


def _has_log(path: Path) -> bool:
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _explain(error: sqlite3.Error) -> str:
    match _code(error):
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return "it is corrupt. It is set aside when the next request is recorded"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "another process holds it locked"
    return str(error)
