from __future__ import annotations

import pytest

from krouter.dialects import DIALECTS
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
    wise = {"models": ["glm/a", "glm/b"], "judge": "ds/chat", "strategy": "fusion"}
    home.combo("wise", wise)
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
        "speaks": list(DIALECTS),
        **dict.fromkeys(("reads", "window", "output", "prices", "tools", "json_schema", "sources")),
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
        ("panel", ""),
        ("wise", "the judge ds/chat: no account (set DEEPSEEK_API_KEY)"),
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


def test_models_shows_what_is_known_of_each_model(house: Home) -> None:
    found = by(house.json("models"))["glm/glm-5.1"]
    assert found["reads"] == dict.fromkeys(("image", "pdf", "audio", "video"), "no")
    assert (found["window"], found["output"], found["tools"]) == (200_000, 128_000, "yes")
    assert found["prices"]["input"] == 1.4e-06
    assert found["sources"]["image"] == "krouter"
    assert found["sources"]["prices"] == "litellm"
    claude = by(house.json("models"))["cc/claude-sonnet-4-6"]
    assert [medium for medium, known in claude["reads"].items() if known == "yes"] == [
        "image",
        "pdf",
    ]


def test_models_takes_corrections_from_the_settings(house: Home) -> None:
    house.settings(SETTINGS + '\n[reads]\n"ds/*" = ["audio"]\n')
    found = by(house.json("models"))["ds/chat"]
    assert found["reads"]["audio"] == "yes"
    assert found["reads"]["image"] == "no"
    assert found["sources"]["audio"] == "settings"


def test_models_lists_the_known_models_of_a_provider_with_an_account(house: Home) -> None:
    assert "glm/glm-4.7" not in by(house.json("models"))
    found = by(house.json("models", "glm"))
    assert found["glm/glm-4.7"]["kind"] == "model"
    assert found["glm/glm-4.7"]["usable"] is True
    assert found["glm/glm-5.1"]["kind"] == "entry"
    assert "zai/glm-4.5v" in by(house.json("models", "zai/*v"))
    assert "zai/glm-4.7" not in by(house.json("models", "zai/*v"))


def test_models_of_a_provider_without_an_account_are_listed_too(house: Home) -> None:
    found = by(house.json("models", "openai/gpt-5.1"))["openai/gpt-5.1"]
    assert (found["usable"], found["why"]) == (False, "no account (set OPENAI_API_KEY)")
    assert found["reads"]["image"] == "yes"
    told = house.run("models", "openai/gpt-5.1")
    assert told.stderr == "openai/…: no account (set OPENAI_API_KEY)\n"
    assert told.stdout.splitlines()[1].startswith("openai/gpt-5.1 ")
    assert house.run("models", "glm/glm-4.7").stderr == ""


def test_models_shows_models_in_a_table_that_fits_the_screen(house: Home) -> None:
    lines = house.run("models", "glm").stdout.splitlines()
    head = next(line for line in lines if line.startswith("MODEL"))
    assert head.split() == ["MODEL", "READS", "WINDOW", "OUTPUT", "$/M", "IN", "$/M", "OUT"]
    row = next(line for line in lines if line.startswith("glm/glm-4.5v "))
    assert row.split() == ["glm/glm-4.5v", "image", "pdf?", "video?", "128k", "32k", "0.6", "1.8"]
    assert max(map(len, lines)) <= 100
    everything = house.run("models").stdout.splitlines()
    unknown = next(line for line in everything if line.startswith("ds/chat ") and "?" in line)
    assert unknown.split() == ["ds/chat", "?", "?", "?", "?", "?"]
    assert "MODEL" not in house.run("models", "mine").stdout


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


def test_combos_shows_what_entries_say_of_themselves(house: Home) -> None:
    own = {"model": "glm/glm-5.1", "reads": ["pdf"], "contextWindow": 32000, "label": "cheap"}
    house.combo("own", {"models": [own, "glm/glm-5.1", "inner"]})
    first, second, third = house.json("combos", "own")["entries"]
    assert (first["label"], first["reads"]["pdf"], first["window"]) == ("cheap", "yes", 32000)
    assert (second["label"], second["reads"]["pdf"], second["window"]) == (None, "no", 200_000)
    assert (third["reads"], third["window"]) == (None, None)
    row = house.run("combos", "own").stdout.splitlines()[1]
    assert row.split()[:5] == ["1", "glm/glm-5.1", "cheap", "pdf", "32k"]


def test_combos_says_what_is_wrong_with_the_file_of_a_name(house: Home) -> None:
    house.combo("c", "{")
    result = house.run("combos", "c")
    assert result.exit_code == 1
    assert "the combo c is not served: c.json: not JSON at line 1, column 2" in result.stderr


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
