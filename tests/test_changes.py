"""What a change of a combo means: nothing is told of what has no effect, something of all else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krouter.changes import changes
from krouter.combos import Combo, parse_combo
from krouter.meaning import Meaning, meaning
from krouter.world import World
from tests.test_coverage import (
    ENTRIES,
    MODELS,
    NO,
    TABLE,
    UNKNOWN,
    WINDOWS,
    YES,
    Table,
    bare,  # noqa: F401
    catalog,
    fusions,
    tables,
    walks,
)

Fields = dict[str, Any]


def meant(world: World, table: Table, fields: Fields, *others: Combo) -> Meaning:
    top = parse_combo(json.dumps(fields).encode(), "top.json", "top")
    known = {each.name: each for each in (*others, top)}
    return meaning(top, replace(world, catalog=catalog(table), combos=known))


def told(world: World, old: Fields, new: Fields) -> list[str]:
    found = changes(meant(world, TABLE, old), meant(world, TABLE, new))
    return [each.text for each in found]


PAIR: Fields = {"models": ["one/text", "two/sees"], "accept": ["pdf", "audio", "video"]}
WISE: Fields = {**PAIR, "strategy": "fusion"}


@pytest.mark.parametrize(
    ("old", "change", "lines"),
    [
        (
            PAIR,
            {"models": ["two/sees", "one/text"]},
            ["no attachment: two/sees goes first, not one/text; the order is two/sees, one/text"],
        ),
        (
            PAIR,
            {"models": ["one/text", {"model": "two/sees", "reads": []}]},
            [
                "image: one/text goes first, not two/sees; the order is one/text, two/sees",
                "image: nobody reads it now; before two/sees",
                "a new dead end: image",
            ],
        ),
        (
            PAIR,
            {"models": ["one/text", "two/all"]},
            [
                "two/all joins; two/sees leaves",
                "image: two/all goes first, not two/sees; the order is two/all, one/text",
                "pdf, audio, video: two/all goes first, not one/text",
                "image: two/all reads it now; before two/sees",
                *(f"{medium}: two/all reads it now; before nobody" for medium in PAIR["accept"]),
                *(f"no dead end any more: {medium}" for medium in PAIR["accept"]),
                "no dead end any more: over 1,000 tokens",
                "returned now: over 1,000 tokens, too large for one/text",
            ],
        ),
        (PAIR, {"accept": ["pdf", "audio"]}, ["not accepted any more: video"]),
        (
            PAIR,
            {"strategy": "round-robin"},
            [
                "no attachment: one/text or two/sees goes first, not one/text; the order is",
                "stickyLimit: 1",
            ],
        ),
        (PAIR, {"retries": 2}, ["most attempts: 10, it was 6", "retries of every entry: 2"]),
        (
            PAIR,
            {"timeouts": {"total": 50}},
            [
                *(
                    f"longest wait, {how}: 50 s, it was 600 s"
                    for how in ("streamed", "not streamed")
                ),
                *(f"where all are silent, {how}: 50 s" for how in ("streamed", "not streamed")),
                "total: 50 s",
            ],
        ),
        (
            WISE,
            {"judge": "two/sees"},
            ["two/sees (judge) joins", "no dead end any more: image", "judge: two/sees"],
        ),
        (WISE, {"fusionTuning": {"onSingle": "return"}}, ["one answer alone: return"]),
    ],
)
def test_what_is_told(bare: World, old: Fields, change: Fields, lines: list[str]) -> None:  # noqa: F811
    found = told(bare, old, old | change)
    wanted = [next((each for each in found if each.startswith(line)), None) for line in lines]
    assert None not in wanted, found


def _as_objects(fields: Fields) -> Fields:
    entries = [{"model": each} if isinstance(each, str) else each for each in fields["models"]]
    return {**fields, "models": [{**each, "label": "x", "weight": 3} for each in entries]}


NO_EFFECT: tuple[Callable[[Fields], Fields], ...] = (
    lambda fields: {**fields, "description": "Another."},
    _as_objects,
    lambda fields: dict(reversed(fields.items())),
    lambda fields: {**fields, "accept": fields["accept"][::-1]},
    lambda fields: {**fields, "expect": [{"reply": 200}], "retries": 0, "streamGuard": "off"},
    lambda fields: {**fields, "models": [*fields["models"][:-1], *fields["models"]]},
    lambda fields: {"timeouts": {"firstByte": 60, "tryOtherAccounts": False}, **fields},
)
PLAIN = st.fixed_dictionaries(
    {
        "models": st.lists(ENTRIES, min_size=1, max_size=3, unique=True),
        "strategy": st.sampled_from(("fallback", "priority")),
        "accept": st.just(["image", "pdf+tools"]),
    }
)


@settings(max_examples=15, deadline=None)
@given(tables((YES, NO, UNKNOWN), WINDOWS), PLAIN, st.sampled_from(NO_EFFECT))
def test_of_what_has_no_effect_nothing_is_told(
    bare: World,  # noqa: F811
    table: Table,
    fields: Fields,
    edit: Callable[[Fields], Fields],
) -> None:
    old, new = meant(bare, table, fields), meant(bare, table, edit(fields))
    assert changes(old, new) == []


@settings(max_examples=10, deadline=None)
@given(st.lists(ENTRIES, min_size=2, max_size=4, unique=True), st.integers(1, 3))
def test_where_a_rotation_begins_has_no_effect(
    bare: World,  # noqa: F811
    models: list[str],
    shift: int,
) -> None:
    table = {**TABLE, **dict.fromkeys(MODELS, TABLE["sees"])}
    fields = {"models": models, "strategy": "round-robin"}
    shifted = {**fields, "models": [*models[shift:], *models[:shift]]}
    assert changes(meant(bare, table, fields), meant(bare, table, shifted)) == []


EITHER = walks(ENTRIES) | fusions()


@settings(max_examples=25, deadline=None)
@given(tables((YES, NO, UNKNOWN), WINDOWS), EITHER, EITHER)
def test_something_is_told_of_every_other_meaning_and_nothing_of_the_same(
    bare: World,  # noqa: F811
    table: Table,
    old: list[Combo],
    new: list[Combo],
) -> None:
    was, now = (
        meaning(each[0], replace(bare, catalog=catalog(table), combos={c.name: c for c in each}))
        for each in (old, new)
    )
    assert bool(changes(was, now)) is (enumerated(was, was, now) != enumerated(now, was, now))
    assert changes(was, was) == changes(now, now) == []


def enumerated(one: Meaning, *both: Meaning) -> object:
    """All that follows from a combo, over the sizes of both."""
    sizes = sorted({size for each in both for size in each.coverage.sizes if size}) or [0]
    answers = [(wants, one.coverage.takes(wants)) for wants in one.coverage.every(sizes)]
    ends = {(end.words, end.over, end.accepted) for end in one.coverage.dead_ends()}
    rows = {(row.name, row.role) for row in one.coverage.rows()}
    return one.orders, answers, ends, rows, one.worst, one.returned, one.manner
