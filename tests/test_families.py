"""Which models stand in for one that is gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.adapter import load_models, load_rows
from krouter.catalog import (
    Catalog,
    Correction,
    FamilyRules,
    Statement,
    build_catalog,
    listed,
    plain,
)
from krouter.families import MOST, related
from krouter.providers import Provider, build_registry
from krouter.settings import Settings

SHOP = Provider("shop")
REGISTRY = build_registry(load_rows(), Settings())
REAL = build_catalog(load_models)


@dataclass
class Data:
    """A provider with these models, and the rules that ship."""

    known: tuple[str, ...]
    corrections: Sequence[Correction] = ()
    families: FamilyRules = field(default_factory=lambda: load_models().families)

    def statements(self, provider: Provider, model: str) -> Iterable[Statement]:
        return ()

    def names(self, provider: Provider) -> tuple[str, ...]:
        return self.known


def catalog(*known: str, corrections: Sequence[Correction] = ()) -> Catalog:
    return build_catalog(lambda: Data(known, corrections))


def found(model: str, *known: str, tried: Iterable[str] = ()) -> list[str]:
    return list(related(SHOP, model, catalog(*known), tried))


PRO = """gemini-3.1-pro-preview gemini-3.1-pro-high gemini-3.1-pro-low gemini-3-pro-preview
    gemini-3-pro-high gemini-3-pro-low""".split()

ROWS = {
    "gemini-3-pro": PRO,
    "gemini-3.1-pro": PRO,
    "gemini-3-pro-preview": PRO,
    "gemini-3.1-pro-preview": PRO[1:],
    "gemini-3-pro-high": PRO,
    "gemini-3.1-pro-high": [PRO[0], *PRO[2:]],
    "gemini-3-flash": ["gemini-3-flash-agent", "gemini-3.5-flash-low"],
    "gemini-3-flash-agent": ["gemini-3-flash"],
    "gemini-3.5-flash-low": ["gemini-3.5-flash-extra-low", "gemini-3-flash"],
    "gemini-2.5-pro": ["gemini-2.5-pro-preview-06-05", "gemini-2.5-pro-preview-05-06"],
    "claude-fable-5": ["claude-opus-4-8", "claude-opus-4-7", "claude-sonnet-4-6"],
    "claude-opus-4-8": ["claude-opus-4-7", "claude-opus-4-6", "claude-sonnet-4-6"],
    "claude-opus-4-7": ["claude-opus-4-6", "claude-opus-4-6-thinking", "claude-sonnet-4-6"],
    "claude-opus-4-6": ["claude-opus-4-6-thinking", "claude-opus-4-7", "claude-sonnet-4-6"],
    "claude-sonnet-4-6": ["claude-sonnet-4-5", "claude-sonnet-4-5-20250929"],
    "gpt-5": ["gpt-5-mini", "gpt-4o"],
    "gpt-5.1": ["gpt-5.1-mini", "gpt-5", "gpt-4o"],
}


@pytest.mark.parametrize(("model", "siblings"), ROWS.items(), ids=ROWS)
def test_listed_siblings_come_in_their_order(model: str, siblings: list[str]) -> None:
    expected = siblings[:MOST]
    assert found(model, model, *reversed(siblings), "gpt-5.9", "claude-x-9")[: len(expected)] == (
        expected
    )
    assert found(model)[: len(expected)] == expected, "where the provider's models are not known"


@pytest.mark.parametrize(("model", "siblings"), ROWS.items(), ids=ROWS)
def test_only_siblings_that_the_provider_has(model: str, siblings: list[str]) -> None:
    assert found(model, model, siblings[-1])[0] == siblings[-1]


@pytest.mark.parametrize(
    ("model", "known", "expected"),
    [
        ("glm-5.1", "glm-5.1 glm-5 glm-5.2 glm-5.3 glm-4.7 glm-5v", "glm-5 glm-5.2 glm-5.3"),
        ("glm-5v", "glm-4.5v glm-5.1", "glm-4.5v"),
        ("m-pro-3", "m-mini-3 m-pro-2 m-pro-1 n-pro-3", "m-mini-3 m-pro-2 m-pro-1"),
        ("claude-opus-5-5", "claude-haiku-5-5 claude-opus-5", "claude-opus-5 claude-haiku-5-5"),
        ("gpt-9", "gpt-9-codex gpt-9-2030-01-01 gpt-8", "gpt-9-2030-01-01 gpt-8"),
        ("gpt-9-2030-01-01", "gpt-9 gpt-9-2029-01-01 gpt-8", "gpt-9 gpt-8"),
        ("llama-3.3-70b", "llama-3.1-8b llama-3.1-70b", "llama-3.1-70b llama-3.1-8b"),
        ("us.a.brand-2", "eu.a.brand-3 us.a.brand-3 brand-1", "us.a.brand-3"),
        ("maker/brand-2:free", "other/brand-1 maker/brand-1", "maker/brand-1"),
        ("brand", "brand-1", "brand-1"),
        ("brand-1", "other-1", ""),
    ],
)
def test_the_nearest_of_the_family(model: str, known: str, expected: str) -> None:
    assert found(model, *known.split()) == expected.split()


def test_those_tried_are_left_out_in_whatever_spelling() -> None:
    tried = ["claude-opus-4.7"]
    assert found("claude-opus-4-8", tried=tried) == ["claude-opus-4-6", "claude-sonnet-4-6"]
    assert found("glm-5.1", "glm-5", "glm-5.2", tried=["glm-5"]) == ["glm-5.2"]


def test_a_reseller_is_asked_in_its_own_spelling() -> None:
    assert found("anthropic/claude-opus-4.8:beta") == [
        "anthropic/claude-opus-4.7",
        "anthropic/claude-opus-4.6",
        "anthropic/claude-sonnet-4.6",
    ]
    assert found("claude-sonnet-4.6")[1] == "claude-sonnet-4.5-20250929"


def test_what_reads_less_is_no_help() -> None:
    said = [
        Correction("m-2", Statement("krouter", listed(("image",)))),
        Correction("m-1", Statement("krouter", listed(()))),
    ]
    shop = catalog("m-2", "m-1", "m-3", corrections=said)
    assert related(SHOP, "m-2", shop) == ("m-3",)
    assert related(SHOP, "m-1", shop) == ("m-2", "m-3")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cc/claude-opus-4-8", ["claude-opus-4-7", "claude-opus-4-6", "claude-sonnet-4-6"]),
        ("gemini/gemini-3-flash", ["gemini-3-flash-preview"]),
        ("kimi/kimi-k2-0905-preview", ["kimi-k2.5"]),
        (
            "bedrock/us.anthropic.claude-opus-4-8",
            [
                "us.anthropic.claude-opus-4-7",
                "us.anthropic.claude-opus-4-6-v1",
                "us.anthropic.claude-sonnet-4-6",
            ],
        ),
        ("demo/assistant", []),
    ],
)
def test_real_providers(name: str, expected: list[str]) -> None:
    alias, _, model = name.partition("/")
    provider = REGISTRY.find(alias)
    assert provider
    models = related(provider, model, REAL)
    assert list(models[: len(expected)]) == expected
    assert bool(models) is bool(expected)


NAMES = st.lists(
    st.sampled_from(
        [name for each in ("cc", "openai", "glm") for name in REAL.names(REGISTRY.providers[each])]
        if {"cc", "openai", "glm"} <= set(REGISTRY.providers)
        else []
    ),
    unique=True,
    max_size=30,
)


@given(st.sampled_from([*ROWS, "glm-5.1", "gpt-5.2-pro"]), NAMES, NAMES)
def test_at_most_three_known_ones_never_one_tried(
    model: str, known: list[str], tried: list[str]
) -> None:
    models = found(model, *known, tried=tried)
    assert len(models) <= MOST
    assert len(set(models)) == len(models)
    out = {plain(name) for name in (model, *tried)}
    assert not {plain(name) for name in models} & out
    assert not known or set(models) <= set(known)


@given(st.text(max_size=40), st.lists(st.text(max_size=40), max_size=5))
def test_any_name_may_be_asked_about(model: str, known: list[str]) -> None:
    assert set(found(model, *known)) <= set(known)
