"""The pages in a real browser: what they show, what they change, and what they must not do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import expect

from krouter.keys import Limits, add_key
from tests.harness import Krouter
from tests.pages.conftest import DAILY, SCREENSHOT, Open, names
from tests.upstream import Upstream

PLACES = ("combos", "combos/daily", "whatif/daily", "routes", "log", "settings")


def in_background(call: Any, *given: Any) -> Future[Any]:
    """A call whose answer has to wait for the test."""
    with_one = ThreadPoolExecutor(1)
    running = with_one.submit(call, *given)
    with_one.shutdown(wait=False)
    return running


def screenshot(krouter: Krouter) -> str:
    """The id of the route of the README's request."""
    told = krouter.messages("daily", messages=[{"role": "user", "content": SCREENSHOT}])
    assert told.status_code == 200, told.text
    return told.headers["x-krouter-route"]


def test_every_page_is_accessible_light_and_dark_wide_and_narrow(
    tab: Open, krouter: Krouter
) -> None:
    route = screenshot(krouter)
    opened = tab()
    for place in (*PLACES, f"routes/{route}"):
        opened.page.set_viewport_size({"width": 1280, "height": 900})
        opened.page.emulate_media(color_scheme="light")
        page = opened.open(place)
        expect(page.locator(".card, .lines").first).to_be_visible()
        opened.check_axe()
        page.set_viewport_size({"width": 400, "height": 900})
        page.emulate_media(color_scheme="dark")
        opened.check_axe()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, place


def test_a_combo_is_drawn_by_its_strategy(tab: Open, krouter: Krouter) -> None:
    page = tab().open("combos")
    accounts = ["home", "work", "env", "env"]
    for name, label, arrows in (
        ("daily", "daily, fallback. 1. glm/glm-5.1, text only", 2),
        ("turns", "turns, round robin", 3),
        ("council", "council, fusion", 7),
    ):
        drawing = page.get_by_role("article", name=name, exact=True).get_by_role("img")
        expect(drawing).to_have_attribute("aria-label", re.compile(f"^{re.escape(label)}"))
        judged = ["ds/deepseek-v4-pro"] if name == "council" else []
        assert names(drawing) == DAILY + judged
        expect(drawing.locator(".edge")).to_have_count(arrows)
        assert drawing.locator(".dot + .line").all_text_contents() == accounts
    judge = page.get_by_role("article", name="council").locator(".node.judge")
    expect(judge.locator(".badge")).to_have_text("judge")
    expect(judge).to_contain_text("gathers from 2 answers on")
    turns = page.get_by_role("article", name="turns")
    expect(turns.locator(".turn .name")).to_contain_text("glm-5.1")
    krouter.messages("turns")
    expect(turns.locator(".turn .name")).to_contain_text("deepseek-v4-pro")


def test_accounts_show_health_quota_and_locks(tab: Open, krouter: Krouter) -> None:
    page = tab().open("combos")
    daily = page.get_by_role("article", name="daily")
    krouter.messages("daily")
    krouter.http.post(
        "/api/quota",
        json={"provider": "glm", "account": "work", "model": "glm-5.1", "remaining": 0.63},
    )
    expect(daily).to_contain_text("100 % healthy")
    expect(daily.locator(".dot.good")).to_have_count(1)
    expect(daily).to_contain_text("63 % left")
    krouter.messages("shaky")
    shaky = page.get_by_role("article", name="shaky")
    expect(shaky).to_contain_text(re.compile(r"locked 1:\d\d: rate limited"))
    until = re.compile(r"locked until \d\d:\d\d:\d\d: rate limited")
    expect(shaky.get_by_role("img")).to_have_accessible_name(until)


def test_a_request_lights_up_the_boxes_it_touches(
    tab: Open, krouter: Krouter, upstream: Upstream
) -> None:
    page = tab().open("combos")
    daily = page.get_by_role("article", name="daily")
    upstream.script("glm-5.1", ["gate=held"])
    asked = in_background(krouter.messages, "daily")
    expect(daily.locator(".node.lit .name")).to_contain_text("glm-5.1")
    expect(daily).to_contain_text("1 in flight")
    upstream.gate("held").open()
    assert asked.result(30).status_code == 200
    expect(daily.locator(".node.good .name")).to_contain_text("glm-5.1")
    expect(daily.locator(".node.lit")).to_have_count(0)


