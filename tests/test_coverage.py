"""What a combo can answer: a table of examples, and over any combo the same as what the planner and
a rehearsed krouter make of every set of needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from krouter.accepts import WORDS, Wants, named, read_accept
from krouter.catalog import (
    MEDIA,
    Catalog,
    Correction,
    FamilyRules,
    Known,
    Statement,
    build_catalog,
    with_entry,
)
from krouter.combos import Combo, parse_combo
from krouter.coverage import Coverage, cover, returned
from krouter.lineup import Site, leaves
from krouter.load import House
from krouter.paths import resolve_paths
from krouter.problems import ConfigError
from krouter.providers import Provider
from krouter.rehearsal import Came, Rehearsal, Sent, Turn
from krouter.settings import ImagePool, VisionAdapterSettings
from krouter.standing import plan_for
from krouter.wire import HttpWire
from krouter.world import Ask, World

YES, NO, UNKNOWN = Known.YES, Known.NO, Known.UNKNOWN
SETTINGS = "\n".join(f'[provider.{n}]\nbase_url = "http://127.0.0.1:9/v1"' for n in ("one", "two"))

Table = Mapping[str, tuple[Mapping[str, Known], int | None]]
"""What each model takes, and its window."""


class Data:
    """A model table that a test makes up."""

    corrections: tuple[Correction, ...] = ()
    families = FamilyRules({}, {}, frozenset())

    def __init__(self, table: Table) -> None:
        self._table = table

    def statements(self, provider: Provider, model: str) -> Iterable[Statement]:
        can, window = self._table[model]
        reads = {medium: can[medium] for medium in MEDIA}
        yield Statement("test", reads, window, tools=can["tools"], json_schema=can["json"])

    def names(self, provider: Provider) -> tuple[str, ...]:
        return ()

    def vector_size(self, provider: Provider, model: str) -> int | None:
        return None


def catalog(table: Table) -> Catalog:
    return build_catalog(lambda: Data(table))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> World:
    home: Path = tmp_path_factory.mktemp("home")
    (home / "krouter.toml").write_text(SETTINGS)
    house = House(resolve_paths(home=home, env={}, cwd=home), {}, HttpWire(), ledger=False)
    return house.router.world


def combo(name: str, *models: Any, **fields: Any) -> Combo:
    return Combo.model_validate({"name": name, "models": models, **fields}, by_alias=True)


def takes(words: str, window: int | None = 1000) -> tuple[dict[str, Known], int | None]:
    """A model that takes these words, may take those with a "?", and no others."""
    given = {word.rstrip("?"): UNKNOWN if "?" in word else YES for word in words.split()}
    return {word: given.get(word, NO) for word in WORDS}, window


TEXT, SEES, DOCS = takes("tools json"), takes("image tools json"), takes("pdf tools json", 8000)
MAY, ALL = takes("image? tools json", None), takes("image pdf audio video tools json", 9000)
TABLE: Table = {"text": TEXT, "sees": SEES, "docs": DOCS, "may": MAY, "all": ALL}


def world_of(bare: World, table: Table, *combos: Combo) -> World:
    return replace(bare, catalog=catalog(table), combos={each.name: each for each in combos})


def dead(coverage: Coverage, accepted: bool = False) -> list[str]:
    ends = coverage.dead_ends()
    return [named(end.words, end.over) for end in ends if end.accepted is accepted]


@pytest.mark.parametrize(
    ("models", "ends"),
    [
        (["text"], "image, pdf, audio, video"),
        (["all"], ""),
        (["sees", "docs"], "audio, video, image + pdf, image over 1,000 tokens"),
        (["text", "may"], "pdf, audio, video"),
        (["all", "text"], ""),
    ],
)
def test_dead_ends(bare: World, models: list[str], ends: str) -> None:
    daily = combo("daily", *(f"one/{model}" for model in models))
    assert ", ".join(dead(cover(daily, world_of(bare, TABLE, daily)))) == ends


@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        ({}, "image"),
        ({"judge": "one/sees"}, ""),
        ({"judge": "one/sees", "fusionTuning": {"minPanel": 2, "requireQuorum": True}}, "pdf"),
        ({"judge": "one/blunt"}, "tools"),
        ({"judge": "one/blunt", "fusionTuning": {"onJudgeFailure": "best"}}, "tools"),
        ({"judge": "one/blunt", "fusionTuning": {"maxPanel": 1}}, "any request"),
        ({"judge": "one/sees", "fusionTuning": {"onSingle": "return"}}, "pdf + tools"),
        ({"judge": "one/sees", "fusionTuning": {"onSingle": "judge"}}, "pdf"),
    ],
)
def test_dead_ends_of_a_panel(bare: World, fields: dict[str, Any], ends: str) -> None:
    """One of two reads PDF; images are left out for who does not read them, and the judge gets
    all."""
    table = {**TABLE, "blunt": takes("image pdf json")}
    known = {"accept": ["audio", "video", "image+pdf", ">1k"], "strategy": "fusion"}
    wise = combo("wise", "one/text", "one/docs", **known, **fields)
    assert ", ".join(dead(cover(wise, world_of(bare, table, wise)))) == ends


def test_what_a_combo_accepts(bare: World) -> None:
    fields = {"accept": ["audio", "image+pdf", "tools+>2k"]}
    daily = combo("daily", "one/sees", "one/docs", **fields)
    found = cover(daily, world_of(bare, TABLE, daily))
    assert dead(found) == ["video", "image over 1,000 tokens"]
    assert dead(found, accepted=True) == ["audio", "image + pdf"]
    assert found.accepts_nothing() == [2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("imgae", "Did you mean 'image'?"),
        ("", "'' is nothing"),
        ("image+", "'' is nothing"),
        ("image,pdf", "known: image, pdf"),
        (">", "a size such as >200k"),
        ("200k", "a size such as >200k"),
    ],
)
def test_what_no_accept_can_be(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_combo(f'{{"models": ["a/b"], "accept": ["{text}"]}}'.encode(), "a.json", "a")
    (problem,) = raised.value.problems
    assert problem.path == "$.accept[0]"
    assert told in problem.message


@pytest.mark.parametrize(
    ("text", "over"), [(">200k", 200_000), ("image + >1.5M", 1_500_000), (">131072+>4k", 131_072)]
)
def test_sizes(text: str, over: int) -> None:
    assert read_accept(text).over == over


def test_the_vision_adapter_opens_a_dead_end(bare: World) -> None:
    own = bare.settings.model_copy(
        update={"vision_adapter": VisionAdapterSettings(image=ImagePool(models=("two/sees",)))}
    )
    daily = combo("daily", "one/text", accept=["pdf", "audio", "video"])
    found = cover(daily, replace(world_of(bare, TABLE, daily), settings=own))
    assert [(row.name, row.role) for row in found.rows()][1:] == [("two/sees", "adapter")]
    assert dead(found) == []
    assert found.takes(Wants(frozenset(("image", "pdf")))) is NO


def test_what_is_returned_as_too_large(bare: World) -> None:
    for fields, by in (({}, ["one/text"]), ({"onTooLarge": "larger"}, [])):
        daily = combo("daily", "one/text", "one/docs", "one/all", **fields)
        world = world_of(bare, TABLE, daily)
        assert [each.by for each in returned(cover(daily, world), world)] == by
    inner = combo("inner", "one/text", onTooLarge="larger")
    for fields, by in (({}, ["one/text"]), ({"onTooLarge": "larger"}, [])):
        outer = combo("outer", "inner", "one/all", **fields)
        world = world_of(bare, TABLE, outer, inner)
        assert [each.by for each in returned(cover(outer, world), world)] == by
    robin = combo("robin", "one/all", "one/docs", strategy="round-robin", stickyLimit=2)
    world = world_of(bare, TABLE, robin)
    assert [each.by for each in returned(cover(robin, world), world)] == ["one/docs"]


# Any combo

MODELS = ("a", "b", "c", "d")
WINDOWS = (None, 1000, 2000, 3000)


def tables(known: tuple[Known, ...], windows: tuple[int | None, ...]) -> st.SearchStrategy[Table]:
    model = st.tuples(
        st.fixed_dictionaries(dict.fromkeys(WORDS, st.sampled_from(known))),
        st.sampled_from(windows),
    )
    return st.fixed_dictionaries(dict.fromkeys(MODELS, model))


ENTRIES = st.sampled_from([f"{provider}/{m}" for provider in ("one", "two") for m in MODELS])
OVERRIDES = st.builds(
    lambda model, reads: {"model": model, "reads": reads},
    ENTRIES,
    st.lists(st.sampled_from(MEDIA), unique=True),
)
WALKS = st.sampled_from(("fallback", "priority", "round-robin"))
TUNINGS = st.fixed_dictionaries(
    {
        "onSingle": st.sampled_from(("resend", "judge", "return")),
        "onJudgeFailure": st.sampled_from(("error", "best")),
        "requireQuorum": st.booleans(),
        "minPanel": st.integers(1, 3),
    }
)


@st.composite
def walks(draw: st.DrawFn, entries: st.SearchStrategy[Any]) -> list[Combo]:
    """A combo and those nested in it, the outermost first."""
    names = ["outer", "middle", "inner"][: draw(st.integers(1, 3))]
    made: list[Combo] = []
    for name, nested in zip(reversed(names), ([], *([n] for n in reversed(names))), strict=False):
        models = draw(st.lists(entries, min_size=1, max_size=3))
        for each in nested:
            models.insert(draw(st.integers(0, len(models))), each)
        made.insert(0, combo(name, *models, strategy=draw(WALKS), onTooLarge="larger"))
    return made


@st.composite
def fusions(draw: st.DrawFn) -> list[Combo]:
    models = draw(st.lists(ENTRIES, min_size=2, max_size=4, unique=True))
    judge = draw(st.none() | ENTRIES)
    fields = {"strategy": "fusion", "judge": judge, "fusionTuning": draw(TUNINGS)}
    return [combo("outer", *models, **fields)]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables((YES, NO, UNKNOWN), WINDOWS), walks(ENTRIES | OVERRIDES))
def test_every_set_of_needs_is_as_the_planner_has_it(
    bare: World, table: Table, combos: list[Combo]
) -> None:
    world = world_of(bare, table, *combos)
    coverage = cover(combos[0], world)
    windows = sorted({row.window for row in coverage.rows() if row.window})
    for size, bits in product((0, *windows[1:]), product((False, True), repeat=len(WORDS))):
        wants = Wants(frozenset(w for w, bit in zip(WORDS, bits, strict=True) if bit), size)
        assert coverage.takes(wants) is by_plan(combos[0], world, wants), wants


def by_plan(top: Combo, world: World, wants: Wants) -> Known:
    """The best of the entries, as the planner lines them up."""
    needs = frozenset(medium for medium in MEDIA if medium in wants.words)
    ask = Ask("chat", needs=needs)
    site = Site((plan_for(top, world, ask, adapted=True),), world.settings.timeouts)
    found = {of_leaf(leaf.entry, world, wants) for leaf in leaves(site, world, ask)}
    return YES if YES in found else UNKNOWN if UNKNOWN in found else NO


def of_leaf(entry: Any, world: World, wants: Wants) -> Known:
    provider, model = world.registry.split(entry.model)
    assert provider is not None
    facts = with_entry(world.catalog.facts(provider, model), entry)
    each = [facts.reads[medium] for medium in MEDIA if medium in wants.words]
    each += [facts.tools] if "tools" in wants.words else []
    each += [facts.json_schema] if "json" in wants.words else []
    if wants.size:
        fits = NO if (facts.window or 0) < wants.size else YES
        each.append(UNKNOWN if facts.window is None else fits)
    return NO if NO in each else UNKNOWN if UNKNOWN in each else YES


@settings(max_examples=40, deadline=None)
@given(tables((YES, NO), WINDOWS[1:]), walks(ENTRIES) | fusions(), st.data())
def test_a_rehearsed_krouter_gives_whole_answers_to_what_is_covered(
    bare: World, table: Table, combos: list[Combo], data: st.DataObject
) -> None:
    """Each provider refuses what its model does not take, in the words of real ones."""
    world = world_of(bare, table, *combos)
    coverage = cover(combos[0], world)
    every = list(coverage.every())
    for wants in data.draw(st.lists(st.sampled_from(every), min_size=4, max_size=4)):
        with Rehearsal(world, Truth(world, wants)) as rehearsal:
            seen = rehearsal.ask("outer", needs=wants.words)
        assert seen.route is not None
        lost = "image" in seen.route.dropped or ("tools" in wants.words and from_panel(seen))
        whole = seen.came is Came.WHOLE and not lost
        assert whole is (coverage.takes(wants) is YES), (wants, seen.route.steps)


def from_panel(seen: Any) -> bool:
    """Whether the caller has what was said to the panel, which had no tools."""
    return seen.text == "a copy"


class Truth:
    """A director by what each model takes."""

    def __init__(self, world: World, wants: Wants) -> None:
        self._world, self._wants = world, wants

    def __call__(self, sent: Sent) -> Turn:
        provider, model = self._world.registry.split(sent.entry)
        assert provider is not None
        facts = self._world.catalog.facts(provider, model)
        is_copy = "tools" in self._wants.words and b'"tools"' not in sent.body
        missing = {medium for medium in MEDIA if facts.reads[medium] is NO}
        missing |= {"tools"} if facts.tools is NO and not is_copy else set()
        missing |= {"json"} if facts.json_schema is NO else set()
        if (facts.window or 0) < self._wants.size:
            return Turn("too-large")
        if (missing & self._wants.words) - {"image"}:
            return Turn("400")
        text = "a copy" if is_copy else "an answer"
        return Turn("image" if "image" in missing else "", text=text)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables((YES, NO, UNKNOWN), WINDOWS), tables((YES, NO), WINDOWS[1:]), fusions(), st.data())
def test_what_is_sure_holds_whatever_the_unknown_turns_out_to_be(
    bare: World, table: Table, other: Table, combos: list[Combo], data: st.DataObject
) -> None:
    known = {name: _resolved(table[name], other[name]) for name in table}
    coverage = cover(combos[0], world_of(bare, table, *combos))
    later = cover(combos[0], world_of(bare, known, *combos))
    every = list(coverage.every())
    for wants in data.draw(st.lists(st.sampled_from(every), min_size=5, max_size=5)):
        found = coverage.takes(wants)
        assert found is UNKNOWN or later.takes(wants) is found


def _resolved(
    model: tuple[Mapping[str, Known], int | None], other: tuple[Mapping[str, Known], int | None]
) -> tuple[Mapping[str, Known], int | None]:
    can = {word: other[0][word] if known is UNKNOWN else known for word, known in model[0].items()}
    return can, other[1] if model[1] is None else model[1]
