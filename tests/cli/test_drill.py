from __future__ import annotations

import pytest

from krouter.adapter import load_faults
from tests.cli.conftest import Home

ENDLESS = {"models": ["glm/glm-5.1", "ds/deepseek-v4-pro"], "timeouts": {"stall": "off"}}


def test_a_case_as_json(home: Home) -> None:
    found = home.json("drill", "daily", "--fault", "529", "--fault", "cut")
    assert (found["passed"], found["failed"], len(found["cases"])) == (True, 0, 16)
    assert found["entries"][2] == {
        "at": 3,
        "entry": "cc/claude-sonnet-4-6",
        "combo": "daily",
        "role": None,
        "usable": True,
        "times": 1,
    }
    case = next(case for case in found["cases"] if case["fault"] == "cut" and case["stream"])
    assert {key: case[key] for key in ("at", "row", "came", "status", "first_byte", "rule")} == {
        "at": 1,
        "row": 10,
        "came": "error event",
        "status": 200,
        "first_byte": 1.0,
        "rule": "its first bytes had gone out, and streamGuard is off",
    }
    assert case["attempts"] == [{"entry": "glm/glm-5.1", "fault": "cut", "at": 0.0}]


def test_a_model_that_is_listed_twice_is_drilled_as_one_and_said_to_be(home: Home) -> None:
    twice = [{"model": "glm/glm-5.1", "params": {"seed": at}} for at in (1, 2)]
    home.combo("copies", {"models": [*twice, "ds/deepseek-v4-pro"]})
    found = home.json("drill", "copies", "--fault", "529")
    assert [(each["entry"], each["times"]) for each in found["entries"]] == [
        ("glm/glm-5.1", 2),
        ("ds/deepseek-v4-pro", 1),
    ]
    told = home.run("drill", "copies", "--fault", "529").stdout
    assert "1  glm/glm-5.1, listed 2 times, drilled as one" in told


def test_a_combo_that_hangs_fails_with_the_step_named(home: Home) -> None:
    home.combo("endless", ENDLESS)
    result = home.run("drill", "endless", "--fault", "stall")
    assert result.exit_code == 1
    assert "stall at 1 (glm/glm-5.1), streamed: the caller waits for ever" in result.stdout
    assert "    step 1, glm/glm-5.1: stall" in result.stdout
    found = home.json("drill", "endless", "--fault", "stall", code=1)
    assert found["failed"] == 3
    assert {case["wrong"] for case in found["cases"]} == {None, "hang"}


@pytest.mark.parametrize("name", ["daily", "panel", "endless", "nested"])
def test_what_is_printed_fits_a_terminal(home: Home, name: str) -> None:
    home.combo("endless", ENDLESS)
    home.combo("nested", {"models": ["endless", "openai/gpt-4o"]})
    faults = [arg for fault in load_faults() for arg in ("--fault", fault)]
    lines = home.run("drill", name, *faults[:-20]).stdout.splitlines()
    assert max(map(len, lines)) <= 80


def test_the_end_of_a_drill_that_is_passed(home: Home) -> None:
    lines = home.run("drill", "daily", "--fault", "529").stdout.splitlines()
    assert lines[-2] == "8 cases: 1 fault at each entry and at all, whole and streamed."


def test_faults_are_listed(home: Home) -> None:
    assert {row["name"] for row in home.json("drill", "--faults")} == set(load_faults())
    lines = home.run("drill", "--faults").stdout.splitlines()
    assert len(lines) == len(load_faults()) + 1
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        ((), 2, "Missing argument 'COMBO'"),
        (("nope",), 1, "Unknown model 'nope'"),
        (("daily", "--fault", "stal"), 2, "there is no fault 'stal'. Did you mean 'stall'?"),
        (("daily", "--fault", "99"), 2, "there is no fault '99'"),
        (("daily", "--dialect", "morse"), 2, "'morse' is not one of"),
    ],
)
def test_what_is_wrong_is_said(home: Home, args: tuple[str, ...], code: int, told: str) -> None:
    result = home.run("drill", *args)
    assert result.exit_code == code
    assert told in result.stderr


def test_credentials_are_not_needed(home: Home) -> None:
    home.settings('[[account]]\nprovider = "glm"\nname = "a"\nkey = "env:NOT_SET"\n')
    assert home.json("drill", "daily", "--fault", "429")["passed"]
