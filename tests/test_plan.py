"""The order of one request: the worked examples, and the promises over any combo."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.board import Turns
from krouter.catalog import Known, Medium
from krouter.combos import Combo, Entry, parse_combo
from krouter.plan import IN_THE_PANEL, Plan, Snapshot, Standing, make_plan, rotates
from krouter.settings import RoutingSettings

MEDIA: tuple[Medium, ...] = ("image", "pdf", "audio", "video")
IMAGE: frozenset[Medium] = frozenset(("image",))
OFF, ON = RoutingSettings(), RoutingSettings(combo_round_robin=True)
GLM, DS, CC = "glm/glm-5.1", "ds/deepseek-v4-pro", "cc/claude-sonnet-4-6"
DAILY = (GLM, DS, CC)
TEXT_ONLY = dict.fromkeys(MEDIA, Known.NO)
SEES = {**TEXT_ONLY, "image": Known.YES, "pdf": Known.YES}


def combo(*models: str, **fields: Any) -> Combo:
    given = {"models": list(models or DAILY), **fields}
    return parse_combo(json.dumps(given).encode(), "daily.json", "daily")


def table(**seen: Standing) -> Callable[[Entry], Standing]:
    known = {GLM: Standing(TEXT_ONLY), DS: Standing(TEXT_ONLY), CC: Standing(SEES)}
    known |= {name.replace("_", "/", 1): standing for name, standing in seen.items()}
    return lambda entry: known.get(entry.model, Standing())


def plan_of(
    combo: Combo,
    routing: RoutingSettings,
    look: Callable[[Entry], Standing],
    *,
    needs: frozenset[Medium] = frozenset(),
    turn: Callable[[], int] = int,
    pool: tuple[Entry, ...] = (),
) -> Plan:
    seen = tuple(map(look, combo.models))
    taken = turn() if rotates(combo, routing) else 0
    return make_plan(Snapshot(combo, routing, seen, needs=needs, turn=taken, pool=pool))


def order(plan: Plan) -> list[str]:
    return [step.entry.model for step in plan.steps]


def counter() -> Callable[[], int]:
    count = itertools.count()
    return lambda: next(count)


# The worked examples


def test_the_list_is_the_preference() -> None:
    plan = plan_of(combo(), OFF, table())
    assert order(plan) == list(DAILY)
    assert [step.reason for step in plan.steps] == ["as listed"] * 3
    assert plan.switches == ()


def test_a_screenshot_moves_the_entry_that_reads_it_first() -> None:
    plan = plan_of(combo(), OFF, table(), needs=IMAGE)
    assert order(plan) == [CC, GLM, DS]
    assert plan.switches == (f"Capacity auto-switch: image → {CC}",)
    assert [step.reason for step in plan.steps] == [
        "as listed; reads image",
        "as listed; does not read image",
        "as listed; does not read image",
    ]


def test_quota_cannot_move_it_back() -> None:
    known = {GLM: Standing(TEXT_ONLY, 0.9), DS: Standing(TEXT_ONLY, 1.0), CC: Standing(SEES, 0.03)}
    plan = plan_of(combo(), OFF, lambda entry: known[entry.model], needs=IMAGE)
    assert order(plan) == [CC, DS, GLM]
    assert plan.switches == (f"Capacity auto-switch: image → {CC}",)


def test_most_quota_left_goes_first() -> None:
    known = {GLM: Standing(), DS: Standing(left=0.2), CC: Standing(left=0.7)}
    plan = plan_of(combo(), OFF, lambda entry: known[entry.model])
    assert order(plan) == [CC, DS, GLM]
    assert plan.switches == (f"Quota auto-switch: most left → {CC}",)
    assert plan.steps[0].reason == "as listed; 70% of its quota left"


def test_a_spent_entry_goes_last() -> None:
    known = {GLM: Standing(left=0.01, spent=True), DS: Standing(), CC: Standing(left=0.5)}
    plan = plan_of(combo(), OFF, lambda entry: known[entry.model])
    assert order(plan) == [CC, DS, GLM]
    assert plan.steps[-1].reason == "as listed; quota spent"


def test_round_robin_rotates_the_list() -> None:
    turn, robin = counter(), combo("a/a", "b/b", "c/c", strategy="round-robin")
    orders = ["".join(m[0] for m in order(plan_of(robin, OFF, table(), turn=turn))) for _ in "1234"]
    assert orders == ["abc", "bca", "cab", "abc"]


def test_request_five_starts_with_the_second_of_three_whatever_failed_before() -> None:
    """Sticky limit 1, three entries: requests 1 to 6 begin with A, B, C, A, B, C."""
    turn, robin = counter(), combo("a/a", "b/b", "c/c", strategy="round-robin")
    leads = [order(plan_of(robin, OFF, table(), turn=turn))[0] for _ in range(6)]
    assert leads == ["a/a", "b/b", "c/c"] * 2


@pytest.mark.parametrize(
    ("own", "everybody", "leads"),
    [(None, 1, "abcabc"), (None, 2, "aabbcc"), (3, 1, "aaabbb"), (1, 5, "abcabc")],
)
def test_the_sticky_limit(own: int | None, everybody: int, leads: str) -> None:
    fields = {} if own is None else {"stickyLimit": own}
    robin = combo("a/a", "b/b", "c/c", strategy="round-robin", **fields)
    turn, routing = counter(), RoutingSettings(combo_sticky_limit=everybody)
    told = [order(plan_of(robin, routing, table(), turn=turn))[0][0] for _ in leads]
    assert "".join(told) == leads


@pytest.mark.parametrize(
    ("strategy", "switch", "turns"),
    [
        ("fallback", OFF, False),
        ("fallback", ON, True),
        ("priority", ON, False),
        ("round-robin", OFF, True),
        ("round-robin", ON, True),
    ],
)
def test_who_rotates(strategy: str, switch: RoutingSettings, turns: bool) -> None:
    assert rotates(combo("a/a", "b/b", strategy=strategy), switch) is turns
    assert rotates(combo("a/a", strategy=strategy), switch) is False


def test_split_and_quota_run_after_the_rotation() -> None:
    robin, turn = combo(strategy="round-robin"), counter()
    orders = [order(plan_of(robin, OFF, table(), needs=IMAGE, turn=turn)) for _ in range(3)]
    assert orders == [[CC, GLM, DS], [CC, DS, GLM], [CC, GLM, DS]]


def test_what_may_read_it_goes_first_where_nothing_surely_does() -> None:
    plan = plan_of(combo(GLM, "local/x", DS), OFF, table(), needs=IMAGE)
    assert order(plan) == ["local/x", GLM, DS]
    assert plan.steps[0].reason == "as listed; may read image"


def test_several_kinds_are_needed_together() -> None:
    hears = {**TEXT_ONLY, "audio": Known.YES}
    seen = table(g_all=Standing(dict.fromkeys(MEDIA, Known.YES)), h_ears=Standing(hears))
    both: frozenset[Medium] = frozenset(("image", "audio"))
    assert order(plan_of(combo(CC, "h/ears", "g/all"), OFF, seen, needs=both))[0] == "g/all"


class TestVisionAdapter:
    POOL = (Entry(model="v/one"), Entry(model="v/two"))

    def plan(self, *models: str, needs: frozenset[Medium] = IMAGE) -> Plan:
        return plan_of(combo(*models), OFF, table(), needs=needs, pool=self.POOL)

    def test_it_goes_in_front_where_nothing_reads(self) -> None:
        plan = self.plan(DS, GLM)
        assert order(plan) == ["v/one", "v/two", DS, GLM]
        assert plan.steps[0].reason == "vision adapter for image"
        assert plan.switches == ("Vision adapter: image → v/one",)

    @pytest.mark.parametrize("models", [(GLM, CC), (GLM, "local/x")])
    def test_it_stays_out_where_something_reads_or_may(self, models: tuple[str, ...]) -> None:
        assert "v/one" not in order(self.plan(*models))

    def test_it_is_not_asked_without_a_need(self) -> None:
        assert order(self.plan(GLM, DS, needs=frozenset())) == [GLM, DS]

    def test_an_empty_pool_changes_nothing(self) -> None:
        plan = plan_of(combo(GLM, DS), OFF, table(), needs=IMAGE)
        assert (order(plan), plan.switches) == ([GLM, DS], ())


@pytest.mark.parametrize("needs", [frozenset(), IMAGE])
def test_nothing_orders_a_panel(needs: frozenset[Medium]) -> None:
    plan = plan_of(combo(DS, GLM, CC, strategy="fusion"), OFF, table(), needs=needs)
    assert (order(plan), plan.switches, plan.fuses) == ([DS, GLM, CC], (), True)
    assert {step.reason for step in plan.steps} == {IN_THE_PANEL}
    assert [step.listed for step in plan.steps] == [1, 2, 3]


def test_a_panel_of_one_is_a_plain_call() -> None:
    assert not plan_of(combo(GLM, strategy="fusion"), OFF, table()).fuses


@pytest.mark.parametrize(
    ("needed", "known"),
    [
        ((), Known.YES),
        (("image",), Known.YES),
        (("image", "pdf"), Known.UNKNOWN),
        (("pdf", "audio"), Known.NO),
    ],
)
def test_reading_several_media(needed: tuple[Medium, ...], known: Known) -> None:
    seen = Standing({"image": Known.YES, "audio": Known.NO})
    assert seen.reads_all(frozenset(needed)) is known


# The promises

KNOWN = st.sampled_from(Known)
STANDINGS = st.builds(
    lambda reads, left: Standing(reads, left, left is not None and left <= 0.02),
    st.fixed_dictionaries(dict.fromkeys(MEDIA, KNOWN)),
    st.none() | st.floats(0, 1),
)
NEEDS = st.frozensets(st.sampled_from(MEDIA), max_size=2)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Combo, dict[str, Standing], frozenset[Medium], int]:
    seen = draw(st.lists(STANDINGS, min_size=1, max_size=8))
    names = [f"p/{place}" for place in range(len(seen))]
    strategy = draw(st.sampled_from(["fallback", "priority", "round-robin"]))
    known = dict(zip(names, seen, strict=True))
    return combo(*names, strategy=strategy), known, draw(NEEDS), draw(st.integers(0, 50))


def planned(situation: Any, pool: tuple[Entry, ...] = ()) -> Plan:
    asked, known, needs, turn = situation
    look: Callable[[Entry], Standing] = lambda entry: known[entry.model]  # noqa: E731
    return plan_of(asked, OFF, look, needs=needs, turn=lambda: turn, pool=pool)


@given(situations(), st.booleans())
def test_the_plan_is_a_permutation_and_the_adapter_s_models(situation: Any, full: bool) -> None:
    _, known, needs, _ = situation
    pool = (Entry(model="v/one"),) if full else ()
    names = order(planned(situation, pool))
    added = [name for name in names if name == "v/one"]
    assert sorted(name for name in names if name != "v/one") == sorted(known)
    unread = bool(needs) and all(seen.reads_all(needs) is Known.NO for seen in known.values())
    assert added == (["v/one"] if full and unread else [])
    assert names[: len(added)] == added


@given(situations())
def test_no_entry_of_the_second_group_precedes_one_of_the_first(situation: Any) -> None:
    _, known, needs, _ = situation
    read = [known[name].reads_all(needs) for name in order(planned(situation))]
    front = next((k for k in (Known.YES, Known.UNKNOWN) if k in read), Known.NO)
    if needs:
        assert read == sorted(read, key=lambda k: k is not front)


@given(situations())
def test_within_a_group_figures_descend_and_the_rest_keep_their_order(situation: Any) -> None:
    asked, known, needs, turn = situation
    names = order(planned(situation))
    shift = turn % len(known) if asked.strategy == "round-robin" else 0
    rotated = [*known][shift:] + [*known][:shift]
    read = {name: known[name].reads_all(needs) for name in known}
    front = next((k for k in (Known.YES, Known.UNKNOWN) if k in read.values()), Known.NO)
    groups = {name: bool(needs) and read[name] is not front for name in names}
    for group in (False, True):
        inside = [name for name in names if groups[name] is group]
        fresh = [n for n in inside if known[n].left is not None and not known[n].spent]
        plain = [n for n in inside if known[n].left is None]
        spent = [n for n in inside if known[n].spent]
        assert inside == fresh + plain + spent
        assert [known[n].left for n in fresh] == sorted(
            (known[n].left or 0 for n in fresh), reverse=True
        )
        assert plain == [n for n in rotated if n in plain]
        assert spent == [n for n in rotated if n in spent]


@given(situations())
def test_the_same_input_gives_the_same_plan(situation: Any) -> None:
    assert planned(situation) == planned(situation)


@given(situations())
def test_without_an_attachment_nothing_is_split(situation: Any) -> None:
    asked, known, _, turn = situation
    blind = {name: Standing(left=seen.left, spent=seen.spent) for name, seen in known.items()}
    none: frozenset[Medium] = frozenset()
    assert order(planned((asked, known, none, turn))) == order(planned((asked, blind, none, turn)))


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 3))
def test_each_entry_leads_equally_often(entries: int, rounds: int, sticky: int) -> None:
    turns = Turns()
    robin = combo(*(f"p/{n}" for n in range(entries)), strategy="round-robin", stickyLimit=sticky)
    leads = [
        order(plan_of(robin, OFF, table(), turn=lambda: turns.take("daily")))[0]
        for _ in range(entries * rounds * sticky)
    ]
    assert {leads.count(name) for name in leads} == {rounds * sticky}


def test_fifty_callers_share_one_rotation() -> None:
    turns, names = Turns(), [f"p/{n}" for n in range(5)]
    robin = combo(*names, strategy="round-robin")
    together = threading.Barrier(50)

    def ask(_: int) -> str:
        together.wait()
        return order(plan_of(robin, OFF, table(), turn=lambda: turns.take("daily")))[0]

    with ThreadPoolExecutor(50) as pool:
        leads = list(pool.map(ask, range(50)))
    assert {name: leads.count(name) for name in names} == dict.fromkeys(names, 10)


# Rotations


def test_rotations_are_apart_and_start_again() -> None:
    turns = Turns()
    assert [turns.take("a"), turns.take("a"), turns.take("b")] == [0, 1, 0]
    assert turns.peek("a") == 2
    turns.restart(["a"])
    assert (turns.peek("a"), turns.peek("b")) == (0, 1)
    turns.restart()
    assert turns.peek("b") == 0
