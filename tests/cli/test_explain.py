from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cli.conftest import CANARY, Home

SETTINGS = """
[aliases]
quick = "mine"
"claude-so*" = "mine"

[provider.local]
base_url = "http://127.0.0.1:1/v1"
key = "env:NOT_SET"

[[account]]
provider = "glm"
name = "second"
key = "env:GLM_SECOND"
priority = 2

[[account]]
provider = "glm"
name = "first"
key = "env:GLM_FIRST"
priority = 1
"""


@pytest.fixture
def house(home: Home) -> Home:
    home.settings(SETTINGS)
    models = ["glm/a", "ds/b", "cc/c", "inner", "glmm/d", "local/e", "glm/a"]
    home.combo("mine", {"models": models})
    home.combo("inner", {"models": ["demo/assistant"], "strategy": "priority"})
    home.env = {"GLM_FIRST": CANARY, "GLM_SECOND": CANARY}
    return home


def entries(home: Home, *args: str) -> dict[str, dict[str, Any]]:
    """The first entry of each model."""
    found = home.json("explain", *args)["entries"]
    assert [entry["place"] for entry in found] == list(range(1, len(found) + 1))
    return {entry["model"]: entry for entry in reversed(found)}


def test_the_entries_in_order_with_their_accounts(house: Home) -> None:
    found = house.json("explain", "mine")
    models = [entry["model"] for entry in found["entries"]]
    assert models == ["glm/a", "ds/b", "cc/c", "demo/assistant", "glmm/d", "local/e", "glm/a"]
    assert found["fusions"] == []
    assert found["entries"][0] == {
        "place": 1,
        "model": "glm/a",
        "combo": "mine",
        "role": None,
        "reason": "as listed",
        "provider": "glm",
        "lane": "native",
        "account_strategy": "zenith",
        "accounts": [
            {
                "name": name,
                "fault": None,
                "score": 970 + 40 / place,
                "reason": "not asked yet",
            }
            for place, name in enumerate(("first", "second"), 1)
        ],
        "skip": None,
        "detail": "",
    }
    assert found["sendable"] is True
    assert found["kind"] == "combo"
    assert found["source"] == str(house.path / "combos" / "mine.json")


@pytest.mark.parametrize(
    ("model", "skip", "detail"),
    [
        ("ds/b", "no account", "set DEEPSEEK_API_KEY"),
        ("cc/c", "no account", "set CLAUDE_CODE_OAUTH_TOKEN"),
        ("glmm/d", "unknown provider", ""),
        ("demo/assistant", None, ""),
    ],
)
def test_why_an_entry_is_skipped(house: Home, model: str, skip: str | None, detail: str) -> None:
    entry = entries(house, "mine")[model]
    assert entry["skip"] == skip
    assert entry["detail"].startswith(detail)


def test_a_repeated_entry_is_tried_once(house: Home) -> None:
    assert house.json("explain", "mine")["entries"][6]["skip"] == "listed before"


def test_an_account_whose_credential_is_missing(house: Home) -> None:
    fault = "the environment variable NOT_SET is not set"
    assert entries(house, "mine")["local/e"]["accounts"] == [
        {"name": "default", "fault": fault, "score": None, "reason": ""}
    ]
    assert house.json("explain", "local/e", code=1)["sendable"] is False
    assert "Nothing can be sent" in house.run("explain", "local/e").stdout


def test_a_nested_combo_is_opened_up(house: Home) -> None:
    entry = entries(house, "mine")["demo/assistant"]
    assert entry["combo"] == "inner"
    assert entry["lane"] == "demo"


def test_the_dialect_decides_the_lane(house: Home) -> None:
    entry = entries(house, "mine", "--dialect", "messages")["cc/c"]
    assert entry["skip"] == "no account"
    assert entry["lane"] == "native"
    assert entries(house, "mine", "--dialect", "messages")["local/e"]["lane"] == "litellm"


@pytest.mark.parametrize(
    ("name", "kind", "combo"),
    [
        ("mine", "combo", "mine"),
        ("combo/mine", "combo", "mine"),
        ("quick", "alias", "mine"),
        ("claude-sonnet-4", "alias", "mine"),
        ("claude-mine", "claude-name", "mine"),
        ("fusion-panel", "alias", "panel"),
        ("glm/a", "model", None),
    ],
)
def test_by_which_rule_a_name_is_found(
    house: Home, name: str, kind: str, combo: str | None
) -> None:
    found = house.json("explain", name)
    assert (found["kind"], found["combo"]) == (kind, combo)
    assert house.run("explain", name).stdout.startswith(f"{name}: ")


PANEL: dict[str, Any] = {"models": ["glm/a", "ds/b", "demo/a", "glm/a"], "strategy": "fusion"}
TUNING = {"minPanel": 3, "stragglerGraceMs": 500, "panelHardTimeoutMs": 61_500}


def test_a_fusion_asks_all_at_once_and_its_judge_stands_after_them(house: Home) -> None:
    house.combo("wise", PANEL | {"judge": "demo/judge", "fusionTuning": TUNING})
    found = house.json("explain", "wise")
    shown = [(e["place"], e["role"], e["model"], e["skip"]) for e in found["entries"]]
    assert shown == [
        (1, "panel", "glm/a", None),
        (2, "panel", "ds/b", "no account"),
        (3, "panel", "demo/a", None),
        (4, "panel", "glm/a", None),
        (0, "judge", "demo/judge", None),
    ]
    assert {e["reason"] for e in found["entries"]} == {"in the panel", "the judge"}
    assert (found["sendable"], found["why_not"], found["switches"]) == (True, "", [])
    assert found["fusions"] == [
        {
            "combo": "wise",
            "panel": 4,
            "quorum": 3,
            "grace_ms": 500,
            "hard_timeout_ms": 61_500,
            "judge": "demo/judge",
            "auto": False,
            "on_single": "resend",
            "on_judge_failure": "error",
            "late_calls": "run",
            "require_quorum": False,
            "max_panel": 16,
            "problem": None,
        }
    ]
    said = house.run("explain", "wise").stdout
    assert "all 4 are asked at once, and waited for 61.5 s at most; 3 usable" in said
    assert "the rest then have 0.5 s more" in said
    assert re.search("^0  demo/judge +wise +demo +default +the judge$", said, re.MULTILINE)


