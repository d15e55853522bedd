"""What if in a browser: what is asked, what fails, and what is shown of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Request, expect

from tests.harness import Krouter
from tests.pages.conftest import DAILY, SCREENSHOT, Open, Tab, names

TWICE = ["glm/glm-5.1", "ds/deepseek-v4-pro", "glm/glm-5.1"]


@pytest.fixture(autouse=True)
def _unsent(krouter: Krouter) -> Iterator[None]:
    yield
    assert not krouter.router.routes


def verdict(page: Page, words: str) -> None:
    expect(page.locator(".verdict")).to_contain_text(words)


def steps(page: Page) -> list[list[str]]:
    """Entry, account and outcome of each step in the table."""
    rows = page.locator("tbody tr").all()
    return [row.locator("td").all_text_contents()[1:4] for row in rows]


def asked(sent: Request) -> dict[str, Any]:
    """The body of a request of the page."""
    read: dict[str, Any] = json.loads(sent.post_data or "{}")
    return read


def opened_at(opened: Tab, combo: str) -> Page:
    page = opened.open(f"whatif/{combo}")
    expect(page.locator("[data-index]").first).to_be_visible()
    return page


def test_arrows_go_through_the_boxes_as_they_are_drawn(tab: Open) -> None:
    page = opened_at(tab(), "daily")
    page.get_by_label("an image").check()
    verdict(page, "cc/claude-sonnet-4-6 answers")
    assert names(page) == [DAILY[2], DAILY[0], DAILY[1]]
    reached = page.locator("[data-index][tabindex='0']")
    expect(reached).to_have_count(1)
    reached.focus()
    for key, index in (
        ("Home", 2),
        ("ArrowLeft", 2),
        ("ArrowRight", 0),
        ("ArrowDown", 1),
        ("ArrowDown", 1),
        ("ArrowUp", 0),
        ("End", 1),
    ):
        page.keyboard.press(key)
        expect(page.locator(f"[data-index='{index}']")).to_be_focused()
        expect(reached).to_have_count(1)


def test_a_model_that_is_listed_twice_fails_both_times(tab: Open, krouter: Krouter) -> None:
    krouter.write_combo("twice", {"models": TWICE})
    opened = tab()
    expect(opened.open("combos").get_by_role("article", name="twice")).to_be_visible()
    page = opened_at(opened, "twice")
    drawn = page.get_by_role("group", name="The route of a request for twice", exact=True)
    boxes = drawn.get_by_role("button", name=re.compile("choose how it fails$"))
    expect(boxes).to_have_count(3)
    expect(boxes.nth(0)).to_have_accessible_name(re.compile("^glm/glm-5.1, as listed.*, answered"))
    expect(boxes.nth(2)).to_have_accessible_name(re.compile("^glm/glm-5.1, as listed.*not needed"))
    told = "It is listed 2 times; a fault befalls it each time."
    expect(page.get_by_label("glm/glm-5.1", exact=True)).to_have_accessible_description(told)
    boxes.nth(0).focus()
    page.keyboard.press("End")
    expect(boxes.nth(2)).to_be_focused()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(told)
    dialog.get_by_role("button", name="529 overloaded").click()
    expect(boxes.nth(2)).to_be_focused()
    verdict(page, "ds/deepseek-v4-pro answers")
    for at in (0, 2):
        expect(boxes.nth(at)).to_have_accessible_name(re.compile("made to fail: 529"))
    expect(boxes.nth(1)).not_to_have_accessible_name(re.compile("made to fail"))


def test_a_click_makes_an_entry_fail_and_answer_again(tab: Open) -> None:
    page = opened_at(tab(), "daily")
    for fault, who in (("429", "ds/deepseek-v4-pro"), ("answers", "glm/glm-5.1")):
        page.locator("[data-index='0'] .name").click()
        offered = page.get_by_role("dialog").get_by_role("button", name=re.compile(f"^{fault} "))
        expect(offered).to_have_attribute("aria-pressed", "false")
        offered.click()
        verdict(page, f"{who} answers")
        expect(page.locator("[data-index='0']")).to_be_focused()
    assert steps(page) == [["glm/glm-5.1", "home", "answered"]]


def test_a_pdf_and_tools_go_where_they_are_read(tab: Open) -> None:
    page = opened_at(tab(), "daily")
    pdf = page.get_by_role("checkbox", name="a PDF")
    pdf.check()
    verdict(page, "cc/claude-sonnet-4-6 answers")
    first = page.locator(".node:has(.mono)").first
    expect(first).to_contain_text("moved: reads pdf")
    pdf.uncheck()
    verdict(page, "glm/glm-5.1 answers")
    with page.expect_request("**/api/whatif") as sent:
        page.get_by_role("checkbox", name="tools").check()
    assert asked(sent.value)["needs"] == ["tools"]
    verdict(page, "glm/glm-5.1 answers")
    assert names(page) == DAILY


def test_a_body_of_ones_own_is_asked_and_kept(tab: Open) -> None:
    page = opened_at(tab(), "daily")
    page.get_by_label("In the dialect of").select_option("messages")
    page.get_by_text("A body of your own").click()
    body = page.get_by_label("The body, as JSON")
    mine = {"max_tokens": 9, "messages": [{"role": "user", "content": SCREENSHOT}]}
    body.fill(json.dumps(mine))
    verdict(page, "cc/claude-sonnet-4-6 answers")
    expect(page.locator(".node:has(.mono)").first).to_contain_text("moved: reads image")
    page.get_by_role("link", name="Console Log").click()
    expect(page.get_by_role("heading", name="Console Log")).to_be_visible()
    page.go_back()
    expect(body).to_be_visible()
    expect(body).to_have_value(json.dumps(mine))
    with page.expect_request("**/api/whatif") as sent:
        body.fill("")
    assert "body" not in asked(sent.value)
    verdict(page, "glm/glm-5.1 answers")


def test_a_body_that_is_refused_leaves_no_answer_to_another_question(tab: Open) -> None:
    opened = tab()
    opened.expected = ("400",)
    page = opened_at(opened, "daily")
    page.get_by_text("A body of your own").click()
    body = page.get_by_label("The body, as JSON")
    for text, reason in (
        ("{", "The body is no JSON"),
        ("[1]", "body"),
        ("null", "should be an object"),
    ):
        body.fill("")
        verdict(page, "glm/glm-5.1 answers")
        expect(page.locator("[data-index]")).to_have_count(3)
        body.fill(text)
        expect(page.get_by_role("alert")).to_contain_text(reason)
        expect(page.locator("[data-index], tbody tr")).to_have_count(0)


def test_a_fusion_shows_its_voices_and_its_judge(tab: Open) -> None:
    page = opened_at(tab(), "council")
    verdict(page, "ds/deepseek-v4-pro answers after 4 steps")
    assert [row[0] for row in steps(page)] == [*DAILY, "ds/deepseek-v4-pro"]
    boxes = page.locator("[data-index]")
    expect(boxes).to_have_count(3)
    assert names(page) == [*DAILY, "ds/deepseek-v4-pro"]
    judge = page.locator(".node", has=page.locator(".badge", has_text="judge"))
    expect(judge).to_contain_text("ds/deepseek-v4-pro")
    expect(judge).not_to_have_attribute("data-index", re.compile("."))
    page.get_by_label("glm/glm-5.1", exact=True).select_option("529")
    expect(boxes.nth(0)).to_contain_text("made to fail: 529")
    expect(boxes.nth(0)).to_contain_text("529 overloaded")
    expect(boxes.nth(2)).to_contain_text("characters")
    verdict(page, "ds/deepseek-v4-pro answers after 5 steps")


def test_a_nested_combo_fails_as_a_whole(tab: Open, krouter: Krouter) -> None:
    krouter.write_combo("outer", {"models": ["turns", "glm/glm-4.7"]})
    opened = tab()
    expect(opened.open("combos").get_by_role("article", name="outer")).to_be_visible()
    page = opened_at(opened, "outer")
    verdict(page, "glm/glm-5.1 answers")
    assert names(page) == ["turns", "glm/glm-4.7"]
    page.get_by_label("glm/glm-5.1", exact=True).select_option("529")
    verdict(page, "ds/deepseek-v4-pro answers")
    inside = page.locator("[data-index='0']")
    expect(inside).to_contain_text("ds/deepseek-v4-pro")
    inside.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("What befalls turns?")
    dialog.get_by_role("button", name=re.compile("^429 ")).click()
    verdict(page, "glm/glm-4.7 answers")
    for name in DAILY:
        expect(page.get_by_label(name, exact=True)).to_have_value("429")
    expect(inside).to_be_focused()


def test_a_dialog_that_is_left_gives_the_focus_back_to_its_box(tab: Open) -> None:
    page = opened_at(tab(), "daily")
    page.locator("[data-index='0']").press("End")
    page.keyboard.press("Enter")
    wide = page.locator("svg.drawing").get_attribute("width")
    page.set_viewport_size({"width": 700, "height": 900})
    expect(page.locator("svg.drawing")).not_to_have_attribute("width", str(wide))
    page.keyboard.press("Escape")
    expect(page.locator("[data-index='2']")).to_be_focused()


def test_the_verdict_is_read_out_once(tab: Open) -> None:
    page = opened_at(tab(), "daily")
    verdict(page, "glm/glm-5.1 answers")
    expect(page.locator("#said")).to_contain_text("glm/glm-5.1 answers")
    assert page.locator(".verdict").get_attribute("role") is None
