"""A simulation: who comes when, what providers do, and sums that are those of each request."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.load import House
from krouter.paths import resolve_paths
from krouter.problems import ConfigError
from krouter.rehearsal import Stage
from krouter.script import Sent
from krouter.simulation import Load, read_load, simulate
from krouter.simulation.arrivals import arrivals
from krouter.simulation.loads import Asked
from krouter.simulation.providers import Providers
from krouter.simulation.report import Waits
from krouter.wire import HttpWire

SETTINGS = """
[[account]]
provider = "glm"
name = "a"
key = "env:A"
[[account]]
provider = "glm"
name = "b"
key = "env:B"
max_concurrent = 2
"""
STEADY = {"*": {"first_byte": 1.0, "rest": 2.0, "spread": 0}}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    home: Path = tmp_path_factory.mktemp("home")
    (home / "krouter.toml").write_text(SETTINGS)
    paths = resolve_paths(home=home, env={}, cwd=home)
    return Stage.of(House(paths, {}, HttpWire(), ledger=False).router.world)


def load(**fields: Any) -> Load:
    return msgspec.convert({"latency": STEADY, **fields}, Load)


def each(times: int, gap: float = 10.0, **fields: Any) -> list[dict[str, Any]]:
    return [{"at": number * gap, "session": str(number), **fields} for number in range(times)]


def test_sums_over_requests_that_all_go_well(stage: Stage) -> None:
    asked = [*each(6), *each(4, stream=False, needs=["image"], dialect="messages")]
    found = simulate(stage, "daily", load(requests=asked)).as_json()
    assert (found["requests"], found["answered"], found["availability"]) == (10, 10, 1.0)
    assert found["served"] == {"glm/glm-5.1": 6, "cc/claude-sonnet-4-6": 4}
    assert found["first_byte"] == {"p50": 1.0, "p90": 3.0, "p99": 3.0, "max": 3.0}
    assert found["whole_answer"]["max"] == 3.0
    assert found["until_failure"]["p50"] is None
    assert (found["attempts"], found["most_attempts"], found["fell_over"]) == (10, 1, 0)
    assert (found["most_at_once"], found["seconds"]) == (2, 53.0)
    assert sum(account["sent"] for account in found["accounts"].values()) == 10
    assert found["accounts"]["cc@rehearsed"]["tokens"] == 4 * 2300
    assert found["accounts"]["cc@rehearsed"]["cost"] == pytest.approx(
        4 * (2000 * 3e-6 + 300 * 15e-6)
    )


def test_where_no_request_comes_there_is_no_availability(stage: Stage) -> None:
    found = simulate(stage, "daily", load(seconds=0.001, rate=0.001)).as_json()
    assert (found["requests"], found["availability"], found["failures"]) == (0, None, {})


def test_an_outage_lasts_from_its_first_second_to_before_its_last(stage: Stage) -> None:
    outage = {"of": "*", "from": 20, "to": 40, "fault": 400}
    found = simulate(stage, "daily", load(requests=each(6), outages=[outage])).as_json()
    assert (found["answered"], found["failures"]) == (4, {"bad request (400)": 2})
    assert found["until_failure"]["max"] == 3.0
    assert found["attempts"] == 4 + 2 * 3


def test_an_answer_with_nothing_in_it_is_none(stage: Stage) -> None:
    outage = {"of": "*", "fault": "empty"}
    for stream in (True, False):
        asked = each(3, 1000.0, stream=stream)
        found = simulate(stage, "daily", load(requests=asked, outages=[outage])).as_json()
        assert (found["answered"], found["availability"], found["fell_over"]) == (0, 0.0, 0)
        assert found["failures"] == {"empty reply (200)": 3}


@pytest.mark.parametrize(
    ("stream", "dialect", "status"),
    [(True, "chat", 200), (True, "gemini", 504), (False, "chat", 504)],
)
def test_a_stream_that_was_kept_alive_had_begun(
    stage: Stage, stream: bool, dialect: str, status: int
) -> None:
    """Google's dialect has no sign of life, so nothing has begun there."""
    outage = {"of": "*", "fault": "timeout"}
    asked = load(requests=each(1, stream=stream, dialect=dialect), outages=[outage])
    assert simulate(stage, "daily", asked).as_json()["failures"] == {f"timed out ({status})": 1}


