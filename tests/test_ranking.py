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
from krouter.ranking import AccountsSnapshot, account_strategy_of, order
from krouter.reporter import Figure, Report
from krouter.settings import AccountStrategy, ProviderSettings, RoutingSettings
from tests.harness import Clock

NOW = 1000.0
STRATEGIES: tuple[AccountStrategy, ...] = ("zenith", "fill-first", "round-robin", "p2c", "random")
FAILING = Health(success=0.3, at=NOW)


def accounts(names: str = "abc", **priorities: int) -> list[Account]:
    numbered = enumerate(names, 1)
    return [Account("glm", name, priority=priorities.get(name, place)) for place, name in numbered]


def standing(
    strategy: AccountStrategy = "zenith", given: list[Account] | None = None, **known: Any
) -> AccountsSnapshot:
    found = accounts() if given is None else given
    return AccountsSnapshot(strategy, {a.name: a.priority for a in found}, **{"now": NOW, **known})


def names(
    strategy: AccountStrategy,
    *,
    chances: tuple[float, ...] = (),
    given: list[Account] | None = None,
    **known: Any,
) -> str:
    drawn: Iterator[float] = iter(chances)
    chance = (lambda: next(drawn)) if chances else None
    places = order(standing(strategy, given, **known), chance)
    return "".join(place.account for place in places)


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
    assert names("zenith", health=health, left=left) == expected


def test_fill_first_is_by_priority_alone() -> None:
    known = {"health": {"a": FAILING}, "left": {"a": 0.0}}
    assert names("fill-first", **known) == "abc"
    assert names("fill-first", **known, given=accounts(a=9)) == "bca"


def test_accounts_of_one_priority_keep_their_order() -> None:
    numbers = {"a": 2, "b": 1, "c": 2, "d": 1}
    given = [Account("p", name, priority=number) for name, number in numbers.items()]
    assert names("fill-first", given=given) == "bdac"


def test_round_robin_changes_every_sticky_limit_of_requests() -> None:
    orders = [names("round-robin", turn=turn) for turn in range(10)]
    assert orders == ["abc"] * 3 + ["bca"] * 3 + ["cab"] * 3 + ["abc"]


def test_round_robin_rotates_over_those_that_are_left() -> None:
    assert names("round-robin", turn=4, given=accounts("ab")) == "ba"
    assert names("round-robin", turn=4, given=accounts("a")) == "a"


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
    assert names("p2c", health={"a": FAILING}, chances=chances) == expected


def test_random_draws_every_place() -> None:
    assert names("random", chances=(0.99, 0.0, 0.0)) == "cab"
    assert names("random", chances=(0.0, 0.0, 0.0)) == "abc"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_conversation_stays_but_never_in_a_rotation(strategy: AccountStrategy) -> None:
    first = names(strategy, kept="c", chances=(0.0, 0.0, 0.0))[0]
    assert first == ("a" if strategy == "round-robin" else "c")


@pytest.mark.parametrize(
    ("health", "left", "stays"),
    [
        ({}, {}, True),
        ({"c": Health(success=0.7, first_byte=50.0, at=NOW)}, {"c": 0.1}, True),
        ({"c": FAILING}, {}, False),
        ({"c": Health(success=0.3, at=NOW - 3600)}, {}, True),
        ({}, {"c": 0.02}, False),
    ],
)
def test_a_conversation_stays_only_while_its_account_is_healthy(
    health: Mapping[str, Health], left: Mapping[str, float], stays: bool
) -> None:
    assert (names("zenith", health=health, left=left, kept="c")[0] == "c") == stays
    assert names("zenith", kept="gone") == "abc"


@st.composite
def situations(draw: st.DrawFn) -> AccountsSnapshot:
    each = st.sampled_from("abcdef")
    found = draw(st.lists(each, unique=True))
    health = st.builds(Health, st.floats(0, 1), st.floats(0, 60), st.floats(0, NOW))
    return AccountsSnapshot(
        draw(st.sampled_from(STRATEGIES)),
        {name: draw(st.integers(1, 5)) for name in found},
        draw(st.dictionaries(each, health)),
        draw(st.dictionaries(each, st.floats(0, 1))),
        now=draw(st.floats(0, 2 * NOW)),
        turn=draw(st.integers(0, 1000)),
        sticky_limit=draw(st.integers(1, 9)),
        kept=draw(each | st.just("")),
        seed=draw(st.integers(0, 1 << 53)),
    )


@given(situations())
def test_every_account_has_one_place_and_the_same_input_gives_the_same(
    given: AccountsSnapshot,
) -> None:
    places = order(given)
    assert sorted(place.account for place in places) == sorted(given.priorities)
    assert places == order(given)
    assert all(place.reason for place in places)


def test_lots_are_spread_over_all_by_the_seed() -> None:
    firsts = [names("random", seed=seed)[0] for seed in range(300)]
    assert all(70 < firsts.count(name) < 130 for name in "abc")


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
    assert account_strategy_of(ProviderSettings(**own), routing) == expected


def test_the_pool_puts_together_what_is_known() -> None:
    clock = Clock()
    pool = Pool.empty(clock)

    def first(session: str = "", model: str = "m") -> str:
        turn = pool.turns.take("glm")
        return order(pool.snapshot(accounts(), model, "zenith", 3, turn, session))[0].account

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
