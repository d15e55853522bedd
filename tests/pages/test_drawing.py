"""The drawing, which is pure, and the words in it: what goes in as JSON comes out as SVG."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.harness import Krouter
from tests.pages.pictures import DRAWING, ROUTE, drawing


@pytest.fixture(scope="module")
def sheet(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page on which the modules of the pages can be had."""
    with Krouter(tmp_path_factory.mktemp("home")) as krouter:
        page = browser.new_page()
        page.goto(f"{krouter.url}/pages/icon.svg")
        yield page
        page.close()


def test_the_drawing_lets_no_markup_in(sheet: Page) -> None:
    entry: dict[str, Any] = {
        "model": "<script>&\"'/x",
        "kind": "model",
        "reads": None,
        "accounts": [],
        "skip": "",
    }
    combo = {"name": "<b>", "strategy": "fallback", "rotates": False, "entries": [entry]}
    svg = sheet.evaluate(
        "async (combo) => (await import('/pages/draw.js')).drawCombo(combo, {width: 900})", combo
    )
    assert "<script" not in svg
    assert "&lt;script&gt;&amp;" in svg


TEXT_ONLY = {"image": "no", "pdf": "no", "audio": "no", "video": "no"}
PDF_TOO = {**TEXT_ONLY, "pdf": "yes"}
WORDS = (
    ("reason", [{"reason": "as listed; reads image", "listed": 3}, 0, None], "moved: reads image"),
    ("reason", [{"reason": "as listed; reads image", "listed": 1}, 0, None], "reads image"),
    ("reason", [{"reason": "as listed; does not read image"}, 1, TEXT_ONLY], "text only"),
    ("reason", [{"reason": "as listed; does not read image"}, 1, PDF_TOO], "does not read image"),
    ("reason", [{"reason": "as listed; does not read image"}, 1, None], "does not read image"),
    ("reason", [{"reason": "as listed"}, 1, None], "as listed"),
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


def test_the_words(sheet: Page) -> None:
    script = "async ([name, given]) => (await import('/pages/words.js'))[name](...given)"
    for name, given, words in WORDS:
        assert sheet.evaluate(script, [name, given]) == words, (name, given)


LAID = """async ([shapes, counts, widths]) => {
  const { drawCombo } = await import('/pages/draw.js');
  const lock = { reason: 'quota spent', until: 5000, scope: 'account' };
  const entry = (at) => ({ model: `glm/model-${at}`, reads: null, skip: '', accounts: Array.from(
    { length: at % 3 }, (_, i) => ({ name: `a${i}`, health: 1, left: 0.5, lock, problem: '' })) });
  return shapes.flatMap((strategy) => counts.flatMap((count) => widths.map((width) => {
    const entries = Array.from({ length: count }, (_, at) => entry(at));
    const combo = { name: 'x', strategy, rotates: strategy === 'round-robin', entries };
    const svg = drawCombo(combo, { width, now: 1000 });
    const size = /viewBox="(\\S+) (\\S+) (\\S+) (\\S+)"/.exec(svg).slice(1).map(Number);
    const node = /translate\\((\\d+) (\\d+)\\)"><rect class="box" width="(\\d+)" height="(\\d+)"/g;
    return [width, size, [...svg.matchAll(node)].map((each) => each.slice(1).map(Number))];
  })));
}"""


def test_boxes_stand_beside_each_other_inside_the_drawing(sheet: Page) -> None:
    shapes, counts, widths = ("fallback", "round-robin", "fusion"), (1, 2, 3, 5, 8), (350, 1240)
    laid = sheet.evaluate(LAID, [shapes, counts, widths])
    assert len(laid) == len(shapes) * len(counts) * len(widths)
    for given, (left, top, width, height), boxes in laid:
        assert width <= given
        assert boxes
        for x, y, wide, high in boxes:
            assert left <= x
            assert x + wide <= left + width
            assert top <= y
            assert y + high <= top + height
        for (x, y, wide, high), (u, v, _, _) in permutations(boxes, 2):
            assert not (x <= u < x + wide and y <= v < y + high)


def test_a_long_name_is_shortened_between_its_signs(sheet: Page) -> None:
    script = """async (model) => {
      const { drawCombo } = await import('/pages/draw.js');
      const entry = { model, reads: null, skip: '', accounts: [] };
      const svg = drawCombo({ name: 'x', strategy: 'fallback', entries: [entry] }, { width: 900 });
      return /<tspan>(.*?)<.tspan>/.exec(svg)[1];
    }"""
    shown = sheet.evaluate(script, "x" + "\U0001f600" * 100_000)
    assert set(shown) == {"x", "\U0001f600", "…"}
    assert len(shown) < 50


def test_the_picture_of_the_readme_is_what_the_pages_draw(sheet: Page) -> None:
    """Otherwise: python -m tests.pages.pictures."""
    assert DRAWING.read_text() == drawing(sheet, json.loads(ROUTE.read_text()))
