"""A rehearsed krouter: the scripted provider has every fault, time is exact, all is repeatable."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from krouter.adapter import load_faults
from krouter.body import Body
from krouter.combos import Combo
from krouter.dialects import DIALECTS
from krouter.dialects.needs import needs
from krouter.load import House
from krouter.paths import resolve_paths
from krouter.rehearsal import (
    NEEDS,
    Came,
    Rehearsal,
    Sent,
    Stage,
    Turn,
    UnknownFault,
    failing,
    split_name,
    well,
)
from krouter.rehearsal.reading import read_reply
from krouter.rehearsal.requests import body
from krouter.script import fault_named
from krouter.virtual import NothingLeft, run
from krouter.wire import HttpWire
from krouter.world import World

FAULTS = load_faults()
MEDIA = ("image", "pdf", "audio", "video")
SETTINGS = """
[provider.one]
base_url = "http://127.0.0.1:9/v1"
[provider.two]
base_url = "http://127.0.0.1:9/v1"
[reads]
"one/m" = ["image"]
"two/m" = ["image"]
"""


def combo(name: str, *models: Any, **fields: Any) -> Combo:
    return Combo.model_validate({"name": name, "models": models, **fields}, by_alias=True)


PAIR = combo("pair", "one/m", "two/m")
ALONE = combo("alone", "one/m")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home: Path = tmp_path_factory.mktemp("home")
    (home / "krouter.toml").write_text(SETTINGS)
    house = House(resolve_paths(home=home, env={}, cwd=home), {}, HttpWire(), ledger=False)
    return house.router.world


@pytest.fixture(scope="module")
def stage(world: World) -> Stage:
    return Stage.of(replace(world, combos={"pair": PAIR, "alone": ALONE}))


def every_fault() -> Iterator[Any]:
    for name in FAULTS:
        if name == "caller-gone":
            continue
        for dialect in DIALECTS:
            for stream in (False, True):
                yield pytest.param(name, dialect, stream, id=f"{name}-{dialect}-{stream}")


@pytest.mark.parametrize(("name", "dialect", "stream"), list(every_fault()))
def test_every_fault_is_classified_into_the_row_that_it_names(
    stage: Stage, name: str, dialect: str, stream: bool
) -> None:
    kind = FAULTS[name]
    with Rehearsal(stage, failing(stage.world, {"one": name})) as rehearsal:
        seen = rehearsal.ask("pair", needs=("image",), dialect=dialect, stream=stream)
    first = seen.attempts[0]
    assert (first.entry, first.row or 0) == ("one/m", kind.streamed if stream else kind.row)
    assert seen.came in (Came.WHOLE, Came.EMPTY) or seen.first is not None


def test_every_row_of_the_error_table_has_a_fault() -> None:
    assert {kind.row for kind in FAULTS.values()} == set(range(16))
    assert all(kind.name == name and kind.about for name, kind in FAULTS.items())


def test_a_caller_who_leaves_is_row_one(stage: Stage) -> None:
    with Rehearsal(stage, failing(stage.world, {"one": "caller-gone"})) as rehearsal:
        seen = rehearsal.ask("pair", hang_up=7.5)
    assert (seen.came, seen.seconds) == (Came.GONE, 7.5)
    assert [each.row for each in seen.attempts] == [1]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_comes_in_every_dialect(stage: Stage, dialect: str, stream: bool) -> None:
    director = lambda sent: Turn(text="so be it", wait=0.25, took=0.5)  # noqa: E731
    with Rehearsal(stage, director) as rehearsal:
        seen = rehearsal.ask("pair", dialect=dialect, stream=stream)
    assert (seen.came, seen.status, seen.text) == (Came.WHOLE, 200, "so be it")
    assert seen.first == (0.25 if stream else 0.75)
    assert seen.seconds == 0.75
    assert seen.served == "one/m"


def test_time_is_exact(stage: Stage) -> None:
    turns = {"one": Turn("timeout"), "two": Turn(wait=2.5, took=4.0)}
    with Rehearsal(stage, lambda sent: turns[sent.provider]) as rehearsal:
        streamed = rehearsal.ask("pair", stream=True, dialect="messages")
        whole = rehearsal.ask("alone")
    assert (streamed.first, streamed.seconds) == (62.5, 66.5)
    assert streamed.pings == 4  # one every 15 seconds of silence
    assert streamed.head == 15.0
    assert (whole.status, whole.seconds) == (504, 600.0)


def test_locks_and_their_ends_go_by_virtual_time(stage: Stage) -> None:
    with Rehearsal(stage, failing(stage.world, {"one": "429-reset"})) as rehearsal:
        first, second = (rehearsal.ask("pair") for _ in range(2))
        rehearsal.wait(20.0)
        third = rehearsal.ask("pair")
    assert [len(each.attempts) for each in (first, second, third)] == [2, 1, 2]
    assert [str(skip.reason) for skip in second.skips] == ["locked"]


def test_the_same_seed_gives_the_same_again(stage: Stage) -> None:
    combo_ = combo("many", "one/m", "two/m", retries=2)

    def story(seed: int) -> list[Any]:
        told: list[Any] = []

        def director(sent: Sent) -> Turn:
            told.append(sent)
            return Turn("500" if sent.attempt < 4 else "")

        with Rehearsal(stage.combo(combo_), director, seed=seed) as rehearsal:
            for _ in range(3):
                seen = rehearsal.ask("many", stream=True)
                assert seen.route is not None
                told.append((seen.seconds, seen.headers, seen.route.as_json()))
        return told

    assert story(1) == story(1)
    assert story(1) != story(2)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_answers_are_the_same_bytes_in_every_process(stage: Stage, dialect: str) -> None:
    """Nothing in them is drawn, and no time is the real one."""
    now = int(time.time())
    for stream in (False, True):
        for name in ("500", "empty", "cut"):
            with Rehearsal(stage, failing(stage.world, {"one": name})) as rehearsal:
                told = rehearsal.ask("alone", dialect=dialect, stream=stream).body
            assert not re.search(rb"[0-9a-f]{20}", told)
            times = re.findall(rb'"created(?:_at)?":(\d+)', told)
            assert not any(abs(int(each) - now) < 1000 for each in times)


def test_nothing_is_left_to_wait_for() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingLeft):
        run(main())


def test_requests_run_side_by_side(stage: Stage) -> None:
    async def three(rehearsal: Rehearsal) -> list[float]:
        tasks = [asyncio.create_task(rehearsal.send("pair")) for _ in range(3)]
        return [(await task).seconds for task in tasks]

    with Rehearsal(stage, well) as rehearsal:
        assert rehearsal.run(three(rehearsal)) == [2.0, 2.0, 2.0]
        assert rehearsal.loop.time() == 2.0


def test_a_director_learns_what_was_sent(stage: Stage) -> None:
    told: list[Sent] = []

    def director(sent: Sent) -> Turn:
        told.append(sent)
        return Turn("500" if sent.attempt == 1 else "")

    with Rehearsal(stage, director) as rehearsal:
        rehearsal.ask("pair", dialect="gemini", stream=True, note="noted")
        rehearsal.ask("alone")
    assert [(s.entry, s.account, s.dialect, s.stream, s.attempt, s.request) for s in told] == [
        ("one/m", "default", "gemini", True, 1, 1),
        ("two/m", "default", "gemini", True, 2, 1),
        ("one/m", "default", "chat", False, 1, 2),
    ]
    assert (told[0].note, told[0].at, told[1].at) == ("noted", 0.0, 1.0)
    assert told[0].holds("Say something.")


def test_no_credential_is_looked_at(tmp_path: Path) -> None:
    """Each account is one of its own, whatever its credential would come from."""
    (tmp_path / "krouter.toml").write_text(
        '[[account]]\nprovider = "glm"\nname = "a"\nkey = "file:/nowhere"\n'
        '[[account]]\nprovider = "glm"\nname = "b"\nkey = "command:touch ran"\n'
        '[[account]]\nprovider = "cc"\nname = "own"\nauth = "caller"\n'
    )
    paths = resolve_paths(home=tmp_path, env={}, cwd=tmp_path)
    world = House(paths, {}, HttpWire(), ledger=False).router.world
    told: list[tuple[str, str]] = []

    def director(sent: Sent) -> Turn:
        told.append((sent.provider, sent.account))
        return Turn("429")

    with Rehearsal(world, director) as rehearsal:
        rehearsal.ask("daily", dialect="messages")
    assert sorted(told) == [
        ("cc", "own"),
        ("deepseek", "rehearsed"),
        ("glm", "a"),
        ("glm", "b"),
    ]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_requests_need_what_they_are_told_to(dialect: str) -> None:
    for medium in MEDIA:
        asked = Body.parse(body(dialect, "m", (medium,)))
        assert needs(dialect, asked) == {medium}
    plain = body(dialect, "m", NEEDS - set(MEDIA))
    assert needs(dialect, Body.parse(plain)) == frozenset()
    assert len(body(dialect, "m", tokens=1000)) > 4000
    with pytest.raises(ValueError, match="smell"):
        body(dialect, "m", ("smell",))


def test_faults_have_names(stage: Stage) -> None:
    assert fault_named(529, FAULTS) is FAULTS["529"]
    assert fault_named("418", FAULTS).status == 418
    with pytest.raises(UnknownFault, match=r"no fault 'stal'.*stall"):
        failing(stage.world, {"one": "stal"})


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("glm", ("glm", "", "")),
        ("glm/a/b@c", ("glm", "/", "a/b@c")),
        ("glm@a/b", ("glm", "@", "a/b")),
        ("*", ("*", "", "")),
    ],
)
def test_a_name_is_of_a_model_or_of_an_account(name: str, parts: tuple[str, str, str]) -> None:
    assert split_name(name) == parts


def test_the_most_exact_name_fails(stage: Stage) -> None:
    faults = {"*": 500, "ds": "429", "ds/deepseek-v4-pro": 404, "ds@bad": 401}
    director = failing(stage.world, faults)

    def turn(provider: str, model: str, account: str = "a") -> str:
        return director(Sent(provider, account, model, "chat", False, 0.0, 1, 1, b"")).fault

    assert turn("deepseek", "deepseek-v4-pro") == "404"
    assert turn("deepseek", "deepseek-v4-pro", "bad") == "401"
    assert (turn("deepseek", "other"), turn("glm", "glm-5.1")) == ("429", "500")


def test_a_caller_without_end_is_seen_to_wait_for_ever(stage: Stage) -> None:
    endless = combo("endless", "one/m", timeouts={"stall": "off"})
    with Rehearsal(stage.combo(endless), failing(stage.world, {"one": "stall"})) as rehearsal:
        seen = rehearsal.ask("endless", stream=True)
    assert seen.came is Came.HUNG


@pytest.mark.parametrize("garbage", ["data: <html>", 'data: {"choices": [{"del'])
def test_garbage_in_a_stream_makes_no_whole_answer(garbage: str) -> None:
    told = 'data: {"choices": [{"delta": {"content": "so"}}]}'
    end = 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}'
    whole = [told, end, "data: [DONE]", ""]
    assert read_reply("chat", 200, True, "\n\n".join(whole).encode()).came is Came.WHOLE
    garbled = "\n\n".join([told, garbage, *whole[1:]]).encode()
    assert read_reply("chat", 200, True, garbled).came is Came.CUT
