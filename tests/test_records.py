"""A record gives the very order again that the request was sent in, whatever has changed since."""

from __future__ import annotations

import random
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from krouter.catalog import Known
from krouter.combos import Combo, Entry, Medium
from krouter.errors import Failure
from krouter.health import Health
from krouter.plan import Snapshot, Standing, make_plan
from krouter.ranking import AccountsSnapshot, order
from krouter.records import RecordError, decode, encode, rebuild, rebuild_rankings
from krouter.route import REASONS, Attempt, End, Route, Skip, Skipped, Voice
from krouter.settings import AccountStrategy, RoutingSettings

MEDIA: tuple[Medium, ...] = get_args(Medium)
ACCOUNT_STRATEGIES: tuple[AccountStrategy, ...] = get_args(AccountStrategy)


class Random(random.Random):
    """Makes requests and states, thousands of them a second."""

    def some(self, *values: Any) -> Any:
        return self.choice(values)

    def entry(self) -> Entry:
        model = f"p{self.randrange(4)}/m-{self.randrange(9)}"
        fields: dict[str, Any] = {"model": model}
        if self.random() < 0.2:
            fields["accounts"] = ("a", "b")
        if self.random() < 0.2:
            fields["params"] = {"temperature": self.random(), "stop": ["ü", '"']}
        if self.random() < 0.2:
            fields["reads"] = tuple(self.sample(MEDIA, 2))
        if self.random() < 0.1:
            fields = {"model": "combo/inner", "timeouts": {"firstByte": "off", "total": 9}}
        return Entry.model_validate(fields)

    def combo(self) -> Combo:
        fields: dict[str, Any] = {
            "name": self.some("daily", "x"),
            "models": tuple(self.entry() for _ in range(self.randint(1, 10))),
            "strategy": self.some("fallback", "priority", "round-robin", "fusion"),
        }
        if self.random() < 0.3:
            fields["stickyLimit"] = self.randint(1, 4)
        if self.random() < 0.1:
            fields["streamGuard"] = self.some("first", "full")
        if self.random() < 0.1:
            fields |= {"timeouts": {"stall": 5.5}, "description": "für alle", "retries": 2}
        return Combo.model_validate(fields)

    def standing(self) -> Standing:
        left = self.some(None, 0.0, 0.02, self.random(), 1.0)
        reads = {medium: self.some(*Known) for medium in MEDIA} if self.random() < 0.8 else {}
        missing = self.some("", "", "no account")
        return Standing(reads, left, left is not None and left <= 0.02, missing)

    def snapshot(self, combo: Combo) -> Snapshot:
        routing = RoutingSettings(
            combo_round_robin=self.some(False, True), combo_sticky_limit=self.randint(1, 3)
        )
        return Snapshot(
            combo,
            routing,
            tuple(self.standing() for _ in combo.models),
            self.some(False, True),
            frozenset(self.sample(MEDIA, self.randrange(3))),
            self.randrange(1000),
            tuple(self.entry() for _ in range(self.randrange(3))),
        )

    def accounts(self) -> AccountsSnapshot:
        names = [f"account-{n}" for n in range(self.randint(2, 5))]
        return AccountsSnapshot(
            self.some(*ACCOUNT_STRATEGIES),
            {name: self.randint(1, 3) for name in names},
            {n: Health(self.random(), 9 * self.random(), self.random()) for n in names[1:]},
            {name: self.random() for name in names[:1]},
            1e9 * self.random(),
            self.randrange(99),
            self.randint(1, 4),
            self.some("", *names),
            self.randrange(1 << 53),
        )


def entry_as_kept(entry: Entry) -> Entry:
    """Without the values of its parameters."""
    return entry.model_copy(update={"params": dict.fromkeys(entry.params)})


def as_kept(given: Snapshot) -> Snapshot:
    models, pool = (tuple(map(entry_as_kept, each)) for each in (given.combo.models, given.pool))
    combo = given.combo.model_copy(update={"models": models, "description": None})
    return replace(given, combo=combo, pool=pool)


def test_ten_thousand_requests_are_planned_again_as_they_were() -> None:
    made, texts = Random(20), {}
    combos_made = [made.combo() for _ in range(500)]
    for _ in range(10_000):
        route = Route("id", 1.0, "chat", "daily", False)
        given = made.snapshot(made.some(*combos_made))
        plan = make_plan(given)
        standing = made.accounts()
        places = order(standing)
        route.note_plan(plan)
        route.note_ranking("p0/m-0", standing, places)
        raw, combos = encode(route)
        texts.update(combos)
        again = decode(raw, texts.get)
        assert again == replace(route, snapshots=[as_kept(given)])
        steps = tuple(replace(each, entry=entry_as_kept(each.entry)) for each in plan.steps)
        assert [(p.steps, p.switches) for p in rebuild(again)] == [(steps, plan.switches)]
        assert rebuild_rankings(again) == {"p0/m-0": places}


def test_what_requests_share_is_encoded_once_and_reads_the_same() -> None:
    made = Random(21)
    for _ in range(500):
        given = made.snapshot(made.combo())
        told = []
        for snapshot in (given, given, replace(given)):  # known, known by now, and its like
            route = Route("id", 1.0, "chat", "daily", False)
            route.note_plan(make_plan(snapshot))
            told.append(encode(route))
        assert told[0] == told[1] == told[2]
        record, combos = told[0]
        assert msgspec.json.encode(msgspec.json.decode(record)) == record
        assert [each["combo"] for each in msgspec.json.decode(record)["snapshots"]] == [*combos]


