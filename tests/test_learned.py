"""What models refuse is learned and left out: images, optional features, models that are gone."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.harness import Krouter, Start, calls
from tests.test_order import IMAGES, READS, order, shows
from tests.upstream import Upstream

NO_IMAGES = "status=400;message=This model does not support image input"
DROPPED = "x-krouter-dropped"


def dropped(reply: httpx.Response) -> str | None:
    return reply.headers.get(DROPPED)


def sent(upstream: Upstream) -> list[str]:
    """Each request's model, with a + where it came with an image."""
    return [
        f"{request.model}{'+' if b'iVBOR' in request.body else ''}" for request in upstream.requests
    ]


HISTORY = {
    dialect: [*shows(dialect), {"role": "assistant", "content": "a cat"}, *shows(dialect)]
    for dialect in IMAGES
}
EARLIER = {
    dialect: [
        *shows(dialect),
        {"role": "assistant", "content": "a cat"},
        {"role": "user", "content": "and?"},
    ]
    for dialect in IMAGES
}


# Row 2: images


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_images_are_stripped_from_the_whole_history_once_on_the_same_account(
    start: Start, upstream: Upstream, dialect: str, stream: bool
) -> None:
    upstream.script("m", [NO_IMAGES, "ok"])
    krouter = start("one/m")
    reply = krouter.ask(dialect, "daily", stream, messages=HISTORY[dialect])
    assert reply.status_code == 200
    assert sent(upstream) == ["m+", "m"]
    assert len({request.credential for request in upstream.requests}) == 1
    assert dropped(reply) == "image"
    assert reply.headers["x-krouter-attempts"] == "2"
    krouter.idle()
    assert krouter.last_route["dropped"] == ["image"]
    assert krouter.locks() == {}


def test_a_second_rejection_is_a_failure(start: Start, upstream: Upstream) -> None:
    upstream.script("m", [NO_IMAGES])
    krouter = start("one/m", "two/n")
    reply = krouter.chat("daily", messages=EARLIER["chat"])
    assert sent(upstream) == ["m+", "m", "n+"]
    assert dropped(reply) is None


def test_a_stripped_retry_that_is_limited_goes_on_to_the_next_account(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("m", [NO_IMAGES, "status=429", "ok"])
    krouter = start("one/m")
    reply = krouter.chat("daily", messages=shows())
    assert calls(upstream) == ["one-a m", "one-a m", "one-b m"]
    assert sent(upstream) == ["m+", "m", "m"]
    assert (reply.status_code, dropped(reply)) == (200, "image")


def test_it_is_known_for_an_hour_that_slides(start: Start, upstream: Upstream) -> None:
    upstream.script("m", [NO_IMAGES, "ok"])
    krouter = start("one/m")
    krouter.chat("daily", messages=shows())
    for _ in range(2):
        krouter.clock.forward(3000)
        assert dropped(krouter.chat("daily", messages=shows())) == "image"
    assert sent(upstream) == ["m+", "m", "m", "m"]
    krouter.clock.forward(3601)
    assert dropped(krouter.chat("daily", messages=shows())) is None
    assert sent(upstream)[-1] == "m+"


def test_a_later_reader_goes_first(start: Start, upstream: Upstream) -> None:
    upstream.script("x", [NO_IMAGES, "ok"])
    krouter = start("one/x", "two/y")
    reply = krouter.chat("daily", messages=shows())
    assert sent(upstream) == ["x+", "y+"]
    assert dropped(reply) is None
    krouter.chat("daily", messages=shows())
    assert order(krouter) == ["two/y", "one/x"]


def test_an_image_of_an_earlier_turn_lets_nobody_go_first(start: Start, upstream: Upstream) -> None:
    upstream.script("x", [NO_IMAGES, "ok"])
    krouter = start("one/x", "two/y")
    assert dropped(krouter.chat("daily", messages=EARLIER["chat"])) == "image"
    assert sent(upstream) == ["x+", "x"]


@pytest.mark.parametrize("blind", [True, False])
def test_the_stripped_retry_comes_when_no_reader_answers(
    start: Start, upstream: Upstream, blind: bool
) -> None:
    """Before an entry that is known to read none."""
    upstream.script("x", [NO_IMAGES, "ok"])
    upstream.script("y", ["status=400"])
    krouter = start("one/x", "two/y", *(["two/blind"] if blind else []), settings=READS)
    reply = krouter.chat("daily", messages=shows())
    assert sent(upstream) == ["x+", "y+", "x"]
    assert (reply.status_code, dropped(reply)) == (200, "image")
    assert reply.headers["x-krouter-model"] == "one/x"


def test_readers_of_the_outer_combo_come_first_too(start: Start, upstream: Upstream) -> None:
    upstream.script("sees", [NO_IMAGES, "ok"])
    upstream.script("blind", ["status=400"])
    inner = {"models": ["one/sees", "one/blind"]}
    krouter = start("inner", "two/sees2", combos={"inner": inner}, settings=READS)
    krouter.chat("daily", messages=shows())
    assert sent(upstream) == ["sees+", "blind+", "sees2+"]


def test_the_deferred_retry_has_the_other_accounts_too(start: Start, upstream: Upstream) -> None:
    upstream.script("x", [NO_IMAGES, "status=429", "ok"])
    upstream.script("y", ["status=400"])
    krouter = start("one/x", "two/y")
    assert krouter.chat("daily", messages=shows()).status_code == 200
    assert calls(upstream) == ["one-a x", "two-x y", "one-a x", "one-b x"]


def test_two_at_once_are_both_asked_again(start: Start, upstream: Upstream) -> None:
    upstream.script("m", [NO_IMAGES + ";gate=g", NO_IMAGES + ";gate=g", "ok"])
    krouter = start("two/m")
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(krouter.chat, "daily", messages=shows()) for _ in range(2)]
        upstream.wait(2)
        upstream.gate("g").open()
        assert [call.result().status_code for call in both] == [200, 200]


