"""The commands about past requests, over a ledger in the home."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from krouter.cli import recorded
from krouter.cli.log import Lines, follow_log
from krouter.dialects.base import Usage
from krouter.errors import Failure
from krouter.ledger import Ledger
from krouter.ledger_reader import Filter
from krouter.paths import resolve_paths
from krouter.route import End, Placed, Ranked, Route, Skip, Skipped
from tests.cli.conftest import Home
from tests.cli.pasts import (
    BEGAN,
    CC,
    DAILY,
    DOLLAR,
    DS,
    GLM,
    HOSTILE,
    TEXT_ONLY,
    attempt,
    begun,
    failed,
    fused,
    hostile,
    mixed,
    over,
    screenshot,
)

COMMAND = [sys.executable, "-c", "from krouter.cli import main; main()"]
SCREENSHOT, FAILED, MIXED, HOSTILE_ID, FUSED = (f"{number:016x}" for number in range(1, 6))


def record(home: Path, *routes: Route) -> None:
    ledger = Ledger(home / "ledger.db", days=9, megabytes=9, warn=print, now=lambda: BEGAN)
    for route in routes:
        ledger.put(route)
    assert ledger.close(10)


@pytest.fixture(autouse=True)
def _here_and_now(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Noon of the day, in UTC, and no terminal."""
    monkeypatch.setattr(recorded, "now", lambda: BEGAN + 3600)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def past(home: Home) -> Home:
    record(home.path, screenshot(), failed(), mixed(), hostile())
    return home


def listed(home: Home, *args: str) -> list[str]:
    """The last digits of the ids."""
    result = home.run("log", "--json", *args)
    assert result.exit_code == 0, result.output
    return [json.loads(line)["id"][-1] for line in result.stdout.splitlines()]


# krouter route


def test_a_route_is_drawn(past: Home) -> None:
    result = past.run("route", SCREENSHOT)
    assert result.exit_code == 0
    assert result.stdout == (Path(__file__).parent / "golden/screenshot.utf-8.txt").read_text()


def test_a_part_of_the_id_is_enough(past: Home) -> None:
    record(past.path, begun(0xABCD << 32, "daily", DAILY))
    assert past.json("route", "0000abcd")["asked"] == "daily"


def test_a_route_as_json(past: Home) -> None:
    assert past.json("route", MIXED) == json.loads(json.dumps(mixed().as_json()))
    result = past.run("route", HOSTILE_ID, "--json")
    assert json.loads(result.stdout)["asked"] == HOSTILE
    assert all(line.isprintable() for line in result.stdout.split("\n"))


@pytest.mark.parametrize("args", [("route", "feed"), ("explain", "--route", "feed")])
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_an_id_that_is_not_there(past: Home, args: tuple[str, ...], as_json: Any) -> None:
    result = past.run(*args, *as_json)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No request 'feed' is in" in result.stderr
    assert "`krouter log` lists the requests." in result.stderr


def test_an_id_that_several_have(past: Home) -> None:
    result = past.run("route", "0000")
    assert result.exit_code == 1
    assert f"Several requests begin with '0000': {SCREENSHOT}, {FAILED}" in result.stderr


# krouter log


def test_the_columns_fit_all_rows_from_the_first(home: Home) -> None:
    record(home.path, begun(1, "short", DAILY), begun(2, "a-name-that-is-much-longer", DAILY))
    heading, *rows = home.run("log").stdout.splitlines()
    for column in ("SERVED BY", "OUTCOME", "TRIES"):
        at = heading.index(column)
        assert all(row[at - 1] == " " != row[at] for row in rows), column


LOG = """\
TIME                 ID                   ASKED         SERVED BY               OUTCOME \
            TRIES  IN       OUT     COST        TOOK     KEY
2027-01-15 08:00:01  0000000000000001     daily         cc/claude-sonnet-4-6    200 answer\
ed        1      1,532    88      $0.0034     1 s
2027-01-15 08:00:02  0000000000000002     daily         -                       502 empty \
reply     3      20       1       unknown     3 s
"""


def test_a_line_a_request(past: Home) -> None:
    assert past.run("log", "--combo", "daily").stdout == LOG


def test_the_newest_last(past: Home) -> None:
    assert listed(past) == ["1", "2", "3", "4"]
    assert listed(past, "-n", "2") == ["3", "4"]
    assert listed(past, "-n", "0") == []


