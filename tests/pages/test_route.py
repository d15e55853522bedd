"""Routes of fusions and nested combos, opened in a browser as drawings."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.harness import Krouter
from tests.pages.conftest import DAILY, Open, names
from tests.upstream import Upstream

JUDGE = "ds/deepseek-v4-pro"


def opened(tab: Open, krouter: Krouter, asked: str) -> Page:
    """The page of the route of the last request, from the list of all."""
    krouter.idle()
    page = tab().open("routes")
    page.get_by_role("link", name=asked, exact=True).click()
    expect(page.get_by_role("heading", name="Route", exact=True)).to_be_visible()
    expect(page.locator(".node").first).to_be_visible()
    return page


def badged(page: Page, words: str) -> Locator:
    return page.locator(".node", has=page.locator(".badge", has_text=words))


def test_a_fusion_is_drawn_as_a_fan_of_voices_that_a_judge_gathers(
    tab: Open, krouter: Krouter, upstream: Upstream
) -> None:
    upstream.script("glm-5.1", ["status=529"] * 2)
    assert krouter.messages("council").status_code == 200
    page = opened(tab, krouter, "council")
    assert names(page) == [*DAILY, JUDGE]
    expect(page.locator(".edge")).to_have_count(6)  # none to the judge from the one that failed
    voices = page.locator(".node:has(.mono)")
    failed, heard = voices.nth(0), voices.nth(2)
    expect(failed).to_contain_text("overloaded")
    for account in ("home", "work"):
        expect(failed).to_contain_text(account)
    expect(failed).to_have_class(re.compile("bad"))
    expect(heard).to_contain_text("characters")
    expect(heard).to_contain_text("answered")
    expect(heard).to_have_class(re.compile("good"))
    judge = badged(page, "judge")
    expect(judge).to_contain_text(JUDGE)
    expect(judge).to_contain_text("answered")
    expect(page.locator(".node").last).to_contain_text("200 answered")
    told = re.compile(
        r"glm/glm-5\.1, overloaded, .* 37 characters\. ds/deepseek-v4-pro, judge, .*"
        r"the caller, 200 answered"
    )
    expect(page.get_by_role("img")).to_have_accessible_name(told)


def test_a_judge_that_fails_leaves_the_answer_of_a_voice(
    tab: Open, krouter: Krouter, upstream: Upstream
) -> None:
    upstream.script("glm-5.1", ["status=529"] * 2)
    upstream.script("claude-sonnet-4-6", ["status=529"])
    assert krouter.messages("council").status_code == 200
    page = opened(tab, krouter, "council")
    expect(badged(page, "asked again")).to_contain_text(JUDGE)
    expect(page.locator(".edge")).to_have_count(5)
    expect(page.locator(".edge.good")).to_have_count(2)


def test_a_panel_that_fails_has_no_judge(tab: Open, krouter: Krouter, upstream: Upstream) -> None:
    for model in ("glm-5.1", "deepseek-v4-pro", "claude-sonnet-4-6"):
        upstream.script(model, ["status=529"] * 3)
    krouter.messages("council")
    page = opened(tab, krouter, "council")
    assert names(page) == DAILY
    expect(page.locator(".node.off")).to_contain_text("nobody was asked to judge")
    expect(page.locator(".node.bad:has(.mono)")).to_have_count(3)


def test_a_nested_combo_is_one_box_with_all_that_was_tried_in_it(
    tab: Open, krouter: Krouter, upstream: Upstream
) -> None:
    krouter.write_combo("outer", {"models": ["council", "daily", "glm/glm-4.7"]})
    expect(tab().open("combos").get_by_role("article", name="outer")).to_be_visible()
    for model in ("glm-5.1", "deepseek-v4-pro"):
        upstream.script(model, ["status=529"] * 2)
    upstream.script("claude-sonnet-4-6", ["status=529"])
    assert krouter.messages("outer").status_code == 200
    page = opened(tab, krouter, "outer")
    assert names(page) == ["council", "daily", "glm/glm-4.7"]
    expect(page.locator(".edge")).to_have_count(4)
    council, daily, answered = page.locator(".node:has(.mono)").all()
    expect(council).to_have_class(re.compile("bad"))
    tried = council.locator(".line", has_text=re.compile("^[a-z]+/"))
    assert sorted(tried.all_text_contents()) == sorted([*DAILY, DAILY[0]])
    expect(council.locator(".dot.bad")).to_have_count(4)
    expect(daily).to_have_class(re.compile("mixed"))
    expect(daily.locator(".dot.warn")).to_have_count(4)
    expect(daily).to_contain_text("glm/glm-5.1, home skipped, locked")
    expect(answered).to_have_class(re.compile("good"))
