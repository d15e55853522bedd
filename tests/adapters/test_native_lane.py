from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from krouter_adapters.native_lane import NativeLane, build
from krouter_adapters.rows import load_rows

from krouter.adapter import Call, Target
from krouter.body import Body
from krouter.dialects import get
from krouter.providers import Provider
from krouter.wire import Headers, Outgoing
from tests.harness import Krouter
from tests.upstream import Behaviour, Upstream

ROWS = {row.name: row for row in load_rows()}
PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
DIALECTS = sorted(PATHS)
OWN = Provider(
    "own", base_urls={"chat": "http://h/v1", "messages": "http://h", "responses": "http://h/v1"}
)


PLAIN = b'{"model":"a","messages":[]}'


def call(dialect: str, raw: bytes = PLAIN, headers: Headers | None = None, query: str = "") -> Call:
    body = Body.parse(raw)
    return Call(get(dialect), body, headers or [], "a", body.value("stream") is True, query)


def sent(
    provider: Provider, dialect: str = "chat", *, secret: str | None = None, **more: Any
) -> Outgoing:
    target = Target(provider, "up", secret, **more.pop("target", {}))
    return build(call(dialect, **more), target)


def header(request: Outgoing, name: str) -> list[str]:
    return [value for known, value in request.headers if known == name]


@pytest.mark.parametrize(
    ("raw", "fields", "body"),
    [
        (b'{"model":"a"}', {}, b'{"model":"up"}'),
        (b' {"x":1E5 , "model" : "a"}\n', {}, b' {"x":1E5 , "model" : "up"}\n'),
        (
            b'{"model":"a","t":1}',
            {"params": {"t": 0.5, "k": [1]}},
            b'{"model":"up","t":0.5,"k":[1]}',
        ),
        (b'{"model":"a","n":1}', {"params": {"model": "no"}}, b'{"model":"up","n":1}'),
        (
            b'{"model":"a","stream":true}',
            {},
            b'{"model":"up","stream":true,"stream_options":{"include_usage":true}}',
        ),
        (
            b'{"stream_options":{"x":1},"model":"a","stream":true}',
            {},
            b'{"stream_options":{"x":1,"include_usage":true},"model":"up","stream":true}',
        ),
        (
            b'{"stream_options":{"include_usage" : true},"model":"a","stream":true}',
            {},
            b'{"stream_options":{"include_usage" : true},"model":"up","stream":true}',
        ),
    ],
)
def test_the_body_is_the_callers_but_for_the_named_edits(
    raw: bytes, fields: dict[str, Any], body: bytes
) -> None:
    assert sent(OWN, raw=raw, target=fields).body == body


def test_fields_that_a_provider_refuses_are_dropped() -> None:
    picky = Provider("p", base_urls=OWN.base_urls, drop=("store", "stream_options", "seed"))
    raw = b'{"store":false,"model":"a","seed":1,"stream":true,"k":{"store":1}}'
    request = sent(picky, raw=raw, target={"params": {"seed": 2}})
    assert request.body == b'{"model":"up","stream":true,"k":{"store":1}}'


@pytest.mark.parametrize(
    ("provider", "model", "raw", "params", "body"),
    [
        ("openai", "gpt-5.1", b'{"max_tokens":1}', {}, b'{"max_completion_tokens":1,"model":"M"}'),
        ("openai", "o3", b"{}", {"max_tokens": 2}, b'{"max_completion_tokens":2,"model":"M"}'),
        (
            "openai",
            "o3",
            b'{"max_tokens":1,"max_completion_tokens":2}',
            {},
            b'{"max_tokens":1,"max_completion_tokens":2,"model":"M"}',
        ),
        ("openai", "gpt-4o", b'{"max_tokens":1}', {}, b'{"max_tokens":1,"model":"M"}'),
        ("openai", "llama-3", b'{"max_tokens":1}', {}, b'{"max_tokens":1,"model":"M"}'),
        ("mistral", "x", b'{"seed":0,"k":1}', {}, b'{"k":1,"random_seed":0,"model":"M"}'),
    ],
)
def test_fields_that_a_provider_takes_under_another_name(
    provider: str, model: str, raw: bytes, params: dict[str, Any], body: bytes
) -> None:
    request = build(call("chat", raw), Target(ROWS[provider], model, params=params))
    expected = json.loads(body.replace(b'"M"', json.dumps(model).encode()))
    assert json.loads(request.body) == expected


