"""Makes the pictures of the documentation: `python -m tests.pages.pictures`.

docs/route.svg is docs/examples/route.json as the pages' own code draws it, docs/pages/ are
screenshots of a krouter whose providers are stand-ins on this machine.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from krouter.serve.pages import FOLDER
from tests.harness import Krouter
from tests.pages.conftest import CREDENTIALS, DAILY, NAMES, SCREENSHOT, SETTINGS, WallClock
from tests.upstream import Upstream

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
ROUTE = DOCS / "examples" / "route.json"
DRAWING = DOCS / "route.svg"
SHOTS = DOCS / "pages"
WIDTH = 860

COMBOS: dict[str, Any] = {
    "daily": {"description": "what the coding tools ask for", "models": DAILY},
    "turns": {"strategy": "round-robin", "models": [*DAILY, "glm/glm-4.7"]},
    "council": {"strategy": "fusion", "models": DAILY, "judge": "cc/claude-opus-4-8"},
}


def drawing(page: Page, route: Any, width: int = WIDTH) -> str:
    """The SVG of a route that stands alone, with its colours in it; `page` is one of krouter's."""
    style = "".join((FOLDER / name).read_text() for name in ("theme.css", "draw.css"))
    script = "async (given) => (await import('/pages/draw.js')).drawRoute(...given)"
    svg: str = page.evaluate(script, [route, {"width": width, "style": style}])
    return f"{svg}\n"


def fallen_over(krouter: Krouter, upstream: Upstream) -> Any:
    """The route of a request that the third entry answers."""
    upstream.script("glm-5.1", ["status=529;slow-headers=0.4"])
    upstream.script("deepseek-v4-pro", ["status=402;slow-headers=0.2"])
    upstream.script("claude-sonnet-4-6", ["usage=1830,412;slow-headers=0.9;slow-first=0.6"])
    krouter.messages("daily")
    upstream.clear()
    return krouter.last_route


def seeded(krouter: Krouter, upstream: Upstream) -> None:
    """Something of everything has happened."""
    for account, left in (("home", 0.12), ("work", 0.63)):
        told = {"provider": "glm", "account": account, "model": "glm-5.1", "remaining": left}
        krouter.http.post("/api/quota", json=told)
    for name, combo in COMBOS.items():
        (krouter.home / "combos" / f"{name}.json").write_text(json.dumps(combo, indent=2) + "\n")
    for model in ("glm-5.1", "deepseek-v4-pro", "claude-sonnet-4-6", "claude-opus-4-8"):
        upstream.script(model, ["slow-headers=0.4;usage=1204,86"])
    krouter.messages("daily")
    krouter.messages("turns")
    upstream.script("glm-5.1", ["status=429;retry-after=240", "slow-headers=0.3;usage=1204,86"])
    krouter.messages("daily")
    krouter.messages("council")
    krouter.messages("daily", messages=[{"role": "user", "content": SCREENSHOT}])
    krouter.messages("nightly")
    krouter.idle()


def shoot_a_request(page: Page, krouter: Krouter, upstream: Upstream) -> None:
    """The combos with a request on its way."""
    page.set_viewport_size({"width": 1280, "height": 860})
    page.goto(f"{krouter.url}/#/combos")
    page.locator("h1").wait_for()
    page.wait_for_timeout(2500)  # until nothing shows any more that it has just ended
    upstream.script("glm-5.1", ["gate=held"])
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(krouter.messages, "daily")
        page.get_by_text("1 in flight").first.wait_for()
        page.wait_for_timeout(500)
        page.screenshot(path=SHOTS / "combos.png")
        upstream.gate("held").open()
        asked.result()


def shoot(page: Page, krouter: Krouter) -> None:
    """One picture of each page."""
    route = next(r.id for r in reversed(krouter.router.routes) if r.needs)
    for place, name, height in (
        ("combos/daily", "editor", 900),
        ("whatif/daily", "whatif", 700),
        ("routes", "routes", 420),
        (f"routes/{route}", "route", 420),
        ("log", "log", 520),
        ("settings", "settings", 1000),
    ):
        page.set_viewport_size({"width": 1280, "height": height})
        page.goto(f"{krouter.url}/#/{place}")
        page.locator("h1").wait_for()
        if name in PREPARE:
            PREPARE[name](page)
        page.wait_for_timeout(500)
        page.screenshot(path=SHOTS / f"{name}.png")


def _edit(page: Page) -> None:
    page.locator("[data-index='0']").press("Alt+ArrowRight")
    page.get_by_role("button", name="Review the change").click()
    page.get_by_role("button", name="Save").wait_for()
    page.evaluate("scrollTo(0, 0)")


def _fail(page: Page) -> None:
    page.locator("[data-index='0']").press("Enter")
    page.get_by_role("dialog").get_by_role("button").nth(1).click()
    page.locator(".node.bad").wait_for()


PREPARE = {"editor": _edit, "whatif": _fail}


def main() -> None:
    path = next(filter(None, map(shutil.which, NAMES)))
    SHOTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, Upstream() as upstream, sync_playwright() as play:
        settings = SETTINGS.format(url=upstream.url)
        with Krouter(
            Path(home), combos=COMBOS, settings=settings, env=CREDENTIALS, clock=WallClock()
        ) as krouter:
            browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = browser.new_page()
            if "route" in sys.argv:
                ROUTE.write_text(json.dumps(fallen_over(krouter, upstream), indent=1) + "\n")
                krouter.forget()
            page.goto(f"{krouter.url}/")
            DRAWING.write_text(drawing(page, json.loads(ROUTE.read_text())))
            seeded(krouter, upstream)
            shoot_a_request(page, krouter, upstream)
            shoot(page, krouter)
            browser.close()


if __name__ == "__main__":
    main()
