"""The model table: what a model reads, its window, its limits and its prices, and who says so."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Protocol, get_args

from krouter.combos import Entry, Medium
from krouter.providers import Provider

MEDIA: tuple[Medium, ...] = get_args(Medium)
KEPT = 4096
"""How many models' facts are kept ready."""


class Known(StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per token; None where unknown."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None


NO_PRICES = Prices()


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model. `reads` holds every medium; `window` and `output` are in tokens.

    `sources` says where each known value comes from, by its name; all prices are "prices".
    """

    reads: Mapping[Medium, Known]
    window: int | None
    output: int | None
    prices: Prices
    tools: Known
    sources: Mapping[str, str]
    json_schema: Known = Known.UNKNOWN
    """Whether an answer can be held to a schema."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What one source says of a model. It says nothing about a medium left out; one given as
    unknown it leaves open on purpose."""

    source: str
    reads: Mapping[Medium, Known] = field(default_factory=dict)
    window: int | None = None
    output: int | None = None
    prices: Prices = NO_PRICES
    tools: Known = Known.UNKNOWN
    json_schema: Known = Known.UNKNOWN


@dataclass(frozen=True, slots=True)
class Correction:
    """A statement about every model that `glob` matches. It fills in what the data leaves open;
    with `override` it goes before the data. An `unlisted` one is for names not in the data."""

    glob: str
    statement: Statement
    override: bool = False
    unlisted: bool = False


@dataclass(frozen=True, slots=True)
class FamilyRules:
    """How models stand in for each other. `siblings` are by canonical name; `tiers` and `neutral`
    are words of names."""

    siblings: Mapping[str, tuple[str, ...]]
    tiers: Mapping[str, int]
    neutral: frozenset[str]


class ModelData(Protocol):
    """Where the table's contents come from."""

    @property
    def corrections(self) -> Sequence[Correction]:
        """The specific before the generic."""

    @property
    def families(self) -> FamilyRules: ...

    def statements(self, provider: Provider, model: str) -> Iterable[Statement]:
        """What the data says of `model` at `provider`, the surest first."""

    def names(self, provider: Provider) -> tuple[str, ...]:
        """The models known at `provider`."""

    def vector_size(self, provider: Provider, model: str) -> int | None:
        """How long the vectors of an embedding model are; None where that is not known."""


def listed(media: Iterable[Medium], unsure: Iterable[Medium] = ()) -> dict[Medium, Known]:
    """`media` are read, the others are not, but for the `unsure` ones."""
    given = dict.fromkeys(media, Known.YES) | dict.fromkeys(unsure, Known.UNKNOWN)
    return {medium: given.get(medium, Known.NO) for medium in MEDIA}


def merge(statements: Iterable[Statement]) -> Facts:
    """Each value as the first statement that gives it has it."""
    reads: dict[Medium, Known] = {}
    window = output = None
    prices, tools, json_schema = NO_PRICES, Known.UNKNOWN, Known.UNKNOWN
    sources: dict[str, str] = {}
    for said in statements:
        for medium, known in said.reads.items():
            if medium not in reads:
                reads[medium] = known
                if known is not Known.UNKNOWN:
                    sources[medium] = said.source
        if window is None and said.window is not None:
            window, sources["window"] = said.window, said.source
        if output is None and said.output is not None:
            output, sources["output"] = said.output, said.source
        if prices == NO_PRICES and said.prices != NO_PRICES:
            prices, sources["prices"] = said.prices, said.source
        if tools is Known.UNKNOWN and said.tools is not Known.UNKNOWN:
            tools, sources["tools"] = said.tools, said.source
        if json_schema is Known.UNKNOWN and said.json_schema is not Known.UNKNOWN:
            json_schema, sources["json_schema"] = said.json_schema, said.source
    all_reads = {medium: reads.get(medium, Known.UNKNOWN) for medium in MEDIA}
    said_by = MappingProxyType(sources)
    return Facts(MappingProxyType(all_reads), window, output, prices, tools, said_by, json_schema)


def with_entry(facts: Facts, entry: Entry) -> Facts:
    """`facts` as corrected by what an entry of a combo says itself."""
    if entry.reads is not None:
        sources = dict(facts.sources) | dict.fromkeys(MEDIA, "entry")
        facts = replace(facts, reads=listed(entry.reads), sources=sources)
    if entry.context_window is not None:
        sources = dict(facts.sources) | {"window": "entry"}
        facts = replace(facts, window=entry.context_window, sources=sources)
    return facts


def plain(name: str) -> str:
    """`name` in the one spelling in which names are compared."""
    return name.lower().replace(".", "-")


_VENDOR = re.compile(r"^(?:[a-z][a-z0-9-]*\.)+(?=[a-z]{3})")
_RELEASE = re.compile(r"-v?\d+:\d+.*$")
_DIGITS_APART = re.compile(r"(?<=\d)[p_](?=\d)")


def canonical(model: str) -> str:
    """A model's own name, without what resellers put around it: folders, a vendor, `:free`,
    `-v1:0`, `@20250514`, and `4p6` or `4.6` for `4-6`."""
    last = _RELEASE.sub("", model.lower().rpartition("/")[2])
    last = last.partition(":")[0].partition("@")[0]
    return plain(_DIGITS_APART.sub("-", _VENDOR.sub("", last)))


def before(model: str) -> str:
    """What stands before a model's own name: folders and a vendor."""
    folder, slash, last = model.rpartition("/")
    vendor = _VENDOR.match(last.lower())
    return folder + slash + (last[: vendor.end()] if vendor else "")


_DATE = re.compile(r"-(?:20\d{6}|20\d\d-\d\d-\d\d|\d\d-20\d\d|\d\d-\d\d|\d{4})$")
_STAGE = re.compile(r"-(?:latest|preview|default|v1)$")


def undated(name: str) -> str:
    """A canonical name without a date or a stage of release at its end, unless only a common
    word would be left."""
    shorter = name
    for _ in range(2):
        shorter = _STAGE.sub("", _DATE.sub("", shorter))
    return name if shorter.isalpha() else shorter


class Spellings:
    """A model as globs see it: one with a slash is held against the whole name, with or without
    the provider, any other against the model's own name."""

    def __init__(self, provider: Provider, model: str) -> None:
        full = (f"{name}/{model}" for name in (provider.name, *provider.aliases))
        self._own = canonical(model), plain(model.rpartition("/")[2])
        self._whole = tuple(map(plain, (model, *full)))

    def match(self, glob: Glob) -> bool:
        return any(map(glob.fits, self._whole if "/" in glob.text else self._own))

    def equal(self, glob: Glob) -> bool:
        return glob.text in self._whole or glob.text in self._own


_WILD = re.compile(r"[*?]|\[!?\]?[^\]]*\]|\[")


class Glob:
    """Anchored; case does not count, and "." and "-" are one."""

    def __init__(self, text: str) -> None:
        self.text = plain(text)
        self._literal = max(_WILD.split(self.text), key=len)

    def fits(self, name: str) -> bool:
        # Most globs are ruled out by their letters alone: compiling them all would take longer.
        return self._literal in name and self._pattern.match(name) is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(fnmatch.translate(self.text))


class Catalog:
    """The facts of every model. The data is loaded when first needed."""

    def __init__(
        self, load: Callable[[], ModelData], reads: Mapping[str, tuple[Medium, ...]]
    ) -> None:
        self._load = load
        self._loaded: tuple[ModelData, tuple[tuple[Glob, Correction], ...]] | None = None
        said = ((Glob(name), Statement("settings", listed(media))) for name, media in reads.items())
        self._reads = sorted(said, key=lambda rule: -len(rule[0].text))
        self._facts: dict[tuple[str, str], Facts] = {}

    def facts(self, provider: Provider, model: str) -> Facts:
        """What is known of `model`, named without its provider."""
        key = provider.name, model
        found = self._facts.get(key)
        if found is None:
            if len(self._facts) >= KEPT:
                self._facts.clear()
            found = self._facts[key] = merge(self._statements(provider, model))
        return found

    def names(self, provider: Provider) -> tuple[str, ...]:
        """The models known at `provider`, named without it."""
        return self._data()[0].names(provider)

    def vector_size(self, provider: Provider, model: str) -> int | None:
        """How long the vectors of an embedding model are; None where that is not known."""
        return self._data()[0].vector_size(provider, model)

    def family_rules(self) -> FamilyRules:
        return self._data()[0].families

    def warm_up(self) -> None:
        """Loads the data, which takes some tens of milliseconds; for a thread of its own."""
        self._data()

    def _data(self) -> tuple[ModelData, tuple[tuple[Glob, Correction], ...]]:
        if self._loaded is None:
            data = self._load()
            self._loaded = data, tuple((Glob(each.glob), each) for each in data.corrections)
        return self._loaded

    def _statements(self, provider: Provider, model: str) -> Iterator[Statement]:
        names = Spellings(provider, model)
        yield from self._of_settings(names)
        data, rules = self._data()
        fitting = [each for glob, each in rules if names.match(glob)]
        yield from (each.statement for each in fitting if each.override)
        yield from data.statements(provider, model)
        yield from (each.statement for each in fitting)

    def _of_settings(self, names: Spellings) -> Iterator[Statement]:
        """A name spelled out wins over a glob, the longest glob over others."""
        yield from (said for glob, said in self._reads if names.equal(glob))
        yield from (said for glob, said in self._reads if names.match(glob))


def build_catalog(
    load: Callable[[], ModelData], reads: Mapping[str, tuple[Medium, ...]] | None = None
) -> Catalog:
    """The table over what `load` gives; `reads` are the corrections of the settings."""
    return Catalog(load, reads or {})
