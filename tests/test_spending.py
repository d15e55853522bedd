from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from krouter.spending import KEPT_SECONDS, Spending, Spent, read_spent
from tests.harness import Clock

START = 1_800_000_000 // 3600 * 3600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "spending.db"


def test_what_is_spent_is_summed_by_key_and_hour(path: Path) -> None:
    clock = Clock(START + 5.0)
    spending = Spending(path, clock)
    assert spending.since("a", START) == (0, 0)
    assert not path.exists()
    spending.add("a", Spent(5, 0))
    spending.add("a", Spent(2, 1))
    spending.add("b", Spent(100, 0))
    clock.forward(3600)
    spending.add("a", Spent(10, 0))
    assert spending.since("a", START) == (17, 1)
    assert spending.since("a", START + 3600) == (10, 0)
    assert spending.since("b", START) == (100, 0)
    assert read_spent(path, "a", START) == (17, 1)
    assert read_spent(path, "nobody", START) == (0, 0)


def test_only_the_owner_may_read_it(path: Path) -> None:
    Spending(path, Clock()).add("a", Spent(1, 0))
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


CHILD = """
import sys, time
from pathlib import Path
from krouter.spending import Spending, Spent
spending = Spending(Path(sys.argv[1]), lambda: float(sys.argv[2]))
print(flush=True)
while True:
    spending.add("a", Spent(1, 0))
    print(flush=True)
"""


