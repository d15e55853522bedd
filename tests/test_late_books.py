"""All that counts requests counts late calls once, whenever they end and whatever comes between."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krouter.board import Board
from krouter.dialects.base import Usage
from krouter.ledger import Ledger
from krouter.ledger_journal import Journal
from krouter.ledger_reader import Filter, LedgerReader
from krouter.metrics import Metrics
from krouter.route import End, Route, Voice
from tests.late_routes import Told, tellings
from tests.ledger_routes import an_attempt, made
from tests.test_metrics import read, series

WAIT = 30.0

several = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).flatmap(
    lambda numbers: st.tuples(*(tellings(f"id-{number}") for number in numbers))
)


def last(told: list[Told]) -> Route:
    return told[-1][0]


@given(several)
def test_metrics_count_what_is_late_once_and_when_it_has_ended(every: list[list[Told]]) -> None:
    at_once, in_time = Metrics(lambda: Board(lambda: 0.0)), Metrics(lambda: Board(lambda: 0.0))
    for told in every:
        at_once.book(last(told))
    for (first, _), *_ in every:
        in_time.book(first)
    early = series(read(in_time), "krouter_attempts_total")
    assert not any(("outcome", End.UNDER_WAY) in labels for labels in early)
    for _, *later in every:
        for route, news in later:
            in_time.amend(route, news)
    assert read(in_time) == read(at_once)
    voices = Counter((v.role, v.outcome) for told in every for v in last(told).voices)
    found = series(read(in_time), "krouter_fusion_voices_total")
    assert found == {
        frozenset({"combo": "wise", "role": role, "outcome": outcome}.items()): count
        for (role, outcome), count in voices.items()
    }


def sums(route: Route) -> tuple[int, ...]:
    used = [each.usage or Usage() for each in route.attempts]
    tokens = sum(each.input for each in used), sum(each.output for each in used)
    cost = sum(each.cost or 0 for each in route.attempts)
    return len(route.attempts), *tokens, cost, len(route.wasted)


@given(several, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_last_revision_stays_in_whatever_order_they_come(
    every: list[list[Told]], dice: Random
) -> None:
    """Some are put, the rest left in journals of processes that have ended, which are taken in in
    the order of their names, some of them twice."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        ledger = Ledger(path, days=30, megabytes=200, warn=print)
        for told in every:
            for route, _ in told:
                for _ in range(dice.choice((1, 1, 2))):
                    if dice.random() < 0.5:
                        ledger.put(route)
                        assert ledger.flush(WAIT)
                    else:
                        leave(path, route, f"{dice.randrange(10**9):09}")
            leave(path, last(told), f"{dice.randrange(10**9):09}")
        assert ledger.close(WAIT)
        assert ledger.state.lost == 0
        reader = LedgerReader(path)
        rows = {row.id: row for row in reader.requests(limit=100)}
        assert set(rows) == {last(told).id for told in every}
        for told in every:
            route, row = last(told), rows[last(told).id]
            assert reader.route(route.id) == route
            counted = row.attempts, row.input, row.output, row.cost, row.wasted
            assert counted == sums(route)
        total = reader.total()
        counted = total.attempts, total.input, total.output, total.cost, total.wasted
        assert counted == tuple(map(sum, zip(*(sums(last(told)) for told in every), strict=True)))


def leave(path: Path, route: Route, name: str) -> None:
    """In a journal that nobody holds."""
    aside = path.with_name(f"aside-{name}")
    journal = Journal(aside)
    journal.keep(route)
    (own,) = aside.parent.glob(f"{aside.name}.journal-*")
    (path.parent / f"{path.name}.journal-1-{name}").write_bytes(own.read_bytes())
    own.unlink()


def late(id: str) -> Route:
    route = made(id, an_attempt(seen=True), began=1.0, lingers=True)
    route.steps.append(an_attempt(usage=None, cost=None, outcome=End.UNDER_WAY))
    return route


def amend(route: Route) -> None:
    attempt = route.attempts[-1]
    attempt.usage, attempt.cost, attempt.outcome = Usage(3, 2), 5, End.ANSWERED
    route.lingers, route.revision = False, 1


def test_what_is_told_anew_keeps_its_number(tmp_path: Path) -> None:
    """So that who follows the ledger is not shown it twice."""
    ledger = Ledger(tmp_path / "ledger.db", days=30, megabytes=200, warn=print, now=lambda: 1.0)
    route = late("id-1")
    ledger.put(route)
    ledger.put(made("id-2", an_attempt(seen=True), began=1.0))
    assert ledger.flush(WAIT)
    reader = LedgerReader(tmp_path / "ledger.db")
    rows, cursor = reader.after(0)
    assert [(row.id, row.input) for row in rows] == [("id-1", 10), ("id-2", 10)]
    amend(route)
    ledger.put(route)
    assert ledger.close(WAIT)
    assert reader.after(cursor)[0] == []
    again = reader.requests()
    assert [(row.number, row.id, row.input) for row in again] == [(1, "id-1", 13), (2, "id-2", 10)]


def test_what_is_kept_is_what_was_so_then(tmp_path: Path) -> None:
    """The route goes on to change while it waits to be written."""
    ledger = Ledger(tmp_path / "ledger.db", days=30, megabytes=200, warn=print, now=lambda: 1.0)
    journal, route = Journal(tmp_path / "ledger.db"), late("id")
    kept = journal.keep(route)
    amend(route)
    assert (kept.route.revision, kept.route.attempts[-1].outcome) == (0, End.UNDER_WAY)
    journal.settle([kept])
    journal.close()
    assert ledger.close(WAIT)


@pytest.mark.parametrize("amended", [False, True])
def test_a_killed_process_leaves_the_last_that_was_told(tmp_path: Path, amended: bool) -> None:
    path = tmp_path / "ledger.db"
    code = f"""if True:
        import os, signal, sys
        from pathlib import Path
        from krouter.ledger import Ledger
        from tests.test_late_books import amend, late
        ledger, route = Ledger(Path(sys.argv[1]), days=9**5, megabytes=9, warn=print), late("id-1")
        ledger.put(route)
        if {amended}:
            amend(route)
            ledger.put(route)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=WAIT)
    reader = LedgerReader(path)
    (row,) = reader.requests()
    route = reader.route("id-1")
    assert (row.number, row.attempts, route.lingers) == (1, 2, not amended)
    assert (row.input, route.revision) == ((13, 1) if amended else (10, 0))


def test_what_came_of_whom_a_fusion_asked_can_be_asked_for(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", days=30, megabytes=200, warn=print, now=lambda: 1.0)
    route = late("id-1")
    route.voices.append(Voice("panel", "a/m", 1.0, 1, outcome=End.LATE))
    ledger.put(route)
    ledger.put(made("id-2", an_attempt(), began=1.0))
    assert ledger.close(WAIT)
    found = LedgerReader(tmp_path / "ledger.db").requests(Filter(status="late"))
    assert [row.id for row in found] == ["id-1"]


def test_a_revision_of_another_request_is_not_mixed_with_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", days=30, megabytes=200, warn=print, now=lambda: 1.0)
    ledger.put(made("id", an_attempt(), began=1.0))
    ledger.put(made("id", an_attempt(), an_attempt(), began=2.0, revision=1))
    assert ledger.close(WAIT)
    assert ledger.state.lost == 1
    assert len(LedgerReader(tmp_path / "ledger.db").route("id").attempts) == 1
