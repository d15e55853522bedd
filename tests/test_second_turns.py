"""An entry that is owed another try has it, whatever others find and whoever takes its place."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Krouter, Start, calls, provider_settings
from tests.test_learned import GONE, NO_IMAGES, anthropic, dropped, refuses, sent
from tests.test_order import order, shows
from tests.test_walk import Sleeps, edges, served, skips, waits_in_line
from tests.upstream import Upstream


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def limited(start: Start, upstream: Upstream, *models: Any, **more: Any) -> Krouter:
    """`one`, `two` and `three` have one account each, which takes one call at a time."""
    text, env = provider_settings(upstream.url, one="a", two="x", three="z")
    text = text.replace('name = "', 'max_concurrent = 1\nname = "')
    return start(*models, accounts={}, settings=text, env=env, **more)


# Without images


def test_a_deferred_retry_waits_in_line_behind_another_that_fails(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor
) -> None:
    upstream.script("x", [NO_IMAGES, "ok"])
    upstream.script("y", ["gate=y;status=400"])
    upstream.script("z", ["status=400"])
    upstream.script("busy", ["gate=one"], key="one-a")
    upstream.script("busy", ["gate=three"], key="three-z")
    krouter = limited(start, upstream, "one/x", "three/z", "two/y")
    others = [pool.submit(krouter.chat, "three/busy")]
    assert upstream.gate("three").reached.wait(30)
    asked = pool.submit(krouter.chat, "daily", messages=shows())
    assert upstream.gate("y").reached.wait(30)
    others.append(pool.submit(krouter.chat, "one/busy"))
    assert upstream.gate("one").reached.wait(30)
    upstream.gate("y").open()
    waits_in_line(krouter, 2)
    upstream.gate("three").open()
    assert others[0].result(30).status_code == 200
    upstream.wait(5)
    upstream.gate("one").open()
    assert (served(asked.result(30)), dropped(asked.result(30))) == ("one/x", "image")
    assert others[1].result(30).status_code == 200
    krouter.idle()


def test_a_deferred_retry_comes_though_its_window_is_smaller(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("x", [NO_IMAGES, "ok"])
    upstream.script("y", ["status=413"])
    small = {"model": "one/x", "contextWindow": 8000}
    large = {"model": "two/y", "contextWindow": 16000}
    krouter = start(small, large, onTooLarge="larger")
    assert served(krouter.chat("daily", messages=shows())) == "one/x"
    assert sent(upstream) == ["x+", "y+", "x"]


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("answers", [True, False])
def test_a_deferred_retry_comes_before_a_refusal_is_returned(
    start: Start, upstream: Upstream, nested: bool, answers: bool
) -> None:
    upstream.script("x", [NO_IMAGES, "ok" if answers else "status=400;message=later"])
    upstream.script("y", ["status=400;code=content_filter;message=refused"])
    inner = {"models": ["one/x", "two/y", "two/never"], "onRefusal": "return"}
    models = ["inner"] if nested else inner["models"]
    krouter = start(*models, combos={"inner": inner}, onRefusal="return")
    reply = krouter.chat("daily", messages=shows())
    assert sent(upstream) == ["x+", "y+", "x"]
    if answers:
        assert served(reply) == "one/x"
    else:
        assert (reply.status_code, reply.json()["error"]["message"]) == (400, "refused")


def test_a_retry_without_images_that_finds_its_model_gone_has_stand_ins(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("claude-opus-4-6", [NO_IMAGES, GONE])
    upstream.script("y", ["status=400"])
    krouter = anthropic(start, "anthropic/claude-opus-4-6", "one/y")
    reply = krouter.chat("daily", messages=shows())
    assert reply.status_code == 200
    assert served(reply) != "anthropic/claude-opus-4-6"


# What a provider quotes

QUOTE = "model is text-only"
QUOTES = f"status=400;message=Not understood: '{QUOTE}'"


def quoting(said: str) -> list[dict[str, Any]]:
    [message] = shows()
    return [{**message, "content": [{"type": "text", "text": said}, *message["content"]]}]


@pytest.mark.parametrize("said", [QUOTE, "The Model  is TEXT-only?"])
def test_a_short_quote_that_stays_without_the_images_is_not_learned(
    start: Start, upstream: Upstream, said: str
) -> None:
    upstream.script("m", [QUOTES, QUOTES, "ok"])
    krouter = start("one/m")
    assert krouter.chat("daily", messages=quoting(said)).status_code == 400
    assert dropped(krouter.chat("daily", messages=shows())) is None
    assert sent(upstream) == ["m+", "m", "m+"]


def test_it_is_learned_once_the_call_without_images_is_answered(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("m", [QUOTES, "ok"])
    krouter = start("one/m")
    assert dropped(krouter.chat("daily", messages=quoting(QUOTE))) == "image"
    assert dropped(krouter.chat("daily", messages=shows())) == "image"
    assert sent(upstream) == ["m+", "m", "m"]


def test_where_readers_go_first_only_the_providers_own_words_are_learned(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("x", [QUOTES])
    krouter = start("one/x", "two/y")
    assert served(krouter.chat("daily", messages=quoting(QUOTE))) == "two/y"
    krouter.chat("daily", messages=shows())
    assert order(krouter) == ["one/x", "two/y"]
    krouter.chat("daily", messages=shows())
    assert order(krouter) == ["two/y", "one/x"]


def test_what_is_refused_without_images_too_was_no_refusal_of_images(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("x", [NO_IMAGES])
    upstream.script("y", ["status=400"])
    krouter = start("one/x", "two/y")
    krouter.chat("daily", messages=shows())
    assert sent(upstream) == ["x+", "y+", "x"]
    krouter.chat("daily", messages=shows())
    assert order(krouter) == ["one/x", "two/y"]


# A place that is taken meanwhile


def two_at_once(
    krouter: Krouter, upstream: Upstream, pool: ThreadPoolExecutor, **fields: Any
) -> tuple[Any, Any]:
    """A call that waits at gate g, and one behind it in line; then the gate is opened."""
    first = pool.submit(krouter.chat, "daily", **fields)
    assert upstream.gate("g").reached.wait(30)
    second = pool.submit(krouter.chat, "one/m")
    waits_in_line(krouter, 1)
    upstream.gate("g").open()
    return first, second


@pytest.mark.parametrize(
    ("fails", "fields", "gone"),
    [
        (refuses("seed"), {"seed": 7}, "seed"),
        (NO_IMAGES, {"messages": shows()}, "image"),
        ("status=529", {}, None),
    ],
)
def test_a_retry_takes_no_place_beyond_the_limit(
    start: Start,
    upstream: Upstream,
    pool: ThreadPoolExecutor,
    fails: str,
    fields: dict[str, Any],
    gone: str | None,
) -> None:
    upstream.script("m", [f"gate=g;{fails}", "gate=h", "ok"])
    krouter = limited(start, upstream, "one/m", retries=1, edges=edges(Sleeps()))
    first, second = two_at_once(krouter, upstream, pool, **fields)
    assert upstream.gate("h").reached.wait(30)
    waits_in_line(krouter, 1)
    assert len(upstream.requests) == 2
    upstream.gate("h").open()
    assert second.result(30).status_code == 200
    assert (first.result(30).status_code, dropped(first.result(30))) == (200, gone)
    assert len(upstream.requests) == 3
    krouter.idle()


def test_a_retry_whose_place_is_taken_goes_to_the_next_entry(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor
) -> None:
    upstream.script("m", ["gate=g;status=529", "gate=h"])
    krouter = limited(start, upstream, "one/m", "two/good", retries=1, edges=edges(Sleeps()))
    first, second = two_at_once(krouter, upstream, pool)
    assert served(first.result(30)) == "two/good"
    assert skips(krouter) == ["one/m a: at its concurrency limit"]
    upstream.gate("h").open()
    assert second.result(30).status_code == 200


def test_a_retry_that_waits_in_line_does_not_mind_the_lock_it_retries(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor
) -> None:
    upstream.script("m", ["gate=g;status=429", "ok"])
    krouter = limited(start, upstream, "one/m", retries=1, edges=edges(Sleeps()))
    first, second = two_at_once(krouter, upstream, pool)
    assert first.result(30).status_code == 200
    assert second.result(30).status_code == 429
    krouter.idle()


def test_a_new_credential_is_tried_though_the_place_is_taken(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    upstream.script("m", ["gate=g;status=401"], key="one-old")
    (tmp_path / "token").write_text("one-old")
    command = f"cd {tmp_path} && cat token && echo one-new > token"
    text = provider_settings(upstream.url, one="")[0]
    text += f'[[account]]\nprovider = "one"\nname = "oauth"\nkey = "command:{command}"\n'
    krouter = start("one/m", accounts={}, settings=f"{text}max_concurrent = 1\n")
    first, second = two_at_once(krouter, upstream, pool)
    assert first.result(30).status_code == 200
    assert second.result(30).status_code in (200, 401)  # it may come before the new one
    krouter.idle()


def test_the_last_that_could_be_asked_waits_for_its_place_to_go_without_a_feature(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor
) -> None:
    upstream.script("m", [f"gate=g;{refuses('seed')}", "gate=h", "ok"])
    krouter = limited(start, upstream, "one/m", "openai/gpt-4o")
    first, second = two_at_once(krouter, upstream, pool, seed=7)
    assert upstream.gate("h").reached.wait(30)
    waits_in_line(krouter, 1)
    upstream.gate("h").open()
    assert second.result(30).status_code == 200
    assert (served(first.result(30)), dropped(first.result(30))) == ("one/m", "seed")
    krouter.idle()


# Too large for a nested combo


def window(model: str, tokens: int) -> dict[str, Any]:
    return {"model": model, "contextWindow": tokens}


def test_a_nested_combos_larger_windows_do_not_bound_the_combo_around_it(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("small", ["status=413"])
    upstream.script("large", ["status=400"])
    models = [window("one/small", 8000), window("one/tiny", 4000), window("one/large", 16000)]
    inner = {"models": models, "onTooLarge": "larger"}
    krouter = start("inner", window("two/good", 4000), combos={"inner": inner})
    assert served(krouter.chat("daily")) == "two/good"
    assert calls(upstream) == ["one-a small", "one-a large", "two-x good"]


@pytest.mark.parametrize("larger", [True, False])
def test_what_a_nested_combo_finds_too_large_is_so_for_the_combo_around_it(
    start: Start, upstream: Upstream, larger: bool
) -> None:
    """Which tries larger windows too, or returns it to the caller."""
    upstream.script("small", ["status=413"])
    models = [window("one/small", 8000), window("one/tiny", 4000)]
    inner = {"models": models, "onTooLarge": "larger"}
    around = [window("two/equal", 8000), window("two/good", 16000)]
    more = {"onTooLarge": "larger"} if larger else {}
    krouter = start("inner", *around, combos={"inner": inner}, **more)
    reply = krouter.chat("daily")
    assert reply.status_code == (200 if larger else 413)
    assert calls(upstream) == ["one-a small", "two-x good"][: 2 if larger else 1]


def test_a_deferred_retry_comes_before_a_nested_too_large_error_is_returned(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("x", [NO_IMAGES, "ok"])
    upstream.script("small", ["status=413"])
    upstream.script("y", ["status=400"])
    inner = {"models": [window("one/small", 8000)], "onTooLarge": "larger"}
    krouter = start("one/x", "inner", "two/y", combos={"inner": inner})
    assert served(krouter.chat("daily", messages=shows())) == "one/x"
    assert sent(upstream) == ["x+", "small+", "y+", "x"]


def test_a_nested_combo_with_an_account_that_is_busy_is_not_at_its_end(
    start: Start, upstream: Upstream, pool: ThreadPoolExecutor
) -> None:
    upstream.script("small", ["status=413"])
    upstream.script("busy", ["gate=busy"])
    models = [window("one/small", 8000), window("two/large", 16000)]
    inner = {"models": models, "onTooLarge": "larger"}
    krouter = limited(start, upstream, "inner", "three/good", combos={"inner": inner})
    other = pool.submit(krouter.chat, "two/busy")
    assert upstream.gate("busy").reached.wait(30)
    assert served(krouter.chat("daily")) == "three/good"
    upstream.gate("busy").open()
    assert other.result(30).status_code == 200


# Stand-ins


def test_what_an_entry_says_of_its_model_is_not_said_of_its_stand_in(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("claude-opus-4-6", [GONE])
    upstream.script("*", ["status=413"])
    krouter = anthropic(
        start,
        window("anthropic/claude-opus-4-6", 9000),
        window("one/larger-than-it-says", 10_000),
        onTooLarge="larger",
    )
    assert krouter.chat("daily").status_code == 413
    assert {request.credential[:3] for request in upstream.requests} == {"ant"}
