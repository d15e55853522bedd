"""A browser for all tests of the pages, and a krouter with three providers behind it.

The browser is Chromium as the system has it. Without one these tests fail and say so, since pages
that nobody looked at must not pass; KROUTER_NO_BROWSER=1 leaves them out where that is meant.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect, sync_playwright

from tests.harness import Clock, Krouter
from tests.upstream import Upstream

NAMES = ("chromium", "chromium-browser", "google-chrome")
AXE = (Path(__file__).parent / "vendor" / "axe-4.10.3.min.js").read_text()
DAILY = ["glm/glm-5.1", "ds/deepseek-v4-pro", "cc/claude-sonnet-4-6"]
SETTINGS = """# what this machine may ask
[provider.glm]
base_urls = {{ chat = "{url}/v1", messages = "{url}" }}

[provider.ds]
base_urls = {{ chat = "{url}/v1", messages = "{url}" }}

[provider.cc]
base_urls = {{ messages = "{url}" }}

[[account]]
provider = "glm"
name = "home"
key = "env:GLM_HOME"

[[account]]
provider = "glm"
name = "work"
key = "env:GLM_WORK"
"""
CREDENTIALS = {
    "GLM_HOME": "glm-home",
    "GLM_WORK": "glm-work",
    "DEEPSEEK_API_KEY": "ds-x",
    "CLAUDE_CODE_OAUTH_TOKEN": "cc-x",
}
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SCREENSHOT = [
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    {"type": "text", "text": "What is wrong here?"},
]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if os.environ.get("KROUTER_NO_BROWSER"):
        pytest.skip("KROUTER_NO_BROWSER is set: the pages are not tested")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.fail(
            "There is no Chromium, so the pages cannot be tested: make browser installs Debian's"
            " (as root), KROUTER_NO_BROWSER=1 leaves these tests out.",
            pytrace=False,
        )
    expect.set_options(timeout=10_000)
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        launched = playwright.chromium.launch(executable_path=path, args=options)
        yield launched
        launched.close()


class WallClock(Clock):
    """The time of day, by which a page counts down."""

    def __call__(self) -> float:
        return time.time()


class Tab:
    """A page of a krouter, and what must not happen on it."""

    def __init__(self, page: Page, krouter: Krouter) -> None:
        self.page = page
        self.krouter = krouter
        self.expected: tuple[str, ...] = ()
        """Parts of the errors that a test provokes."""
        self._errors: list[str] = []
        self._hosts: list[str] = []
        page.on("console", lambda told: self._errors.append(told.text) if _is_bad(told) else None)
        page.on("pageerror", lambda error: self._errors.append(str(error)))
        page.on("request", lambda request: self._hosts.append(request.url))

    def open(self, place: str) -> Page:
        """The page at `#/place`, once it is there and follows what happens."""
        self.page.goto(f"{self.krouter.url}/#/{place}")
        expect(self.page.locator("#live")).to_have_text("live")
        expect(self.page.locator("h1")).to_be_visible()
        return self.page

    def check(self) -> None:
        """No error on the console, and no request to another host."""
        told = [e for e in self._errors if not any(part in e for part in self.expected)]
        assert not told
        assert not [url for url in self._hosts if not url.startswith(f"{self.krouter.url}/")]

    def check_axe(self) -> None:
        """No finding of axe-core on what is shown."""
        self.page.evaluate(AXE)
        found = self.page.evaluate("async () => (await axe.run(document)).violations")
        assert not [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]


def names(place: Locator | Page) -> list[str]:
    """The names in the boxes of a drawing, in their order."""
    return [text.split(" ")[-1] for text in place.locator(".name.mono").all_text_contents()]


def _is_bad(told: Any) -> bool:
    return told.type in ("error", "warning")


Open = Callable[[], Tab]
"""The fixture `tab`."""


@pytest.fixture
def krouter(upstream: Upstream, tmp_path: Path) -> Iterator[Krouter]:
    """`daily` and others, over two accounts of GLM and one each of DeepSeek and Claude."""
    combos = {
        "daily": {"models": DAILY},
        "turns": {"strategy": "round-robin", "models": DAILY},
        "council": {"strategy": "fusion", "models": DAILY, "judge": "ds/deepseek-v4-pro"},
        "shaky": {"models": ["glm/busy:status=429;retry-after=90", "ds/deepseek-v4-pro"]},
    }
    settings = SETTINGS.format(url=upstream.url)
    with Krouter(
        tmp_path, combos=combos, settings=settings, env=CREDENTIALS, clock=WallClock()
    ) as started:
        yield started


@pytest.fixture
def tab(browser: Browser, krouter: Krouter) -> Iterator[Open]:
    """Opens a tab; at the end each has to have behaved."""
    with ExitStack() as stack:

        def begin() -> Tab:
            viewport: ViewportSize = {"width": 1280, "height": 900}
            context = browser.new_context(viewport=viewport, reduced_motion="reduce")
            stack.callback(context.close)
            opened = Tab(context.new_page(), krouter)
            stack.callback(opened.check)
            return opened

        yield begin