def test_only_a_chat_request_has_its_fields_renamed() -> None:
    own = Provider("p", base_urls=OWN.base_urls, rename={"max_tokens": "max_completion_tokens"})
    raw = b'{"model":"a","max_tokens":5}'
    assert sent(own, raw=raw).body == b'{"model":"up","max_completion_tokens":5}'
    assert sent(own, "messages", raw=raw).body == b'{"model":"up","max_tokens":5}'


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**30), 10**30),
        st.text(max_size=5).filter(str.isprintable),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab_é", max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(st.text('abcé"\\', min_size=1, max_size=4), VALUES),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.sampled_from(DIALECTS),
)
def test_all_fields_keep_their_bytes(
    fields: dict[str, Any], indent: int | None, ascii: bool, dialect: str
) -> None:
    whole = {**fields, "model": "a", "messages": [], "stream": False}
    raw = json.dumps(whole, indent=indent, ensure_ascii=ascii).encode()
    assert sent(OWN, dialect, raw=raw).body == raw.replace(b'"model": "a"', b'"model": "up"')


@pytest.mark.parametrize(
    ("row", "dialect", "target", "credential"),
    [
        ("anthropic", "messages", {}, ("x-api-key", "sk-1")),
        ("anthropic", "messages", {"auth": "bearer"}, ("authorization", "Bearer sk-1")),
        ("cc", "messages", {}, ("authorization", "Bearer sk-1")),
        ("openai", "chat", {}, ("authorization", "Bearer sk-1")),
        ("openai", "responses", {}, ("authorization", "Bearer sk-1")),
        ("glm", "messages", {}, ("authorization", "Bearer sk-1")),
        ("glm", "chat", {}, ("authorization", "Bearer sk-1")),
    ],
)
def test_the_credential_goes_in_the_rows_header(
    row: str, dialect: str, target: dict[str, Any], credential: tuple[str, str]
) -> None:
    callers = [("authorization", "Bearer mine"), ("x-api-key", "mine"), ("x-krouter-key", "mine")]
    request = sent(ROWS[row], dialect, secret="sk-1", headers=callers, target=target)
    named = {"authorization", "x-api-key", "x-goog-api-key", "api-key", "x-krouter-key"}
    assert [pair for pair in request.headers if pair[0] in named] == [credential]


def test_without_a_credential_none_is_sent() -> None:
    request = sent(OWN, headers=[("authorization", "Bearer mine")])
    assert request.headers == [
        ("content-type", "application/json"),
        ("accept-encoding", "identity"),
    ]
    silent = Provider("n", base_urls=OWN.base_urls, auth={"chat": "none"})
    assert header(sent(silent, secret="k"), "authorization") == []


@pytest.mark.parametrize(
    ("callers", "merged"),
    [
        ([], "oauth-2025-04-20"),
        (["a, b"], "a,b,oauth-2025-04-20"),
        (["a", "b,a"], "a,b,oauth-2025-04-20"),
        (["oauth-2025-04-20,a"], "oauth-2025-04-20,a"),
    ],
)
def test_the_rows_beta_joins_the_callers(callers: list[str], merged: str) -> None:
    headers = [("anthropic-beta", value) for value in callers]
    assert header(sent(ROWS["cc"], "messages", headers=headers), "anthropic-beta") == [merged]


@pytest.mark.parametrize(
    ("callers", "rows", "version"),
    [
        ([], {}, "2023-06-01"),
        ([("anthropic-version", "2026-10-21")], {}, "2026-10-21"),
        ([], {"anthropic-version": "2024-01-01"}, "2024-01-01"),
        ([("anthropic-version", "2026-10-21")], {"anthropic-version": "x"}, "x"),
    ],
)
def test_there_is_one_anthropic_version(
    callers: Headers, rows: Mapping[str, str], version: str
) -> None:
    provider = Provider("p", base_urls=OWN.base_urls, headers=rows)
    assert header(sent(provider, "messages", headers=callers), "anthropic-version") == [version]
    assert not header(sent(OWN, "chat"), "anthropic-version")


