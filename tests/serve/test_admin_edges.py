"""Admin calls that come at once, are too large, or ask at a path that is none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from krouter.serve.admin import MOST_BYTES
from tests.harness import Krouter

MODELS = ["demo/assistant"]


def test_no_combo_loses_what_it_names_to_somebody_who_deletes_it_meanwhile(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter, ThreadPoolExecutor(2) as pool:
        http = krouter.http
        for number in range(8):
            inner, outer = f"/api/combos/inner{number}", f"/api/combos/outer{number}"
            digest = http.put(inner, json={"combo": {"models": MODELS}}).json()["digest"]
            combo = {"models": [f"inner{number}", *MODELS]}
            saving = pool.submit(http.put, outer, json={"combo": combo})
            deleting = pool.submit(http.delete, inner, params={"digest": digest})
            both = {saving.result().status_code, deleting.result().status_code}
            assert both == {200, 422}
        assert not http.get("/api/view").json()["problems"]


def test_a_body_that_is_too_large_is_told_the_limit_that_holds(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        reply = krouter.http.put("/api/combos/a", json={"text": "x" * MOST_BYTES})
    assert reply.status_code == 413
    assert "at most 1,048,576 bytes" in reply.json()["error"]["message"]
    assert "body_limit" not in reply.text


def test_a_line_break_at_the_end_of_a_path_is_not_passed_over(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        reply = krouter.http.put("/api/combos/a%0A", json={"combo": {"models": MODELS}})
        assert reply.status_code == 404
        assert krouter.http.get("/api/view%0A").status_code == 404
        assert not list((tmp_path / "combos").iterdir())
