"""Whatever comes in gets a clear error in its own dialect, and the server lives on."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.harness import Krouter

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    settings = "[server]\nbody_limit = 1\n"
    with Krouter(tmp_path_factory.mktemp("home"), settings=settings) as krouter:
        yield krouter


BODIES: list[tuple[str, bytes, int, str]] = [
    ("empty", b"", 400, "is empty"),
    ("not JSON", b"hello", 400, "not JSON"),
    ("cut", b'{"model": "demo"', 400, "not JSON"),
    ("a list", b"[]", 400, "must be a JSON object"),
    ("not UTF-8", b'{"model": "demo", "x": "\xff"}', 400, "not UTF-8"),
    ("NaN", b'{"model": "demo", "temperature": NaN}', 400, "not JSON"),
    ("deep", b'{"model": "demo", "x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", 400, "deeply"),
    ("no model", b'{"messages": []}', 400, "'model' is missing"),
    ("model null", b'{"model": null, "messages": []}', 400, "'model' must be a text"),
    ("model blank", b'{"model": " ", "messages": []}', 400, "'model' must be a text"),
    ("model number", b'{"model": 4, "messages": []}', 400, "'model' must be a text"),
    ("stream text", b'{"model": "demo", "messages": [], "stream": "yes"}', 400, "'stream' must be"),
    ("no messages", b'{"model": "demo"}', 400, "'messages' must be a list"),
    ("messages text", b'{"model": "demo", "messages": "hi"}', 400, "'messages' must be a list"),
    ("unknown", b'{"model": "dmeo", "messages": []}', 404, "Did you mean 'demo'?"),
    ("unknown provider", b'{"model": "glmm/x", "messages": []}', 404, "'glm/x'"),
    ("no model part", b'{"model": "glm/", "messages": []}', 404, "Unknown model 'glm/'"),
    ("long name", b'{"model": "glm/' + b"a" * 9999 + b'", "messages": []}', 404, "at most 300"),
    ("path trick", b'{"model": "../../etc/passwd", "messages": []}', 404, "Unknown model"),
    ("too large", b'{"model": "demo", "x": "' + b"a" * (1 << 20) + b'"}', 413, "1 MiB"),
]


@pytest.mark.parametrize(
    ("body", "status", "says"), [b[1:] for b in BODIES], ids=[b[0] for b in BODIES]
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_bad_body(krouter: Krouter, path: str, body: bytes, status: int, says: str) -> None:
    reply = krouter.http.post(path, content=body, headers={"content-type": "application/json"})
    assert reply.status_code == status
    error = told(path, reply.json())
    assert says in error["message"]
    assert krouter.chat("demo").status_code == 200


BAD_INPUT = [
    (b"", 400, "is empty"),
    (b'{"input": []}', 400, "'model' is missing"),
    (b'{"model": "demo"}', 400, "'input' must be a text or a list"),
    (b'{"model": "demo", "messages": []}', 400, "'input' must be a text or a list"),
    (b'{"model": "demo", "input": [], "stream": "yes"}', 400, "'stream' must be"),
    (b'{"model": "dmeo", "input": "hi"}', 404, "Did you mean 'demo'?"),
    (b'{"model": "demo", "x": "' + b"a" * (1 << 20) + b'"}', 413, "1 MiB"),
]


@pytest.mark.parametrize(("body", "status", "says"), BAD_INPUT)
def test_a_bad_body_of_responses(krouter: Krouter, body: bytes, status: int, says: str) -> None:
    reply = krouter.http.post("/v1/responses", content=body)
    assert reply.status_code == status
    assert says in told("/v1/responses", reply.json())["message"]


def told(path: str, body: Any) -> Any:
    """The error object, after a look at the form its dialect wants."""
    if path == "/v1/messages":
        assert body["type"] == "error"
        assert body["error"]["type"] in (
            "invalid_request_error",
            "not_found_error",
            "request_too_large",
        )
    else:
        assert {"message", "type", "code", "param"} <= body["error"].keys()
    return body["error"]


def test_200_megabytes_are_refused_and_not_kept(krouter: Krouter) -> None:
    piece = b"a" * (1 << 20)
    connection = http.client.HTTPConnection(urlsplit(krouter.url).netloc, timeout=60)
    connection.request(
        "POST",
        "/v1/messages",
        body=(piece for _ in range(200)),
        headers={"content-length": str(200 << 20), "content-type": "application/json"},
    )
    reply = connection.getresponse()
    assert reply.status == 413
    assert json.loads(reply.read())["error"]["type"] == "request_too_large"
    connection.close()
    assert krouter.chat("demo").status_code == 200


def test_a_body_without_a_length_is_bounded_too(krouter: Krouter) -> None:
    pieces = (b"a" * 65536 for _ in range(64))
    reply = krouter.http.post("/v1/chat/completions", content=pieces)
    assert reply.status_code == 413


def test_a_caller_that_leaves_within_its_body(krouter: Krouter) -> None:
    host, port = urlsplit(krouter.url).netloc.split(":")
    with socket.create_connection((host, int(port))) as caller:
        caller.sendall(
            b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{"
        )
    assert krouter.chat("demo").status_code == 200


OTHERS = [
    ("GET", "/v1/chat/completions", {}, 405),
    ("GET", "/v1/messages", {}, 405),
    ("GET", "/v1/responses", {}, 405),
    ("DELETE", "/v1/responses", {}, 405),
    ("GET", "/v1/responses/resp_1", {}, 404),
    ("POST", "/v1/responses/resp_1/cancel", {}, 404),
    ("PUT", "/v1/models", {}, 405),
    ("GET", "/nowhere", {}, 404),
    ("HEAD", "/api/hello", {}, 404),
    ("GET", "/v1/models/nobody", {}, 404),
    ("GET", "/api/routes/none", {}, 404),
    ("GET", "/v1/responses", {"connection": "upgrade", "upgrade": "websocket"}, 426),
    ("POST", "/v1/messages", {"content-encoding": "zstd"}, 415),
]


@pytest.mark.parametrize(("method", "path", "headers", "status"), OTHERS)
def test_what_is_not_there(
    krouter: Krouter, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    reply = krouter.http.request(method, path, headers=headers)
    assert reply.status_code == status
    if method != "HEAD":
        assert reply.json()["error"]["message"]
    assert krouter.chat("demo").status_code == 200


GET = "GET, HEAD"
TAKES = [
    ("PUT", "/v1/messages", "POST"),
    ("DELETE", "/v1/responses", "POST"),
    ("PUT", "/v1/models", GET),
    ("POST", "/v1/models/demo", GET),
    ("DELETE", "/v1beta/models", GET),
    ("POST", "/v1beta/models/demo", GET),
    ("PUT", "/v1beta/models/demo:free", GET),
    ("GET", "/v1beta/models/demo:generateContent", "POST"),
    ("GET", "/v1/models/demo:streamGenerateContent", "POST"),
    ("PUT", "/api/quota", "GET, HEAD, POST"),
    ("POST", "/api/routes", GET),
    ("POST", "/health", GET),
    ("POST", "/", GET),
]


@pytest.mark.parametrize(("method", "path", "allow"), TAKES)
def test_what_a_path_takes_is_told(krouter: Krouter, method: str, path: str, allow: str) -> None:
    reply = krouter.http.request(method, path)
    assert (reply.status_code, reply.headers["allow"]) == (405, allow)
    error = reply.json()["error"]
    assert f"takes {allow}, not {method}." in error["message"]
    assert reply.json().get("type") == ("error" if path == "/v1/messages" else None)
    assert ("status" in error) == path.endswith("Content") or path.startswith("/v1beta/")


def test_google_is_told_in_its_form(krouter: Krouter) -> None:
    error = krouter.http.get("/v1beta/models/demo:generateContent").json()["error"]
    assert (error["code"], error["status"]) == (405, "INVALID_ARGUMENT")


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models", "/v1/models/demo", "/metrics"])
def test_where_there_is_get_there_is_head(krouter: Krouter, path: str) -> None:
    reply = krouter.http.head(path)
    assert (reply.status_code, reply.content) == (200, b"")
    assert reply.headers["content-type"] == krouter.http.get(path).headers["content-type"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/nowhere", "/v1/nothing", "/v1beta/nothing", "/api/nothing"])
def test_a_path_that_is_unknown_is_404_for_all(krouter: Krouter, method: str, path: str) -> None:
    assert krouter.http.request(method, path).status_code == 404


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/models/dmeo", "Did you mean 'demo'? GET /v1/models lists"),
        ("/v1beta/models/dmeo", "Did you mean 'demo'? GET /v1beta/models lists"),
        ("/api/routes/none", "No route 'none' is remembered"),
        ("/nowhere", "There is nothing at /nowhere. GET / lists"),
        ("/v1/responses/resp_1", "krouter stores no responses"),
    ],
)
def test_what_was_not_found_and_what_there_is(krouter: Krouter, path: str, told: str) -> None:
    assert told in krouter.http.get(path).json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/models/nobody", "model_not_found"),
        ("/api/routes/none", "not_found"),
        ("/api/nothing", "not_found"),
        ("/nowhere", "not_found"),
    ],
)
def test_only_a_model_is_a_model_that_was_not_found(krouter: Krouter, path: str, code: str) -> None:
    error = krouter.http.get(path).json()["error"]
    assert (error["code"], error["type"]) == (code, "invalid_request_error")


def test_a_doubled_version_works(krouter: Krouter) -> None:
    body = {"model": "demo", "messages": HELLO}
    assert krouter.http.post("/v1/v1/chat/completions", json=body).status_code == 200
