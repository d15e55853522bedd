"""Calls of OpenAI responses on real sockets: what a stream that fails looks like, and what is
refused because another provider has stored it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from krouter.sse import encode
from tests.harness import Krouter, provider_settings
from tests.responses_validator import check_responses_stream
from tests.upstream import Behaviour, Upstream
from tests.validators import events


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    settings, env = provider_settings(upstream.url, one="a", two="x", both="a b")
    settings += f'[provider.chatty]\nspeaks = ["chat"]\nbase_url = "{upstream.url}/v1"\n'
    combos = {
        "daily": {"models": ["one/m", "two/good"], "timeouts": {"stall": 0.2}},
        "content": {"models": ["one/m", "two/good"], "timeouts": {"firstToken": 5}},
    }
    settings = '[aliases]\nfast = "daily"\nplain = "one/m"\n' + settings
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, combos=combos, settings=settings, env=env) as krouter:
        yield krouter


@pytest.fixture
def krouter(served: Krouter, upstream: Upstream) -> Krouter:
    upstream.clear()
    served.forget()
    served.router.routes.clear()
    return served


@pytest.mark.parametrize("does", ["ok", "thinking", "tool=look", "thinking;tool=look", "usage=3,4"])
@pytest.mark.parametrize(
    "shape",
    [
        *("", ";sse=crlf,comments", ";split=1", ";gzip"),
        pytest.param(";no=event", marks=pytest.mark.native_garbage("event lines are left out")),
    ],
)
def test_a_whole_stream(krouter: Krouter, upstream: Upstream, does: str, shape: str) -> None:
    upstream.script("m", [does + shape])
    raw = krouter.responses("daily", True).content
    if "no=event" not in shape:
        heard = check_responses_stream(raw)
        assert (heard.ending, heard.reason) == ("complete", "completed")
        assert bool(heard.calls) is ("tool" in does)
        assert len(heard.signatures) == ("thinking" in does)
    krouter.idle()
    assert krouter.last_route["outcome"] == "answered"
    assert krouter.last_route["usage"]["output"] > 0


def test_an_incomplete_response_is_an_answer(krouter: Krouter, upstream: Upstream) -> None:
    upstream.script("m", ["finish=incomplete"])
    heard = check_responses_stream(krouter.responses("daily", True).content)
    assert (heard.ending, heard.reason) == ("complete", "max_output_tokens")
    assert krouter.responses("daily").json()["status"] == "incomplete"
    assert len(upstream.requests) == 2


CUT = "The provider's reply was cut short"
SILENT = "The provider did not answer in time"


@pytest.mark.parametrize(
    ("does", "row", "whole"),
    [
        ("reset=2", 10, 2),
        ("close=5", 10, 5),
        ("end=2", 10, 2),
        ("stall=2", 11, 2),
        ("reset=5;half", 10, 5),
        ("close=2;half", 10, 2),
        ("end=6;half", 10, 6),
        ("stall=2;half", 11, 2),
        ("no=done", 10, 10),
        ("no=finish", 10, 10),
        ("empty=missing", 10, 2),
    ],
)
def test_a_broken_stream_ends_with_a_failed_response(
    krouter: Krouter, upstream: Upstream, does: str, row: int, whole: int
) -> None:
    upstream.script("m", [does])
    raw = krouter.responses("daily", True).content
    assert check_responses_stream(raw).ending == "error"
    told = [json.loads(event.data or b"") for event in events(raw)]
    assert [each["type"] for each in told[whole:]] == ["error", "response.failed"]
    assert [each["sequence_number"] for each in told] == list(range(len(told)))
    error = told[-1]["response"]["error"]
    assert error["message"].startswith(SILENT if row == 11 else CUT)
    assert error["krouter_route"] == krouter.last_route["id"]
    assert told[-1]["response"]["x_upstream"] == {"kept": True}
    krouter.idle()
    [step] = krouter.last_route["steps"]
    assert step["row"] == row
    assert krouter.locks() == ({"one/a/m": (11, 2.0)} if row == 11 else {})


def test_an_error_event_of_the_provider_is_followed_by_a_failed_response(
    krouter: Krouter, upstream: Upstream
) -> None:
    upstream.script("m", ["error=4;status=429;message=too%20much"])
    raw = krouter.responses("daily", True).content
    assert check_responses_stream(raw).ending == "error"
    *_, error, failed = [json.loads(event.data or b"") for event in events(raw)]
    assert error["error"]["message"] == "too much"
    assert (
        failed["response"]["error"].items()
        >= {
            "message": "too much",
            "code": "rate_limit_exceeded",
        }.items()
    )
    krouter.idle()
    assert krouter.last_route["steps"][0]["row"] == 8


def failing(*, begun: bool = True) -> bytes:
    """A stream that fails as OpenAI's do: an `error`, then `response.failed` with its counts."""
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "incomplete"}
    usage = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
    error = {"code": "rate_limit_exceeded", "message": "too much"}
    failed = {**response, "status": "failed", "error": error, "output": [said], "usage": usage}
    told: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": response}),
        ("error", {"error": error}),
        ("response.failed", {"response": failed}),
    ]
    return b"".join(
        encode(json.dumps({"type": kind, "sequence_number": at, **fields}).encode(), kind)
        for at, (kind, fields) in enumerate(told)
        if begun or at
    )


