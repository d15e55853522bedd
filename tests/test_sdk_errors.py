"""Which of LiteLLM's exceptions each failure becomes, whole and streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from krouter_adapters.litellm_lane.load import load_litellm

import krouter
from krouter.errors import Failure
from tests.harness import params_of
from tests.leaps import leaping_engine
from tests.upstream import Upstream

litellm = load_litellm()

HELLO = [{"role": "user", "content": "hello"}]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
BLIND = "local/blind:status=400;message=image%20input%20is%20not%20supported%20by%20this%20model"

# What the provider does, the exception, its status, and what its message says.
TABLE: tuple[tuple[Failure, str, str, int, str], ...] = (
    (Failure.TOO_LARGE, "status=413", "ContextWindowExceededError", 413, "upstream says"),
    (
        Failure.TOO_LARGE,
        "status=400;code=context_length_exceeded",
        "ContextWindowExceededError",
        400,
        "upstream says",
    ),
    (
        Failure.ACCOUNT_BARRED,
        "status=403;code=account_deactivated",
        "PermissionDeniedError",
        403,
        "upstream says",
    ),
    (Failure.QUOTA_SPENT, "status=402", "RateLimitError", 402, "upstream says"),
    (Failure.QUOTA_SPENT, "status=429;code=insufficient_quota", "RateLimitError", 429, "says"),
    (Failure.NOT_SIGNED_IN, "status=401", "AuthenticationError", 401, "upstream says"),
    (Failure.NOT_SIGNED_IN, "status=403", "AuthenticationError", 403, "upstream says"),
    (Failure.RATE_LIMITED, "status=429", "RateLimitError", 429, "upstream says"),
    (Failure.OVERLOADED, "status=529", "ServiceUnavailableError", 529, "upstream says"),
    (Failure.OVERLOADED, "status=503", "ServiceUnavailableError", 503, "upstream says"),
    (Failure.SERVER_ERROR, "status=500", "InternalServerError", 500, "upstream says"),
    (Failure.SERVER_ERROR, "status=502", "InternalServerError", 502, "upstream says"),
    (Failure.SERVER_ERROR, "garbage=html", "InternalServerError", 502, "provider's reply"),
    (Failure.SERVER_ERROR, "error=json;status=200", "InternalServerError", 502, "upstream says"),
    (Failure.SERVER_ERROR, "reset", "APIConnectionError", 502, "closed the connection"),
    (Failure.TIMED_OUT, "stall", "Timeout", 504, "did not answer in time"),
    (
        Failure.REFUSED,
        "status=400;code=content_filter",
        "ContentPolicyViolationError",
        400,
        "upstream says",
    ),
    (Failure.BAD_REQUEST, "status=400;message=no%20such%20field", "BadRequestError", 400, "field"),
    (Failure.MODEL_GONE, "status=404", "NotFoundError", 404, "upstream says"),
    (Failure.BAD_REQUEST, "status=422", "BadRequestError", 422, "upstream says"),
)
# A stream that breaks after its first events.
BROKEN: tuple[tuple[str, str, int, str], ...] = (
    ("reset=2", "APIConnectionError", 502, "cut short"),
    ("close=2", "APIConnectionError", 502, "cut short"),
    ("end=2", "APIConnectionError", 502, "cut short"),
    ("end=2;half", "APIConnectionError", 502, "cut short"),
    ("stall=2", "Timeout", 504, "fell silent"),
    ("error=2", "InternalServerError", 500, "upstream says"),
    ("error=2;type=overloaded_error", "ServiceUnavailableError", 529, "upstream says"),
    ("error=2;type=rate_limit_error", "RateLimitError", 429, "upstream says"),
)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def router(
    request: pytest.FixtureRequest, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> Iterator[krouter.Router]:
    if "stall" in params_of(request).get("script", ""):
        leaping_engine(monkeypatch, upstream)
    native = {"base_url": f"{upstream.url}/v1"}
    translated = {"base_url": upstream.url, "speaks": ["messages"]}
    settings = {
        "provider": {"local": native, "other": native, "translated": translated},
        "timeouts": {"first_byte": 30, "stall": 30, "total": 60},
    }
    combos: dict[str, Any] = {
        "two": {"models": ["other/one:status=401", "local/two:status=429;retry-after=7"]},
        "refuses": {
            "models": [BLIND, "other/two:status=400;code=content_filter"],
            "onRefusal": "return",
        },
    }
    with krouter.Router(combos=combos, settings=settings, env={}) as router:
        yield router


def failing(router: krouter.Router, model: str, stream: bool) -> Any:
    with pytest.raises(openai.APIError) as caught:
        list(router.completion(model, HELLO, stream=stream))
    return caught.value


def failing_asynchronously(router: krouter.Router, model: str, stream: bool) -> Any:
    async def read() -> None:
        reply = await router.acompletion(model, HELLO, stream=stream)
        async for _ in reply:
            pass

    with pytest.raises(openai.APIError) as caught:
        asyncio.run(read())
    return caught.value


@pytest.mark.parametrize("provider", ["local", "translated"])
@pytest.mark.parametrize("call", [failing, failing_asynchronously])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "script", "name", "status", "told"), TABLE, ids=[row[1] for row in TABLE]
)
def test_the_exception_of_each_failure(
    router: krouter.Router,
    provider: str,
    call: Any,
    stream: bool,
    failure: Failure,
    script: str,
    name: str,
    status: int,
    told: str,
) -> None:
    error = call(router, f"{provider}/x:{script}", stream)
    assert type(error) is getattr(litellm, name)
    assert error.status_code == error.response.status_code == error.route.status == status
    assert told in error.message
    assert told in str(error)
    assert error.llm_provider == provider
    assert error.model == f"x:{script}"
    assert error.route.attempts[-1].outcome == failure
    assert error.route.id in error.response.text


@pytest.mark.parametrize("provider", ["local", "translated"])
@pytest.mark.parametrize("call", [failing, failing_asynchronously])
@pytest.mark.parametrize(
    ("script", "name", "status", "told"), BROKEN, ids=[row[0] for row in BROKEN]
)
def test_a_stream_that_breaks_raises(
    router: krouter.Router, provider: str, call: Any, script: str, name: str, status: int, told: str
) -> None:
    error = call(router, f"{provider}/x:{script}", True)
    assert type(error) is getattr(litellm, name)
    assert error.status_code == status
    assert told in error.message
    assert error.route.attempts[-1].outcome in set(Failure)
    assert error.route.ended


def test_what_came_before_the_break_is_given_first(router: krouter.Router) -> None:
    stream = router.completion("local/x:reset=3", HELLO, stream=True)
    first, second = next(stream), next(stream)
    assert first.choices[0].delta.role == "assistant"
    assert second.choices[0].delta.content
    with pytest.raises(litellm.APIConnectionError):
        list(stream)
    assert list(stream) == []


def test_every_failure_has_its_exception() -> None:
    from krouter_adapters.sdk import ERRORS, Trouble, error

    assert set(ERRORS) == set(Failure)
    for failure in Failure:
        made: Any = error(Trouble(failure, 502, "words", "p", "m", [], b""), None)
        assert isinstance(made, openai.APIError)
        assert (made.status_code, made.llm_provider, made.model) == (502, "p", "m")
        assert "words" in made.message


def test_the_last_entrys_error_and_when_to_come_back(router: krouter.Router) -> None:
    error = failing(router, "two", stream=False)
    assert type(error) is litellm.RateLimitError
    assert error.response.headers["retry-after"] == "7"
    assert "other/one:status=401: 401, not signed in" in error.response.headers["x-krouter-tried"]
    assert error.body["krouter_route"] == error.route.id
    assert [attempt.status for attempt in error.route.attempts] == [401, 429]


def test_what_openais_clients_read_off_an_error(router: krouter.Router) -> None:
    error = failing(router, "local/x:status=400;code=context_length_exceeded", stream=False)
    assert (error.code, error.type) == ("context_length_exceeded", "invalid_request_error")
    assert error.param is None
    assert error.body["code"] == "context_length_exceeded"
    error = failing(router, "nowhere/x", stream=False)
    assert error.code == "model_not_found"


def test_a_locked_account(router: krouter.Router) -> None:
    failing(router, "local/x:status=429;retry-after=30", stream=False)
    error = failing(router, "local/x:status=429;retry-after=30", stream=True)
    assert type(error) is litellm.RateLimitError
    assert error.status_code == 429
    assert not error.route.attempts
    assert 28 <= int(error.response.headers["retry-after"]) <= 30


@pytest.mark.parametrize(
    ("model", "name", "status", "told"),
    [
        ("dialy", "NotFoundError", 404, "Did you mean 'daily'"),
        ("nowhere/x", "NotFoundError", 404, "no provider 'nowhere'"),
        ("gpt-4oo", "NotFoundError", 404, "Did you mean 'gpt-4o'"),
        ("opnai/gpt-4o", "NotFoundError", 404, "Did you mean 'openai/gpt-4o'"),
        ("openai/x", "AuthenticationError", 503, "set OPENAI_API_KEY"),
        ("gpt-4o", "AuthenticationError", 503, "set OPENAI_API_KEY"),
    ],
)
def test_where_nothing_is_sent(
    router: krouter.Router, model: str, name: str, status: int, told: str
) -> None:
    error = failing(router, model, stream=False)
    assert type(error) is getattr(litellm, name)
    assert error.status_code == status
    assert told in error.message
    assert error.model == model
    assert not error.route.attempts


def test_a_returned_refusal_is_one_whatever_was_tried_after_it(router: krouter.Router) -> None:
    with pytest.raises(openai.APIError) as caught:
        router.completion("refuses", [{"role": "user", "content": [PICTURE]}])
    assert type(caught.value).__name__ == "ContentPolicyViolationError"
