"""How statements about a model become its facts."""

from __future__ import annotations

import fnmatch
import timeit
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from krouter.catalog import (
    KEPT,
    MEDIA,
    Correction,
    Facts,
    FamilyRules,
    Glob,
    Known,
    Prices,
    Statement,
    build_catalog,
    canonical,
    listed,
    undated,
    with_entry,
)
from krouter.combos import Entry, Medium
from krouter.providers import Provider

SHOP = Provider("shop", aliases=("sh",))
YES, NO, UNKNOWN = Known.YES, Known.NO, Known.UNKNOWN


@dataclass
class Data:
    said: Sequence[Statement] = ()
    corrections: Sequence[Correction] = ()
    families: FamilyRules = field(default_factory=lambda: FamilyRules({}, {}, frozenset()))

    def statements(self, provider: Provider, model: str) -> Iterable[Statement]:
        return self.said

    def names(self, provider: Provider) -> tuple[str, ...]:
        return ("a", "b")


def look_up(
    model: str = "maker/a-1.5",
    *said: Statement,
    corrections: Sequence[Correction] = (),
    reads: dict[str, tuple[Medium, ...]] | None = None,
) -> Facts:
    return build_catalog(lambda: Data(said, corrections), reads).facts(SHOP, model)


def correction(glob: str, *media: Medium, override: bool = False) -> Correction:
    return Correction(glob, Statement("krouter", listed(media)), override)


media = st.lists(st.sampled_from(MEDIA), unique=True).map(tuple)
knowns = st.sampled_from(Known)
counts = st.none() | st.integers(1, 10**7)
statements = st.builds(
    Statement,
    source=st.sampled_from(("litellm", "krouter")),
    reads=st.dictionaries(st.sampled_from(MEDIA), knowns),
    window=counts,
    output=counts,
    prices=st.builds(Prices, input=st.none() | st.floats(0, 1)),
    tools=knowns,
)
corrections = st.lists(
    st.builds(Correction, st.sampled_from(("*", "a-*", "b*", "shop/*")), statements, st.booleans()),
    max_size=3,
)


@given(st.lists(statements, max_size=4), corrections)
def test_what_nobody_says_stays_unknown(said: list[Statement], more: list[Correction]) -> None:
    facts = look_up("a-1", *said, corrections=more)
    heard = [*said, *(each.statement for each in more)]
    for medium in MEDIA:
        known = facts.reads[medium]
        assert (medium in facts.sources) is (known is not UNKNOWN)
        assert known is UNKNOWN or known in [each.reads.get(medium) for each in heard]
    assert facts.tools is UNKNOWN or facts.tools in [each.tools for each in heard]
    assert facts.window is None or facts.window in [each.window for each in heard]
    assert facts.sources.keys() >= {
        name for name, value in (("window", facts.window), ("output", facts.output)) if value
    }


@given(st.lists(statements, max_size=4), corrections)
def test_the_same_input_gives_the_same_facts(said: list[Statement], more: list[Correction]) -> None:
    assert look_up("a-1", *said, corrections=more) == look_up("a-1", *said, corrections=more)


@given(st.lists(statements, max_size=3), corrections, media)
def test_the_settings_win(
    said: list[Statement], more: list[Correction], reads: tuple[Medium, ...]
) -> None:
    facts = look_up("a-1", *said, corrections=more, reads={"shop/a-1": reads})
    assert facts.reads == listed(reads)
    assert {facts.sources[medium] for medium in MEDIA} == {"settings"}


@given(st.lists(statements, max_size=3), st.none() | media, counts)
def test_an_entry_wins(
    said: list[Statement], reads: tuple[Medium, ...] | None, window: int | None
) -> None:
    facts = look_up("a-1", *said, reads={"*": ("audio",)})
    changed = with_entry(facts, Entry(model="shop/a-1", reads=reads, context_window=window))
    assert changed.reads == (facts.reads if reads is None else listed(reads))
    assert changed.window == (window or facts.window)
    assert (changed.output, changed.prices, changed.tools) == (
        facts.output,
        facts.prices,
        facts.tools,
    )
    if reads is None and window is None:
        assert changed == facts
    else:
        assert "entry" in changed.sources.values()


def test_the_data_goes_before_corrections_unless_they_override() -> None:
    data = Statement("litellm", {"image": YES}, window=10)
    facts = look_up("a-1", data, corrections=[correction("a-*", "pdf")])
    assert facts.reads == {"image": YES, "pdf": YES, "audio": NO, "video": NO}
    assert facts.sources == {
        "image": "litellm",
        "window": "litellm",
        **dict.fromkeys(("pdf", "audio", "video"), "krouter"),
    }
    facts = look_up("a-1", data, corrections=[correction("a-*", "pdf", override=True)])
    assert facts.reads == {"image": NO, "pdf": YES, "audio": NO, "video": NO}
    assert facts.window == 10


def test_an_explicit_no_is_not_filled_in() -> None:
    data = Statement("litellm", {"image": NO})
    assert look_up("a-1", data, corrections=[correction("*", "image")]).reads["image"] is NO


