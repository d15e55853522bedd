"""Past requests over changed combos: nothing comes of no change, and what comes of one is what the
real router does."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest

from krouter.board import Turns
from krouter.combos import Combo
from krouter.replay import Bare, Replayed
from krouter.route import Route
from tests.replays import (
    MODELS,
    combo,
    rehearse,
    replayed,
    some_combos,
    some_faults,
    some_requests,
)

LIST = ("one/a", "two/a", "three/a")
DAILY = combo("daily", *LIST)


def asked(replay: Replayed) -> list[tuple[str, str]]:
    return [(call.entry, call.account) for call in replay.now.calls]


@pytest.mark.parametrize("block", range(12))
def test_no_change_changes_nothing(block: int) -> None:
    """Nested combos, fusions, rotations, locks, crowds at narrow accounts, images, cut streams,
    callers who leave: whatever has happened, it happens again."""
    for seed in range(block * 10, block * 10 + 10):
        chance = Random(seed)
        combos, faults = some_combos(chance), some_faults(chance)
        rounds = [some_requests(chance) for _ in range(chance.randint(1, 3))]
        for route in rehearse(combos, faults, *rounds, seed=seed)[0]:
            found = replayed(route, combos)
            assert not found.moved, (seed, route.id)
            assert [call.was for call in found.now.calls if call.assumed] == []
            assert found.now.cost == found.then.cost


def distinct(chance: Random, strategy: str) -> Combo:
    return combo("daily", *chance.sample(MODELS, chance.randint(2, 4)), strategy=strategy)


def changed(chance: Random, old: Combo) -> Combo:
    """Swapped, shortened, longer or shuffled."""
    models = list(old.models)
    match chance.randrange(4):
        case 0:
            models[0], models[1] = models[1], models[0]
        case 1:
            models.pop(chance.randrange(len(models)))
        case 2:
            left = [name for name in MODELS if name not in {each.model for each in models}]
            models.insert(chance.randint(0, len(models)), combo("x", left[0]).models[0])
        case 3:
            chance.shuffle(models)
    return old.model_copy(update={"models": tuple(models)})


@pytest.mark.parametrize("block", range(10))
def test_a_changed_list_is_walked_as_the_real_router_walks_it(block: int) -> None:
    """Whoever the record has nothing of answers in both."""
    for seed in range(block * 15, block * 15 + 15):
        chance = Random(seed)
        old = distinct(chance, chance.choice(["fallback", "priority", "round-robin"]))
        faults, new = some_faults(chance), changed(chance, old)
        faults = {name: fault for name, fault in faults.items() if fault not in ORDERED}
        request = {key: v for key, v in some_requests(chance)[0].items() if key != "hang_up"}
        (route,), _ = rehearse([old], faults, [request])
        found = replayed(route, [new], [old])
        (real,), _ = rehearse([new], met(route, faults), [request])
        assert asked(found) == [(each.entry, each.account) for each in real.attempts], seed
        assert (found.now.served, found.now.status) == (real.served, real.status), seed
        assert found.now.outcome == real.outcome, seed


ORDERED = frozenset(("empty", "feature", "stall"))
"""Faults of which a record does not tell how they would have gone at another place."""


def met(route: Route, faults: Mapping[str, str]) -> dict[str, str]:
    """The faults that somebody met, and those of accounts that are of no use to other models."""
    found = {}
    for attempt in route.attempts:
        fault = faults.get(f"{attempt.entry} {attempt.account}") or faults.get(attempt.entry)
        if fault is None:
            continue
        found[f"{attempt.entry} {attempt.account}"] = fault
        for model in MODELS if attempt.locked == "account" else ():
            if model.startswith(f"{attempt.provider}/"):
                found.setdefault(f"{model} {attempt.account}", fault)
    return found


def one(faults: Mapping[str, str], old: Combo = DAILY, **how: Any) -> Route:
    (route,), _ = rehearse([old], faults, [{"name": old.name, **how}])
    return route


def swapped(first: int, second: int, of: Combo = DAILY) -> Combo:
    models = list(of.models)
    models[first], models[second] = models[second], models[first]
    return of.model_copy(update={"models": tuple(models)})


def test_an_entry_that_was_tried_ends_as_it_ended_and_one_that_was_not_answers() -> None:
    route = one({"one/a": "529", "two/a": "500"})
    found = replayed(route, [swapped(1, 2)])
    outcomes = [(call.entry, call.outcome, call.assumed) for call in found.now.calls]
    assert outcomes == [("one/a", "overloaded", False), ("three/a", "answered", False)]
    assert (found.then.wait, found.now.wait) == (4.0, 3.0)
    found = replayed(one({}), [swapped(0, 1)])
    outcomes = [(call.entry, call.outcome, call.assumed) for call in found.now.calls]
    assert outcomes == [("two/a", "answered", True)]
    assert found.now.calls[0].usage == one({}).attempts[0].usage


def test_a_request_that_ends_before_the_swapped_entries_does_not_move() -> None:
    assert not replayed(one({}), [swapped(1, 2)]).moved
    assert replayed(one({}), [swapped(0, 2)]).moved
    assert not replayed(one({}, needs=["image"]), [swapped(0, 2)]).moved  # two/a alone reads it


def test_the_recorded_turn_of_a_rotation_counts() -> None:
    old = combo("daily", *LIST, strategy="round-robin")
    routes, _ = rehearse([old], {}, [{}], [{}], [{}], [{}])
    assert [route.served for route in routes] == [*LIST, "one/a"]
    turned = [replayed(route, [swapped(0, 1, old)]).now.served for route in routes]
    assert turned == ["two/a", "one/a", "three/a", "two/a"]


def test_a_rotation_that_is_switched_on_begins_with_the_first_of_the_period() -> None:
    routes, _ = rehearse([DAILY], {}, [{}], [{}], [{}], [{}])
    new, turns = combo("daily", *LIST, strategy="round-robin"), Turns()
    served = [replayed(route, [new], [DAILY], turns).now.served for route in routes]
    assert served == [*LIST, "one/a"]


def test_a_shorter_limit_cuts_an_answer_off() -> None:
    route = one({"one/a": "slow"}, stream=True)
    assert route.served == "one/a"
    new = combo("daily", {"model": "one/a", "timeouts": {"firstByte": 5}}, *LIST[1:])
    found = replayed(route, [new], [DAILY])
    assert [(c.entry, c.outcome) for c in found.now.calls] == [
        ("one/a", "timed out"),
        ("two/a", "answered"),
    ]
    assert found.now.wait == 6.0
    assert not replayed(route, [combo("daily", *LIST, timeouts={"firstByte": 50})], [DAILY]).moved


def test_a_stricter_guard_makes_a_cut_stream_fall_over() -> None:
    route = one({"one/a": "cut"}, stream=True)
    assert (route.served, route.outcome) == ("one/a", "server error")
    found = replayed(route, [combo("daily", *LIST, streamGuard="full")], [DAILY])
    assert (found.now.served, found.now.outcome) == ("two/a", "answered")


def test_fewer_retries_go_on_sooner() -> None:
    old = combo("daily", *LIST, retries=2)
    found = replayed(one({"one/a": "529"}, old), [DAILY], [old])
    assert [call.entry for call in found.then.calls] == ["one/a"] * 3 + ["two/a"]
    assert [call.entry for call in found.now.calls] == ["one/a", "two/a"]


def test_accounts_of_a_provider_that_are_barred_are_so_for_its_other_models() -> None:
    old = combo("daily", "one/a", "two/a")
    new = combo("daily", "one/b", "two/a")
    found = replayed(one({"one/a": "401"}, old), [new], [old])
    outcomes = [(call.entry, call.outcome, call.assumed) for call in found.now.calls]
    assert outcomes == [("one/b", "not signed in", True), ("two/a", "answered", False)]


def test_an_account_that_was_barred_before_is_so_for_other_models() -> None:
    old, new = combo("daily", "one/a", "two/a"), combo("daily", "one/b", "two/a")
    routes, _ = rehearse([old], {"one/a": "401"}, [{}], [{}])
    found = replayed(routes[1], [new], [old])
    assert [(call.entry, call.assumed) for call in found.now.calls] == [("two/a", False)]
    assert not found.moved


def test_a_refused_image_is_taken_out_before_entries_that_read_none_are_asked() -> None:
    old = combo("daily", "one/b", "two/a", "three/a")
    faults = {"one/b": "image", "two/a": "529"}
    route = one(faults, old, needs=["image"])
    entries = ["one/b", "two/a", "one/b"]
    assert [attempt.entry for attempt in route.attempts] == entries
    found = replayed(route, [combo("daily", "one/b", "two/a", "three/a", "one/a")], [old])
    assert [call.entry for call in found.now.calls] == entries
    assert not found.moved


def test_an_unknown_provider_is_passed_over() -> None:
    found = replayed(one({}), [combo("daily", "nobody/x", *LIST)], [DAILY])
    assert not found.moved
    assert found.passed_over == [("nobody/x", "unknown provider")]


def test_a_changed_panel_asks_the_new_member_and_the_same_judge() -> None:
    old = combo("wise", "one/a", "two/a", strategy="fusion")
    new = combo("wise", "one/a", "two/a", "three/a", strategy="fusion")
    route = one({}, old)
    found = replayed(route, [new], [old])
    told = sorted((call.role, call.entry, call.assumed) for call in found.now.calls)
    assert told == [
        ("judge", "one/a", False),
        ("panel", "one/a", False),
        ("panel", "three/a", True),
        ("panel", "two/a", False),
    ]
    assert not replayed(route, [swapped(0, 1, combo("wise", "two/a", "one/a", strategy="fusion"))],
                        [old]).moved  # fmt: skip


def test_a_changed_nested_combo_counts_where_it_is_reached() -> None:
    outer = combo("daily", "one/a", "inner")
    old, new = combo("inner", "two/a", "three/a"), combo("inner", "three/a", "two/a")
    routes, _ = rehearse([outer, old], {"one/a": "529"}, [{}])
    assert replayed(routes[0], [outer, new], [outer, old]).now.served == "three/a"
    routes, _ = rehearse([outer, old], {}, [{}])
    assert not replayed(routes[0], [outer, new], [outer, old]).moved


@pytest.mark.parametrize("after", [["three/a"], ["nobody/x"], []])
@pytest.mark.parametrize("fault", ["empty", "feature", "timeout", "529"])
@pytest.mark.parametrize("fields", [{}, {"fusionTuning": {"onJudgeFailure": "best"}}])
def test_a_judge_that_entries_follow_ends_as_it_did(
    after: list[str], fault: str, fields: dict[str, Any]
) -> None:
    inner = combo(
        "inner", "one/a", "two/a", strategy="fusion", judge="four/a", streamGuard="full", **fields
    )
    combos = [combo("daily", "inner", *after), inner]
    for stream in (False, True):
        for route in rehearse(combos, {"four/a": fault}, [{"stream": stream}])[0]:
            found = replayed(route, combos)
            assert not found.moved
            assert found.now.served == route.served
            assert not any(call.assumed for call in found.now.calls)


@pytest.mark.parametrize("spoil", ["places", "plans", "order", "steps"])
def test_a_record_that_does_not_tell_enough_is_refused(spoil: str) -> None:
    route = one({"one/a": "529"})
    match spoil:
        case "places":
            route.steps[0].places = ()
        case "plans":
            route.snapshots = []
        case "order":
            route.steps[0].places = (7,)
        case "steps":
            del route.steps[1]
    with pytest.raises(Bare, match=r"."):
        replayed(route, [swapped(0, 1)])


def test_nothing_of_a_record_is_changed_by_replaying_it() -> None:
    route = one({"one/a": "empty", "two/a": "529"})
    before = msgspec.json.encode([msgspec.to_builtins(step) for step in route.steps])
    replayed(route, [swapped(0, 2)])
    assert msgspec.json.encode([msgspec.to_builtins(step) for step in route.steps]) == before
