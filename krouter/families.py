"""Which models of the same provider can stand in for one that is gone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from krouter.catalog import Catalog, Facts, FamilyRules, Known, before, canonical, plain, undated
from krouter.combos import Medium
from krouter.providers import Provider

MOST = 3
"""How many related models may be tried for one."""

USUAL_TIER = 1
TIER = 0.25
"""What a tier weighs against a version: a smaller model of today before a big one of last year."""

FAR = 9.0
"""How far apart two models are when only one of them has a version."""

_SIZE = re.compile(r"^(?:a?\d+(?:x\d+)?[bmk]|\d+e)$")
_DOTTED = re.compile(r"\d\.\d")
_HYPHENATED = re.compile(r"(?<=\d)-(?=\d(?!\d))")
_PART = re.compile(r"^([a-z]*)(\d{1,2})([a-z]*)$")


@dataclass(frozen=True, slots=True)
class _Parts:
    """A name taken apart: `special` words make it another kind of model."""

    brand: str
    version: float | None
    tier: int
    special: frozenset[str]
    sizes: frozenset[str]


def related(
    provider: Provider, model: str, catalog: Catalog, tried: Iterable[str] = ()
) -> tuple[str, ...]:
    """At most three models of `provider` that can stand in for `model`, the best first.

    Models are named without the provider; none of those `tried` is among them. One that is known
    not to read what `model` reads is no help, unless the rules list it.
    """
    known = catalog.names(provider)
    rules = catalog.family_rules()
    out = {plain(name) for name in (model, *tried)}
    if siblings := _siblings(model, known, rules):
        return tuple(name for name in siblings if plain(name) not in out)[:MOST]
    needed = _read(catalog.facts(provider, model))
    fit = (
        name
        for name in _nearest(model, known, rules)
        if plain(name) not in out and not needed & _not_read(catalog.facts(provider, name))
    )
    return tuple(islice(fit, MOST))


def _read(facts: Facts) -> set[Medium]:
    return {medium for medium, known in facts.reads.items() if known is Known.YES}


def _not_read(facts: Facts) -> set[Medium]:
    return {medium for medium, known in facts.reads.items() if known is Known.NO}


def _siblings(model: str, known: tuple[str, ...], rules: FamilyRules) -> list[str]:
    """Those that the rules list, in the provider's own spelling; as `model` is spelled where
    nothing is known of the provider's models."""
    listed = rules.siblings.get(canonical(model), ())
    folder = before(model)
    if not known:
        return [folder + _styled(name, like=model) for name in listed]
    spelled: dict[str, str] = {}
    for name in known:
        if before(name) == folder:
            spelled.setdefault(canonical(name), name)
    for name in list(spelled.values()):
        spelled.setdefault(undated(canonical(name)), name)
    return list(dict.fromkeys(spelled[plain(name)] for name in listed if plain(name) in spelled))


def _styled(name: str, like: str) -> str:
    """`name` with its version written 4.7 where `like` has it so."""
    return _HYPHENATED.sub(".", name) if _DOTTED.search(like) else name


def _nearest(model: str, known: tuple[str, ...], rules: FamilyRules) -> list[str]:
    wanted = _parts(model, rules)
    near = [
        (*distance, name)
        for name in _aliases(model, known)
        if (distance := _distance(wanted, _parts(name, rules)))
    ]
    return [name for *_, name in sorted(near)]


def _aliases(model: str, known: tuple[str, ...]) -> Iterable[str]:
    """The shortest name of each model, with what stands before it as before `model`."""
    folder = before(model)
    shortest: dict[str, str] = {}
    for name in sorted(known, key=len):
        if before(name) == folder:
            shortest.setdefault(undated(canonical(name)), name)
    return shortest.values()


def _distance(wanted: _Parts, other: _Parts) -> tuple[float, bool, int, bool] | None:
    """How far apart two models are, in versions; None for another family. The same size, the
    nearest tier and the older come first."""
    if (wanted.brand, wanted.special) != (other.brand, other.special):
        return None
    apart = FAR
    newer = False
    if wanted.version is not None and other.version is not None:
        apart = round(abs(wanted.version - other.version), 2)
        newer = other.version > wanted.version
    elif wanted.version is other.version:
        apart = 0.0
    tiers = abs(wanted.tier - other.tier)
    return apart + TIER * tiers, wanted.sizes != other.sizes, tiers, newer


def _parts(model: str, rules: FamilyRules) -> _Parts:
    words = undated(canonical(model)).split("-")
    sizes = frozenset(word for word in words if _SIZE.match(word))
    letters, numbers = _split(word for word in words if word not in sizes)
    brand = letters[0] if letters else ""
    tiers = [rules.tiers[word] for word in letters if word in rules.tiers]
    special = frozenset(letters[1:]) - rules.tiers.keys() - rules.neutral
    version = float(".".join(numbers[:2])) if numbers else None
    return _Parts(brand, version, max(tiers, default=USUAL_TIER), special, sizes)


def _split(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """The letters and the small numbers of `words`; a number in between is a version's."""
    letters: list[str] = []
    numbers: list[str] = []
    for word in words:
        if part := _PART.match(word):
            before, number, after = part.groups()
            numbers.append(number)
            letters += filter(None, (before, after))
        elif not word.isdigit():
            letters.append(word)
    return letters, numbers
