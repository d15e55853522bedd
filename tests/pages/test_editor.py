"""A combo is edited in a browser: what lands in its file, what is refused, and what is not lost."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import Dialog, Page, expect

from tests.harness import Krouter
from tests.pages.conftest import DAILY, Open, names


def saved(krouter: Krouter, name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((krouter.home / "combos" / f"{name}.json").read_text())
    return read


def review(page: Page) -> None:
    page.get_by_role("button", name="Review the change").click()


def save(page: Page) -> None:
    """Reviews the change, and saves it."""
    review(page)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("It is in force")).to_be_visible()


def test_a_reorder_by_keys_lands_in_the_file(tab: Open, krouter: Krouter) -> None:
    page = tab().open("combos/daily")
    page.locator("[data-index='0']").focus()
    page.keyboard.press("Alt+ArrowRight")
    moved = [DAILY[1], DAILY[0], DAILY[2]]
    assert names(page) == moved
    expect(page.locator("#said")).to_have_text("glm/glm-5.1 is now entry 2 of 3")
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-index='2']")).to_be_focused()
    page.get_by_role("button", name="Review the change").click()
    expect(page.locator(".diff .plus", has_text="glm/glm-5.1")).to_be_visible()
    assert saved(krouter, "daily")["models"] == DAILY
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("It is in force")).to_be_visible()
    assert saved(krouter, "daily")["models"] == moved
    krouter.messages("daily")
    assert krouter.last_route["plan"][0]["entry"] == moved[0]


def test_boxes_are_a_list_of_which_one_is_chosen(tab: Open) -> None:
    opened = tab()
    page = opened.open("combos/daily")
    boxes = page.get_by_role("listbox", name="daily, fallback", exact=True).get_by_role("option")
    expect(boxes).to_have_count(3)
    for key, chosen in (
        ("End", 2),
        ("ArrowRight", 2),
        ("ArrowUp", 1),
        ("Home", 0),
        ("ArrowLeft", 0),
        ("Enter", 0),
    ):
        page.locator("[data-index][tabindex='0']").press(key)
        expect(boxes.nth(chosen)).to_be_focused()
        selected = page.locator("[role='option'][aria-selected='true']")
        expect(selected).to_have_count(1)
        expect(selected).to_have_attribute("data-index", str(chosen))
    expect(boxes.first).to_have_accessible_description(re.compile("Alt with arrows moves"))
    opened.check_axe()


def test_keys_and_buttons_change_the_order(tab: Open, krouter: Krouter) -> None:
    page = tab().open("combos/daily")
    first, second, third = DAILY
    for press, order in (
        ("Later", [second, first, third]),
        ("Later", [second, third, first]),
        ("Later", [second, third, first]),
        ("Earlier", [second, first, third]),
    ):
        page.get_by_role("button", name=press).click()
        assert names(page) == order
    page.locator("[data-index='0']").press("Shift+ArrowDown")
    assert names(page) == [first, second, third]
    page.locator("[data-index='1']").press("Delete")
    assert names(page) == [first, third]
    expect(page.locator("#said")).to_have_text(f"{second} removed")
    expect(page.locator("[data-index='1']")).to_be_focused()
    page.keyboard.press("Home")
    page.get_by_role("button", name="Remove").click()
    assert names(page) == [third]
    save(page)
    assert saved(krouter, "daily") == {"models": [third]}


def test_a_box_is_dragged_to_another_place(tab: Open, krouter: Krouter) -> None:
    page = tab().open("combos/daily")
    page.locator("[data-index='2']").drag_to(page.locator("[data-index='0']"))
    assert names(page) == [DAILY[2], DAILY[0], DAILY[1]]
    page.get_by_label("Strategy").select_option("fusion")
    page.get_by_label("Judge", exact=True).fill("glm/glm-5.1")
    page.get_by_label("Answers to wait for").fill("3")
    page.get_by_label("Model or combo to add").fill("turns")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="Review the change").click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("It is in force")).to_be_visible()
    assert saved(krouter, "daily") == {
        "models": [DAILY[2], DAILY[0], DAILY[1], "turns"],
        "strategy": "fusion",
        "judge": "glm/glm-5.1",
        "fusionTuning": {"minPanel": 3},
    }


def test_a_bad_edit_is_refused_with_its_reason(tab: Open, krouter: Krouter) -> None:
    page = tab().open("combos/daily")
    refusal = page.get_by_role("alert")
    text = page.get_by_label("The file", exact=True)
    for edit, reasons in (
        ({"models": DAILY, "stickyLimt": 2}, ("$.stickyLimt", "stickyLimit")),
        ({"models": [*DAILY, "daily"]}, ("$.models[3]", "daily → daily")),
        ("{", ("This is no JSON",)),
    ):
        text.fill(edit if isinstance(edit, str) else json.dumps(edit))
        page.get_by_role("button", name="Review the change").click()
        for reason in reasons:
            expect(refusal).to_contain_text(reason)
        expect(page.get_by_role("button", name="Save")).to_have_count(0)
    text.fill(json.dumps({"models": ["antropic/claude-sonnet-4-6"]}))
    page.get_by_role("button", name="Review the change").click()
    expect(refusal).to_contain_text("anthropic")
    expect(page.get_by_role("button", name="Save")).to_be_visible()
    assert saved(krouter, "daily") == {"models": DAILY}


def test_odd_values_are_drawn_while_they_are_typed_and_judged_by_krouter(tab: Open) -> None:
    page = tab().open("combos/daily")
    text = page.get_by_label("The file", exact=True)
    for edit, place in (
        ({"models": [{"model": DAILY[0], "label": 5}]}, "$.models[0].label"),
        ({"models": DAILY, "strategy": "fusion", "judge": 5}, "$.judge"),
        ({"models": DAILY, "description": {"toString": 1}}, "$.description"),
        ({"models": [None, 5, {"model": {}}]}, "$.models[0]"),
        ([1], "$"),
    ):
        text.fill(json.dumps(edit))
        page.get_by_role("button", name="Review the change").click()
        expect(page.get_by_role("alert")).to_contain_text(f"{place} ")


def test_a_bad_file_is_opened_as_it_is(tab: Open, krouter: Krouter) -> None:
    opened = tab()
    folder = krouter.home / "combos"
    for name, text, reason in (
        ("none", "null", "should be an object"),
        ("five", "5", "should be an object"),
        ("half", '{"models": [', "This is no JSON"),
    ):
        (folder / f"{name}.json").write_text(text)
        page = opened.open(f"combos/{name}")
        expect(page.get_by_label("The file", exact=True)).to_have_value(text)
        page.get_by_role("button", name="Review the change").click()
        expect(page.get_by_role("alert")).to_contain_text(reason)


def test_choosing_a_box_leaves_the_text_of_the_file(tab: Open) -> None:
    page = tab().open("combos/daily")
    text = page.get_by_label("The file", exact=True)
    mine = '{"models":\n["glm/glm-5.1", "ds/deepseek-v4-pro"],'
    text.fill(mine)
    page.locator("[data-index='0']").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-index='1']")).to_be_focused()
    expect(text).to_have_value(mine)


def test_a_file_that_has_changed_meanwhile_is_not_overwritten(tab: Open, krouter: Krouter) -> None:
    opened = tab()
    opened.expected = ("409",)
    page = opened.open("combos/daily")
    page.get_by_label("Description").fill("mine")
    krouter.write_combo("daily", {"models": DAILY, "description": "theirs"})
    review(page)
    expect(page.get_by_role("alert")).to_contain_text("changed")
    expect(page.get_by_role("button", name="Save")).to_have_count(0)
    assert saved(krouter, "daily")["description"] == "theirs"


def test_a_new_combo_is_made_and_deleted(tab: Open, krouter: Krouter) -> None:
    page = tab().open("combos")
    page.get_by_role("link", name="New combo").click()
    page.get_by_label("Name of the combo").fill("night")
    page.get_by_label("Model or combo to add").fill("glm/glm-5.1")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Review the change").click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Edit night")).to_be_visible()
    assert saved(krouter, "night") == {"models": ["glm/glm-5.1"]}
    page.get_by_role("button", name="Delete the combo").click()
    expect(page.get_by_role("dialog")).to_contain_text("for good")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="Combos", exact=True)).to_be_visible()
    assert not (krouter.home / "combos" / "night.json").exists()


def test_what_is_half_typed_is_not_overwritten_by_the_form(tab: Open) -> None:
    page = tab().open("combos/daily")
    text = page.get_by_label("The file", exact=True)
    text.fill('{"models": [')
    expect(page.get_by_text("Until it is one, the form and the drawing wait.")).to_be_visible()
    page.locator("[data-index='0']").focus()
    for key in ("Alt+ArrowRight", "Delete"):
        page.keyboard.press(key)
    expect(page.get_by_role("button", name="Later")).to_be_disabled()
    expect(page.get_by_role("button", name="Add", exact=True)).to_be_disabled()
    page.get_by_label("Description").dispatch_event("input")
    expect(text).to_have_value('{"models": [')
    text.fill(json.dumps({"models": DAILY}))
    page.get_by_label("Description").fill("mine")
    expect(text).to_have_value(json.dumps({"models": DAILY, "description": "mine"}, indent=2))


def test_what_was_left_without_saving_is_there_again(tab: Open, krouter: Krouter) -> None:
    page = tab().open("combos/daily")
    page.get_by_label("Description").fill("mine")
    page.get_by_role("link", name="Routes", exact=True).click()
    expect(page.get_by_role("heading", name="Routes")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("What you had not saved is here again")).to_be_visible()
    expect(page.get_by_label("Description")).to_have_value("mine")
    page.get_by_role("button", name="Take the file as it is").click()
    expect(page.get_by_label("Description")).to_have_value("")
    page.get_by_label("Description").fill("ours")
    save(page)
    assert saved(krouter, "daily") == {"models": DAILY, "description": "ours"}
    page.get_by_role("link", name="Routes", exact=True).click()
    page.go_back()
    expect(page.get_by_label("Description")).to_have_value("ours")
    expect(page.get_by_text("What you had not saved")).to_have_count(0)


def test_a_page_with_unsaved_work_asks_before_it_is_closed(tab: Open) -> None:
    page = tab().open("combos/daily")
    asked: list[str] = []

    def accept(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", accept)
    page.reload()
    page.get_by_label("Description").fill("mine")
    page.reload()
    assert asked == ["beforeunload"]


def test_a_file_changed_meanwhile_can_be_taken_as_it_is(tab: Open, krouter: Krouter) -> None:
    opened = tab()
    opened.expected = ("409",)
    page = opened.open("combos/daily")
    page.get_by_label("Description").fill("mine")
    review(page)
    expect(page.get_by_role("button", name="Save")).to_be_visible()
    krouter.write_combo("daily", {"models": DAILY, "description": "theirs"})
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Take the file as it is").click()
    expect(page.get_by_label("Description")).to_have_value("theirs")
    page.get_by_label("Description").fill("both")
    save(page)
    assert saved(krouter, "daily")["description"] == "both"


def test_a_review_that_is_no_longer_true_is_taken_away(tab: Open) -> None:
    page = tab().open("combos/daily")
    page.get_by_label("Description").fill("mine")
    review(page)
    expect(page.get_by_role("button", name="Save")).to_be_visible()
    page.get_by_label("Description").fill("yours")
    expect(page.get_by_role("button", name="Save")).to_have_count(0)


def test_a_second_press_of_save_sends_nothing_more(tab: Open, krouter: Krouter) -> None:
    page = tab().open("combos/daily")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    page.get_by_label("Description").fill("mine")
    review(page)
    page.get_by_role("button", name="Save").dblclick()
    expect(page.get_by_text("It is in force")).to_be_visible()
    assert sent.count("PUT") == 1


def test_a_shipped_combo_becomes_a_file_of_ones_own_and_comes_back(
    tab: Open, krouter: Krouter
) -> None:
    page = tab().open("combos/demo")
    erase = page.get_by_role("button", name="Delete the combo")
    expect(page.get_by_text("saving makes a file of your own")).to_be_visible()
    expect(erase).to_be_hidden()
    page.get_by_label("Description").fill("mine")
    save(page)
    assert saved(krouter, "demo")["description"] == "mine"
    erase.click()
    expect(page.get_by_role("dialog")).to_contain_text("stands in")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="Combos", exact=True)).to_be_visible()
    expect(page.get_by_role("article", name="demo")).to_contain_text("shipped with krouter")


def test_a_new_combo_does_not_take_the_place_of_another(tab: Open, krouter: Krouter) -> None:
    opened = tab()
    opened.expected = ("409",)
    page = opened.open("combos?new")
    page.get_by_label("Model or combo to add").fill("glm/glm-5.1")
    page.get_by_role("button", name="Add", exact=True).click()
    name = page.get_by_label("Name of the combo")
    review(page)
    expect(page.get_by_role("alert")).to_contain_text("Give the combo a name")
    expect(name).to_be_focused()
    for taken in ("daily", "demo"):
        name.fill(taken)
        review(page)
        expect(page.get_by_text("Choose another name")).to_be_visible()
    name.fill("night")
    review(page)
    expect(page.get_by_role("button", name="Save")).to_be_visible()
    name.fill("day")
    expect(page.get_by_role("button", name="Save")).to_have_count(0)
    assert saved(krouter, "daily") == {"models": DAILY}


def test_numbers_stay_as_they_are_written(tab: Open, krouter: Krouter) -> None:
    params = '{"seed": 12345678901234567890, "temperature": 1.0}'
    first = f'{{"model": "{DAILY[0]}", "params": {params}}}'
    text = f'{{"models": [{first}, "{DAILY[1]}"]}}'
    (krouter.home / "combos" / "exact.json").write_text(text)
    page = tab().open("combos/exact")
    page.get_by_role("button", name="Later").click()
    save(page)
    written = (krouter.home / "combos" / "exact.json").read_text()
    assert written.strip() == f'{{"models": ["{DAILY[1]}", {first}]}}'
