from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import krouter.combos
from krouter.cases import Reply
from krouter.combos import (
    Combo,
    Entry,
    FusionTuning,
    check_references,
    combo_schema,
    parse_combo,
    reference,
    references,
)
from krouter.problems import ConfigError, Problem, field_names

SHIPPED = Path(krouter.combos.__file__).parents[1] / "combos"


def parse(text: str | dict[str, Any], stem: str = "daily") -> Combo:
    data = text if isinstance(text, str) else json.dumps(text)
    return parse_combo(data.encode(), f"{stem}.json", stem)


def problems(text: str | dict[str, Any], stem: str = "daily") -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(text, stem)
    return caught.value.problems


def combo(name: str, *models: str, **fields: Any) -> Combo:
    return Combo.model_validate({"name": name, "models": models, **fields})


def graph(**edges: str) -> dict[str, Combo]:
    return {name: combo(name, "glm/x", *targets.split()) for name, targets in edges.items()}


def test_the_least_combo_gets_every_default() -> None:
    least = parse({"models": ["glm/glm-5.1"]})
    assert least == Combo(name="daily", models=(Entry(model="glm/glm-5.1"),))
    assert (least.strategy, least.stream_guard, least.on_too_large) == ("fallback", "off", "return")
    assert (least.on_refusal, least.retries, least.sticky_limit) == ("next", 0, None)
    assert least.fusion_tuning == FusionTuning()
    assert (least.judge_name, least.timeouts, least.accept, least.expect) == (None, None, (), ())


def test_every_field_is_read_from_its_camel_case_name() -> None:
    full = parse(
        {
            "$schema": "combo.schema.json",
            "name": "Team.one_2-x",
            "description": "all of it",
            "strategy": " Round-Robin ",
            "models": [
                "glm/glm-5.1",
                {
                    "model": "local/qwen3-vl",
                    "weight": 2,
                    "accounts": ["work"],
                    "params": {"temperature": 0.2},
                    "reads": ["image", "pdf"],
                    "contextWindow": 128000,
                    "timeouts": {"firstByte": 5},
                    "label": "at home",
                },
            ],
            "stickyLimit": 3,
            "streamGuard": "first",
            "onTooLarge": "larger",
            "onRefusal": "return",
            "timeouts": {"total": 30, "tryOtherAccounts": True},
            "accept": ["audio"],
            "retries": 10,
        }
    )
    entry = full.models[1]
    assert (full.name, full.strategy, full.sticky_limit) == ("Team.one_2-x", "round-robin", 3)
    assert (entry.weight, entry.accounts, entry.context_window) == (2, ("work",), 128000)
    assert (entry.reads, entry.params) == (("image", "pdf"), {"temperature": 0.2})
    assert entry.timeouts is not None
    assert full.timeouts is not None
    assert (entry.timeouts.first_byte, full.timeouts.try_other_accounts) == (5, True)


def test_omniroutes_own_example_loads_unchanged() -> None:
    theirs = parse(
        {
            "name": "fusion-panel",
            "strategy": "fusion",
            "models": ["cc/claude-opus-4-6", "cx/gpt-5.5", "gemini/gemini-3-pro"],
            "fusionTuning": {
                "minPanel": 2,
                "stragglerGraceMs": 8000,
                "panelHardTimeoutMs": 90000,
                "judgeModel": "cc/claude-opus-4-6",
            },
        }
    )
    assert theirs.judge_name == "cc/claude-opus-4-6"


@pytest.mark.parametrize(
    ("fields", "judge"),
    [
        ({"judge": "a/b"}, "a/b"),
        ({"fusionTuning": {"judgeModel": "c/d"}}, "c/d"),
        ({"judge": "a/b", "fusionTuning": {"judgeModel": "c/d"}}, "a/b"),
        ({"judge": "", "fusionTuning": {"judgeModel": " "}}, None),
        ({"judge": None}, None),
    ],
)
def test_the_first_spelling_of_the_judge_wins(fields: dict[str, Any], judge: str | None) -> None:
    assert parse({"models": ["glm/x"], "strategy": "fallback", **fields}).judge_name == judge


def test_a_bom_is_no_fault() -> None:
    assert parse('\ufeff{"models": ["a/b"]}').name == "daily"