@pytest.mark.parametrize(
    ("args", "ids"),
    [
        (("--combo", "work"), "3"),
        (("--model", "glm/*"), "23"),
        (("--model", CC), "12"),
        (("--status", "ok"), "134"),
        (("--status", "failed"), "2"),
        (("--status", "402"), "2"),
        (("--status", "Rate Limited"), "2"),
        (("--status", "no account"), "3"),
        (("--since", "59m58s"), "234"),
        (("--since", "1h"), "1234"),
        (("--since", "30m"), ""),
        (("--since", "2027-01-15T08:00:03"), "34"),
        (("--since", "2027-01-15T09:00:03+01:00"), "34"),
        (("--since", "2027-01-15"), "1234"),
        (("--since", "2027-01-16"), ""),
        (("--since", "99999999999d"), "1234"),
        (("--combo", "daily", "--status", "failed"), "2"),
    ],
)
def test_a_filter(past: Home, args: tuple[str, ...], ids: str) -> None:
    assert listed(past, *args) == list(ids)


def test_since_lists_all_there_are(home: Home) -> None:
    record(home.path, *(begun(number, "daily", DAILY) for number in range(30)))
    assert len(listed(home)) == 20
    assert len(listed(home, "--since", "2h")) == 30
    assert len(listed(home, "--since", "2h", "-n", "7")) == 7


def test_nothing_that_fits_is_said(past: Home) -> None:
    result = past.run("log", "--combo", "nobodys")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "No request that is recorded fits.\n"


