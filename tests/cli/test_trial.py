from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Home, by, run

MODELS = ["glm/glm-5.1", "ds/deepseek-v4-pro", "cc/claude-sonnet-4-6"]
GOOD = {"given": {"needs": ["image"], "fail": {"cc": 529}}, "attempts": ["cc/…", "glm/…"]}
BAD = {"given": {"stream": True, "fail": {"glm": 429}}, "attempts": ["glm/…"], "reply": 429}


def mine(*cases: Any) -> dict[str, Any]:
    return {"models": MODELS, "expect": list(cases)}


def test_without_a_folder_the_homes_combos_and_those_that_ship_are_run(home: Home) -> None:
    home.combo("mine", mine(GOOD))
    home.combo("daily", {"models": MODELS})
    result = home.run("test")
    assert result.exit_code == 0
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()[:-2]]
    told = dict(map(tuple, lines))
    assert {"demo", "free-tier", "panel"} <= told.keys()
    assert (told["daily"], told["mine"]) == ("has no cases", "1 case holds")
    assert result.stdout.endswith("\n\nEvery case holds.\n")


def test_a_folders_own_combos_are_run(home: Home, tmp_path: Path) -> None:
    home.combo("other", mine(BAD))
    folder = tmp_path / "night"
    folder.mkdir()
    (folder / "mine.json").write_text(json.dumps(mine(GOOD, GOOD)))
    found = home.json("test", str(folder))
    assert (found["passed"], found["failed"]) == (True, 0)
    assert [each["combo"] for each in found["combos"]] == ["mine"]
    assert [case["holds"] for case in found["combos"][0]["cases"]] == [True, True]


def test_a_failure_is_told_with_what_came_and_the_reason_of_each_move(home: Home) -> None:
    home.combo("mine", mine(GOOD, BAD))
    result = home.run("test", "--combos", str(home.path / "combos"))
    assert result.exit_code == 1
    text = result.stdout
    assert text[text.index("mine") : text.index("panel")].splitlines() == [
        "mine       1 of 2 cases FAILED",
        "  $.expect[1]  streamed; glm: 429",
        "    attempts expected  glm/…",
        "                 came  glm/glm-5.1, ds/deepseek-v4-pro",
        "    reply expected  429",
        "              came  200, whole, from ds/deepseek-v4-pro",
        "    the order",
        "      1. glm/glm-5.1: as listed",
        "      2. ds/deepseek-v4-pro: as listed",
        "      3. cc/claude-sonnet-4-6: as listed",
        "    the request",
        "      glm/glm-5.1: 429, rate limited",
        "      ds/deepseek-v4-pro: answered",
        "      the caller: 200, whole, from ds/deepseek-v4-pro",
    ]
    assert text.endswith(", 1 FAILED.\n")


def test_a_failure_as_json(home: Home) -> None:
    locked = {"given": {"locked": ["…"]}, "reply": "whole"}
    fused = {**mine({"attempts": []}), "strategy": "fusion"}
    home.combo("fused", fused)
    home.combo("mine", mine(locked))
    combos = by(home.json("test", str(home.path / "combos"), code=1)["combos"], "combo")
    (case,) = combos["mine"]["cases"]
    assert {key: case[key] for key in ("path", "given", "told", "holds", "misses")} == {
        "path": "$.expect[0]",
        "given": {"locked": ["…"]},
        "told": "…: locked",
        "holds": False,
        "misses": [{"what": "reply", "expected": "whole", "came": "429, error"}],
    }
    assert case["steps"][0] == {
        "entry": "glm/glm-5.1",
        "role": None,
        "what": "skipped",
        "detail": "locked, quota spent",
    }
    reply = case["reply"]
    assert (reply["from"], reply["status"], reply["came"]) == (None, 429, "error")
    assert reply["message"]
    roles = [step["role"] for step in combos["fused"]["cases"][0]["steps"]]
    assert roles == ["panel", "panel", "panel", "judge"]


EVERYTHING = {
    "given": {
        "needs": ["image", "tools"],
        "dialect": "responses",
        "stream": True,
        "fail": {"cc": ["timeout", None], "glm/…": "cut"},
        "locked": ["ds"],
        "quota": {"glm": 0.25},
        "turn": 3,
    },
    "order": ["…", *MODELS, *MODELS, *MODELS],
}


def test_what_is_printed_fits_a_terminal(home: Home) -> None:
    home.combo("mine", mine(EVERYTHING))
    lines = home.run("test", str(home.path / "combos")).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    told = " ".join(line.strip() for line in lines)
    assert (
        "image, tools, streamed, responses; turn 3; cc: timeout, then an answer; glm/…: cut;"
        " ds: locked; glm: 25% of its quota left"
    ) in told


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ({"attempts": ["gml/…"]}, "$.expect[0].attempts[0]: 'gml/…' means no entry."),
        ({"reply": "hole"}, "$.expect[0].reply: no such outcome. Did you mean 'whole'?"),
        (
            {"reply": "glm"},
            "$.expect[0].reply: no such outcome; known: whole, empty, cut, error. Who answers is"
            ' written with a model, as "glm/…", or as {"from": "glm"}',
        ),
    ],
)
def test_a_file_that_cannot_be_used_keeps_no_other_from_being_run(
    home: Home, case: Any, told: str
) -> None:
    home.combo("mine", mine(case))
    result = home.run("test")
    assert result.exit_code == 1
    assert "Not run, since something is wrong" in result.stdout
    assert f"mine.json: {told}" in result.stdout
    assert "Every case that was run holds." in result.stdout
    found = home.json("test", code=1)
    assert (found["passed"], found["failed"]) == (False, 0)
    assert "daily" in [each["combo"] for each in found["combos"]]
    assert found["problems"][0]["path"].startswith("$.expect[0].")
    alone = home.run("test", str(home.path / "combos"))
    assert (alone.exit_code, alone.stdout) == (3, "")
    assert f"mine.json: {told}" in alone.stderr


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("nope",), 3, "no such folder"),
        ((".", "--combos", "."), 2, "DIR and --combos exclude each other."),
    ],
)
def test_what_is_wrong_is_said(home: Home, args: tuple[str, ...], code: int, told: str) -> None:
    result = home.run("test", *args)
    assert result.exit_code == code
    assert told in result.stderr


def test_a_folder_without_combos(home: Home) -> None:
    result = home.run("test", str(home.path / "combos"))
    assert (result.exit_code, result.stdout) == (0, "\nThere are no cases.\n")


def test_settings_count_and_credentials_do_not(home: Home) -> None:
    home.combo("mine", mine({"given": {"needs": ["image"]}, "order": ["glm", "cc", "ds"]}))
    assert run("test", str(home.path / "combos"), "--home", str(home.path)).exit_code == 1
    account = '[[account]]\nprovider = "cc"\nname = "a"\nkey = "env:NOT_SET"\n'
    home.settings(f'[reads]\n"glm/glm-5.1" = ["image"]\n{account}')
    assert home.run("test", str(home.path / "combos")).exit_code == 0