def test_expected_cases_as_documented() -> None:
    text = (
        '{"models": ["glm/x"], "expect": [{"given": {"needs": ["image"], "fail": {"cc": 529}}, '
        '"attempts": ["cc/…", "glm/…"]}, {"order": ["glm/…"], "reply": {"status": 200}}, '
        '{"given": {"fail": {"glm/x": ["timeout", null]}}, "reply": 504}, {"reply": "cut"}, '
        '{"reply": "glm/…"}]}'
    )
    first, second, third, fourth, last = parse(text).expect
    assert first.given.fail == {"cc": 529}
    assert first.attempts == ("cc/…", "glm/…")
    assert (second.order, second.reply) == (("glm/…",), Reply(status=200))
    assert third.given.fail == {"glm/x": ("timeout", None)}
    assert (third.reply, fourth.reply) == (Reply(status=504), Reply(came="cut"))
    assert last.reply == Reply(from_="glm/…")


def case(**given: Any) -> dict[str, Any]:
    return {"expect": [{"given": given, "reply": 200}]}


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"stratgy": "fusion"}, "$.stratgy", "Did you mean 'strategy'?"),
    ({"sticky_limit": 2}, "$.sticky_limit", "Did you mean 'stickyLimit'?"),
    ({"[key]": 2}, '$["[key]"]', "Known fields: name, description"),
    ({"strategy": "weighted"}, "$.strategy", "is not built; known: fallback, priority,"),
    ({"strategy": "best"}, "$.strategy", "no such strategy; known: fallback, priority,"),
    ({"strategy": 7}, "$.strategy", "(value 7)"),
    ({"models": []}, "$.models", "at least one entry"),
    ({"models": "glm/x"}, "$.models", "should be a list"),
    ({"models": ["a/b", 3]}, "$.models[1]", "an entry is a text such as"),
    ({"models": ["a/b", "c d"]}, "$.models[1].model", "without whitespace"),
    ({"models": [""]}, "$.models[0].model", "1 to 300"),
    ({"models": ["a/" + "b" * 299]}, "$.models[0].model", "1 to 300"),
    ({"models": [{"model": "a/b", "wieght": 1}]}, "$.models[0].wieght", "Did you mean 'weight'?"),
    ({"models": [{"weight": 1}]}, "$.models[0].model", "required"),
    ({"models": [{"model": "a/b", "weight": -1}]}, "$.models[0].weight", "value -1"),
    ({"models": [{"model": "a/b", "weight": "1"}]}, "$.models[0].weight", "number"),
    ({"models": [{"model": "a/b", "reads": ["smell"]}]}, "$.models[0].reads[0]", "'image'"),
    ({"models": [{"model": "a/b", "contextWindow": 0}]}, "$.models[0].contextWindow", "value 0"),
    ({"models": [{"model": "a/b", "label": "x" * 201}]}, "$.models[0].label", "200"),
    ({"stickyLimit": 0}, "$.stickyLimit", "value 0"),
    ({"stickyLimit": "3"}, "$.stickyLimit", "integer"),
    ({"stickyLimit": True}, "$.stickyLimit", "integer"),
    ({"retries": 11}, "$.retries", "value 11"),
    ({"name": "a b"}, "$.name", "letters, digits"),
    ({"name": "a\n"}, "$.name", "letters, digits"),
    ({"name": "é"}, "$.name", "letters, digits"),
    ({"name": "x" * 101}, "$.name", "letters, digits"),
    ({"name": "a/b"}, "$.name", "letters, digits"),
    ({"judge": "a b"}, "$.judge", "without whitespace"),
    ({"fusionTuning": {"minPanel": 0}}, "$.fusionTuning.minPanel", "value 0"),
    ({"fusionTuning": {"minpanel": 1}}, "$.fusionTuning.minpanel", "Did you mean 'minPanel'"),
    ({"fusionTuning": {"stragglerGraceMs": 120001}}, "$.fusionTuning.stragglerGraceMs", "120001"),
    ({"fusionTuning": {"panelHardTimeoutMs": 999}}, "$.fusionTuning.panelHardTimeoutMs", "999"),
    ({"fusionTuning": {"lateCalls": "stop"}}, "$.fusionTuning.lateCalls", "'cancel'"),
    ({"fusionTuning": {"requireQuorum": 1}}, "$.fusionTuning.requireQuorum", "boolean"),
    ({"fusionTuning": []}, "$.fusionTuning", "should be an object"),
    ({"streamGuard": "on"}, "$.streamGuard", "'first'"),
    ({"timeouts": {"firstbyte": 1}}, "$.timeouts.firstbyte", "Did you mean 'firstByte'"),
    ({"expect": [{"givn": {}}]}, "$.expect[0].givn", "Did you mean 'given'?"),
    ({"expect": [{"given": {"need": []}}]}, "$.expect[0].given.need", "Did you mean 'needs'?"),
    ({"expect": [{"given": {"fail": {"a/b": 7}}}]}, '$.expect[0].given.fail["a/b"]', "529"),
    (
        {"expect": [{"reply": True}]},
        "$.expect[0].reply",
        "a status, a word, an entry, or an object",
    ),
    ({"expect": [{"reply": {}}]}, "$.expect[0].reply", "an object that tells something"),
    ({"expect": [{"reply": 42}]}, "$.expect[0].reply.status", "greater than or equal to 100"),
    ({"expect": [{"reply": "hole"}]}, "$.expect[0].reply", "Did you mean 'whole'?"),
    ({"expect": [{"reply": "hello"}]}, "$.expect[0].reply", "known: whole, empty, cut, error"),
    ({"expect": [{"reply": {"form": "cc"}}]}, "$.expect[0].reply.form", "Did you mean 'from'?"),
    ({"expect": [{"given": {"turn": 2}}]}, "$.expect[0]", "expects nothing: say its order,"),
    (case(needs=["imag"]), "$.expect[0].given.needs[0]", "Did you mean 'image'?"),
    (
        case(needs=["stream"]),
        "$.expect[0].given.needs[0]",
        "known: image, pdf, audio, video, tools",
    ),
    (case(dialect="message"), "$.expect[0].given.dialect", "Did you mean 'messages'?"),
    (case(stream="yes"), "$.expect[0].given.stream", "valid boolean"),
    (case(fail={"cc": "timout"}), "$.expect[0].given.fail.cc", "Did you mean 'timeout'?"),
    (case(fail={"cc": [529, "stal"]}), "$.expect[0].given.fail.cc", "Did you mean 'stall'?"),
    (case(fail={"cc": []}), "$.expect[0].given.fail.cc", "one fault for each time"),
    (case(fail={"cc": "529"}), "$.expect[0].given.fail.cc", "a status from 300 to 599"),
    (case(fail={"cc": 200}), "$.expect[0].given.fail.cc", "a status from 300 to 599"),
    (case(fail={" ": 529}), '$.expect[0].given.fail[" "]', "1 to 300 characters"),
    (case(locked="cc"), "$.expect[0].given.locked", "should be a list"),
    (case(quota={"cc": 80}), "$.expect[0].given.quota.cc", "less than or equal to 1"),
    (case(turn=0), "$.expect[0].given.turn", "greater than or equal to 1"),
]


