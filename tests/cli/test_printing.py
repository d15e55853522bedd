"""What becomes of the commands where their output cannot be written or an argument is no text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from krouter.cli.output import LONGEST_CELL
from krouter.dialects.base import Usage
from krouter.ledger import Ledger
from krouter.plan import Standing
from krouter.route import End
from tests.cli.conftest import Home
from tests.cli.pasts import BEGAN, attempt, begun, over, screenshot

KROUTER = f"{sys.executable} -c 'from krouter.cli import main; main()'"
ID = f"{1:016x}"
PRINT = ["log", "log --json", "usage", "usage --csv", f"route {ID}", f"explain --route {ID}"]
HELP = ["--help", "route --help", "--version"]
LONG = "p/" + "x" * 298


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    long = begun(2, LONG, {LONG: Standing()}, combo="direct")
    attempt(long, LONG, outcome=End.ANSWERED, usage=Usage(5, 5))
    ledger = Ledger(home / "ledger.db", days=9, megabytes=9, warn=print, now=lambda: BEGAN)
    for route in (screenshot(), over(long, 200)):
        ledger.put(route)
    assert ledger.close(10)
    return home


def shell(home: Path, command: str, output: str) -> tuple[int, str]:
    """Exit code and stderr of a command whose stdout goes where `output` says."""
    place = "" if command in HELP else f" --home '{home}'"
    script = f"{KROUTER} {command}{place} {output}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", [*PRINT, *HELP, "log -f"])
def test_output_that_cannot_be_written_is_told(past: Path, command: str) -> None:
    code, error = shell(past, command, "> /dev/full")
    assert (code, error) == (1, f"Error: the output cannot be written: {os.strerror(28)}.\n")


@pytest.mark.parametrize("output", [">&-", "| exec 0<&-"])
@pytest.mark.parametrize("command", [*PRINT, *HELP])
def test_nobody_who_reads_is_no_failure(past: Path, command: str, output: str) -> None:
    assert shell(past, command, output) == (0, "")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["route", b"\xff\xfe"], r"'ID': '\xff\xfe' is not UTF-8."),
        (["log", "--combo", b"a\xff"], r"'--combo': 'a\xff' is not UTF-8."),
        (["usage", "--combo", b"\xff"], r"'--combo': '\xff' is not UTF-8."),
        (["explain", b"\xff"], r"'[NAME]': '\xff' is not UTF-8."),
        (["keys", "add", b"\xff"], r"'NAME': '\xff' is not UTF-8."),
        (["log", "-n", "9" * 23], "is not in the range 0<=x<=1000000000."),
        (["log", "--model", "*" * 60_000], "'--model': a pattern has at most 300 characters."),
        (["usage", "--model", "*" * 301], "'--model': a pattern has at most 300 characters."),
    ],
)
def test_an_argument_that_cannot_be_is_exit_code_2(
    home: Home, args: list[str | bytes], says: str
) -> None:
    result = home.run(*map(os.fsdecode, args))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_a_file_may_have_any_name(tmp_path: Path, home: Home) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(odd)
    assert home.run("paths", "--combos", odd).exit_code == 0


def test_a_long_name_pushes_nothing_aside(past: Path, home: Home) -> None:
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        if (past / name).exists():
            (home.path / name).write_bytes((past / name).read_bytes())
    short = f"{LONG[: LONGEST_CELL - 3]}..."
    for args in (("log",), ("usage",), ("explain", "--route", f"{2:016x}")):
        shown = home.run(*args).stdout
        assert short in shown
        assert LONG not in shown or args[0] == "explain"
        table = [line for line in shown.splitlines() if short in line]
        assert max(map(len, table)) < 220
    assert LONG in home.run("log", "--json").stdout
    assert LONG in home.run("usage", "--json").stdout