def test_an_address_that_names_no_page_or_thing_is_answered(tab: Open) -> None:
    opened = tab()
    opened.expected = ("400", "404")
    for place, words in (
        ("constructor", "New combo"),
        ("__proto__", "New combo"),
        ("combos/%E0%A4%A", "is no combo's name"),
        ("routes/%", "No route"),
        ("combos/..", "is no name"),
    ):
        page = opened.open(place)
        expect(page.locator("main")).to_contain_text(words)


def test_a_screenshot_request_shows_why_it_went_there(tab: Open, krouter: Krouter) -> None:
    page = tab().open("routes")
    expect(page.get_by_text("No request yet")).to_be_visible()
    route = screenshot(krouter)
    page.get_by_role("row").filter(has_text="with an image").click()
    expect(page.locator("code", has_text=route)).to_be_visible()
    assert names(page) == [DAILY[2], DAILY[0], DAILY[1]]
    boxes = page.locator(".node:has(.mono)")
    expect(boxes.nth(0)).to_contain_text("moved: reads image")
    for other in (1, 2):
        expect(boxes.nth(other)).to_contain_text("text only")
    expect(boxes.nth(0)).to_contain_text(" in, ")


def test_the_list_of_routes_is_live_and_filtered(tab: Open, krouter: Krouter) -> None:
    page = tab().open("routes?combo=shaky")
    rows = page.locator("tbody tr")
    krouter.messages("daily")
    krouter.messages("shaky")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("ds/deepseek-v4-pro")
    rows.get_by_role("link").click()
    failed = page.locator(".node.bad")
    expect(failed).to_contain_text("429 rate limited")
    expect(failed).to_contain_text("locks")
    page.get_by_role("link", name="All routes").click()
    expect(rows).to_have_count(2)
    page.get_by_label("Asked for").fill("daily")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)


def test_what_if_an_entry_fails(tab: Open, krouter: Krouter) -> None:
    opened = tab()
    page = opened.open("whatif/daily")
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text("glm/glm-5.1 answers")
    page.locator("[data-index='0']").focus()
    page.keyboard.press("Enter")
    opened.check_axe()
    page.get_by_role("dialog").get_by_role("button", name="529 overloaded").click()
    expect(page.locator("[data-index='0']")).to_be_focused()
    expect(verdict).to_contain_text("ds/deepseek-v4-pro answers")
    expect(page.locator(".node.bad")).to_contain_text("made to fail")
    page.get_by_label("an image").check()
    expect(verdict).to_contain_text("cc/claude-sonnet-4-6 answers")
    expect(page.locator(".node:has(.mono)").first).to_contain_text("moved: reads image")
    page.get_by_text("A body of your own").click()
    page.get_by_label("The body, as JSON").fill("{")
    expect(page.get_by_role("alert")).to_contain_text("The body is no JSON")
    assert not krouter.router.routes


def test_what_if_outlives_its_combo(tab: Open, krouter: Krouter) -> None:
    page = tab().open("whatif/turns")
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text("glm/glm-5.1 answers")
    page.get_by_label("glm/glm-5.1", exact=True).focus()
    page.get_by_label("glm/glm-5.1", exact=True).select_option("529")
    expect(page.get_by_label("glm/glm-5.1", exact=True)).to_be_focused()
    expect(verdict).to_contain_text("ds/deepseek-v4-pro answers")
    (krouter.home / "combos" / "turns.json").unlink()
    expect(page.get_by_label("Combo", exact=True)).not_to_have_value("turns")
    expect(page.get_by_text("turns is gone.")).to_be_visible()
    expect(verdict).to_contain_text("answers")
    krouter.write_combo("newer", {"models": ["ds/deepseek-v4-pro"]})
    page.get_by_label("Combo", exact=True).select_option("newer")
    expect(page.locator(".name.mono")).to_have_text(re.compile("ds/deepseek-v4-pro"))


