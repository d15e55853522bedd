"""Who gets in where no key is needed: this machine's programs, and no page of another site."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from krouter.keys import add_key
from krouter.paths import resolve_paths
from krouter.problems import ConfigError
from krouter.serve.intake import hostname
from krouter.serve.run import open_server
from tests.harness import Krouter

BODY = b'{"model":"demo","messages":[{"role":"user","content":"hello"}]}'


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    with Krouter(tmp_path_factory.mktemp("home")) as krouter:
        yield krouter


def exchange(krouter: Krouter, raw: bytes) -> bytes:
    """What comes back for these very bytes, up to the end of the connection."""
    at = urlsplit(krouter.url)
    with socket.create_connection((str(at.hostname), at.port or 0), timeout=30) as peer:
        peer.sendall(raw)
        return b"".join(iter(lambda: peer.recv(65536), b""))


def status(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1])


def get(target: str, *lines: str) -> bytes:
    head = (f"GET {target} HTTP/1.1", *lines, "connection: close")
    return "\r\n".join((*head, "", "")).encode("latin-1")


HOSTS = [
    ("localhost", 200),
    ("localhost:20128", 200),
    ("localhost:", 200),
    ("LocalHost:1", 200),
    ("localhost.", 200),
    ("localhost.:20128", 200),
    ("127.0.0.1", 200),
    ("[::1]", 200),
    ("[::1]:20128", 200),
    ("", 403),
    (":20128", 403),
    (".", 403),
    ("localhost..", 403),
    ("[::1", 403),
    ("[evil.example]", 403),
    ("::1", 403),
    ("evil.example", 403),
    ("evil.example:20128", 403),
    ("localhost.evil.example", 403),
    ("evil.example.localhost", 403),
    ("127.0.0.1.evil.example", 403),
    ("127.0.0.1:80:80", 403),
    ("localhost:port", 403),
    ("evil.example@localhost", 403),
    ("localhost@evil.example", 403),
    ("localhost/evil.example", 403),
    ("localhost?", 403),
    ("localhost#x", 403),
    ("localhost\\evil.example", 403),
    ("localhost, evil.example", 403),
    ("localhost evil.example", 403),
    ("l\xf6calhost", 403),
    ("0.0.0.0", 403),
    ("192.168.0.7:20128", 403),
]


@pytest.mark.parametrize(("host", "answer"), HOSTS)
def test_only_names_of_this_machine_are_answered_to(
    krouter: Krouter, host: str, answer: int
) -> None:
    assert status(exchange(krouter, get("/v1/models", f"host: {host}"))) == answer


def test_every_path_checks_the_name_that_a_page_had_rebound(krouter: Krouter) -> None:
    foreign = {"host": "evil.example:20128"}
    routes = [route.path for route in krouter.served.app.rest.routes if hasattr(route, "path")]
    for path in (*routes, "/", "/nowhere", "/v1/messages", "/v1/v1/models"):
        for method in ("GET", "POST", "OPTIONS", "PUT"):
            reply = krouter.http.request(method, path, headers=foreign)
            assert (path, method, reply.status_code) == (path, method, 403)
            assert "krouter" not in str(reply.headers)


def test_a_second_host_header_is_refused_wherever_it_stands(krouter: Krouter) -> None:
    for lines in (("host: localhost", "host: evil.example"), ("host: evil.example", "host: ::1")):
        assert status(exchange(krouter, get("/v1/models", *lines))) == 400
    assert status(exchange(krouter, get("/v1/models", "host: localhost", "host: localhost"))) == 400


def test_no_host_header_is_refused(krouter: Krouter) -> None:
    assert status(exchange(krouter, get("/v1/models"))) in (400, 403)
    assert status(exchange(krouter, b"GET /v1/models HTTP/1.0\r\n\r\n")) in (400, 403)


def test_a_target_with_a_host_of_its_own_does_not_stand_in_for_the_header(krouter: Krouter) -> None:
    for target in ("http://localhost/v1/models", "http://evil.example/v1/models"):
        assert status(exchange(krouter, get(target, "host: evil.example"))) == 403
    assert status(exchange(krouter, get("http://localhost/v1/models", "host: localhost"))) == 200


@pytest.mark.parametrize("name", ["localhost", "BOX.lan"])
def test_names_that_are_allowed_are_held_against_the_whole_name(name: str) -> None:
    assert hostname(name) == hostname(f"{name}.:1") == name.lower()
    assert hostname(f"x{name}") != name.lower()


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "127.1", "0", "localhost.localdomain", "1.2.3.4", "box.lan", "*"]
)
def test_no_other_address_is_listened_on_without_a_key(tmp_path: Path, host: str) -> None:
    paths = resolve_paths(home=tmp_path, env={}, cwd=tmp_path)
    with pytest.raises(ConfigError, match="no key exists") as refused:
        open_server(paths, {}, host=host, port=0)
    assert "krouter keys add NAME" in str(refused.value)
    (tmp_path / "krouter.toml").write_text(f'[server]\nhost = "{host}"\n')
    with pytest.raises(ConfigError, match="no key exists"):
        open_server(paths, {}, port=0)


def test_a_key_that_is_removed_does_not_open_a_public_door(tmp_path: Path) -> None:
    add_key(tmp_path / "keys.json", "laptop", 0.0)
    with Krouter(tmp_path, host="0.0.0.0") as public:
        port = urlsplit(public.url).port
        (tmp_path / "keys.json").write_text('{"keys": []}')
        for path in ("/v1/models", "/api/routes", "/metrics"):
            reply = public.http.get(f"http://127.0.0.1:{port}{path}")
            assert reply.status_code == 401


HERE = "{here}"
EVIL = "https://evil.example"
CROSS = {"origin": EVIL, "sec-fetch-site": "cross-site"}
FORMS = ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded"]
FORMS += ["multipart/form-data; boundary=x", ""]
CALLS = ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"]
CALLS += ["/v1beta/models/demo:generateContent", "/v1/messages/count_tokens"]
FOREIGN: list[dict[str, str]] = [
    CROSS,
    {"origin": EVIL},
    {"origin": "null"},
    {"origin": ""},
    {"origin": "http://127.0.0.1:1"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    {"sec-fetch-site": "same-site"},
    {"origin": HERE, "sec-fetch-site": "cross-site"},
]


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("path", CALLS)
def test_no_page_spends_what_it_need_not_ask_for(krouter: Krouter, path: str, kind: str) -> None:
    """What a browser sends for a page without asking first can cost, though it reads no reply."""
    before = len(krouter.router.routes)
    for given in FOREIGN:
        headers = {name: value.format(here=krouter.url) for name, value in given.items()}
        headers |= {"content-type": kind} if kind else {}
        reply = krouter.http.post(path, content=BODY, headers=headers)
        assert reply.status_code == 403
        assert "cors_origins" in reply.json()["error"]["message"]
    assert len(krouter.router.routes) == before


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/x-www-form-urlencoded"},
        {"origin": HERE, "content-type": "text/plain"},
        {"origin": HERE, "sec-fetch-site": "same-origin"},
        {"origin": "chrome-extension://abc", "content-type": "application/json"},
    ],
)
def test_programs_and_what_a_browser_asks_for_first_are_let_in(
    krouter: Krouter, headers: dict[str, str]
) -> None:
    given = {name: value.format(here=krouter.url) for name, value in headers.items()}
    reply = krouter.http.post("/v1/chat/completions", content=BODY, headers=given)
    assert reply.status_code == 200


@pytest.mark.parametrize("origins", [[EVIL], ["*"]])
def test_an_origin_that_is_configured_may_send_what_it_likes(
    tmp_path: Path, origins: list[str]
) -> None:
    with Krouter(tmp_path, settings=f"[server]\ncors_origins = {origins}\n") as open_to:
        reply = open_to.http.post(
            "/v1/chat/completions", content=BODY, headers={**CROSS, "content-type": "text/plain"}
        )
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) in (
            (200, EVIL),
            (200, "*"),
        )
        assert open_to.http.get("/api/routes", headers=CROSS).status_code == 403


def preflight(krouter: Krouter, path: str, origin: str) -> Any:
    asked = {"origin": origin, "access-control-request-method": "POST"}
    asked |= {"access-control-request-headers": "content-type,authorization"}
    asked |= {"access-control-request-private-network": "true"}
    return krouter.http.options(path, headers=asked)


@pytest.mark.parametrize("path", [*CALLS, "/v1/models", "/health", "/metrics", "/api/quota", "/no"])
def test_no_page_is_given_leave_unless_configured(krouter: Krouter, path: str) -> None:
    for origin in (EVIL, "null", krouter.url):
        replies = [preflight(krouter, path, origin)]
        replies += [krouter.http.get(path, headers={"origin": origin})]
        for reply in replies:
            assert reply.status_code != 200 or reply.request.method == "GET"
            assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize("origins", [[EVIL], ["*"]])
@pytest.mark.parametrize("path", [*CALLS, "/health", "/api/quota", "/no"])
def test_no_page_under_a_rebound_name_is_given_leave(
    tmp_path: Path, origins: list[str], path: str
) -> None:
    with Krouter(tmp_path, settings=f"[server]\ncors_origins = {origins}\n") as open_to:
        asked = {"origin": EVIL, "access-control-request-method": "POST"}
        assert open_to.http.options(path, headers=asked).status_code == 200
        asked["host"] = "evil.example"
        for method in ("OPTIONS", "GET", "POST"):
            reply = open_to.http.request(method, path, headers=asked)
            assert (reply.status_code, "evil.example" in reply.text) == (403, True)
            assert not [name for name in reply.headers if name.startswith("access-control")]


ADMIN = [
    *(("GET", f"/api/{each}") for each in ("quota", "routes", "view", "live", "log", "faults")),
    *(("POST", f"/api/{each}") for each in ("quota", "x", "whatif", "providers/demo/test")),
    *(("PUT", f"/api/{each}") for each in ("settings", "providers/demo", "combos/c")),
    *(("GET", "/api/combos/demo"), ("DELETE", "/api/combos/demo?digest=")),
    ("POST", "/api/combos/demo/preview"),
]


@pytest.mark.parametrize(("method", "path"), ADMIN)
@pytest.mark.parametrize("kind", [*FORMS, "application/json"])
def test_no_page_of_another_site_reaches_the_admin_api(
    krouter: Krouter, method: str, path: str, kind: str
) -> None:
    for given in FOREIGN:
        headers = {name: value.format(here=krouter.url) for name, value in given.items()}
        headers |= {"content-type": kind} if kind else {}
        assert krouter.http.request(method, path, content=b"{}", headers=headers).status_code == 403


def test_a_header_given_twice_hides_no_origin(krouter: Krouter) -> None:
    for first, second in ((EVIL, krouter.url), (krouter.url, EVIL)):
        pairs = [("origin", first), ("origin", second), ("content-type", "application/json")]
        reply = krouter.http.post("/api/quota", content=b"{}", headers=pairs)
        assert reply.status_code == 403
