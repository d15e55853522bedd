"""Model names that LiteLLM resolves without a prefix, read from its data file, not imported."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FILE = "model_prices_and_context_window_backup.json"

_MODES = frozenset(("chat", "responses"))
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
    table = _table()
    return _Names(dict(_bare(table)), tuple(_rules(table)))


def _table() -> dict[str, Any]:
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        return {}
    try:
        table: dict[str, Any] = json.loads(Path(spec.origin).with_name(FILE).read_bytes())
    except OSError:
        return {}
    return table


def _bare(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, row in table.items():
        facts = table.get(row.get("alias_of", ""), row)
        prefix = _PREFIX.get(facts.get("litellm_provider", ""))
        if prefix and facts.get("mode") in _MODES and "/" not in name and name[:3] != "ft:":
            yield name, prefix


def _rules(table: Mapping[str, Any]) -> Iterator[tuple[re.Pattern[str], str]]:
    for rule in table.get("fallback_generalizations", {}).get("rules", ()):
        provider = rule.get("model_info", {}).get("litellm_provider")
        if provider:
            yield re.compile(rule["pattern"], re.IGNORECASE), provider
