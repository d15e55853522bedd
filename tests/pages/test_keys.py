"""The pages by keyboard alone and by finger, at the width of a phone."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.harness import Krouter
from tests.pages.conftest import DAILY, Open, Tab, names
from tests.upstream import Upstream

PHONE: ViewportSize = {"width": 400, "height": 800}


class Keys:
    """A keyboard; after each key the focus is on something."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
            self.check(key)

    def write(self, words: str) -> None:
        self.page.keyboard.insert_text(words)

    def tab_to(self, selector: str) -> None:
        """Goes on with Tab until one that matches is reached."""
        for _ in range(80):
            if self.page.evaluate("(it) => document.activeElement.matches(it)", selector):
                return
            self.press("Tab")
        raise AssertionError(f"Tab does not lead to {selector}")

    def check(self, after: str) -> None:
        assert self.page.evaluate("document.activeElement !== document.body"), after


@pytest.fixture
def phone(tab: Open) -> Tab:
    opened = tab()
    opened.page.set_viewport_size(PHONE)
    return opened


def test_a_combo_is_edited_without_a_mouse(phone: Tab, krouter: Krouter) -> None:
    page = phone.open("combos")
    keys = Keys(page)
    keys.press("Tab")
    keys.tab_to("[aria-label='Edit daily']")
    krouter.messages("daily")
    expect(page.get_by_role("article", name="daily")).to_contain_text("healthy")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Edit daily")).to_be_visible()
    keys.tab_to("[role='option']")
    keys.press("Alt+ArrowDown", "ArrowDown", "Delete")
    assert names(page) == [DAILY[1], DAILY[0]]
    keys.tab_to("[aria-label='Model or combo to add']")
    keys.write("turns")
    keys.press("Enter")
    assert names(page) == [DAILY[1], DAILY[0], "turns"]
    keys.tab_to("button.main")
    keys.press("Enter")
    expect(page.get_by_role("button", name="Save")).to_be_focused()
    keys.press("Enter")
    expect(page.get_by_text("It is in force")).to_be_visible()
    keys.check("Save")
    file = krouter.home / "combos" / "daily.json"
    assert json.loads(file.read_text()) == {"models": [DAILY[1], DAILY[0], "turns"]}


def test_a_request_is_rehearsed_and_a_route_opened_without_a_mouse(
    phone: Tab, krouter: Krouter
) -> None:
    krouter.messages("shaky")
    krouter.idle()
    page = phone.open("combos")
    keys = Keys(page)
    keys.press("Tab")
    keys.tab_to("[aria-label='What if, for daily']")
    keys.press("Enter")
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text("glm/glm-5.1 answers")
    keys.check("Enter")
    keys.tab_to("[value='image']")
    keys.press("Space")
    expect(verdict).to_contain_text("cc/claude-sonnet-4-6 answers")
    keys.tab_to("[data-index]")
    keys.press("Home", "Enter", "Escape")
    expect(page.locator("[data-index='2']")).to_be_focused()
    keys.press("Enter", "Tab", "Enter")
    expect(page.locator("[data-index='2']")).to_be_focused()
    expect(verdict).to_contain_text("glm/glm-5.1 answers after 2 steps")
    keys.check("a fault")
    page.locator(".brand").focus()
    keys.tab_to("nav [href='#/routes']")
    keys.press("Enter")
    expect(page.get_by_role("row").filter(has_text="shaky")).to_be_visible()
    keys.check("Routes")
    keys.tab_to("tbody a")
    keys.press("Enter")
    expect(page.locator(".node.bad")).to_contain_text("429 rate limited")
    keys.check("a route")


def orders(page: Page) -> list[list[str]]:
    """Each order that the boxes have had, one after the other, since `watch`."""
    seen: list[list[str]] = page.evaluate("window.orders")
    return seen


WATCH = """() => {
  const order = () => [...document.querySelectorAll('[data-index] .name tspan:nth-child(2)')]
    .map((name) => name.textContent);
  window.orders = [order()];
  const note = () => {
    if (String(order()) !== String(window.orders.at(-1))) window.orders.push(order());
  };
  new MutationObserver(note).observe(document.querySelector('.editing'), { childList: true });
}"""


def middle(page: Page, selector: str) -> tuple[float, float]:
    box = page.locator(selector).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_drag_over_boxes_of_unequal_height_moves_one_way(
    phone: Tab, krouter: Krouter, upstream: Upstream
) -> None:
    upstream.script("glm-5.1", ["status=429;retry-after=90"] * 2)
    krouter.messages("daily")
    page = phone.open("combos/daily")
    page.evaluate(WATCH)
    heights = [float(each.get_attribute("height") or 0) for each in page.locator(".box").all()]
    assert max(heights) - min(heights) > 40
    x, y = middle(page, "[data-index='2']")
    top = middle(page, "[data-index='0']")[1]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, top - 10, steps=60)
    page.mouse.up()
    first, second, third = DAILY
    assert orders(page) == [[first, second, third], [first, third, second], [third, first, second]]


def test_escape_ends_a_drag_where_it_began(phone: Tab) -> None:
    page = phone.open("combos/daily")
    page.mouse.move(*middle(page, "[data-index='0']"))
    page.mouse.down()
    page.mouse.move(*middle(page, "[data-index='2']"), steps=20)
    assert names(page)[0] != DAILY[0]
    page.keyboard.press("Escape")
    assert names(page) == DAILY
    page.mouse.move(*middle(page, "[data-index='1']"), steps=5)
    page.mouse.up()
    assert names(page) == DAILY


def test_a_finger_scrolls_past_the_boxes_and_drags_them_by_their_grip(
    browser: Browser, krouter: Krouter
) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True, reduced_motion="reduce")
    opened = Tab(context.new_page(), krouter)
    page = opened.open("combos/daily")

    touch = context.new_cdp_session(page)

    def swipe(selector: str, by: float) -> None:
        x, y = middle(page, selector)
        for part in range(13):
            points = [{"x": x, "y": y + by * part / 12}]
            kind = "touchMove" if part else "touchStart"
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    down = middle(page, "[data-index='1']")[1] - middle(page, "[data-index='0']")[1]
    swipe("[data-index='0'] .grip", down + 40)
    moved = [DAILY[1], DAILY[0], DAILY[2]]
    assert names(page) == moved
    assert page.evaluate("scrollY") == 0
    page.touchscreen.tap(*middle(page, "[data-index='2'] .box"))
    expect(page.locator("[data-index='2']")).to_be_focused()
    swipe("[data-index='1'] .box", -120)
    page.wait_for_function("scrollY > 60")
    assert names(page) == moved
    opened.check()
    context.close()
