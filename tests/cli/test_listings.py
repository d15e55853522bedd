from __future__ import annotations

import pytest

from tests.cli.conftest import CANARY, Home, by

SETTINGS = """
[aliases]
"claude-haiku-*" = "mine"
lost = "nowhere"

[provider.local]
base_url = "http://127.0.0.1:1/v1"
key = "env:LOCAL_KEY"

[[account]]
provider = "glm"
name = "work"
key = "env:GLM_WORK"
"""


@pytest.fixture
def house(home: Home) -> Home:
    home.settings(SETTINGS)
    home.combo("mine", {"description": "Mine.", "models": ["glm/glm-5.1", "ds/chat", "inner"]})
    home.combo("inner", {"models": [{"model": "glm/glm-4", "accounts": ["other"]}]})
    home.env = {"GLM_WORK": CANARY}
    return home


def test_models_shows_every_name(house: Home) -> None:
    found = by(house.json("models"))
    assert found["mine"] == {
        "name": "mine",
        "kind": "combo",
        "to": "fallback: glm/glm-5.1, ds/chat, inner",
        "usable": True,
        "why": "",
        "speaks": ["chat", "messages"],
    }
    assert found["claude-haiku-*"]["to"] == "mine"
    assert found["claude-haiku-*"]["kind"] == "alias"
    assert found["fusion-panel"]["to"] == "panel"
    assert found["ds/chat"]["kind"] == "entry"
    assert found["glm/…"]["kind"] == "provider"
    assert found["glm/…"]["usable"] is True
    assert "anthropic/…" not in found


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("lost", "Unknown model 'nowhere'"),
        ("ds/chat", "no account (set DEEPSEEK_API_KEY)"),
        ("glm/glm-4", ""),
        ("inner", "no account (glm has no account named other)"),
        ("panel", "not built: the combo 'panel' uses fusion"),
        ("local/…", "default: the environment variable LOCAL_KEY is not set"),
    ],
)
def test_models_says_why_a_name_cannot_be_used(house: Home, name: str, why: str) -> None:
    row = by(house.json("models"))[name]
    assert row["usable"] is not bool(why)
    assert row["why"].startswith(why)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("inner", ["inner"]),
        ("GLM/*", ["glm/glm-5.1", "glm/glm-4", "glm/…"]),
        ("haiku", ["claude-haiku-*"]),
    ],
)
def test_models_takes_a_part_of_a_name_or_a_glob(
    house: Home, pattern: str, names: list[str]
) -> None:
    assert set(by(house.json("models", pattern))) >= set(names)
    assert "daily" not in by(house.json("models", pattern))


def test_models_without_a_match_is_exit_code_1(house: Home) -> None:
    assert house.json("models", "xyzzy", code=1) == []
    result = house.run("models", "xyzzy")
    assert result.exit_code == 1
    assert "no name matches 'xyzzy'" in result.stderr


def test_models_is_aligned_text_when_piped(house: Home) -> None:
    lines = house.run("models").stdout.splitlines()
    assert lines[0].split() == ["NAME", "KIND", "GOES", "TO", "USABLE", "SPEAKS"]
    assert lines[0].index("KIND") == lines[1].index("combo")
    assert "\x1b" not in "".join(lines)


def test_combos_lists_files_that_are_not_served_too(house: Home) -> None:
    file = house.combo("broken", {"models": ["demo/a"], "strategi": 1})
    found = by(house.json("combos"))
    assert found["mine"]["source"] == str(house.path / "combos" / "mine.json")
    assert found["mine"]["description"] == "Mine."
    assert found["mine"]["problems"] == []
    assert found["mine"]["served"] is True
    assert found["broken"]["source"] == str(file)
    assert found["broken"]["served"] is False
    assert "Did you mean 'strategy'?" in found["broken"]["problems"][0]
    assert {"daily", "demo", "panel", "free-tier"} <= set(found)
    assert "not served" in house.run("combos").stdout


def test_combos_with_a_name_lists_its_entries(house: Home) -> None:
    shown = house.json("combos", "mine")
    assert shown["strategy"] == "fallback"
    first, second, third = shown["entries"]
    assert first["accounts"] == ["work"]
    assert first["usable"] is True
    assert second["why"] == "no account (set DEEPSEEK_API_KEY)"
    assert third["kind"] == "combo"
    assert house.json("combos", "combo/mine") == shown
    assert "glm/glm-5.1" in house.run("combos", "mine").stdout


def test_combos_with_an_unknown_name_is_exit_code_1(house: Home) -> None:
    result = house.run("combos", "mien")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "there is no combo 'mien'. Did you mean 'mine'?" in result.stderr


def test_combos_of_another_folder(house: Home) -> None:
    (house.path / "others").mkdir()
    (house.path / "others" / "else.json").write_text('{"models": ["demo/a"]}')
    found = by(house.json("combos", "--combos", str(house.path / "others")))
    assert "else" in found
    assert "mine" not in found
