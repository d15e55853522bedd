"""Embeddings are walked like any request, and no combo mixes vectors that cannot be compared."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from tests.harness import Krouter, Start, calls
from tests.upstream import Upstream

PATH = "/v1/embeddings"


def embed(krouter: Krouter, model: str, given: Any = "hello", **fields: Any) -> httpx.Response:
    return krouter.http.post(PATH, json={"model": model, "input": given, **fields})


def sizes(reply: httpx.Response) -> list[int]:
    assert reply.status_code == 200, reply.text
    return [len(each["embedding"]) for each in reply.json()["data"]]


@pytest.mark.parametrize(
    ("given", "count"),
    [("hello", 1), (["a", "b", "c"], 3), ([1, 2, 3], 1), ([[1, 2], [3]], 2)],
)
def test_every_kind_of_input_goes_on_as_it_came(
    start: Start, upstream: Upstream, given: Any, count: int
) -> None:
    krouter = start("one/m", ledger=True)
    reply = embed(krouter, "daily", given, dimensions=3, user="u")
    assert sizes(reply) == [3] * count
    (sent,) = upstream.requests
    assert sent.path == PATH
    assert sent.credential == "one-a"
    assert sent.json == {"model": "m", "input": given, "dimensions": 3, "user": "u"}
    route = krouter.last_route
    assert (route["dialect"], route["served"], route["outcome"]) == (
        "embeddings",
        "one/m",
        "answered",
    )
    assert route["usage"]["input"] > 0


def test_the_walk_falls_over(start: Start, upstream: Upstream) -> None:
    krouter = start("one/m:status=429;retry-after=20", "two/n")
    reply = embed(krouter, "daily")
    assert sizes(reply) == [4]
    assert reply.headers["x-krouter-model"] == "two/n"
    assert [each.split()[0] for each in calls(upstream)] == ["one-a", "one-b", "two-x"]
    assert set(krouter.locks()) == {
        "one/a/m:status=429;retry-after=20",
        "one/b/m:status=429;retry-after=20",
    }


@pytest.mark.parametrize(
    "way", ["m:status=400", "m:garbage=json", "m:garbage=html", "m:empty=list", "m:error=json"]
)
def test_what_is_no_answer_moves_on(start: Start, way: str) -> None:
    krouter = start(f"one/{way}", "two/n")
    assert sizes(embed(krouter, "daily")) == [4]
    assert krouter.last_route["served"] == "two/n"


def test_no_relative_stands_in(start: Start, upstream: Upstream) -> None:
    """Vectors of another model of the family would mean something else."""
    text = f'[provider.openai]\nbase_url = "{upstream.url}/v1"\nkey = "env:K"\n'
    model = "openai/text-embedding-3-small"
    krouter = start(model, accounts={}, settings=text, env={"K": "k-0"})
    upstream.script("*", ["status=404"])
    assert embed(krouter, "daily").status_code == 404
    assert len(upstream.requests) == 1


def test_the_sdk_asks_for_base64(start: Start) -> None:
    krouter = start("one/m")
    with openai.OpenAI(base_url=f"{krouter.url}/v1", api_key="none", max_retries=0) as client:
        found = client.embeddings.create(model="daily", input=["a", "b"])
        assert [each.embedding for each in found.data] == [[0.5] * 4] * 2
        floats = client.embeddings.create(model="daily", input="a", encoding_format="float")
        assert floats.data[0].embedding == [0.5] * 4


@pytest.mark.parametrize("form", ["float", "base64"])
def test_vectors_of_another_size_are_no_answer(start: Start, upstream: Upstream, form: str) -> None:
    krouter = start("one/m", "two/n", accounts={"one": "a", "two": "x"})
    upstream.script("m", ["text=8", "status=500"])
    upstream.script("n", ["text=6;usage=7,0"])
    assert embed(krouter, "daily", encoding_format=form).status_code == 200
    reply = embed(krouter, "daily", encoding_format=form)
    assert reply.status_code == 400
    told = reply.json()["error"]["message"]
    assert "two/n gives vectors of 6 numbers, but the combo daily has given some of 8" in told
    assert "from one/m" in told
    refused = krouter.router.routes[-1].attempts[-1]
    assert refused.usage is not None
    assert refused.usage.input == 7, "it was paid for all the same"
    assert not [name for name in krouter.locks() if name.startswith("two")]
    assert sizes(embed(krouter, "two/n")) == [6], "asked for by name, it is nobody's rival"


def test_a_size_that_is_asked_for_is_another_kind_of_vector(
    start: Start, upstream: Upstream
) -> None:
    krouter = start("one/m")
    assert sizes(embed(krouter, "daily")) == [4]
    assert sizes(embed(krouter, "daily", dimensions=2)) == [2]
    assert sizes(embed(krouter, "daily")) == [4]


UNLIKE = ["openai/text-embedding-3-large", "combo/inner"]
INNER = {"inner": {"models": ["openai/text-embedding-3-small"]}}


def test_entries_known_to_differ_are_refused(start: Start, upstream: Upstream) -> None:
    settings = f'[provider.openai]\nbase_url = "{upstream.url}/v1"\nkey = "env:K"\n'
    krouter = start(*UNLIKE, combos=INNER, accounts={}, settings=settings, env={"K": "k-0"})
    reply = embed(krouter, "daily")
    assert reply.status_code == 400
    told = reply.json()["error"]["message"]
    assert "openai/text-embedding-3-large 3072, openai/text-embedding-3-small 1536" in told
    assert krouter.last_route["outcome"] == "vectors of different sizes"
    assert upstream.requests == []
    assert sizes(embed(krouter, "daily", dimensions=4)) == [4]
    assert sizes(embed(krouter, "inner")) == [4]


def test_a_provider_without_an_endpoint_is_passed_over(start: Start, upstream: Upstream) -> None:
    text = f'[provider.only]\nspeaks = ["messages"]\nbase_url = "{upstream.url}"\n'
    krouter = start("only/m", "one/n", settings=text)
    assert sizes(embed(krouter, "daily")) == [4]
    reply = embed(krouter, "only/m")
    assert reply.status_code == 501
    assert "cannot be reached for embeddings" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"input": "a"}, 400, "'model' is missing"),
        ({"model": "daily"}, 400, "'input' must be a text"),
        ({"model": "daily", "input": {}}, 400, "'input' must be a text"),
        ({"model": "nothing", "input": "a"}, 404, "Unknown model 'nothing'"),
    ],
)
def test_bad_requests(start: Start, body: Any, status: int, told: str) -> None:
    reply = start("one/m").http.post(PATH, json=body)
    assert reply.status_code == status
    assert told in reply.json()["error"]["message"]


@pytest.mark.parametrize("given", ["[]", "[ \n ]"])
def test_nothing_to_embed_is_told_as_openai_does(
    start: Start, upstream: Upstream, given: str
) -> None:
    krouter = start("one/m", "two/n")
    body = f'{{"model": "daily", "input": {given}}}'
    reply = krouter.http.post(PATH, content=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("'$.input' is invalid: it is an empty list")
    assert upstream.requests == []
    assert krouter.last_route["outcome"] == "bad request"


def test_a_fusion_runs_as_a_list(start: Start) -> None:
    krouter = start("one/m:status=500", "two/n", strategy="fusion")
    assert sizes(embed(krouter, "daily")) == [4]
