"""Whole records of the ledger, one after the other, and what they tell of a model together."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from statistics import median
from typing import NamedTuple

from krouter.ledger_filter import ALL, Filter, condition
from krouter.ledger_reader import ROW, LedgerReader, Row, row_of
from krouter.records import VERSION, RecordError, decode
from krouter.route import Route

AT_ONCE = 500
"""Records that are read in one transaction."""


class Kept(NamedTuple):
    """A request and its record as it is kept, of the given form; empty where it has none."""

    row: Row
    form: int
    record: bytes


class Waits(NamedTuple):
    """The medians of a model's answers, in seconds: to the first byte, and to the last one."""

    first: float
    whole: float


def records(ledger: LedgerReader, filter: Filter = ALL) -> Iterator[Kept]:
    """The oldest first. What is written meanwhile may come too. Raises LedgerError."""
    where, values = condition(filter)
    query = (
        f"SELECT {ROW}, form, record FROM requests r LEFT JOIN records k ON k.request = r.number"  # noqa: S608
        f" WHERE {where} AND r.number > ? ORDER BY r.number LIMIT ?"
    )
    last = -1
    while True:
        with ledger.opened() as db:
            found = db.execute(query, (*values, last, AT_ONCE)).fetchall()
        for *row, form, record in found:
            kept = Kept(row_of(tuple(row)), form or 0, record or b"")
            last = kept.row.number
            yield kept
        if len(found) < AT_ONCE:
            return


def newest(ledger: LedgerReader, filter: Filter = ALL, limit: int = 20) -> list[Route]:
    """The routes that ids put last, in reverse, less those that this krouter cannot read. Raises
    LedgerError."""
    where, values = condition(filter)
    query = (
        "SELECT k.record FROM requests r JOIN records k ON k.request = r.number"  # noqa: S608
        f" WHERE {where} AND k.form <= {VERSION} ORDER BY r.id DESC LIMIT ?"
    )
    with ledger.opened() as db:
        found = db.execute(query, (*values, limit)).fetchall()
    routes: list[Route] = []
    for (record,) in found:
        with suppress(RecordError):
            routes.append(decode(record, partial(combo_text, ledger)))
    return routes


def combo_text(ledger: LedgerReader, digest: str) -> bytes | None:
    """A combo's JSON, by its digest. Raises LedgerError."""
    with ledger.opened() as db:
        found = db.execute("SELECT text FROM combos WHERE digest = ?", (digest,)).fetchone()
    return found[0] if found else None


def waits(
    ledger: LedgerReader, provider: str, model: str, *, stream: bool, filter: Filter = ALL
) -> Waits | None:
    """Of the answers to such requests; None where there are none. Raises LedgerError."""
    where, values = condition(filter)
    query = (
        "SELECT COALESCE(a.first_byte, a.ended) - a.began, a.ended - a.began"  # noqa: S608
        " FROM attempts a JOIN requests r ON r.number = a.request"
        " WHERE a.provider = ? AND a.model = ? AND a.outcome = 'answered'"
        f" AND a.ended IS NOT NULL AND r.stream = ? AND {where}"
    )
    with ledger.opened() as db:
        found = _fetched(db, query, (provider, model, stream, *values))
    if not found:
        return None
    first, whole = zip(*found, strict=True)
    return Waits(median(first), median(whole))


def _fetched(
    db: sqlite3.Connection, query: str, values: tuple[object, ...]
) -> list[tuple[float, float]]:
    return db.execute(query, values).fetchall()
