from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import CANARY, Home

MEDIA = ["image", "pdf", "audio", "video"]


def problems(home: Home, *args: str, code: int = 1) -> dict[tuple[str, str], dict[str, Any]]:
    """The problems of the home's own files, by file and path."""
    found = home.json("check", *args, code=code)
    assert found["ok"] is (code == 0)
    return {
        (problem["file"].removeprefix(f"{home.path}/"), problem["path"]): problem
        for problem in found["problems"]
    }


def test_a_new_home_has_warnings_only(home: Home) -> None:
    found = problems(home, code=0)
    assert {problem["level"] for problem in found.values()} == {"warning"}
    result = home.run("check")
    assert result.exit_code == 0
    assert result.stderr.startswith("0 errors, ")


def test_nothing_wrong_at_all(home: Home) -> None:
    assert home.json("check", "demo")["problems"] == []
    assert str(home.path) not in home.run("check", "demo").stdout


def test_a_problem_is_one_line_that_begins_with_its_place(home: Home) -> None:
    file = home.combo("a", {"models": ["glmm/x"], "judge": "demo/x"})
    *_, blank, first, second = home.run("check", "a").stdout.splitlines()
    assert [blank, first, second] == [
        "",
        f"{file}: $.models[0]: unknown provider 'glmm' in 'glmm/x'. Did you mean 'glm'?",
        f"{file}: $.judge: has no effect: only a fusion has it, and the strategy is fallback."
        " [warning]",
    ]


def test_what_is_wrong_with_combos(home: Home) -> None:
    home.combo("typo", {"models": ["demo/a"], "strategi": 1})
    home.combo("text", "{")
    home.combo("lost", {"models": ["nowhere"]})
    home.combo(
        "far",
        {
            "models": [
                "nix/x",
                {"model": "glm/x", "accounts": ["wrok", "work"]},
                "openai/x",
            ],
            "strategy": "fusion",
            "judge": "gruq/x",
        },
    )
    home.settings('[[account]]\nprovider = "glm"\nname = "work"\nkey = "env:WORK"\n')
    home.env = {"WORK": CANARY}
    found = problems(home)
    assert found["combos/typo.json", "$.strategi"]["hint"] == "Did you mean 'strategy'?"
    assert found["combos/text.json", ""]["message"].startswith("not JSON")
    assert "unknown combo 'nowhere'" in found["combos/lost.json", "$.models[0]"]["message"]
    assert found["combos/far.json", "$.models[0]"]["level"] == "error"
    assert found["combos/far.json", "$.models[1].accounts[0]"]["hint"] == "Did you mean 'work'?"
    assert ("combos/far.json", "$.models[1].accounts[1]") not in found
    assert found["combos/far.json", "$.models[2]"]["hint"] == "Set OPENAI_API_KEY."
    assert found["combos/far.json", "$.models[2]"]["level"] == "warning"
    assert "gruq" in found["combos/far.json", "$.judge"]["message"]


