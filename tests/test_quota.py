"""What is known of quota, for how long, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.quota import Item, Note, QuotaBook, Source, headroom, is_spent
from krouter.reporter import Balance, Figure, Report, Window
from krouter.wire import Headers
from tests.harness import Clock

NOW = 1000.0


def note(item: Item, account: str = "a", source: Source = "polled", age: float = 0.0) -> Note:
    return Note("ag", account, item, source, NOW - age)


@pytest.mark.parametrize(
    ("source", "age", "resets_in", "believed"),
    [
        ("polled", 299, None, True),
        ("polled", 300, None, False),
        ("polled", 299, 5, True),
        ("polled", 300, 5, False),
        ("polled", 10, 0, False),
        ("reported", 3599, None, True),
        ("reported", 3600, None, False),
        ("reported", 90_000, 1, True),
        ("reported", 10, 0, False),
    ],
)
def test_how_long_a_figure_holds(
    source: Source, age: float, resets_in: float | None, believed: bool
) -> None:
    resets_at = None if resets_in is None else NOW + resets_in
    held = note(Figure("m", 0.5, resets_at), source=source, age=age)
    assert (headroom([held], "m", NOW) == 0.5) == believed


@pytest.mark.parametrize("source", ["polled", "reported"])
def test_windows_and_balances_hold_until_their_reset_or_for_an_hour(source: Source) -> None:
    kept = [Window("7d", 0.5, NOW + 1), Window("5h", 0.5), Balance("credits", 1.0)]
    assert [note(item, source=source, age=3599).ends > NOW for item in kept] == [True] * 3
    assert [note(item, source=source, age=3600).ends > NOW for item in kept] == [True, False, False]


def test_a_figure_is_of_exactly_one_model_of_one_account() -> None:
    clock = Clock()
    book = QuotaBook(clock)
    assert book.figure("ag", "a", "m") is None
    told = Report((Figure("m", 0.5),), (Window("5h", 0.1, model="m"),), (Balance("credits", 0.0),))
    book.note("ag", "a", told, "polled")
    assert book.figure("ag", "a", "m") == Figure("m", 0.5)
    others = [("ag", "a", "m-2"), ("cc", "a", "m"), ("ag", "a", "M"), ("ag", "b", "m")]
    assert [book.figure(*other) for other in others] == [None] * 4
    clock.now += 300
    assert book.figure("ag", "a", "m") is None


@pytest.mark.parametrize(("left", "spent"), [(0.0, True), (0.02, True), (0.021, False)])
def test_what_is_spent(left: float, spent: bool) -> None:
    assert is_spent(Figure("m", left)) == spent


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], None),
        ([Figure("claude-opus-5", 0.4)], 0.4),
        ([Figure("other", 0.4)], None),
        ([Window("5h", 0.7), Window("7d", 0.3)], 0.3),
        ([Window("5h", 0.7), Window("7d opus", 0.1, model="opus")], 0.1),
        ([Window("5h", 0.7), Window("7d sonnet", 0.1, model="sonnet")], 0.7),
        ([Balance("key limit", 25.0, of=100.0)], 0.25),
        ([Balance("key limit", -1.0, of=100.0)], 0.0),
        ([Balance("credits", 3.0)], None),
        ([Balance("credits", 0.0)], 0.0),
        ([Figure("claude-opus-5", 0.4), Window("5h", 0.2)], 0.2),
    ],
)
def test_headroom_is_the_least_that_counts(items: list[Item], expected: float | None) -> None:
    assert headroom(map(note, items), "claude-opus-5", NOW) == expected


items = st.one_of(
    st.builds(Figure, st.sampled_from("mn"), st.floats(0, 1), st.none() | st.floats(0, 3000)),
    st.builds(Window, st.sampled_from("xy"), st.floats(0, 1), st.none() | st.floats(0, 3000)),
    st.builds(Balance, st.just("b"), st.floats(-9, 9), of=st.none() | st.floats(0, 9)),
)
notes = st.lists(
    st.builds(
        Note,
        st.sampled_from(["ag", "or"]),
        st.sampled_from("ab"),
        items,
        st.sampled_from(["polled", "reported"]),
        st.floats(-5000, NOW),
    )
)


@given(notes)
def test_headroom_is_a_share(found: list[Note]) -> None:
    left = headroom(found, "m", NOW)
    assert left is None or 0 <= left <= 1


def told(book: QuotaBook, *tell: Item, account: str = "a", source: Source = "polled") -> None:
    report = Report(
        tuple(item for item in tell if isinstance(item, Figure)),
        tuple(item for item in tell if isinstance(item, Window)),
        tuple(item for item in tell if isinstance(item, Balance)),
    )
    book.note("ag", account, report, source)


def test_the_newest_word_counts() -> None:
    clock = Clock()
    book = QuotaBook(clock)
    told(book, Figure("m", 0.9), Window("5h", 0.8), Balance("credits", 5.0))
    clock.forward(10)
    told(book, Figure("m", 0.1), source="reported")
    assert {(each.item, each.at - clock.now) for each in book.notes()} == {
        (Figure("m", 0.1), 0),
        (Window("5h", 0.8), -10),
        (Balance("credits", 5.0), -10),
    }
    assert book.left("ag", "a", "m") == 0.1
    clock.forward(3595)
    assert [each.item for each in book.notes()] == [Figure("m", 0.1)]


def test_the_book_is_bounded_and_forgets() -> None:
    book = QuotaBook(Clock(), accounts=2, items=3)
    for account in "abc":
        told(book, *(Figure(str(n), 0.5) for n in range(9)), account=account)
    assert sorted({each.account for each in book.notes()}) == ["b", "c"]
    assert len(book.notes()) == 6
    book.forget("ag", "b")
    assert {each.account for each in book.notes()} == {"c"}
    assert book.left("ag", "b", "8") is None


class Reader:
    polled = ()
    heard = ("ag",)

    async def poll(self, *_: object) -> Report:
        raise AssertionError

    def read_headers(self, headers: Mapping[str, str], model: str, now: float) -> Report:
        return Report(figures=(Figure(model, float(headers["x-left"])),))


def test_headers_are_read_by_the_providers_own_reporter() -> None:
    book = QuotaBook(Clock(), [Reader()])
    headers: Headers = [("X-Left", "0.25")]
    book.heard("ag", "a", "m", headers)
    book.heard("or", "a", "m", headers)
    assert [(each.provider, each.source, each.item) for each in book.notes()] == [
        ("ag", "reported", Figure("m", 0.25))
    ]