def test_the_log_is_live_filtered_and_paused(tab: Open, krouter: Krouter) -> None:
    page = tab().open("log")
    lines = page.locator(".lines li:visible")
    krouter.messages("daily")
    expect(lines.filter(has_text="daily: glm/glm-5.1 answers")).to_have_count(1)
    page.get_by_label("Filter the lines").fill("route")
    expect(lines).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    krouter.messages("daily")
    expect(page.get_by_role("button", name="Go on (3)")).to_be_visible()
    expect(lines).to_have_count(1)
    page.get_by_role("button", name="Go on").click()
    expect(lines).to_have_count(2)


def test_the_routing_strategy_is_set_after_its_diff_was_seen(tab: Open, krouter: Krouter) -> None:
    opened = tab()
    page = opened.open("settings")
    settings = krouter.home / "krouter.toml"
    card = page.get_by_role("region", name="Routing Strategy")
    expect(card).to_contain_text("turns")
    card.get_by_label("Combo Round Robin").check()
    card.get_by_label("Combo Sticky Limit").fill("4")
    card.get_by_role("button", name="Review the change").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".plus", has_text="combo_sticky_limit = 4")).to_be_visible()
    opened.check_axe()
    assert "combo_sticky_limit" not in settings.read_text()
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    text = settings.read_text()
    assert text.startswith("# what this machine may ask\n")
    assert "combo_sticky_limit = 4" in text
    page.get_by_role("link", name="Combos", exact=True).click()
    daily = page.get_by_role("article", name="daily")
    expect(daily).to_contain_text("round robin, by the switch for all combos")


def test_a_provider_takes_turns_and_an_account_is_tested(tab: Open, krouter: Krouter) -> None:
    page = tab().open("settings")
    card = page.get_by_role("region", name="Z.ai GLM")
    expect(card.get_by_role("row").filter(has_text="home")).to_contain_text("ready")
    card.get_by_label("Round Robin").click()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(card.get_by_label("Sticky limit")).to_be_visible()
    assert 'account_strategy = "round-robin"' in (krouter.home / "krouter.toml").read_text()
    card.get_by_role("button", name="Test the account work of glm").click()
    expect(card.get_by_role("row").filter(has_text="work")).to_contain_text("works")


def test_what_is_half_set_outlives_what_is_saved_beside_it(tab: Open, krouter: Krouter) -> None:
    page = tab().open("settings")
    vision = page.get_by_role("region", name="Vision Adapter")
    models = vision.get_by_label("Models for image")
    models.fill("just words")
    routing = page.get_by_role("region", name="Routing Strategy")
    routing.get_by_label("Combo Round Robin").check()
    routing.get_by_role("button", name="Review the change").click()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(routing.get_by_role("button", name="Review the change")).to_be_focused()
    expect(models).to_have_value("just words")
    routing.get_by_role("button", name="Review the change").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nothing is changed")
    expect(dialog.get_by_role("button", name="Save")).to_have_count(0)
    dialog.get_by_role("button", name="Close").click()
    vision.get_by_role("button", name="Review the change").click()
    expect(dialog.get_by_role("alert")).to_contain_text("'just' is not used")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    assert 'models = ["just", "words"]' in (krouter.home / "krouter.toml").read_text()


def test_quick_toggles_ask_once(tab: Open) -> None:
    page = tab().open("settings")
    switch = page.get_by_role("region", name="Z.ai GLM").get_by_label("Round Robin")
    switch.evaluate("each => { for (let i = 0; i < 3; i++) each.click(); }")
    expect(page.get_by_role("dialog")).to_have_count(1)


def test_the_sticky_limit_shows_while_it_counts(tab: Open, krouter: Krouter) -> None:
    """Not where no combo takes turns; those that ship have to be none of them for that."""
    for name in ("turns", "free-tier"):
        krouter.write_combo(name, {"models": DAILY})
    page = tab().open("settings")
    card = page.get_by_role("region", name="Routing Strategy")
    limit = card.get_by_label("Combo Sticky Limit")
    expect(limit).to_be_hidden()
    card.get_by_label("Combo Round Robin").check()
    expect(limit).to_be_visible()
    card.get_by_label("Combo Round Robin").uncheck()
    expect(limit).to_be_hidden()
    krouter.write_combo("turns", {"strategy": "round-robin", "models": DAILY})
    expect(limit).to_be_visible()
    expect(card).to_contain_text("still counts for 1 combo set to round robin: turns")


