"""`krouter.embedding` and `aembedding`: LiteLLM's arguments, reply and exceptions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from krouter_adapters.litellm_lane.load import load_litellm

import krouter
from tests.harness import provider_settings
from tests.upstream import Upstream

litellm = load_litellm()


@pytest.fixture
def router(tmp_path: Path, upstream: Upstream) -> Iterator[krouter.Router]:
    text, env = provider_settings(upstream.url, one="a", two="x")
    (tmp_path / "krouter.toml").write_text(text)
    combos = {"daily": {"models": ["one/m:status=503", "two/n"]}}
    with krouter.Router(combos=combos, home=tmp_path, env=env) as made:
        yield made


@pytest.mark.parametrize("given", ["a", ["a", "b"], [[1, 2], [3]]])
def test_the_reply_is_litellms(router: krouter.Router, given: Any) -> None:
    reply = router.embedding("daily", given, 3)
    assert isinstance(reply, litellm.EmbeddingResponse)
    count = 1 if isinstance(given, str) else len(given)
    assert [each["embedding"] for each in reply.data] == [[0.5] * 3] * count
    assert (reply.object, reply.model) == ("list", "n")
    assert reply.usage.prompt_tokens > 0
    assert reply.route.served == "two/n"
    assert reply._hidden_params["model_id"] == "two/n"


def test_from_an_event_loop(router: krouter.Router, upstream: Upstream) -> None:
    extra = {"truncate": "END"}
    asking = router.aembedding(
        model="two/n", input=["a"], encoding_format="base64", user="u", extra_body=extra
    )
    reply = asyncio.run(asking)
    assert isinstance(reply.data[0]["embedding"], str)
    assert upstream.requests[-1].json == {
        "model": "n", "input": ["a"], "encoding_format": "base64", "user": "u", "truncate": "END",
    }  # fmt: skip


def test_failures_are_litellms_exceptions(router: krouter.Router) -> None:
    with pytest.raises(litellm.ServiceUnavailableError):
        router.embedding("one/m:status=503", "a")
    with pytest.raises(litellm.NotFoundError, match="Unknown model"):
        router.embedding("nothing", "a")


def test_nothing_to_embed_is_a_bad_request(router: krouter.Router, upstream: Upstream) -> None:
    with pytest.raises(litellm.BadRequestError, match=r"'\$.input' is invalid") as refused:
        router.embedding("daily", [])
    assert refused.value.status_code == 400
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"input": None}, "input must be"),
        ({"input": "a", "api_version": "2026-01-01"}, "api_version"),
        ({"input": "a", "num_retries": 3}, "num_retries"),
    ],
)
def test_what_it_does_not_take(router: krouter.Router, arguments: Any, told: str) -> None:
    with pytest.raises(krouter.SettingError, match=told):
        router.embedding("daily", **arguments)


def test_litellms_order_of_arguments() -> None:
    theirs = [name for name in inspect.signature(litellm.embedding).parameters if name != "kwargs"]
    ours = list(inspect.signature(krouter.embedding).parameters)
    assert ours[: len(theirs) - 2] == [
        name for name in theirs if name not in ("litellm_call_id", "logger_fn")
    ]