@pytest.mark.parametrize(
    ("of", "served"),
    [
        ("glm", {"ds/deepseek-v4-pro": 4}),
        ("glm/glm-5.1", {"ds/deepseek-v4-pro": 4}),
        ("glm/other", {"glm/glm-5.1": 4}),
        ("glm@a", {"glm/glm-5.1": 4}),
        ("deepseek", {"glm/glm-5.1": 4}),
    ],
)
def test_an_outage_is_of_whom_it_names(stage: Stage, of: str, served: dict[str, int]) -> None:
    asked = load(requests=each(4, 1000.0), outages=[{"of": of, "fault": "429"}])
    assert simulate(stage, "daily", asked).as_json()["served"] == served


def test_a_quota_is_never_passed(stage: Stage) -> None:
    quota = {"of": "glm", "every": 100, "requests": 3}
    found = simulate(stage, "daily", load(requests=each(20), quotas=[quota])).as_json()
    assert found["served"] == {"glm/glm-5.1": 12, "ds/deepseek-v4-pro": 8}
    accounts = found["accounts"]
    assert accounts["glm@a"]["answered"] == accounts["glm@b"]["answered"] == 6
    assert accounts["glm@a"]["failed"] == {"rate limited": 2}  # one a window, and then it is locked


def test_a_quota_of_tokens(stage: Stage) -> None:
    quota = {"of": "glm@a", "every": 1000, "tokens": 5000}
    load_ = load(requests=[], quotas=[quota])
    providers = Providers(load_, stage.world, 0)

    def turn(at: float, account: str = "a") -> tuple[str, float | None]:
        note = Asked(at, input=1500, output=500)
        done = providers(Sent("glm", account, "m", "chat", True, at, 1, 1, b"", note))
        return done.fault, done.reset

    assert [turn(at) for at in (0, 1, 400, 1000)] == [
        ("", None),
        ("", None),
        ("429", 600),
        ("", None),
    ]
    assert [turn(400, "b")] == [("", None)]


def test_accounts_keep_to_their_limits(stage: Stage) -> None:
    only_b = {"models": [{"model": "glm/glm-5.1", "accounts": ["b"]}], "name": "b"}
    combo = type(stage.world.combos["daily"]).model_validate(only_b)
    asked = load(requests=[{"at": 0.0, "session": str(n)} for n in range(6)])
    found = simulate(stage.combo(combo), "b", asked).as_json()
    assert (found["answered"], found["seconds"]) == (6, 9.0)
    assert found["first_byte"] == {"p50": 4.0, "p90": 7.0, "p99": 7.0, "max": 7.0}


def test_the_same_load_gives_the_same_sums(stage: Stage) -> None:
    fields: dict[str, Any] = {
        "requests": 300,
        "rate": 2,
        "needs": {"image": 0.2},
        "stream": 0.5,
        "latency": {},
        "outages": [{"of": "glm", "from": 20, "to": 90, "fault": "529", "share": 0.5}],
    }

    def told(seed: int) -> Any:
        return simulate(stage, "daily", load(**fields, seed=seed)).as_json()

    assert told(1) == told(1)
    assert told(1) != told(2)


def test_requests_come_at_their_rates() -> None:
    rates = [
        {"rate": 1},
        {"from": 1000, "rate": 20},
        {"from": 2000, "rate": 0},
        {"from": 3000, "rate": 5},
    ]
    asked = list(arrivals(load(seconds=4000, rate=rates, session=4, needs={"pdf": 0.25}), 3))
    times = [each.at for each in asked]
    assert times == sorted(times)
    thousands = Counter(int(at // 1000) for at in times)
    for thousand, expected in enumerate((1000, 20_000, 0, 5000)):
        assert abs(thousands[thousand] - expected) <= 5 * expected**0.5
    sessions = len({each.session for each in asked})
    assert len(asked) / sessions == pytest.approx(4, rel=0.1)
    assert sum(each.needs == ("pdf",) for each in asked) == pytest.approx(6500, rel=0.1)


def test_as_many_come_as_are_asked_for() -> None:
    assert len(list(arrivals(load(requests=123), 0))) == 123
    assert len(list(arrivals(load(requests=1000, seconds=50), 0))) < 100
    unsorted = load(requests=[{"at": 5.0}, {"at": 1.0}])
    assert [each.at for each in arrivals(unsorted, 0)] == [1.0, 5.0]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300))
def test_quantiles_are_those_of_the_nearest_rank(seconds: list[int]) -> None:
    waits = Waits()
    for each_ in seconds:
        waits.add(each_)
    ranked = sorted(seconds)
    at = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    assert waits.as_json() == {k: ranked[ceil(len(ranked) * v / 100) - 1] for k, v in at.items()}


Reads = Callable[..., Load]


