"""The drawing, which is pure, and the words in it: what goes in as JSON comes out as SVG."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise, permutations
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page

from krouter.route import Placed, Route
from tests.harness import Krouter
from tests.pages.pictures import DRAWING, ROUTE, drawing

TUNING = {"minPanel": 2, "stragglerGraceMs": 8000, "panelHardTimeoutMs": 90000}


@pytest.fixture(scope="module")
def sheet(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page on which the modules of the pages can be had."""
    with Krouter(tmp_path_factory.mktemp("home")) as krouter:
        page = browser.new_page()
        page.goto(f"{krouter.url}/pages/icon.svg")
        yield page
        page.close()


def test_the_drawing_lets_no_markup_in(sheet: Page) -> None:
    bad = "<script>&\"'/x"
    lock = {"reason": bad, "until": 5000, "scope": bad, "probing": False}
    account = {"name": bad, "health": 1, "left": 0.5, "lock": lock, "problem": bad}
    entry: dict[str, Any] = {
        "model": bad,
        "label": bad,
        "kind": "model",
        "reads": None,
        "accounts": [account],
        "skip": bad,
    }
    for shape in ("chain", "fan"):
        combo = {"name": bad, "strategy": bad, "shape": shape, "rotates": False, "judge": bad}
        combo |= {"effective": TUNING, "entries": [entry, {**entry, "accounts": []}]}
        given = [combo, {"width": 2000, "now": 1000, "interactive": True}]
        script = "async (given) => (await import('/pages/draw.js')).drawCombo(...given)"
        check_markup(sheet.evaluate(script, given), at_least=9)
    step = {"step": "skip", "entry": bad, "account": bad, "reason": bad, "detail": bad}
    attempt = {**step, "step": "attempt", "outcome": bad, "began": 0, "ended": 1, "places": [1]}
    attempt |= {"lock": 3, "locked": bad, "lane": bad, "model": bad}
    placed = {"entry": bad, "reason": bad, "listed": 1, "moved": True}
    placed["why"] = [{"code": bad, "text": bad}]
    route = {"asked": bad, "dialect": bad, "outcome": bad, "plan": [placed], "voices": []}
    route |= {"shape": "chain", "steps": [{**step, "places": [1]}, attempt], "needs": [bad]}
    script = "async (route) => (await import('/pages/draw.js')).drawRoute(route, {width: 2000})"
    check_markup(sheet.evaluate(script, route), at_least=9)


def check_markup(svg: str, at_least: int) -> None:
    assert "<script" not in svg
    assert svg.count("&lt;script&gt;&amp;") >= at_least
    assert ElementTree.fromstring(svg).tag.endswith("svg")


TEXT_ONLY = {"image": "no", "pdf": "no", "audio": "no", "video": "no"}
PDF_TOO = {**TEXT_ONLY, "pdf": "yes"}
WORDS = (
    ("reading", [PDF_TOO], "reads pdf"),
    ("reading", [None], "not known what it reads"),
    ("span", [0.0004], "0 ms"),
    ("span", [0.9996], "1 s"),
    ("span", [12.34], "12 s"),
    ("span", [3600], "1 h"),
    ("countdown", [61.2], "1:02"),
    ("countdown", [-3], "0:00"),
    ("countdown", [7500], "2 h 5 min"),
    ("money", [0.000225], "$0.00022"),
    ("money", [12.3], "$12.30"),
    ("money", [None], ""),
    ("ordinal", [113], "113th"),
    ("size", [131072], "131k"),
)


REASONS = (
    (("as listed; reads image", 1, 3), None, "moved: reads image"),
    (("as listed; may read image", 1, 3), None, "moved: may read image"),
    (("as listed; reads image", 1, 1), None, "reads image"),
    (("as listed; does not read image", 1, 2), TEXT_ONLY, "text only"),
    (("as listed; does not read image", 2, 2), PDF_TOO, "does not read image"),
    (("as listed; does not read image", 2, None), None, "does not read image"),
    (("in its turn; does not read image; no account", 1, 1), TEXT_ONLY, "*; text only; no account"),
    (("as listed", 2, 2), None, "as listed"),
)


