"""The worst that one request can come to: no schedule of faults in a rehearsed krouter exceeds it,
and some reach it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krouter.adapter import load_faults
from krouter.catalog import MEDIA, FamilyRules, Known, Statement, build_catalog
from krouter.combos import Combo
from krouter.load import House
from krouter.paths import resolve_paths
from krouter.providers import Provider
from krouter.rehearsal import Rehearsal, Seen, Sent, Stage, Turn
from krouter.wire import HttpWire
from krouter.world import World
from krouter.worst import worst
from tests.harness import Start
from tests.test_learned import EARLIER, NO_IMAGES, refuses
from tests.upstream import Upstream

SETTINGS = """
[provider.one]
base_url = "http://127.0.0.1:9/v1"
[provider.two]
base_url = "http://127.0.0.1:9/v1"
[provider.own]
base_url = "http://127.0.0.1:9/v1"
[[account]]
provider = "two"
name = "a"
[[account]]
provider = "two"
name = "b"
max_concurrent = 1
[[account]]
provider = "own"
key = "command:exit 1"
"""
READERS = ("sees", "also")


class Data:
    """Two models read images; one has three that stand in for it, one of which has three too."""

    corrections = ()
    families = FamilyRules({"big": ("mid", "low", "old"), "mid": ("x", "y", "z")}, {}, frozenset())

    def statements(self, provider: Provider, model: str) -> Iterable[Statement]:
        reads = dict.fromkeys(MEDIA, Known.NO)
        yield Statement("test", {**reads, "image": Known(["no", "yes"][model in READERS])}, 1000)

    def names(self, provider: Provider) -> tuple[str, ...]:
        return ()

    def vector_size(self, provider: Provider, model: str) -> int | None:
        return None


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> World:
    home: Path = tmp_path_factory.mktemp("home")
    (home / "krouter.toml").write_text(SETTINGS)
    house = House(resolve_paths(home=home, env={}, cwd=home), {}, HttpWire(), ledger=False)
    return replace(house.router.world, catalog=build_catalog(Data))


def combo(name: str, *models: Any, **fields: Any) -> Combo:
    return Combo.model_validate({"name": name, "models": models, **fields}, by_alias=True)


def stage_of(bare: World, *combos: Combo) -> Stage:
    return Stage.of(replace(bare, combos={each.name: each for each in combos}))


# By hand


@pytest.mark.parametrize(
    ("models", "fields", "entries", "attempts"),
    [
        # each account and the retry without images; of the last entry also those without a feature,
        # and one more as the last that can be asked
        (["one/m"], {}, 1, 1 + 1 + 1 + 1),
        (["two/m"], {}, 1, 2 + 1 + 2 + 1),
        (["one/m", "two/m"], {}, 2, (1 + 1) + (2 + 1 + 2) + 1),
        (["one/m"], {"retries": 3}, 1, 4 + 1 + 1 + 1),
        (["one/m", "one/m"], {}, 1, (1 + 1) + 2),
        (["own/m"], {}, 1, (1 + 1) + 1 + 1 + 1),
        (["one/big"], {}, 4, 4 * (1 + 1) + 2 + 1),
        (["one/m", "one/n"], {"strategy": "fusion"}, 3, 2 * 4 + 2 * 4),
        (["one/m", "one/n"], {"strategy": "fusion", "judge": "two/m"}, 3, 2 * 4 + 2 * 6),
        (["one/m", "one/n"], {"strategy": "fusion", "fusionTuning": {"maxPanel": 1}}, 0, 0),
    ],
)
def test_the_bounds_by_hand(
    bare: World, models: list[str], fields: dict[str, Any], entries: int, attempts: int
) -> None:
    daily = combo("daily", *models, **fields)
    own = bare.accounts["own"]
    world = stage_of(bare, daily).world
    found = worst(daily, replace(world, accounts={**world.accounts, "own": own}))
    assert (found.entries, found.attempts) == (entries, attempts)
    assert found.seconds["streamed"] in (0, 600)


@pytest.mark.parametrize(
    ("fields", "entry", "streamed", "whole"),
    [
        ({}, {}, 120, 600),
        ({"timeouts": {"firstByte": 5}}, {}, 10, 600),
        ({"timeouts": {"firstByte": "off", "total": 40}}, {}, 40, 40),
        ({"timeouts": {"firstToken": 7}}, {}, 14, 600),
        ({"timeouts": {"attempt": 20}}, {"attempt": 30}, 120, 60),
        ({}, {"total": 9}, 18, 18),
        ({"timeouts": {"tryOtherAccounts": True}}, {}, 180, 600),
        ({"timeouts": {"tryOtherAccounts": True}}, {"attempt": 8, "firstByte": 3}, 9, 24),
        ({"strategy": "fusion"}, {}, 90, 90),
        ({"strategy": "fusion", "timeouts": {"total": 50}}, {}, 50, 50),
    ],
)
def test_who_is_silent_is_waited_for_exactly_so_long(
    bare: World, fields: dict[str, Any], entry: dict[str, Any], streamed: float, whole: float
) -> None:
    entries = [{"model": model, "timeouts": entry} for model in ("one/m", "two/m")]
    stage = stage_of(bare, daily := combo("daily", *entries, **fields))
    silent = worst(daily, stage.world).silent
    assert silent == {"streamed": streamed, "whole": whole}
    for stream, name in ((True, "streamed"), (False, "whole")):
        with Rehearsal(stage, lambda sent: Turn("timeout")) as rehearsal:
            assert rehearsal.ask("daily", stream=stream).first == pytest.approx(silent[name])


def test_the_total_can_be_used_up(bare: World) -> None:
    stage = stage_of(bare, daily := combo("daily", "one/m", timeouts={"total": 100}))
    assert worst(daily, stage.world).seconds == {"streamed": 100, "whole": 100}
    with Rehearsal(stage, lambda sent: Turn("pings")) as rehearsal:
        assert rehearsal.ask("daily", stream=True).first == pytest.approx(100)


# Any schedule of faults

FAULTS = [name for name in load_faults() if name != "caller-gone"]
NASTY = ["image", "feature", "429", "503", "timeout", "404", "401", "pings", "stall", "empty"]
MODELS = ("one/m", "one/big", "two/m", "two/sees", "two/mid", "one/also")
TIMEOUTS = st.fixed_dictionaries(
    {},
    optional={
        "firstByte": st.sampled_from((2, 30, "off")),
        "firstToken": st.sampled_from((3, 50)),
        "attempt": st.sampled_from((4, 40, "off")),
        "total": st.sampled_from((5, 60)),
        "tryOtherAccounts": st.booleans(),
    },
)


@st.composite
def combos(draw: st.DrawFn) -> list[Combo]:
    """A combo and one that may be nested in it, or judge; either may be a fusion."""
    made: list[Combo] = []
    for name in ("inner", "outer"):
        models: list[Any] = [
            {"model": model, **({"timeouts": draw(TIMEOUTS)} if draw(st.booleans()) else {})}
            for model in draw(st.lists(st.sampled_from(MODELS), min_size=1, max_size=3))
        ]
        models += ["inner"] if made and draw(st.booleans()) else []
        fuses = draw(st.booleans())
        fields: dict[str, Any] = {
            "strategy": "fusion" if fuses else draw(st.sampled_from(("priority", "round-robin"))),
            "retries": draw(st.sampled_from((0, 0, 1, 3))),
            "streamGuard": draw(st.sampled_from(("off", "first", "full"))),
            "onTooLarge": draw(st.sampled_from(("return", "larger"))),
            "timeouts": draw(TIMEOUTS),
        }
        if fuses:
            fields["judge"] = draw(st.sampled_from((None, "two/m", *(["inner"] if made else []))))
            fields["fusionTuning"] = {
                "onSingle": draw(st.sampled_from(("resend", "judge", "return"))),
                "onJudgeFailure": draw(st.sampled_from(("error", "best"))),
                "panelHardTimeoutMs": draw(st.sampled_from((5000, 90000))),
            }
        made.append(combo(name, *models, **fields))
    return made


class Schedule:
    """Each attempt fails in one of a few ways, or answers, by chance alone."""

    def __init__(self, seed: int, faults: list[str], often: float) -> None:
        self._chance = random.Random(seed)
        self._faults, self._often = faults, often

    def __call__(self, sent: Sent) -> Turn:
        fails = self._chance.random() < self._often
        wait = self._chance.choice((0.0, 1.0, 30.0))
        return Turn(self._chance.choice(self._faults) if fails else "", wait=wait)


@settings(max_examples=40, deadline=None)
@given(
    combos(),
    st.integers(0, 1 << 30),
    st.lists(st.sampled_from(FAULTS), min_size=1, max_size=4) | st.just(NASTY),
    st.sampled_from((0.6, 0.9, 1.0)),
    st.booleans(),
    st.sampled_from(((), ("image",), ("image", "tools"))),
)
def test_no_schedule_of_faults_exceeds_the_bounds(
    bare: World,
    made: list[Combo],
    seed: int,
    faults: list[str],
    often: float,
    stream: bool,
    needs: tuple[str, ...],
) -> None:
    stage = stage_of(bare, *made)
    found = worst(made[-1], stage.world)
    with Rehearsal(stage, Schedule(seed, faults, often), seed=seed) as rehearsal:

        async def crowd() -> list[Seen]:
            each = (rehearsal.send("outer", stream=stream, needs=needs) for _ in range(3))
            return await asyncio.gather(*each)

        # the crowd meets the locks that the first leaves, and waits in line
        every = [rehearsal.ask("outer", stream=stream, needs=needs), *rehearsal.run(crowd())]
        rehearsal.wait(700)  # for late calls
        for seen in every:
            assert len(seen.attempts) <= found.attempts
            assert len(tried(seen)) <= found.entries
            assert seen.first is not None
            assert seen.first <= found.seconds["streamed" if stream else "whole"] + 0.001


def tried(seen: Seen) -> set[object]:
    return {(each.voice, each.places, each.entry) for each in seen.attempts}


class Worst:
    """Every account does the most that it can: the first of an entry takes no images, all are
    limited then, and the last one has no such model in the end."""

    def __init__(self, retries: int, accounts: Mapping[str, int]) -> None:
        self._retries, self._accounts = retries, accounts
        self._calls: Counter[tuple[str, str]] = Counter()
        self._images: set[str] = set()

    def __call__(self, sent: Sent) -> Turn:
        if sent.entry not in self._images:
            self._images.add(sent.entry)
            return Turn("image", wait=0)
        account = sent.entry, sent.account
        self._calls[account] += 1
        used = sum(entry == sent.entry for entry, _ in self._calls)
        if self._calls[account] <= self._retries or used < self._accounts[sent.provider]:
            return Turn("429", wait=0)
        return Turn("404", wait=0)


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize(
    "models", [["one/m", "two/m"], ["one/big", "two/m"], ["two/big", "one/sees", "two/m"]]
)
def test_the_attempts_come_to_the_bound_but_for_features(
    bare: World, models: list[str], retries: int
) -> None:
    """The scripted provider knows no words for the refusal of more than one feature."""
    stage = stage_of(bare, daily := combo("daily", *models, retries=retries))
    director = Worst(retries, {"one": 1, "two": 2})
    with Rehearsal(stage, director) as rehearsal:
        seen = rehearsal.ask("daily", needs={"image"})
    of_features = 2 + 1  # by two accounts of the last entry, and once more
    assert len(seen.attempts) == worst(daily, stage.world).attempts - of_features


def test_the_attempts_can_come_to_the_bound(start: Start, upstream: Upstream) -> None:
    refused = [refuses(name) for name in ("temperature", "seed", "top_p")]
    upstream.script("m", [NO_IMAGES, refused[0], "status=429", *refused[1:], "status=500", "ok"])
    krouter = start("one/m", accounts={"one": "a b"})
    fields = {"temperature": 0.5, "seed": 7, "top_p": 0.5}
    reply = krouter.chat("daily", messages=EARLIER["chat"], **fields)
    world = krouter.router.world
    assert reply.status_code == 500
    assert len(upstream.requests) == worst(world.combos["daily"], world).attempts == 6
