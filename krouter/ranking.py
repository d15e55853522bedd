"""The order in which a provider's accounts are tried. Pure: clock and chance are passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from krouter.accounts import Account, ranked
from krouter.health import HEALTHY, NEUTRAL, Health, zenith
from krouter.quota import SPENT
from krouter.settings import AccountStrategy, ProviderSettings, RoutingSettings

Chance = Callable[[], float]
"""Gives a number from 0 up to 1."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of one provider's accounts, by name: their health, the share of the quota
    that is left where it is known, and the turn of the rotation, from 0."""

    health: Mapping[str, Health] = field(default_factory=dict)
    left: Mapping[str, float] = field(default_factory=dict)
    turn: int = 0


class Place(NamedTuple):
    """An account at its place, with its Zenith score, and why it stands there."""

    account: Account
    score: float
    reason: str


def strategy_of(own: ProviderSettings, routing: RoutingSettings) -> tuple[AccountStrategy, int]:
    """The account strategy and sticky limit of a provider: its own, else the global ones."""
    return (
        own.account_strategy or routing.account_strategy,
        own.account_sticky_limit or routing.account_sticky_limit,
    )


def order(
    accounts: Iterable[Account],
    strategy: AccountStrategy,
    standing: Standing,
    now: float,
    chance: Chance,
    sticky_limit: int = 3,
    session_account: str | None = None,
) -> list[Place]:
    """All of `accounts`, which are one provider's. Locks are not looked at here.

    `session_account` served this conversation last: it stays in front while it is healthy, but
    never in a rotation.
    """
    places = [_scored(account, standing, now) for account in ranked(accounts)]
    match strategy:
        case "zenith":
            places = _by_score(places)
        case "fill-first":
            places = [each._replace(reason=f"priority {each.account.priority}") for each in places]
        case "round-robin":
            return _rotated(places, standing.turn, sticky_limit)
        case "p2c":
            places = _better_of_two(places, chance)
        case "random":
            places = _shuffled(places, chance)
    return _kept_in_front(places, session_account, standing, now)


def _scored(account: Account, standing: Standing, now: float) -> Place:
    health = standing.health.get(account.name, NEUTRAL).drifted(now)
    left = standing.left.get(account.name)
    quota = "" if left is None else f", {left:.0%} left"
    reason = f"{health.success:.0%} answered, first byte {health.first_byte:.1f} s{quota}"
    return Place(account, zenith(health, left, account.priority), reason)


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


def _kept_in_front(
    places: list[Place], name: str | None, standing: Standing, now: float
) -> list[Place]:
    place = next((each for each in places if each.account.name == name), None)
    if place is None or not is_healthy(place.account.name, standing, now):
        return places
    front = place._replace(reason=f"serves this conversation: {place.reason}")
    return [front, *(each for each in places if each is not place)]


def is_healthy(name: str, standing: Standing, now: float) -> bool:
    """Whether a conversation may stay on an account: it answers, and its quota is not spent."""
    health = standing.health.get(name, NEUTRAL).drifted(now)
    return health.success >= HEALTHY and standing.left.get(name, 1.0) > SPENT
