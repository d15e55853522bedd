"""Pages that follow what happens: over gaps, broken connections and calls that linger."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.harness import Krouter
from tests.pages.conftest import DAILY, Open, Tab
from tests.upstream import Upstream

BROKEN = ("ERR_FAILED", "503")


def go_silent(page: Page) -> None:
    """The connection is found to be dead, and no other is let through until `go_on`."""
    page.route("**/api/live", lambda route: route.abort())
    page.clock.fast_forward(41_000)
    expect(page.locator("#live")).to_have_text("reconnecting")


def go_on(page: Page) -> None:
    page.unroute("**/api/live")
    page.clock.fast_forward(11_000)
    expect(page.locator("#live")).to_have_text("live")


def followed(tab: Open, place: str) -> Tab:
    """A tab whose clock can be put forward."""
    opened = tab()
    opened.expected = BROKEN
    opened.page.clock.install()
    opened.open(place)
    return opened


def test_a_page_outlives_a_krouter_that_cannot_tell_its_state(tab: Open, krouter: Krouter) -> None:
    opened = tab()
    opened.expected = BROKEN
    page = opened.page
    page.clock.install()
    page.route("**/api/view", lambda route: route.fulfill(status=503, json={"error": {}}))
    with page.expect_response("**/api/view"):
        page.goto(f"{krouter.url}/#/combos")
    for _ in range(8):  # a browser has six connections for a host
        with page.expect_response("**/api/view"):
            page.clock.fast_forward(11_000)
    page.unroute("**/api/view")
    page.clock.fast_forward(11_000)
    expect(page.locator("#live")).to_have_text("live")
    expect(page.get_by_role("article", name="daily")).to_be_visible()


def test_why_krouter_cannot_be_followed_is_said(tab: Open, krouter: Krouter) -> None:
    opened = tab()
    opened.expected = BROKEN
    told = {"error": {"message": "krouter is about to end."}}
    opened.page.route("**/api/live", lambda route: route.fulfill(status=503, json=told))
    opened.page.goto(f"{krouter.url}/#/combos")
    expect(opened.page.get_by_role("alert")).to_have_text("krouter is about to end.")


def test_the_log_has_no_gap_after_one_and_nothing_twice(tab: Open, krouter: Krouter) -> None:
    opened = followed(tab, "log")
    krouter.messages("daily")
    lines = opened.page.locator(".lines li")
    expect(lines.filter(has_text="ROUTE")).to_have_count(1)
    go_silent(opened.page)
    krouter.messages("turns")
    go_on(opened.page)
    expect(lines.filter(has_text="ROUTE")).to_have_count(2)
    krouter.messages("shaky")
    expect(lines.filter(has_text="ROUTE")).to_have_count(3)


def test_lists_and_routes_are_read_anew_after_a_gap(
    tab: Open, krouter: Krouter, upstream: Upstream
) -> None:
    opened = followed(tab, "routes")
    page = opened.page
    krouter.messages("daily")
    expect(page.locator("tbody tr")).to_have_count(1)
    go_silent(page)
    krouter.messages("turns")
    go_on(page)
    expect(page.locator("tbody tr")).to_have_count(2)


def test_late_calls_of_a_fusion_stay_lit(tab: Open, krouter: Krouter, upstream: Upstream) -> None:
    tuning = {"minPanel": 2, "stragglerGraceMs": 0, "lateCalls": "run"}
    late = {
        "strategy": "fusion",
        "models": DAILY,
        "judge": "ds/deepseek-v4-pro",
        "fusionTuning": tuning,
    }
    krouter.write_combo("late", late)
    page = tab().open("combos")
    card = page.get_by_role("article", name="late", exact=True)
    expect(card).to_be_visible()
    upstream.script("glm-5.1", ["gate=held"])
    assert krouter.messages("late").status_code == 200
    expect(card.locator(".node.good")).to_have_count(0)
    expect(card.locator(".node.lit .name")).to_contain_text("glm-5.1")
    upstream.gate("held").open()
    expect(card.locator(".node.lit")).to_have_count(0)


def test_a_burst_leaves_no_hole_in_the_list(tab: Open, krouter: Krouter) -> None:
    opened = followed(tab, "routes")
    page = opened.page
    krouter.messages("daily")
    expect(page.locator("tbody tr")).to_have_count(1)
    go_silent(page)
    for _ in range(60):
        krouter.messages("demo")
    go_on(page)
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Older").dblclick()
    expect(page.locator("tbody tr")).to_have_count(61)
    ids = page.locator("tbody tr").evaluate_all("rows => rows.map((row) => row.dataset.id)")
    assert len(set(ids)) == 61


def test_a_focus_outlives_news(tab: Open, krouter: Krouter) -> None:
    opened = tab()
    for place, held in (
        ("combos", "Edit daily"),
        ("routes", "turns"),
        ("settings", "Test the account home of glm"),
    ):
        if place == "routes":
            krouter.messages("turns")
        page = opened.open(place)
        control = page.locator("main").get_by_role("link", name=held, exact=True)
        control = control.or_(page.get_by_role("button", name=held)).first
        control.focus()
        with page.expect_response("**/api/view"):
            krouter.messages("shaky" if place == "settings" else "daily")
        if place == "routes":
            expect(page.locator("tbody tr")).to_have_count(3)
        expect(control).to_be_focused()


def test_the_log_is_copied_where_a_browser_offers_no_clipboard(tab: Open, krouter: Krouter) -> None:
    opened = tab()
    opened.page.add_init_script("delete Navigator.prototype.clipboard")
    page = opened.open("log")
    krouter.messages("daily")
    expect(page.locator(".lines li").filter(has_text="ROUTE")).to_have_count(1)
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#said")).to_have_text(re.compile(r"\d+ lines copied"))
    expect(page.get_by_role("button", name="Copy")).to_be_focused()
