"""The tables of the ledger, their versions, and what of a route goes into which.

A record stands in `records` as it was kept, beside what is searched and summed. A combo stands in
`combos` once; `last` is a time no request that names it began after, so that it can go when all
the requests that are left began later.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from functools import cache
from itertools import chain
from sqlite3 import Connection
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from krouter.records import VERSION, Encoded, encode
from krouter.route import Attempt, Route

HOUR = 3600.0
LARGEST = 2**63

Migration = tuple[str, ...]
"""The statements that lead from one version to the next."""

MIGRATIONS: tuple[Migration, ...] = (
    (
        """CREATE TABLE requests (
            number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
            began REAL NOT NULL, ended REAL, dialect TEXT NOT NULL, asked TEXT NOT NULL,
            combo TEXT NOT NULL, stream INTEGER NOT NULL, outcome TEXT NOT NULL, status INTEGER,
            reasons TEXT NOT NULL, served TEXT NOT NULL, provider TEXT NOT NULL,
            model TEXT NOT NULL, account TEXT NOT NULL, attempts INTEGER NOT NULL,
            input INTEGER NOT NULL, output INTEGER NOT NULL, cached INTEGER NOT NULL,
            cache_write INTEGER NOT NULL, cost INTEGER NOT NULL, unpriced INTEGER NOT NULL,
            wasted INTEGER NOT NULL, wasted_input INTEGER NOT NULL,
            wasted_output INTEGER NOT NULL, wasted_cost INTEGER NOT NULL)""",
        "CREATE INDEX requests_began ON requests (began)",
        """CREATE TABLE attempts (
            request INTEGER NOT NULL, step INTEGER NOT NULL, began REAL NOT NULL,
            first_byte REAL, ended REAL, entry TEXT NOT NULL, provider TEXT NOT NULL,
            model TEXT NOT NULL, account TEXT NOT NULL, lane TEXT NOT NULL,
            outcome TEXT NOT NULL, error_row INTEGER, status INTEGER, lock REAL,
            input INTEGER, output INTEGER, cached INTEGER, cache_write INTEGER, cost INTEGER,
            seen INTEGER NOT NULL, dropped INTEGER NOT NULL,
            PRIMARY KEY (request, step)) WITHOUT ROWID""",
        "CREATE TABLE records (request INTEGER PRIMARY KEY, form INTEGER NOT NULL, record BLOB)",
        """CREATE TABLE combos (
            digest TEXT PRIMARY KEY, last REAL NOT NULL, text BLOB NOT NULL) WITHOUT ROWID""",
    ),
    ("ALTER TABLE requests ADD COLUMN caller TEXT NOT NULL DEFAULT ''",),
)


class NewerVersion(Exception):
    """A ledger that a newer krouter has written; the text says so."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"it was written by a newer krouter (its version is {found}, this one knows up to"
            f" {known}); upgrade krouter, or move the file away"
        )


class Foreign(Exception):
    """A database under the ledger's name that krouter has not made; the text says so."""

    def __init__(self) -> None:
        super().__init__("it is not krouter's file, but another database; move it away")


def check_ours(db: Connection) -> None:
    """In a transaction, so that no other process makes the tables meanwhile. Raises Foreign, and
    sqlite3.Error."""
    version = version_of(db)
    found = db.execute("SELECT name = 'requests' FROM sqlite_master ORDER BY 1 DESC").fetchone()
    if found != ((1,) if version else None):
        raise Foreign


def version_of(db: Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def file_id(db: Connection) -> int:
    """Which file it is: another one than that which stood in its place before. 0 where it is not
    known."""
    return int(db.execute("PRAGMA application_id").fetchone()[0])


def give_file_id(db: Connection) -> None:
    """A random one, where it has none. Raises sqlite3.Error."""
    if file_id(db):
        return
    db.execute("BEGIN IMMEDIATE")
    if not file_id(db):
        db.execute(f"PRAGMA application_id = {1 + secrets.randbelow(2**31 - 1)}")
    db.execute("COMMIT")


def migrate(db: Connection, steps: Sequence[Migration] = MIGRATIONS) -> None:
    """Leads the tables to the newest version, all steps or none. `db` opens no transactions by
    itself. Raises NewerVersion, and sqlite3.Error."""
    if version_of(db) == len(steps):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        found = version_of(db)
        if found > len(steps):
            raise NewerVersion(found, len(steps))
        for step in steps[found:]:
            for statement in step:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(steps)}")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


