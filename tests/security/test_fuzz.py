"""Whatever comes in: readers of bodies, streams, settings and combos end soon and raise only their
own errors, and the admin API never fails."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from krouter.adapter import Call
from krouter.body import Body
from krouter.combos import Combo, parse_combo
from krouter.dialects import DIALECTS, ENDPOINTS
from krouter.dialects.base import Dialect
from krouter.dialects.long import Seen
from krouter.dialects.needs import needs
from krouter.dialects.session import session_key
from krouter.dialects.strip import without_images
from krouter.dialects.thinking import thinking_digests, without_thinking
from krouter.errortext import read_error, without_echo
from krouter.problems import ConfigError
from krouter.serve.intake import Refusal, hostname, parse_call, with_key_of
from krouter.settings import Settings, parse_settings
from krouter.sse import Splitter, SSEError
from tests.harness import Krouter, provider_settings

SECONDS = 2.0
"""More than any single input may take, of this thread's own time."""

TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", " ", "\0", "\ud800", "x" * 999, "data:image/png;base64,", "demo", "demo/assistant", "-1"]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 2**63, 10**40, 1e308, -0.0])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
FIELDS = st.sampled_from(
    "model messages input contents stream system tools tool_choice role content type text parts"
    " image_url url source data thinking signature id name function arguments tool_calls"
    " tool_use_id metadata user_id max_tokens max_output_tokens n instructions generationConfig"
    " systemInstruction inlineData mimeType functionCall reasoning summary encrypted_content"
    " cache_control previous_response_id prompt_cache_key stream_options response_format".split()
)
KINDS = st.sampled_from(
    "text image image_url input_text input_image thinking tool_use tool_result function message"
    " reasoning function_call function_call_output user assistant system tool model".split()
)


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=4) | st.dictionaries(FIELDS | TEXTS, inner, max_size=5)


JSON = st.recursive(SCALARS | KINDS, _deeper, max_leaves=25)
BODIES = st.dictionaries(FIELDS, JSON, max_size=8)


