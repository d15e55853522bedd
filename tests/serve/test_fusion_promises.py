"""What holds for every fusion, whatever its panel and its judge do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krouter.combos import Combo
from krouter.metrics import Metrics
from krouter.records import decode, encode
from krouter.route import REASONS
from tests.harness import Krouter, provider_settings
from tests.upstream import Upstream
from tests.validators import check_chat_stream

GOOD = ("text=One", "text=Another%20answer", "thinking;text=Thought")
MUTE = ("empty=text", "empty=list", "thinking=only", "tool=look;args={}")
BAD = ("status=500", "status=400", "status=429", "reset", "garbage=html", "close", "error=json")
DOES = st.sampled_from((*GOOD, *GOOD, *MUTE, *BAD))
_numbers = count(1)


@st.composite
def fusions(draw: st.DrawFn) -> dict[str, Any]:
    """A combo file of a fusion; its entries' models say what each does."""
    panel = draw(st.lists(DOES, min_size=2, max_size=5))
    entries = [f"{draw(st.sampled_from(['one', 'two']))}/p{i}:{d}" for i, d in enumerate(panel)]
    tuning = {
        "minPanel": draw(st.integers(1, 6)),
        "onSingle": draw(st.sampled_from(["resend", "judge", "return"])),
        "onJudgeFailure": draw(st.sampled_from(["error", "best"])),
        "requireQuorum": draw(st.booleans()),
    }
    combo: dict[str, Any] = {"models": entries, "strategy": "fusion", "fusionTuning": tuning}
    if draw(st.booleans()):
        combo["judge"] = f"two/j:{draw(st.sampled_from((*GOOD, *BAD, 'empty=text')))}"
    return combo


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def krouter(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    text, env = provider_settings(upstream.url, one="a b", two="x")
    with Krouter(tmp_path_factory.mktemp("home"), settings=text, env=env) as krouter:
        yield krouter


@settings(max_examples=150)
@given(fusions(), st.booleans())
def test_whatever_they_do(
    krouter: Krouter, upstream: Upstream, file: dict[str, Any], stream: bool
) -> None:
    upstream.clear()
    krouter.forget()
    router = krouter.router
    name = f"fusion-{next(_numbers)}"
    combo = Combo.model_validate({"name": name, **file})
    router.world = replace(router.world, combos={name: combo})
    reply = krouter.chat(name, stream)
    krouter.idle()
    route = router.routes[-1]
    panel = [voice for voice in route.voices if voice.role == "panel"]
    others = [voice for voice in route.voices if voice.role != "panel"]
    usable = [voice for voice in panel if voice.outcome == "answered"]
    sound = [entry.model.partition(":")[2] in GOOD for entry in combo.models]

    # every entry is asked, and only what can be read counts
    assert [voice.entry for voice in panel] == [entry.model for entry in combo.models]
    assert [voice.outcome == "answered" for voice in panel] == sound
    assert all((voice.length or 0) > 0 for voice in usable)

    # who answers follows from how many have
    needed = min(combo.fusion_tuning.min_panel, len(panel))
    short = combo.fusion_tuning.require_quorum and len(usable) < needed
    if short or not usable:
        assert (reply.status_code, others) == (503, [])
        assert all(
            voice.entry in reply.json()["error"]["message"]
            for voice in panel
            if voice not in usable
        )
    elif len(usable) > 1:
        first = combo.models[0].model
        assert others[0].role == "judge"
        auto = first if sound[0] else usable[0].entry
        assert others[0].entry == (combo.judge_name or auto)

    # one whole answer or one clear error, and the same in the record
    if reply.status_code == 200:
        if stream:
            assert check_chat_stream(reply.content).ending in ("complete", "error")
        else:
            assert reply.json()["choices"] is not None
        assert sum(attempt.seen for attempt in route.attempts) == 1
        assert route.served
    else:
        assert reply.json()["error"]["message"]
        assert not any(attempt.seen for attempt in route.attempts)
    assert {n for n in reply.headers if n.startswith("x-krouter")} == {"x-krouter-route"}
    assert route.status == reply.status_code

    # nothing is asked that is not recorded, nor recorded that was not asked
    asked = [f"{request.credential} {request.model}" for request in upstream.requests]
    told = [f"{a.provider}-{a.account} {a.model}" for a in route.attempts]
    assert sorted(asked) == sorted(told)
    assert all(attempt.voice for attempt in route.attempts)
    assert route.outcome in REASONS
    assert all(voice.outcome in REASONS and voice.ended for voice in route.voices)
    keys = [request.header["idempotency-key"] for request in upstream.requests]
    assert len(set(keys)) == len(keys)

    # the record is the route again, and holds no word of what was said
    raw, combos = encode(route)
    again = decode(raw, combos.get)
    assert again.voices == route.voices
    assert b"hello" not in raw
    sums = route.as_json()
    assert sums["usage"]["output"] == sum(v["usage"]["output"] for v in sums["voices"])
    metrics = Metrics(lambda: router.world.board)
    metrics.book(route)
    assert json.dumps(sums)
