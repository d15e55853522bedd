"""The files of the pages: who gets them, and with which restraints for the browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from krouter.keys import add_key
from krouter.serve.pages import FOLDER, read_pages
from tests.harness import Krouter

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    """A krouter that asks for a key."""
    home = tmp_path_factory.mktemp("home")
    add_key(home / "keys.json", "laptop", 0.0)
    with Krouter(home) as krouter:
        yield krouter


def test_a_browser_gets_the_pages_without_a_key(locked: Krouter) -> None:
    told = locked.http.get("/", headers=BROWSER)
    assert (told.status_code, told.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for path in re.findall(r'(?:href|src)="(pages/[^"]+)"', told.text):
        assert locked.http.get(f"/{path}").status_code == 200
    assert locked.http.get("/").status_code == 401
    assert locked.http.get("/api/view", headers=BROWSER).status_code == 401


def test_a_program_gets_text(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        for headers in ({}, {"accept": "*/*"}, {"accept": "text/plain"}):
            told = krouter.http.get("/", headers=headers)
            assert told.headers["content-type"].startswith("text/plain")
            assert told.text.startswith("krouter ")


@pytest.mark.parametrize("name", sorted(read_pages()))
def test_a_file_runs_nothing_of_others(locked: Krouter, name: str) -> None:
    told = locked.http.get(f"/pages/{name}")
    assert told.content == (FOLDER / name).read_bytes()
    policy = told.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert told.headers["x-content-type-options"] == "nosniff"
    text = told.text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|\bon\w+=\"|style=\"|innerHTML|eval\(", text)


def test_what_has_not_changed_is_not_sent_again(locked: Krouter) -> None:
    tag = locked.http.get("/pages/app.js").headers["etag"]
    again = locked.http.get("/pages/app.js", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert locked.http.head("/pages/app.js").headers["etag"] == tag


@pytest.mark.parametrize(
    "path", ["none.js", "..%2fserve%2fapp.py", "%2e%2e/router.py", "sub/app.js", "", "app.js%00"]
)
def test_nothing_else_is_served(locked: Krouter, path: str) -> None:
    assert locked.http.get(f"/pages/{path}").status_code == 404


def test_only_reading_is_possible(locked: Krouter) -> None:
    assert locked.http.post("/pages/app.js", headers=BROWSER).status_code == 405
    assert locked.http.post("/", headers=BROWSER).status_code == 405


def test_a_foreign_host_gets_none(locked: Krouter) -> None:
    headers = {**BROWSER, "host": "evil.example"}
    for path in ("/", "/pages/app.js"):
        assert locked.http.get(path, headers=headers).status_code == 403
