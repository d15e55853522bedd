"""The drill: what passes, what fails, and an oracle that is fooled by nobody."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krouter.adapter import Call, load_faults
from krouter.answer import Answer
from krouter.combos import Combo
from krouter.drill import Case, drill, find, spots_of
from krouter.drill.cast import MARK, Step
from krouter.load import House
from krouter.paths import resolve_paths
from krouter.rehearsal import Came, Seen, Stage
from krouter.route import Route
from krouter.router import Router
from krouter.wire import HttpWire
from krouter.world import World

FAULTS = load_faults()
MODELS = ("glm/glm-5.1", "ds/deepseek-v4-pro", "cc/claude-sonnet-4-6")
SOME = [FAULTS[name] for name in ("529", "cut", "stall", "timeout", "empty", "401")]
"""One of each kind."""


def combo(name: str, *models: Any, **fields: Any) -> Combo:
    return Combo.model_validate({"name": name, "models": models, **fields}, by_alias=True)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    home: Path = tmp_path_factory.mktemp("home")
    paths = resolve_paths(home=home, env={}, cwd=home)
    return Stage.of(House(paths, {}, HttpWire(), ledger=False).router.world)


@pytest.fixture(scope="module")
def run(shipped: Stage) -> Callable[..., list[Case]]:
    """Drills the first of some combos."""

    def drilled(*combos: Combo, faults: Any = SOME, **how: Any) -> list[Case]:
        stage = shipped
        for each in combos:
            stage = stage.combo(each)
        return list(drill(stage, combos[0].name, faults, **how))

    return drilled


def wrong(cases: list[Case]) -> list[Case]:
    return [case for case in cases if case.finding.wrong]


def test_every_fault_at_every_entry_and_at_all_whole_and_streamed(shipped: Stage) -> None:
    cases = list(drill(shipped, "daily"))
    assert len(cases) == len(FAULTS) * (len(MODELS) + 1) * 2
    assert wrong(cases) == []
    assert all(case.reached for case in cases)
    by_came = Counter(str(case.seen.came) for case in cases)
    assert set(by_came) == {
        "whole answer",
        "empty answer",
        "error",
        "error event",
        "caller gone",
    }


@pytest.mark.parametrize("name", ["panel", "free-tier", "demo", "glm/glm-5.1"])
def test_what_ships_passes(shipped: Stage, name: str) -> None:
    assert wrong(list(drill(shipped, name, SOME))) == []


@pytest.mark.parametrize("dialect", ["messages", "responses", "gemini"])
def test_in_every_dialect(shipped: Stage, dialect: str) -> None:
    assert wrong(list(drill(shipped, "daily", SOME, dialect=dialect))) == []


def test_the_turn_of_each_entry_comes(run: Callable[..., list[Case]]) -> None:
    [first, second, third, everybody] = run(combo("c", *MODELS), faults=[FAULTS["529"]])[::2]
    asked = [[step.fault for step in case.steps] for case in (first, second, third, everybody)]
    assert asked == [["529", ""], ["503", "529", ""], ["503", "503", "529"], ["529"] * 3]
    assert [case.seen.seconds for case in (first, second, third)] == [3.0, 4.0, 3.0]


def test_a_ten_entry_combo_in_every_strategy(run: Callable[..., list[Case]]) -> None:
    ten = [f"glm/m{number}" for number in range(5)] + [f"ds/m{number}" for number in range(5)]
    for strategy in ("fallback", "priority", "round-robin"):
        cases = run(combo("ten", *ten, strategy=strategy), faults=[FAULTS["529"]])
        assert len(cases) == 22
        assert wrong(cases) == []
        assert all(case.reached for case in cases)


def test_a_guard_saves_what_breaks_midway(run: Callable[..., list[Case]]) -> None:
    breaks = [FAULTS[name] for name in ("cut", "stall", "reset-midway", "error-midway", "empty")]
    off = run(combo("c", *MODELS), faults=breaks)
    full = run(combo("c", *MODELS, streamGuard="full"), faults=breaks)
    lost = [case for case in off if case.finding.rule]
    assert len(lost) == len(breaks) * 2
    assert all(case.stream and "streamGuard is off" in case.finding.rule for case in lost)
    assert not any(case.finding.rule for case in full)
    assert wrong(off) == wrong(full) == []


@pytest.mark.parametrize(
    ("fields", "fault", "told"),
    [
        ({"timeouts": {"stall": "off"}}, "stall", {"hang"}),
        ({"timeouts": {"firstByte": "off", "total": 30}}, "timeout", {"lost"}),
        ({"timeouts": {"total": 200}}, "timeout", {"lost"}),
    ],
)
def test_limits_that_cannot_work_fail_with_the_step_named(
    run: Callable[..., list[Case]], fields: dict[str, Any], fault: str, told: set[str]
) -> None:
    failed = wrong(run(combo("c", *MODELS, **fields), faults=[FAULTS[fault]]))
    assert {case.finding.wrong for case in failed} == told
    assert failed[0].finding.step == f"step 1, glm/glm-5.1: {fault}"
    assert failed[0].finding.told


def test_rules_by_which_no_other_is_asked(run: Callable[..., list[Case]]) -> None:
    returned = combo("c", *MODELS, onRefusal="return")
    cases = run(returned, faults=[FAULTS["filter"], FAULTS["too-large"]])
    rules = {case.finding.rule for case in cases}
    assert rules == {"", "onRefusal is return", "onTooLarge is return"}
    assert wrong(cases) == []
    around = combo("around", "c", "openai/gpt-4o")
    outer = run(around, returned, faults=[FAULTS["filter"]])
    assert not any(case.finding.rule for case in outer)
    assert wrong(outer) == []


def test_the_window_of_a_whole_panel_is_not_known(run: Callable[..., list[Case]]) -> None:
    inner = combo("inner", *MODELS[1:], strategy="fusion")
    around = combo("around", MODELS[0], "inner", onTooLarge="larger")
    [case, *_] = cases = run(around, inner, faults=[FAULTS["too-large"]])
    assert (case.finding.rule, case.seen.status) == ("onTooLarge is larger", 400)
    assert wrong(cases) == []


def test_a_locked_provider_is_no_other(run: Callable[..., list[Case]]) -> None:
    cases = run(combo("c", "glm/glm-5.1", "glm/glm-4.6"), faults=[FAULTS["401"], FAULTS["429"]])
    assert {case.finding.rule for case in cases} == {"", "its accounts are locked for all models"}
    assert wrong(cases) == []


def test_panel_and_judge_fail_in_turn(run: Callable[..., list[Case]]) -> None:
    fused = combo("f", *MODELS, strategy="fusion", judge="openai/gpt-4o")
    cases = run(fused, faults=[FAULTS["529"]])[::2]
    assert cases[3].finding.rule == "the judge has no backup of its own"
    told = [(case.spot and (case.spot.name, case.spot.role), case.seen.came) for case in cases]
    assert told == [
        *(((model, "panel"), Came.WHOLE) for model in MODELS),
        (("openai/gpt-4o", "judge"), Came.ERROR),
        (None, Came.ERROR),
    ]
    assert all(case.reached for case in cases)


def test_a_judge_with_a_backup(run: Callable[..., list[Case]]) -> None:
    judges = combo("judges", "openai/gpt-4o", "cc/claude-sonnet-4-6")
    fused = combo("f", *MODELS, strategy="fusion", judge="judges")
    cases = [case for case in run(fused, judges) if case.spot and case.spot.role == "judge"]
    assert {case.spot.name for case in cases if case.spot} == {"openai/gpt-4o", MODELS[2]}
    assert wrong(cases) == []
    assert all(case.reached for case in cases)


def test_a_panel_inside_a_list(run: Callable[..., list[Case]]) -> None:
    inner = combo("inner", *MODELS, strategy="fusion")
    cases = run(combo("outer", "openai/gpt-4o", "inner"), inner, faults=[FAULTS["529"]])
    assert all(case.reached for case in cases)
    assert wrong(cases) == []


@pytest.mark.parametrize("after", [["openai/gpt-4o"], ["second", "openai/gpt-4o"]])
def test_a_list_goes_on_after_a_panel(run: Callable[..., list[Case]], after: list[str]) -> None:
    inner = combo("inner", *MODELS[:2], strategy="fusion", judge=MODELS[2])
    second = combo("second", *MODELS[:2], strategy="fusion", judge="mistral/mistral-small-latest")
    cases = run(combo("outer", "inner", *after), inner, second)
    assert wrong(cases) == []
    [silent] = [
        case
        for case in cases
        if (case.fault.name, case.stream) == ("timeout", False)
        and case.spot
        and (case.spot.target, case.spot.role) == (MODELS[2], "judge")
    ]
    assert 300 < silent.seen.seconds < 310


def test_a_panel_of_one_is_a_plain_call(run: Callable[..., list[Case]]) -> None:
    fused = combo("f", "inner", strategy="fusion", judge="openai/gpt-4o")
    cases = run(fused, combo("inner", *MODELS), faults=[FAULTS["529"]])
    assert [case.spot and case.spot.role for case in cases] == [""] * 6 + [None] * 2
    assert wrong(cases) == []


def test_spots_are_found_in_the_files(shipped: Stage) -> None:
    stage = shipped.combo(combo("inner", MODELS[0], "glm/glm-4.6", "nobody/m"))
    outer = combo("outer", "inner", MODELS[0], MODELS[1], strategy="fusion", judge="inner")
    found = spots_of(outer, stage.combo(outer).world, "chat")
    assert [(spot.name, spot.role, spot.combo.name, spot.able) for spot in found] == [
        (MODELS[0], "panel", "inner", True),
        ("glm/glm-4.6", "panel", "inner", True),
        ("nobody/m", "panel", "inner", False),
        (MODELS[1], "panel", "outer", True),
        (MODELS[0], "judge", "inner", True),
        ("glm/glm-4.6", "judge", "inner", True),
        ("nobody/m", "judge", "inner", False),
    ]


def test_what_nothing_can_be_sent_to_is_not_drilled(run: Callable[..., list[Case]]) -> None:
    cases = run(combo("c", "nobody/m", MODELS[0]), faults=[FAULTS["529"]])
    assert [case.spot and case.spot.name for case in cases] == [MODELS[0]] * 2 + [None] * 2
    assert wrong(cases) == []


class _Spoilt(Router):
    """Answers as a router does, and then spoils it."""

    async def answer(
        self,
        call: Call,
        world: World | None = None,
        began: Callable[[Route], object] = lambda route: None,
    ) -> Answer:
        return await self.spoil(await super().answer(call, world, began), call)

    async def spoil(self, answer: Answer, call: Call) -> Answer:
        raise NotImplementedError


class FalseStop(_Spoilt):
    """Ends a broken stream as if it were whole."""

    async def spoil(self, answer: Answer, call: Call) -> Answer:
        if answer.relay is not None:
            relay = answer.relay
            choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
            end = b"data: " + msgspec.json.encode({"choices": [choice]}) + b"\n\ndata: [DONE]\n\n"
            proper = relay.closing
            relay.closing = lambda: end if relay.broken else proper()
        return answer


class Silent(_Spoilt):
    """Ends a broken stream with nothing at all."""

    async def spoil(self, answer: Answer, call: Call) -> Answer:
        if answer.relay is not None:
            answer.relay.closing = bytes
        return answer


class NoAnswer(_Spoilt):
    """Keeps an error to itself."""

    async def spoil(self, answer: Answer, call: Call) -> Answer:
        if answer.status >= 500:
            await asyncio.Event().wait()
        return answer


class Late(_Spoilt):
    """Says that it has failed when it is too late."""

    async def spoil(self, answer: Answer, call: Call) -> Answer:
        if answer.status >= 500:
            await asyncio.sleep(700)
        return answer


class OnlyFirst(Router):
    """Walks no further than the first entry."""

    def __init__(self, world: World) -> None:
        short = {
            name: each.model_copy(update={"models": each.models[:1]})
            for name, each in world.combos.items()
        }
        super().__init__(replace(world, combos=short))


@pytest.mark.parametrize(
    ("router", "fault", "found"),
    [
        (FalseStop, "cut", "cut"),
        (FalseStop, "stall", "cut"),
        (Silent, "reset-midway", "cut"),
        (NoAnswer, "529", "hang"),
        (Late, "529", "hang"),
        (OnlyFirst, "529", "lost"),
        (OnlyFirst, "timeout", "lost"),
    ],
)
def test_a_broken_walk_fails(
    run: Callable[..., list[Case]], router: type[Router], fault: str, found: str
) -> None:
    cases = run(combo("c", *MODELS), faults=[FAULTS[fault]], router_of=router)
    failed = wrong(cases)
    assert {case.finding.wrong for case in failed} == {found}
    assert failed[0].finding.step.startswith("step ")


STEPS = [
    Step("glm/m", "", "cut", "cut", f"{MARK} glm/m.", 0.0, True),
    Step("ds/m", "", "", "", f"{MARK} ds/m.", 1.0, True),
]


def seen(came: Came, text: str = "", **fields: Any) -> Seen:
    usual: dict[str, Any] = {
        "status": 200,
        "message": "",
        "headers": [],
        "body": b"",
        "head": 1.0,
        "first": 1.0,
        "seconds": 2.0,
        "silence": 1.0,
        "pings": 0,
        "route": None,
    }
    return Seen(came, text=text, **{**usual, **fields})


@pytest.mark.parametrize(
    ("given_", "steps", "found"),
    [
        (seen(Came.WHOLE, f"{MARK} ds/m."), 2, ""),
        (seen(Came.WHOLE, f"{MARK} glm/m."), 2, "cut"),
        (seen(Came.WHOLE, "This is the"), 2, "cut"),
        (seen(Came.WHOLE, f"{MARK} ds/m."), 1, "cut"),
        (seen(Came.EMPTY), 2, "cut"),
        (seen(Came.CUT, "This is"), 2, "cut"),
        (seen(Came.HUNG), 1, "hang"),
        (seen(Came.WHOLE, f"{MARK} ds/m.", first=609.0, seconds=610.0), 2, "hang"),
        (seen(Came.BROKEN, silence=69.0), 2, "hang"),
        (seen(Came.ERROR, status=502), 2, ""),
        (seen(Came.ERROR, status=502), 1, "lost"),
        (seen(Came.BROKEN), 2, ""),
    ],
)
def test_the_oracle_judges_by_what_was_sent_and_what_came(
    shipped: Stage, given_: Seen, steps: int, found: str
) -> None:
    stage = shipped.combo(combo("two", "glm/m", "ds/m"))
    spots = spots_of(stage.world.combos["two"], stage.world, "chat")
    told = [
        msgspec.structs.replace(step, target=spot.target)
        for step, spot in zip(STEPS, spots, strict=True)
    ]
    whole = [msgspec.structs.replace(step, stream=False) for step in told[:steps]]
    assert find(FAULTS["cut"], spots[0], spots, whole, given_).wrong == found


DEEPER = combo("deeper", "glm/glm-4.6", MODELS[1], strategy="round-robin", streamGuard="full")
INNER = combo("inner", MODELS[0], "mistral/mistral-small-latest", "deeper", onTooLarge="larger")
FUSED = combo("fused", *MODELS[:2], strategy="fusion", judge="mistral/mistral-medium-latest")
BACKED = combo("backed", MODELS[0], MODELS[2], strategy="fusion", judge="deeper")
LISTED = (*MODELS, "openai/gpt-4o", "inner", "fused", "backed")


def combos() -> Iterator[st.SearchStrategy[Any]]:
    yield st.lists(st.sampled_from(LISTED), min_size=1, max_size=4)
    yield st.sampled_from(["fallback", "priority", "round-robin", "fusion"])
    yield st.sampled_from(["off", "first", "full"])
    yield st.sampled_from(["return", "larger"])
    yield st.sampled_from(["next", "return"])
    yield st.sampled_from([0, 1])
    yield st.sampled_from(sorted(FAULTS))


@settings(max_examples=50, deadline=None)
@given(*combos())
def test_no_combo_fails_with_usual_limits(
    run: Callable[..., list[Case]],
    models: list[str],
    strategy: str,
    guard: str,
    large: str,
    refusal: str,
    retries: int,
    fault: str,
) -> None:
    drilled = combo(
        "drilled",
        *models,
        strategy=strategy,
        streamGuard=guard,
        onTooLarge=large,
        onRefusal=refusal,
        retries=retries,
    )
    around = INNER, DEEPER, FUSED, BACKED
    assert wrong(run(drilled, *around, faults=[FAULTS[fault]])) == []