REQUEST = tuple(
    "id began ended dialect asked combo stream outcome status reasons served provider model"
    " account attempts input output cached cache_write cost unpriced wasted wasted_input"
    " wasted_output wasted_cost caller".split()
)
ATTEMPT = tuple(
    "request step began first_byte ended entry provider model account lane outcome error_row status"
    " lock input output cached cache_write cost seen dropped".split()
)
RECORD = ("request", "form", "record")


@cache
def _insert(table: str, columns: tuple[str, ...], verb: str = "INSERT", number: int = 1) -> str:
    places = f"({', '.join('?' * len(columns))})"
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES {', '.join([places] * number)}"


INSERT_REQUEST = _insert("requests", REQUEST, "INSERT OR IGNORE")
INSERT_ATTEMPT = _insert("attempts", ATTEMPT, "INSERT OR IGNORE")
INSERT_RECORD = _insert("records", RECORD)
INSERT_COMBO = (
    "INSERT INTO combos (digest, last, text) VALUES (?, ?, ?)"
    " ON CONFLICT (digest) DO UPDATE SET last = excluded.last WHERE excluded.last > last"
)
FIND = "SELECT number, began, record FROM requests JOIN records ON request = number WHERE id = ?"
UPDATE_REQUEST = f"UPDATE requests SET {', '.join(f'{c} = ?' for c in REQUEST)} WHERE number = ?"  # noqa: S608
DELETE_STEPS = (
    "DELETE FROM attempts WHERE request = ?",
    "DELETE FROM records WHERE request = ?",
)
DELETE_REQUEST = (*DELETE_STEPS, "DELETE FROM requests WHERE number = ?")


class _Told(Struct):
    """Of a record, how often its request was told anew."""

    revision: int = 0


class Rows(NamedTuple):
    """A route as its rows, the number of the request left out, which the ledger gives."""

    request: tuple[Any, ...]
    attempts: list[tuple[Any, ...]]
    revision: int
    record: bytes
    combos: list[tuple[str, float, bytes]]


def rows_of(route: Route, encoded: Encoded | None = None) -> Rows:
    """`encoded` is the route where that is known. Raises TypeError, ValueError or OverflowError
    where a route cannot be kept."""
    record, combos = encoded or encode(route)
    last = math.ceil(route.began / HOUR) * HOUR
    attempts = route.attempts
    return Rows(
        _request(route, attempts),
        [_attempt(number, each) for number, each in enumerate(attempts, 1)],
        route.revision,
        record,
        [(digest, last, text) for digest, text in combos.items()],
    )


def insert_new(db: Connection, many: Sequence[Rows]) -> None:
    """Requests that are not there yet, with few statements, since Python's lock is let go of and
    waited for again at each. Raises what rows are refused with, some of them being inserted then,
    and sqlite3.Error."""
    requests: list[Any] = []
    for each in many:
        requests += each.request
    number = _insert_all(db, "requests", REQUEST, requests) - len(many)
    records: list[Any] = []
    attempts: list[Any] = []
    combos: dict[tuple[str, float], bytes] = {}
    for each in many:
        number += 1
        records += (number, VERSION, each.record)
        for attempt in each.attempts:
            attempts.append(number)
            attempts += attempt
        for digest, last, text in each.combos:
            combos[digest, last] = text
    _insert_all(db, "records", RECORD, records)
    at_once = len(many) * len(ATTEMPT)
    for start in range(0, len(attempts), at_once):
        _insert_all(db, "attempts", ATTEMPT, attempts[start : start + at_once])
    for (digest, last), text in combos.items():
        db.execute(INSERT_COMBO, (digest, last, text))


