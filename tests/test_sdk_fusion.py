"""A fusion as a library: the judge's reply in LiteLLM's objects, and the route with every voice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from krouter_adapters.litellm_lane.load import load_litellm

import krouter
from tests.upstream import Upstream

litellm = load_litellm()

HELLO = [{"role": "user", "content": "hello"}]
PANEL = ["local/a:text=Alpha", "local/b:text=Beta"]
COMBOS: dict[str, Any] = {
    "panel": {"models": PANEL, "strategy": "fusion", "judge": "local/j:text=The%20whole"},
    "single": {
        "models": ["local/a:status=500", "local/b:text=Beta"],
        "strategy": "fusion",
        "fusionTuning": {"onSingle": "return"},
    },
    "none": {"models": ["local/a:status=500", "local/b:status=500"], "strategy": "fusion"},
    "refused": {"models": PANEL, "strategy": "fusion", "judge": "local/j:status=401"},
    "late": {
        "models": ["local/a:gate=first", "local/b:gate=first", "local/c:gate=late"],
        "strategy": "fusion",
        "judge": "local/j",
        "fusionTuning": {"stragglerGraceMs": 0},
    },
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def router(upstream: Upstream) -> Iterator[krouter.Router]:
    upstream.clear()
    settings: dict[str, Any] = {"provider": {"local": {"base_url": f"{upstream.url}/v1"}}}
    with krouter.Router(settings=settings, combos=COMBOS) as router:
        yield router


def test_whole(router: krouter.Router) -> None:
    reply = router.completion(model="panel", messages=HELLO)
    assert reply.choices[0].message.content == "The whole"
    voices = [(voice.role, voice.outcome) for voice in reply.route.voices]
    assert voices == [("panel", "answered"), ("panel", "answered"), ("judge", "answered")]
    assert reply.route.final.entry == "local/j:text=The%20whole"


def test_streamed(router: krouter.Router) -> None:
    pieces = list(router.completion(model="panel", messages=HELLO, stream=True))
    assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == "The whole"


def test_from_an_event_loop(router: krouter.Router) -> None:
    async def main() -> list[str]:
        both = [router.acompletion(model="panel", messages=HELLO) for _ in range(2)]
        return [each.choices[0].message.content for each in await asyncio.gather(*both)]

    assert asyncio.run(main()) == ["The whole", "The whole"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_one_answer_is_returned(router: krouter.Router, stream: bool) -> None:
    reply = router.completion(model="single", messages=HELLO, stream=stream)
    if stream:
        text = "".join(p.choices[0].delta.content or "" for p in reply if p.choices)
    else:
        text = reply.choices[0].message.content
    assert text == "Beta"


def test_no_answer_is_an_exception(router: krouter.Router) -> None:
    with pytest.raises(litellm.ServiceUnavailableError, match="All fusion panel models failed"):
        router.completion(model="none", messages=HELLO)


def test_the_judges_error_is_its_exception(router: krouter.Router) -> None:
    with pytest.raises(litellm.AuthenticationError) as caught:
        router.completion(model="refused", messages=HELLO)
    assert caught.value.route.voices[-1].outcome == "not signed in"


def test_closing_ends_late_calls(router: krouter.Router, upstream: Upstream) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(router.completion, model="late", messages=HELLO)
        assert upstream.gate("late").reached.wait(30)
        upstream.gate("first").open()
        assert asked.result(30).choices
    [late] = [each for each in upstream.requests if each.model.startswith("c:")]
    assert not late.closed.is_set()
    router.close()
    assert late.closed.wait(10)
