"""The providers that ship with krouter: the rows of `providers.toml`, and all LiteLLM knows."""

from __future__ import annotations

import tomllib
from importlib import resources
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from krouter.problems import ConfigError, Problem, problems_of
from krouter.providers import DEFAULT_AUTH, Auth, Provider
from krouter.settings import Dialect, Headers, ProviderName, Text, Url
from krouter_adapters.litellm_lane.ways import Way, load_ways

FILE = "providers.toml"


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Text
    aliases: tuple[ProviderName, ...] = ()
    base_urls: dict[Dialect, Url] = Field(default_factory=dict)
    speaks: tuple[Dialect, ...] = ()
    auth: dict[Dialect, Auth] = Field(default_factory=dict)
    env: tuple[Text, ...] = ()
    litellm: Text
    headers: Headers = Field(default_factory=dict)
    drop: tuple[Text, ...] = ()
    rename: dict[Text, Text] = Field(default_factory=dict)
    rename_for: tuple[Text, ...] = ("*",)
    source: Text
    tried: Text | None
    keyless: bool = False
    builtin: bool = False
    counts_tokens: bool = False


class _Rows(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: dict[ProviderName, _Row]


def load_rows() -> tuple[Provider, ...]:
    """The shipped providers, in the order of the file, then those that only LiteLLM knows.

    Raises ConfigError if the file is damaged.
    """
    rows = parse_rows(resources.files("krouter_adapters").joinpath(FILE).read_text("utf-8"))
    taken = {name for row in rows for name in (row.name, *row.aliases)}
    others = ((name, way) for name, way in load_ways().items() if name not in taken)
    return (*rows, *(_known_by_litellm(name, way) for name, way in others))


def _known_by_litellm(name: str, way: Way) -> Provider:
    return Provider(
        name=name,
        title=name,
        env=way.env,
        litellm=name,
        litellm_base=way.base,
        base_like=way.base_like,
        unsupported=way.reason if way.way == "unsupported" else "",
        known_by_litellm=True,
        source="LiteLLM",
        tried="untried",
        keyless=way.keyless,
    )


def parse_rows(text: str, file: str = FILE) -> tuple[Provider, ...]:
    """The providers in TOML `text`. Raises ConfigError with every problem."""
    try:
        rows = _Rows.model_validate(tomllib.loads(text)).provider
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([Problem(file, "", f"not TOML: {error}.")]) from None
    except ValidationError as error:
        raise ConfigError(problems_of(error, file, _Rows)) from None
    if problems := _problems(rows, file):
        raise ConfigError(problems)
    return tuple(_provider(name, row) for name, row in rows.items())


def _problems(rows: dict[str, _Row], file: str) -> list[Problem]:
    problems = []
    taken = set(rows)
    for name, row in rows.items():
        path = f"$.provider.{name}"
        for alias in row.aliases:
            if alias in taken:
                problems.append(Problem(file, f"{path}.aliases", f"{alias!r} is taken."))
            taken.add(alias)
        if not (row.base_urls or row.builtin):
            problems.append(Problem(file, f"{path}.base_urls", "required field is missing."))
        if not (row.env or row.keyless):
            problems.append(Problem(file, f"{path}.env", "a row without a variable is keyless."))
    return problems


def _provider(name: str, row: _Row) -> Provider:
    return Provider(
        name=name,
        title=row.title,
        aliases=row.aliases,
        speaks=row.speaks or tuple(row.base_urls),
        base_urls=MappingProxyType(row.base_urls),
        auth=MappingProxyType({**DEFAULT_AUTH, **row.auth}),
        env=row.env,
        litellm=row.litellm,
        headers=MappingProxyType(row.headers),
        drop=row.drop,
        rename=MappingProxyType(row.rename),
        rename_for=row.rename_for,
        source=row.source,
        tried=row.tried,
        keyless=row.keyless,
        builtin=row.builtin,
        counts_tokens=row.counts_tokens,
    )
