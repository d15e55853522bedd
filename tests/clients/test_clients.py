"""What `make clients` is made of, without any client."""

from __future__ import annotations

import json
import re
import tomllib
from itertools import product
from pathlib import Path

import pytest

from krouter.combostore import ComboStore
from tests.clients import book
from tests.clients.__main__ import COLUMNS, DOCUMENT, title_of
from tests.clients.cases import CASES, LANES, TRANSLATED, combo_name, write_home
from tests.clients.clients import CLIENTS
from tests.clients.features import FEATURES
from tests.clients.install import PINS, version
from tests.clients.run import Outcome, cell

TEXT = "# Title\n\n<!-- results -->\n<!-- /results -->\n\nEnd.\n"
ORDER = ["a 1", "b 2"]


def test_a_row_takes_its_place_and_others_stay() -> None:
    columns = ("client", "provider", "429")
    second = book.update(TEXT, "results", columns, {("b 2", "native"): ["ok (2)"]}, ORDER)
    both = book.update(second, "results", columns, {("a 1", "native"): ["exit code 1"]}, ORDER)
    assert both == (
        "# Title\n\n<!-- results -->\n| client | provider | 429 |\n| --- | --- | --- |\n"
        "| a 1 | native | exit code 1 |\n| b 2 | native | ok (2) |\n<!-- /results -->\n\nEnd.\n"
    )


def test_rows_of_another_version_go() -> None:
    columns = ("client", "provider", "429")
    old = book.update(TEXT, "results", columns, {("a 1", "native"): ["ok (2)"]}, ORDER)
    new = book.update(old, "results", columns, {("a 2", "native"): ["ok (2)"]}, ["a 2"])
    assert list(book.read_rows(new, "results")) == [("a 2", "native")]


@pytest.mark.parametrize(
    ("outcome", "asked", "told"),
    [
        (Outcome("", ""), 2, "ok (2)"),
        (Outcome("", ""), 3, "3 requests instead of 2"),
        (Outcome("exit code 1", ""), 2, "exit code 1"),
    ],
)
def test_a_cell(outcome: Outcome, asked: int, told: str) -> None:
    assert cell(outcome, asked, 2) == told


@pytest.mark.parametrize("dialect", TRANSLATED)
def test_the_combos_of_the_cases_are_sound(tmp_path: Path, dialect: str) -> None:
    write_home(tmp_path, dialect, "http://127.0.0.1:9")
    providers = tomllib.loads((tmp_path / "krouter.toml").read_text())["provider"]
    store = ComboStore([tmp_path / "combos"])
    assert not store.problems
    assert len(store.combos) == len(LANES) * len(CASES)
    for lane, case in product(LANES, CASES):
        entries = store.combos[combo_name(lane, case)].models
        spoken = [providers[entry.model.partition("/")[0]]["speaks"] for entry in entries]
        own, other = [dialect], [TRANSLATED[dialect]]
        if lane == "translated":
            own, other = other, own
        healthy = other if CASES[case].changes else own
        assert spoken == ([own, healthy] if CASES[case].fault else [own])


def test_every_client_is_pinned() -> None:
    for client in CLIENTS.values():
        assert re.fullmatch(r"\d[\w.]+", version(client.place, client.package))
    assert FEATURES.keys() <= CLIENTS.keys()


def test_pins_name_no_registry() -> None:
    locked = json.loads((PINS / "package-lock.json").read_text())["packages"]
    assert len(locked) > 10
    assert not [name for name, fields in locked.items() if "resolved" in fields]
    for name in ("sdks.txt", "aider.txt"):
        assert "://" not in (PINS / name).read_text()


def test_the_table_holds_every_client_at_its_pinned_version() -> None:
    rows = book.read_rows(DOCUMENT.read_text(), "results")
    assert list(rows) == [(title_of(name), lane) for name in CLIENTS for lane in LANES]
    assert {len(cells) for cells in rows.values()} == {len(COLUMNS["results"]) - 2}