def test_what_others_wrote_steers_no_terminal(past: Home) -> None:
    for args in (("log",), ("log", "--json"), ("usage",), ("usage", "--csv", "--by", "account")):
        shown = past.run(*args).stdout
        assert all(line.isprintable() for line in shown.split("\n"))
        assert "[red]" in shown or args[0] == "usage"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--since", "yesterday"), "'yesterday' is no time: write 30m, 2h, 7d"),
        (("--since", "2h later"), "is no time"),
        (("--since", "-2h"), "is no time"),
        (("--since", "2027-13-01"), "is no time"),
        (("--status", "fial"), "write ok, failed, 529 or 'rate limited'. Did you mean 'failed'?"),
        (("--status", "5290"), "'5290' is none"),
        (("-n", "-1"), "-1 is not in the range"),
    ],
)
def test_a_wrong_filter_is_exit_code_2(past: Home, args: tuple[str, ...], says: str) -> None:
    result = past.run("log", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


# krouter log -f


class Reader:
    """Whoever reads what `follow_log` prints: between the polls it acts, then it goes."""

    def __init__(self, home: Home, capsys: pytest.CaptureFixture[str], *acts: Any) -> None:
        self._acts = list(acts)
        self._capsys = capsys
        self.seen: list[str] = []
        self.errors: list[str] = []
        paths = resolve_paths(home.path, env={}, cwd=home.path)
        follow_log(paths, Filter(status="ok"), 1, Lines(), self._goes_on)

    def _goes_on(self) -> bool:
        out, err = self._capsys.readouterr()
        lines = out.splitlines()
        self.seen.append("".join(line.split()[2][-1] for line in lines if "TIME" not in line))
        self.errors += err.splitlines()
        if self._acts:
            self._acts.pop(0)()
        return bool(self._acts)


def test_what_comes_is_shown_once(past: Home, capsys: pytest.CaptureFixture[str]) -> None:
    def comes(*numbers: int) -> None:
        routes = [begun(number, "daily", DAILY) for number in numbers]
        for route in routes:
            attempt(route, GLM, outcome=End.ANSWERED)
        record(past.path, *(over(route, 200) for route in routes), failed())

    reader = Reader(past, capsys, lambda: comes(5), lambda: None, lambda: comes(6, 7), int)
    assert reader.seen == ["4", "5", "", "67"]
    assert reader.errors == []


def test_it_waits_for_a_ledger(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    file = home.path / "ledger.db"
    reader = Reader(
        home,
        capsys,
        lambda: None,
        lambda: record(home.path, screenshot(), mixed()),
        lambda: file.write_bytes(b"x" * 5000),
        lambda: None,
        lambda: (file.unlink(), record(home.path, hostile())),
        int,
    )
    assert reader.seen == ["", "", "13", "", "", "4"]
    assert [error.partition(": ")[0] for error in reader.errors] == [
        "No request has been recorded yet",
        f"{file} cannot be read",
    ]


def test_a_ledger_that_is_replaced_at_once_is_followed_from_its_start(
    past: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    """With as many requests in it as there were before, or more."""

    def anew() -> None:
        for file in past.path.glob("ledger.db*"):
            file.unlink()
        routes = [begun(number, "daily", DAILY) for number in (5, 6, 7, 8, 9)]
        for route in routes:
            attempt(route, GLM, outcome=End.ANSWERED)
        record(past.path, *(over(route, 200) for route in routes))

    reader = Reader(past, capsys, anew, int)
    assert reader.seen == ["4", "56789"]
    assert reader.errors == []


def followed(home: Home) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "log", "-f", "--home", str(home.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **home.env},
    )


def test_an_interrupt_ends_it_cleanly(past: Home) -> None:
    with followed(past) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        assert lines[0].startswith("TIME")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_reader_that_goes_ends_it_though_nothing_comes(past: Home) -> None:
    with followed(past) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [process.stdout.readline() for _ in range(5)]
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


# krouter usage


@pytest.fixture
def spent(home: Home) -> Home:
    """One request a day: priced, of unknown price, and one that wasted money before it answered."""
    day = 86_400
    known, unknown, wasteful = (begun(day * n, "daily", DAILY) for n in (0, 1, 2))
    attempt(known, GLM, "a", usage=Usage(100, 10, cached=60), cost=DOLLAR // 80,
            outcome=End.ANSWERED)  # fmt: skip
    attempt(unknown, DS, "b", usage=Usage(7, 3), outcome=End.ANSWERED)
    attempt(wasteful, GLM, "a", usage=Usage(50, 5), cost=DOLLAR // 100, row=10,
            outcome=Failure.SERVER_ERROR)  # fmt: skip
    attempt(wasteful, DS, "b", usage=Usage(50, 5), outcome=Failure.EMPTY_REPLY, row=15)
    attempt(wasteful, CC, "c", usage=Usage(1_000, 20), cost=DOLLAR, outcome=End.ANSWERED)
    record(home.path, *(over(route, 200) for route in (known, unknown, wasteful)))
    return home


USAGE = """\
MODEL                 REQUESTS  ATTEMPTS  IN     CACHED  OUT  COST                  WASTED
cc/claude-sonnet-4-6  1         1         1,000  0       20   $1.0000               0
glm/glm-5.1           2         2         150    60      15   $0.0225               1
ds/deepseek-v4-pro    2         2         57     0       8    unknown               1
total                 3         5         1,207  60      43   $1.0225 + 2 unpriced  2

Waste: 2 attempts that the caller never saw, 100 in, 10 out; $0.0100 + 1 unpriced.
"""


def test_usage_by_model(spent: Home) -> None:
    assert spent.run("usage").stdout == USAGE


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("model", [CC, GLM, DS]),
        ("combo", ["daily"]),
        ("account", ["cc/c", "glm/a", "ds/b"]),
        ("day", ["2027-01-15", "2027-01-16", "2027-01-17"]),
    ],
)
def test_usage_by_each(spent: Home, by: str, keys: list[str]) -> None:
    found = spent.json("usage", "--by", by)
    assert (found["by"], [row["key"] for row in found["rows"]]) == (by, keys)
    assert found["total"]["cost"] == 1.0225
    table = list(csv.DictReader(io.StringIO(spent.run("usage", "--by", by, "--csv").stdout)))
    assert [row[by] for row in table] == keys
    assert sum(float(row["cost"] or 0) for row in table) == pytest.approx(1.0225)


def test_what_is_not_known_is_not_0(spent: Home) -> None:
    rows = {row["key"]: row for row in spent.json("usage")["rows"]}
    assert rows[DS] == {
        "key": DS, "requests": 2, "attempts": 2, "input": 57, "output": 8, "cached": 0,
        "cache_write": 0, "cost": None, "unpriced": 2, "wasted": 1, "wasted_input": 50,
        "wasted_output": 5, "wasted_cost": None, "wasted_unpriced": 1,
    }  # fmt: skip
    line = spent.run("usage", "--csv").stdout.splitlines()[3]
    assert line == f"{DS},2,2,57,8,0,0,,2,1,50,5,,1"