@pytest.mark.native_garbage("responses without all of their fields")
def test_an_error_and_the_failed_response_after_it_pass_as_they_came(
    krouter: Krouter, upstream: Upstream
) -> None:
    upstream.script("m", [Behaviour(body=failing())])
    assert krouter.responses("daily", True).content == failing()
    krouter.idle()
    route = krouter.last_route
    assert (route["steps"][0]["row"], route["usage"]["output"]) == (8, 3)


def test_an_error_as_the_first_event_goes_to_the_next_entry(
    krouter: Krouter, upstream: Upstream
) -> None:
    upstream.script("m", [Behaviour(body=failing(begun=False))])
    reply = krouter.responses("daily", True)
    assert reply.headers["x-krouter-model"] == "two/good"
    assert check_responses_stream(reply.content).ending == "complete"


def test_a_failed_response_of_the_provider_passes_as_it_came(
    krouter: Krouter, upstream: Upstream
) -> None:
    upstream.script("m", ["finish=failed"])
    raw = krouter.responses("daily", True).content
    assert check_responses_stream(raw).ending == "error"
    assert b"event: error" not in raw
    krouter.idle()
    assert krouter.last_route["steps"][0]["row"] == 10


def test_a_failed_response_inside_a_200_goes_to_the_next_entry(
    krouter: Krouter, upstream: Upstream
) -> None:
    upstream.script("m", ["finish=failed"])
    assert krouter.responses("daily").headers["x-krouter-model"] == "two/good"
    reply = krouter.responses("one/m")
    assert (reply.status_code, reply.json().keys()) == (502, {"error"})


@pytest.mark.parametrize("does", ["close=2", "error=2;status=529", "end=3"])
def test_with_a_limit_to_the_first_token_a_stream_is_held_until_then(
    krouter: Krouter, upstream: Upstream, does: str
) -> None:
    upstream.script("m", [does])
    reply = krouter.responses("content", True)
    assert reply.headers["x-krouter-model"] == "two/good"
    assert check_responses_stream(reply.content).ending == "complete"


@pytest.mark.parametrize(
    ("gate", "until", "outcome"),
    [
        ("gate=more,3", b"output_item.added", "caller gone"),
        ("gate=more,11", b"event: response.completed", "answered"),
    ],
)
def test_a_caller_that_leaves(
    krouter: Krouter, upstream: Upstream, gate: str, until: bytes, outcome: str
) -> None:
    upstream.script("m", [gate])
    body = json.dumps({"model": "daily", "input": "hi", "stream": True}).encode()
    head = f"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
    url = httpx.URL(krouter.url)
    with socket.create_connection((url.host, url.port or 80), 5) as caller:
        caller.sendall(head.encode() + body)
        got = b""
        while until not in got:
            piece = caller.recv(65536)
            assert piece, got
            got += piece
    krouter.idle()
    assert krouter.last_route["outcome"] == outcome
    assert krouter.locks() == {}


PREVIOUS = {"previous_response_id": "resp_1"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["daily", "fast", "both/m", "chatty/m", "demo"])
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (PREVIOUS, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "rs_1"}]}, "input"),
    ],
)
def test_what_another_has_stored_is_refused(
    krouter: Krouter,
    upstream: Upstream,
    fields: dict[str, Any],
    field: str,
    model: str,
    stream: bool,
) -> None:
    reply = krouter.responses(model, stream, **fields)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", field)
    assert model in error["message"]
    is_previous = fields is PREVIOUS
    assert (error["code"] == "previous_response_not_found") is is_previous
    assert reply.headers["x-krouter-route"] == krouter.last_route["id"]
    assert krouter.last_route["outcome"] == "stored elsewhere"
    assert not upstream.requests


@pytest.mark.parametrize("model", ["one/m", "plain"])
def test_what_a_single_account_has_stored_passes(
    krouter: Krouter, upstream: Upstream, model: str
) -> None:
    assert krouter.responses(model, **PREVIOUS).status_code == 200
    assert upstream.requests[-1].json["previous_response_id"] == "resp_1"