def panel(home: Home, size: int, **more: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """What is wrong with a fusion of so many entries, beside what its home lacks."""
    models = [f"demo/{number}" for number in range(size)]
    home.combo("wise", {"models": models, "strategy": "fusion", "accept": MEDIA, **more})
    return {
        (problem["path"], problem["level"]): problem
        for problem in home.json("check", "wise", code=int(size > 16))["problems"]
        if not problem["path"].startswith("$.accept")
    }


def test_a_panel_that_can_be_asked(home: Home) -> None:
    tuning = {"minPanel": 3, "onSingle": "judge", "judgeModel": "demo/0"}
    assert not panel(home, 3, fusionTuning=tuning)
    assert not panel(home, 16, judge="demo/other")


def test_a_panel_that_is_too_large(home: Home) -> None:
    found = panel(home, 17)["$.models", "error"]
    assert found["message"] == "the panel has 17 entries, and maxPanel allows 16."
    assert found["hint"] == "Every call is answered 400."


@pytest.mark.parametrize(
    ("size", "more", "path", "words"),
    [
        (1, {}, "$.models", "a plain call"),
        (2, {"fusionTuning": {"minPanel": 3}}, "$.fusionTuning.minPanel", "2 are enough"),
        (
            2,
            {"judge": "demo/a", "fusionTuning": {"judgeModel": "demo/b"}},
            "$.fusionTuning.judgeModel",
            "'demo/b' does not judge: 'demo/a' does",
        ),
        (2, {"fusionTuning": {"onSingle": "judge"}}, "$.fusionTuning.onSingle", "nobody is named"),
        (2, {"judge": "ds/x"}, "$.judge", "'ds/x' cannot judge: no account for deepseek"),
        (2, {"strategy": "priority", "judge": "demo/a"}, "$.judge", "the strategy is priority"),
        (
            2,
            {"strategy": "fallback", "fusionTuning": {"minPanel": 1}},
            "$.fusionTuning",
            "the strategy is fallback",
        ),
    ],
)
def test_what_of_a_fusion_has_no_effect(
    home: Home, size: int, more: dict[str, Any], path: str, words: str
) -> None:
    found = panel(home, size, **more)
    assert list(found) == [(path, "warning")]
    assert words in found[path, "warning"]["message"]


SETTINGS = """
[aliases]
"claude-haiku-*" = "dayly"
far = "glmm/x"
good = "daily"
direct = "glm/x"

[routing]
combo_round_robin = true
account_strategy = "random"

[provider.local]
base_url = "http://127.0.0.1:1/v1"
key = "env:NOT_SET"
account_strategy = "p2c"

[provider.only]
base_urls = { responses = "http://127.0.0.1:1/v1" }

[[account]]
provider = "glm"
name = "file"
key = "file:nowhere.txt"

[[account]]
provider = "glm"
name = "command"
key = "command:exit 1"

[[account]]
provider = "cc"
auth = "caller"
"""


def test_what_is_wrong_with_settings_and_credentials(home: Home) -> None:
    home.settings(SETTINGS)
    home.combo("translated", {"models": ["only/x"]})
    found = problems(home)
    own = {key: p for key, p in found.items() if key[0] == "krouter.toml"}
    errors = {path for (_, path), p in own.items() if p["level"] == "error"}
    assert errors == {
        '$.aliases["claude-haiku-*"]',
        "$.aliases.far",
        "$.provider.local.key",
        "$.account[0].key",
    }
    assert all(problem["level"] == "error" for problem in own.values())
    assert own["krouter.toml", '$.aliases["claude-haiku-*"]']["hint"] == "Did you mean 'daily'?"
    assert own["krouter.toml", "$.aliases.far"]["hint"] == "Did you mean 'glm'?"
    assert home.json("check", "translated")["problems"] == []


@pytest.mark.parametrize("spoken", ['"responses"', '"chat", "responses"', '"gemini"'])
def test_a_provider_may_speak_any_dialect_alone(home: Home, spoken: str) -> None:
    home.settings(f'[provider.only]\nbase_url = "http://127.0.0.1:1/v1"\nspeaks = [{spoken}]\n')
    assert home.run("explain", "only/x").exit_code == 0


def test_the_credentials_a_combo_needs_are_checked_with_it(home: Home) -> None:
    home.settings(SETTINGS)
    home.combo("outer", {"models": ["demo/a", "inner"]})
    home.combo("inner", {"models": ["glm/x"]})
    assert set(problems(home, "outer")) == {("krouter.toml", "$.account[0].key")}
    assert home.json("check", "demo")["problems"] == []


ADAPTER = """
[vision_adapter.image]
models = ["openai/gpt-5.1", "daily", "gpt-5.1", "deepsek/x", "ds/deepseek-v4-pro", "glm/unheard-of"]

[vision_adapter.pdf]
models = ["openai/gpt-5.1"]
"""


def test_useless_models_of_the_vision_adapter(home: Home) -> None:
    home.settings(ADAPTER)
    home.env = {"OPENAI_API_KEY": "x"}
    found = problems(home, code=0)
    told = {path: (p["message"], p["hint"]) for (_, path), p in found.items() if "vision" in path}
    cure = 'If it does: [reads] "{}" = ["image"].'
    assert told == {
        "$.vision_adapter.image.models[1]": (
            "'daily' is not used: it is a combo.",
            "Write provider/model.",
        ),
        "$.vision_adapter.image.models[2]": (
            "'gpt-5.1' is not used: it names no provider.",
            "Write provider/model.",
        ),
        "$.vision_adapter.image.models[3]": (
            "'deepsek/x' is not used: no provider 'deepsek' is known.",
            "Did you mean 'deepseek'?",
        ),
        "$.vision_adapter.image.models[4]": (
            "'ds/deepseek-v4-pro' is not used: it does not read image.",
            cure.format("ds/deepseek-v4-pro"),
        ),
        "$.vision_adapter.image.models[5]": (
            "'glm/unheard-of' is not used: it is not known to read image.",
            cure.format("glm/unheard-of"),
        ),
        "$.vision_adapter.pdf": (
            "vision_adapter.pdf lists models, but is switched off.",
            "Set enabled = true.",
        ),
    }
    without = problems(home, code=0) if home.env.clear() is None else {}
    first = without["krouter.toml", "$.vision_adapter.image.models[0]"]
    assert first["message"] == "'openai/gpt-5.1' is not used: openai has no account."


def test_settings_that_are_not_there(home: Home) -> None:
    for command in ("check", "combos"):
        result = home.run(command, "--config", str(home.path / "none.toml"))
        assert (result.exit_code, result.stdout) == (3, "")
        assert "none.toml" in result.stderr


def test_credentials_of_the_environment(home: Home) -> None:
    home.env = {"GLM_API_KEY": f"{CANARY}\nsecond line"}
    problem = problems(home)["environment", ""]
    assert problem["message"] == (
        "account glm/env: the environment variable GLM_API_KEY holds more than one line"
        " of plain characters."
    )


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not JSON."), ('{"keys": 1}', "should be a list (value 1).")]
)
def test_a_broken_keys_file(home: Home, text: str, message: str) -> None:
    (home.path / "keys.json").write_text(text)
    found = home.json("check", code=1)["problems"]
    assert [p["message"] for p in found if p["file"].endswith("keys.json")] == [message]