def raw(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


WHOLE = st.builds(
    lambda body, said: {**body, "model": "demo", "messages": said, "input": said, "contents": said},
    BODIES,
    st.lists(st.dictionaries(FIELDS, JSON, max_size=5) | JSON, max_size=4),
)
BYTES = (WHOLE | BODIES | JSON).map(raw) | st.binary(max_size=200)


class Timed:
    """Fails where what is inside takes longer than any input may."""

    def __enter__(self) -> None:
        self.began = time.thread_time()

    def __exit__(self, *exc: object) -> None:
        assert time.thread_time() - self.began < SECONDS


@settings(max_examples=150)
@given(BYTES, st.sampled_from(sorted(d.name for d in ENDPOINTS)))
@example(b"[" * 200_000, "chat")
@example(b'{"a":' * 100_000, "messages")
@example(b'{"model":"demo","messages":' + b"[" * 900 + b"]" * 900 + b"}", "messages")
@example(b'{"model":"demo","model":1,"messages":[]}', "chat")
@example(b'{"model":"demo","messages":[' + b'{"role":"user"},' * 20_000 + b"1]}", "chat")
def test_any_body_is_a_call_or_a_refusal(data: bytes, name: str) -> None:
    dialect = next(each for each in ENDPOINTS if each.name == name)
    path = f"{dialect.prefix or '/v1/'}demo:generateContent" if name == "gemini" else "/v1/x"
    with Timed():
        outcome = called(dialect, data, path)
        if isinstance(outcome, Call):
            looked_at(outcome)
        else:
            assert 400 <= outcome.status < 500
            assert outcome.message


def called(dialect: Dialect, data: bytes, path: str) -> Call | Refusal:
    try:
        return parse_call(dialect, data, [], path, "", Seen())
    except Refusal as refusal:
        return refusal


def looked_at(call: Call) -> None:
    """All that a request is asked before it goes anywhere."""
    name, body = call.dialect.name, call.body
    if name not in DIALECTS:
        return
    for read in (
        lambda: needs(name, body),
        lambda: session_key(name, body, []),
        lambda: without_images(name, body),
        lambda: without_thinking(name, body, frozenset(thinking_digests(name, body))),
        lambda: call.dialect.upstream_edits(body),
        lambda: call.dialect.tracker(body, "demo"),
        lambda: Body.parse(body.edited({"model": "x"}, ["stream"])),
    ):
        read()


@given(BYTES, st.binary(max_size=60))
@example(b"<" * 100_000, b"")
@example(b'{"error":' * 50_000, b"")
@example(b"&#" + b"9" * 60_000 + b";", b"x")
def test_any_error_and_reply_of_a_provider_is_read(data: bytes, asked: bytes) -> None:
    with Timed():
        text, _ = read_error(data)
        without_echo(text.message, asked).encode()
        for dialect in DIALECTS.values():
            dialect.read_reply(data)
            if not isinstance(text.message, str):
                raise AssertionError(text)
            json.loads(dialect.error_body(500, text.message, {}, None))


@given(st.lists(st.binary(max_size=80) | BODIES.map(lambda b: b"data: " + raw(b) + b"\n\n")))
@example([b"\n" * 100_000])
@example([b"data:\n" * 50_000, b"\n"])
@example([b":" * 100_000, b"\r", b"\n", b"\r\n\r\n"])
@example([b"event: " + b"x" * 100_000 + b"\n\n"])
def test_any_stream_is_split_and_followed(pieces: list[bytes]) -> None:
    with Timed():
        trackers = [d.tracker(Body.parse(b"{}"), "demo") for d in DIALECTS.values()]
        splitter = Splitter()
        try:
            events = [event for piece in pieces for event in splitter.feed(piece)]
            events += splitter.flush()
        except SSEError:
            return
        assert b"".join(event.raw for event in events).startswith(b"".join(pieces))
        for tracker in trackers:
            for event in events:
                if not tracker.closed:
                    tracker.feed(event)


NAMES = st.sampled_from([*Settings.model_fields, *Combo.model_fields, "models", "weight", "key"])
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | TEXTS, inner, max_size=4),
    max_leaves=15,
)


