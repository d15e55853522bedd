from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from krouter.allowance import (
    MINUTE,
    PERIODS,
    Period,
    Rate,
    fits,
    parse_budget,
    parse_models,
    period_at,
)


@pytest.mark.parametrize(
    ("text", "told"),
    [("5/day", "5/day"), ("$5/week", "5/week"), (" 0.50/hour ", "0.5/hour"), ("100/month",) * 2],
)
def test_a_budget(text: str, told: str) -> None:
    assert str(parse_budget(text)) == told
    assert parse_budget(told) == parse_budget(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "/day", "5/", "5/year", "5/days", "-5/day", "5 /day", "1e3/day", "nan/day"),
        *("0/day", "0.00/day", "5€/day", "12345678/day", "٥/day", "5/day/day", "0.0000001/day"),
    ],
)
def test_no_budget(text: str) -> None:
    with pytest.raises(ValueError, match="a budget is"):
        parse_budget(text)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        ("hour", "2026-12-30T23:00", "2026-12-31T00:00"),
        ("day", "2026-12-30", "2026-12-31"),
        ("week", "2026-12-28", "2027-01-04"),
        ("month", "2026-12-01", "2027-01-01"),
    ],
)
def test_a_period(period: Period, start: str, end: str) -> None:
    assert period_at(period, at("2026-12-30T23:59:59.9")) == (at(start), at(end))


@given(st.floats(0, 4e9), st.sampled_from(PERIODS))
def test_periods_follow_each_other(now: float, period: Period) -> None:
    start, end = period_at(period, now)
    assert start <= now < end
    assert start % 3600 == 0
    assert period_at(period, end)[0] == end
    assert period_at(period, start) == (start, end)


def test_names_of_models() -> None:
    assert parse_models("daily, glm/*,daily") == ("daily", "glm/*")


@pytest.mark.parametrize("text", ["", ",", "a,", "a b", "a\x00", "x" * 301, ",".join("ab" * 51)])
def test_no_names_of_models(text: str) -> None:
    with pytest.raises(ValueError, match="name"):
        parse_models(text)


@pytest.mark.parametrize(
    ("name", "patterns", "does"),
    [
        ("daily", ["panel", "daily"], True),
        ("daily2", ["daily"], False),
        ("Daily", ["daily"], False),
        ("glm/glm-5", ["glm/*"], True),
        ("glm/x[1]", ["glm/x[1]"], True),
        ("glm/x1", ["glm/x[12]"], True),
        ("daily", [], False),
    ],
)
def test_what_fits(name: str, patterns: list[str], does: bool) -> None:
    assert fits([name], patterns) is does


@given(st.integers(1, 8), st.lists(st.floats(0, 40), max_size=60))
@example(1, [1.5230555828419536, 0.0])
def test_no_minute_holds_more_requests_than_the_rate(limit: int, pauses: list[float]) -> None:
    rate, now, let_in = Rate(), 1000.0, []
    for pause in pauses:
        now += pause
        wait = rate.ask(limit, now)
        in_the_minute = [each for each in let_in if each > now - MINUTE]
        if wait:
            assert 0 < wait <= MINUTE
            assert len(in_the_minute) == limit
        else:
            assert len(in_the_minute) < limit
            let_in.append(now)


def test_who_waits_as_told_is_let_in() -> None:
    rate = Rate()
    assert [rate.ask(2, at) for at in (0.0, 10.0)] == [0, 0]
    assert rate.ask(2, 15.0) == 45
    assert rate.ask(2, 60.0) == 0
    assert rate.ask(2, 60.0) == 10


def test_a_lower_rate_and_a_clock_set_back() -> None:
    rate = Rate()
    assert [rate.ask(3, at) for at in (0.0, 1.0, 2.0)] == [0, 0, 0]
    assert rate.ask(1, 3.0) == 59
    assert rate.ask(3, -500.0) == 0