def test_a_broken_file_is_told_where_it_matters(tab: Open, krouter: Krouter) -> None:
    page = tab().open("settings")
    with (krouter.home / "krouter.toml").open("a") as file:
        file.write("[routing]\nstcky = 1\n")
    expect(page.get_by_label("What is wrong with the files")).to_contain_text("stcky")


def test_locks_and_quotas_of_single_models_are_shown(tab: Open, krouter: Krouter) -> None:
    krouter.messages("shaky")
    krouter.messages("glm/old:status=404")
    for model, left in (("glm-5.1", 0.1), ("glm-4.7", 0.6)):
        told = {"provider": "glm", "account": "work", "model": model, "remaining": left}
        assert krouter.http.post("/api/quota", json=told).status_code == 200
    page = tab().open("settings")
    row = page.get_by_role("region", name="Z.ai GLM").get_by_role("row").filter(has_text="work")
    lock = row.locator(".warn", has_text="locked for busy")
    expect(lock).to_have_text(re.compile(r"locked for busy\S+, 1:\d\d: 429 rate limited"))
    expect(row.locator(".warn", has_text=": 404 model gone")).to_have_count(1)
    expect(row).to_contain_text("ready for other models")
    expect(row.locator("div:has(> meter)")).to_have_text(
        [re.compile("^10 % glm-5.1, full in|^10 % glm-5.1$"), re.compile("^60 % glm-4.7")]
    )
    clock = lock.locator("[data-until]")
    before = clock.text_content()
    expect(clock).not_to_have_text(before or "")


def test_a_limit_that_is_not_saved_is_not_shown(tab: Open, krouter: Krouter) -> None:
    page = tab().open("settings")
    card = page.get_by_role("region", name="Z.ai GLM")
    card.get_by_label("Round Robin").click()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    limit = card.get_by_label("Sticky limit")
    before = limit.input_value()
    limit.fill("7")
    limit.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Not now").click()
    expect(limit).to_have_value(before)


def test_a_key_is_asked_for_once_and_kept_in_the_tab(tab: Open, krouter: Krouter) -> None:
    key = add_key(krouter.home / "keys.json", "laptop", 0.0)
    limited = add_key(krouter.home / "keys.json", "guest", 0.0, limits=Limits(models=("daily",)))
    opened = tab()
    opened.expected = ("401", "403")
    page = opened.page
    page.goto(f"{krouter.url}/#/combos")
    for given in ("wrong", limited, key):
        page.get_by_label("Key", exact=True).fill(given)
        page.keyboard.press("Enter")
    expect(page.get_by_role("article", name="daily")).to_be_visible()
    opened.open("log")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("Object.values(sessionStorage)") == [key]
    assert page.evaluate("Object.values(localStorage)") == []


def test_a_key_that_no_header_can_carry_is_not_taken(tab: Open, krouter: Krouter) -> None:
    add_key(krouter.home / "keys.json", "laptop", 0.0)
    opened = tab()
    opened.expected = ("401",)
    page = opened.page
    page.goto(f"{krouter.url}/#/combos")
    field = page.get_by_label("Key", exact=True)
    field.fill("ключ")
    page.keyboard.press("Enter")
    assert field.evaluate("each => !each.checkValidity()")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.evaluate("sessionStorage.setItem('krouter.key', 'ключ')")
    page.reload()
    expect(field).to_be_visible()


def test_colours_are_those_of_the_system_until_others_are_chosen(tab: Open) -> None:
    page = tab().open("combos")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    page.get_by_role("button", name="Use light colours").click()
    assert page.evaluate(ground) == light
    page.reload()
    assert page.evaluate(ground) == light


@pytest.fixture(autouse=True)
def _settled(krouter: Krouter) -> Iterator[None]:
    yield
    krouter.idle()