@given(st.text(max_size=300), st.booleans())
def test_a_model_called_by_any_name_comes_back(name: str, stream: bool) -> None:
    entry = Entry.model_construct(model=f"p/{name}")
    combo = Combo.model_construct(name="direct", models=(entry,))
    route = Route("id", 1.0, "chat", name, stream)
    route.note_plan(make_plan(Snapshot(combo, RoutingSettings(), (Standing(),), stream)))
    raw, combos = encode(route)
    (plan,) = rebuild(decode(raw, combos.get))
    assert [step.entry.model for step in plan.steps] == [f"p/{name}"]


def test_nothing_of_a_combo_is_kept_that_may_hold_a_credential() -> None:
    """`secret` stands wherever a combo takes a text of a person's own."""
    entry = {
        "model": "a/b",
        "label": "secret",
        "params": {"api_key": "secret", "extra_headers": {"authorization": "secret"}},
    }
    combo = Combo.model_validate(
        {
            "name": "daily",
            "description": "secret",
            "models": [entry],
            "fusionTuning": {"judgePrompt": "secret"},
            "expect": [{"order": ["secret"], "reply": {"from": "secret"}}],
        }
    )
    route = Route("id", 1.0, "chat", "daily", False)
    pool = (Entry.model_validate(entry),)
    route.note_plan(make_plan(Snapshot(combo, RoutingSettings(), (Standing(),), pool=pool)))
    raw, texts = encode(route)
    assert b"secret" not in b"".join((raw, *texts.values()))
    (plan,) = rebuild(decode(raw, texts.get))
    assert list(plan.steps[0].entry.params) == ["api_key", "extra_headers"]


def test_steps_come_back_as_they_were() -> None:
    route = Route("id", 1.0, "chat", "daily", False)
    attempt = Attempt("a/b", "b", "env", "native", 1.0, "a", outcome=Failure.OVERLOADED, row=9)
    route.steps += [attempt, Skipped("c/d", "x", Skip.LOCKED, "rate limited")]
    raw, combos = encode(route)
    again = decode(raw, combos.get)
    assert again == route
    assert {step.reason for step in again.skips} | {s.outcome for s in again.attempts} <= REASONS


def test_a_combo_that_is_reached_again_and_again_has_an_order_each_time() -> None:
    """As a judge that is asked twice, and stands in the panel too."""
    route = Route("id", 1.0, "chat", "wise", False)
    given = Snapshot(
        Combo(
            name="inner", models=(Entry(model="a/b"), Entry(model="c/d")), strategy="round-robin"
        ),
        RoutingSettings(),
        (Standing(), Standing()),
    )
    top = Combo(name="wise", models=(Entry(model="inner"),) * 2, strategy="fusion", judge="inner")
    route.note_plan(make_plan(Snapshot(top, RoutingSettings(), (Standing(), Standing()))))
    for turn, places in enumerate([(1,), (0,), (0,)]):
        route.note_plan(make_plan(replace(given, turn=turn)), places)
    raw, combos = encode(route)
    again = decode(raw, combos.get)
    assert list(again.nested) == ["inner", "0 inner", "0 0 inner"]
    made = [[step.entry.model for step in plan.steps] for plan in rebuild(again)[1:]]
    assert made == [[each.entry for each in order] for order in again.nested.values()]
    assert made == [["a/b", "c/d"], ["c/d", "a/b"], ["a/b", "c/d"]]


def test_the_voices_of_a_fusion_come_back_and_hold_nothing_that_was_said() -> None:
    route = Route("id", 1.0, "chat", "wise", False)
    strand = route.strand(Voice("panel", "a/b", 1.0, 1, length=12, given=9), heard=False)
    strand.add(Attempt("a/b", "b", "env", "native", 1.0, "a"))
    raw, combos = encode(route)
    again = decode(raw, combos.get)
    assert again == route
    assert [step.voice for step in again.steps] == [1]
    known = {"role", "entry", "began", "place", "within", "ended", "outcome", "length", "given"}
    assert set(Voice.__struct_fields__) == known
    with pytest.raises(TypeError):
        encode(strand)


def test_every_reason_has_one_meaning() -> None:
    assert len(REASONS) == len(Skip) + len(Failure) + len(End)


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"id": 3}', b"\xff"])
def test_a_record_that_cannot_be_read_is_told(raw: bytes) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        decode(raw, {}.get)


def test_a_combo_that_is_not_kept_is_told() -> None:
    route = Route("id", 1.0, "chat", "daily", False)
    combo = Combo.model_validate({"name": "daily", "models": ["a/b"]})
    route.note_plan(make_plan(Snapshot(combo, RoutingSettings(), (Standing(),))))
    with pytest.raises(RecordError, match="is not kept"):
        decode(encode(route)[0], {}.get)


def test_a_combo_that_was_edited_meanwhile_is_not_taken_for_the_old_one() -> None:
    combo = Combo.model_validate({"name": "daily", "models": ["a/b"]})
    given = Snapshot(combo, RoutingSettings(), (Standing(),))
    edited = replace(given, combo=combo.model_copy(update={"models": (Entry(model="c/d"),)}))
    texts: dict[str, bytes] = {}
    told = []
    for each in (given, edited):
        route = Route("id", 1.0, "chat", "daily", False)
        route.note_plan(make_plan(each))
        raw, combos = encode(route)
        texts |= combos
        told.append(raw)
    found = [rebuild(decode(raw, texts.get))[0].steps[0].entry.model for raw in told]
    assert found == ["a/b", "c/d"]