def test_a_field_is_taken_from_the_first_correction_that_gives_it() -> None:
    window = Correction("a-1*", Statement("krouter", window=5))
    facts = look_up("a-1", corrections=[window, correction("a*", "image"), correction("*")])
    assert (facts.window, facts.reads["image"]) == (5, YES)


def test_what_a_correction_leaves_open_no_later_one_closes() -> None:
    open_ = Correction("a-*", Statement("krouter", listed(("image",), unsure=("pdf",))))
    facts = look_up("a-1", corrections=[open_, correction("*")])
    assert facts.reads == {"image": YES, "pdf": UNKNOWN, "audio": NO, "video": NO}
    assert "pdf" not in facts.sources


@pytest.mark.parametrize(
    ("glob", "model", "fits"),
    [
        ("a-1.5", "maker/A-1.5", True),
        ("a-1-5", "maker/a-1.5:free", True),
        ("A-*", "us.maker.a-long-name", False),
        ("along*", "us.maker.along-name-v1:0", True),
        ("a", "maker/a-1", False),
        ("1.5", "a-1.5", False),
        ("shop/*", "maker/a", True),
        ("sh/maker/a*", "maker/a-1", True),
        ("maker/*", "maker/a", True),
        ("*shop*", "maker/a", False),
        ("other/*", "maker/a", False),
    ],
)
def test_what_a_glob_fits(glob: str, model: str, fits: bool) -> None:
    assert (look_up(model, corrections=[correction(glob, "image")]).reads["image"] is YES) is fits
    assert (look_up(model, reads={glob: ("image",)}).reads["image"] is YES) is fits


def test_an_exact_name_goes_before_the_longest_glob() -> None:
    reads: dict[str, tuple[Medium, ...]] = {
        "*": ("video",),
        "shop/maker/a-1*": ("audio",),
        "shop/*": ("pdf",),
        "a-1.5": ("image",),
    }
    assert look_up("maker/a-1.5", reads=reads).reads == listed(("image",))
    assert look_up("maker/a-1.6", reads=reads).reads == listed(("audio",))
    assert look_up("maker/b", reads=reads).reads == listed(("pdf",))


@pytest.mark.parametrize(
    ("model", "name", "without_date"),
    [
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("claude-sonnet-4@20250514", "claude-sonnet-4", "claude-sonnet-4"),
        (
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "claude-sonnet-4-5-20250929",
            "claude-sonnet-4-5",
        ),
        ("z-ai/glm-4.6:free", "glm-4-6", "glm-4-6"),
        ("accounts/fireworks/models/kimi-k2p5", "kimi-k2-5", "kimi-k2-5"),
        ("gpt-4o-2024-08-06", "gpt-4o-2024-08-06", "gpt-4o"),
        ("gemini-2.5-pro-preview-06-05", "gemini-2-5-pro-preview-06-05", "gemini-2-5-pro"),
        ("mistral-large-latest", "mistral-large-latest", "mistral-large"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2-instruct-0905", "kimi-k2-instruct"),
        ("openai.gpt-oss-120b-1:0", "gpt-oss-120b", "gpt-oss-120b"),
        ("gpt-4.1", "gpt-4-1", "gpt-4-1"),
        ("chat-latest", "chat-latest", "chat-latest"),
        ("o1-preview", "o1-preview", "o1"),
        ("qwen2.5vl:7b", "qwen2-5vl", "qwen2-5vl"),
        ("deepseek.v3-v1:0", "deepseek-v3", "deepseek-v3"),
        ("", "", ""),
    ],
)
def test_a_models_own_name(model: str, name: str, without_date: str) -> None:
    assert canonical(model) == name
    assert undated(name) == without_date


@given(st.text("ab*?[]!", max_size=8), st.text("ab[]!", max_size=5))
@example("[]a]b", "ab")
@example("[!]a]b", "bb")
@example("[ab", "[ab")
def test_a_glob_fits_what_fnmatch_says(glob: str, name: str) -> None:
    assert Glob(glob).fits(name) is fnmatch.fnmatchcase(name, glob)


@given(st.text(max_size=60))
def test_any_name_has_facts(model: str) -> None:
    assert look_up(model).reads == dict.fromkeys(MEDIA, UNKNOWN)


def test_data_is_loaded_once_and_only_when_needed() -> None:
    loads: list[Data] = []

    def load() -> Data:
        loads.append(Data())
        return loads[-1]

    catalog = build_catalog(load)
    assert loads == []
    catalog.facts(SHOP, "a")
    catalog.warm_up()
    assert catalog.names(SHOP) == ("a", "b")
    assert len(loads) == 1


def test_known_facts_cost_next_to_nothing_and_are_bounded() -> None:
    catalog = build_catalog(Data)
    first = catalog.facts(SHOP, "a")
    assert catalog.facts(SHOP, "a") is first
    runs = timeit.repeat(lambda: catalog.facts(SHOP, "a"), number=10_000, repeat=5)
    assert min(runs) / 10_000 < 3e-6
    for number in range(KEPT):
        catalog.facts(SHOP, f"m{number}")
    assert catalog.facts(SHOP, "a") is not first
    assert catalog.facts(SHOP, "a") == first