@pytest.mark.parametrize(("fields", "path", "text"), BAD_FIELDS)
def test_a_bad_field_is_told_with_its_path(fields: dict[str, Any], path: str, text: str) -> None:
    (problem,) = problems({"models": ["glm/x"], **fields})
    assert (problem.file, problem.path) == ("daily.json", path)
    assert text in str(problem)


BAD_TEXTS = [
    ("", "not JSON at line 1, column 1"),
    ('{"models":\n ["a/b"}', "not JSON at line 2, column 8"),
    ('{"models": ["a/b"], "retries": NaN}', "NaN"),
    ('{"models": ["a/b"], "weight": 1e999}', "1e999"),
    ('{"models": ["a/b"], "retries": 1' + "0" * 5000 + "}", "5001 digits"),
    ('{"models": ["a/b"], "models": ["c/d"]}', "'models' stands twice"),
    ('{"models": [{"model": "a/b", "params": {"x": 1, "x": 2}}]}', "'x' stands twice"),
    ('{"models": [{"model": "a/b", "params": {"model": "c"}}]}', "is the request's own"),
    ('{"models": [{"model": "a/b", "params": {"messages": []}}]}', "is the request's own"),
    ('{"models": ["a/b"], "description": "\\ud800"}', "surrogate"),
    ("[" * 200 + "]" * 200, "nested more than"),
    ("[" * 200_000, "nested more than"),
    ("[]", "should be an object"),
    ("null", "should be an object"),
]


