"""The order of accounts, by every strategy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.accounts import Account
from krouter.errors import Failure
from krouter.health import Health
from krouter.pool import Pool
from krouter.ranking import Standing, order, strategy_of
from krouter.reporter import Figure, Report
from krouter.settings import AccountStrategy, ProviderSettings, RoutingSettings
from tests.harness import Clock

NOW = 1000.0
STRATEGIES: tuple[AccountStrategy, ...] = ("zenith", "fill-first", "round-robin", "p2c", "random")
UNKNOWN = Standing()
FAILING = Health(success=0.3, at=NOW)


def accounts(names: str = "abc", **priorities: int) -> list[Account]:
    numbered = enumerate(names, 1)
    return [Account("glm", name, priority=priorities.get(name, place)) for place, name in numbered]


def names(
    strategy: AccountStrategy,
    standing: Standing = UNKNOWN,
    *,
    chances: tuple[float, ...] = (),
    session: str | None = None,
    given: list[Account] | None = None,
) -> str:
    drawn: Iterator[float] = iter(chances)
    places = order(
        accounts() if given is None else given,
        strategy,
        standing,
        NOW,
        lambda: next(drawn),
        3,
        session,
    )
    return "".join(place.account.name for place in places)


@pytest.mark.parametrize(
    ("health", "left", "expected"),
    [
        ({}, {}, "abc"),
        ({"a": FAILING}, {}, "bca"),
        ({"a": FAILING, "b": FAILING}, {}, "cab"),
        ({"a": Health(first_byte=9.0, at=NOW)}, {}, "bca"),
        ({"a": Health(first_byte=4.0, at=NOW)}, {}, "abc"),
        ({}, {"a": 0.05}, "bca"),
        ({}, {"a": 0.3, "b": 1.0}, "abc"),
        ({}, {"a": 0.05, "b": 0.1, "c": 0.2}, "cba"),
        ({"c": Health(first_byte=1.0, at=NOW)}, {}, "acb"),
        ({"a": Health(success=0.3, at=NOW - 86_400)}, {}, "abc"),
    ],
)
def test_zenith(health: Mapping[str, Health], left: Mapping[str, float], expected: str) -> None:
    assert names("zenith", Standing(health, left)) == expected


def test_fill_first_is_by_priority_alone() -> None:
    standing = Standing({"a": FAILING}, {"a": 0.0})
    assert names("fill-first", standing) == "abc"
    assert names("fill-first", standing, given=accounts(a=9)) == "bca"


def test_round_robin_changes_every_sticky_limit_of_requests() -> None:
    orders = [names("round-robin", Standing(turn=turn)) for turn in range(10)]
    assert orders == ["abc"] * 3 + ["bca"] * 3 + ["cab"] * 3 + ["abc"]


def test_round_robin_rotates_over_those_that_are_left() -> None:
    assert names("round-robin", Standing(turn=4), given=accounts("ab")) == "ba"
    assert names("round-robin", Standing(turn=4), given=accounts("a")) == "a"


@pytest.mark.parametrize(
    ("chances", "expected"),
    [
        ((0.0, 0.0), "bca"),  # a and b
        ((0.0, 0.99), "cba"),  # a and c
        ((0.99, 0.5), "bca"),  # c and b
        ((0.5, 0.99), "bca"),  # b and c
    ],
)
def test_p2c_takes_the_better_of_two(chances: tuple[float, ...], expected: str) -> None:
    assert names("p2c", Standing({"a": FAILING}), chances=chances) == expected


def test_random_draws_every_place() -> None:
    assert names("random", chances=(0.99, 0.0, 0.0)) == "cab"
    assert names("random", chances=(0.0, 0.0, 0.0)) == "abc"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_conversation_stays_but_never_in_a_rotation(strategy: AccountStrategy) -> None:
    first = names(strategy, session="c", chances=(0.0, 0.0, 0.0))[0]
    assert first == ("a" if strategy == "round-robin" else "c")


@pytest.mark.parametrize(
    ("standing", "stays"),
    [
        (Standing(), True),
        (Standing({"c": Health(success=0.7, first_byte=50.0, at=NOW)}, {"c": 0.1}), True),
        (Standing({"c": FAILING}), False),
        (Standing({"c": Health(success=0.3, at=NOW - 3600)}), True),
        (Standing({}, {"c": 0.02}), False),
    ],
)
def test_a_conversation_stays_only_while_its_account_is_healthy(
    standing: Standing, stays: bool
) -> None:
    assert (names("zenith", standing, session="c")[0] == "c") == stays
    assert names("zenith", session="gone") == "abc"


@st.composite
def situations(draw: st.DrawFn) -> tuple[Any, ...]:
    found = [
        Account("glm", name, priority=draw(st.integers(1, 5)))
        for name in draw(st.lists(st.sampled_from("abcdef"), unique=True))
    ]
    each = st.sampled_from("abcdef")
    health = st.builds(Health, st.floats(0, 1), st.floats(0, 60), st.floats(0, NOW))
    standing = Standing(
        draw(st.dictionaries(each, health)),
        draw(st.dictionaries(each, st.floats(0, 1))),
        draw(st.integers(0, 1000)),
    )
    draws = draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=6, max_size=6))
    session = draw(each | st.none())
    return found, draw(st.sampled_from(STRATEGIES)), standing, draws, session


@given(situations(), st.integers(1, 9))
def test_every_account_has_one_place_and_the_same_input_gives_the_same(
    situation: tuple[Any, ...], sticky: int
) -> None:
    found, strategy, standing, draws, session = situation

    def once() -> list[Any]:
        drawn = iter(draws)
        return order(found, strategy, standing, NOW, lambda: next(drawn), sticky, session)

    places = once()
    assert sorted(p.account.name for p in places) == sorted(a.name for a in found)
    assert places == once()
    assert all(place.reason for place in places)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, ("p2c", 5)),
        ({"account_strategy": "round-robin"}, ("round-robin", 5)),
        ({"account_strategy": "random", "account_sticky_limit": 2}, ("random", 2)),
    ],
)
def test_a_providers_own_strategy_goes_before_the_global_one(
    own: Mapping[str, Any], expected: tuple[str, int]
) -> None:
    routing = RoutingSettings(account_strategy="p2c", account_sticky_limit=5)
    assert strategy_of(ProviderSettings(**own), routing) == expected


def test_the_pool_puts_together_what_is_known() -> None:
    clock = Clock()
    pool = Pool.empty(clock)

    def first(session: str = "", model: str = "m") -> str:
        turn = pool.turns.take("glm")
        places = pool.order(accounts(), model, "zenith", 3, turn, lambda: 0.0, session)
        return places[0].account.name

    assert first() == "a"
    pool.health.fail("glm", "a", Failure.SERVER_ERROR)
    assert first() == "b"
    pool.quota.note("glm", "b", Report(figures=(Figure("m", 0.05),)), "reported")
    assert (first(), first(model="other")) == ("c", "b")
    pool.sessions.bind("talk", "glm", "b")
    assert (first("talk"), first("else")) == ("b", "c")
    pool.forget("glm", "b")
    assert first() == "b"
    assert pool.turns.peek("glm") == 7
    assert pool.order([], "m", "zenith", 3, 0, lambda: 0.0) == []
