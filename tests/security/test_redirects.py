"""A provider's redirect is not followed, so no credential goes where it points."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest

import krouter as library
from tests.harness import Krouter
from tests.upstream import Upstream

DIALECTS = ("chat", "messages", "gemini", "responses")
STATUSES = (301, 302, 303, 307, 308)
TOKEN = "the-callers-own-token"
SETTINGS = """
[provider.own]
speaks = ["{spoken}"]
base_urls = {{ {spoken} = "{url}" }}

[[account]]
provider = "own"
name = "caller"
auth = "caller"

[[account]]
provider = "own"
name = "key"
key = "env:OWN_KEY"
"""
COMBOS = {name: {"models": [{"model": "own/m", "accounts": [name]}]} for name in ("caller", "key")}


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def settings(upstream: Upstream, spoken: str) -> str:
    base = upstream.url + ("/v1" if spoken == "chat" else "")
    return SETTINGS.format(spoken=spoken, url=base)


def places(here: Upstream, elsewhere: Upstream) -> Iterator[str]:
    """Where it says that the reply is: at another host, at this one, and in odd ways to say so."""
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        yield f"{elsewhere.url}{path}"
        yield f"{here.url}{path}"
        yield path
    yield f"//{elsewhere.url.removeprefix('http://')}/v1/chat/completions"
    yield "https://user:password@127.0.0.1:1/"
    yield "file:///etc/passwd"


@pytest.mark.parametrize("caller", DIALECTS)
@pytest.mark.parametrize("spoken", DIALECTS)
def test_no_redirect_is_followed(
    tmp_path: Path, upstream: Upstream, elsewhere: Upstream, caller: str, spoken: str
) -> None:
    elsewhere.clear()
    asked = 0
    env = {"OWN_KEY": "own-key"}
    with Krouter(tmp_path, combos=COMBOS, settings=settings(upstream, spoken), env=env) as krouter:
        krouter.http.headers["authorization"] = f"Bearer {TOKEN}"
        for place, (account, stream) in product(
            enumerate(places(upstream, elsewhere)), product(COMBOS, (False, True))
        ):
            number, target = place
            status = STATUSES[number % len(STATUSES)]
            what = f"status={status};body=;header-location={quote(target)};header-set-cookie=a%3Db"
            upstream.script("m", [what])
            reply = krouter.ask(caller, account, stream)
            asked += 1
            assert reply.status_code == 502
            assert not {"location", "set-cookie"} & reply.headers.keys()
            assert f"redirects (status {status})" in reply.json()["error"]["message"]
            krouter.clock.forward(100_000)
    assert elsewhere.requests == []
    assert len(upstream.requests) == asked
    assert {request.credential for request in upstream.requests} == {TOKEN, "own-key"}
    assert not any("cookie" in request.header for request in upstream.requests)


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("spoken", ["chat", "messages"])
def test_the_library_follows_none_either(
    tmp_path: Path, upstream: Upstream, elsewhere: Upstream, status: int, spoken: str
) -> None:
    elsewhere.clear()
    (tmp_path / "krouter.toml").write_text(settings(upstream, spoken))
    target = quote(f"{elsewhere.url}/v1/chat/completions")
    upstream.script("m", [f"status={status};body=;header-location={target}"])
    hello = [{"role": "user", "content": "hello"}]
    with library.Router(combos=COMBOS, home=tmp_path, env={"OWN_KEY": "own-key"}) as router:
        for stream in (False, True):
            with pytest.raises(Exception, match=str(status)):
                router.completion(model="key", messages=hello, stream=stream)
    assert elsewhere.requests == []


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens"])
def test_nor_does_the_count_of_tokens(
    tmp_path: Path, upstream: Upstream, elsewhere: Upstream, path: str
) -> None:
    elsewhere.clear()
    spoken = "messages" if "messages" in path else "responses"
    text = settings(upstream, spoken).replace("speaks", "counts_tokens = true\nspeaks")
    upstream.script("m", [f"status=307;body=;header-location={quote(elsewhere.url + path)}"])
    env = {"OWN_KEY": "own-key"}
    with Krouter(tmp_path, combos=COMBOS, settings=text, env=env) as krouter:
        body = {"model": "key", "messages": [{"role": "user", "content": "x"}], "input": "x"}
        reply = krouter.http.post(path, json=body)
        assert reply.status_code == 200  # an estimate of krouter's own
    assert (len(upstream.requests), elsewhere.requests) == (1, [])