@pytest.mark.parametrize(("text", "message"), BAD_TEXTS)
def test_what_is_no_combo_at_all(text: str, message: str) -> None:
    (problem,) = problems(text)
    assert message in problem.message


def test_bytes_that_are_not_utf8() -> None:
    with pytest.raises(ConfigError, match="not UTF-8: byte 3"):
        parse_combo(b'{"a\xff"}', "x.json", "x")


def test_a_stem_that_is_no_name_needs_a_name() -> None:
    assert problems({"models": ["a/b"]}, "my combo")[0].path == "$.name"
    assert parse({"models": ["a/b"], "name": "mine"}, "my combo").name == "mine"


def test_every_fault_is_told_at_once() -> None:
    text = '{"name": "a b", "retries": 11, "retries": 12, "models": [], "judgee": "x/y"}'
    assert [p.path for p in problems(text)] == ["", "$.name", "$.models", "$.retries", "$.judgee"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
likely_fields = st.sampled_from(
    [name for part in (Combo, Entry, FusionTuning) for name in field_names(part)]
)
likely_values = st.recursive(
    st.none() | st.integers() | st.sampled_from(["a/b", "fusion", "x", "off", "image"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(likely_fields, inner, max_size=4),
)


@given(st.binary() | (json_values | likely_values).map(lambda value: json.dumps(value).encode()))
def test_parsing_gives_a_combo_or_a_config_error(data: bytes) -> None:
    try:
        told = str(parse_combo(data, "x.json", "x"))
    except ConfigError as error:
        told = str(error)
    assert told.encode()


@given(st.dictionaries(likely_fields, likely_values))
def test_a_combo_survives_writing_and_reading(fields: dict[str, Any]) -> None:
    try:
        read = parse({"models": ["a/b"], **fields})
    except ConfigError:
        return
    assert parse(read.model_dump_json(by_alias=True)) == read


@pytest.mark.parametrize(
    ("model", "name"),
    [("fast", "fast"), ("combo/fast", "fast"), ("glm/glm-5.1", None), ("openrouter/a/b", None)],
)
def test_what_an_entry_refers_to(model: str, name: str | None) -> None:
    assert reference(model) == name


def test_only_a_fusion_refers_to_its_judge() -> None:
    assert references(combo("a", "x/y", judge="b")) == []
    assert references(combo("a", "c", judge="b", strategy="fusion")) == [
        ("$.models[0]", "c"),
        ("$.judge", "b"),
    ]
    tuned = combo("a", "x/y", strategy="fusion", fusionTuning={"judgeModel": "combo/b"})
    assert references(tuned) == [("$.fusionTuning.judgeModel", "b")]


GRAPHS: list[tuple[dict[str, Combo], dict[str, str]]] = [
    (graph(a="", b="a", c="b"), {}),
    (graph(a="b c", b="", c="b"), {}),
    (graph(a="a"), {"a": "lead back to 'a': a → a."}),
    (graph(a="b", b="a"), {"a": "a → b → a.", "b": "b → a → b."}),
    (graph(z="a", a="a", fine=""), {"z": "z → a → a.", "a": "a → a."}),
    (graph(a="b", b="c", c="d", d=""), {"a": "more than 3 levels of combos: a → b → c → d."}),
    (graph(a="b", b="c", c="d", d="a"), dict.fromkeys("abcd", "lead back to")),
    (
        graph(a="b", b="nope", fine=""),
        {"a": "a → b → nope.", "b": "unknown combo 'nope': b → nope"},
    ),
    (graph(daily="", x="dayly"), {"x": "Did you mean 'daily'?"}),
    (graph(x="gpt-4o"), {"x": "A model is written provider/model."}),
]


@pytest.mark.parametrize(("combos", "told"), GRAPHS)
def test_bad_references_are_told_with_their_way(
    combos: dict[str, Combo], told: dict[str, str]
) -> None:
    found = {problem.file: str(problem) for problem in check_references(combos)}
    assert found.keys() == told.keys()
    assert all(text in found[name] for name, text in told.items())


def test_a_judge_can_close_a_circle() -> None:
    combos = {"a": combo("a", "x/y", strategy="fusion", judge="b"), "b": combo("b", "a")}
    assert [p.path for p in check_references(combos)] == ["$.judge", "$.models[0]"]


def test_each_bad_entry_is_told() -> None:
    assert [p.path for p in check_references(graph(a="x b y", b=""))] == [
        "$.models[1]",
        "$.models[3]",
    ]


small_graphs = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdefg"), max_size=3), max_size=6
)


def walks(edges: Mapping[str, list[str]], walk: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All walks of up to four combos that begin with `walk`."""
    yield walk
    if len(walk) < 4:
        for name in edges.get(walk[-1], ()):
            yield from walks(edges, (*walk, name))


def can_run(edges: Mapping[str, list[str]], name: str) -> bool:
    return all(
        len(walk) <= 3 and len(set(walk)) == len(walk) and walk[-1] in edges
        for walk in walks(edges, (name,))
    )


@given(small_graphs)
def test_references_are_bad_where_a_brute_force_walk_fails(edges: dict[str, list[str]]) -> None:
    combos = graph(**{name: " ".join(targets) for name, targets in edges.items()})
    bad = {problem.file for problem in check_references(combos)}
    assert bad == {name for name in edges if not can_run(edges, name)}


@given(small_graphs)
def test_what_is_left_after_the_bad_ones_runs_whole(edges: dict[str, list[str]]) -> None:
    combos = graph(**{name: " ".join(targets) for name, targets in edges.items()})
    bad = {problem.file for problem in check_references(combos)}
    good = {name: targets for name, targets in edges.items() if name not in bad}
    assert all(can_run(good, name) for name in good)


def test_the_schema_beside_the_shipped_combos_is_current() -> None:
    assert json.loads((SHIPPED / "combo.schema.json").read_bytes()) == combo_schema()


def test_the_schema_allows_what_files_contain() -> None:
    schema = combo_schema()
    kinds = schema["properties"]["models"]["items"]["anyOf"]
    assert [kind.get("type") for kind in kinds] == ["string", None]
    assert schema["required"] == ["models"]
    assert "$schema" in schema["properties"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["models"]["minItems"] == 1
    assert schema["properties"]["strategy"]["enum"] == list(krouter.combos.STRATEGIES)
    replies = schema["$defs"]["ExpectCase"]["properties"]["reply"]["anyOf"]
    assert [each.get("type") or list(each) for each in replies] == [
        "integer",
        ["enum"],
        "string",
        ["$ref"],
        "null",
    ]


@pytest.mark.parametrize("name", ["daily", "panel", "free-tier", "demo"])
def test_the_shipped_combos_load(name: str) -> None:
    shipped = parse_combo((SHIPPED / f"{name}.json").read_bytes(), name, name)
    assert shipped.description
    assert not references(shipped)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("accounts", ["a"]),
        ("params", {"temperature": 0}),
        ("reads", ["image"]),
        ("contextWindow", 1000),
    ],
)
@pytest.mark.parametrize("model", ["inner", "combo/inner"])
def test_what_has_no_effect_on_a_nested_combo_is_refused(
    field: str, value: object, model: str
) -> None:
    data = json.dumps({"models": ["glm/x", {"model": model, field: value}]}).encode()
    with pytest.raises(ConfigError) as caught:
        parse_combo(data, "c.json", "c")
    (problem,) = caught.value.problems
    assert problem.path == f"$.models[1].{field}"
    assert "has no effect on a combo: say it at the entries of 'inner' itself" in problem.message


def test_a_nested_combo_takes_what_has_an_effect() -> None:
    entry = {"model": "inner", "timeouts": {"total": 5}, "label": "x", "weight": 1}
    parse_combo(json.dumps({"models": [entry]}).encode(), "c.json", "c")


def test_an_entry_that_may_use_no_account_is_refused() -> None:
    entry = {"model": "glm/x", "accounts": []}
    with pytest.raises(ConfigError, match=r"\$\.models\[0\]\.accounts: .*at least 1 item"):
        parse_combo(json.dumps({"models": [entry]}).encode(), "c.json", "c")