def toml(value: Any) -> str:
    """As TOML has it; what has no place there is left to be refused."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return repr(value).lower() if isinstance(value, float) else json.dumps(value)


TOML = st.dictionaries(NAMES, TREES, max_size=4).map(
    lambda table: "\n".join(f"{name} = {toml(value)}" for name, value in table.items())
)


@settings(max_examples=150)
@given(TOML | st.text(max_size=200))
@example("a." * 100_000 + "b = 1")
@example("[" + ".".join("a" * 50_000) + "]")
@example("a = " + "[" * 50_000)
@example("a = " + "{a = " * 300 + "1" + "}" * 300)
@example('"' * 100_000)
@example("[[account]]\n" * 5000)
@example("[server]\nport = " + "9" * 5000)
@example('[provider.x]\nkey = "file:\\u0000"')
@example('[provider.x]\nbase_url = "http://[::1"')
@example('[server]\ncors_origins = ["http://[", "//"]')
def test_any_settings_are_read_or_told_what_is_wrong(text: str) -> None:
    with Timed():
        try:
            parse_settings(text, "krouter.toml")
        except ConfigError as error:
            told_where(error, "krouter.toml")


@settings(max_examples=150)
@given(st.dictionaries(NAMES, TREES, max_size=6).map(raw) | BYTES)
@example(b"[" * 300_000)
@example(b'{"models": ["a/b"], "x": ' + b'{"x":' * 200 + b"1" + b"}" * 201)
@example(b'{"models": ["a/b"]' + b', "a": 1' * 20_000 + b"}")
@example(b'{"models": [' + b'{"x": 1},' * 3000 + b'"a/b"]}')
@example(b'{"models": ["a/b"], "stickyLimit": ' + b"9" * 5000 + b"}")
def test_any_combo_is_read_or_told_what_is_wrong(data: bytes) -> None:
    with Timed():
        try:
            parse_combo(data, "x.json", "x")
        except ConfigError as error:
            told_where(error, "x.json")


def told_where(error: ConfigError, file: str) -> None:
    assert error.problems
    for problem in error.problems:
        assert problem.file == file
        assert problem.message
        assert not problem.path or problem.path.startswith("$")


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_host_and_query_is_read(host: str, query: str) -> None:
    named = hostname(host)
    assert named == named.lower()
    assert not set(named) & set("/@?# \t\r\n\\")
    with_key_of(query, [("host", host)])


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    text, env = provider_settings("http://127.0.0.1:1", one="a", two="a b")
    with Krouter(tmp_path_factory.mktemp("home"), settings=text, env=env) as krouter:
        yield krouter


METHODS = st.sampled_from(
    ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "X"]
)
ADMIN = st.sampled_from(
    ["quota", "routes", "routes/", "routes/x", "x", "", "../v1/models", "combos"]
)
PATHS = st.builds(
    lambda start, more: f"/api/{start}{more}",
    ADMIN,
    st.sampled_from(["", "?limit=-1", "?limit=x", "?limit=" + "9" * 5000, "?limit=5&limit=", "%00"])
    | st.text(st.characters(codec="ascii", exclude_characters=" \r\n\t\0\x7f"), max_size=20),
)
LATIN = st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=20)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["origin", "sec-fetch-site", "content-type", "accept", "cookie", "x-y", "range"]
    ),
    st.sampled_from(["application/json", "null", "same-origin", "*/*", "a;b=c", "{here}"]) | LATIN,
    max_size=4,
)
REPORTS = st.dictionaries(
    st.sampled_from("provider account model remaining resets_at extra".split()),
    SCALARS | st.sampled_from(["one", "two", "a", "demo", "m", 0.5, "2030-01-01T00:00:00Z"]),
)


def answered(krouter: Krouter, request: bytes) -> bytes:
    at = urlsplit(krouter.url)
    with socket.create_connection((str(at.hostname), at.port or 0), timeout=30) as peer:
        peer.sendall(request)
        return b"".join(iter(lambda: peer.recv(65536), b""))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(METHODS, PATHS, HEADERS, REPORTS.map(raw) | BYTES)
def test_the_admin_api_never_fails(
    krouter: Krouter, method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    given = {name: value.replace("{here}", krouter.url) for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "connection: close"]
    lines += [f"{name}: {value}" for name, value in given.items()]
    lines += [f"content-length: {len(body)}", "", ""]
    reply = answered(krouter, "\r\n".join(lines).encode("latin-1") + body)
    status = int(reply.split(b" ", 2)[1])
    assert 200 <= status < 500, reply[:500]
    assert b"Traceback" not in reply
    served = answered(krouter, b"GET /api/quota HTTP/1.1\r\nhost: ::1\r\nconnection: close\r\n\r\n")
    assert served.startswith(b"HTTP/1.1 403")
    assert krouter.http.get("/api/quota").status_code == 200


@settings(max_examples=60)
@given(st.binary(max_size=120))
@example(b"GET " + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")
@example(b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 5000 + b"\r\n")
@example(b"POST /api/quota HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n{}")
@example(b"POST /api/quota HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")
def test_bytes_that_are_no_request_do_no_harm(krouter: Krouter, sent: bytes) -> None:
    at = urlsplit(krouter.url)
    with socket.create_connection((str(at.hostname), at.port or 0), timeout=30) as peer:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        try:
            reply = b"".join(iter(lambda: peer.recv(65536), b""))
        except ConnectionError:
            reply = b""
    assert not reply.startswith(b"HTTP/1.1 5")
    assert krouter.http.get("/api/quota").status_code == 200
