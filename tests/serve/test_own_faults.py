"""What goes wrong in krouter itself is told as an error of the caller's dialect, and stays in the
log: the next request is served."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from krouter.keys import add_key
from krouter.serve.strangers import Strangers
from tests.harness import Krouter

SECRET = "sk-canary-of-an-exception"


def broken() -> float:
    raise ValueError(SECRET)


async def broken_route() -> None:
    broken()


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    """One whose strangers break it, as does a part of its admin API."""
    home = tmp_path_factory.mktemp("home")
    key = add_key(home / "keys.json", "laptop", 0.0)
    with Krouter(home) as krouter:
        krouter.http.headers["x-krouter-key"] = key
        krouter.served.app.guard.strangers = Strangers(broken)
        krouter.served.app.rest.add_api_route("/api/broken", broken_route)
        yield krouter


@pytest.mark.parametrize(
    ("method", "path", "key"),
    [
        ("GET", "/api/broken", None),
        ("GET", "/api/routes", "wrong"),
        ("GET", "/v1/models", "wrong"),
        ("GET", "/v1beta/models", "wrong"),
        ("POST", "/v1/chat/completions", "wrong"),
        ("POST", "/v1/messages", "wrong"),
        ("POST", "/v1/messages/count_tokens", "wrong"),
        ("POST", "/v1/responses", "wrong"),
        ("POST", "/v1beta/models/demo:generateContent", "wrong"),
        ("POST", "/v1/embeddings", "wrong"),
    ],
)
def test_it_is_an_error_of_the_dialect(
    krouter: Krouter, method: str, path: str, key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {} if key is None else {"x-krouter-key": key}
    with caplog.at_level(logging.WARNING):
        reply = krouter.http.request(method, path, headers=headers)
    told = reply.json()
    assert (reply.status_code, reply.headers["content-type"]) == (500, "application/json")
    assert told["error"]["message"] == "krouter failed with ValueError. Its log says where."
    assert told.get("type") == ("error" if "messages" in path else None)
    assert ("status" in told["error"]) == ("beta" in path)
    assert [record.name for record in caplog.records] == ["krouter"]
    assert "in broken" in caplog.text
    assert SECRET not in caplog.text
    assert krouter.chat("demo").status_code == 200
