"""The contents of the model table: LiteLLM's data file, read without LiteLLM, and krouter's own."""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from krouter.catalog import (
    Correction,
    FamilyRules,
    Known,
    Prices,
    Statement,
    canonical,
    listed,
    plain,
    undated,
)
from krouter.providers import Provider
from krouter.settings import Kind

FILE = "model_prices_and_context_window_backup.json"
CORRECTIONS = "models.toml"
FAMILIES = "families.toml"

MODES = frozenset(("chat", "responses"))

_ONE_HOST = {"bedrock_converse": "bedrock", "cohere_chat": "cohere", "ai21_chat": "ai21"}
"""Sections of the file, and names of LiteLLM's, that stand for the same service as another."""


class RuleInfo(msgspec.Struct, frozen=True, gc=False):
    litellm_provider: str = ""


class Rule(msgspec.Struct, gc=False):
    """How LiteLLM knows the provider of a name that no entry has."""

    pattern: str = ""
    model_info: RuleInfo = RuleInfo()


class Row(msgspec.Struct, gc=False):
    """One entry of LiteLLM's file. What is missing there is None here, which says nothing."""

    litellm_provider: str = ""
    alias_of: str = ""
    mode: str | None = None
    max_input_tokens: int | str | None = None
    max_output_tokens: int | str | None = None
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None
    supports_vision: bool | None = None
    supports_pdf_input: bool | None = None
    supports_audio_input: bool | None = None
    supports_video_input: bool | None = None
    supports_function_calling: bool | None = None
    supports_response_schema: bool | None = None
    output_vector_size: float | str | None = None
    supported_modalities: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


class _Correction(msgspec.Struct, forbid_unknown_fields=True):
    match: list[str] = []
    unlisted: list[str] = []
    reads: list[Kind] | None = None
    unsure: list[Kind] = []
    window: int | None = None
    output: int | None = None
    tools: bool | None = None
    override: bool = False


class _Corrections(msgspec.Struct, forbid_unknown_fields=True):
    makers: list[str]
    model: list[_Correction]


class _Family(msgspec.Struct, forbid_unknown_fields=True):
    of: list[str]
    siblings: list[str]


class _Families(msgspec.Struct, forbid_unknown_fields=True):
    neutral: list[str]
    tiers: dict[str, int]
    family: list[_Family]


@cache
def load_table() -> Mapping[str, Row]:
    """LiteLLM's file, read once; empty without LiteLLM."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        return {}
    try:
        data = Path(spec.origin).with_name(FILE).read_bytes()
    except OSError:
        return {}
    return msgspec.json.decode(data, type=dict[str, Row])


@cache
def load_models() -> Models:
    """The table's contents, read once."""
    corrections = msgspec.convert(_toml(CORRECTIONS), _Corrections)
    return Models(load_table(), corrections, msgspec.convert(_toml(FAMILIES), _Families))


def _toml(file: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("krouter_adapters").joinpath(file).read_text("utf-8"))


