"""`krouter models` and `krouter combos`."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from krouter.adapter import load_models
from krouter.catalog import Catalog, Facts, Known, build_catalog, with_entry
from krouter.cli.common import Command, NotThere, find_paths, json_option, place_options
from krouter.cli.outlook import outlook
from krouter.cli.output import print_json, print_table, say
from krouter.cli.view import View, open_view, source_of, spoken_by
from krouter.combos import Combo, Entry, reference
from krouter.naming import SHIPPED_ALIASES, UnknownModel, entries, resolve
from krouter.problems import did_you_mean
from krouter.providers import Provider


@dataclass(frozen=True, slots=True)
class Named:
    """A name that a caller can ask for. `facts` are there where it stands for one model."""

    name: str
    kind: str
    to: str
    usable: bool
    why: str
    speaks: tuple[str, ...]
    facts: Facts | None = None


@click.command(cls=Command)
@click.argument("pattern", required=False)
@place_options
@json_option
def models(
    pattern: str | None, home: str | None, config: str | None, combos: str | None, as_json: bool
) -> None:
    """List the names a caller can ask for.

    Combos, aliases, the models that combos name, and the providers that have accounts, of which
    any model can be asked for. PATTERN is a part of a name, or a glob such as 'glm/*'; where it
    begins with the name of a provider, that provider's known models are listed too, also while it
    has no account.

    A second table shows of each model what it reads besides text, its window and the most it
    writes in tokens, and its prices in US dollars per million tokens; '?' is unknown.

    JSON: a list of name, kind (combo, alias, entry, provider, model), to, usable, why, speaks, and
    of one model also reads (yes, no or unknown for image, pdf, audio, video), window, output,
    prices (US dollars per token), tools, json_schema, and sources: where each known value comes
    from (litellm, krouter, settings). They are null for other names.
    """
    view = open_view(find_paths(home, config, combos), required=config is not None)
    catalog = build_catalog(load_models, view.world.settings.reads)
    names = (*_named(view, catalog), *_known(view, catalog, pattern or ""))
    found = [named for named in names if _matches(named.name, pattern)]
    if as_json:
        print_json(list(map(_named_json, found)))
    else:
        _print_named(found)
        for why in dict.fromkeys(_why_no_model(named) for named in found if named.kind == "model"):
            say(why, err=True, nl=bool(why))
    if not found:
        raise NotThere(f"no name matches {pattern!r}.")


def _print_named(found: list[Named]) -> None:
    names = [_named_row(named) for named in found if named.kind != "model"]
    models = [_facts_row(named.name, named.facts) for named in found if named.facts]
    if names:
        print_table(("name", "kind", "goes to", "usable", "speaks"), names)
    if names and models:
        say()
    if models:
        print_table(("model", "reads", "window", "output", "$/M in", "$/M out"), models)


def _why_no_model(named: Named) -> str:
    """Why none of a provider's known models can be asked for now."""
    return "" if named.usable else f"{named.name.partition('/')[0]}/…: {named.why}"


def _matches(name: str, pattern: str | None) -> bool:
    name, wanted = name.lower(), (pattern or "").lower()
    return wanted in name or fnmatch.fnmatchcase(name, wanted)


_OF_A_MODEL = ("reads", "window", "output", "prices", "tools", "json_schema", "sources")


def _named_json(named: Named) -> dict[str, Any]:
    shown = {
        "name": named.name,
        "kind": named.kind,
        "to": named.to,
        "usable": named.usable,
        "why": named.why,
        "speaks": named.speaks,
    }
    facts = named.facts
    if facts is None:
        return shown | dict.fromkeys(_OF_A_MODEL)
    return shown | {
        "reads": dict(facts.reads),
        "window": facts.window,
        "output": facts.output,
        "prices": asdict(facts.prices),
        "tools": facts.tools,
        "json_schema": facts.json_schema,
        "sources": dict(facts.sources),
    }


def _named_row(named: Named) -> tuple[str, ...]:
    return (
        named.name,
        named.kind,
        named.to,
        "yes" if named.usable else f"no: {named.why}",
        ", ".join(named.speaks),
    )