@pytest.mark.parametrize(
    ("args", "requests"),
    [
        ((), 3),
        (("--since", "2027-01-16"), 2),
        (("--since", "2027-01-16", "--until", "2027-01-17"), 1),
        (("--until", "2027-01-16"), 1),
        (("--combo", "other"), 0),
        (("--model", "cc/*"), 1),
    ],
)
def test_usage_of_some(spent: Home, args: tuple[str, ...], requests: int) -> None:
    assert spent.json("usage", *args)["total"]["requests"] == requests


def test_usage_of_nothing(spent: Home) -> None:
    result = spent.run("usage", "--combo", "other")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "No request that is recorded fits.\n"
    assert spent.run("usage", "--combo", "other", "--csv").stdout.count("\n") == 1


def test_an_answer_without_tokens_has_an_unknown_cost(home: Home) -> None:
    silent, refused = begun(1, "daily", DAILY), begun(2, "other", DAILY)
    attempt(silent, GLM, outcome=End.ANSWERED)
    attempt(refused, DS, outcome=Failure.RATE_LIMITED, row=8, status=429)
    record(home.path, over(silent, 200), over(refused, 429))
    costs = {row["key"]: row["cost"] for row in home.json("usage")["rows"]}
    assert costs == {GLM: None, DS: 0}
    lines = home.run("usage", "--by", "combo").stdout.splitlines()
    assert [line.split()[6] for line in lines[1:3]] == ["unknown", "-"]
    assert lines[-1] == "Waste: 1 attempt that the caller never saw; none told any tokens."
    assert [line.split()[-3] for line in home.run("log").stdout.splitlines()[1:]] == [
        "unknown", "-",
    ]  # fmt: skip


def test_csv_and_json_exclude_each_other(spent: Home) -> None:
    assert spent.run("usage", "--csv", "--json").exit_code == 2


# krouter explain --route


@pytest.mark.parametrize("route", [SCREENSHOT, FAILED, MIXED, HOSTILE_ID])
def test_the_order_is_made_anew_from_the_record(past: Home, route: str) -> None:
    found = past.json("explain", "--route", route)
    assert (found["same"], found["differences"]) == (True, [])
    assert [entry["place"] for entry in found["entries"]] == [*range(1, len(found["entries"]) + 1)]


EXPLAINED = """\
daily: the combo daily (fallback); chat, streamed, with image; route 0000000000000001
Capacity auto-switch: image → cc/claude-sonnet-4-6

#  MODEL                 COMBO  LANE    ACCOUNTS  WHY
1  cc/claude-sonnet-4-6  daily  native  default   as listed; reads image
2  glm/glm-5.1           daily                    as listed; does not read image
3  ds/deepseek-v4-pro    daily                    as listed; does not read image

Made anew from the record; it is the order that was recorded.
"""


def test_it_is_printed_as_explain_does(past: Home) -> None:
    assert past.run("explain", "--route", SCREENSHOT).stdout == EXPLAINED


def test_todays_files_do_not_count(past: Home) -> None:
    past.combo("daily", "not even JSON")
    past.settings("[servr]\n")
    assert past.run("explain", "--route", SCREENSHOT).stdout == EXPLAINED


def test_accounts_and_nested_combos_are_told(past: Home) -> None:
    found = past.json("explain", "--route", MIXED)
    entries = {entry["model"]: entry for entry in found["entries"]}
    assert [*entries] == ["ds/deepseek-v4-flash", GLM, "gone/model", DS]
    flash = entries["ds/deepseek-v4-flash"]
    assert flash["combo"] == "backup"
    assert [(each["name"], each["fault"]) for each in flash["accounts"]] == [
        ("old", "locked (account barred)"),
        ("main", None),
        ("spare", None),
    ]
    assert (entries["gone/model"]["skip"], entries["gone/model"]["detail"]) == (
        "no account",
        "set GONE_API_KEY",
    )


def test_a_fusion_is_told_with_whom_it_asked_beside_its_panel(home: Home) -> None:
    record(home.path, fused())
    found = home.json("explain", "--route", FUSED)
    assert (found["same"], found["differences"], found["strategy"]) == (True, [], "fusion")
    assert [(e["place"], e["role"], e["model"], e["combo"]) for e in found["entries"]] == [
        (1, "panel", GLM, "wise"),
        (2, "panel", "a/x", "pair"),
        (3, "panel", "b/y", "pair"),
        (0, "again", "a/x", "pair"),
        (4, "panel", DS, "wise"),
        (0, "judge", CC, "wise"),
    ]
    judge = found["entries"][-1]
    assert [account["name"] for account in judge["accounts"]] == ["main", "spare"]
    assert judge["reason"] == "the judge"
    assert home.json("route", FUSED) == json.loads(json.dumps(fused().as_json()))