def nested(depth: int) -> list[dict[str, Any]]:
    """An image that many results deep, and one beside it."""
    [shown] = shows("messages")
    image = next(block for block in shown["content"] if block["type"] == "image")
    block = image
    for _ in range(depth):
        block = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
    return [{"role": "user", "content": [image, block]}]


@pytest.mark.parametrize("depth", [7, 100])
def test_images_however_deep_are_left_out(start: Start, upstream: Upstream, depth: int) -> None:
    upstream.script("m", [NO_IMAGES, "ok"])
    reply = start("one/m").messages("daily", messages=nested(depth))
    assert sent(upstream) == ["m+", "m"]
    assert (reply.status_code, dropped(reply)) == (200, "image")


@pytest.mark.parametrize("shown", [True, False])
def test_images_in_the_system_prompt_are_left_out(
    start: Start, upstream: Upstream, shown: bool
) -> None:
    upstream.script("m", [NO_IMAGES, "ok"])
    [message] = shows("messages")
    messages = [message] if shown else [{"role": "user", "content": "hello"}]
    reply = start("one/m").messages("daily", messages=messages, system=message["content"])
    assert sent(upstream) == ["m+", "m"]
    assert (reply.status_code, dropped(reply)) == (200, "image")


# Row 13: optional features


def refuses(name: str) -> str:
    return f"status=400;message=Unknown parameter: '{name}'."