def test_the_words_of_a_reason(sheet: Page) -> None:
    script = "async (given) => (await import('/pages/words.js')).reason(...given)"
    for (reason, place, listed), reads, words in REASONS:
        plan = [Placed("x/y", "as listed", 1)] * (place - 1) + [Placed("x/y", reason, listed)]
        route = Route("r", 0.0, "chat", "c", False, plan=plan).as_json()
        told = sheet.evaluate(script, [route["plan"][place - 1], reads])
        assert told == words.replace("*", "in its turn"), reason


def test_a_route_takes_what_entries_read_from_its_own_combo(sheet: Page) -> None:
    plan = [Placed("x/y", "as listed; does not read image", 1)]
    route = Route("r", 0.0, "chat", "c", False, combo="c", plan=plan).as_json()
    entry = {"model": "x/y", "reads": TEXT_ONLY}
    combos = [{"name": "c", "entries": [entry]}]
    combos += [{"name": "other", "entries": [{**entry, "reads": PDF_TOO}]}]
    script = "async (given) => (await import('/pages/draw.js')).drawRoute(...given)"
    assert "text only" in sheet.evaluate(script, [route, {"combos": combos}])
    assert "does not read image" in sheet.evaluate(script, [route, {"combos": combos[1:]}])


def test_the_words(sheet: Page) -> None:
    script = "async ([name, given]) => (await import('/pages/words.js'))[name](...given)"
    for name, given, words in WORDS:
        assert sheet.evaluate(script, [name, given]) == words, (name, given)


LAID = """async ([shapes, counts, widths]) => {
  const { drawCombo } = await import('/pages/draw.js');
  const lock = { reason: 'quota spent', until: 5000, scope: 'account' };
  const entry = (at) => ({ model: `glm/model-${at}`, reads: null, skip: '', accounts: Array.from(
    { length: at % 3 }, (_, i) => ({ name: `a${i}`, health: 1, left: 0.5, lock, problem: '' })) });
  return shapes.flatMap((shape) => counts.flatMap((count) => widths.map((width) => {
    const entries = Array.from({ length: count }, (_, at) => entry(at));
    const effective = { minPanel: 2, stragglerGraceMs: 8000, panelHardTimeoutMs: 90000 };
    const combo = { name: 'x', shape, rotates: shape === 'ring', effective, entries };
    const svg = drawCombo(combo, { width, now: 1000 });
    const size = /viewBox="(\\S+) (\\S+) (\\S+) (\\S+)"/.exec(svg).slice(1).map(Number);
    const node = /translate\\((\\d+) (\\d+)\\)"><rect class="box" width="(\\d+)" height="(\\d+)"/g;
    const edges = svg.split('<path class="edge').length - 1;
    const boxes = [...svg.matchAll(node)].map((each) => each.slice(1).map(Number));
    return [shape, count, edges, width, size, boxes];
  })));
}"""


def test_boxes_stand_beside_each_other_inside_the_drawing(sheet: Page) -> None:
    shapes, counts, widths = ("chain", "ring", "fan"), (1, 2, 3, 5, 8), (350, 1240)
    laid = sheet.evaluate(LAID, [shapes, counts, widths])
    assert len(laid) == len(shapes) * len(counts) * len(widths)
    for shape, count, edges, given, (left, top, width, height), boxes in laid:
        assert width <= given
        assert len(boxes) == count + (3 if shape == "fan" else 0), "request, judge and answer"
        around = count if count > 1 else 0
        assert edges == {"chain": count - 1, "ring": around, "fan": 2 * count + 1}[shape]
        for x, y, wide, high in boxes:
            assert left <= x
            assert x + wide <= left + width
            assert top <= y
            assert y + high <= top + height
        for (x, y, wide, high), (u, v, _, _) in permutations(boxes, 2):
            assert not (x <= u < x + wide and y <= v < y + high)


