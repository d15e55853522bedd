from __future__ import annotations

import pytest

from krouter.cli.figures import Bill, count, moment, money, ordinal, span, timestamp, tokens
from krouter.dialects.base import Usage


@pytest.mark.parametrize(
    ("micros", "unpriced", "text"),
    [
        (0, 0, "$0.0000"),
        (12_300, 0, "$0.0123"),
        (12_300, 3, "$0.0123 + 3 unpriced"),
        (0, 3, "unknown"),
        (62, 0, "$0.000062"),
        (409, 0, "$0.00041"),
        (1_234_500_000, 1_000, "$1,234.5000 + 1,000 unpriced"),
    ],
)
def test_money(micros: int, unpriced: int, text: str) -> None:
    assert money(micros * 10**6, unpriced) == text


@pytest.mark.parametrize(
    ("bill", "text", "dollars"),
    [
        (Bill(10**12, 0, 5, True), "$1.0000", 1.0),
        (Bill(0, 0, 5, True), "$0.0000", 0.0),
        (Bill(0, 1, 5, True), "unknown", None),
        (Bill(0, 0, 0, True), "unknown", None),
        (Bill(0, 0, 0, False), "-", 0.0),
    ],
)
def test_a_bill_of_which_nothing_was_told(bill: Bill, text: str, dollars: float | None) -> None:
    assert (str(bill), bill.dollars) == (text, dollars)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"),
        (0.0421, "42 ms"),
        (0.9996, "1 s"),
        (1.424, "1.42 s"),
        (42.04, "42 s"),
        (99.97, "1 min 40 s"),
        (185, "3 min 5 s"),
        (1800, "30 min"),
        (7384, "2 h 3 min"),
        (86_400, "24 h"),
    ],
)
def test_a_span(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_small_words() -> None:
    numbers = (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)
    assert [*map(ordinal, numbers)] == "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th".split()
    assert [count(number, "attempt") for number in (0, 1, 2)] == [
        "0 attempts",
        "1 attempt",
        "2 attempts",
    ]
    assert tokens(Usage(1_532, 88, cached=1_024)) == "1,532 in (1,024 cached), 88 out"
    assert tokens(Usage(5, 6)) == "5 in, 6 out"


@pytest.mark.parametrize("at", [1e30, -1e30, float("nan"), float("inf")])
def test_a_time_that_is_none(at: float) -> None:
    assert (moment(at), timestamp(at)) == ("unknown", "unknown")