def test_a_rows_headers_replace_the_callers() -> None:
    rows = {"x-a": "row", "content-type": "application/json; v=2", "accept-encoding": "gzip"}
    provider = Provider("p", base_urls=OWN.base_urls, headers=rows)
    request = sent(provider, headers=[("x-a", "mine"), ("x-b", "b"), ("content-type", "text/x")])
    assert sorted(request.headers) == [
        ("accept-encoding", "identity"),
        ("content-type", "application/json; v=2"),
        ("x-a", "row"),
        ("x-b", "b"),
    ]


@pytest.mark.parametrize(
    ("query", "url"),
    [
        ("", "http://h/v1/messages"),
        ("beta=true", "http://h/v1/messages?beta=true"),
        ("a=%2Fb&c", "http://h/v1/messages?a=%2Fb&c"),
        ("a=\xe9 b", "http://h/v1/messages?a=%E9%20b"),
    ],
)
def test_the_query_passes(query: str, url: str) -> None:
    assert sent(OWN, "messages", query=query).url == url


def test_the_query_joins_that_of_the_base_url() -> None:
    azure = Provider("p", base_urls={"chat": "http://h/v1?api-version=1"})
    assert sent(azure, query="a=b").url == "http://h/v1/chat/completions?api-version=1&a=b"


def test_what_the_lane_takes() -> None:
    lane = NativeLane()
    assert lane.speaks(OWN, "chat")
    assert lane.speaks(OWN, "responses")
    assert not lane.speaks(OWN, "gemini")
    assert not lane.speaks(ROWS["demo"], "chat")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def krouter(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    settings = f"""
    [provider.local]
    speaks = ["chat", "messages", "responses"]
    base_url = "{upstream.url}"
    key = "env:LOCAL_KEY"
    """
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, settings=settings, env={"LOCAL_KEY": "sk-local"}) as running:
        yield running


@pytest.fixture(autouse=True)
def forgotten(request: pytest.FixtureRequest) -> None:
    if "krouter" in request.fixturenames:
        request.getfixturevalue("upstream").clear()
        request.getfixturevalue("krouter").forget()


def post(
    krouter: Krouter, dialect: str, raw: bytes, headers: Any = None, query: str = ""
) -> httpx.Response:
    return krouter.http.post(PATHS[dialect] + query, content=raw, headers=headers)


def ask(krouter: Krouter, dialect: str, model: str, **fields: Any) -> httpx.Response:
    said = [{"role": "user", "content": "hi"}]
    body = {"model": model, "input" if dialect == "responses" else "messages": said, **fields}
    return post(krouter, dialect, json.dumps(body).encode())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_reaches_the_provider(krouter: Krouter, upstream: Upstream, dialect: str) -> None:
    raw = (
        (
            '{ "FIELD" : [{"role":"user","content":"h\\u00ef 😀","cache_control":{"x":1E5}}],\n'
            ' "model":"local/ok", "safeguards":{"paths":["\\/a"]}, "big":12345678901234567890123,\n'
            ' "max_tokens":9,"stream" :false}\n'
        )
        .replace("FIELD", "input" if dialect == "responses" else "messages")
        .encode()
    )
    headers = [
        ("Authorization", "Bearer caller-secret"),
        ("X-Api-Key", "caller-secret"),
        ("X-Krouter-Key", "caller-secret"),
        ("Cookie", "a=caller-secret"),
        ("Connection", "keep-alive, X-Hop"),
        ("X-Hop", "1"),
        ("Accept-Encoding", "gzip, br, zstd"),
        ("User-Agent", "claude-cli/2.1"),
        ("X-Claude-Code-Session-Id", "s-1"),
        ("x-stainless-retry-count", "0"),
        ("anthropic-beta", "one,two"),
        ("Content-Type", "application/json; charset=utf-8"),
        ("Accept", "*/*"),
    ]
    assert post(krouter, dialect, raw, headers, "?beta=true").status_code == 200
    (request,) = upstream.wait()
    assert request.path == PATHS[dialect] + "?beta=true"
    assert request.body == raw.replace(b'"local/ok"', b'"ok"')
    host = upstream.url.removeprefix("http://")
    key = ("x-api-key", "sk-local")
    if dialect != "messages":
        key = ("authorization", "Bearer sk-local")
    version = [("anthropic-version", "2023-06-01")] if dialect == "messages" else []
    assert sorted((name.lower(), value) for name, value in request.headers) == sorted(
        [
            ("host", host),
            ("content-length", str(len(request.body))),
            ("accept-encoding", "identity"),
            ("user-agent", "claude-cli/2.1"),
            ("x-claude-code-session-id", "s-1"),
            ("x-stainless-retry-count", "0"),
            ("anthropic-beta", "one,two"),
            ("content-type", "application/json; charset=utf-8"),
            ("accept", "*/*"),
            key,
            *version,
        ]
    )