EDGES = """async ([strategy, count, width]) => {
  const { drawCombo } = await import('/pages/draw.js');
  const entries = Array.from({ length: count }, (_, at) => (
    { model: `${at}`, reads: null, skip: '', accounts: [] }));
  const shape = { 'round-robin': 'ring', fusion: 'fan' }[strategy] ?? 'chain';
  const effective = { minPanel: 2, stragglerGraceMs: 8000, panelHardTimeoutMs: 90000 };
  const combo = { name: 'x', strategy, shape, effective, judge: 'j', entries };
  const svg = new DOMParser().parseFromString(drawCombo(combo, { width }), 'image/svg+xml');
  const boxes = [...svg.querySelectorAll('.node')].map((node) => {
    const [x, y] = node.getAttribute('transform').match(/-?\\d+/g).map(Number);
    const box = node.querySelector('.box');
    const name = node.querySelector('.name tspan:nth-child(2)').textContent;
    return [name, x, y, x + +box.getAttribute('width'), y + +box.getAttribute('height')];
  });
  const at = ([px, py]) => boxes.find(([, left, top, right, bottom]) =>
    px >= left - 1 && px <= right + 1 && py >= top - 1 && py <= bottom + 1)[0];
  return [...svg.querySelectorAll('.edge')].map((edge) => {
    const numbers = edge.getAttribute('d').match(/-?\\d+/g).map(Number);
    return [at(numbers.slice(0, 2)), at(numbers.slice(-2))];
  });
}"""


@pytest.mark.parametrize("width", [350, 1240])
@pytest.mark.parametrize("count", [2, 3, 6])
def test_arrows_lead_along_a_chain_around_a_ring_and_through_a_fan(
    sheet: Page, count: int, width: int
) -> None:
    entries = [str(at) for at in range(count)]
    onward = list(pairwise(entries))
    fan = [*(("request", each) for each in entries), *((each, "j") for each in entries)]
    for strategy, expected in (
        ("fallback", onward),
        ("round-robin", [*onward, (entries[-1], "0")]),
        ("fusion", [*fan, ("j", "answer")]),
    ):
        drawn = sheet.evaluate(EDGES, [strategy, count, width])
        assert sorted(map(tuple, drawn)) == sorted(expected), strategy


COLUMN = {0: (0, 0, 300, 70), 1: (0, 100, 300, 240), 2: (0, 270, 300, 340)}
GRID = {0: (0, 0, 200, 70), 1: (240, 0, 440, 70), 2: (0, 100, 200, 170), 3: (240, 100, 440, 170)}
DESTINATIONS = (
    # where boxes are, which is held, where the pointer was and is, and where the box then stands
    (COLUMN, 0, (150, 35), (150, 90), 0, "between two boxes"),
    (COLUMN, 0, (150, 35), (150, 160), 0, "not yet at the middle of the second"),
    (COLUMN, 0, (150, 35), (150, 170), 1, "at its middle"),
    (COLUMN, 0, (150, 35), (150, 200), 1, "past it"),
    (COLUMN, 0, (150, 35), (150, 310), 2, "past the middle of the last, over the second"),
    (COLUMN, 1, (150, 300), (150, 310), 2, "downward, past it"),
    (COLUMN, 1, (150, 320), (150, 310), 1, "past it, but on the way back"),
    (COLUMN, 2, (150, 305), (150, 180), 2, "upward, not yet at the middle"),
    (COLUMN, 2, (150, 305), (150, 160), 1, "upward, past it"),
    (COLUMN, 1, (150, 170), (400, 20), 1, "beside all boxes"),
    (COLUMN, 7, (150, 170), (150, 20), 7, "a box that is gone"),
    (GRID, 0, (100, 35), (300, 35), 0, "to the right, not yet at the middle"),
    (GRID, 0, (100, 35), (350, 35), 1, "to the right, past it"),
    (GRID, 0, (100, 35), (100, 140), 2, "down a row"),
    (GRID, 3, (340, 135), (90, 30), 0, "to the other corner"),
    (GRID, 1, (340, 35), (90, 140), 2, "to the next row's beginning"),
)