@pytest.fixture
def read(stage: Stage, tmp_path: Path) -> Reads:
    def reads(text: Any, name: str = "load.json") -> Load:
        file = tmp_path / name
        file.write_text(text if isinstance(text, str) else json.dumps(text))
        return read_load(file, stage.world, stage.faults)

    return reads


def test_lines_hold_a_request_each(read: Reads) -> None:
    asked = ['{"at": 1, "needs": ["image"]}', "", '{"at": 0.5, "dialect": "gemini"}']
    assert read("\n".join(asked), "a.jsonl").requests == [
        Asked(1, needs=("image",)),
        Asked(0.5, "gemini"),
    ]
    found = read("\n".join(['{"seed": 4}', *asked]), "b.jsonl")
    assert (found.seed, len(found.requests or [])) == (4, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "Input data was truncated"),
        ({}, "say how many requests"),
        ({"requests": 0}, r"\$.requests: is 1 to"),
        ({"requests": 5, "ratee": 1}, "unknown field `ratee`. Did you mean 'rate'"),
        ({"requests": 5, "outages": [{"of": "glm", "fro": 1}]}, "Did you mean 'from'"),
        ({"requests": 5, "outages": [{"of": "glm", "from": 9, "to": 3}]}, "begins before it ends"),
        ({"requests": 5, "outages": [{"of": "glmm"}]}, r"outages\[0\].of: .*Did you mean 'glm'"),
        ({"requests": 5, "outages": [{"of": "glm@c"}]}, "glm has no account 'c'. It has a, b."),
        ({"requests": 5, "outages": [{"of": "*", "fault": "stal"}]}, "Did you mean 'stall'"),
        ({"requests": 5, "quotas": [{"of": "glm", "every": 5}]}, "requests or tokens"),
        ({"requests": 5, "needs": {"imag": 1}}, "Did you mean 'image'"),
        ({"requests": 5, "dialects": {"morse": 1}}, "no such dialect"),
        ({"requests": 5, "dialects": {}}, "of which one is more than 0"),
        ({"requests": 5, "dialects": {"chat": 1e308, "messages": 1e308}}, "none beyond measure"),
        ({"requests": []}, r"\$.requests: are none"),
        ({"requests": 5, "stream": 2}, r"\$.stream: is a share"),
        ({"requests": 5, "rate": [{"rate": 3}, {"from": 5, "rate": 0}]}, "more than 0 in the end"),
        ({"requests": 5, "rate": [{"from": 5, "rate": 0}, {"rate": 3}]}, "more than 0 in the end"),
        ({"requests": 5, "rate": []}, "more than 0 in the end"),
        ({"requests": 5, "rate": 1e-300}, r"\$.rate: is too low: 5 requests"),
        ({"seconds": 1e18}, r"\$.seconds: is at most 1,000,000,000"),
        ({"seconds": 60, "rate": 1e300}, r"\$.seconds: are too many for this rate"),
        ({"requests": 5, "rate": "fast"}, "Expected"),
        ({"requests": 5, "session": 0.5}, r"\$.session"),
        ({"requests": 5, "latency": {"glm": {"rest": -1}}}, r"\$.latency.glm"),
        ({"requests": 5, "latency": {"*": {"rest": 1e300}}}, "at most 1,000,000,000 seconds"),
        ({"requests": 5, "latency": {"*": {"spread": 1000}}}, "a spread of at most 5"),
        ({"requests": 5, "outages": [{"of": "*", "fault": "caller-gone"}]}, "none of a provider's"),
        ({"requests": [{"at": -1}]}, r"\$.requests\[0\]"),
        ({"requests": [{"at": 1e300}]}, r"\$.requests\[0\]: comes within"),
        ({"requests": [{"at": 1, "output": -1}]}, "numbers of tokens"),
    ],
)
def test_a_wrong_load_is_refused_with_its_place(read: Reads, text: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    assert refused.match(told)


def test_a_wrong_line_is_named(read: Reads) -> None:
    with pytest.raises(ConfigError) as refused:
        read('{"at": 1}\n{"at": "soon"}', "a.jsonl")
    assert refused.match("line 2 .*at.*Expected `float`")


def test_accounts_of_callers_send_their_own(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "krouter.toml").write_text(
        '[[account]]\nprovider = "cc"\nname = "own"\nauth = "caller"\n'
    )
    paths = resolve_paths(home=tmp_path, env={}, cwd=tmp_path)
    world = House(paths, {}, HttpWire(), ledger=False).router.world
    world = replace(world, combos=stage.world.combos)
    asked = each(3, needs=["image"], dialect="messages")
    found = simulate(Stage.of(world), "daily", load(requests=asked)).as_json()
    assert found["accounts"]["cc@own"]["answered"] == 3
