"""What is wrong with the pools of the vision adapter, which keeps nobody from serving."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from krouter.adapter import load_models
from krouter.catalog import MEDIA, Catalog, Known, build_catalog
from krouter.combos import Combo, Medium, reference
from krouter.lineup import missing_account
from krouter.load import Config
from krouter.problems import Problem, did_you_mean, json_path
from krouter.settings import AdapterPool


def adapter_faults(config: Config, combos: Mapping[str, Combo], file: str) -> Iterator[Problem]:
    """Models of the vision adapter that it will never use."""
    catalog = build_catalog(load_models, config.settings.reads)
    for medium in MEDIA:
        pool: AdapterPool = getattr(config.settings.vision_adapter, medium)
        place = ("vision_adapter", medium)
        if pool.models and not pool.enabled:
            message = f"{place[0]}.{medium} lists models, but is switched off."
            yield Problem(file, json_path(place), message, "Set enabled = true.", "warning")
            continue
        for index, model in enumerate(pool.models):
            if fault := _useless(model, medium, config, combos, catalog):
                path = json_path((*place, "models", index))
                yield Problem(
                    file, path, f"{model!r} is not used: {fault[0]}.", fault[1], "warning"
                )


def _useless(
    model: str, medium: Medium, config: Config, combos: Mapping[str, Combo], catalog: Catalog
) -> tuple[str, str] | None:
    """Why the vision adapter never puts `model` in front, and what to do about it."""
    if (name := reference(model)) is not None:
        what = "it is a combo" if name in combos else "it names no provider"
        return what, "Write provider/model."
    alias, _, rest = model.partition("/")
    provider = config.registry.find(alias)
    if provider is None:
        hint = did_you_mean(alias, config.registry.names_with_aliases())
        return f"no provider {alias!r} is known", hint
    known = catalog.facts(provider, rest).reads[medium]
    if known is not Known.YES:
        what = "it does not read" if known is Known.NO else "it is not known to read"
        return (
            f"{what} {medium}",
            f"If it does: [reads] {json.dumps(model)} = [{json.dumps(medium)}].",
        )
    if not config.accounts[provider.name]:
        hint = missing_account(provider, None)
        return f"{provider.name} has no account", f"{hint[0].upper()}{hint[1:]}."
    return None
