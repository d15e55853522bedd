"""What `make clients` is made of, without any client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from itertools import product
from pathlib import Path

import pytest

from krouter.combostore import ComboStore
from tests.clients import book
from tests.clients.__main__ import COLUMNS, DOCUMENT, title_of
from tests.clients.cases import CASES, LANES, TRANSLATED, combo_name, write_home
from tests.clients.clients import CLIENTS
from tests.clients.door import Visit
from tests.clients.features import FEATURES
from tests.clients.install import PINS, version
from tests.clients.run import Outcome, Served, cell

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


GOOD, WELL = Visit("POST", "/v1/responses", 200), Outcome("", "")


@pytest.mark.parametrize(
    ("outcome", "visits", "needed", "told"),
    [
        (WELL, [GOOD, GOOD], 2, "ok (2)"),
        (WELL, [GOOD, GOOD, GOOD], 3, "ok (3)"),
        (WELL, [GOOD, GOOD, GOOD], 2, "3 requests instead of 2"),
        (WELL, [GOOD, GOOD], 3, "2 requests instead of 3"),
        (WELL, [], 0, "0 requests instead of 2"),
        (WELL, [GOOD], 1, "1 requests instead of 2"),
        (WELL, [GOOD, Visit("POST", "/v1/x?y=1", 502), GOOD], 3, "POST /v1/x: 502"),
        (WELL, [GOOD, Visit("GET", "/v1/models"), GOOD], 3, "GET /v1/models: no answer"),
        (Outcome("exit code 1", ""), [GOOD, GOOD], 2, "exit code 1"),
    ],
)
def test_a_cell(outcome: Outcome, visits: list[Visit], needed: int, told: str) -> None:
    assert cell(outcome, visits, needed) == told


def test_a_probe_is_no_request_of_the_task_once_a_run() -> None:
    probe, client = Visit("HEAD", "/api/hello", 401), CLIENTS["claude-code"]
    assert client.count([probe, GOOD, GOOD]) == [GOOD, GOOD]
    assert client.count([probe, GOOD, probe]) == [GOOD, probe]
    assert client.count([probe, GOOD, probe], runs=2) == [GOOD]
    assert CLIENTS["codex"].count([probe]) == [probe]


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


@pytest.mark.parametrize("table", COLUMNS)
def test_every_cell_of_the_tables_is_well(table: str) -> None:
    rows = book.read_rows(DOCUMENT.read_text(), table)
    assert rows
    assert not {key: cells for key, cells in rows.items() if not all(map(book.is_well, cells))}


def test_the_table_of_features_holds_what_is_tried_out() -> None:
    rows = book.read_rows(DOCUMENT.read_text(), "features")
    assert list(rows) == [(title_of(n), f.title) for n, found in FEATURES.items() for f in found]


@pytest.mark.parametrize("cell", ["", "ok-ish", "-1", "okay", "exit code 1"])
def test_a_cell_that_only_begins_well_is_not_well(cell: str) -> None:
    assert not book.is_well(cell)


def test_a_krouter_that_has_ended_is_not_taken_for_a_client_s_fault() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        served = Served("http://127.0.0.1:9", process)
        served.check()
        process.communicate(b"\n")
        with pytest.raises(RuntimeError, match="ended under the client, with exit code 0"):
            served.check()