def _insert_all(db: Connection, table: str, columns: tuple[str, ...], values: list[Any]) -> int:
    """Rows, one behind the other; the number of the last."""
    sql = _insert(table, columns, number=len(values) // len(columns))
    return db.execute(sql, values).lastrowid or 0


def insert(db: Connection, rows: Rows) -> bool:
    """Into every table. Of a request that is there already a later revision takes the place of an
    earlier one, under its number, and never the other way round. False where its id is that of
    another request. Raises sqlite3.Error."""
    done = db.execute(INSERT_REQUEST, rows.request)
    if done.rowcount > 0:
        _insert_rest(db, done.lastrowid, rows)
        return True
    number, began, record = db.execute(FIND, rows.request[:1]).fetchone() or (0, None, b"")
    if record == rows.record:
        return True
    found = _revision(record)
    if began != rows.request[1] or found == rows.revision:
        return False
    if found < rows.revision:
        db.execute(UPDATE_REQUEST, (*rows.request, number))
        for sql in DELETE_STEPS:
            db.execute(sql, (number,))
        _insert_rest(db, number, rows)
    return True


def _revision(record: bytes) -> int:
    try:
        return msgspec.json.decode(record, type=_Told).revision
    except msgspec.MsgspecError:
        return 0


def _insert_rest(db: Connection, number: int | None, rows: Rows) -> None:
    db.execute(INSERT_RECORD, (number, VERSION, rows.record))
    for attempt in rows.attempts:
        db.execute(INSERT_ATTEMPT, (number, *attempt))
    for combo in rows.combos:
        db.execute(INSERT_COMBO, combo)


def check(rows: Rows) -> None:
    """What SQLite would refuse is refused before, so that it spoils no other's transaction. Raises
    TypeError and OverflowError."""
    for value in chain(rows.request, *rows.attempts):
        if isinstance(value, int):
            if not -LARGEST <= value < LARGEST:
                raise OverflowError("a number has more than 64 bits")
        elif value is not None and not isinstance(value, str | float):
            raise TypeError(f"{type(value).__name__} where a text or number should be")


def _request(route: Route, attempts: Sequence[Attempt]) -> tuple[Any, ...]:
    provider = model = account = ""
    wasted, unpriced = [], 0
    for each in attempts:
        if each.seen:
            provider, model, account = each.provider, each.model, each.account
        else:
            wasted.append(each)
        if each.cost is None and each.is_unpriced:
            unpriced += 1
    input, output, cached, cache_write, cost = _sums(attempts)
    wasted_input, wasted_output, _, _, wasted_cost = _sums(wasted)
    return (
        route.id,
        route.began,
        route.ended,
        route.dialect,
        route.asked,
        route.combo,
        int(route.stream),
        str(route.outcome),
        route.status,
        _reasons(route),
        route.served,
        provider,
        model,
        account,
        len(attempts),
        input,
        output,
        cached,
        cache_write,
        cost,
        unpriced,
        len(wasted),
        wasted_input,
        wasted_output,
        wasted_cost,
        route.caller,
    )


def _sums(attempts: Sequence[Attempt]) -> tuple[int, int, int, int, int]:
    """Tokens: input, output, read from a cache, written to one. And what they cost."""
    input = output = cached = cache_write = cost = 0
    for each in attempts:
        cost += each.cost or 0
        if (usage := each.usage) is not None:
            input += usage.input
            output += usage.output
            cached += usage.cached
            cache_write += usage.cache_write
    return input, output, cached, cache_write, cost


def _attempt(number: int, each: Attempt) -> tuple[Any, ...]:
    """Plain numbers and texts: SQLite's own adapters would be looked up for a bool."""
    input = output = cached = cache_write = None
    if (usage := each.usage) is not None:
        input, output = usage.input, usage.output
        cached, cache_write = usage.cached, usage.cache_write
    return (
        number,
        each.began,
        each.first_byte,
        each.ended,
        each.entry,
        each.provider,
        each.model,
        each.account,
        each.lane,
        str(each.outcome),
        each.row,
        each.status,
        each.lock,
        input,
        output,
        cached,
        cache_write,
        each.cost,
        int(each.seen),
        len(each.dropped),
    )


def _reasons(route: Route) -> str:
    """Every reason of its steps, what came of its voices, and its own outcome, between bars."""
    found = [route.outcome]
    found += [each.outcome if isinstance(each, Attempt) else each.reason for each in route.steps]
    found += [voice.outcome for voice in route.voices]
    return f"|{'|'.join(dict.fromkeys(found))}|"