def _facts_row(name: str, facts: Facts) -> tuple[str, ...]:
    return (
        name,
        _reads(facts),
        _tokens(facts.window),
        _tokens(facts.output),
        _per_million(facts.prices.input),
        _per_million(facts.prices.output),
    )


def _reads(facts: Facts) -> str:
    """ "text" where it reads nothing else, "?" where nothing is known."""
    if all(known is Known.UNKNOWN for known in facts.reads.values()):
        return "?"
    marks = {Known.YES: "", Known.UNKNOWN: "?"}
    shown = [f"{medium}{marks[k]}" for medium, k in facts.reads.items() if k in marks]
    return " ".join(shown) or "text"


def _tokens(count: int | None) -> str:
    if count is None:
        return "?"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.3g}M"
    return f"{count / 1000:.3g}k" if count >= 1000 else str(count)


def _per_million(price: float | None) -> str:
    return "?" if price is None else f"{price * 1_000_000:.3g}"


def _named(view: View, catalog: Catalog) -> Iterator[Named]:
    world = view.world
    for name, combo in world.combos.items():
        to = f"{combo.strategy}: {', '.join(entry.model for entry in combo.models)}"
        yield _resolved(view, catalog, name, "combo", to)
    for name, target in {**SHIPPED_ALIASES, **world.settings.aliases}.items():
        yield _resolved(view, catalog, target, "alias", target, name)
    for name in entries(world.combos):
        provider = world.registry.find(name.partition("/")[0])
        yield _resolved(view, catalog, name, "entry", provider.title if provider else "")
    for provider in world.registry.providers.values():
        if _is_set_up(view, provider):
            yield _provider(view, provider)


def _known(view: View, catalog: Catalog, pattern: str) -> Iterator[Named]:
    """The known models of the provider that `pattern` begins with."""
    name = pattern.partition("/")[0]
    provider = view.world.registry.find(name)
    if provider:
        found = outlook(_any_model(provider), view.world)
        speaks = spoken_by(provider, view.world)
        named = set(entries(view.world.combos))
        for model in catalog.names(provider):
            if f"{name}/{model}" not in named:
                facts = catalog.facts(provider, model)
                yield Named(f"{name}/{model}", "model", "", found.usable, found.why, speaks, facts)


def _is_set_up(view: View, provider: Provider) -> bool:
    """Whether it has an account. Of those that LiteLLM alone knows, one without a key counts only
    once it is named in the settings."""
    accounts = view.world.accounts[provider.name]
    if not provider.known_by_litellm or provider.name in view.world.registry.settings:
        return bool(accounts)
    return any(account.auth != "none" for account in accounts)


def _resolved(
    view: View, catalog: Catalog, target: str, kind: str, to: str, name: str | None = None
) -> Named:
    try:
        destination = resolve(target, view.world)
    except UnknownModel as unknown:
        return Named(name or target, kind, to, False, str(unknown), ())
    found = outlook(destination.combo, view.world)
    facts = _facts(view, catalog, destination.combo.models[0]) if destination.direct else None
    return Named(name or target, kind, to, found.usable, found.why, found.speaks, facts)


def _facts(view: View, catalog: Catalog, entry: Entry) -> Facts | None:
    alias, _, model = entry.model.partition("/")
    provider = view.world.registry.find(alias)
    return catalog.facts(provider, model) if provider else None


def _provider(view: View, provider: Provider) -> Named:
    found = outlook(_any_model(provider), view.world)
    speaks = spoken_by(provider, view.world)
    title = provider.title or provider.name
    return Named(f"{provider.name}/…", "provider", title, found.usable, found.why, speaks)


def _any_model(provider: Provider) -> Combo:
    return _only(Entry(model=f"{provider.name}/any"))


def _only(entry: Entry) -> Combo:
    return Combo(name="only", models=(entry,))


@click.command(cls=Command)
@click.argument("name", required=False)
@place_options
@json_option
def combos(
    name: str | None, home: str | None, config: str | None, combos: str | None, as_json: bool
) -> None:
    """List the combos, or the entries of one.

    JSON without NAME: a list of name, description, strategy, entries, source, served, problems.
    JSON with NAME: name, description, strategy, source, entries, each with place, model, kind
    (model, combo), label, reads (yes, no or unknown for image, pdf, audio, video) and window as
    they hold for the entry, accounts, usable, why, speaks.
    """
    view = open_view(find_paths(home, config, combos), required=config is not None)
    if name is None:
        _list_combos([*_served(view), *_unserved(view)], as_json)
    else:
        _show_combo(view, name.removeprefix("combo/"), as_json)


