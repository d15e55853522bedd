"""Zenith's promises, over any history that calls can make."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.errors import Failure
from krouter.health import (
    ACCOUNT_FAILURES,
    HALF_LIFE,
    HEALTHY,
    IDLE_SECONDS,
    NEUTRAL,
    NEUTRAL_FIRST_BYTE,
    Health,
    HealthBook,
    quota_share,
    zenith,
)
from tests.harness import Clock

PAIR = ("glm", "a")
shares = st.floats(0, 1)
priorities = st.integers(1, 1000)
seconds = st.floats(0, 1000)
healths = st.builds(Health, success=shares, first_byte=st.floats(0, 60), at=st.just(0.0))


def after(history: Sequence[float | Failure], clock: Clock | None = None) -> Health:
    """The health after waits of answers and failures, a second apart."""
    clock = clock or Clock()
    book = HealthBook(clock)
    for event in history:
        clock.forward(1)
        if isinstance(event, Failure):
            book.fail(*PAIR, event)
        else:
            book.succeed(*PAIR, event)
    return book.of(*PAIR)


@given(healths, priorities)
def test_unknown_quota_is_neutral(health: Health, priority: int) -> None:
    assert zenith(health, None, priority) == zenith(health, 1.0, priority)
    assert zenith(health, None, priority) == zenith(health, 0.3, priority)


@given(healths, priorities, shares)
def test_less_quota_never_scores_higher(health: Health, priority: int, left: float) -> None:
    assert zenith(health, left, priority) <= zenith(health, None, priority)
    assert zenith(health, left / 2, priority) <= zenith(health, left, priority)


@given(healths, priorities)
def test_five_percent_left_scores_under_half(health: Health, priority: int) -> None:
    whole = zenith(health, None, priority)
    assert zenith(health, 0.05, priority) < whole / 2 or whole == 0


@given(st.floats(0, 60), st.floats(0, 60), priorities, priorities, shares | st.none())
def test_a_failing_account_loses_to_a_healthy_one_of_lower_priority(
    fast: float, slow: float, better: int, worse: int, left: float | None
) -> None:
    """However fast it fails, and however slow the healthy one is."""
    failing = after([fast] * 5 + [Failure.SERVER_ERROR])
    assert zenith(failing, left, better) < zenith(after([slow] * 5), left, worse)


@given(healths, priorities, shares | st.none())
def test_among_equals_priority_decides(health: Health, priority: int, left: float | None) -> None:
    better, worse = (zenith(health, left, number) for number in (priority, priority + 1))
    assert better > worse or better == worse == 0


@given(st.lists(seconds | st.sampled_from(Failure), max_size=20), seconds)
def test_a_failure_never_raises_the_score(history: list[float | Failure], idle: float) -> None:
    before = after(history)
    failed = before.after_failure(before.at + idle)
    now = failed.at
    assert zenith(failed, None, 1) <= zenith(before.drifted(now), None, 1)
    assert failed.first_byte == before.drifted(now).first_byte


@given(healths, seconds, seconds)
def test_an_idle_account_drifts_back_to_neutral(health: Health, idle: float, more: float) -> None:
    def away(now: float) -> tuple[float, float]:
        drifted = health.drifted(now)
        return 1 - drifted.success, abs(drifted.first_byte - NEUTRAL_FIRST_BYTE)

    assert all(
        later <= sooner + 1e-9 for later, sooner in zip(away(idle + more), away(idle), strict=True)
    )
    assert away(86_400) == pytest.approx((0, 0), abs=1e-6)


def test_the_drift_begins_after_a_minute_and_has_its_half_life() -> None:
    failed = Health(success=0.2, first_byte=11.0)
    assert failed.drifted(IDLE_SECONDS) == failed
    half = failed.drifted(IDLE_SECONDS + HALF_LIFE)
    assert (half.success, half.first_byte) == pytest.approx((0.6, 7.0))


def test_one_failure_leaves_an_account_unhealthy_until_it_answers() -> None:
    assert after([1.0]).success >= HEALTHY
    assert after([1.0, Failure.OVERLOADED]).success < HEALTHY
    assert after([1.0, Failure.OVERLOADED, 1.0]).success >= HEALTHY


@pytest.mark.parametrize("failure", Failure)
def test_only_an_accounts_own_failures_count_against_it(failure: Failure) -> None:
    assert (after([failure]).success < 1) == (failure in ACCOUNT_FAILURES)


def test_an_answer_without_a_telling_wait_leaves_the_wait_alone() -> None:
    clock = Clock()
    book = HealthBook(clock)
    book.succeed(*PAIR, 10.0)
    book.succeed(*PAIR, None)
    assert book.of(*PAIR).first_byte == pytest.approx(3.0 + 7.0 * 0.3)


@pytest.mark.parametrize(
    ("left", "share"), [(None, 1), (1, 1), (0.3, 1), (0.15, 0.5), (0.03, 0.1), (0, 0.1)]
)
def test_the_share_that_quota_leaves(left: float | None, share: float) -> None:
    assert quota_share(left) == pytest.approx(share)


def test_the_book_is_bounded_and_forgets() -> None:
    book = HealthBook(Clock(), size=2)
    for name in "abc":
        book.fail("glm", name, Failure.OVERLOADED)
    assert book.of("glm", "a") == NEUTRAL
    assert book.of("glm", "c").success < 1
    book.forget("glm", "c")
    assert book.of("glm", "c") == NEUTRAL


def test_accounts_in_use() -> None:
    clock = Clock()
    book = HealthBook(clock)
    book.succeed("glm", "a", 1.0)
    clock.forward(100)
    book.fail("glm", "b", Failure.BAD_REQUEST)
    assert book.used_since(clock.now - 100) == [("glm", "a"), ("glm", "b")]
    assert book.used_since(clock.now - 99) == [("glm", "b")]