def test_a_caller_that_names_no_agent_gets_none(krouter: Krouter, upstream: Upstream) -> None:
    raw = b'{"model":"local/ok","messages":[]}'
    host, port = krouter.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as caller:
        caller.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: %s:%s\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%s" % (host.encode(), port.encode(), len(raw), raw)
        )
        assert caller.makefile("rb").read().startswith(b"HTTP/1.1 200 ")
    (request,) = upstream.wait()
    assert sorted(request.header) == [
        *("accept-encoding", "authorization", "content-length", "content-type", "host"),
    ]


SHAPES = [
    *("comments", "crlf", "multiline", "bom", "tight", "open"),
    *("comments,crlf,multiline,bom", "crlf,tight,open,comments", "multiline,tight,crlf,bom"),
]


def straight(upstream: Upstream, dialect: str) -> bytes:
    """What the provider answers to the request that krouter has sent it."""
    body = upstream.requests[-1].body
    return httpx.post(upstream.url + PATHS[dialect], content=body).content


NUMBERED = re.compile(rb'(?<=[_-])0000\d+|(?<="created":)\s*\d+|(?<="created_at":)\s*\d+')


def alike(raw: bytes) -> bytes:
    """Without the numbers and the time in which two replies to one request differ."""
    return NUMBERED.sub(b"0", raw)


@pytest.mark.parametrize("split", [0, 1, 7])
@pytest.mark.parametrize("shape", ["", *SHAPES])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_passes_byte_for_byte(
    krouter: Krouter, upstream: Upstream, dialect: str, shape: str, split: int
) -> None:
    model = "x:text=h%C3%AF%20there;thinking"
    model += (f";sse={shape}" if shape else "") + (f";split={split}" if split else "")
    asks = {"stream_options": {"include_usage": True}} if dialect == "chat" else {}
    reply = ask(krouter, dialect, f"local/{model}", stream=True, **asks)
    expected = straight(upstream, dialect)
    if dialect == "messages":
        expected = expected.replace(f'"{model}"'.encode(), f'"local/{model}"'.encode(), 1)
    if "open" in shape:
        expected += b"\n\n"
    assert alike(reply.content) == alike(expected)
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_usage_that_was_not_asked_for_is_left_out(krouter: Krouter, upstream: Upstream) -> None:
    reply = ask(krouter, "chat", "local/ok", stream=True)
    events = straight(upstream, "chat").split(b"\n\n")
    kept = [event for event in events if b'"choices":[]' not in event]
    assert len(kept) == len(events) - 1
    assert alike(reply.content) == alike(b"\n\n".join(kept))


ODD = b' { "n":1E5,\n\t"model" : "up" , "content":[{"type":"text","text":"\\u00ef","model":"up"}],'
ODD += b'"choices":[{"message":{"content":"a"}}],"type":"message",'
ODD += b'"output":[7],"status":"completed","x":{"y":[ ]} }\r\n'


