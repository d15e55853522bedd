"""What is known of a combo's entries when a request comes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from krouter.combos import Combo, Medium, parse_combo
from krouter.errors import Failure, Lock, Scope, Verdict
from krouter.load import House
from krouter.paths import resolve_paths
from krouter.reporter import Figure, Report
from krouter.standing import plan_for, snapshot
from krouter.wire import HttpWire
from krouter.world import Ask
from tests.harness import Clock

IMAGE: frozenset[Medium] = frozenset(("image",))
SETTINGS = """
[provider.one]
base_url = "http://127.0.0.1:1"
[provider.two]
base_url = "http://127.0.0.1:1"
[[account]]
provider = "one"
name = "a"
[[account]]
provider = "one"
name = "b"
[[account]]
provider = "two"
[reads]
"two/sees" = ["image"]
"one/*" = []
"""


def combo(*models: Any, **fields: Any) -> Combo:
    given = {"models": list(models), **fields}
    return parse_combo(json.dumps(given).encode(), "daily.json", "daily")


@pytest.fixture
def house(tmp_path: Path) -> House:
    (tmp_path / "krouter.toml").write_text(SETTINGS)
    return House(resolve_paths(home=tmp_path, env={}, cwd=tmp_path), {}, HttpWire(), now=Clock())


def left(house: House, asked: Combo, **ask: Any) -> list[float | None]:
    return [seen.left for seen in snapshot(asked, house.router.world, Ask("chat", **ask)).seen]


def tells(house: House, account: str, model: str, share: float) -> None:
    house.pool.quota.note("one", account, Report((Figure(model, share),)), "reported")


def locks(house: House, account: str, model: str) -> None:
    board = house.router.world.board
    lock = Lock(Scope.ACCOUNT_MODEL, 60.0)
    verdict = Verdict(Failure.RATE_LIMITED, 8, True, True, lock, 429, "", None, False)
    ticket = board.begin("one", account, model)
    board.fail(ticket, verdict)
    board.end(ticket)


def test_an_entrys_figure_is_the_best_of_the_accounts_it_may_use(house: House) -> None:
    assert left(house, combo("one/m", "two/m")) == [None, None]
    tells(house, "a", "m", 0.2)
    tells(house, "b", "m", 0.9)
    each = [{"model": "one/m", "accounts": [name]} for name in "ab"]
    assert left(house, combo("one/m", *each, "one/m2", "two/m")) == [0.9, 0.2, 0.9, None, None]


def test_the_figure_of_a_locked_account_does_not_count(house: House) -> None:
    tells(house, "a", "m", 0.2)
    tells(house, "b", "m", 0.9)
    locks(house, "b", "m")
    assert left(house, combo("one/m")) == [0.2]
    locks(house, "a", "m")
    assert left(house, combo("one/m")) == [None]


def test_a_nested_combo_has_no_figure_and_reads_what_any_of_its_entries_reads(
    house: House,
) -> None:
    tells(house, "a", "m", 0.5)
    world = replace(house.router.world, combos={"inner": combo("one/m", "two/sees")})
    plan = plan_for(combo("one/m", "combo/inner"), world, Ask("chat", needs=IMAGE))
    assert [(step.entry.model, step.reason) for step in plan.steps] == [
        ("combo/inner", "as listed; reads image"),
        ("one/m", "as listed; does not read image; 50% of its quota left"),
    ]


def test_what_is_not_needed_is_not_looked_up(house: House) -> None:
    found = snapshot(combo("one/m", "two/sees"), house.router.world, Ask("chat"))
    assert [dict(seen.reads) for seen in found.seen] == [{}, {}]


def test_a_turn_is_taken_only_by_what_rotates_and_can_be_run(house: House) -> None:
    taken: list[str] = []

    def turn(name: str) -> int:
        taken.append(name)
        return 7

    for asked in (combo("one/m", "two/m"), combo("one/m", strategy="round-robin")):
        assert snapshot(asked, house.router.world, Ask("chat", turn=turn)).turn == 0
    assert taken == []
    robin = combo("one/m", "two/m", strategy="round-robin")
    assert snapshot(robin, house.router.world, Ask("chat", turn=turn)).turn == 7
    assert taken == ["daily"]