def test_an_entry_that_is_listed_twice_was_tried_where_it_stood_first(home: Home) -> None:
    route = begun(1, "daily", [(GLM, TEXT_ONLY), (GLM, TEXT_ONLY), (DS, TEXT_ONLY)])
    attempt(route, GLM, "a", outcome=Failure.OVERLOADED, row=9, status=529)
    route.steps.append(Skipped(GLM, "", Skip.ALREADY_TRIED, places=(2,)))
    attempt(route, DS, "b", outcome=End.ANSWERED)
    record(home.path, over(route, 200))
    found = home.json("explain", "--route", SCREENSHOT)["entries"]
    names = [[account["name"] for account in entry["accounts"]] for entry in found]
    assert names == [["a"], [], ["b"]]
    assert [entry["skip"] for entry in found] == [None, "listed before", None]


def test_another_order_than_the_recorded_one_is_exit_code_1(home: Home) -> None:
    route, ranked = screenshot(), mixed()
    route.plan[0] = Placed(GLM, "as listed")
    entry = next(iter(ranked.accounts))
    ranked.accounts[entry].reverse()
    record(home.path, route, ranked)
    result = home.run("explain", "--route", SCREENSHOT)
    assert result.exit_code == 1
    assert "it is NOT what was recorded" in result.stdout
    assert f"recorded, the order:\n  {GLM}: as listed\n" in result.stdout
    assert f"rebuilt, the order:\n  {CC}: as listed; reads image\n" in result.stdout
    found = home.json("explain", "--route", MIXED, code=1)
    assert [each["what"] for each in found["differences"]] == [f"the accounts of {entry}"]
    assert found["same"] is False


def test_a_request_that_got_no_order(home: Home) -> None:
    route = Route(SCREENSHOT, BEGAN, "chat", "nobody", False, outcome=End.UNKNOWN_MODEL, status=404)
    record(home.path, route)
    result = home.run("explain", "--route", SCREENSHOT)
    assert result.exit_code == 0
    assert "No order was made for it: unknown model." in result.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("daily",), "NAME and --route"),
        (("--image",), "--image and --route"),
        (("--video", "--stream"), "--video and --route"),
        (("--stream",), "--stream and --route"),
        (("--dialect", "chat"), "--dialect and --route"),
        (("--file", __file__), "--file and --route"),
    ],
)
def test_a_past_request_has_its_own_attachments(
    past: Home, args: tuple[str, ...], says: str
) -> None:
    result = past.run("explain", "--route", SCREENSHOT, *args)
    assert result.exit_code == 2
    assert f"{says} exclude each other" in result.stderr


def test_explain_needs_a_name_or_a_route(home: Home) -> None:
    result = home.run("explain")
    assert result.exit_code == 2
    assert "Missing argument 'NAME', or --route ID" in result.stderr


# No ledger, or none that can be read

ALL = [("log",), ("usage",), ("usage", "--csv"), ("route", "abcd"), ("explain", "--route", "abcd")]


@pytest.mark.parametrize("args", ALL)
def test_no_ledger_yet(home: Home, args: tuple[str, ...]) -> None:
    result = home.run(*args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No request has been recorded yet" in result.stderr
    assert "krouter serve records what it answers" in result.stderr
    assert not (home.path / "ledger.db").exists()


@pytest.mark.parametrize("args", ALL)
def test_a_corrupt_ledger_is_exit_code_3(home: Home, args: tuple[str, ...]) -> None:
    (home.path / "ledger.db").write_bytes(b"not a database " * 1000)
    result = home.run(*args)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "it is corrupt" in result.stderr


def test_accounts_are_compared_with_their_scores(home: Home) -> None:
    route = mixed()
    (entry,) = route.accounts
    first, *rest = route.accounts[entry]
    route.accounts[entry] = [Ranked(first.account, 1.0, first.reason), *rest]
    record(home.path, route)
    assert not home.json("explain", "--route", MIXED, code=1)["same"]