@pytest.mark.native_garbage("one body that is odd in every dialect")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("split", [0, 3])
def test_a_json_reply_passes_byte_for_byte(
    krouter: Krouter, upstream: Upstream, dialect: str, split: int
) -> None:
    upstream.script("odd", [Behaviour(body=ODD, split=split)])
    renamed = ODD.replace(b'"up"', b'"local/odd"', 1)
    reply = ask(krouter, dialect, "local/odd")
    assert reply.content == (renamed if dialect == "messages" else ODD)
    assert reply.headers["content-length"] == str(len(reply.content))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_reply_headers(krouter: Krouter, upstream: Upstream, dialect: str, stream: bool) -> None:
    given = {
        "x-anything": "kept",
        "anthropic-organization-id": "org",
        "set-cookie": "a=b",
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
        "retry-after": "7",
        "x-ratelimit-remaining-requests": "1",
        "anthropic-ratelimit-tokens-limit": "1",
        "x-krouter-route": "posed",
        "access-control-allow-origin": "*",
        "x-quotes": "Bearer sk-local",
    }
    upstream.script("ok", [Behaviour(headers=tuple(given.items()))])
    reply = ask(krouter, dialect, "local/ok", stream=stream)
    kept = {name: reply.headers.get(name) for name in given}
    assert {name: value for name, value in kept.items() if value is not None} == {
        "x-anything": "kept",
        "anthropic-organization-id": "org",
        "x-krouter-route": krouter.last_route["id"],
    }
    assert len(reply.headers.get_list("x-krouter-route")) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_compressed_though_not_asked_for(krouter: Krouter, dialect: str, stream: bool) -> None:
    reply = ask(krouter, dialect, "local/x:gzip;text=plain%20words", stream=stream)
    assert "content-encoding" not in reply.headers
    assert {"plain", "words"} <= set(re.findall(r"plain|words", reply.text))


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_redirects_are_not_followed(
    krouter: Krouter, upstream: Upstream, dialect: str, status: int
) -> None:
    reply = ask(krouter, dialect, f"local/x:status={status};header-location=%2Fv1%2Fmessages")
    assert reply.status_code >= 400
    assert len(upstream.requests) == 1


def test_cookies_are_not_kept(krouter: Krouter, upstream: Upstream) -> None:
    for _ in range(2):
        ask(krouter, "chat", "local/x:header-set-cookie=a=b%3B%20Path=%2F")
    assert ["cookie" in request.header for request in upstream.wait(2)] == [False, False]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_header_of_a_megabyte_is_a_clean_failure(
    krouter: Krouter, upstream: Upstream, dialect: str, stream: bool
) -> None:
    upstream.script("long", [Behaviour(headers=(("x-long", "a" * 1_000_000),))])
    assert ask(krouter, dialect, "local/long", stream=stream).status_code == 502
    krouter.forget()
    assert ask(krouter, dialect, "local/ok", stream=stream).status_code == 200


def test_a_body_of_several_megabytes_passes(krouter: Krouter, upstream: Upstream) -> None:
    image = "x" * (5 << 20)
    assert ask(krouter, "chat", "local/ok", image=image).status_code == 200
    assert upstream.requests[0].json["image"] == image


@pytest.mark.parametrize(
    ("base", "dialect", "path"),
    [
        ("", "chat", "/v1/chat/completions"),
        ("/v1", "chat", "/v1/chat/completions"),
        ("/v1/", "chat", "/v1/chat/completions"),
        ("/v1/chat/completions", "chat", "/v1/chat/completions"),
        ("/api/paas/v4", "chat", "/api/paas/v4/chat/completions"),
        ("/v1?api-version=2", "chat", "/v1/chat/completions?api-version=2"),
        ("", "messages", "/v1/messages"),
        ("/", "messages", "/v1/messages"),
        ("/v1", "messages", "/v1/messages"),
        ("/v1/messages", "messages", "/v1/messages"),
        ("/api/anthropic", "messages", "/api/anthropic/v1/messages"),
        ("/api/anthropic/v1/", "messages", "/api/anthropic/v1/messages"),
        ("/v1/chat/completions", "messages", "/v1/messages"),
    ],
)
def test_what_a_base_url_may_look_like(
    upstream: Upstream, tmp_path: Path, base: str, dialect: str, path: str
) -> None:
    upstream.clear()
    settings = f'[provider.local]\nspeaks = ["{dialect}"]\nbase_url = "{upstream.url}{base}"\n'
    with Krouter(tmp_path, settings=settings) as running:
        assert ask(running, dialect, "local/some/model").status_code == 200
    (request,) = upstream.wait()
    assert (request.path, request.model, request.credential) == (path, "some/model", None)


def test_base_urls_that_differ_by_dialect(upstream: Upstream, tmp_path: Path) -> None:
    upstream.clear()
    settings = f"""
    [provider.local]
    [provider.local.base_urls]
    chat = "{upstream.url}/a/v1"
    messages = "{upstream.url}/b"
    responses = "{upstream.url}/c/v1"
    """
    with Krouter(tmp_path, settings=settings) as running:
        for dialect in DIALECTS:
            assert ask(running, dialect, "local/ok").status_code == 200
    assert [request.path for request in upstream.wait(3)] == [
        "/a/v1/chat/completions",
        "/b/v1/messages",
        "/c/v1/responses",
    ]
