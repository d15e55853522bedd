"""A fusion with entries after it: its judge is not the last that could be asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.harness import Krouter, Start
from tests.serve.test_fusion import ACCOUNTS, seen, to, voice_list, voices
from tests.test_learned import NO_IMAGES, refuses, sent
from tests.test_order import shows
from tests.test_second_turns import limited
from tests.test_walk import waits_in_line
from tests.upstream import Upstream
from tests.validators import check_chat_stream

INNER = {"models": ["one/a:text=A", "two/b:text=Longer"], "strategy": "fusion"}
EMPTY = "one/j:empty=text"
UNABLE = "openai/n"
"""Its provider has no account."""
OTHERS = {
    "unable": {**INNER, "models": [UNABLE, f"{UNABLE}2"]},
    "mute": {**INNER, "judge": UNABLE},
    "large": {**INNER, "fusionTuning": {"maxPanel": 1}},
}
"""Fusions of which nothing can be sent."""


def nested(start: Start, judge: str, *after: str, **inner: Any) -> Krouter:
    """`daily` is a fusion, and what comes `after` it."""
    combos = {"inner": {**INNER, "judge": judge, **inner}, **OTHERS}
    return start("inner", *after, combos=combos, accounts=ACCOUNTS)


def deeper(start: Start, judge: str, after: str) -> Krouter:
    """The same with a fusion that the judge of another one is."""
    combos = {"inner": {**INNER, "judge": judge}, "outer": {**INNER, "judge": "inner"}}
    return start("outer", after, combos=combos, accounts=ACCOUNTS)


def text(reply: Any) -> Any:
    """What the caller is told; empty where that is nothing."""
    if reply.headers["content-type"].startswith("text/event-stream"):
        return check_chat_stream(reply.content).text
    return reply.json()["choices"][0]["message"]["content"] or ""


# An empty reply


def test_the_next_entry_follows_a_judge_that_says_nothing(start: Start) -> None:
    krouter = nested(start, EMPTY, "two/y:text=Next")
    reply = krouter.chat("daily")
    assert (reply.status_code, text(reply)) == (200, "Next")
    assert reply.headers["x-krouter-model"] == "two/y:text=Next"
    assert seen(krouter) == ["y"]
    assert voices(krouter)[-1] == "judge one/j: empty reply"
    assert all(voice["ended"] for voice in voice_list(krouter))
    assert krouter.last_route["served"] == "two/y:text=Next"


def test_so_it_does_one_that_is_asked_again(start: Start, upstream: Upstream) -> None:
    upstream.script("a", ["text=A", "empty=text"])
    models = ["one/a", "two/b:status=500"]
    assert text(nested(start, "one/j", "two/y:text=Next", models=models).chat("daily")) == "Next"
    assert len(to(upstream, "a")) == 2


@pytest.mark.parametrize("after", [UNABLE, *OTHERS, "mute unable"])
def test_it_is_passed_on_where_nothing_after_it_can_be_sent(start: Start, after: str) -> None:
    krouter = nested(start, EMPTY, *after.split())
    reply = krouter.chat("daily")
    assert (reply.status_code, text(reply)) == (200, "")
    assert {name for name in reply.headers if name.startswith("x-krouter")} == {"x-krouter-route"}
    route = krouter.last_route
    assert seen(krouter) == ["j"]
    assert (route["served"], route["status"], route["outcome"]) == (EMPTY, 200, "empty reply")


def test_it_is_not_where_something_after_it_fails(start: Start) -> None:
    krouter = nested(start, EMPTY, "two/y:status=418;message=No%20tea")
    reply = krouter.chat("daily")
    assert (reply.status_code, reply.json()["error"]["message"]) == (418, "No tea")
    assert seen(krouter) == []


def test_the_best_of_the_panel_comes_before_the_next_entry(
    start: Start, upstream: Upstream
) -> None:
    tuning = {"onJudgeFailure": "best"}
    krouter = nested(start, EMPTY, "two/y:text=Next", fusionTuning=tuning)
    assert text(krouter.chat("daily")) == "Longer"
    assert seen(krouter) == ["b"]
    assert voices(krouter)[-1] == "judge one/j: no text"
    assert not to(upstream, "y")


def test_what_is_the_last_of_all_is_passed_on_at_every_depth(start: Start) -> None:
    krouter = deeper(start, EMPTY, UNABLE)
    assert text(krouter.chat("daily")) == ""
    assert seen(krouter) == ["j"]
    assert krouter.last_route["served"] == EMPTY


def test_what_is_not_the_last_of_all_is_not_at_any_depth(start: Start) -> None:
    krouter = deeper(start, EMPTY, "two/y:text=Next")
    assert text(krouter.chat("daily")) == "Next"
    assert seen(krouter) == ["y"]


@pytest.mark.parametrize(
    ("guard", "after", "said"),
    [
        ("off", "two/y:text=Next", ""),
        ("first", "two/y:text=Next", "Next"),
        ("full", "two/y:text=Next", "Next"),
        ("first", UNABLE, ""),
        ("full", UNABLE, ""),
    ],
)
def test_only_a_guard_looks_at_a_stream(start: Start, guard: str, after: str, said: str) -> None:
    krouter = nested(start, "one/j:empty=done", after, streamGuard=guard)
    reply = krouter.chat("daily", stream=True)
    assert (reply.status_code, text(reply)) == (200, said)
    krouter.idle()
    assert seen(krouter) == (["y"] if said else ["j"])
    assert all(voice["ended"] for voice in voice_list(krouter))


def test_what_an_empty_reply_came_without_is_not_told_of_the_next(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("j", [NO_IMAGES, "empty=text"])
    krouter = nested(start, "one/j", "two/y:text=Next")
    assert text(krouter.chat("daily", messages=shows())) == "Next"
    assert sent(upstream)[-3:] == ["j+", "j", "y:text=Next+"]
    assert krouter.last_route["dropped"] == []


@pytest.mark.parametrize("after", ["two/y:text=Next", UNABLE])
def test_the_best_comes_before_a_stream_that_a_guard_has_held(start: Start, after: str) -> None:
    tuning = {"onJudgeFailure": "best"}
    judge = "one/j:empty=done"
    krouter = nested(start, judge, after, streamGuard="first", fusionTuning=tuning)
    assert text(krouter.chat("daily", stream=True)) == "Longer"
    krouter.idle()
    assert seen(krouter) == ["b"]


# A feature that is refused


def test_the_next_entry_follows_a_judge_that_refuses_a_feature(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("j", [refuses("seed"), "text=Again"])
    krouter = nested(start, "one/j", "two/y:text=Next")
    assert text(krouter.chat("daily", seed=7)) == "Next"
    assert len(to(upstream, "j")) == 1
    assert to(upstream, "y")[0].json["seed"] == 7


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [(), (UNABLE,)])
def test_it_is_asked_without_it_where_nobody_after_it_can_be(
    start: Start, upstream: Upstream, after: tuple[str, ...], stream: bool
) -> None:
    upstream.script("j", [refuses("seed"), "text=Again"])
    krouter = nested(start, "one/j", *after)
    reply = krouter.chat("daily", stream=stream, seed=7)
    assert (reply.status_code, text(reply)) == (200, "Again")
    krouter.idle()
    asked = to(upstream, "j")
    assert ["seed" in each.json for each in asked] == [True, False]
    assert len({each.header["idempotency-key"] for each in asked}) == 2
    assert voices(krouter)[-1] == "judge one/j: answered"
    route = krouter.last_route
    assert (route["served"], route["outcome"], route["dropped"]) == ("one/j", "answered", ["seed"])
    assert all(voice["ended"] for voice in voice_list(krouter))


def test_so_it_is_at_every_depth(start: Start, upstream: Upstream) -> None:
    upstream.script("j", [refuses("seed"), "text=Again"])
    krouter = deeper(start, "one/j", UNABLE)
    assert text(krouter.chat("daily", seed=7)) == "Again"
    assert seen(krouter) == ["j"]


def test_its_error_is_the_answer_where_that_fails_too(start: Start, upstream: Upstream) -> None:
    upstream.script("j", [refuses("seed"), "status=418;message=No tea"])
    reply = nested(start, "one/j", UNABLE).chat("daily", seed=7)
    assert (reply.status_code, reply.json()["error"]["message"]) == (418, "No tea")
    assert len(to(upstream, "j")) == 2


# Where the judge is not asked at its first turn


def test_a_judge_that_was_locked_is_no_more_the_last(start: Start, upstream: Upstream) -> None:
    upstream.script("j", ["status=529", "empty=text"])
    krouter = nested(start, "one/j", "two/y:text=Next")
    assert [text(krouter.chat("daily")) for _ in range(2)] == ["Next", "Next"]
    assert len(to(upstream, "j")) == 2


def test_nor_is_one_that_was_waited_for(start: Start, upstream: Upstream) -> None:
    upstream.script("j", ["empty=text"])
    combos = {"inner": {**INNER, "judge": "three/j"}}
    krouter = limited(start, upstream, "inner", "two/y:text=Next", combos=combos)
    with ThreadPoolExecutor(2) as pool:
        busy = pool.submit(krouter.chat, "three/busy:gate=three")
        assert upstream.gate("three").reached.wait(30)
        asked = pool.submit(krouter.chat, "daily")
        waits_in_line(krouter, 1)
        upstream.gate("three").open()
        assert busy.result(30).status_code == 200
        assert text(asked.result(30)) == "Next"
    assert len(to(upstream, "j")) == 1
