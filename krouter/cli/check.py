"""`krouter check`: what each combo can answer, and everything wrong with files, settings,
credentials and coverage, one line each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from krouter.adapter import Adapter, lane_for, load_lanes, provider_of
from krouter.adapterfaults import adapter_faults
from krouter.cli.common import Command, NotThere, find_paths, json_option, place_options
from krouter.cli.keys import unknown_models
from krouter.cli.matrix import Sight
from krouter.cli.output import print_json, say, say_line
from krouter.combos import Combo, Entry, reference, references
from krouter.combostore import ComboStore
from krouter.dialects import DIALECTS
from krouter.faults import credential_faults, open_to_others, unknown_accounts
from krouter.keys import list_keys
from krouter.lineup import missing_account, out_of_reach
from krouter.load import Config, House, load_config, open_combos
from krouter.paths import Paths
from krouter.problems import ConfigError, Problem, did_you_mean, json_path
from krouter.providers import Provider
from krouter.rehearsal import Stage
from krouter.route import Skip
from krouter.secrets import Secrets
from krouter.trial import misnamed
from krouter.wire import HttpWire


@click.command(cls=Command)
@click.argument("combo", required=False)
@place_options
@json_option
def check(
    combo: str | None, home: str | None, config: str | None, combos: str | None, as_json: bool
) -> None:
    """Check files, settings, credentials, and what can be answered.

    With COMBO only what concerns this combo and those it names. Commands that print a
    credential are not run, and no provider is asked. Exit code 1 where there are errors;
    warnings alone are 0.

    Of each combo it shows what its models take, and what they do together; '?' is unknown. A set
    of needs that no entry takes whole is a dead end, which is an error unless the combo has it in
    its "accept". Then come the bounds of one request: how many models can be tried, how many
    attempts made, and how long the caller can wait until the reply begins. Accounts that are
    missing are taken to be there, and warned of.

    JSON: ok, problems, each with file, path, message, hint, level (error, warning), and combos,
    each with name, source, strategy, aliases, windows (in tokens, the smallest first), entries
    (model, combos it stands in, role: entry, panel, judge or adapter; yes, no or unknown for
    image, pdf, audio, video, tools, json; window, missing), answers (yes, no or unknown for every
    set of needs, written as in "accept"), dead_ends (needs, over: tokens, accepted, why),
    without_account (needs that nobody with an account takes), returned (over: tokens, by), bounds
    (models, attempts; seconds and silent_seconds, each streamed and whole).
    """
    paths = find_paths(home, config, combos)
    if config is not None and not os.path.isfile(paths.config):
        raise ConfigError([Problem(str(paths.config), "", "no such file.")])
    store = open_combos(paths)
    settings, found = _config(paths)
    if combo is None:
        found += [*_house(paths, settings, store), *store.problems]
        names = list(store.combos)
    else:
        names = _reached(combo.removeprefix("combo/"), store.combos)
        found += _files(combo.removeprefix("combo/"), names, store)
    if settings:
        found += _expected(paths, store, names)
        used = None if combo is None else _used(settings, store, names)
        found += _credentials(paths, settings, used)
        found += _entries(settings, store, names)
    sights = _sights(paths, store, names if combo is None else names[:1]) if settings else []
    for sight in sights:
        found += sight.problems(str(store.source(sight.combo.name)))
    _report(list(dict.fromkeys(found)), sights, store, as_json)


def _sights(paths: Paths, store: ComboStore, names: Iterable[str]) -> list[Sight]:
    world = House(paths, os.environ, HttpWire(), store=store, ledger=False).router.world
    return [Sight(store.combos[name], world) for name in names]


def _expected(paths: Paths, store: ComboStore, names: Iterable[str]) -> Iterator[Problem]:
    """Names in `expect` that mean nobody, as `krouter test` would say it."""
    asked = [store.combos[name] for name in names if store.combos[name].expect]
    if not asked:
        return
    house = House(paths, os.environ, HttpWire(), store=store, ledger=False)
    world = Stage.of(house.router.world).world
    for combo in asked:
        yield from misnamed(combo, world, str(store.source(combo.name)))


def _config(paths: Paths) -> tuple[Config | None, list[Problem]]:
    try:
        return load_config(paths, os.environ), []
    except ConfigError as error:
        return None, list(error.problems)


def _report(found: list[Problem], sights: list[Sight], store: ComboStore, as_json: bool) -> None:
    found.sort(key=lambda problem: problem.level)
    errors = sum(problem.level == "error" for problem in found)
    if as_json:
        combos = [sight.as_json(str(store.source(sight.combo.name))) for sight in sights]
        problems = [asdict(problem) for problem in found]
        print_json({"ok": not errors, "problems": problems, "combos": combos})
    else:
        for number, sight in enumerate(sights):
            say() if number else None
            sight.show()
        say() if sights and found else None
        for problem in found:
            say_line(f"{problem}{' [warning]' if problem.level == 'warning' else ''}")
        say(f"{_count(errors, 'error')}, {_count(len(found) - errors, 'warning')}", err=True)
    click.get_current_context().exit(1 if errors else 0)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _house(paths: Paths, config: Config | None, store: ComboStore) -> Iterator[Problem]:
    """Aliases, the vision adapter and keys."""
    if config:
        file = str(paths.config)
        yield from _aliases(config, store.combos, file)
        yield from adapter_faults(config, store.combos, file)
    yield from open_to_others(paths, config.settings if config else None, os.environ)
    try:
        yield from _keys(paths)
    except ConfigError as error:
        yield from error.problems


def _keys(paths: Paths) -> Iterator[Problem]:
    """Names that keys are limited to, and that nothing has. Raises ConfigError for a file that
    cannot be understood."""
    for place, key in enumerate(list_keys(paths.keys)):
        for unknown in unknown_models(key, paths):
            where = json_path(("keys", place, "models"))
            yield Problem(str(paths.keys), where, f"key {key.name!r}: {unknown}", "", "warning")


def _credentials(paths: Paths, config: Config, providers: Set[str] | None) -> Iterator[Problem]:
    secrets = Secrets(os.environ, folder=paths.home)
    settings, registry, accounts = config.settings, config.registry, config.accounts
    file = str(paths.config)
    return credential_faults(settings, registry, accounts, secrets, file, providers)


def _used(config: Config, store: ComboStore, names: Iterable[str]) -> Set[str]:
    """The providers that these combos use, judges included."""
    combos = [store.combos[name] for name in names]
    models = [entry.model for combo in combos for entry in combo.models]
    models += [combo.judge_name for combo in combos if combo.judge_name]
    found = (config.registry.split(model)[0] for model in models if reference(model) is None)
    return {provider.name for provider in found if provider is not None}


def _aliases(config: Config, combos: Mapping[str, Combo], file: str) -> Iterator[Problem]:
    for name, target in config.settings.aliases.items():
        provider, _, model = target.partition("/")
        known = target.removeprefix("combo/") in combos or (
            model and config.registry.find(provider) is not None
        )
        known = known or provider_of(target) is not None
        if name.removeprefix("combo/") in combos:
            message = f"{name!r} is never looked up: a combo has that name, and goes first."
            yield Problem(file, json_path(("aliases", name)), message, "", "warning")
        if not known:
            message = f"{target!r} is neither a combo nor provider/model."
            yield Problem(
                file, json_path(("aliases", name)), message, _near(target, config, combos)
            )


def _near(target: str, config: Config, combos: Mapping[str, Combo]) -> str:
    provider, slash, _ = target.partition("/")
    if not slash or provider == "combo":
        return did_you_mean(target.removeprefix("combo/"), combos)
    return did_you_mean(provider, config.registry.names_with_aliases())


def _reached(name: str, combos: Mapping[str, Combo]) -> list[str]:
    """`name` and every combo it runs."""
    names = [name] if name in combos else []
    for each in names:
        names += dict.fromkeys(n for _, n in references(combos[each]) if n not in names)
    return names


def _files(name: str, names: list[str], store: ComboStore) -> list[Problem]:
    """What is wrong with the files of `names`, and of the combo `name` if it is not served."""
    files = {str(store.source(each)) for each in names}
    found = [p for p in store.problems if p.file in files or Path(p.file).stem == name]
    if not (names or found):
        raise NotThere(f"there is no combo {name!r}. {did_you_mean(name, store.combos)}".strip())
    return found


def _entries(config: Config, store: ComboStore, names: Iterable[str]) -> Iterator[Problem]:
    """What is wrong with combos that are well formed."""
    checker = _Entries(config, load_lanes())
    for name in names:
        yield from checker.check(store.combos[name], str(store.source(name)))


def _out_of_reach(provider: Provider) -> str:
    reason, detail = out_of_reach(provider)
    if reason is Skip.NEEDS_TRANSLATION:
        spoken = ", ".join(provider.speaks) or "nothing"
        return f"{provider.name} speaks only {spoken}: translation is not built."
    return f"{provider.name} {reason}: {detail}."


def panel_faults(combo: Combo, file: str) -> Iterator[Problem]:
    """What of a fusion makes every call fail, and what of it has no effect."""
    tuning, size = combo.fusion_tuning, len(combo.models)

    def warning(path: str, message: str, hint: str = "") -> Problem:
        return Problem(file, path, message, hint, "warning")

    if combo.strategy != "fusion":
        message = f"has no effect: only a fusion has it, and the strategy is {combo.strategy}."
        given = [("$.judge", combo.judge), ("$.fusionTuning", tuning.model_fields_set)]
        yield from (warning(path, message) for path, value in given if value)
        return
    if size == 1:
        yield warning("$.models", "a panel of one is a plain call: nobody judges.")
        return
    if size > tuning.max_panel:
        message = f"the panel has {size} entries, and maxPanel allows {tuning.max_panel}."
        yield Problem(file, "$.models", message, "Every call is answered 400.")
    if tuning.min_panel > size and "min_panel" in tuning.model_fields_set:
        message = f"asks for {tuning.min_panel} answers of a panel of {size}: {size} are enough."
        yield warning("$.fusionTuning.minPanel", message)
    if tuning.straggler_grace_ms > tuning.panel_hard_timeout_ms:
        message = f"is longer than panelHardTimeoutMs, which is {tuning.panel_hard_timeout_ms}."
        yield warning("$.fusionTuning.stragglerGraceMs", message)
    if tuning.require_quorum and tuning.min_panel > 1 and "on_single" in tuning.model_fields_set:
        message = "has no effect: requireQuorum makes one answer alone a failure."
        yield warning("$.fusionTuning.onSingle", message)
    if combo.sticky_limit is not None:
        yield warning("$.stickyLimit", "has no effect: a panel is asked as a whole.")
    for place, entry in enumerate(combo.models):
        if entry.timeouts is not None:
            path = json_path(("models", place, "timeouts"))
            yield warning(path, "has no effect on the calls of a panel, see panelHardTimeoutMs.")
    if combo.judge and tuning.judge_model and combo.judge != tuning.judge_model:
        message = f"{tuning.judge_model!r} does not judge: {combo.judge!r} does."
        yield warning("$.fusionTuning.judgeModel", message, "Leave out one of the two.")
    if tuning.on_single == "judge" and not combo.judge_name:
        message = "has no effect: nobody is named as the judge."
        yield warning("$.fusionTuning.onSingle", message, "Name one under judge.")


@dataclass(frozen=True, slots=True)
class _Entries:
    """Looks for entries that can never be sent to."""

    config: Config
    lanes: tuple[Adapter, ...]

    def check(self, combo: Combo, file: str) -> Iterator[Problem]:
        yield from panel_faults(combo, file)
        yield from unknown_accounts(combo, self.config.registry, self.config.accounts, file)
        for place, entry in enumerate(combo.models):
            if reference(entry.model) is None:
                yield from self._entry(entry, file, json_path(("models", place)))
        if combo.judge_name and "/" in combo.judge_name and reference(combo.judge_name) is None:
            path = "$.judge" if combo.judge else "$.fusionTuning.judgeModel"
            judge = Entry.model_construct(model=combo.judge_name)
            yield from self._entry(judge, file, path, "cannot judge")

    def _entry(
        self, entry: Entry, file: str, path: str, then: str = "is skipped"
    ) -> Iterator[Problem]:
        alias = entry.model.partition("/")[0]
        provider = self.config.registry.find(alias)
        if provider is None:
            hint = did_you_mean(alias, self.config.registry.names_with_aliases())
            yield Problem(file, path, f"unknown provider {alias!r} in {entry.model!r}.", hint)
            return
        if not any(lane_for(self.lanes, provider, dialect) for dialect in DIALECTS):
            yield Problem(file, path, _out_of_reach(provider), "", "warning")
        if not self.config.accounts[provider.name]:
            message = f"{entry.model!r} {then}: no account for {provider.name}."
            hint = missing_account(provider, None)
            yield Problem(file, path, message, f"{hint[0].upper()}{hint[1:]}.", "warning")