def test_a_process_that_is_killed_loses_nothing(path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(path), str(START + 1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        begun = len(child.stdout.read(50))
        child.send_signal(signal.SIGKILL)
        told = begun - 1 + len(child.stdout.read())
    spent = Spending(path, Clock(START + 9.0)).since("a", START).cost
    assert told <= spent <= told + 1


def test_two_processes_see_what_each_has_spent(path: Path) -> None:
    clock = Clock(START + 1.0)
    one, two = Spending(path, clock), Spending(path, clock)
    one.add("a", Spent(5, 0))
    assert two.since("a", START) == (5, 0)
    one.add("a", Spent(5, 0))
    two.add("a", Spent(1, 0))
    clock.forward(1)
    assert one.since("a", START) == two.since("a", START) == (11, 0)


def test_while_another_process_holds_it_sums_are_kept(path: Path) -> None:
    clock, lines = Clock(START + 1.0), list[str]()
    spending = Spending(path, clock, lines.append)
    spending.add("a", Spent(5, 0))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        spending.add("a", Spent(2, 0))
        spending.add("a", Spent(2, 0))
        assert spending.since("a", START) == (9, 0)
        assert "locked" in spending.problem
        assert len(lines) == 1
    clock.forward(2)
    assert spending.since("a", START) == (9, 0)
    assert read_spent(path, "a", START) == (9, 0)
    assert spending.problem == ""
    assert "written again" in lines[1]


def test_what_is_kept_is_written_at_the_end(path: Path) -> None:
    spending = Spending(path, Clock(START + 1.0))
    spending.add("a", Spent(5, 0))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        spending.add("a", Spent(2, 0))
    spending.close()
    assert read_spent(path, "a", START) == (7, 0)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    clock = Clock(START + 1.0)
    spending = Spending(tmp_path / "file" / "spending.db", clock)
    spending.add("a", Spent(5, 0))
    assert spending.since("a", START) == (5, 0)
    assert "file/spending.db: " in spending.problem
    os.unlink(tmp_path / "file")
    clock.forward(2)
    assert spending.since("a", START) == (5, 0)
    assert read_spent(tmp_path / "file" / "spending.db", "a", START) == (5, 0)


def test_a_full_disk(path: Path) -> None:
    clock = Clock(START + 1.0)
    spending = Spending(path, clock)
    spending.add("a", Spent(5, 0))
    with closing(sqlite3.connect(path)) as other:
        other.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON spent BEGIN SELECT RAISE(FAIL, 'full'); END"
        )
        other.commit()
        spending.add("a", Spent(2, 0))
        assert spending.since("a", START) == (7, 0)
        assert "full" in spending.problem
        other.execute("DROP TRIGGER full")
        other.commit()
    clock.forward(2)
    assert spending.since("a", START) == (7, 0)
    assert spending.problem == ""


@pytest.mark.parametrize(
    "garbage", [b"no database at all, but text " * 99, b"SQLite format 3\0" * 99]
)
def test_a_corrupt_file_gives_way_to_a_new_one(path: Path, garbage: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(garbage)
    clock, lines = Clock(START + 1.0), list[str]()
    spending = Spending(path, clock, lines.append)
    assert read_spent(path, "a", START) is None
    assert spending.since("a", START) == (0, 0)
    assert "corrupt" in lines[0]
    spending.add("a", Spent(3, 0))
    clock.forward(2)
    assert spending.since("a", START) == (3, 0)
    assert read_spent(path, "a", START) == (3, 0)
    (aside,) = path.parent.glob("spending.db.corrupt-*")
    assert aside.read_bytes() == garbage


def test_what_is_known_outlives_a_file_that_becomes_corrupt(path: Path) -> None:
    clock = Clock(START + 1.0)
    spending = Spending(path, clock)
    spending.add("a", Spent(3, 0))
    assert spending.since("a", START) == (3, 0)
    for tail in ("-wal", "-shm"):
        Path(f"{path}{tail}").unlink()
    path.unlink()
    path.write_bytes(b"no database " * 999)
    clock.forward(2)
    assert spending.since("a", START) == (3, 0)
    clock.forward(2)
    assert spending.since("a", START) == (3, 0)
    assert read_spent(path, "a", START) == (3, 0)


def test_old_hours_go(path: Path) -> None:
    clock = Clock(START + 1.0)
    spending = Spending(path, clock)
    spending.add("a", Spent(3, 0))
    spending.close()
    clock.forward(KEPT_SECONDS + 3600)
    spending.add("b", Spent(1, 0))
    assert read_spent(path, "a", 0) == (0, 0)


def test_a_sum_has_no_end(path: Path) -> None:
    spending = Spending(path, Clock(START + 1.0))
    for _ in range(3):
        spending.add("a", Spent(2**62, 0))
    spending.add("a", Spent(2**80, 0))
    assert spending.problem == ""
    assert spending.since("a", START).cost >= 2**62


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_file_that_others_may_read_is_mended(path: Path) -> None:
    spending = Spending(path, Clock())
    spending.add("a", Spent(1, 0))  # which keeps all three open
    assert len(list(path.parent.iterdir())) == 3
    for file in path.parent.iterdir():
        file.chmod(0o666)
    Spending(path, Clock())
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


@pytest.mark.parametrize("column", ["cost", "unpriced", "hour"])
@pytest.mark.parametrize("value", ["abc", -5, 1.5, b"x"])
def test_what_is_no_sum_is_trouble_with_the_file(path: Path, column: str, value: object) -> None:
    if column == "hour" and not isinstance(value, str | bytes):
        value = "long ago"  # numbers of long ago are forgotten
    clock, told = Clock(START + 1.0), list[str]()
    Spending(path, clock).add("a", Spent(5, 0))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE spent SET {column} = ?", (value,))
    spending = Spending(path, clock, told.append)
    for round in range(1, 4):
        spending.since("a", START)
        spending.add("a", Spent(7, 0))
        assert spending.since("a", START).cost >= 7 * round
        assert "no sum" in spending.problem
        clock.forward(2)
    assert len(told) == 1
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM spent")
    clock.forward(2)
    assert spending.since("a", START) == (21, 0)
    assert not spending.problem
    assert read_spent(path, "a", START) == (21, 0)


@pytest.mark.parametrize("value", ["abc", -5, 1.5])
def test_a_sum_that_cannot_be_read_is_unknown(path: Path, value: object) -> None:
    Spending(path, Clock(START + 1.0)).add("a", Spent(5, 0))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE spent SET cost = ?", (value,))
    assert read_spent(path, "a", START) is None


def test_a_sum_that_is_spoiled_while_the_file_is_open(path: Path) -> None:
    clock = Clock(START + 1.0)
    spending = Spending(path, clock)
    spending.add("a", Spent(5, 0))
    assert spending.since("a", START) == (5, 0)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE spent SET cost = 'abc'")
    clock.forward(2)
    assert spending.since("a", START) == (5, 0)
    assert "no sum" in spending.problem


@pytest.mark.skipif(os.name != "posix", reason="pipes")
@pytest.mark.parametrize("tail", ["", "-wal", "-shm"])
def test_a_pipe_is_not_waited_for(path: Path, tail: str) -> None:
    spending = Spending(path, Clock(START + 1.0))
    path.parent.mkdir()
    if tail:
        path.touch()
    os.mkfifo(f"{path}{tail}")
    spending.add("a", Spent(5, 0))
    assert spending.since("a", START) == (5, 0)
    assert "no regular file" in spending.problem
    assert read_spent(path, "a", START) is None
