"""The ledger keeps what it was given, says what troubles it, and holds up nothing."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krouter.combos import Combo
from krouter.dialects.base import Usage
from krouter.ledger import BACKLOG, BATCH, Ledger, back_off
from krouter.ledger_file import AT_ONCE, DAY, MEGABYTE, TIDY_SECONDS, open_file
from krouter.ledger_journal import LARGE
from krouter.ledger_reader import By, Filter, LedgerError, LedgerReader, UsageRow
from krouter.ledger_schema import (
    MIGRATIONS,
    REQUEST,
    NewerVersion,
    migrate,
    rows_of,
    version_of,
)
from krouter.plan import Snapshot, Standing, make_plan
from krouter.records import rebuild
from krouter.route import REASONS, Attempt, Route, Skip, Skipped
from krouter.settings import RoutingSettings
from tests.harness import Clock
from tests.ledger_routes import an_attempt, made, routes

WAIT = 30.0
"""Seconds after which a test has failed; none of them waits so long."""


class Bench:
    """A ledger and what it has said."""

    def __init__(self, path: Path, **more: Any) -> None:
        self.said: SimpleQueue[str] = SimpleQueue()
        given: dict[str, Any] = {"days": 30, "megabytes": 200, "retry": lambda _: WAIT, **more}
        self.path, self.ledger = path, Ledger(path, warn=self.said.put, **given)

    def keep(self, *routes: Route) -> None:
        for route in routes:
            self.ledger.put(route)
        assert self.ledger.flush(WAIT)

    @property
    def reader(self) -> LedgerReader:
        return LedgerReader(self.path)

    def next_line(self) -> str:
        return self.said.get(timeout=WAIT)


@contextmanager
def bench(path: Path, **more: Any) -> Iterator[Bench]:
    made_here = Bench(path, **more)
    try:
        yield made_here
    finally:
        made_here.ledger.close(WAIT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "ledger.db"


def run_sql(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(sql).fetchall()


def numbered(numbers: range, **more: Any) -> list[Route]:
    return [made(f"{number:016}", an_attempt(seen=True), **more) for number in numbers]


def ids(rows: list[Any]) -> list[str]:
    return [row.id for row in rows]


# What is kept


def test_a_route_comes_back_whole_and_gives_its_order_again(path: Path) -> None:
    combo = Combo.model_validate({"name": "fast", "models": ["a/m", "b/m"]})
    plan = make_plan(Snapshot(combo, RoutingSettings(), (Standing(), Standing())))
    route = made("id", Skipped("a/m", "x", Skip.LOCKED, "until noon"), an_attempt("b/m", seen=True))
    route.note_plan(plan)
    with bench(path) as it:
        it.keep(route)
        kept = it.reader.route("id")
    assert kept == route
    assert rebuild(kept) == [plan]


def test_it_is_closed_and_begins_anew(path: Path) -> None:
    with bench(path) as it:
        it.ledger.put(made("first"))
        assert it.ledger.close(WAIT)
        assert ids(it.reader.requests()) == ["first"]
        it.ledger.put(made("second"))
        assert it.ledger.close(WAIT)
        assert ids(it.reader.requests()) == ["first", "second"]
        assert it.ledger.flush(0)
        assert it.ledger.state == type(it.ledger.state)(path, "", 0, 0)


def test_each_is_written_without_being_asked_for(path: Path) -> None:
    commits = Commits()
    with bench(path, connect=commits.connect) as it:
        it.keep(made("0"))
        commits.next()
        for number in range(1, 6):
            it.ledger.put(made(str(number)))
            commits.next()
            assert commits.told.empty()


class Commits:
    """A connection that tells of every transaction that has written requests."""

    def __init__(self) -> None:
        self.told: SimpleQueue[int] = SimpleQueue()
        self._inserts = self._done = 0

    def connect(self, path: Path) -> sqlite3.Connection:
        db = open_file(path)
        db.set_trace_callback(self._trace)
        return db

    def _trace(self, sql: str) -> None:
        """A statement is about to run: those before it have."""
        if self._done:
            self.told.put(self._done)
            self._done = 0
        self._inserts += sql.startswith("INSERT INTO requests")
        if sql == "COMMIT":
            self._done, self._inserts = self._inserts, 0

    def next(self) -> int:
        """How many statements inserted the requests of the next one."""
        return self.told.get(timeout=WAIT)


def test_many_are_written_in_one_transaction_with_few_statements(path: Path) -> None:
    commits = Commits()
    with bench(path, connect=commits.connect, gather=WAIT) as it:
        it.keep(made("first"))
        it.keep(*numbered(range(100)))
        statements = [commits.next() for _ in range(commits.told.qsize())]
        assert len(statements) <= 3  # what was put while the first was written may come alone
        assert sum(statements) <= 2 + 100 / AT_ONCE + 1
        assert ids(it.reader.requests(limit=200)) == ["first", *ids(numbered(range(100)))]
        assert it.reader.route(f"{42:016}").id == f"{42:016}"
        assert it.reader.total().attempts == 100


def test_those_that_wait_in_memory_alone_are_not_gathered(path: Path) -> None:
    commits = Commits()
    with bench(path, connect=commits.connect, gather=WAIT) as it:
        it.keep(made("first"))
        it.ledger.put(made("small"))
        it.ledger.put(made("large", request="x" * LARGE))
        while it.reader.total().requests < 3:
            commits.next()
        assert ids(it.reader.requests()) == ["first", "small", "large"]


def test_more_than_a_batch_is_written_without_a_pause(path: Path) -> None:
    with bench(path, gather=WAIT, retry=lambda _: 2 * WAIT) as it:
        it.keep(made("first"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for route in numbered(range(2 * BATCH + 1)):
                it.ledger.put(route)
        assert it.ledger.flush(WAIT)
        assert it.reader.total().requests == 2 * BATCH + 2


@pytest.mark.parametrize("odd", [{"id": "first"}, {"cost": 2**63}, {"asked": "\ud800"}])
def test_an_odd_one_keeps_no_other_from_being_written(path: Path, odd: dict[str, Any]) -> None:
    cost = odd.pop("cost", 0)
    strange = made(odd.pop("id", "odd"), an_attempt(cost=cost), began=1.0, **odd)
    with bench(path, gather=WAIT, now=lambda: 0.0) as it:
        it.keep(made("first", an_attempt(seen=True), began=0.0))
        it.keep(*numbered(range(30)), strange, *numbered(range(30, 60)))
        found = ids(it.reader.requests(limit=99))
        assert found == ["first", *ids(numbered(range(60)))]
        assert it.reader.total().attempts == 61
        assert it.ledger.state.lost == 1
        assert it.next_line().startswith("A request cannot be kept in the ledger: ")


def test_only_its_owner_may_read_it(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("id"))
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert {"ledger.db", "ledger.db-wal", "ledger.db-shm"} < set(modes)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_request_is_kept_once(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("id", an_attempt()), made("id", an_attempt()), made("other"))
        it.keep(made("id"))
        assert (it.reader.total().requests, it.reader.total().attempts) == (2, 1)


_serial = count()


@given(routes(lambda: "0123456789abcdef"))
def test_a_row_holds_what_the_route_says_of_itself(route: Route) -> None:
    row = dict(zip(REQUEST, rows_of(route).request, strict=True))
    served = next((each for each in reversed(route.attempts) if each.seen), None)
    assert [row[name] for name in ("provider", "model", "account")] == [
        getattr(served, name, "") for name in ("provider", "model", "account")
    ]
    usage, wasted = route.usage, route.wasted
    names = "input output cached cache_write".split()
    assert [row[name] for name in names] == [getattr(usage, name) for name in names]
    assert row["cost"] == sum(each.cost or 0 for each in route.attempts)
    assert row["unpriced"] == sum(each.is_unpriced for each in route.attempts)
    assert row["wasted"] == len(wasted)
    assert row["wasted_cost"] == sum(each.cost or 0 for each in wasted)
    for name in ("input", "output"):
        told = [getattr(each.usage, name) for each in wasted if each.usage]
        assert row[f"wasted_{name}"] == sum(told)
    reasons = {route.outcome, *(each.outcome for each in route.attempts)}
    assert set(row["reasons"].strip("|").split("|")) == reasons | {s.reason for s in route.skips}
    assert {type(value) for value in row.values()} <= {str, int, float, type(None)}


@given(st.lists(routes(lambda: f"{next(_serial):016}"), max_size=6))
@settings(max_examples=25)
def test_the_sums_are_those_of_the_attempts(given: list[Route]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        it = Bench(Path(folder) / "ledger.db", now=lambda: 0.0)
        it.keep(*given, made("last", began=0.0))
        assert it.ledger.close(WAIT)
        reader = it.reader
        rows = {row.id: row for row in reader.requests(limit=100)}
        for route in given:
            kept, row = reader.route(route.id), rows[route.id]
            assert kept == route
            sums = summed(kept.attempts)
            assert (row.attempts, row.unpriced, row.cost) == (sums[0], len(route.unpriced), sums[5])
            assert (row.input, row.output, row.cached, row.cache_write) == sums[1:5]
            lost = summed(kept.wasted)
            assert (row.wasted, row.wasted_input, row.wasted_output) == lost[:3]
            assert row.wasted_cost == lost[5]
        attempts = [each for route in given for each in route.attempts]
        assert summed_row(reader.total()) == summed(attempts)
        for by in ("model", "combo", "account", "day"):
            check_usage(reader, by, given)


def summed(attempts: list[Attempt]) -> tuple[int, ...]:
    used = [each.usage or Usage() for each in attempts]
    return (
        len(attempts),
        sum(each.input for each in used),
        sum(each.output for each in used),
        sum(each.cached for each in used),
        sum(each.cache_write for each in used),
        sum(each.cost or 0 for each in attempts),
    )


def summed_row(row: UsageRow) -> tuple[int, ...]:
    return row.attempts, row.input, row.output, row.cached, row.cache_write, row.cost


def check_usage(reader: LedgerReader, by: By, given: list[Route]) -> None:
    keys: dict[By, Callable[[Route, Attempt], str]] = {
        "model": lambda _, each: f"{each.provider}/{each.model}" if each.provider else each.model,
        "account": lambda _, each: (
            f"{each.provider}/{each.account}" if each.provider else each.account
        ),
        "combo": lambda route, _: route.combo,
        "day": lambda route, _: time.strftime("%Y-%m-%d", time.localtime(route.began)),
    }
    by_key: dict[str, list[Attempt]] = {}
    for route in given:
        for each in route.attempts:
            by_key.setdefault(keys[by](route, each), []).append(each)
    rows = [row for row in reader.usage(by) if row.attempts]
    assert {row.key: summed_row(row) for row in rows} == {k: summed(v) for k, v in by_key.items()}
    for row in rows:
        wasted = [each for each in by_key[row.key] if not each.seen]
        assert (row.wasted, row.wasted_cost) == (len(wasted), summed(wasted)[5])
        unpriced = [each for each in by_key[row.key] if each.is_unpriced]
        assert row.unpriced == len(unpriced)


# What is found


@pytest.fixture
def some(path: Path) -> Iterator[LedgerReader]:
    with bench(path, now=lambda: 0.0) as it:
        it.keep(
            made("aaaa1", an_attempt(seen=True), began=100.0),
            made("aaaa2", an_attempt("b/x/y", status=529), an_attempt(seen=True), began=200.0),
            made("bbbb1", Skipped("a/m", "main", Skip.LOCKED), combo="slow", began=300.0),
            made("bbbb2", an_attempt("c/m", status=429, outcome="rate limited"), began=400.0),
        )
        yield it.reader


@pytest.mark.parametrize("by", ["model", "combo", "account", "day"])
def test_usage_of_a_model_is_of_its_attempts_alone(some: LedgerReader, by: By) -> None:
    """`aaaa2` tried another model too."""
    for pattern, requests, wasted in (("a/m", 2, 0), ("b/*", 1, 1), ("[ab]/*", 2, 1)):
        rows, total = some.usage(by, Filter(model=pattern)), some.total(Filter(model=pattern))
        attempts = requests if len(pattern) == 3 else 3
        assert (total.requests, total.attempts, total.wasted) == (requests, attempts, wasted)
        assert (total.input, total.output, total.cost) == (
            10 * attempts,
            5 * attempts,
            7 * attempts,
        )
        assert sum(row.attempts for row in rows) == attempts


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        (Filter(), "aaaa1 aaaa2 bbbb1 bbbb2"),
        (Filter(combo="slow"), "bbbb1"),
        (Filter(combo="slo"), ""),
        (Filter(model="a/m"), "aaaa1 aaaa2"),
        (Filter(model="b/*"), "aaaa2"),
        (Filter(model="?/m"), "aaaa1 aaaa2 bbbb2"),
        (Filter(model="%"), ""),
        (Filter(status="ok"), "aaaa1 aaaa2"),
        (Filter(status="failed"), "bbbb1 bbbb2"),
        (Filter(status="529"), "aaaa2 bbbb1 bbbb2"),
        (Filter(status="429"), "bbbb2"),
        (Filter(status="locked"), "bbbb1"),
        (Filter(status="rate limited"), "bbbb2"),
        (Filter(since=200.0), "aaaa2 bbbb1 bbbb2"),
        (Filter(until=200.0), "aaaa1"),
        (Filter(since=150.0, until=350.0, status="ok", combo="fast"), "aaaa2"),
    ],
)
def test_a_filter(some: LedgerReader, filter: Filter, found: str) -> None:
    assert ids(some.requests(filter)) == found.split()
    assert ids(some.after(0, filter)[0]) == found.split()
    assert some.total(filter).requests == len(found.split())


def test_every_reason_may_be_asked_for_and_nothing_else(some: LedgerReader) -> None:
    for reason in REASONS:
        some.requests(Filter(status=reason))
    with pytest.raises(LedgerError, match="Did you mean 'overloaded'"):
        some.requests(Filter(status="overload"))


def test_the_newest_are_given_and_those_that_follow(some: LedgerReader) -> None:
    newest = some.requests(limit=2)
    assert ids(newest) == ["bbbb1", "bbbb2"]
    assert some.after(newest[-1].number) == ([], 4)
    rows, cursor = some.after(newest[0].number)
    assert (ids(rows), cursor) == (["bbbb2"], 4)
    assert ids(some.after(1000)[0]) == ["aaaa1", "aaaa2", "bbbb1", "bbbb2"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("aaaa", "Several requests begin with 'aaaa': aaaa1, aaaa2."),
        ("aaa", "No request 'aaa' is in"),
        ("cccc", "No request 'cccc' is in"),
        ("%%%%", "No request '%%%%' is in"),
    ],
)
def test_a_request_that_cannot_be_told(some: LedgerReader, asked: str, words: str) -> None:
    with pytest.raises(LedgerError) as caught:
        some.route(asked)
    assert words in str(caught.value)


def test_the_beginning_of_an_id_is_enough(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("0123456"), made("0123x"), made("0123xy"), made("\u00fc\U0010ffff-\u00fc"))
        assert it.reader.route("01234").id == "0123456"
        assert it.reader.route("0123x").id == "0123x"
        assert it.reader.route("\u00fc\U0010ffff-\u00fc"[:4]).id == "\u00fc\U0010ffff-\u00fc"


def test_a_request_without_attempts_counts_where_it_can(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("id", combo="slow"))
        assert [(row.key, row.requests) for row in it.reader.usage("combo")] == [("slow", 1)]
        assert it.reader.usage("model") == []


# How it is read


@pytest.mark.parametrize("name", ["a b", "what?", "a#b", "100%41", "ü"])
def test_any_path(tmp_path: Path, name: str) -> None:
    with bench(tmp_path / name / f"{name}.db") as it:
        it.keep(made("id"))
        assert it.reader.route("id").id == "id"
        assert it.ledger.close(WAIT)
        assert it.reader.route("id").id == "id"


def test_what_is_not_there(path: Path) -> None:
    with pytest.raises(LedgerError, match=f"No request has been recorded yet: {path} does not"):
        LedgerReader(path)
    path.parent.mkdir()
    path.touch()
    with pytest.raises(LedgerError, match="No request has been recorded yet"):
        LedgerReader(path)
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(LedgerError, match="it is corrupt"):
        LedgerReader(path)


def test_it_is_read_while_it_is_written(path: Path) -> None:
    given = numbered(range(500))
    with bench(path) as it:
        it.keep(given[0])
        reader, cursor, seen = it.reader, 0, []
        for route in given[1:]:
            it.ledger.put(route)
            rows, cursor = reader.after(cursor)
            seen += ids(rows)
        assert it.ledger.flush(WAIT)
        rows, _ = reader.after(cursor)
        assert seen + ids(rows) == ids(given)


def test_reading_holds_up_no_writing(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("first"))
        with closing(sqlite3.connect(path, isolation_level=None)) as reading:
            reading.execute("BEGIN")
            reading.execute("SELECT * FROM requests").fetchall()
            it.keep(made("second"))
            assert reading.execute("SELECT COUNT(*) FROM requests").fetchone() == (1,)
        assert it.said.empty()


# What troubles it


def test_a_lock_is_waited_out(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("first"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            it.ledger.put(made("second"))
            assert "another process holds it locked" in it.next_line()
            state = it.ledger.state
            assert ("locked" in state.problem, state.waiting, state.lost) == (True, 1, 0)
            other.execute("ROLLBACK")
        it.keep(made("third"))
        assert it.next_line() == f"The ledger {path} is written again; 0 requests were lost."
        assert ids(it.reader.requests()) == ["first", "second", "third"]
        assert (it.said.empty(), it.ledger.state.problem) == (True, "")


def test_the_oldest_are_lost_where_too_many_wait(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("first"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            it.ledger.put(made("second"))
            it.next_line()
            for route in numbered(range(BACKLOG + 5)):
                it.ledger.put(route)
            assert (it.ledger.state.waiting, it.ledger.state.lost) == (BACKLOG, 6)
        assert it.ledger.flush(WAIT)
        assert it.reader.total().requests == BACKLOG + 1
        assert it.next_line().endswith("; 6 requests were lost.")


def test_it_is_tried_again_at_growing_distances(path: Path) -> None:
    tried: SimpleQueue[int] = SimpleQueue()

    def soon(failures: int) -> float:
        tried.put(failures)
        return 0.0

    with bench(path, retry=soon, connect=lambda _: sqlite3.connect(path / "nowhere")) as it:
        it.ledger.put(made("id"))
        assert [tried.get(timeout=WAIT) for _ in range(3)] == [1, 2, 3]
        assert "mend their permissions" in it.next_line()
    delays = list(map(back_off, range(1, 100)))
    assert (delays[:3], delays[-1], sorted(delays)) == ([0.25, 0.5, 1.0], 30.0, delays)


def test_a_full_disk_is_waited_out(path: Path) -> None:
    most = [60]

    def connect(path: Path) -> sqlite3.Connection:
        db = open_file(path)
        db.execute(f"PRAGMA max_page_count = {most[0]}").fetchall()
        return db

    given = numbered(range(300), asked="x" * 400)
    with bench(path, connect=connect) as it:
        for route in given:
            it.ledger.put(route)
        assert "the disk is full; make room" in it.next_line()
        assert it.ledger.state.problem
        most[0] = 1_000_000
        assert it.ledger.flush(WAIT)
        assert it.next_line().endswith("; 0 requests were lost.")
        assert ids(it.reader.requests(limit=1000)) == ids(given)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with bench(tmp_path / "file" / "ledger.db") as it:
        it.ledger.put(made("id"))
        assert "mend its folder, or name another" in it.next_line()
        (tmp_path / "file").unlink()
        it.keep(made("second"))
        assert ids(it.reader.requests()) == ["id", "second"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o500)
    with bench(path) as it:
        it.ledger.put(made("id"))
        assert "Permission denied; mend its folder" in it.next_line()
        path.parent.chmod(0o700)
        it.keep(made("second"))
        path.parent.chmod(0o500)
        assert ids(it.reader.requests()) == ["id", "second"]
        path.parent.chmod(0o700)
        assert it.ledger.close(WAIT)
        path.parent.chmod(0o500)
        assert ids(it.reader.requests()) == ["id", "second"]
        path.parent.chmod(0o700)


def test_a_file_that_may_not_be_written(path: Path) -> None:
    def connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, check_same_thread=False)

    with bench(path, connect=connect) as it:
        it.ledger.put(made("id"))
        assert "mend their permissions" in it.next_line()
        assert it.ledger.state.waiting == 1


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (path.stat().st_size - 100))


@pytest.mark.parametrize("spoil", [garbage, cut_off, overwritten])
@pytest.mark.parametrize("running", [False, True])
def test_a_corrupt_file_is_set_aside(path: Path, spoil: Any, running: bool) -> None:
    with bench(path, now=Clock()) as it:
        it.keep(*numbered(range(50), began=Clock().now))
        if running:
            run_sql(path, "PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            assert it.ledger.close(WAIT)
        spoil(path)
        spoiled = path.read_bytes()
        it.keep(made("new", began=Clock().now))
        name = time.strftime("ledger.db.corrupt-%Y%m%d-%H%M%S", time.localtime(Clock().now))
        aside = path.with_name(name)
        said = f"The ledger {path} is corrupt; it is kept as {aside}, and a new one is begun."
        assert it.next_line() == said
        assert aside.read_bytes() == spoiled
        assert ids(it.reader.requests()) == ["new"]
        assert (it.said.empty(), it.ledger.state.problem) == (True, "")


def test_a_file_that_was_moved_away_is_begun_anew(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("first"))
        path.parent.rename(path.parent.with_name("moved"))
        it.keep(made("second"))
        assert ids(it.reader.requests()) == ["second"]


def test_what_cannot_be_kept_is_left_out(path: Path) -> None:
    strange: list[Any] = [
        made("a", asked="\ud800"),
        made("b", combo=object()),
        made("e", combo=["fast"]),
        made("c", an_attempt(cost=2**63)),
        made("d", an_attempt(), an_attempt(usage=Usage(2**63, 0))),
    ]
    with bench(path) as it:
        it.keep(made("first"), *strange, made("last"))
        assert ids(it.reader.requests()) == ["first", "last"]
        assert run_sql(path, "SELECT COUNT(*) FROM attempts") == [(0,)]
        assert it.next_line().startswith("A request cannot be kept in the ledger: Unicode")
        assert (it.said.empty(), it.ledger.state.lost) == (True, 5)


def test_a_listener_that_fails_stops_nothing(path: Path) -> None:
    def fail(_: str) -> None:
        raise RuntimeError

    path.parent.mkdir()
    garbage(path)
    ledger = Ledger(path, days=1, megabytes=1, warn=fail)
    ledger.put(made("id"))
    assert ledger.close(WAIT)
    assert ids(LedgerReader(path).requests()) == ["id"]


# Several processes


def writer(path: Path, prefix: str, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.ledger_writer", str(path), prefix, str(number)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_loses_nothing_that_was_put(path: Path) -> None:
    with writer(path, "k", 0) as process:
        assert process.stdout
        lines = []
        while sum(line.startswith("written") for line in lines) < 30:
            lines.append(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.readlines()
    written = [line.split()[1] for line in lines if line.startswith("written")]
    put = [line.split()[1] for line in lines if line.startswith("put")]
    found = ids(LedgerReader(path).requests(limit=10**6))
    assert found in (put, put[:-1])
    assert len(found) >= int(written[-1][1:])
    assert LedgerReader(path).route(found[-1]).id == found[-1]
    with bench(path) as it:
        it.keep(made("after"))
        assert it.said.empty()
    assert run_sql(path, "PRAGMA integrity_check") == [("ok",)]
    assert run_sql(path, "SELECT COUNT(*) FROM attempts") == [(2 * len(found),)]
    assert run_sql(path, "SELECT COUNT(*) FROM records") == [(len(found) + 1,)]


def test_two_processes_write_one_file(path: Path) -> None:
    with writer(path, "a", 200) as one, writer(path, "b", 200) as other:
        said = [each.communicate(timeout=WAIT)[0] for each in (one, other)]
    assert [one.returncode, other.returncode] == [0, 0], said
    assert LedgerReader(path).total().requests == 400
    assert run_sql(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_writes_for_itself(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("parent"))
        child = os.fork()
        if not child:
            try:
                it.ledger.put(made("child"))
                os._exit(0 if it.ledger.close(WAIT) else 1)
            finally:
                os._exit(2)
        it.keep(made("later"))
        assert os.waitpid(child, 0)[1] == 0
        assert set(ids(it.reader.requests())) == {"parent", "child", "later"}
        assert it.said.empty()


# How long it is kept


def until(check: Callable[[], bool], it: Bench) -> None:
    """Lets the ledger tidy in its steps until it has done so."""
    for _ in range(200):
        if check():
            return
        assert it.ledger.flush(WAIT)
    raise AssertionError


def test_what_is_too_old_is_deleted(path: Path) -> None:
    clock = Clock()
    old = Combo.model_validate({"name": "old", "models": ["a/m"]})
    plan = make_plan(Snapshot(old, RoutingSettings(), (Standing(),)))
    with bench(path, now=clock, days=2) as it:
        gone = numbered(range(500), began=clock.now)
        for route in gone:
            route.note_plan(plan)
        it.keep(*gone)
        assert run_sql(path, "SELECT COUNT(*) FROM combos") == [(1,)]
        clock.forward(DAY)
        it.keep(made("kept", an_attempt(), began=clock.now))
        assert it.reader.total().requests == 501
        clock.forward(DAY + TIDY_SECONDS)
        until(lambda: it.reader.total().requests == 1, it)
        until(lambda: run_sql(path, "SELECT COUNT(*) FROM combos") == [(0,)], it)
        assert run_sql(path, "SELECT COUNT(*) FROM attempts") == [(1,)]
        assert ids(it.reader.requests()) == ["kept"]


def test_a_combo_that_a_request_still_names_is_kept(path: Path) -> None:
    clock = Clock()
    combo = Combo.model_validate({"name": "old", "models": ["a/m"]})
    first, second = made("1", began=clock.now), made("2", began=clock.now + DAY)
    for route in (second, first):
        route.note_plan(make_plan(Snapshot(combo, RoutingSettings(), (Standing(),))))
    with bench(path, now=clock, days=2) as it:
        it.keep(second, first)
        clock.forward(2 * DAY + TIDY_SECONDS)
        until(lambda: it.reader.total().requests == 1, it)
        it.keep()
        assert it.reader.route(second.id) == second


def test_it_does_not_grow_beyond_its_size(path: Path) -> None:
    clock = Clock()
    with bench(path, now=clock, megabytes=3) as it:
        it.keep(*numbered(range(2000), began=clock.now, asked="x" * 500))
        it.ledger.close(WAIT)
        before = path.stat().st_size
        assert before > 2 * MEGABYTE
        it.ledger.configure(30, 1)
        it.keep(made("newest", began=clock.now + 1))
        until(lambda: run_sql(path, "PRAGMA freelist_count") == [(0,)] and small(path), it)
        newest = it.reader.requests(limit=2)
        assert ids(newest) == [f"{1999:016}", "newest"]
        kept = it.reader.total().requests
        assert 100 < kept < 1900
        assert it.reader.requests(limit=10**6)[0].id == f"{2001 - kept:016}"
        it.ledger.close(WAIT)
        assert path.stat().st_size <= MEGABYTE


def test_large_records_do_not_take_all_others_with_them(path: Path) -> None:
    with bench(path, megabytes=1) as it:
        it.keep(*numbered(range(12), request="x" * 100_000))
        until(lambda: it.reader.total().requests < 12 and small(path), it)
        assert it.reader.total().requests > 6


def small(path: Path) -> bool:
    return int(run_sql(path, "PRAGMA page_count")[0][0]) * 4096 <= MEGABYTE


# Its versions


def test_each_version_leads_to_the_next(path: Path) -> None:
    later = ("ALTER TABLE requests ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'",)
    with bench(path) as it:
        it.keep(made("id"))
    assert run_sql(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    with closing(open_file(path)) as db:
        migrate(db, (*MIGRATIONS, later))
        assert version_of(db) == len(MIGRATIONS) + 1
        assert db.execute("SELECT id, mood FROM requests").fetchall() == [("id", "calm")]
        migrate(db, (*MIGRATIONS, later))
        with pytest.raises(NewerVersion):
            migrate(db)


def test_a_ledger_of_before_callers_were_kept(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    old = made("old")
    with closing(open_file(path)) as db:
        migrate(db, MIGRATIONS[:1])
        *values, _ = rows_of(old).request
        names = ", ".join(REQUEST[:-1])
        places = ", ".join("?" * len(values))
        db.execute(f"INSERT INTO requests ({names}) VALUES ({places})", values)
    with bench(path) as it:
        it.keep(made("new", caller="laptop"))
    rows = LedgerReader(path).requests()
    assert [(row.id, row.caller) for row in rows] == [("old", ""), ("new", "laptop")]


def test_a_step_that_fails_leaves_all_as_it_was(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("id"))
    with closing(open_file(path)) as db:
        steps = (*MIGRATIONS, ("ALTER TABLE requests ADD COLUMN mood TEXT", "no statement"))
        with pytest.raises(sqlite3.OperationalError):
            migrate(db, steps)
        assert version_of(db) == len(MIGRATIONS)
        with pytest.raises(sqlite3.OperationalError):
            db.execute("SELECT mood FROM requests")


def test_a_newer_file_is_not_touched(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("id"))
    run_sql(path, "PRAGMA user_version = 99")
    before = path.read_bytes()
    with bench(path) as it:
        it.ledger.put(made("new"))
        assert "written by a newer krouter" in it.next_line()
        assert "upgrade krouter" in it.ledger.state.problem
        with pytest.raises(LedgerError, match="newer krouter"):
            LedgerReader(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [0, 1, 99])
def test_a_database_of_another_program_is_left_alone(path: Path, version: int) -> None:
    path.parent.mkdir()
    run_sql(path, "CREATE TABLE songs (name TEXT)")
    run_sql(path, f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with bench(path) as it:
        it.ledger.put(made("new"))
        assert "it is not krouter's file, but another database; move it away." in it.next_line()
        with pytest.raises(LedgerError, match=r"not krouter's file.*move it away"):
            LedgerReader(path)
    assert path.read_bytes() == before


def test_a_newer_record_is_not_misread(path: Path) -> None:
    with bench(path) as it:
        it.keep(made("id"))
        run_sql(path, "UPDATE records SET form = 99")
        with pytest.raises(LedgerError, match="newer krouter"):
            it.reader.route("id")


def test_who_keeps_no_ledger_needs_no_sqlite() -> None:
    code = "import krouter.ledger, sys; print('sqlite3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
