"""Replies that are not quite the dialect's: read as far as can be, else LiteLLM's exception."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from krouter_adapters.litellm_lane.load import load_litellm

import krouter
from tests.upstream import Upstream

litellm = load_litellm()

HELLO = [{"role": "user", "content": "hello"}]
SAID = {"role": "assistant", "content": "hi"}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def router(upstream: Upstream) -> Iterator[krouter.Router]:
    upstream.clear()
    settings = {"provider": {"local": {"base_url": f"{upstream.url}/v1"}}}
    combos: dict[str, Any] = {"two": {"models": ["local/odd", "local/good:text=good"]}}
    with krouter.Router(combos=combos, settings=settings, env={}) as router:
        yield router


def reply(message: Any = SAID, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    head = {"id": "i", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": [choice], "usage": usage, **more}


def chunk(delta: Any, reason: Any = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    head = {"id": "i", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [choice], **more}


def stream(*events: Any) -> str:
    said = [event if isinstance(event, str) else json.dumps(event) for event in (*events, "[DONE]")]
    return "".join(f"data: {text}\n\n" for text in said)


def answers(upstream: Upstream, body: str | dict[str, Any]) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    kind = "text/event-stream" if isinstance(body, str) else "application/json"
    upstream.script("odd", [f"body={quote(text)};content-type={quote(kind)}"])


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (reply({**SAID, "content": [{"type": "text", "text": "h"}, {"text": "i"}]}), "hi"),
        (reply({**SAID, "role": "model"}), "hi"),
        (reply({**SAID, "reasoning": {"a": 1}}), "hi"),
        (reply({**SAID, "provider_specific_fields": "z"}), "hi"),
        (reply(usage="x"), "hi"),
        (reply(route="theirs", _hidden_params={"x": 1}), "hi"),
        (reply(choices=[{"text": "hi", "finish_reason": "stop"}]), "hi"),
        (reply(choices=[{"message": None, "finish_reason": "length"}]), None),
        (reply({"role": "assistant", "content": None, "tool_calls": [CALL]}), None),
    ],
    ids=str,
)
def test_what_is_read_all_the_same(
    router: krouter.Router, upstream: Upstream, body: dict[str, Any], content: str | None
) -> None:
    answers(upstream, body)
    made = router.completion("local/odd", HELLO)
    assert made.choices[0].message.content == content
    assert made.choices[0].message.role == "assistant"
    assert made.route.served == "local/odd"
    json.loads(made.model_dump_json())


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (None, (0, 0, 0)),
        ("x", (0, 0, 0)),
        ({"prompt_tokens": 1.0, "completion_tokens": 2.5, "total_tokens": 3.5}, (1, 2, 3)),
        ({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}, (1, 2, 3)),
    ],
)
def test_usage_is_always_there(
    router: krouter.Router, upstream: Upstream, usage: Any, counts: tuple[int, ...]
) -> None:
    answers(upstream, reply(usage=usage))
    told = router.completion("local/odd", HELLO).usage
    assert (told.prompt_tokens, told.completion_tokens, told.total_tokens) == counts


@pytest.mark.parametrize(
    "body",
    [
        reply(None),
        reply("hi"),
        reply({"content": 5}),
        reply({"content": {"text": "hi"}}),
        reply({**SAID, "tool_calls": {"id": "a"}}),
        reply({**SAID, "tool_calls": [None]}),
        reply({**SAID, "tool_calls": [{**CALL, "function": None}]}),
        reply(choices=[None]),
        reply(choices={"a": 1}),
    ],
    ids=str,
)
def test_garbage_moves_on_and_is_a_502_at_the_end(
    router: krouter.Router, upstream: Upstream, body: dict[str, Any]
) -> None:
    answers(upstream, body)
    made = router.completion("two", HELLO)
    assert made.choices[0].message.content == "good"
    assert [attempt.row for attempt in made.route.attempts] == [10, None]
    with pytest.raises(litellm.InternalServerError) as caught:
        router.completion("local/odd", HELLO)
    error = caught.value
    assert (error.status_code, error.llm_provider, error.model) == (502, "local", "odd")
    assert error.route.attempts[-1].outcome == "server error"


def test_what_litellm_alone_cannot_read(router: krouter.Router, upstream: Upstream) -> None:
    answers(upstream, reply({**SAID, "audio": {"id": "a"}}))
    with pytest.raises(litellm.InternalServerError, match="could not be read") as caught:
        router.completion("local/odd", HELLO)
    error: Any = caught.value
    assert (error.status_code, error.llm_provider, error.model) == (502, "local", "odd")
    assert error.route.served == "local/odd"
    assert "Traceback" not in str(error)


FIRST, LAST = chunk(SAID), chunk({}, "stop")
DELTA_CALL = {"index": 0, "id": "a", "type": "function"}


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([{**FIRST, "id": 5}, LAST], "hi"),
        ([{**FIRST, "created": 1.5}, LAST], "hi"),
        ([{**FIRST, "created": "x"}, LAST], "hi"),
        ([{**FIRST, "usage": "x"}, LAST], "hi"),
        ([{**FIRST, "provider_specific_fields": "z", "self": 1}, LAST], "hi"),
        ([FIRST, chunk(None), LAST], "hi"),
        ([FIRST, "null", LAST], "hi"),
        ([FIRST, chunk({"content": 5}), LAST], "hi"),
        ([FIRST, chunk({"content": [{"type": "text", "text": "!"}]}), LAST], "hi!"),
        ([FIRST, chunk({"reasoning": {"a": 1}}), LAST], "hi"),
        ([FIRST, chunk({"tool_calls": [DELTA_CALL]}), LAST], "hi"),
    ],
    ids=str,
)
def test_chunks_that_are_read_all_the_same(
    router: krouter.Router, upstream: Upstream, events: list[Any], text: str
) -> None:
    answers(upstream, stream(*events))
    chunks = list(router.completion("local/odd", HELLO, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert litellm.stream_chunk_builder(chunks).choices[0].message.content == text


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize(
    "event",
    [chunk("x"), chunk([]), chunk({"tool_calls": 5}), {"choices": [None]}, {"choices": 5}, [1]],
    ids=str,
)
def test_an_event_that_cannot_be_read_raises(
    router: krouter.Router, upstream: Upstream, event: Any, loop: bool
) -> None:
    answers(upstream, stream(FIRST, event, LAST))

    given: list[Any] = []

    async def read() -> None:
        async for piece in await router.acompletion("local/odd", HELLO, stream=True):
            given.append(piece)  # noqa: PERF401  what came before the failure counts

    def call() -> None:
        if not loop:
            given.extend(router.completion("local/odd", HELLO, stream=True))
        else:
            asyncio.run(read())

    with pytest.raises(litellm.InternalServerError, match="could not be read") as caught:
        call()
    error: Any = caught.value
    assert (error.status_code, error.llm_provider, error.model) == (502, "local", "odd")
    assert error.route.attempts[-1].entry == "local/odd"
    assert given[0].choices[0].delta.content == "hi"


def test_such_an_event_closes_the_call(router: krouter.Router, upstream: Upstream) -> None:
    answers(upstream, stream(FIRST, chunk("x"), LAST))
    stream_ = router.completion("local/odd", HELLO, stream=True)
    next(stream_)
    with pytest.raises(litellm.InternalServerError):
        next(stream_)
    assert list(stream_) == []
    stream_.close()


def test_a_tool_call_that_ends_with_stop(router: krouter.Router, upstream: Upstream) -> None:
    called = chunk({"tool_calls": [{**DELTA_CALL, "function": CALL["function"]}]})
    answers(upstream, stream(called, LAST))
    chunks = list(router.completion("local/odd", HELLO, stream=True))
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    answers(upstream, stream(FIRST, LAST))
    chunks = list(router.completion("local/odd", HELLO, stream=True))
    assert chunks[-1].choices[0].finish_reason == "stop"