def test_models_of_keys_that_nothing_has(home: Home) -> None:
    home.combo("daily", {"models": ["demo/x"], "accept": ["image", "pdf", "audio", "video"]})
    home.run("keys", "add", "a", "--models", "daily,demo/*,nothing-*")
    home.run("keys", "add", "b", "--models", "daily,dialy")
    found = {each: told for each, told in problems(home, code=0).items() if each[0] == "keys.json"}
    assert list(found) == [("keys.json", "$.keys[1].models")]
    (told,) = found.values()
    assert told["level"] == "warning"
    assert told["message"].startswith("key 'b': Unknown model 'dialy'")


def test_one_combo_brings_in_those_it_names_and_no_others(home: Home) -> None:
    home.combo("outer", {"models": ["demo/a", "inner"]})
    home.combo("inner", {"models": ["glmm/x"]})
    home.combo("other", {"models": ["nixx/x"]})
    found = problems(home, "outer")
    del found["combos/outer.json", "$.models"]  # what neither of them reads
    assert set(found) == {("combos/inner.json", "$.models[0]")}
    home.combo("broken", "{")
    assert set(problems(home, "broken")) == {("combos/broken.json", "")}


def test_an_unknown_combo_is_exit_code_1(home: Home) -> None:
    result = home.run("check", "dialy")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "there is no combo 'dialy'. Did you mean 'daily'?" in result.stderr


def test_combos_are_checked_though_the_settings_are_broken(home: Home) -> None:
    home.settings("port = 1")
    home.combo("typo", {"models": ["demo/a"], "strategi": 1})
    assert set(problems(home)) >= {("krouter.toml", "$.port"), ("combos/typo.json", "$.strategi")}


def test_what_has_no_effect_in_a_panel(home: Home) -> None:
    home.combo(
        "p",
        {
            "models": [{"model": "demo/a", "timeouts": {"attempt": 5}}, "demo/b"],
            "strategy": "fusion",
            "stickyLimit": 2,
            "fusionTuning": {
                "stragglerGraceMs": 6000,
                "panelHardTimeoutMs": 5000,
                "requireQuorum": True,
                "onSingle": "return",
            },
        },
    )
    told = home.run("check", "p").output
    for path in (
        "$.fusionTuning.stragglerGraceMs: is longer than panelHardTimeoutMs",
        "$.fusionTuning.onSingle: has no effect",
        "$.stickyLimit: has no effect",
        "$.models[0].timeouts: has no effect",
    ):
        assert path in told


STEERING = "\x1b]0;owned\x07\x1b[2J\u202e\x9b"


