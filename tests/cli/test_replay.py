"""`krouter replay` over ledgers that were written by a rehearsed krouter."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from krouter.cli import recorded
from krouter.ledger import Ledger
from krouter.load import House
from krouter.paths import resolve_paths
from krouter.rehearsal import Rehearsal, Sent, Turn
from krouter.route import Route
from krouter.virtual import EPOCH
from krouter.wire import HttpWire
from tests.cli.conftest import Home
from tests.cli.pasts import CC, DS, GLM

LIST = (GLM, DS, CC)
ALIASES = {"deepseek": "ds"}
READS = {"image": (CC,)}
PAGE = Path(__file__).parents[2] / "docs" / "trust.md"

FAULTS = ("529", "500", "400")

Request = Mapping[str, Any]
"""`needs`, `stream`, and `fail`: the faults of entries."""


@pytest.fixture(autouse=True)
def _here_and_now(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A day after the first request, in UTC, and no terminal."""
    monkeypatch.setattr(recorded, "now", lambda: EPOCH + 86_400)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def past(home: Home, requests: Sequence[Request], combo: str = "daily") -> list[str]:
    """Records these requests, a minute apart, so that nothing is locked any more; their ids."""
    kept: list[Route] = []
    paths = resolve_paths(home=home.path, env={}, cwd=home.path)
    world = House(paths, {}, HttpWire(), ledger=False).router.world

    def director(sent: Sent) -> Turn:
        assert isinstance(sent.note, Mapping)
        alias = {"anthropic": "cc", "zai": "glm", "deepseek": "ds"}.get(
            sent.provider, sent.provider
        )
        fault = sent.note.get("fail", {}).get(f"{alias}/{sent.model}", "")
        return Turn(fault, wait=1.2, took=0.6, input=1_800, output=240)

    with Rehearsal(world, director) as rehearsal:
        rehearsal.router.books.append(kept.append)
        for request in requests:
            how = {key: value for key, value in request.items() if key not in ("fail", "name")}
            rehearsal.ask(request.get("name", combo), note=request, **how)
            rehearsal.wait(400.0)
    ledger = Ledger(home.path / "ledger.db", days=9, megabytes=99, warn=print, now=lambda: EPOCH)
    for number, route in enumerate(kept, 1):
        route.id = f"1a3187c7{number:03}abcdefgh"
        ledger.put(route)
    assert ledger.close(60)
    return [route.id for route in kept]


def daily(home: Home, *models: str, folder: str = "combos") -> Path:
    (home.path / folder).mkdir(exist_ok=True)
    path = home.path / folder / "daily.json"
    path.write_text(json.dumps({"models": list(models)}))
    return path


def trail(models: Sequence[str], request: Request) -> list[tuple[str, str]]:
    """Whom a walk tries, and how that ends, by nothing but what the request says."""
    needs = request.get("needs", ())
    able = [m for m in models if not needs or m in READS["image"]]
    order = [*able, *(m for m in models if m not in able)]
    found = []
    for model in order:
        fault = request.get("fail", {}).get(model, "")
        found.append((model, fault))
        if not fault:
            break
    return found


def random_requests(chance: Random, number: int) -> list[Request]:
    return [
        {
            "needs": ["image"] if chance.random() < 0.25 else [],
            "stream": chance.random() < 0.5,
            "fail": {
                m: chance.choice(["529", "500", "400"]) for m in LIST if chance.random() < 0.4
            },
        }
        for _ in range(number)
    ]


@pytest.mark.parametrize("pair", [(0, 1), (1, 2), (0, 2)])
def test_swapping_two_entries_gives_exactly_the_rows_it_must(
    home: Home, pair: tuple[int, int]
) -> None:
    daily(home, *LIST)
    requests = random_requests(Random(pair[0] * 3 + pair[1]), 40)
    ids = past(home, requests)
    models = list(LIST)
    models[pair[0]], models[pair[1]] = models[pair[1]], models[pair[0]]
    daily(home, *models, folder="new")
    found = home.json("replay", "--combos", str(home.path / "new"))
    expected = {}
    for route, request in zip(ids, requests, strict=True):
        then, now = trail(LIST, request), trail(models, request)
        known = {model for model, _ in then}
        now = [(m, fault if m in known else "") for m, fault in now]
        end = next((at for at, (_, fault) in enumerate(now, 1) if not fault), len(now))
        if then != now[:end]:
            expected[route] = [model for model, _ in now[:end]]
    rows = {row["id"]: [a["entry"] for a in row["now"]["attempts"]] for row in found["rows"]}
    assert rows == expected
    assert 0 < len(expected) < len(ids)
    assert (found["requests"], found["moved"], found["bare"]) == (40, len(expected), 0)
    assert sum(row["now"]["assumed"] for row in found["rows"]) == found["assumed"]


def test_an_unchanged_folder_or_file_gives_nothing(home: Home) -> None:
    file = daily(home, *LIST)
    past(home, random_requests(Random(7), 12))
    for new in (home.path / "combos", file):
        result = home.run("replay", "--combos", str(new))
        assert result.exit_code == 0
        assert result.stdout == "Nothing would have gone elsewhere: 12 requests replayed.\n"


def test_what_no_order_follows_from_is_no_change(home: Home) -> None:
    file = daily(home, *LIST)
    past(home, [{}])
    file.write_text(json.dumps({"description": "new", "models": [{"model": m} for m in LIST]}))
    assert home.json("replay", "--combos", str(file))["rows"] == []


