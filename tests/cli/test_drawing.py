"""What `krouter route` draws, to the letter."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from krouter.cli.drawing import draw
from krouter.cli.output import console_for
from krouter.cli.wording import why_first
from krouter.combos import Entry
from krouter.errors import Failure
from krouter.plan import Standing, make_plan
from krouter.route import End, Placed, Route, Skip, Skipped
from tests.cli.pasts import (
    CC,
    DAILY,
    DS,
    GLM,
    IMAGE,
    SEES,
    TEXT_ONLY,
    attempt,
    begun,
    failed,
    fused,
    hostile,
    mixed,
    over,
    screenshot,
)

GOLDEN = Path(__file__).parent / "golden"


def console(encoding: str = "utf-8") -> Console:
    return console_for(io.TextIOWrapper(io.BytesIO(), encoding=encoding))


def drawn(route: Route, encoding: str = "utf-8") -> str:
    return draw(route, console(encoding), UTC)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


MADE = [screenshot, failed, mixed, hostile, fused]


@pytest.mark.parametrize("make", MADE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_is_drawn_at_80_columns(make: Callable[[], Route], encoding: str) -> None:
    shown = drawn(make(), encoding)
    assert shown + "\n" == (GOLDEN / f"{make.__name__}.{encoding}.txt").read_text()
    shown.encode(encoding)
    assert all(line.isprintable() for line in shown.split("\n"))


def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    for make in MADE:
        shown = draw(make(), console(), UTC)
        assert max(map(cell_len, shown.split("\n"))) <= 50
        assert "gets the answer of" in shown or "gets an error" in shown


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("1", False)])
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, no_color: str | None, coloured: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    shown = draw(screenshot(), console_for(Terminal()), UTC)
    assert ("\x1b[" in shown) is coloured
    assert "\x1b" not in draw(screenshot(), console(), UTC)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "shift_jis"])
def test_it_can_be_written_in_the_terminals_encoding(encoding: str) -> None:
    for make in (screenshot, mixed, hostile):
        drawn(make(), encoding).encode(encoding)


def test_a_model_called_directly() -> None:
    route = begun(5, GLM, {GLM: TEXT_ONLY}, combo="direct")
    route.combo = ""
    attempt(route, GLM, outcome=End.ANSWERED)
    shown = drawn(over(route, 200))
    assert "no combo, one model called directly" in shown
    assert "1.  glm/glm-5.1    asked for by name\n" in shown
    assert "went first" not in shown


def test_the_wait_before_a_retry_is_drawn() -> None:
    route = begun(6, "daily", DAILY)
    attempt(route, GLM, outcome=Failure.SERVER_ERROR, row=10, status=500, wait=1.5)
    attempt(route, GLM, outcome=End.ANSWERED)
    shown = drawn(over(route, 200))
    assert "│ retry    same account, 1.5 s later " in shown
    assert shown.count("│ retry ") == 1


def test_a_name_that_nobody_knew() -> None:
    route = Route("5" * 16, 1_800_000_000.0, "chat", "nobody", False)
    route.status, route.outcome, route.ended = 404, End.UNKNOWN_MODEL, route.began
    shown = drawn(route)
    assert "no such combo or model" in shown
    assert "gets an error: 404 unknown model" in shown
    assert "ORDER" not in shown


def test_a_request_under_way() -> None:
    route = begun(6, "daily", DAILY)
    attempt(route, GLM, ended=None)
    shown = drawn(route)
    assert "1. glm/glm-5.1: under way" in shown
    assert "│ waits" in shown
    assert "Not tried: ds/deepseek-v4-pro, cc/claude-sonnet-4-6." in shown


def test_an_answer_of_the_panel_itself_and_late_calls_that_have_ended() -> None:
    route = fused()
    route.lingers, route.revision = False, 1
    late, answer = route.voices[2], route.attempts[0]
    late.ended = route.attempts[2].ended = route.began + 60
    route.attempts[2].outcome = End.CALLED_OFF
    for each in route.attempts:
        each.seen = False
    route.serve(answer)
    shown = drawn(route)
    assert f"gets the answer of one of the panel, {GLM} (200 answered)" in shown
    assert "asked at 4 ms, ended after 60 s, when nobody waited for it any more" in shown
    assert f"4. {DS}: called off" in shown
    assert "under way" not in shown
    assert "\nlate " not in shown


def test_a_panel_that_was_too_large() -> None:
    route = begun(7, "wise", {GLM: SEES, DS: SEES}, strategy="fusion")
    route.ended, route.status, route.outcome = route.began, 400, End.PANEL_TOO_LARGE
    shown = drawn(route)
    assert "gets an error: 400 panel too large" in shown
    assert f"Not tried: {GLM}, {DS}." in shown
    assert "\njudge " not in shown
    assert "went first" not in shown


PDF = frozenset(("pdf",))


@pytest.mark.parametrize(
    ("seen", "fields", "why"),
    [
        (DAILY, {}, "it stands first in the list, and nothing moved it"),
        (DAILY, {"strategy": "round-robin"}, "it is its turn in the rotation"),
        (
            {GLM: TEXT_ONLY, DS: Standing(), CC: TEXT_ONLY},
            {"needs": IMAGE},
            f"though 2nd in the list: the latest message carries an image, which it may read;"
            f" {GLM} does not read it",
        ),
        (
            {GLM: TEXT_ONLY, DS: Standing(left=0.7)},
            {},
            "though 2nd in the list: its provider reports the most quota left, 70%",
        ),
        (
            {GLM: Standing(left=0.0, spent=True), DS: Standing()},
            {},
            "though 2nd in the list: the quota of what stood before it is spent",
        ),
        ({GLM: Standing(), DS: TEXT_ONLY}, {"needs": PDF}, "nothing moved it"),
        (
            {GLM: TEXT_ONLY, CC: SEES, DS: Standing()},
            {"needs": PDF | IMAGE},
            f"an image and a PDF, which it may read; {GLM} and {CC} do not read all of that",
        ),
    ],
)
def test_why_the_first_went_first(
    seen: dict[str, Standing], fields: dict[str, Any], why: str
) -> None:
    (sentence,) = why_first(begun(7, "daily", seen, **fields))
    assert " went first" in sentence
    assert why in sentence


def test_the_vision_adapter_is_named() -> None:
    route = begun(8, "daily", {GLM: TEXT_ONLY, DS: TEXT_ONLY}, needs=IMAGE)
    pool = (Entry(model=CC),)
    route.snapshots, route.switches = [replace(route.snapshots[0], pool=pool)], []
    route.note_plan(make_plan(route.snapshots.pop()))
    assert [*why_first(route)] == [f"{CC} went first: no entry of the list reads an image."]
    assert "not in the list" in drawn(route)


def test_a_cost_that_is_known_in_part_only() -> None:
    shown = drawn(mixed())
    assert "18,100 in, 1,021 out; $0.0200 + 2 unpriced" in shown
    assert "waste    3 attempts, 9,000 in, 700 out; $0.0200 + 1 unpriced, never" in shown


def test_the_order_is_told_of_who_answered_too() -> None:
    """The first has no account; the screenshot put the third of the list before the second."""
    route = screenshot()
    first, *others = route.plan
    route.plan = [Placed("gemini/x", "as listed; reads image", 1), first, *others]
    route.steps.insert(0, Skipped("gemini/x", "", Skip.NO_ACCOUNT))
    told = list(why_first(route))
    assert told[0].startswith("gemini/x comes first")
    assert told[1:] == [
        f"{first.entry}, 3rd in the list, came before"
        f" {' and '.join(each.entry for each in others)}: reads image."
    ]
