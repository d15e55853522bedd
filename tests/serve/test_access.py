"""Safe by default: who may ask, from where, and what a key opens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from krouter.keys import add_key
from krouter.paths import resolve_paths
from krouter.problems import ConfigError
from krouter.serve.run import open_server
from tests.harness import Krouter

BODY = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def open_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    settings = '[server]\nallowed_hosts = ["box.lan"]\n'
    with Krouter(tmp_path_factory.mktemp("home"), settings=settings) as krouter:
        yield krouter


@pytest.fixture(scope="module")
def locked_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Krouter, str]]:
    home = tmp_path_factory.mktemp("home")
    key = add_key(home / "keys.json", "laptop", 0.0)
    with Krouter(home) as krouter:
        yield krouter, key


def test_any_other_address_than_loopback_needs_a_key(tmp_path: Path) -> None:
    paths = resolve_paths(home=tmp_path, env={}, cwd=tmp_path)
    with pytest.raises(ConfigError, match="krouter keys add"):
        open_server(paths, {}, host="0.0.0.0", port=0)
    add_key(paths.keys, "laptop", 0.0)
    open_server(paths, {}, host="0.0.0.0", port=0).socket.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:20128", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:20128", 200),
        ("LOCALHOST", 200),
        ("box.lan", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:20128", 403),
        ("", 403),
    ],
)
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/models", "/health", "/api/routes", "/metrics"]
)
def test_the_host_header_is_checked(open_door: Krouter, host: str, status: int, path: str) -> None:
    method, body = ("POST", BODY) if path.startswith("/v1/chat") else ("GET", None)
    reply = open_door.http.request(method, path, json=body, headers={"host": host})
    assert reply.status_code == status


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("authorization", "Bearer {}"),
        ("authorization", "bearer {}"),
        ("x-api-key", "{}"),
        ("x-goog-api-key", "{}"),
        ("x-krouter-key", "{}"),
    ],
)
def test_a_key_is_taken_from_every_header(
    locked_door: tuple[Krouter, str], path: str, header: str, form: str
) -> None:
    krouter, key = locked_door
    ask = krouter.http.post
    assert ask(path, json=BODY).status_code == 401
    assert ask(path, json=BODY, headers={header: form.format("kr-wrong")}).status_code == 401
    assert ask(path, json=BODY, headers={header: form.format(key)}).status_code == 200


@pytest.mark.parametrize("path", ["/v1beta/models", "/v1beta/models/demo"])
def test_googles_clients_may_put_the_key_into_the_query(
    locked_door: tuple[Krouter, str], path: str, caplog: pytest.LogCaptureFixture
) -> None:
    krouter, key = locked_door
    assert krouter.http.get(path).status_code == 401
    assert krouter.http.get(path, params={"key": "kr-wrong"}).status_code == 401
    assert krouter.http.get(path, params={"key": key}).status_code == 200
    assert krouter.http.get("/v1beta/models/x", params={"key": key}).status_code == 404
    assert krouter.http.get("/v1/models", params={"key": key}).status_code == 401
    told = [*krouter.lines, *(each.getMessage() for each in caplog.records)]
    ours = [line for line in told if "HTTP Request" not in line]  # the test's own client logs its
    assert not [line for line in ours if key in line]


def test_keys_close_everything_but_health(tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json", "laptop", 0.0)
    with Krouter(tmp_path) as krouter:
        closed = ("/", "/v1/models", "/api/routes", "/api/routes/x", "/openapi.json", "/metrics")
        for path in closed:
            assert krouter.http.get(path).status_code == 401, path
        assert krouter.http.get("/health").status_code == 200
        listed = krouter.http.get("/v1/models", headers={"x-api-key": key})
        assert listed.status_code == 200


def test_a_refusal_has_the_dialect_of_its_endpoint(tmp_path: Path) -> None:
    add_key(tmp_path / "keys.json", "laptop", 0.0)
    with Krouter(tmp_path) as krouter:
        messages = krouter.http.post("/v1/messages", json=BODY).json()
        assert messages["type"] == "error"
        assert messages["error"]["type"] == "authentication_error"
        chat = krouter.http.post("/v1/chat/completions", json=BODY).json()
        assert chat["error"]["code"] == "invalid_api_key"


def test_the_key_file_holds_no_key(tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json", "laptop", 0.0)
    text = (tmp_path / "keys.json").read_text()
    assert key not in text
    assert json.loads(text)["keys"][0]["name"] == "laptop"
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600


def test_no_page_of_another_origin_may_read(tmp_path: Path) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    with Krouter(tmp_path) as krouter:
        reply = krouter.http.options("/v1/chat/completions", headers=asked)
        assert reply.status_code == 405
        answered = krouter.http.get("/v1/models", headers={"origin": "https://evil.example"})
        assert not [name for name in answered.headers if name.startswith("access-control")]


def test_an_origin_that_is_configured_may(tmp_path: Path) -> None:
    settings = '[server]\ncors_origins = ["https://tool.example"]\n'
    with Krouter(tmp_path, settings=settings) as krouter:
        allowed = krouter.http.get("/v1/models", headers={"origin": "https://tool.example"})
        assert allowed.headers["access-control-allow-origin"] == "https://tool.example"
        other = krouter.http.get("/v1/models", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
