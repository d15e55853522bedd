"""The names in the cases of a combo, and whom each of them means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from krouter.cases import GAPS, ExpectCase
from krouter.combos import Combo, Medium, reference
from krouter.drill import spots_of
from krouter.families import related
from krouter.problems import Problem, did_you_mean, json_path
from krouter.rehearsal import split_name
from krouter.world import World

_GAP = re.compile("|".join(map(re.escape, GAPS)))
_EXACT = 1_000
_NO_QUOTA = "only stands in for a model that is gone: what is left to it moves no entry."


@dataclass(frozen=True, slots=True)
class Name:
    """A name of a case. `rank` is the higher the more exact it is."""

    text: str
    pattern: re.Pattern[str]
    targets: frozenset[str]
    """Of the entries whose label it is."""
    rank: int
    account: str = ""
    """The only one of its provider's that is meant, if it is not all of them."""

    @property
    def is_gap(self) -> bool:
        """Whether it stands for any number of entries, none too."""
        return self.text in GAPS

    def means(self, target: str, account: str = "") -> bool:
        """Whether `target`, a provider's canonical name with a model, or a combo, is meant, and at
        this account."""
        if self.account and self.account != account:
            return False
        return target in self.targets or self.pattern.fullmatch(target) is not None


def fits(names: Sequence[Name], targets: Sequence[str]) -> bool:
    """Whether the names mean just these, in this order."""
    reached = {0}
    for name in names:
        if name.is_gap:
            reached = set(range(min(reached), len(targets) + 1)) if reached else reached
        else:
            reached = {
                place + 1
                for place in reached
                if place < len(targets) and name.means(targets[place])
            }
    return len(targets) in reached


class Cast:
    """Whom the cases of a combo may name: its entries, those of combos in it, judges, and the
    vision adapter's models; all of them as targets, or as they are `written`."""

    def __init__(self, combo: Combo, world: World) -> None:
        self._world = world
        spots = spots_of(combo, world, "chat")
        adapter = world.settings.vision_adapter
        pools = [model for medium in get_args(Medium) for model in getattr(adapter, medium).models]
        self.targets = tuple(dict.fromkeys((*(s.target for s in spots), *map(self.of, pools))))
        entries = [entry.model for entry in combo.models]
        self.own = tuple(map(self.of, entries))
        self.written = tuple(dict.fromkeys((*(s.name for s in spots), *pools, *entries)))
        around = dict.fromkeys(each.name for spot in spots for each in spot.combos)
        self._labels: dict[str, set[str]] = {}
        for entry in (entry for name in around for entry in world.combos[name].models):
            if entry.label:
                self._labels.setdefault(entry.label, set()).add(self.of(entry.model))

    def of(self, model: str) -> str:
        """The target of an entry: its provider's canonical name and its model, or a combo."""
        inner = reference(model)
        if inner is not None:
            return inner
        provider, name = self._world.registry.split(model)
        return f"{provider.name}/{name}" if provider else model

    def name(self, text: str) -> Name:
        """Whom a name means: an entry, a label, a provider, or one of its accounts; `…` stands for
        any text."""
        targets = frozenset(self._labels.get(text, ()))
        alias, mark, account = split_name(text)
        if mark == "@" and not targets and (found := self._world.registry.find(alias)):
            pattern = re.compile(f"{re.escape(found.name)}/.*", re.DOTALL)
            return Name(text, pattern, targets, _EXACT + 1, account)
        provider = self._world.registry.find(text)
        whole = text
        if provider is not None:
            whole = f"{provider.name}/…"
        elif "/" in text:
            whole = self.of(text)
        parts = _GAP.split(whole)
        pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
        exact = targets or len(parts) == 1
        return Name(text, pattern, targets, _EXACT if exact else sum(map(len, parts)))

    def stand_ins(self) -> Iterator[str]:
        """The models that may stand in for those that are gone."""
        for target in self.targets:
            provider, model = self._world.registry.split(target)
            if provider is not None:
                names = related(provider, model, self._world.catalog)
                yield from (f"{provider.name}/{name}" for name in names)

    def at_accounts(self, targets: Sequence[str]) -> list[tuple[str, str]]:
        """Each target without an account, and with each of its own."""
        return [(target, name) for target in targets for name in ("", *self.accounts(target))]

    def accounts(self, target: str) -> list[str]:
        """The accounts that an entry may be sent to."""
        return [each.name for each in self._world.accounts.get(target.partition("/")[0], ())]

    def near(self, text: str) -> str:
        """What the name may be meant for."""
        alias, mark, _ = split_name(text)
        if mark == "@" and (found := self._world.registry.find(alias)):
            accounts = (f"{alias}@{name}" for name in self.accounts(found.name))
            return f"Its accounts, which only what is given can name: {', '.join(accounts)}."
        providers = [name.partition("/")[0] for name in self.written if "/" in name]
        known = dict.fromkeys((*self.written, *self._labels, *providers))
        return did_you_mean(text, known) or f"Its entries: {', '.join(self.written)}."


def misnamed(combo: Combo, world: World, file: str) -> Iterator[Problem]:
    """The names in the cases of `combo`, whose file is `file`, that mean nobody in a stage's
    `world`, or nobody for whom what is given could have an effect."""
    if not combo.expect:
        return
    cast = Cast(combo, world)
    asked = (*cast.targets, *cast.stand_ins())
    known = {
        "fail": cast.at_accounts(asked),
        "locked": cast.at_accounts(asked),
        "quota": cast.at_accounts(cast.targets),
        "order": [(target, "") for target in (*asked, *cast.own)],
        "attempts": [(target, "") for target in asked],
        "reply": [(target, "") for target in asked],
    }
    for number, case in enumerate(combo.expect):
        for where, text in _named(case):
            name, field = cast.name(text), str(where[where[0] == "given"])
            if not name.is_gap and not any(name.means(*each) for each in known[field]):
                path = json_path(("expect", number, *where))
                is_stand_in = any(map(name.means, asked))
                fault = _NO_QUOTA if field == "quota" and is_stand_in else "means no entry."
                yield Problem(file, path, f"{text!r} {fault}", cast.near(text))


def _named(case: ExpectCase) -> Iterator[tuple[tuple[str, *tuple[str | int, ...]], str]]:
    """Each name with its path."""
    given = case.given
    for who in given.fail:
        yield ("given", "fail", who), who
    for place, who in enumerate(given.locked):
        yield ("given", "locked", place), who
    for who in given.quota:
        yield ("given", "quota", who), who
    for place, who in enumerate(case.order or ()):
        yield ("order", place), who
    for place, who in enumerate(case.attempts or ()):
        yield ("attempts", place), who
    if case.reply is not None and case.reply.from_ is not None:
        yield ("reply", "from"), case.reply.from_
