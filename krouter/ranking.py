"""The order in which a provider's accounts are tried. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from krouter.health import HEALTHY, NEUTRAL, Health, zenith
from krouter.quota import SPENT
from krouter.settings import AccountStrategy, ProviderSettings, RoutingSettings

Chance = Callable[[], float]
"""Gives a number from 0 up to 1."""

DRAW_LOTS: frozenset[AccountStrategy] = frozenset(("p2c", "random"))


@dataclass(frozen=True, slots=True)
class AccountsSnapshot:
    """All that the order of one provider's accounts follows from, as it was at `now`.

    By name: their priority, 1 being the first, their health, and the share of the quota that is
    left where it is known. `turn` is the turn of the rotation, from 0; `kept` served this
    conversation last; `seed` is what random choices follow from. Locks are not looked at here.
    """

    strategy: AccountStrategy
    priorities: Mapping[str, int]
    health: Mapping[str, Health] = field(default_factory=dict)
    left: Mapping[str, float] = field(default_factory=dict)
    now: float = 0.0
    turn: int = 0
    sticky_limit: int = 3
    kept: str = ""
    seed: int = 0


class Place(NamedTuple):
    """An account at its place, with its Zenith score, and why it stands there."""

    account: str
    score: float
    reason: str


def account_strategy_of(
    own: ProviderSettings, routing: RoutingSettings
) -> tuple[AccountStrategy, int]:
    """The account strategy and sticky limit of a provider: its own, else the global ones."""
    return (
        own.account_strategy or routing.account_strategy,
        own.account_sticky_limit or routing.account_sticky_limit,
    )


def order(given: AccountsSnapshot, chance: Chance | None = None) -> list[Place]:
    """The accounts, best first; those of one priority as they were given.

    `chance` is asked by the strategies that draw lots; left out, it follows from the seed. Who
    served the conversation stays in front while it is healthy, but never in a rotation.
    """
    names = sorted(given.priorities, key=lambda name: given.priorities[name])
    places = [_scored(name, given) for name in names]
    match given.strategy:
        case "zenith":
            places = _by_score(places)
        case "fill-first":
            places = [
                each._replace(reason=f"priority {given.priorities[each.account]}")
                for each in places
            ]
        case "round-robin":
            return _rotated(places, given.turn, given.sticky_limit)
        case "p2c":
            places = _better_of_two(places, chance or Random(given.seed).random)  # noqa: S311
        case "random":
            places = _shuffled(places, chance or Random(given.seed).random)  # noqa: S311
    return _kept_in_front(places, given)


def _scored(name: str, given: AccountsSnapshot) -> Place:
    health = given.health.get(name, NEUTRAL).drifted(given.now)
    left = given.left.get(name)
    quota = "" if left is None else f", {left:.0%} left"
    how = f"health {health.success:.0%}"
    if health.first_byte != NEUTRAL.first_byte:
        how += f", first byte about {health.first_byte:.1f} s"
    reason = f"{how if name in given.health else 'not asked yet'}{quota}"
    return Place(name, zenith(health, left, given.priorities[name]), reason)


def _by_score(places: list[Place]) -> list[Place]:
    return sorted(places, key=lambda place: -place.score)


def _rotated(places: list[Place], turn: int, sticky_limit: int) -> list[Place]:
    if not places:
        return []
    first = turn // sticky_limit % len(places)
    reason = f"turn {turn % sticky_limit + 1} of {sticky_limit}"
    front, *rest = places[first:] + places[:first]
    return [front._replace(reason=reason), *(each._replace(reason="rotated") for each in rest)]


def _better_of_two(places: list[Place], chance: Chance) -> list[Place]:
    if len(places) < 2:
        return places
    one = int(chance() * len(places))
    other = int(chance() * (len(places) - 1))
    pair = [places[one], places[other + (other >= one)]]
    pair.sort(key=lambda place: (-place.score, places.index(place)))
    best = pair[0]._replace(reason=f"better of two: {pair[0].reason}")
    return [best, *_by_score([place for place in places if place is not pair[0]])]


def _shuffled(places: list[Place], chance: Chance) -> list[Place]:
    left, shuffled = list(places), []
    while left:
        shuffled.append(left.pop(int(chance() * len(left)))._replace(reason="random"))
    return shuffled


def _kept_in_front(places: list[Place], given: AccountsSnapshot) -> list[Place]:
    place = next((each for each in places if each.account == given.kept), None)
    if place is None or not is_healthy(place.account, given):
        return places
    front = place._replace(reason=f"serves this conversation: {place.reason}")
    return [front, *(each for each in places if each is not place)]


def is_healthy(name: str, given: AccountsSnapshot) -> bool:
    """Whether a conversation may stay on an account: it answers, and its quota is not spent."""
    health = given.health.get(name, NEUTRAL).drifted(given.now)
    return health.success >= HEALTHY and given.left.get(name, 1.0) > SPENT
