"""`/api/whatif` and `/api/faults`: what would become of a request now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from krouter.keys import add_key
from krouter.reporter import Figure, Report
from krouter.whatif import OFTEN, Dialect, Need
from tests.harness import Krouter, Start, provider_settings

SETTINGS, ENV = provider_settings("http://127.0.0.1:1", one="a", two="a b")
COMBOS: dict[str, Any] = {
    "text": {"models": [{"model": "one/m", "reads": []}, {"model": "two/n", "reads": ["image"]}]},
    "ring": {"strategy": "round-robin", "models": ["one/m", "two/n"]},
    "outer": {"models": ["one/m", "ring"]},
    "panel3": {"strategy": "fusion", "models": ["one/m", "two/n"], "judge": "two/j"},
}


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, combos=COMBOS, settings=SETTINGS, env=ENV) as krouter:
        yield krouter


def ask(krouter: Krouter, combo: str, **asked: Any) -> dict[str, Any]:
    reply = krouter.http.post("/api/whatif", json={"combo": combo, **asked})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def moves(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["entry"], each["outcome"]) for each in told["moves"]]


def test_an_image_goes_to_who_reads_it_and_on_when_that_fails(krouter: Krouter) -> None:
    told = ask(krouter, "text", needs=["image"], fail={"two/n": 529})
    assert [each["entry"] for each in told["route"]["plan"]] == ["two/n", "one/m"]
    assert "reads image" in told["route"]["plan"][0]["reason"]
    assert [each["listed"] for each in told["route"]["plan"]] == [2, 1]
    assert [each["status"] for each in told["moves"]] == [529, 529, None]
    overloaded = [("two/n", "overloaded")] * 2
    assert moves(told) == [*overloaded, ("one/m", "answered")]
    first, *_, last = told["moves"]
    assert first["why"].startswith("529 overloaded; ")
    assert first["why"].endswith("account and model locked for 2 s")
    assert (first["began"], first["ended"], last["began"]) == (0, 1, 2)
    assert last["boxes"] == [{"combo": "text", "entry": "one/m", "index": 0}]
    assert (told["reply"]["status"], told["reply"]["from"]) == (200, "one/m")
    assert (told["reply"]["whole"], told["waited"]) == (True, 4)


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses", "gemini"])
@pytest.mark.parametrize("stream", [False, True])
def test_every_dialect_whole_and_streamed(krouter: Krouter, dialect: str, stream: bool) -> None:
    told = ask(krouter, "text", dialect=dialect, stream=stream, fail={"one": "cut"})
    if stream:
        assert (told["reply"]["from"], told["reply"]["whole"]) == ("one/m", False)
    else:
        assert moves(told)[-1] == ("two/n", "answered")


def test_a_pasted_body_is_read_for_what_it_carries(krouter: Krouter) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    body = {"model": "else", "messages": [{"role": "user", "content": [image]}]}
    assert moves(ask(krouter, "text", body=body)) == [("two/n", "answered")]
    parts = [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]
    told = ask(krouter, "text", dialect="gemini", body={"contents": [{"parts": parts}]})
    assert moves(told) == [("two/n", "answered")]


def test_all_fail(krouter: Krouter) -> None:
    told = ask(krouter, "text", fail={"*": 500})
    assert told["reply"]["whole"] is False
    assert (told["reply"]["status"], told["reply"]["from"]) == (500, "")
    assert told["route"]["outcome"] == "server error"


def test_one_account_fails(krouter: Krouter) -> None:
    told = ask(krouter, "ring", fail={"one": 500, "two@a": 401})
    assert [(each["account"], each["outcome"]) for each in told["moves"]][-2:] == [
        ("a", "not signed in"),
        ("b", "answered"),
    ]


def test_a_nested_combo_and_a_fusion(krouter: Krouter) -> None:
    told = ask(krouter, "outer", fail={"one": 500})
    assert [box["combo"] for box in told["moves"][-1]["boxes"]] == ["outer", "ring"]
    told = ask(krouter, "panel3")
    assert [each["role"] for each in told["moves"]] == ["panel", "panel", "judge"]
    assert told["reply"]["from"] == "two/j"


def test_the_present_counts_and_nothing_comes_of_it(start: Start) -> None:
    krouter = start("one/x:status=401", "two/y", combos={"ring": COMBOS["ring"]})
    krouter.chat("daily")
    krouter.chat("ring")
    board = krouter.router.world.board
    before = (krouter.locks(), board.turns.counts(), len(krouter.router.routes))
    told = ask(krouter, "daily")
    assert [(each["outcome"], each["why"]) for each in told["moves"]] == [
        ("skipped", "locked (not signed in)"),
        ("skipped", "locked (not signed in)"),
        ("answered", "answered"),
    ]
    assert ask(krouter, "ring")["route"]["plan"][0]["entry"] == "two/n", "whose turn it is"
    assert (krouter.locks(), board.turns.counts(), len(krouter.router.routes)) == before
    krouter.clock.forward(3600)
    assert moves(ask(krouter, "daily"))[0] == ("one/x:status=401", "answered")


def test_quotas_of_the_present_order_entries(start: Start) -> None:
    krouter = start("one/m", "two/n")
    report = Report(figures=(Figure("n", 0.9, krouter.clock.now + 60),))
    krouter.served.house.pool.quota.note("two", "x", report, "reported")
    assert ask(krouter, "daily")["route"]["plan"][0]["entry"] == "two/n"


def test_who_has_no_account_is_taken_to_have_one(krouter: Krouter) -> None:
    told = ask(krouter, "daily")
    assert (told["reply"]["from"], told["assumed"]) == ("glm/glm-5.1", ["glm"])
    assert ask(krouter, "text")["assumed"] == []


def test_every_fault_of_the_list_can_be_chosen(krouter: Krouter) -> None:
    faults = krouter.http.get("/api/faults").json()
    assert {"529", "cut"} <= {each["name"] for each in faults}
    assert all(each["title"] for each in faults)
    assert [each["name"] for each in faults][: len(OFTEN)] == OFTEN
    asked: list[dict[str, Any]] = [{"stream": True}, {"needs": ["image"]}, {"needs": ["tools"]}]
    usual = [met(ask(krouter, "ring", **each)) for each in asked]
    for name in (each["name"] for each in faults):
        fail = {"one": name, "two": name}
        assert usual != [met(ask(krouter, "ring", **each, fail=fail)) for each in asked], name


def met(told: dict[str, Any]) -> list[Any]:
    """What a fault can be seen by."""
    return [told["reply"], told["moves"], told["waited"], told["first"], told["cost"]]


def test_all_that_can_be_chosen_is_told(krouter: Krouter) -> None:
    choices = krouter.http.get("/api/whatif").json()
    assert choices["faults"] == krouter.http.get("/api/faults").json()
    assert [each["name"] for each in choices["needs"]] == list(get_args(Need))
    assert [each["name"] for each in choices["dialects"]] == list(get_args(Dialect))
    assert all(each["title"] for listed in choices.values() for each in listed)


def test_a_pasted_body_may_be_as_large_as_a_request(krouter: Krouter) -> None:
    text = {"type": "text", "text": "x" * (2 << 20)}
    body = {"messages": [{"role": "user", "content": [text]}]}
    assert moves(ask(krouter, "text", body=body))[0][1] == "answered"


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({"combo": "textt"}, 404, "Did you mean 'text'"),
        ({"combo": ""}, 400, "$.combo"),
        ({}, 400, "$.combo: required field is missing"),
        ({"combo": "text", "needs": ["smell"]}, 400, "$.needs[0]"),
        ({"combo": "text", "fail": {"onne": 500}}, 400, "Did you mean 'one'?"),
        ({"combo": "text", "fail": {"one": "explode"}}, 400, "no fault 'explode'"),
        ({"combo": "text", "fail": {"one": 200}}, 400, "no fault '200'"),
        ({"combo": "text", "fail": {"one": [1]}}, 400, "$.fail.one"),
        ({"combo": "text", "dialect": "klingon"}, 400, "$.dialect"),
        ({"combo": "text", "body": []}, 400, "$.body"),
        ({"combo": "text", "bdoy": {}}, 400, "Did you mean 'body'?"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    krouter: Krouter, asked: Any, status: int, says: str
) -> None:
    reply = krouter.http.post("/api/whatif", json=asked)
    assert reply.status_code == status
    assert says in reply.json()["error"]["message"]


def test_a_body_that_krouter_refuses_is_told_as_it_would_be(krouter: Krouter) -> None:
    body = {"input": "hello", "previous_response_id": "x"}
    told = ask(krouter, "text", dialect="responses", body=body)
    assert told["reply"]["status"] == 400
    assert "previous_response_id" in told["reply"]["message"]
    assert told["moves"] == []


@pytest.mark.parametrize("call", ["GET /api/faults", "GET /api/whatif", "POST /api/whatif"])
def test_who_may(tmp_path: Path, call: str) -> None:
    key = add_key(tmp_path / "keys.json", "full", 0.0)
    method, path = call.split()
    body = {"combo": "demo"} if method == "POST" else None
    with Krouter(tmp_path) as krouter:
        for headers, status in (
            ({}, 401),
            ({"x-krouter-key": key, "sec-fetch-site": "cross-site"}, 403),
            ({"x-krouter-key": key}, 200),
        ):
            assert (
                krouter.http.request(method, path, json=body, headers=headers).status_code == status
            )
