"""What was put is there after whatever end, and once."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from krouter.ledger import Ledger
from krouter.ledger_journal import MOST_BYTES, SEGMENT_BYTES, Journal, has_left_over
from krouter.ledger_reader import LedgerReader
from krouter.router import new_route_id
from tests.ledger_routes import an_attempt, made

WAIT = 30.0

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no flock")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "ledger.db"


def opened(path: Path, **more: Any) -> tuple[Ledger, SimpleQueue[str]]:
    said: SimpleQueue[str] = SimpleQueue()
    given: dict[str, Any] = {"days": 30, "megabytes": 200, "retry": lambda _: WAIT, **more}
    return Ledger(path, warn=said.put, **given), said


def found(path: Path) -> list[str]:
    return [row.id for row in LedgerReader(path).requests(limit=10**6)]


def journals(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*.journal-*"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def run(path: Path, end: str, number: int = 50) -> None:
    """A process that puts `number` routes and ends at once, without a close."""
    code = f"""if True:
        import os, signal, sys
        from pathlib import Path
        from krouter.ledger import Ledger
        from tests.ledger_routes import an_attempt, made
        ledger = Ledger(Path(sys.argv[1]), days=30, megabytes=200, warn=print)
        for number in range({number}):
            ledger.put(made(f"{{number:08}}", an_attempt(seen=True)))
        {end}
    """
    subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=WAIT)


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), 15)", "os._exit(0)", ""]
)
def test_nothing_that_was_put_is_lost_whatever_ends_the_process(path: Path, end: str) -> None:
    run(path, end)
    assert found(path) == [f"{number:08}" for number in range(50)]
    assert journals(path) == []
    assert len(LedgerReader(path).route("00000049").attempts) == 1


def test_a_process_takes_in_what_others_have_left(path: Path) -> None:
    run(path, "os.kill(os.getpid(), signal.SIGKILL)", number=3)
    ledger, said = opened(path)
    ledger.put(made("new"))
    assert ledger.close(WAIT)
    with closing(sqlite3.connect(path)) as db:
        ids = {id for (id,) in db.execute("SELECT id FROM requests")}
    assert ids == {"00000000", "00000001", "00000002", "new"}
    assert said.empty()


def test_a_start_alone_takes_it_in(path: Path) -> None:
    ledger, _ = opened(path)
    ledger.begin()
    assert not path.exists()
    run(path, "os.kill(os.getpid(), signal.SIGKILL)", number=3)
    ledger.begin()
    assert ledger.close(WAIT)
    assert journals(path) == []
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT COUNT(*) FROM requests").fetchone() == (3,)


def test_what_waits_at_the_end_is_told_and_taken_in_later(path: Path) -> None:
    ledger, said = opened(path)
    ledger.put(made("first"))
    assert ledger.flush(WAIT)
    with locked(path):
        ledger.put(made("second"))
        assert "another process holds it locked" in said.get(timeout=WAIT)
        assert not ledger.close(WAIT)
        assert said.get_nowait().startswith(f"1 requests are not in the ledger {path} yet; they")
        (journal,) = journals(path)
        left = journal.read_bytes()
    (path.parent / "ledger.db.journal-1-left").write_bytes(left)
    assert found(path) == ["first", "second"]


def test_a_line_that_was_cut_off_is_left_out(path: Path) -> None:
    journal = Journal(path)
    journal.keep(made("first"))
    journal.keep(made("second"))
    (own,) = journals(path)
    (path.parent / "ledger.db.journal-1-left").write_bytes(b"\0\n" + own.read_bytes()[:-9])
    assert found(path) == ["first"]
    assert journals(path) == [own]


def test_a_journal_of_a_newer_krouter_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    left = path.parent / "ledger.db.journal-1-left"
    left.write_bytes(msgspec.json.encode([99, {}, {}]) + b"\n")
    ledger, said = opened(path)
    ledger.put(made("id"))
    assert ledger.close(WAIT)
    assert (found(path), left.exists(), said.empty()) == (["id"], True, True)


def test_it_holds_only_what_is_not_written(path: Path) -> None:
    ledger, _ = opened(path)
    ledger.put(made("first"))
    assert ledger.flush(WAIT)
    (own,) = journals(path)
    assert (own.stat().st_size, stat.S_IMODE(own.stat().st_mode)) == (0, 0o600)
    assert not has_left_over(path)
    with locked(path):
        ledger.put(made("second"))
        assert own.stat().st_size
    assert ledger.close(WAIT)
    assert journals(path) == []


def test_it_is_bounded(path: Path) -> None:
    journal = Journal(path)
    large = SEGMENT_BYTES // 2
    kept = [journal.keep(made(str(n), request="x" * large)) for n in range(MOST_BYTES // large + 9)]
    assert MOST_BYTES < sum(each.stat().st_size for each in journals(path)) < MOST_BYTES * 1.1
    assert kept[-1].segment is None
    assert all(each.encoded is None for each in kept)
    journal.settle(kept)
    assert sum(each.stat().st_size for each in journals(path)) == 0
    journal.close()
    assert journals(path) == []


def test_a_folder_that_cannot_be_leaves_all_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ledger, said = opened(tmp_path / "file" / "ledger.db")
    ledger.put(made("id"))
    assert "mend its folder, or name another" in said.get(timeout=WAIT)
    assert not ledger.close(WAIT)
    assert said.get_nowait().startswith("1 requests are lost: the ledger")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_workers_that_end_at_once_lose_nothing(path: Path) -> None:
    ledger, said = opened(path)
    ledger.put(made("parent"))
    children = []
    for number in range(8):
        child = os.fork()
        if not child:
            ledger.put(made(f"child-{number}"))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    assert ledger.close(WAIT)
    ids = {row.id for row in LedgerReader(path).requests(limit=99)}
    assert ids == {"parent", *(f"child-{number}" for number in range(8))}
    assert (said.empty(), journals(path)) == (True, [])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forks_in_the_midst_of_writing_lose_nothing(path: Path) -> None:
    """The old process writes at each fork, and the new ones write at the same time."""
    ledger, said = opened(path, gather=0.0)
    children, ids = [], set()
    for number in range(24):
        for each in range(8):
            ledger.put(made(f"parent-{number}-{each}", an_attempt()))
        child = os.fork()
        if not child:
            for each in range(4):
                ledger.put(made(f"child-{number}-{each}", an_attempt()))
                time.sleep(0)  # its own thread may begin
            if number % 2:
                ledger.flush(WAIT)
            os._exit(0)
        children.append(child)
        ids |= {f"parent-{number}-{each}" for each in range(8)}
        ids |= {f"child-{number}-{each}" for each in range(4)}
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 24
    assert ledger.close(WAIT)
    assert ids - set(found(path)) == set()
    assert (said.empty(), journals(path)) == (True, [])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_forked_while_the_file_is_in_use_leaves_it_alone(path: Path) -> None:
    using, go_on = threading.Event(), threading.Event()

    def now() -> float:
        using.set()
        assert go_on.wait(WAIT)
        return time.time()

    ledger, said = opened(path, now=now, fork_wait=0.0)
    ledger.put(made("parent"))
    assert using.wait(WAIT)
    child = os.fork()
    if not child:
        ledger.put(made("child"))
        told = "was in use as this process was forked" in ledger.state.problem
        os._exit(0 if told and not ledger.flush(0.1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    go_on.set()
    assert ledger.close(WAIT)
    assert (sorted(found(path)), said.empty(), journals(path)) == (["child", "parent"], True, [])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_leaves_what_waits_to_the_old_one(path: Path) -> None:
    ledger, _ = opened(path)
    ledger.put(made("first"))
    assert ledger.flush(WAIT)
    with locked(path):
        ledger.put(made("second"))
        child = os.fork()
        if not child:
            os._exit(ledger.state.waiting)
        assert os.waitpid(child, 0)[1] == 0
    assert ledger.close(WAIT)
    assert found(path) == ["first", "second"]


# What else belongs to a file


def test_another_request_of_the_same_id_is_counted(path: Path) -> None:
    ledger, said = opened(path)
    same = made("id", an_attempt())
    for route in (same, same, made("id", asked="other")):
        ledger.put(route)
    assert ledger.close(WAIT)
    assert ledger.state.lost == 1
    assert "another one has its id id already" in said.get_nowait()


def test_ids_sort_by_time_and_are_not_given_twice() -> None:
    ids = [new_route_id() for _ in range(20_000)]
    assert len(set(ids)) == len(ids)
    assert [id[:11] for id in ids] == sorted(id[:11] for id in ids)
    assert all(re.fullmatch("[0-9a-f]{11}[a-z2-7]{8}", id) for id in ids)


def test_what_a_link_leads_to_may_be_read_by_its_owner_only(tmp_path: Path) -> None:
    path, target = tmp_path / "ledger.db", tmp_path / "elsewhere.db"
    path.symlink_to(target)
    ledger, _ = opened(path)
    ledger.put(made("id"))
    assert ledger.flush(WAIT)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert ledger.close(WAIT)
    assert found(path) == ["id"]


def test_a_ledger_begun_anew_is_read_from_its_start_however_long_it_is(path: Path) -> None:
    ledger, _ = opened(path)
    ledger.put(made("first"))
    assert ledger.flush(WAIT)
    rows, cursor = LedgerReader(path).after(0)
    assert LedgerReader(path).after(cursor) == ([], cursor)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
    for number in range(3):
        ledger.put(made(f"later-{number}"))
    assert ledger.close(WAIT)
    rows, cursor = LedgerReader(path).after(cursor)
    assert [row.id for row in rows] == ["later-0", "later-1", "later-2"]
    assert LedgerReader(path).after(cursor) == ([], cursor)
