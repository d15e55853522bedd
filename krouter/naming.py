"""A name becomes a combo or a model, or nothing, and then what is near it is said."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from krouter.adapter import bare_names, provider_of
from krouter.combos import Combo, Entry
from krouter.problems import did_you_mean, nearest
from krouter.world import World

SHIPPED_ALIASES: Mapping[str, str] = {"fusion-panel": "panel"}
LONGEST_NAME = 300
"""Characters of a name that may be asked for."""

FoundBy = Literal["combo", "alias", "claude-name", "model", "bare-name"]


class UnknownModel(Exception):
    """A name that is neither a combo nor a model; the text says so and what is near."""


class Destination(Struct, frozen=True):
    """What a name stands for, and by which rule; `combo` is made up for a model called directly."""

    combo: Combo
    found_by: FoundBy
    direct: bool = False


def resolve(name: str, world: World) -> Destination:
    """Combo, alias, `claude-NAME` of a combo, `provider/model`, then a name that LiteLLM knows
    without a provider. Raises UnknownModel."""
    if combo := _named_combo(name, world.combos):
        return Destination(combo, "combo")
    if target := aliased(name, world.settings.aliases):
        combo = _named_combo(target, world.combos)
        return Destination(combo, "alias") if combo else _direct(target, name, world)
    if combo := world.combos.get(name.removeprefix("claude-")):
        return Destination(combo, "claude-name")
    return _direct(name, name, world)


def _named_combo(name: str, combos: Mapping[str, Combo]) -> Combo | None:
    return combos.get(name.removeprefix("combo/"))


def aliased(name: str, aliases: Mapping[str, str]) -> str | None:
    """An alias spelled out wins over a glob, the longest glob over others."""
    if exact := aliases.get(name) or SHIPPED_ALIASES.get(name):
        return exact
    globs = [glob for glob in aliases if fnmatch.fnmatchcase(name, glob)]
    return aliases[max(globs, key=len)] if globs else None


def _direct(target: str, asked: str, world: World) -> Destination:
    _, slash, model = target.partition("/")
    found_by: FoundBy = "model" if slash else "bare-name"
    provider = None if slash or len(target) > LONGEST_NAME else provider_of(target)
    called = f"{provider}/{target}" if provider else target
    can_be = (model or provider) and len(called) <= LONGEST_NAME and called.split() == [called]
    if not can_be or not known_provider(called, world):
        raise UnknownModel(_unknown(target, asked, world))
    return Destination(_single(called), found_by if target == asked else "alias", direct=True)


def known_provider(model: str, world: World) -> bool:
    """Whether the provider of `provider/model` is one that krouter knows."""
    return world.registry.split(model)[0] is not None


def _unknown(target: str, asked: str, world: World) -> str:
    if len(asked) > LONGEST_NAME:
        return f"Unknown model {asked[:50]!r}...: a name has at most {LONGEST_NAME} characters."
    if asked.split() != [asked]:
        return f"Unknown model {asked!r}: a name holds no blanks."
    for name in (target.removeprefix("combo/"), target.removeprefix("claude-")):
        if fault := world.unserved.get(name):
            return f"Unknown model {asked!r}: the combo {name} is not served: {fault}"
    usable = (name for name in entries(world.combos) if known_provider(name, world))
    known = [*world.combos, *world.settings.aliases, *usable]
    via = "" if target == asked else f" (an alias for {target!r})"
    provider, slash, model = target.partition("/")
    if slash:
        providers = nearest(provider, world.registry.names_with_aliases())
        near = did_you_mean(target, [*known, *(f"{name}/{model}" for name in providers)])
        what = f"no provider {provider!r} is known"
        if provider == "combo":
            near, what = did_you_mean(model, world.combos), f"there is no combo {model!r}"
        elif not near:
            near = (
                f"A provider of your own needs a base_url in krouter.toml: [provider.{provider}]."
            )
    else:
        near = did_you_mean(target, [*known, *bare_names()])
        what = "no combo or alias has that name, and a model is written provider/model"
    return " ".join(filter(None, [f"Unknown model {asked!r}{via}: {what}.", near]))


def entries(combos: Mapping[str, Combo]) -> Iterator[str]:
    """Every `provider/model` that a combo names, judges too, once."""
    models = (model for combo in combos.values() for model in _named_in(combo))
    return iter(dict.fromkeys(m for m in models if "/" in m and not m.startswith("combo/")))


def _named_in(combo: Combo) -> Iterator[str]:
    yield from (entry.model for entry in combo.models)
    if combo.strategy == "fusion" and combo.judge_name:
        yield combo.judge_name


@lru_cache(maxsize=1024)
def _single(model: str) -> Combo:
    return Combo.model_construct(name="direct", models=(Entry.model_construct(model=model),))
