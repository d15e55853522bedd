"""The cases that combo files expect: what they may say and mean, and that shipped ones bite."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import krouter.combos
from krouter.adapter import load_faults
from krouter.cases import FAULTS, DialectName, Need, Reply
from krouter.combos import Combo, parse_combo
from krouter.dialects import DIALECTS
from krouter.load import House
from krouter.paths import resolve_paths
from krouter.rehearsal import NEEDS, Stage
from krouter.trial import Trial, misnamed, reply_in_words, try_combo
from krouter.trial.names import Cast, fits
from krouter.wire import HttpWire

SHIPPED = Path(krouter.combos.__file__).parents[1] / "combos"
NAMES = ("daily", "demo", "free-tier", "panel")
MODELS = ("glm/glm-5.1", "ds/deepseek-v4-pro", "cc/claude-sonnet-4-6")
GLM, DS, CC = MODELS
SETTINGS = """
[vision_adapter.audio]
enabled = true
models = ["gemini/gemini-2.5-flash"]
"""
ACCOUNT = '[[account]]\nprovider = "{}"\nname = "{}"\nkey = "env:NOT_SET"\n'
SEVERAL = "".join(ACCOUNT.format(p, n) for p in ("cc", "glm", "gemini") for n in "ab") + SETTINGS
"""Some providers with two accounts."""


def stage_of(home: Path, toml: str) -> Stage:
    (home / "krouter.toml").write_text(toml)
    paths = resolve_paths(home=home, env={}, cwd=home)
    return Stage.of(House(paths, {}, HttpWire(), ledger=False).router.world)


@pytest.fixture(scope="module", params=["", SEVERAL], ids=["one account", "several"])
def any_stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return stage_of(tmp_path_factory.mktemp("home"), request.param)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return stage_of(tmp_path_factory.mktemp("home"), SEVERAL)


def combo(*cases: dict[str, Any], models: tuple[Any, ...] = MODELS, **fields: Any) -> Combo:
    content = {"name": "mine", "models": models, "expect": cases, **fields}
    return Combo.model_validate(content, by_alias=True)


Play = Callable[..., Trial]


@pytest.fixture
def play(stage: Stage) -> Play:
    """One case of a combo, whose names all mean somebody."""

    def played(case: dict[str, Any], *others: Combo, **fields: Any) -> Trial:
        mine, staged = combo(case, **fields), stage
        for each in (mine, *others):
            staged = staged.combo(each)
        assert list(misnamed(mine, staged.world, "mine.json")) == []
        (trial,) = try_combo(staged, mine)
        return trial

    return played


def shipped(name: str) -> Combo:
    return parse_combo((SHIPPED / f"{name}.json").read_bytes(), name, name)


def test_the_words_of_cases_are_those_of_the_rehearsal() -> None:
    """They stand in the schema, which is made without it."""
    words = {name for name in load_faults() if not name.isdecimal()}
    assert set(FAULTS) == words - {"caller-gone"}
    assert set(get_args(Need)) == NEEDS
    assert set(get_args(DialectName)) == set(DIALECTS)


@pytest.mark.parametrize("name", NAMES)
def test_the_cases_of_shipped_combos_hold(any_stage: Stage, name: str) -> None:
    made = shipped(name)
    staged = any_stage.combo(made)
    trials = list(try_combo(staged, made))
    assert trials
    assert list(misnamed(made, staged.world, name)) == []
    assert [trial.misses for trial in trials] == [()] * len(trials)


SWAPS = [
    pytest.param(name, pair, id=f"{name}-{pair[0]}-{pair[1]}")
    for name in NAMES
    for pair in combinations(range(len(shipped(name).models)), 2)
]


@pytest.mark.parametrize(("name", "pair"), SWAPS)
def test_swapping_two_entries_of_a_shipped_combo_makes_a_case_fail(
    stage: Stage, name: str, pair: tuple[int, int]
) -> None:
    whole = shipped(name)
    models, (one, other) = list(whole.models), pair
    models[one], models[other] = models[other], models[one]
    swapped = whole.model_copy(update={"models": tuple(models)})
    trials = list(try_combo(stage.combo(swapped), swapped))
    assert any(not trial.holds for trial in trials)
    assert {miss.what for trial in trials for miss in trial.misses} >= {"order"}


@given(
    wanted=st.lists(st.sampled_from(["…", "glm/…", GLM, "ds"]), max_size=5),
    had=st.lists(st.sampled_from([GLM, "glm/other", DS]), max_size=5),
)
@settings(max_examples=60)
def test_a_list_fits_where_a_regular_expression_does(
    stage: Stage, wanted: list[str], had: list[str]
) -> None:
    made = combo({"reply": 200})
    cast = Cast(made, stage.combo(made).world)
    parts = {"…": r"(?:\S+ )*", "glm/…": r"glm/\S+ ", GLM: f"{re.escape(GLM)} ", "ds": r"ds/\S+ "}
    whole = re.fullmatch("".join(parts[name] for name in wanted), "".join(f"{h} " for h in had))
    assert fits([*map(cast.name, wanted)], [*map(cast.of, had)]) is (whole is not None)


FUSION: dict[str, Any] = {"strategy": "fusion", "judge": CC}
ROTATING: dict[str, Any] = {"strategy": "round-robin"}
HOLDING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"given": {"needs": ["image"], "fail": {"cc": 529}}, "attempts": ["cc/…", "glm/…"]}, {}),
    ({"order": list(MODELS), "attempts": [GLM], "reply": GLM}, {}),
    ({"order": ["zai/...", "*"], "reply": {"from": "glm", "status": 200, "came": "whole"}}, {}),
    ({"order": ["…", CC]}, {}),
    ({"order": ["…", "ds/…", "…"]}, {}),
    ({"order": ["glm", "…", "ds", "cc"]}, {}),
    ({"given": {"needs": ["image", "pdf"]}, "order": ["cc/claude-…", "…"]}, {}),
    ({"given": {"needs": ["audio"]}, "order": ["gemini/…", "…"], "reply": "gemini/…"}, {}),
    ({"given": {"needs": ["tools", "json"]}, "order": ["glm", "ds", "cc"]}, {}),
    ({"given": {"fail": {"…": 529}}, "reply": 529, "attempts": list(MODELS)}, {}),
    ({"given": {"fail": {"…": 500, "cc/…": [None, 529]}}, "reply": "cc/…"}, {}),
    ({"given": {"fail": {"ds/…": 400, DS: 422, "*": 503, CC: 403}}, "reply": 403}, {}),
    ({"given": {"fail": {"glm": "timeout"}}, "reply": "ds/…"}, {}),
    ({"given": {"stream": True, "fail": {"glm": "cut"}}, "reply": "cut"}, {}),
    ({"given": {"stream": True, "fail": {"glm": "cut"}}, "reply": "ds/…"}, {"streamGuard": "full"}),
    ({"given": {"stream": True, "fail": {"…": "timeout"}}, "reply": "error"}, {}),
    ({"given": {"fail": {"…": "timeout"}}, "reply": 504}, {}),
    ({"given": {"fail": {"…": "empty"}}, "reply": {"came": "empty", "from": CC}}, {}),
    ({"given": {"fail": {"glm": [529, None]}}, "attempts": [GLM], "reply": GLM}, {"retries": 1}),
    ({"given": {"fail": {"glm": [529]}}, "reply": DS}, {"retries": 1}),
    ({"given": {"fail": {"glm": [404, None]}}, "attempts": [GLM, "glm/…"], "reply": "glm/…"}, {}),
    ({"given": {"fail": {"glm": 404}}, "attempts": [GLM, "…", DS]}, {}),
    ({"given": {"locked": ["glm", DS]}, "attempts": [CC], "reply": CC}, {}),
    ({"given": {"locked": ["glm@a"]}, "attempts": [GLM], "reply": GLM}, {}),
    ({"given": {"locked": ["glm@a"], "fail": {"zai@b": 429, "zai": 400}}, "reply": DS}, {}),
    ({"given": {"fail": {"…": 529, "cc@b": [None]}}, "attempts": [*MODELS], "reply": CC}, {}),
    ({"given": {"locked": ["…"]}, "attempts": [], "reply": 429}, {}),
    ({"given": {"quota": {"ds": 0.4, "cc": 0.9}}, "order": [CC, DS, GLM]}, {}),
    ({"given": {"quota": {"…": 0.5, GLM: 0.01}}, "order": [DS, CC, GLM]}, {}),
    ({"given": {"turn": 2}, "order": [DS, CC, GLM]}, ROTATING),
    ({"given": {"turn": 3}, "order": [DS, CC, GLM]}, {**ROTATING, "stickyLimit": 2}),
    ({"given": {"turn": 2}, "order": [GLM, DS, CC]}, {}),
    ({"given": {"needs": ["image"], "fail": {"cc": "image"}}, "attempts": [CC], "reply": CC}, {}),
    ({"order": list(MODELS), "attempts": [*MODELS, CC], "reply": CC}, FUSION),
    ({"given": {"fail": {"cc": [529, 529, None]}}, "attempts": [*MODELS, CC], "reply": CC}, FUSION),
    ({"given": {"fail": {"glm": 529, "cc": 401}}, "attempts": [*MODELS, DS]}, FUSION),
    ({"given": {"fail": {"glm": "slow"}}, "attempts": [*MODELS, CC], "reply": 200}, FUSION),
    ({"given": {"fail": {"…": 529}}, "attempts": list(MODELS), "reply": 503}, FUSION),
]


@pytest.mark.parametrize(("case", "fields"), HOLDING, ids=lambda each: json.dumps(each)[:80])
def test_what_a_case_means(play: Play, case: dict[str, Any], fields: dict[str, Any]) -> None:
    trial = play(case, **fields)
    assert trial.misses == ()


MISSING: list[tuple[dict[str, Any], tuple[str, str, str]]] = [
    ({"order": [GLM, DS]}, ("order", f"{GLM}, {DS}", f"{GLM}, {DS}, {CC}")),
    ({"order": ["…", "glm/…"]}, ("order", "…, glm/…", f"{GLM}, {DS}, {CC}")),
    ({"attempts": []}, ("attempts", "nothing", GLM)),
    ({"attempts": [GLM, DS]}, ("attempts", f"{GLM}, {DS}", GLM)),
    ({"reply": "ds/…"}, ("reply", "from ds/…", f"200, whole, from {GLM}")),
    ({"reply": 529}, ("reply", "529", f"200, whole, from {GLM}")),
    ({"reply": "cut"}, ("reply", "cut", f"200, whole, from {GLM}")),
    (
        {"given": {"fail": {"…": 503}}, "reply": "cc/…"},
        ("reply", "from cc/…", "503, error"),
    ),
]


@pytest.mark.parametrize(("case", "miss"), MISSING)
def test_what_does_not_come_is_told(
    play: Play, case: dict[str, Any], miss: tuple[str, str, str]
) -> None:
    (found,) = play(case).misses
    assert (found.what, found.expected, found.came) == miss


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
def test_cases_are_played_in_every_dialect(play: Play, dialect: str, stream: bool) -> None:
    given = {"dialect": dialect, "stream": stream, "needs": ["image"], "fail": {"cc": 529}}
    if dialect not in get_args(DialectName):
        pytest.fail("a case cannot be of this dialect")
    trial = play({"given": given, "attempts": ["cc", "glm"], "reply": {"from": GLM, "status": 200}})
    assert trial.holds
    assert trial.seen.route is not None
    assert (trial.seen.route.dialect, trial.seen.route.stream) == (dialect, stream)


def test_labels_and_nested_combos(play: Play) -> None:
    inner = Combo.model_validate(
        {"name": "inner", "models": [{"model": DS, "label": "the second"}]}
    )
    models = ({"model": GLM, "label": "first"}, "inner", CC)
    case = {
        "given": {"fail": {"first": 529, "the second": 500}},
        "order": ["first", "combo/inner", "cc/…"],
        "attempts": ["first", "the second", "cc/…"],
    }
    assert play(case, inner, models=models).holds
    assert not play({**case, "order": ["first", "cc/…", "inner"]}, inner, models=models).holds


MISNAMED: list[tuple[dict[str, Any], str, str]] = [
    ({"given": {"fail": {"gml": 529}}}, "$.expect[0].given.fail.gml", "Did you mean 'glm'?"),
    ({"given": {"locked": ["cc", "dss"]}}, "$.expect[0].given.locked[1]", "Did you mean 'ds'?"),
    (
        {"given": {"quota": {"ds/deepsek-v4-pro": 1}}},
        '$.expect[0].given.quota["ds/deepsek-v4-pro"]',
        f"Did you mean '{DS}'?",
    ),
    (
        {"given": {"fail": {GLM: 404}, "quota": {"glm/glm-5": 0}}},
        '$.expect[0].given.quota["glm/glm-5"]',
        f"Did you mean '{GLM}'?",
    ),
    ({"order": ["openai/…"]}, "$.expect[0].order[0]", f"Its entries: {GLM}, {DS}, {CC}, gemini/"),
    ({"attempts": ["frist"]}, "$.expect[0].attempts[0]", "Did you mean 'first'?"),
    ({"given": {"locked": ["cc@c"]}}, "$.expect[0].given.locked[0]", "can name: cc@a, cc@b."),
    ({"attempts": ["cc@a"]}, "$.expect[0].attempts[0]", "which only what is given can name"),
    ({"reply": {"from": "x"}}, "$.expect[0].reply.from", "Its entries: "),
]


@pytest.mark.parametrize(("case", "path", "hint"), MISNAMED)
def test_names_that_mean_nobody_are_told(
    stage: Stage, case: dict[str, Any], path: str, hint: str
) -> None:
    models = ({"model": GLM, "label": "first"}, DS, CC)
    mine = combo({"reply": 200, **case}, models=models)
    (problem,) = misnamed(mine, stage.combo(mine).world, "mine.json")
    assert (problem.file, problem.path) == ("mine.json", path)
    assert hint in problem.hint


def test_a_caller_that_gets_nothing_is_no_reply_that_a_case_can_expect(play: Play) -> None:
    fields = {"timeouts": {"stall": "off"}}
    trial = play({"given": {"stream": True, "fail": {"glm": "stall"}}, "reply": 200}, **fields)
    assert trial.reply.came is None
    assert reply_in_words(Reply.model_construct()) == "nothing, for ever"


def test_the_example_of_the_documentation_holds(stage: Stage) -> None:
    page = (SHIPPED.parent / "docs" / "combos.md").read_text()
    example = page.split("\n## Tests\n")[1].split("```json\n")[1].split("```")[0]
    made = parse_combo(example.encode(), "example.json", "example")
    staged = stage.combo(made)
    assert list(misnamed(made, staged.world, "example.json")) == []
    assert [trial.misses for trial in try_combo(staged, made)] == [(), (), ()]


def test_what_is_left_to_a_stand_in_is_no_entrys(stage: Stage) -> None:
    mine = combo({"given": {"quota": {"glm/glm-5": 0, "glm/glm-5…": 0}}, "reply": 200})
    (problem,) = misnamed(mine, stage.combo(mine).world, "mine.json")
    assert "'glm/glm-5' only stands in for a model that is gone" in problem.message


def test_a_lock_of_a_stand_in_is_its_accounts(play: Play) -> None:
    assert play({"given": {"locked": ["glm/glm-5"]}, "attempts": [DS], "reply": DS}).holds


def test_what_is_given_of_a_stand_in_befalls_it(play: Play) -> None:
    gone = {"fail": {GLM: 404}}
    assert "glm/glm-5" in play({"given": gone, "reply": "whole"}).attempts
    for more in ({"locked": ["glm/glm-5"]}, {"fail": {GLM: 404, "glm/glm-5": 529}}):
        trial = play({"given": {**gone, **more}, "reply": "whole"})
        assert trial.attempts[-1] != "glm/glm-5"