def test_a_dragged_box_takes_the_place_whose_middle_the_pointer_has_passed(sheet: Page) -> None:
    script = """async ([boxes, held, from, to]) => {
      const { destination } = await import('/pages/drag.js');
      const rects = boxes.map(([index, [left, top, right, bottom]]) =>
        [index, { left, top, right, bottom }]);
      return destination(new Map(rects), held, from, to);
    }"""
    for boxes, held, before, now, index, why in DESTINATIONS:
        given = [[[at, list(box)] for at, box in boxes.items()], held, before, now]
        assert sheet.evaluate(script, given) == index, why


DRAGGED = """async ([shapes, widths, heights]) => {
  const { destination } = await import('/pages/drag.js');
  const { chain, fan, ring } = await import('/pages/layout.js');
  const end = () => ({ height: 60 });
  const layOut = {
    chain, ring, fan: (boxes, width) => fan(end(), boxes, end(), end(), width),
  };
  const laid = (shape, order, width) => {
    const boxes = order.map((id) => ({ height: heights[id] }));
    layOut[shape](boxes, width);
    return new Map(boxes.map(({ x, y, width, height }, index) =>
      [index, { left: x, top: y, right: x + width, bottom: y + height }]));
  };
  const middle = ({ left, top, right, bottom }) => [(left + right) / 2, (top + bottom) / 2];
  const drag = (shape, width, held, target) => {
    const order = heights.map((_, id) => id);
    let [index, rects] = [held, laid(shape, order, width)];
    const [[x, y], [u, v]] = [middle(rects.get(held)), middle(rects.get(target))];
    let turned = [x, y];
    const places = [held];
    for (let part = 0; part <= 1.2; part += 0.01) {
      const at = [x + (u - x) * part, y + (v - y) * part];
      for (const _ of 'thrice') {
        const to = destination(rects, index, turned, at);
        if (to === index) continue;
        order.splice(to, 0, ...order.splice(index, 1));
        [index, turned, rects] = [to, at, laid(shape, order, width)];
        places.push(index);
      }
    }
    return [shape, width, held, target, places];
  };
  const ids = heights.map((_, id) => id);
  return shapes.flatMap((shape) => widths.flatMap((width) => ids.flatMap((held) => ids
    .filter((target) => target !== held).map((target) => drag(shape, width, held, target)))));
}"""


@pytest.mark.parametrize("heights", [[71, 123, 71, 190], [190, 53, 53, 123, 53], [70] * 5])
def test_a_steady_drag_never_puts_a_box_where_it_was_before(
    sheet: Page, heights: list[int]
) -> None:
    shapes, widths = ["chain", "ring", "fan"], [350, 1240]
    drags = sheet.evaluate(DRAGGED, [shapes, widths, heights])
    assert len(drags) == len(shapes) * len(widths) * len(heights) * (len(heights) - 1)
    for shape, width, held, target, places in drags:
        told = (shape, width, held, target, places)
        assert len(set(places)) == len(places), told
        if width == 350:
            assert places == sorted(places, reverse=target < held), told
        if len(set(heights)) == 1:
            assert places[-1] == target, told


def test_a_long_name_is_shortened_between_its_signs(sheet: Page) -> None:
    script = """async (model) => {
      const { drawCombo } = await import('/pages/draw.js');
      const entry = { model, reads: null, skip: '', accounts: [] };
      const svg = drawCombo({ name: 'x', shape: 'chain', entries: [entry] }, { width: 900 });
      return /<tspan>(.*?)<.tspan>/.exec(svg)[1];
    }"""
    shown = sheet.evaluate(script, "x" + "\U0001f600" * 100_000)
    assert set(shown) == {"x", "\U0001f600", "…"}
    assert len(shown) < 50


def test_the_picture_of_the_readme_is_what_the_pages_draw(sheet: Page) -> None:
    """Otherwise: python -m tests.pages.pictures."""
    assert DRAWING.read_text() == drawing(sheet, json.loads(ROUTE.read_text()))