def test_the_last_entry_is_asked_again_without_what_it_names(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("m", [refuses("logit_bias"), "ok"])
    krouter = start("one/m")
    more: dict[str, Any] = {"logit_bias": {"1": 2}, "seed": 7, "temperature": 0.5}
    reply = krouter.chat("daily", **more)
    first, second = (json.loads(request.body) for request in upstream.requests)
    assert second == {name: value for name, value in first.items() if name != "logit_bias"}
    assert (reply.status_code, dropped(reply)) == (200, "logit_bias")
    krouter.clock.forward(3599)
    assert dropped(krouter.chat("daily", **more)) == "logit_bias"
    assert dropped(krouter.chat("daily", seed=7)) is None
    assert len(upstream.requests) == 4
    krouter.clock.forward(3601)
    krouter.chat("daily", **more)
    assert "logit_bias" in upstream.requests[-1].json


def test_an_earlier_entry_is_not(start: Start, upstream: Upstream) -> None:
    upstream.script("m", [refuses("seed"), "ok"])
    krouter = start("one/m", "two/n")
    reply = krouter.chat("daily", seed=7)
    assert calls(upstream) == ["one-a m", "two-x n"]
    assert dropped(reply) is None
    krouter.chat("daily", seed=7)
    assert upstream.requests[-1].json["seed"] == 7


@pytest.mark.parametrize(
    "name", ["messages", "tools", "tool_choice", "max_tokens", "response_format", "system"]
)
def test_what_is_not_optional_is_never_dropped(start: Start, upstream: Upstream, name: str) -> None:
    upstream.script("m", [refuses(name)])
    krouter = start("one/m")
    reply = krouter.chat("daily", seed=1)
    assert (reply.status_code, len(upstream.requests)) == (400, 1)
    assert reply.json()["error"]["message"] == f"Unknown parameter: '{name}'."


def test_what_was_not_sent_is_not_asked_again(start: Start, upstream: Upstream) -> None:
    upstream.script("m", [refuses("seed")])
    krouter = start("one/m")
    assert krouter.chat("daily").status_code == 400
    assert len(upstream.requests) == 1


def test_a_parameter_of_the_entry_itself_is_dropped_too(start: Start, upstream: Upstream) -> None:
    upstream.script("m", [refuses("top_k"), "ok"])
    krouter = start({"model": "one/m", "params": {"top_k": 5, "seed": 1}})
    assert dropped(krouter.chat("daily")) == "top_k"
    assert "top_k" not in upstream.requests[-1].json
    assert upstream.requests[-1].json["seed"] == 1


@pytest.mark.parametrize(
    ("path", "field", "value", "left"),
    [
        ("reasoning.effort", "reasoning", {"effort": "high", "summary": "auto"},
         {"summary": "auto"}),
        ("reasoning.effort", "reasoning", {"effort": "high"}, None),
        ("chat_template_kwargs.enable_thinking", "chat_template_kwargs",
         {"enable_thinking": True, "lang": "en"}, {"lang": "en"}),
        ("response_format.json_schema.strict", "response_format",
         {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {}}},
         {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", ["caller", "entry", "both"])
def test_what_stands_inside_a_field_is_dropped_alone(
    start: Start, upstream: Upstream, by: str, path: str, field: str, value: Any, left: Any
) -> None:
    """Wherever it comes from, and the reply names what was really left out."""
    upstream.script("m", [refuses(path), "ok"])
    entry = {"model": "one/m", "params": {} if by == "caller" else {field: value, "seed": 1}}
    krouter = start(entry)
    reply = krouter.chat("daily", **({} if by == "entry" else {field: value}))
    assert (reply.status_code, dropped(reply)) == (200, path)
    assert upstream.requests[0].json[field] == value
    assert upstream.requests[1].json.get(field) == left
    assert krouter.last_route["dropped"] == [path]


def test_a_provider_may_tell_of_it_as_the_dialect_it_translates_to_does(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("m", [refuses("reasoning.effort"), "ok"])
    reply = start("one/m").chat("daily", reasoning_effort="high")
    assert dropped(reply) == "reasoning_effort"
    assert "reasoning_effort" not in upstream.requests[-1].json


def test_a_word_of_the_beta_header(start: Start, upstream: Upstream) -> None:
    told = "Unexpected value(s) `b-1` for the `anthropic-beta` header."
    upstream.script("m", [f"status=400;message={told}", "ok"])
    krouter = start("one/m")
    body = {"model": "daily", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    reply = krouter.http.post("/v1/messages", json=body, headers={"anthropic-beta": "a-1,b-1"})
    assert reply.status_code == 200
    assert [r.header["anthropic-beta"] for r in upstream.requests] == ["a-1,b-1", "a-1"]
    assert dropped(reply) == "anthropic-beta:b-1"


TRANSLATED = {
    "chat": ("groq", "openai/gpt-oss-120b", "/v1"),
    "messages": ("only", "claude-sonnet-4-5", ""),
}
"""By the dialect that is spoken: a provider that is reached by translation from the other one."""


@pytest.mark.parametrize(
    ("provider", "caller", "named", "fields", "gone"),
    [
        ("messages", "chat", "thinking: Extra inputs are not permitted",
         {"reasoning_effort": "high", "max_tokens": 4096}, "thinking"),
        ("messages", "chat", "metadata: Extra inputs are not permitted", {"user": "u-1"},
         "metadata"),
        ("chat", "messages", "Unknown parameter: 'reasoning_effort'.",
         {"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 4096},
         "reasoning_effort"),
        ("chat", "messages", "Unknown parameter: 'temperature'.", {"temperature": 0.5},
         "temperature"),
    ],
)  # fmt: skip
def test_a_translated_call_knows_it_by_another_name(
    start: Start,
    upstream: Upstream,
    provider: str,
    caller: str,
    named: str,
    fields: dict[str, Any],
    gone: str,
) -> None:
    name, model, path = TRANSLATED[provider]
    upstream.script(model, [f"status=400;message={named}", "ok"])
    speaks = 'speaks = ["messages"]\n' if provider == "messages" else ""
    settings = f'[provider.{name}]\n{speaks}base_url = "{upstream.url}{path}"\nkey = "env:K"\n'
    krouter = start(f"{name}/{model}", accounts={}, settings=settings, env={"K": "the-key"})
    reply = krouter.ask(caller, "daily", **fields)
    assert reply.status_code == 200, reply.text
    assert gone in upstream.requests[0].json
    assert gone not in upstream.requests[1].json
    assert set(fields) - {"max_tokens"} == {dropped(reply)}


# Row 4: models that are gone

GONE = "status=404"


def anthropic(start: Start, *models: Any, **more: Any) -> Krouter:
    return start(*models, accounts={"one": "a b", "anthropic": "a b"}, **more)


def test_a_gone_model_has_stand_ins_and_is_locked(start: Start, upstream: Upstream) -> None:
    upstream.script("claude-opus-4-6", [GONE, "ok"])
    krouter = anthropic(start, "anthropic/claude-opus-4-6", "one/n")
    reply = krouter.chat("daily")
    first, second = (request.model for request in upstream.requests)
    assert reply.headers["x-krouter-model"] == f"anthropic/{second}"
    assert (first, second[:6]) == ("claude-opus-4-6", "claude")
    assert krouter.locks() == {"anthropic/*/claude-opus-4-6": (4, 1800.0)}
    krouter.chat("daily")
    assert [request.model for request in upstream.requests] == [first, second, second]
    krouter.clock.forward(1801)
    krouter.chat("daily")
    assert upstream.requests[-1].model == first


def test_three_stand_ins_at_most_and_none_twice(start: Start, upstream: Upstream) -> None:
    upstream.script("*", [GONE])
    upstream.script("n", ["ok"])
    krouter = anthropic(start, "anthropic/claude-opus-4-6", "anthropic/claude-opus-4-7", "one/n")
    assert krouter.chat("daily").status_code == 200
    tried = [request.model for request in upstream.requests]
    assert len(tried) == len(set(tried)) <= 9
    assert tried[0] == "claude-opus-4-6"
    assert tried[-1] == "n"
    before = tried.index("claude-opus-4-7")
    assert 1 <= before <= 3


def test_a_direct_call_has_no_stand_ins(start: Start, upstream: Upstream) -> None:
    upstream.script("claude-opus-4-6", [GONE])
    krouter = anthropic(start)
    assert krouter.chat("anthropic/claude-opus-4-6").status_code == 404
    assert len(upstream.requests) == 1


def test_what_was_tried_under_an_alias_of_the_provider_stands_in_for_nothing(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("*", [GONE])
    krouter = start("claude/claude-opus-4-7", "cc/claude-opus-4-6", accounts={"cc": "a"})
    krouter.chat("daily")
    tried = [request.model for request in upstream.requests]
    assert len(tried) == len(set(tried))


def test_the_last_stand_in_of_the_last_entry_is_asked_without_a_refused_feature(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("*", [GONE])
    upstream.script("claude-sonnet-4-5-20250929", [refuses("seed"), "ok"])
    krouter = anthropic(start, "anthropic/claude-sonnet-4-6")
    reply = krouter.chat("daily", seed=7)
    assert [request.model for request in upstream.requests] == [
        "claude-sonnet-4-6", "claude-sonnet-4-5", *["claude-sonnet-4-5-20250929"] * 2,
    ]  # fmt: skip
    assert (reply.status_code, dropped(reply)) == (200, "seed")


def test_who_refuses_a_feature_is_the_last_where_nobody_after_it_can_be_asked(
    start: Start, upstream: Upstream
) -> None:
    refusal = quote("Unsupported parameter: 'temperature' is not supported with this model.")
    upstream.script("m", [f"status=400;message={refusal}", "ok"])
    krouter = start("one/m", "openai/gpt-4o")
    reply = krouter.chat("daily", temperature=0.5)
    assert reply.headers["x-krouter-model"] == "one/m"
    assert reply.headers["x-krouter-dropped"] == "temperature"


@pytest.mark.parametrize("odd", ["x", [1], 5, True])
def test_an_odd_value_of_a_refused_feature_costs_no_place(
    start: Start, upstream: Upstream, odd: Any
) -> None:
    refusal = quote("output_config: Extra inputs are not permitted")
    upstream.script("m", [f"status=400;message={refusal}", "ok"])
    krouter = start("one/m")
    assert krouter.chat("daily", output_config=odd).status_code == 200
    assert krouter.chat("daily", output_config=odd).status_code == 200
    assert krouter.router.world.board.in_flight == 0


def test_a_quoted_prompt_names_no_feature(start: Start, upstream: Upstream) -> None:
    said = "Please say: Unsupported parameter: 'temperature' is not supported."
    upstream.script("m", [f"status=400;message={quote('Rejected by policy: ' + said)}", "ok"])
    krouter = start("one/m")
    messages = [{"role": "user", "content": said}]
    assert krouter.chat("daily", messages=messages, temperature=0.5).status_code == 400


def test_a_model_that_is_gone_when_nothing_else_is_left_has_stand_ins_too(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("glm-4.6", ["status=503", "status=404"])
    krouter = start("glm/glm-4.6", settings=at("glm", upstream), env={"GLM_API_KEY": "k"})
    assert krouter.chat("daily").status_code == 503
    assert krouter.chat("daily").status_code == 200
    assert krouter.last_route["served"].startswith("glm/glm-4")


def test_nobody_stands_in_for_one_that_stands_in_itself(start: Start, upstream: Upstream) -> None:
    upstream.script("*", ["status=503"])
    upstream.script("claude-opus-4-6", [GONE])
    krouter = start("anthropic/claude-opus-4-6", accounts={"anthropic": "a"})
    krouter.chat("daily")
    _, *stand_ins = [request.model for request in upstream.requests]
    assert stand_ins
    upstream.clear()
    upstream.script("*", [GONE])
    krouter.chat("daily")
    assert [request.model for request in upstream.requests] == stand_ins


def test_a_larger_window_is_known_from_the_model_table(start: Start, upstream: Upstream) -> None:
    upstream.script("gpt-4", ["status=400;code=context_length_exceeded"])
    settings, env = at("openai", upstream), {"OPENAI_API_KEY": "k"}
    krouter = start(
        "openai/gpt-4", "openai/gpt-4.1", settings=settings, env=env, onTooLarge="larger"
    )
    reply = krouter.chat("daily")
    assert reply.headers["x-krouter-model"] == "openai/gpt-4.1"


def at(provider: str, upstream: Upstream) -> str:
    """Settings by which a shipped provider is reached at `upstream`."""
    return f'[provider.{provider}]\nspeaks = ["chat"]\nbase_url = "{upstream.url}/v1"\n'