def _list_combos(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    columns = ("name", "strategy", "entries", "source", "problems")
    print_table(columns, [_combo_row(combo) for combo in found])


def _combo_row(combo: dict[str, Any]) -> tuple[str, ...]:
    return (
        combo["name"],
        combo["strategy"] or "not served",
        ", ".join(combo["entries"]),
        combo["source"],
        " ".join(combo["problems"]),
    )


def _served(view: View) -> Iterator[dict[str, Any]]:
    for name, combo in view.store.combos.items():
        yield {
            "name": name,
            "description": combo.description,
            "strategy": combo.strategy,
            "entries": [entry.model for entry in combo.models],
            "source": str(view.store.source(name)),
            "served": True,
            "problems": _problems_in(view, str(view.store.source(name))),
        }


def _unserved(view: View) -> Iterator[dict[str, Any]]:
    """Files that give no combo, and why."""
    sources = {str(view.store.source(name)) for name in view.store.combos}
    files = dict.fromkeys(problem.file for problem in view.store.problems)
    for file in files:
        if file not in sources:
            yield {
                "name": Path(file).stem,
                "description": None,
                "strategy": None,
                "entries": [],
                "source": file,
                "served": False,
                "problems": _problems_in(view, file),
            }


def _problems_in(view: View, file: str) -> list[str]:
    return [
        " ".join(filter(None, (f"{p.path}:" if p.path else "", p.message, p.hint)))
        for p in view.store.problems
        if p.file == file
    ]


def _show_combo(view: View, name: str, as_json: bool) -> None:
    combo = view.world.combos.get(name)
    if combo is None:
        if fault := view.store.unserved.get(name):
            raise NotThere(f"the combo {name} is not served: {fault}")
        near = did_you_mean(name, view.world.combos)
        raise NotThere(f"there is no combo {name!r}. {near}".strip())
    found = [_entry(view, place, entry) for place, entry in enumerate(combo.models, 1)]
    if as_json:
        shown = {"name": name, "description": combo.description, "strategy": combo.strategy}
        print_json({**shown, "source": str(source_of(view, name)), "entries": found})
        return
    say(f"{name}: {combo.strategy}, from {source_of(view, name)}", err=True)
    facts = [_entry_facts(view, entry) for entry in combo.models]
    columns = ("#", "model", "label", "reads", "window", "accounts", "usable", "speaks")
    print_table(columns, [_entry_row(*each) for each in zip(found, facts, strict=True)])


def _entry(view: View, place: int, entry: Entry) -> dict[str, Any]:
    found = outlook(_only(entry), view.world)
    provider = view.world.registry.find(entry.model.partition("/")[0])
    accounts = view.world.accounts[provider.name] if provider else ()
    allowed = entry.accounts
    facts = _entry_facts(view, entry)
    return {
        "place": place,
        "model": entry.model,
        "kind": "combo" if reference(entry.model) else "model",
        "label": entry.label,
        "reads": dict(facts.reads) if facts else None,
        "window": facts.window if facts else None,
        "accounts": [a.name for a in accounts if allowed is None or a.name in allowed],
        "usable": found.usable,
        "why": found.why,
        "speaks": list(found.speaks),
    }


def _entry_facts(view: View, entry: Entry) -> Facts | None:
    """What holds for an entry, its own corrections included; None for a combo."""
    facts = _facts(view, view.world.catalog, entry) if reference(entry.model) is None else None
    return with_entry(facts, entry) if facts else None


def _entry_row(entry: dict[str, Any], facts: Facts | None) -> tuple[str, ...]:
    return (
        str(entry["place"]),
        entry["model"],
        entry["label"] or "",
        _reads(facts) if facts else "",
        _tokens(facts.window) if facts else "",
        ", ".join(entry["accounts"]),
        "yes" if entry["usable"] else f"no: {entry['why']}",
        ", ".join(entry["speaks"]),
    )
