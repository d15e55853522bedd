"""What is recorded, drawn and made anew of an entry is that of its own place, whatever else has its
name; and the outcome is that of what the caller got."""

from __future__ import annotations

import json
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from krouter.cli.drawing import draw
from krouter.cli.rebuilt import Rebuilt
from krouter.cli.root import cli
from krouter.errors import Failure
from krouter.ledger_reader import LedgerReader
from krouter.records import decode, encode
from krouter.route import Route
from tests.harness import Krouter, provider_settings
from tests.upstream import Upstream

PICTURE = "data:image/png;base64,iVBORw0KGgo="
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}]
TEXT = [{"role": "user", "content": "hello"}]
OVERLOADED, REFUSED = "one/z:status=529", "two/b:status=400;code=content_filter"
BLIND = "one/a:status=400;message=image%20input%20is%20not%20supported%20by%20this%20model"
COLD = {"temperature": 0}
COMBOS: dict[str, list[Any]] = {
    "dup": [
        {"model": "one/x", "reads": []},
        {"model": "two/y", "reads": []},
        {"model": "one/x", "reads": ["image"], "params": COLD},
    ],
    "acc": [
        {"model": OVERLOADED, "accounts": ["a", "b"]},
        {"model": OVERLOADED, "accounts": ["c", "d"], "params": COLD},
        "two/ok",
    ],
    "shared": ["inner", {"model": "one/q:status=529", "params": COLD}],
    "inner": ["one/q:status=529", "two/q:status=500"],
    "twice": ["shared", "inner", "two/ok"],
    "solo": ["two/ok"],
    "ret": [BLIND, REFUSED, "two/c"],
}