def test_on_auto_the_first_of_the_panel_judges(house: Home) -> None:
    house.combo("wise", PANEL)
    found = house.json("explain", "wise", "--image")
    assert found["fusions"][0]["auto"] is True
    judge = found["entries"][-1]
    assert (judge["place"], judge["model"]) == (0, "glm/a")
    assert judge["reason"] == "judges, as the first of the panel"
    said = house.run("explain", "wise").stdout
    assert "glm/a, the first of the panel, or else the first that has answered, writes" in said


def test_panels_inside_others_and_judges_that_are_combos(house: Home) -> None:
    house.combo("wise", PANEL | {"models": ["ds/b", "demo/a"], "judge": "spare"})
    house.combo("spare", {"models": ["glm/a", "ds/b"]})
    house.combo("outer", {"models": ["glm/a", "wise", "inner"]})
    found = house.json("explain", "outer")
    shown = [(e["place"], e["role"], e["model"], e["combo"]) for e in found["entries"]]
    assert shown[:5] == [
        (1, None, "glm/a", "outer"),
        (2, "panel", "ds/b", "wise"),
        (3, "panel", "demo/a", "wise"),
        (0, "judge", "glm/a", "spare"),
        (0, "judge", "ds/b", "spare"),
    ]
    assert shown[-1] == (4, None, "demo/assistant", "inner")
    assert [fusion["combo"] for fusion in found["fusions"]] == ["wise"]


@pytest.mark.parametrize(
    ("tuning", "why"),
    [
        ({}, "the judge cc/j: no account (set CLAUDE_CODE_OAUTH_TOKEN)"),
        ({"onJudgeFailure": "best"}, ""),
        ({"minPanel": 4, "requireQuorum": True}, "requireQuorum asks for 4 answers, and 3 can"),
        ({"maxPanel": 3}, "its panel has 4 entries, and maxPanel allows 3"),
    ],
)
def test_whether_an_answer_can_come_of_a_fusion(
    house: Home, tuning: dict[str, Any], why: str
) -> None:
    house.combo("wise", PANEL | {"judge": "cc/j", "fusionTuning": tuning})
    found = house.json("explain", "wise", code=int(bool(why)))
    assert (found["sendable"], found["why_not"][: len(why)]) == (not why, why)
    (row,) = [row for row in house.json("models", "wise") if row["name"] == "wise"]
    assert (row["usable"], row["why"]) == (found["sendable"], found["why_not"])
    if why:
        assert f"No answer can come of it: {why}" in house.run("explain", "wise").stdout


@pytest.mark.parametrize(
    ("tuning", "why"),
    [
        ({}, ""),
        ({"onSingle": "return"}, ""),
        ({"onSingle": "judge"}, "the judge cc/j: no account (set CLAUDE_CODE_OAUTH_TOKEN)"),
    ],
)
def test_a_judge_that_is_not_asked_may_have_no_account(
    house: Home, tuning: dict[str, Any], why: str
) -> None:
    models = ["demo/a", "ds/b"]
    house.combo("wise", {**PANEL, "models": models, "judge": "cc/j", "fusionTuning": tuning})
    assert house.json("explain", "wise", code=int(bool(why)))["why_not"] == why


@pytest.mark.parametrize(
    ("name", "near"), [("mnie", "'mine'"), ("gml/x", "'glm/"), ("nothing-like-it", "")]
)
def test_an_unknown_name_is_exit_code_1(house: Home, name: str, near: str) -> None:
    result = house.run("explain", name)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"Unknown model '{name}'" in result.stderr
    assert near in result.stderr


def test_what_it_does_not_know_is_said(house: Home) -> None:
    told = house.run("explain", "mine")
    assert told.exit_code == 0
    assert "the locks, quotas, rotations and health of the running one are not in it" in told.stderr


def test_a_combo_whose_file_is_wrong_is_not_called_unknown(house: Home) -> None:
    house.combo("c", "{")
    for name in ("c", "combo/c", "claude-c"):
        told = house.run("explain", name)
        assert told.exit_code == 1
        assert "the combo c is not served: c.json: not JSON at line 1, column 2" in told.stderr


def test_the_table(house: Home) -> None:
    lines = house.run("explain", "mine").stdout.splitlines()
    assert lines[0].endswith("mine.json); chat, not streamed")
    assert lines[2].split() == ["#", "MODEL", "COMBO", "LANE", "ACCOUNTS", "WHY"]
    assert lines[3].split() == "1 glm/a mine native first (1010), second (990) as listed".split()


@pytest.mark.parametrize(
    ("strategy", "shown"),
    [
        ("zenith", "first (1010), second (990)"),
        ("fill-first", "first (priority 1), second (priority 2)"),
        ("round-robin", "first (turn 1 of 3), second (rotated)"),
    ],
)
def test_a_score_is_shown_where_it_decides(house: Home, strategy: str, shown: str) -> None:
    file = house.path / "krouter.toml"
    house.settings(f'{file.read_text()}\n[routing]\naccount_strategy = "{strategy}"\n')
    assert shown in house.run("explain", "glm/a").stdout