def is_inert(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize(
    "args",
    [
        ("check",),
        ("combos",),
        ("models",),
        ("explain", "daily"),
        ("check", f"a{STEERING}"),
        ("combos", f"a{STEERING}"),
        ("explain", f"a{STEERING}"),
        ("paths", f"--combos=no{STEERING}"),
        ("keys", "remove", f"a{STEERING}"),
        ("route", f"a{STEERING}"),
        (f"a{STEERING}",),
        ("check", f"--x{STEERING}"),
    ],
)
def test_no_name_steers_the_terminal(home: Home, args: tuple[str, ...]) -> None:
    home.combo(f"a{STEERING}", {"models": []})
    home.combo("b", {"models": [f"glm/{STEERING}", f"no{STEERING}/x"], "judge": f"a{STEERING}/x"})
    result = home.run(*args)
    assert is_inert(result.stdout)
    assert is_inert(result.stderr)
    assert result.stdout + result.stderr


def test_settings_that_cannot_be_used_do_not_either(home: Home) -> None:
    home.settings(f'[server]\nport = "{json.dumps(STEERING)[1:-1]}"\n')
    for args in (("combos",), ("check",), ("explain", "daily")):
        result = home.run(*args)
        assert result.exit_code != 0
        assert is_inert(result.stdout)
        assert is_inert(result.stderr)


# Coverage


def test_the_matrix_of_a_combo(home: Home) -> None:
    home.settings('[aliases]\nfast = "mine"\n')
    home.combo("mine", {"models": ["glm/glm-5.1", {"model": "demo/b", "reads": ["image"]}]})
    result = home.run("check", "mine")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert max(map(len, lines[: lines.index("")])) <= 80
    assert lines[: lines.index("")] == [
        "mine (fallback)",
        "  MODEL        IMAGE  PDF  AUDIO  VIDEO  TOOLS  JSON  WINDOW",
        "  glm/glm-5.1  no     no   no     no     yes    yes   200,000",
        "  demo/b       yes    no   no     no     ?      ?     ?",
        "  together     yes    no   no     no     yes    yes   200,000",
        "  dead ends: pdf, audio, video",
        "  at most 5 models tried, 13 attempts, and 600 s until the reply begins",
        "  where every provider is silent: 120 s streamed, 600 s not",
        "  aliases: fast",
    ]


@pytest.mark.parametrize("name", ["daily", "demo", "free-tier", "panel"])
def test_the_shipped_combos_accept_their_dead_ends(home: Home, name: str) -> None:
    (found,) = home.json("check", name)["combos"]
    assert all(end["accepted"] for end in found["dead_ends"])
    assert len(found["answers"]) == 64 * max(1, len(found["windows"]))


def test_a_dead_end_is_an_error_unless_it_is_accepted(home: Home) -> None:
    models = [
        {"model": "demo/a", "reads": ["image", "audio", "video"]},
        {"model": "demo/b", "reads": ["pdf", "audio", "video"]},
    ]
    file = home.combo("mine", {"models": models})
    (found,) = home.json("check", "mine", code=1)["problems"]
    assert found == {
        "file": str(file),
        "path": "$.models",
        "message": "image + pdf is a dead end: no entry reads both.",
        "hint": 'Where that is meant: "accept": ["image+pdf"].',
        "level": "error",
    }
    home.combo("mine", {"models": models, "accept": ["pdf+image", "tools"]})
    found = home.json("check", "mine")
    assert found["combos"][0]["dead_ends"] == [
        {
            "needs": ["image", "pdf"],
            "over": 0,
            "accepted": True,
            "why": "no entry reads both",
        }
    ]
    (warning,) = found["problems"]
    assert (warning["path"], warning["level"]) == ("$.accept[1]", "warning")


def test_a_dead_end_for_want_of_an_account_is_a_warning(home: Home) -> None:
    home.env = {"GLM_API_KEY": "k"}
    found = home.json("check", "daily")
    assert found["combos"][0]["without_account"] == ["image", "pdf", ">200000"]
    told = {problem["message"] for problem in found["problems"] if problem["path"] == "$.models"}
    assert "image: nobody that has an account takes it." in told


def test_an_alias_that_a_combo_hides_is_warned_of(home: Home) -> None:
    home.settings('[aliases]\ndaily = "demo"\n')
    found = problems(home, code=0)["krouter.toml", "$.aliases.daily"]
    assert "never looked up" in found["message"]


def test_what_is_shown_of_shipped_combos_fits_80_columns(home: Home) -> None:
    lines = [
        line
        for name in ("daily", "demo", "free-tier", "panel")
        for line in home.run("check", name).stdout.split("\n\n")[0].splitlines()
    ]
    assert lines
    assert [line for line in lines if len(line) > 80] == []


def test_names_in_expect_that_mean_nobody_are_told(home: Home) -> None:
    case = {"given": {"fail": {"nobody": 529}}, "order": ["foo/bar"], "reply": "whole"}
    home.combo("mine", {"models": ["demo/a"], "expect": [case]})
    for args in ((), ("mine",)):
        found = problems(home, *args)
        assert found["combos/mine.json", "$.expect[0].given.fail.nobody"]["level"] == "error"
        assert "means no entry" in found["combos/mine.json", "$.expect[0].order[0]"]["message"]
