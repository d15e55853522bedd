"""The keyword arguments of `completion`: what reaches the provider, and what is refused."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from typing import Any

import httpx
import openai
import pytest
from krouter_adapters.litellm_lane.load import load_litellm, without_warnings
from pydantic import BaseModel

import krouter
from krouter.arguments import KROUTER_WAY
from krouter.asking import seconds
from tests.leaps import leaping_engine
from tests.upstream import Upstream

litellm = load_litellm()
from litellm.llms.custom_httpx.http_handler import HTTPHandler  # noqa: E402

HELLO = [{"role": "user", "content": "hello"}]
PLAIN: dict[str, Any] = {
    "temperature": 0,
    "top_p": 0.5,
    "n": 2,
    "stop": ["a", "b"],
    "max_tokens": 7,
    "max_completion_tokens": 8,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "response_format": {"type": "json_object"},
    "seed": 0,
    "user": "u",
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {"5": 1},
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "reasoning_effort": "low",
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "modalities": ["text"],
    "audio": {"voice": "x", "format": "wav"},
    "prediction": {"type": "content", "content": "x"},
    "service_tier": "auto",
    "store": False,
    "verbosity": "low",
    "top_k": 4,
    "some_new_field": {"deep": [1, None]},
}
"""Arguments that a provider gets under their own name."""


class Nameless:
    """Of no type that JSON knows. Its text names a test case, so it holds no address."""

    def __repr__(self) -> str:
        return "<nameless>"


NAMELESS = Nameless()


class City(BaseModel):
    name: str
    people: int | None = None


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def shared(upstream: Upstream) -> Iterator[krouter.Router]:
    settings = {"provider": {"local": {"base_url": f"{upstream.url}/v1"}}}
    combos: dict[str, Any] = {"daily": {"models": ["local/good"]}}
    with krouter.Router(combos=combos, settings=settings, env={}) as router:
        yield router


@pytest.fixture
def router(shared: krouter.Router, upstream: Upstream) -> krouter.Router:
    upstream.clear()
    return shared


def sent(upstream: Upstream) -> dict[str, Any]:
    """The last body that the provider got, but for what every one holds."""
    body = dict(upstream.requests[-1].json)
    assert body.pop("messages") == HELLO
    assert body.pop("model") == "good"
    return body


@pytest.mark.parametrize("name", PLAIN)
def test_arguments_that_go_to_the_provider(
    router: krouter.Router, upstream: Upstream, name: str
) -> None:
    router.completion("daily", HELLO, **{name: PLAIN[name]})
    assert sent(upstream) == {name: PLAIN[name]}


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        ({}, {}),
        ({"temperature": None, "stream": False}, {}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        (
            {"stream": True, "stream_options": {"include_usage": False}},
            {"stream": True, "stream_options": {"include_usage": True}},
        ),
        (
            {"extra_body": {"x": 1, "temperature": 0.9}, "temperature": 0.1},
            {"x": 1, "temperature": 0.9},
        ),
        ({"metadata": {"trace": "t"}}, {}),
        ({"drop_params": True, "seed": 1}, {"seed": 1}),
        ({"additional_drop_params": ["seed"], "seed": 1}, {}),
        (
            {"additional_drop_params": ["k[*].deep.x"], "k": [{"deep": {"x": 1, "y": 2}}]},
            {"k": [{"deep": {"y": 2}}]},
        ),
        ({"extra_body": None, "extra_headers": None}, {}),
        ({"allowed_openai_params": ["seed"], "seed": 1}, {"seed": 1}),
        ({"logit_bias": {5: 1}}, {"logit_bias": {"5": 1}}),
        ({"timeout": 30, "api_key": None, "base_url": None}, {}),
        ({"fallbacks": None, "num_retries": 0, "caching": False, "callbacks": []}, {}),
        ({"litellm_call_id": None, "no-log": False}, {}),
    ],
)
def test_arguments_that_say_how(
    router: krouter.Router, upstream: Upstream, arguments: dict[str, Any], body: dict[str, Any]
) -> None:
    reply = router.completion("daily", HELLO, **arguments)
    list(reply)
    assert sent(upstream) == body


def test_a_pydantic_class_as_the_response_format(
    router: krouter.Router, upstream: Upstream
) -> None:
    router.completion("daily", HELLO, response_format=City)
    given = sent(upstream)["response_format"]
    assert given["type"] == "json_schema"
    assert given["json_schema"]["name"] == "City"
    assert given["json_schema"]["strict"] is True
    assert given["json_schema"]["schema"]["required"] == ["name", "people"]
    assert given["json_schema"]["schema"]["additionalProperties"] is False


def test_it_sends_what_litellm_sends(router: krouter.Router, upstream: Upstream) -> None:
    arguments = {
        name: PLAIN[name]
        for name in PLAIN.keys() - {"thinking", "verbosity", "user", "reasoning_effort"}
    }
    arguments |= {"response_format": City, "extra_body": {"x": 1}, "metadata": {"a": "b"}}
    router.completion("daily", HELLO, **arguments)
    with without_warnings(), closing(HTTPHandler()) as client:
        base = f"{upstream.url}/v1"
        litellm.completion(
            "hosted_vllm/good", HELLO, api_base=base, api_key="k", client=client, **arguments
        )
    ours, theirs = (request.json for request in upstream.requests)
    assert ours == theirs


def test_messages_that_are_litellms_objects(router: krouter.Router, upstream: Upstream) -> None:
    reply = router.completion("local/x:tool=look", HELLO)
    message = reply.choices[0].message
    call = message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": "x"}
    router.completion("daily", [*HELLO, message, result])
    history = upstream.requests[-1].json["messages"]
    assert history[1] == {
        "role": "assistant",
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": "look", "arguments": call.function.arguments},
            }
        ],
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"headers": {"X-A": "1"}},
        {"extra_headers": {"X-A": "1"}},
        {"extra_headers": [("X-A", 1), ("X-B", None)]},
        {"headers": {"X-A": "2"}, "extra_headers": httpx.Headers({"x-a": "1"})},
    ],
    ids=str,
)
def test_headers(router: krouter.Router, upstream: Upstream, headers: dict[str, Any]) -> None:
    router.completion("daily", HELLO, **headers)
    assert upstream.requests[-1].header["x-a"] == "1"
    assert "x-b" not in upstream.requests[-1].header


@pytest.mark.parametrize("name", sorted(KROUTER_WAY))
def test_what_steers_litellm_is_refused(
    router: krouter.Router, upstream: Upstream, name: str
) -> None:
    with pytest.raises(krouter.SettingError, match=name) as caught:
        router.completion("daily", HELLO, **{name: "something"})
    assert KROUTER_WAY[name] in str(caught.value)
    with pytest.raises(krouter.SettingError, match=name):
        asyncio.run(router.acompletion("daily", HELLO, **{name: "something"}))
    assert not upstream.requests


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"fallbacks": ["x"]}, "list the models in a combo"),
        ({"num_retries": 3}, '"retries"'),
        ({"mock_response": "hi"}, "demo"),
        ({"aws_secret_access_key": "s"}, "krouter.toml"),
        ({"vertex_project": "p"}, "krouter.toml"),
        ({"litellm_trace_id": "t"}, "LiteLLM"),
        ({"input_cost_per_token": 1}, "input_cost_per_token"),
        ({"model": ""}, "model must be"),
        ({"model": None}, "model must be"),
        ({"messages": "hello"}, "messages must be a list"),
        ({"messages": [NAMELESS]}, "must be a dict"),
        ({"messages": [{"content": NAMELESS}]}, "not JSON"),
        ({"messages": ["hi"]}, "must be a dict"),
        ({"messages": [{"role": "user", "content": b"hi"}]}, "bytes cannot be sent"),
        ({"messages": [{"role": "user", "content": {"a"}}]}, "set cannot be sent"),
        ({"temperature": float("nan")}, "not JSON"),
        ({"temperature": float("inf")}, "not JSON"),
        ({"temperature": Decimal("0.5")}, "Decimal cannot be sent"),
        ({"user": datetime(2020, 1, 1)}, "datetime cannot be sent"),
        ({"tools": [City]}, "City cannot be sent"),
        ({"response_format": "json"}, "response_format"),
        ({"stream": "false"}, "stream must be"),
        ({"extra_body": ["x"]}, "extra_body must be"),
        ({"extra_body": {"stream": True}}, "stream is an argument"),
        ({"extra_headers": ["x"]}, "extra_headers must be"),
        ({"extra_headers": {"X-A": "1\r\nX-B: 2"}}, "more than one line"),
        ({"extra_headers": {"X A": "1"}}, "no name of a header"),
        ({"messages": [{"role": "user", "content": "cut \ud83d"}]}, "surrogate"),
        ({"extra_headers": {"Authorization": "Bearer x"}}, "api_key"),
        ({"extra_headers": {"Host": "x"}}, "host"),
        ({"timeout": 0.0, "request_timeout": -1}, "above 0"),
        ({"timeout": "soon"}, "above 0"),
        ({"timeout": 1e12}, "a number of seconds"),
        ({"api_key": "k"}, "provider/model"),
        ({"api_base": "http://127.0.0.1"}, "provider/model"),
        ({"model": "demo/x", "api_base": "http://127.0.0.1"}, "provider/model"),
    ],
    ids=str,
)
def test_refused(
    router: krouter.Router, upstream: Upstream, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(krouter.SettingError, match=told):
        router.completion(**{"model": "daily", "messages": HELLO, **arguments})
    assert not upstream.requests


def test_arguments_by_position_are_those_of_litellm(
    router: krouter.Router, upstream: Upstream
) -> None:
    router.completion("daily", HELLO, 30, 0.5, 0.25, 2, True, None, "x", 7)
    given = {"temperature": 0.5, "top_p": 0.25, "n": 2, "stop": "x", "max_completion_tokens": 7}
    told = {"stream": True, "stream_options": {"include_usage": True}}
    assert sent(upstream) == {**given, **told}
    asyncio.run(router.acompletion("daily", HELLO, [{"name": "f"}], "auto", 30, 0.5))
    given = {"functions": [{"name": "f"}], "function_call": "auto", "temperature": 0.5}
    assert sent(upstream) == given
    with pytest.raises(TypeError, match="temperature"):
        router.completion("daily", HELLO, 30, 0.5, temperature=1)


@pytest.mark.parametrize("name", ["completion", "acompletion"])
def test_the_signature_is_litellms(name: str) -> None:
    theirs = inspect.signature(getattr(litellm, name)).parameters
    for function in (getattr(krouter, name), getattr(krouter.Router, name)):
        ours = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
        positional = [p.name for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert positional == list(theirs)[: len(positional)]
        assert len(positional) > 25
        missing = theirs.keys() - {p.name for p in ours} - KROUTER_WAY.keys()
        assert missing == {"kwargs", "include_server_side_tool_invocations"}
    assert inspect.iscoroutinefunction(getattr(krouter, name)) == (name == "acompletion")


@pytest.mark.parametrize("as_dict", [dict, lambda message: message.model_dump()])
def test_messages_that_come_back_as_dicts(
    router: krouter.Router, upstream: Upstream, as_dict: Any
) -> None:
    message = router.completion("local/x:tool=look", HELLO).choices[0].message
    router.completion("daily", [*HELLO, as_dict(message), {"content": "x", "name": None}])
    _, called, bare = upstream.requests[-1].json["messages"]
    assert called.keys() == {"role", "tool_calls"}
    assert called["tool_calls"][0]["function"]["name"] == "look"
    assert bare == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [
        (None, None),
        (3, 3.0),
        ("2.5", 2.5),
        (httpx.Timeout(9, connect=1), 9.0),
        (httpx.Timeout(None), None),
    ],
)
def test_a_timeout_in_seconds(timeout: Any, expected: float | None) -> None:
    assert seconds(timeout) == expected


@pytest.mark.parametrize("stream", [False, True])
def test_a_timeout_ends_the_call(router: krouter.Router, stream: bool) -> None:
    with pytest.raises(litellm.Timeout) as caught:
        router.completion("local/x:stall", HELLO, timeout=0.2, stream=stream)
    assert caught.value.status_code == 504


def test_a_timeout_is_all_that_counts_for_a_single_model(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "provider": {"local": {"base_url": f"{upstream.url}/v1"}},
        "timeouts": {"first_byte": 0.05, "stall": 60},
    }
    good = {"model": "local/good", "timeouts": {"firstByte": 60}}
    combos: dict[str, Any] = {"two": {"models": ["local/x:slow-headers=0.3", good]}}
    with krouter.Router(combos=combos, settings=settings, env={}) as router:
        late = router.completion("local/x:slow-headers=0.3", HELLO, timeout=20, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in late)
        assert router.completion("two", HELLO, timeout=20, stream=True).route.served == "local/good"
    leaping_engine(monkeypatch, upstream)
    with krouter.Router(combos=combos, settings=settings, env={}) as router:
        silent = router.completion("local/x:stall=2", HELLO, timeout=0.2, stream=True)
        with pytest.raises(litellm.Timeout, match="fell silent"):
            list(silent)


def test_a_key_and_an_address_for_one_call(router: krouter.Router, upstream: Upstream) -> None:
    base = f"{upstream.url}/elsewhere/v1"
    for address in ("api_base", "base_url"):
        router.completion("openai/good", HELLO, api_key="mine", **{address: base})
        assert upstream.requests[-1].credential == "mine"
        assert upstream.requests[-1].path == "/elsewhere/v1/chat/completions"
    router.completion("good", HELLO, custom_llm_provider="openai", api_key="k", api_base=base)
    assert upstream.requests[-1].model == "good"
    router.completion("gpt-4o", HELLO, api_key="k", api_base=base)
    assert upstream.requests[-1].model == "gpt-4o"
    with pytest.raises(litellm.AuthenticationError, match="set OPENAI_API_KEY"):
        router.completion("openai/good", HELLO)


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini/gemini-2.5-pro", "/v1beta/models/gemini-2.5-pro:generateContent"),
        ("deepseek/x", "/v1beta/chat/completions"),
        ("anthropic/x", "/v1beta/v1/messages"),
    ],
)
def test_an_address_is_read_in_litellms_sense(
    router: krouter.Router, upstream: Upstream, model: str, path: str
) -> None:
    reply = router.completion(model, HELLO, api_base=f"{upstream.url}/v1beta", api_key="k")
    assert upstream.requests[-1].path == path
    assert reply.choices[0].message.content


@pytest.mark.parametrize("model", ["openai/gpt-5.1", "mistral/small"])
def test_parameters_that_litellm_maps(
    router: krouter.Router, upstream: Upstream, model: str
) -> None:
    to: dict[str, Any] = {"api_base": f"{upstream.url}/v1", "api_key": "k"}
    arguments: dict[str, Any] = {"max_tokens": 5, "seed": 1}
    router.completion(model, HELLO, **to, **arguments)
    theirs_own = openai.OpenAI(base_url=to["api_base"], api_key="k", max_retries=0)
    client = theirs_own if model.startswith("openai/") else HTTPHandler()
    with without_warnings(), closing(theirs_own), closing(client):
        litellm.completion(model, HELLO, **to, **arguments, client=client, max_retries=0)
    ours, theirs = (request.json for request in upstream.requests)
    assert ours == theirs


def test_an_address_of_the_call_gets_no_stored_key(upstream: Upstream) -> None:
    with krouter.Router(combos={}, settings={}, env={"OPENAI_API_KEY": "stored"}) as router:
        router.completion("openai/good", HELLO, api_base=f"{upstream.url}/v1")
    assert upstream.requests[-1].credential is None


def test_each_key_has_its_own_locks(router: krouter.Router, upstream: Upstream) -> None:
    base = f"{upstream.url}/v1"
    upstream.script("good", ["status=429;retry-after=60"], key="spent")
    with pytest.raises(litellm.RateLimitError):
        router.completion("openai/good", HELLO, api_key="spent", api_base=base)
    router.completion("openai/good", HELLO, api_key="fresh", api_base=base)
    with pytest.raises(litellm.RateLimitError, match="locked"):
        router.completion("openai/good", HELLO, api_key="spent", api_base=base)
    assert "spent" not in str(router.routes[-1].as_json())
