"""The provider as it speaks OpenAI responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.responses_validator import check_responses_stream
from tests.upstream import Upstream
from tests.validators import events

PATH = "/v1/responses"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": None}
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Upstream) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=5) as opened:
        yield opened


@pytest.fixture(scope="module")
def sdk(server: Upstream) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-fake", max_retries=0) as opened:
        yield opened


def body(words: str, **fields: Any) -> dict[str, Any]:
    return {"model": f"a:{words}", "input": list(HELLO), **fields}


def streamed(client: httpx.Client, words: str) -> bytes:
    return client.post(PATH, json=body(words, stream=True, tools=[TOOL])).content


def test_reply(sdk: Any) -> None:
    reply = sdk.responses.create(**body("text=Hi there;thinking;usage=5,7"))
    assert reply.output_text == "Hi there"
    assert [item.type for item in reply.output] == ["reasoning", "message"]
    assert (reply.status, reply.usage.input_tokens, reply.usage.total_tokens) == (
        "completed",
        5,
        12,
    )
    assert reply.model_extra == {"x_upstream": {"kept": True}}


@pytest.mark.parametrize("shape", ["", ";sse=crlf,comments,tight", ";split=1", ";sse=bom"])
def test_stream(sdk: Any, shape: str) -> None:
    asked = body(f"thinking;text=Look;tool{shape}", tools=[TOOL])
    with sdk.responses.stream(**asked) as stream:
        final = stream.get_final_response()
    whole = sdk.responses.create(**asked)
    for reply in (final, whole):
        assert [item.type for item in reply.output] == ["reasoning", "message", "function_call"]
        assert reply.output_text == "Look"
        assert json.loads(reply.output[2].arguments) == {"city": "x"}


@pytest.mark.parametrize(
    "words",
    ["ok", "chunks=20", "text=", "thinking=only", "tool", "empty=done", "finish=incomplete"],
)
def test_a_good_stream_is_what_strict_clients_want(client: httpx.Client, words: str) -> None:
    assert check_responses_stream(streamed(client, words)).ending == "complete"


def test_tool_then_answer(sdk: Any) -> None:
    call = sdk.responses.create(**body("tool", tools=[TOOL])).output[0]
    answer = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    asked = body("tool", tools=[TOOL])
    asked["input"] += [call.to_dict(), answer]
    assert sdk.responses.create(**asked).output_text.startswith("All is")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (429, openai.RateLimitError),
        (529, openai.InternalServerError),
    ],
)
def test_error(sdk: Any, status: int, kind: type[openai.APIError]) -> None:
    with pytest.raises(kind, match="too bad"):
        sdk.responses.create(**body(f"status={status};message=too bad"))


@pytest.mark.parametrize("place", [0, 3])
def test_error_event(sdk: Any, place: int) -> None:
    seen: list[Any] = []
    asked = body(f"error={place};message=too bad", stream=True)
    with pytest.raises(openai.APIError, match="too bad"):
        seen.extend(sdk.responses.create(**asked))
    assert len(seen) == place


def test_a_failed_response(client: httpx.Client) -> None:
    assert check_responses_stream(streamed(client, "finish=failed")).ending == "error"
    reply = client.post(PATH, json=body("finish=failed"))
    assert (reply.status_code, reply.json()["status"]) == (200, "failed")
    assert reply.json()["error"]["code"] == "server_error"


@pytest.mark.parametrize(
    ("kind", "output", "status"),
    [
        ("missing", "missing", None),
        ("list", [], None),
        ("text", [""], None),
        ("null", None, None),
        ("done", [], "completed"),
    ],
)
def test_an_empty_reply(client: httpx.Client, kind: str, output: Any, status: Any) -> None:
    reply = client.post(PATH, json=body(f"empty={kind}")).json()
    found = reply.get("output", "missing")
    said = [item["content"][0]["text"] for item in found] if isinstance(found, list) else found
    assert (said, reply["status"]) == (output, status)


@pytest.mark.parametrize(
    ("part", "gone"),
    [
        ("done", b"response.completed"),
        ("finish", b"response.completed"),
        ("usage", b'"total_tokens"'),
        ("event", b"event:"),
    ],
)
def test_left_out(client: httpx.Client, part: str, gone: bytes) -> None:
    assert gone in streamed(client, "ok")
    assert gone not in streamed(client, f"no={part}")


def test_a_stream_that_ends_early(client: httpx.Client) -> None:
    raw = streamed(client, "end=4")
    assert len(events(raw)) == 4
    assert check_responses_stream(raw).ending == "open"


def test_compressed(client: httpx.Client) -> None:
    reply = client.post(PATH, json=body("gzip", stream=True))
    assert reply.headers["content-encoding"] == "gzip"
    assert check_responses_stream(reply.content).ending == "complete"
