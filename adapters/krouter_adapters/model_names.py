"""Model names that LiteLLM resolves without a prefix, read from its data file, not imported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from krouter_adapters.model_data import MODES, Row, load_table

_PREFIX = {
    "openai": "openai",
    "anthropic": "anthropic",
    "bedrock": "bedrock",
    "bedrock_converse": "bedrock",
    "vertex_ai-language-models": "vertex_ai",
    "cohere_chat": "cohere_chat",
    "ai21": "ai21_chat",
}
"""The sections of the file whose bare names LiteLLM resolves, and the prefix each stands for."""


class _Names(NamedTuple):
    exact: Mapping[str, str]
    rules: tuple[tuple[re.Pattern[str], str], ...]


def provider_of(name: str) -> str | None:
    """LiteLLM's prefix of the provider that a bare `name` means; None for an unknown one.

    The first call reads the file, which takes some tens of milliseconds.
    """
    names = _names()
    if found := names.exact.get(name):
        return found
    if "ft:gpt-3.5-turbo" in name or "ft:gpt-4" in name:
        return "openai"
    return next((provider for pattern, provider in names.rules if pattern.search(name)), None)


def known_names() -> Mapping[str, str]:
    """Every bare name that is written out, and LiteLLM's prefix of its provider."""
    return _names().exact


@cache
def _names() -> _Names:
    table = load_table()
    return _Names(dict(_bare(table)), tuple(_rules(table)))


def _bare(table: Mapping[str, Row]) -> Iterator[tuple[str, str]]:
    for name, row in table.items():
        facts = table.get(row.alias_of, row)
        prefix = _PREFIX.get(facts.litellm_provider)
        if prefix and facts.mode in MODES and "/" not in name and name[:3] != "ft:":
            yield name, prefix


def _rules(table: Mapping[str, Row]) -> Iterator[tuple[re.Pattern[str], str]]:
    rules = table["fallback_generalizations"].rules if "fallback_generalizations" in table else ()
    for rule in rules:
        if provider := rule.model_info.litellm_provider:
            yield re.compile(rule.pattern, re.IGNORECASE), provider