class Models:
    """What the file says, sorted by the service that offers a model."""

    def __init__(
        self, table: Mapping[str, Row], corrections: _Corrections, families: _Families
    ) -> None:
        self._hosts: dict[str, dict[str, Row]] = {}
        self._embedders: dict[str, dict[str, Row]] = {}
        for key, row in table.items():
            if row.mode in MODES and not key.startswith("ft:"):
                host = _host(row.litellm_provider)
                self._hosts.setdefault(host, {})[_model(key, host, row)] = row
            elif row.mode == "embedding":
                host = _host(row.litellm_provider)
                self._embedders.setdefault(host, {})[_model(key, host, row)] = row
        self._indexes: dict[str, dict[str, Row]] = {}
        self._makers = tuple(corrections.makers)
        self.corrections = tuple(_parsed(corrections))
        self.families = FamilyRules(
            siblings={plain(name): tuple(f.siblings) for f in families.family for name in f.of},
            tiers=families.tiers,
            neutral=frozenset(families.neutral),
        )

    def names(self, provider: Provider) -> tuple[str, ...]:
        return tuple(self._hosts.get(host_of(provider), ()))

    def statements(self, provider: Provider, model: str) -> Iterator[Statement]:
        """The provider's own row, then that of the model's maker, whose prices are not its. What
        answers in this process costs nothing."""
        if provider.builtin:
            yield Statement("built in", prices=Prices(0.0, 0.0))
            return
        host = host_of(provider)
        if own := self._row(host, model) or self._embedder(host, model):
            yield _statement(own, _prices(own))
        for maker in self._makers:
            if maker != host and (original := self._row(maker, model)):
                yield _statement(original, Prices())
                return

    def vector_size(self, provider: Provider, model: str) -> int | None:
        """As the provider's own row has it, else that of a maker of the name."""
        hosts = (host_of(provider), *(() if provider.builtin else self._makers))
        rows = (self._embedder(host, model) for host in hosts)
        return next((_whole(row.output_vector_size) for row in rows if row), None)

    def _embedder(self, host: str, model: str) -> Row | None:
        return self._embedders.get(host, {}).get(model)

    def _row(self, host: str, model: str) -> Row | None:
        rows = self._hosts.get(host)
        if rows is None:
            return None
        if found := rows.get(model):
            return found
        index = self._indexes.get(host)
        if index is None:
            index = self._indexes[host] = _index(rows)
        name = canonical(model)
        return index.get(name) or index.get(undated(name))


def host_of(provider: Provider) -> str:
    """The part of the file that is about `provider`; "" where there is none."""
    if provider.own or provider.builtin:
        return ""
    generic = provider.litellm == "openai" and provider.name != "openai"
    return _host(provider.name if generic else provider.litellm)


def _host(section: str) -> str:
    section = "vertex_ai" if section.startswith("vertex_ai-") else section
    return _ONE_HOST.get(section, section)


def _model(key: str, host: str, row: Row) -> str:
    return key.removeprefix(f"{row.litellm_provider}/").removeprefix(f"{host}/")


def _index(rows: Mapping[str, Row]) -> dict[str, Row]:
    index: dict[str, Row] = {}
    named = [(canonical(model), row) for model, row in rows.items()]
    for name, row in named:
        index.setdefault(name, row)
    for name, row in named:
        index.setdefault(undated(name), row)
    return index


def _statement(row: Row, prices: Prices) -> Statement:
    return Statement(
        "litellm",
        reads=dict(_reads(row)),
        window=_whole(row.max_input_tokens),
        output=_whole(row.max_output_tokens),
        prices=prices,
        tools=_known(row.supports_function_calling),
        json_schema=_known(row.supports_response_schema),
    )


def _reads(row: Row) -> Iterator[tuple[Kind, Known]]:
    given: tuple[tuple[Kind, bool | None], ...] = (
        ("image", row.supports_vision),
        ("pdf", row.supports_pdf_input),
        ("audio", row.supports_audio_input),
        ("video", row.supports_video_input),
    )
    for medium, value in given:
        if value is None and medium in row.supported_modalities:
            value = True
        if value is not None:
            yield medium, _known(value)


def _known(value: bool | None) -> Known:
    if value is None:
        return Known.UNKNOWN
    return Known.YES if value else Known.NO


def _whole(value: float | str | None) -> int | None:
    return int(value) if isinstance(value, int | float) and value > 0 else None


def _prices(row: Row) -> Prices:
    return Prices(
        row.input_cost_per_token,
        row.output_cost_per_token,
        row.cache_read_input_token_cost,
        row.cache_creation_input_token_cost,
    )


def _parsed(file: _Corrections) -> Iterator[Correction]:
    for each in file.model:
        reads = {} if each.reads is None else listed(each.reads, each.unsure)
        said = Statement("krouter", reads, each.window, each.output, tools=_known(each.tools))
        for glob in each.match:
            yield Correction(glob, said, each.override)
        for glob in each.unlisted:
            yield Correction(glob, said, each.override, unlisted=True)