def test_a_file_changes_one_combo_and_a_folder_all(home: Home) -> None:
    daily(home, *LIST)
    home.combo("other", {"models": [GLM]})
    _, second = past(home, [{}, {"name": "other"}])
    new = daily(home, *LIST, folder="new")
    assert home.json("replay", "--combos", str(new))["rows"] == []
    found = home.json("replay", "--combos", str(new.parent))
    assert [(row["id"], row["now"]["status"]) for row in found["rows"]] == [(second, 404)]
    assert (found["moved"], found["gone"]) == (1, 1)
    shown = home.run("replay", "--combos", str(new.parent))
    assert shown.stdout.endswith("Not in the new combos, so that callers get 404: other.\n")


def test_filters_choose_the_requests(home: Home) -> None:
    daily(home, *LIST)
    home.combo("other", {"models": [GLM, DS]})
    first, second = past(home, [{}, {"name": "other"}])
    new = home.path / "new"
    daily(home, DS, GLM, CC, folder="new")
    (new / "other.json").write_text(json.dumps({"models": [DS, GLM]}))

    def rows(*args: str) -> list[str]:
        return [row["id"] for row in home.json("replay", "--combos", str(new), *args)["rows"]]

    assert rows() == [first, second]
    assert rows("--combo", "other") == [second]
    assert rows("--since", "1h") == []
    assert rows("--until", "2027-01-15T08:01") == [first]
    assert home.run("replay", "--combos", str(new), "--since", "1h").exit_code == 0


def test_what_an_entry_that_was_not_tried_takes_and_costs(home: Home) -> None:
    daily(home, *LIST)
    past(home, [{"stream": True}, {"stream": True, "fail": {GLM: "529"}}])
    new = daily(home, DS, GLM, CC, folder="new")
    first, second = home.json("replay", "--combos", str(new))["rows"]
    dearer = second["then"]["cost"]
    assert (first["now"]["assumed"], second["now"]["assumed"]) == (True, False)
    assert (first["now"]["wait"], first["now"]["cost"]) == (1.2, dearer)
    assert (second["then"]["wait"], second["now"]["wait"]) == (2.4, 1.2)


def test_a_model_that_nobody_has_waited_for_has_no_known_wait(home: Home) -> None:
    daily(home, *LIST)
    past(home, [{}])
    new = daily(home, "ds/deepseek-v4-flash", *LIST, folder="new")
    (row,) = home.json("replay", "--combos", str(new))["rows"]
    assert row["now"]["wait"] is None
    shown = home.run("replay", "--combos", str(new)).stdout
    assert "1.8 s → ?" in shown
    assert "Without an account here, and assumed to answer: deepseek." in shown


def test_a_record_that_cannot_be_read_is_told(home: Home) -> None:
    daily(home, *LIST)
    (first,) = past(home, [{}])
    new = daily(home, DS, GLM, folder="new")
    with sqlite3.connect(home.path / "ledger.db") as db:
        db.execute("UPDATE records SET record = '{}'")
    db.close()
    found = home.json("replay", "--combos", str(new))
    assert (found["rows"], found["bare"]) == ([], 1)
    assert [each["id"] for each in found["untold"]] == [first]
    assert f"Not replayed: {first}: " in home.run("replay", "--combos", str(new)).stdout


@pytest.mark.parametrize(
    ("content", "code"),
    [("{", 3), ('{"models": ["gone"]}', 3), ('{"models": ["glm/a"], "modles": 1}', 3), (None, 3)],
)
def test_combos_that_cannot_be_used(home: Home, content: str | None, code: int) -> None:
    daily(home, *LIST)
    past(home, [{}])
    folder = home.path / "new"
    folder.mkdir()
    if content is not None:
        (folder / "daily.json").write_text(content)
    for new in (folder, folder / "daily.json") if content is not None else (folder / "x.json",):
        result = home.run("replay", "--combos", str(new))
        assert (result.exit_code, result.stdout) == (code, "")
        assert result.stderr


def test_without_a_ledger_or_new_combos(home: Home) -> None:
    file = daily(home, *LIST)
    assert home.run("replay", "--combos", str(file)).exit_code == 1
    assert home.run("replay").exit_code == 2
    past(home, [{}])
    assert home.run("replay", "--combos", str(file), "--until", "2020-01-01").stderr == (
        "No request that is recorded fits.\n"
    )


SHOWN: Sequence[Request] = (
    {},
    {"fail": {GLM: "529"}},
    {"needs": ["image"]},
    {"fail": {GLM: "429-reset", DS: "500"}},
    {"stream": True},
)
"""The requests of the page."""


def test_the_page_shows_what_is_printed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    daily(home, *LIST)
    past(home, SHOWN)
    monkeypatch.chdir(home.path)
    daily(home, DS, GLM, CC, folder="new")
    section = PAGE.read_text().split("## krouter replay")[1]
    (block,) = re.findall(r"```console\n\$ (krouter replay .*?)```\n", section, re.DOTALL)
    command, shown = block.split("\n", 1)
    result = home.run(*command.split()[1:], env={"GLM_API_KEY": "x", "DEEPSEEK_API_KEY": "x"})
    assert result.stdout == shown
