"""Combos, settings and keys are followed while serving."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from krouter.keys import add_key
from tests.harness import Krouter


def eventually(holds: Callable[[], bool], seconds: float = 30) -> bool:
    """Asks again, with no pause, until it holds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
    return False


def test_a_new_combo_answers_after_a_refresh(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        assert krouter.chat("new").status_code == 404
        krouter.write_combo("new", {"models": ["demo/assistant"]})
        krouter.served.house.refresh()
        assert krouter.chat("new").status_code == 200


def test_a_bad_file_keeps_the_last_good_version_and_says_so_once(tmp_path: Path) -> None:
    with Krouter(tmp_path, combos={"mine": {"models": ["demo/assistant"]}}) as krouter:
        krouter.write_combo("mine", {"modles": ["demo/assistant"]})
        krouter.served.house.refresh()
        krouter.served.house.refresh()
        assert krouter.chat("mine").status_code == 200
        health = krouter.http.get("/health").json()
        assert health["status"] == "degraded"
        assert any("Did you mean 'models'?" in problem for problem in health["problems"])
        told = [line for line in krouter.lines if "modles" in line]
        assert len(told) == 1
        krouter.write_combo("mine", {"models": ["demo/assistant"]})
        krouter.served.house.refresh()
        assert krouter.http.get("/health").json()["status"] == "ok"


def test_a_caller_is_told_why_a_combo_is_not_served(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        (tmp_path / "combos" / "c.json").write_text("{")
        krouter.served.house.refresh()
        refused = krouter.chat("c")
        assert refused.status_code == 404
        told = refused.json()["error"]["message"]
        assert "the combo c is not served: c.json: not JSON at line 1" in told
        assert str(tmp_path) not in told
        krouter.write_combo("c", {"models": ["demo/assistant"]})
        krouter.served.house.refresh()
        assert krouter.chat("c").status_code == 200


def test_settings_are_followed_and_bad_ones_are_not_taken(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        krouter.home.joinpath("krouter.toml").write_text('[aliases]\nfast = "demo"\n')
        krouter.served.house.refresh()
        assert krouter.chat("fast").status_code == 200
        krouter.home.joinpath("krouter.toml").write_text("[aliasses]\nquick = 1\n")
        krouter.served.house.refresh()
        assert krouter.chat("fast").status_code == 200
        assert "aliases" in krouter.http.get("/health").json()["problems"][0]


def test_what_stays_wrong_is_not_told_again(tmp_path: Path) -> None:
    """Only the edit that brought it says so, and the one that brings it back."""
    bad, good = {"modles": ["demo/assistant"]}, {"models": ["demo/assistant"]}
    with Krouter(tmp_path, combos={"bad": bad, "other": good}) as krouter:
        settings, refresh = tmp_path / "krouter.toml", krouter.served.house.refresh

        def told(word: str) -> int:
            return sum(word in line for line in krouter.lines)

        settings.write_text("[aliasses]\n")
        assert not refresh()
        assert (told("modles"), told("aliasses")) == (1, 1)
        krouter.write_combo("other", {"models": ["demo/assistant", "demo/again"]})
        assert refresh()
        settings.write_text("[aliasses]\n\n[bogus]\n")
        refresh()
        assert (told("modles"), told("aliasses"), told("bogus")) == (1, 1, 1)
        settings.write_text("")
        krouter.write_combo("bad", good)
        assert refresh()
        krouter.write_combo("bad", {"modles": []})
        settings.write_text("[aliasses]\n")
        refresh()
        assert (told("modles"), told("aliasses")) == (2, 2)


def test_the_files_are_watched(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        krouter.write_combo("soon", {"models": ["demo/assistant"]})
        assert eventually(lambda: krouter.chat("soon").status_code == 200)


def test_a_key_that_is_added_is_demanded(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        assert krouter.chat("demo").status_code == 200
        add_key(tmp_path / "keys.json", "laptop", 0.0)
        assert eventually(lambda: krouter.chat("demo").status_code == 401)
