"""The native lane to providers that speak Gemini's dialect: the path names the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from krouter_adapters.native_lane import build
from krouter_adapters.rows import load_rows

from krouter.adapter import Call, Target
from krouter.body import Body
from krouter.dialects import get
from krouter.keys import PREFIX, add_key
from krouter.providers import Provider
from krouter.wire import Headers, Outgoing
from tests.harness import Krouter
from tests.upstream import Upstream

ROWS = {row.name: row for row in load_rows()}
PLAIN = b'{ "contents": [], "x": 1E5 }'


def sent(
    raw: bytes = PLAIN,
    *,
    provider: Provider = ROWS["gemini"],
    model: str = "gemini-x",
    stream: bool = False,
    query: str = "",
    headers: Headers | None = None,
    **params: Any,
) -> Outgoing:
    call = Call(get("gemini"), Body.parse(raw), headers or [], "daily", stream, query)
    return build(call, Target(provider, model, "key", params=params))


def own(base: str) -> Provider:
    return Provider("own", base_urls={"gemini": base})


GOOGLE = "https://generativelanguage.googleapis.com/v1beta/models"


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({}, f"{GOOGLE}/gemini-x:generateContent"),
        ({"stream": True}, f"{GOOGLE}/gemini-x:streamGenerateContent?alt=sse"),
        ({"model": "a/b:c"}, f"{GOOGLE}/a%2Fb%3Ac:generateContent"),
        ({"query": "alt=sse"}, f"{GOOGLE}/gemini-x:generateContent"),
        ({"query": "key=secret&$alt=json&x=1"}, f"{GOOGLE}/gemini-x:generateContent?x=1"),
        (
            {"query": "x=1&alt=sse", "stream": True},
            f"{GOOGLE}/gemini-x:streamGenerateContent?x=1&alt=sse",
        ),
        ({"provider": own("http://h")}, "http://h/v1beta/models/gemini-x:generateContent"),
        ({"provider": own("http://h/v1")}, "http://h/v1beta/models/gemini-x:generateContent"),
        (
            {"provider": own("http://h/v1alpha/models?a=b"), "query": "x=1"},
            "http://h/v1alpha/models/gemini-x:generateContent?a=b&x=1",
        ),
    ],
)
def test_the_url_names_the_model(fields: dict[str, Any], url: str) -> None:
    assert sent(**fields).url == url


@pytest.mark.parametrize("stream", [False, True])
def test_the_body_stays_as_it_came(stream: bool) -> None:
    assert sent(stream=stream).body == PLAIN


@pytest.mark.parametrize(
    ("raw", "params", "body"),
    [
        (
            b'{"contents":[]}',
            {"temperature": 0.5, "max_tokens": 9, "stop": "x", "model": "no"},
            b'{"contents":[],"generationConfig":'
            b'{"temperature":0.5,"maxOutputTokens":9,"stopSequences":["x"]}}',
        ),
        (
            b'{"generation_config":{"topK":1,"topP":1},"contents":[]}',
            {"top_p": 0.2, "generationConfig": {"seed": 3}},
            b'{"generation_config":{"topK":1,"topP":0.2,"seed":3},"contents":[]}',
        ),
        (b'{"contents":[]}', {"safetySettings": []}, b'{"contents":[],"safetySettings":[]}'),
    ],
)
def test_an_entrys_parameters_stand_where_gemini_reads_them(
    raw: bytes, params: dict[str, Any], body: bytes
) -> None:
    assert sent(raw, **params).body == body


def test_the_key_goes_in_googles_header() -> None:
    given = [("x-goog-api-key", "callers"), ("x-goog-api-client", "sdk"), ("cookie", "c")]
    assert sent(headers=given).headers == [
        ("x-goog-api-client", "sdk"),
        ("content-type", "application/json"),
        ("accept-encoding", "identity"),
        ("x-goog-api-key", "key"),
    ]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def krouter(upstream: Upstream, tmp_path: Path) -> Iterator[Krouter]:
    upstream.clear()
    settings = (
        f'[provider.own]\nspeaks = ["gemini"]\nbase_url = "{upstream.url}"\nkey = "env:OWN"\n'
        f'[provider.other]\nspeaks = ["gemini"]\nbase_url = "{upstream.url}"\nkey = "env:OWN"\n'
    )
    combos = {"daily": {"models": ["own/bad", "other/good"]}}
    with Krouter(tmp_path, settings=settings, combos=combos, env={"OWN": "the-key"}) as krouter:
        yield krouter


def frames(*chunks: Any, line_end: str = "\n") -> bytes:
    return "".join(f"data: {json.dumps(one)}{line_end * 2}" for one in chunks).encode()


def saying(*parts: Any, reason: str = "", **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    return {"candidates": [{**candidate, **({"finishReason": reason} if reason else {})}], **fields}


COUNTS = {"promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 2}
CHUNKS = (
    saying({"text": "hm", "thought": True}, modelVersion="up", x={"kept": 1e5}),
    saying({"text": "naïve 😀"}, usageMetadata=COUNTS),
    saying({"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "sig"}),
    saying(reason="STOP", usageMetadata=COUNTS),
)


@pytest.mark.native_garbage("chunks without the name of a model")
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("split", [0, 7])
def test_a_stream_passes_byte_for_byte(
    krouter: Krouter, upstream: Upstream, line_end: str, split: int
) -> None:
    raw = frames(*CHUNKS, line_end=line_end)
    pieces = f";split={split}" if split else ""
    upstream.script("good", [f"body={quote(raw)};content-type=text%2Fevent-stream{pieces}"])
    reply = krouter.gemini("other/good", stream=True)
    assert (reply.status_code, reply.content) == (200, raw)
    assert reply.headers["content-type"].startswith("text/event-stream")
    krouter.idle()
    step = krouter.last_route["steps"][-1]
    assert (step["lane"], step["outcome"]) == ("native", "answered")
    assert krouter.router.routes[-1].usage.output == 6


@pytest.mark.native_garbage("chunks without the name of a model")
def test_a_json_reply_passes_byte_for_byte(krouter: Krouter, upstream: Upstream) -> None:
    raw = json.dumps(saying({"text": "hi"}, reason="STOP", x=1, usageMetadata=COUNTS), indent=1)
    upstream.script("good", [f"body={quote(raw)}"])
    assert krouter.gemini("other/good").text == raw


@pytest.mark.parametrize("path", ["/v1beta/models", "/v1/models", "/v1/v1beta/models"])
@pytest.mark.parametrize("name", ["daily", "models/daily", "other%2Fgood", "models/other/good"])
def test_a_name_may_be_written_in_many_ways(
    krouter: Krouter, upstream: Upstream, path: str, name: str
) -> None:
    upstream.script("bad", ["status=503"])
    body = {"contents": {"parts": {"text": "hi"}}, "unknown": 1}
    reply = krouter.http.post(f"{path}/{name}:generateContent", json=body)
    assert reply.headers["x-krouter-model"] == "other/good"
    request = upstream.requests[-1]
    assert (request.path, request.json) == ("/v1beta/models/good:generateContent", body)


def test_the_list_of_models_is_not_shadowed(krouter: Krouter) -> None:
    assert krouter.http.get("/v1/models/daily").json()["id"] == "daily"
    assert krouter.http.get("/v1beta/models/daily").json()["name"] == "models/daily"
    refused = krouter.http.get("/v1beta/models/daily:generateContent")
    assert refused.status_code == 405
    assert refused.json()["error"]["status"] == "INVALID_ARGUMENT"


@pytest.mark.native_garbage("chunks without the name of a model")
def test_without_alt_sse_a_stream_is_an_array(krouter: Krouter, upstream: Upstream) -> None:
    raw = frames(*CHUNKS)
    upstream.script("good", [f"body={quote(raw)};content-type=text%2Fevent-stream"])
    reply = krouter.http.post("/v1beta/models/other%2Fgood:streamGenerateContent",
        json={"contents": []})  # fmt: skip
    assert reply.headers["content-type"].startswith("application/json")
    assert reply.json() == list(CHUNKS)


def test_an_array_that_breaks_off_ends_with_an_error(krouter: Krouter, upstream: Upstream) -> None:
    upstream.script("good", ["close=2"])
    reply = krouter.http.post("/v1beta/models/other%2Fgood:streamGenerateContent",
        json={"contents": []})  # fmt: skip
    *chunks, last = reply.json()
    assert len(chunks) == 2
    assert last["error"]["status"] == "UNAVAILABLE"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("does", "served"),
    [
        ("status=429", "other/good"),
        ("status=400", "other/good"),
        ("error=0;status=503", "other/good"),
        ("error=json", "other/good"),
        ("garbage=html", "other/good"),
        ("reset", "other/good"),
        ("ok", "own/bad"),
        ("thinking=only", "own/bad"),
        ("tool=f", "own/bad"),
        ("empty=done", "own/bad"),
    ],
)
def test_what_falls_over(
    krouter: Krouter, upstream: Upstream, does: str, served: str, stream: bool
) -> None:
    upstream.script("bad", [does])
    reply = krouter.gemini("daily", stream)
    assert (reply.status_code, reply.headers["x-krouter-model"]) == (200, served)


@pytest.mark.parametrize("empty", ["missing", "list", "text", "null"])
def test_an_empty_reply_is_no_answer(krouter: Krouter, upstream: Upstream, empty: str) -> None:
    upstream.script("bad", [f"empty={empty}"])
    assert krouter.gemini("daily").headers["x-krouter-model"] == "other/good"


@pytest.mark.parametrize(("does", "code"), [("close=2", 502), ("end=2", 502), ("no=finish", 502)])
def test_a_cut_stream_ends_with_an_error(
    krouter: Krouter, upstream: Upstream, does: str, code: int
) -> None:
    upstream.script("bad", [does])
    reply = krouter.gemini("daily", stream=True)
    *chunks, last = [json.loads(line[6:]) for line in reply.text.split("\n\n") if line]
    assert not any("finishReason" in one for chunk in chunks for one in chunk["candidates"])
    assert (last["error"]["code"], last["error"]["status"]) == (code, "UNAVAILABLE")
    assert last["error"]["krouter_route"]


def test_the_last_error_is_the_providers_own(krouter: Krouter, upstream: Upstream) -> None:
    error = {"code": 400, "message": "bad", "status": "FAILED_PRECONDITION", "details": [{"a": 1}]}
    upstream.script("good", [f"status=400;body={quote(json.dumps({'error': error}))}"])
    reply = krouter.gemini("other/good")
    told = reply.json()["error"]
    assert reply.status_code == 400
    assert {name: told[name] for name in error} == error


def test_unknown_names_and_methods_are_told_in_the_dialect(krouter: Krouter) -> None:
    unknown = krouter.gemini("dayli")
    assert (unknown.status_code, unknown.json()["error"]["status"]) == (404, "NOT_FOUND")
    for method, status in (("countTokens", 501), ("embedContent", 501), ("predict", 404)):
        reply = krouter.http.post(f"/v1beta/models/daily:{method}", json={"contents": []})
        assert (reply.status_code, reply.json()["error"]["code"]) == (status, status)


@pytest.mark.parametrize("place", ["header", "query", "bearer"])
def test_krouters_key_is_taken_wherever_google_puts_one(
    upstream: Upstream, tmp_path: Path, place: str
) -> None:
    key = add_key(tmp_path / "keys.json", "laptop", 0.0)
    settings = f'[provider.own]\nspeaks = ["gemini"]\nbase_url = "{upstream.url}"\n'
    upstream.clear()
    with Krouter(tmp_path, settings=settings) as krouter:
        url = "/v1beta/models/own%2Fgood:generateContent"
        assert krouter.http.post(url, json={"contents": []}).status_code == 401
        headers = {"header": {"x-goog-api-key": key}, "bearer": {"authorization": f"Bearer {key}"}}
        asked = f"{url}?key={key}" if place == "query" else url
        reply = krouter.http.post(asked, json={"contents": []}, headers=headers.get(place))
        assert reply.status_code == 200
    (request,) = upstream.requests
    assert PREFIX not in request.path + str(request.headers)


def test_the_built_in_provider_answers(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        said = krouter.gemini("demo").json()["candidates"][0]
        assert "hello" in said["content"]["parts"][0]["text"]
        assert said["finishReason"] == "STOP"
        assert "finishReason" in krouter.gemini("demo", stream=True).text