class Past:
    """One request of each combo, and the commands over what was recorded of them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ids: dict[str, str] = {}
        self.statuses: dict[str, int] = {}
        with Upstream() as upstream:
            settings, env = provider_settings(upstream.url, one="a b c d", two="a")
            combos: dict[str, Any] = {name: {"models": models} for name, models in COMBOS.items()}
            combos["ret"]["onRefusal"] = "return"
            with Krouter(home, combos=combos, settings=settings, env=env, ledger=True) as krouter:
                for name in [*COMBOS, "two/direct"]:
                    pictured = name in ("dup", "solo", "ret", "two/direct")
                    reply = krouter.chat(name, messages=IMAGE if pictured else TEXT)
                    self.ids[name] = reply.headers["x-krouter-route"]
                    self.statuses[name] = reply.status_code
                krouter.idle()
                assert krouter.served.house.ledger is not None
                assert krouter.served.house.ledger.flush(20)

    def route(self, name: str) -> Route:
        return LedgerReader(self.home / "ledger.db").route(self.ids[name])

    def drawn(self, name: str) -> str:
        return " ".join(self._run("route", self.ids[name]).split())

    def explained(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self._run("explain", "--route", self.ids[name], "--json")
        )
        return found

    def _run(self, *args: str) -> str:
        given = [*args, "--home", str(self.home)]
        result = CliRunner().invoke(cli, given, env={"COLUMNS": "200"}, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(tmp_path_factory.mktemp("past"))


def accounts(found: dict[str, Any]) -> list[list[str]]:
    return [[each["name"] for each in entry["accounts"]] for entry in found["entries"]]


def test_a_model_listed_twice_went_first_from_its_own_place(past: Past) -> None:
    drawn = past.drawn("dup")
    assert "1. one/x listed 3rd reads image 2. one/x listed 1st does not read image" in drawn
    assert (
        "one/x went first, though 3rd in the list: the latest message carries an image, which it"
        " reads; one/x (1st in the list) and two/y do not read it." in drawn
    )
    assert "place 1st in the order: reads image" in drawn
    assert "Not needed: one/x (2nd in the order), two/y." in drawn


def test_accounts_are_ranked_for_each_place(past: Past) -> None:
    route, drawn = past.route("acc"), past.drawn("acc")
    assert [*route.rankings] == [*route.accounts] == [f"1 {OVERLOADED}", f"2 {OVERLOADED}"]
    assert [(a.account, a.places) for a in route.attempts] == [
        ("a", (1,)), ("b", (1,)), ("c", (2,)), ("d", (2,)), ("a", (3,)),
    ]  # fmt: skip
    for name, place in (("a", "1st"), ("b", "1st"), ("c", "2nd"), ("d", "2nd")):
        nth = "1st" if name in "ac" else "2nd"
        assert (
            f"place {place} in the order: as listed │ │ account {name}, {nth} of 2, score" in drawn
        )
    assert accounts(past.explained("acc")) == [["a", "b"], ["c", "d"], ["a"]]


def test_an_entry_of_a_nested_combo_stands_there(past: Past) -> None:
    route, drawn = past.route("shared"), past.drawn("shared")
    assert route.entered == {"inner": (1,)}
    assert [step.places for step in route.skips] == [(2,)] * 4
    assert [step.places for step in route.attempts] == [(1, 1)] * 4 + [(1, 2)] + [(2,)] * 4
    assert drawn.count("place 1st inside inner: as listed") == 4
    assert drawn.count("place 2nd in the order: as listed") == 4
    entries = past.explained("shared")["entries"]
    assert [(e["combo"], e["skip"]) for e in entries] == [
        ("inner", None), ("inner", None), ("shared", None),
    ]  # fmt: skip


def test_a_combo_that_is_reached_twice_has_two_orders(past: Past) -> None:
    route, drawn = past.route("twice"), past.drawn("twice")
    assert route.entered == {"shared": (1,), "inner": (1, 1), "2 inner": (2,)}
    assert "ORDER INSIDE INNER, AT 2 OF THE ORDER" in drawn
    skips = [(skip.places, skip.reason) for skip in route.skips if skip.reason == "listed before"]
    assert skips == [((2, 1), "listed before"), ((2, 2), "listed before")]
    found = past.explained("twice")
    assert [entry["skip"] for entry in found["entries"]][3:5] == ["listed before"] * 2


@pytest.mark.parametrize("name", [*COMBOS, "two/direct"])
def test_each_record_gives_its_order_again(past: Past, name: str) -> None:
    assert past.explained(name)["same"] is True


@pytest.mark.parametrize("name", ["solo", "two/direct"])
def test_what_is_carried_is_known_where_there_is_no_choice(past: Past, name: str) -> None:
    assert past.route(name).needs == ("image",)
    assert "carries an image, in the latest message" in past.drawn(name)


def test_a_model_called_directly_is_asked_for_by_name(past: Past) -> None:
    assert "asked for by name; may read image" in past.drawn("two/direct")
    (entry,) = past.explained("two/direct")["entries"]
    assert entry["reason"] == "asked for by name; may read image"


def test_the_outcome_is_that_of_the_refusal_which_the_caller_got(past: Past) -> None:
    route = past.route("ret")
    assert [attempt.outcome for attempt in route.attempts] == [
        Failure.IMAGE_REJECTED, Failure.REFUSED, Failure.BAD_REQUEST,
    ]  # fmt: skip
    assert (past.statuses["ret"], route.status, route.outcome) == (400, 400, Failure.REFUSED)
    assert f"gets an error: 400 refused of {REFUSED}" in past.drawn("ret")


def test_a_record_without_places_is_still_read(past: Past) -> None:
    """Those of before they were recorded."""
    for name in ("dup", "solo", "shared"):
        raw, combos = encode(past.route(name))
        told = json.loads(raw)
        for each in (*told["steps"], *told["plan"], *chain(*told["nested"].values())):
            each.pop("places", None)
            each.pop("listed", None)
        del told["entered"]
        route = decode(json.dumps(told).encode(), combos.get)
        shown = draw(route, Console(width=200, file=StringIO()))
        assert "place " not in shown
        assert "Not needed: " not in shown or name == "dup"
        assert Rebuilt(route).as_json()["same"] is True
