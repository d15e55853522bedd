"""Credentials planted everywhere, providers that quote them, and a search through all that comes
out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from krouter.keys import add_key
from tests.harness import Krouter
from tests.upstream import Upstream

ACCOUNTS = {
    "default": "sk-canary-first-5d1f",
    "second": "sk-canary-second-77aa",
    "third": "canary+bearer/token==",
}
ENV = {
    **dict(zip(("LOCAL_KEY", "LOCAL_KEY_2", "TOKEN"), ACCOUNTS.values(), strict=True)),
    "PATH": "/usr/bin:/bin",
}
QUOTES = "message=no%20such%20key%20{key}%20here;header-x-echo={key};header-request-id=r-{key}"
WAYS = (
    "status=401;" + QUOTES,
    "status=400;" + QUOTES,
    "status=429;" + QUOTES,
    "status=500;" + QUOTES,
    "error=0;" + QUOTES,
    "error=1;" + QUOTES,
    "error=json;" + QUOTES,
    "ok:header-x-echo={key};header-request-id={key}",
    "status=502;body=%3Chtml%3E{key}%3C/html%3E;header-x-echo={key}",
    "garbage=text;header-x-echo={key}",
    "reset",
    "reset=1;header-x-echo={key}",
)
SETTINGS = """
[provider.local]
base_url = "{url}"
speaks = ["chat", "messages"]
key = "env:LOCAL_KEY"

[[account]]
provider = "local"
name = "second"
key = "env:LOCAL_KEY_2"

[[account]]
provider = "local"
name = "third"
key = 'command:printf %s "$TOKEN"'
auth = "bearer"
"""


@pytest.fixture
def caller_key(tmp_path: Path) -> str:
    return add_key(tmp_path / "keys.json", "laptop", 0.0)


def seen_by(reply: httpx.Response) -> str:
    return f"{reply.status_code} {reply.headers.raw} {reply.text}"


def ask_everything(krouter: Krouter, model: str, headers: dict[str, str]) -> Iterator[str]:
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    for path in ("/v1/chat/completions", "/v1/messages"):
        for stream in (False, True):
            reply = krouter.http.post(path, json={**body, "stream": stream}, headers=headers)
            yield seen_by(reply)


def test_no_credential_comes_out_anywhere(
    tmp_path: Path, caller_key: str, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"authorization": f"Bearer {caller_key}", "x-api-key": caller_key}
    names = [f"{account}-{place}" for account in ACCOUNTS for place in range(len(WAYS))]
    combos = {
        name: {"models": [{"model": f"local/{name}", "accounts": [name.partition("-")[0]]}]}
        for name in names
    }
    out: list[str] = []
    with Upstream() as upstream:
        for name in names:
            account, _, place = name.partition("-")
            upstream.script(name, [WAYS[int(place)].format(key=quote(ACCOUNTS[account], safe=""))])
        settings = SETTINGS.format(url=upstream.url)
        with Krouter(tmp_path, combos=combos, settings=settings, env=ENV) as krouter:
            for name in names:
                out += ask_everything(krouter, name, headers)
                krouter.clock.forward(100_000)
            for page in ("/health", "/api/routes?limit=1000", "/v1/models", "/"):
                out.append(seen_by(krouter.http.get(page, headers=headers)))
            out += krouter.lines
            routes = [route.as_json() for route in krouter.router.routes]
        used = {request.credential for request in upstream.requests}
        sent = [str(request.headers) for request in upstream.requests]
    assert used == set(ACCOUNTS.values()), "each key was at risk"
    assert len(routes) == len(names) * 4
    captured = capfd.readouterr()
    everything = "\n".join([*out, str(routes), caplog.text, captured.out, captured.err])
    assert "no such key" in everything, "the providers' own words do come out"
    for secret in (*ACCOUNTS.values(), caller_key):
        assert secret not in everything
    assert not any(caller_key in headers for headers in sent), "krouter's key went to a provider"


OTHERS = """
[provider.own]
base_url = "{url}"
speaks = ["chat", "messages"]
[[account]]
provider = "own"
auth = "caller"

[provider.local]
base_url = "{url}"
speaks = ["chat", "messages"]
key = "env:LOCAL_KEY"
"""


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "x-goog-api-key"])
@pytest.mark.parametrize("before", ["own/used", "local/used"])
def test_no_credential_of_the_callers_comes_back_from_another_provider(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, header: str, before: str
) -> None:
    """Nor that of an account which the request has used before."""
    mine = "caller-s-own/token"
    key = ACCOUNTS["default"]
    combos = {
        f"combo-{place}": {"models": [before, f"local/last-{place}", f"own/last-{place}"]}
        for place in range(len(WAYS))
    }
    headers = {header: f"Bearer {mine}" if header == "authorization" else mine}
    out: list[str] = []
    with Upstream() as upstream:
        upstream.script("used", ["status=400"])
        for place, way in enumerate(WAYS):
            said = quote(f"{mine} {key}", safe="")
            upstream.script(f"last-{place}", [way.format(key=said)])
        settings = OTHERS.format(url=upstream.url)
        with Krouter(tmp_path, combos=combos, settings=settings, env=ENV) as krouter:
            for seen in (s for name in combos for s in ask_everything(krouter, name, headers)):
                out.append(seen)
                krouter.clock.forward(100_000)
            out += krouter.lines
            routes = [route.as_json() for route in krouter.router.routes]
    everything = "\n".join([*out, str(routes), caplog.text])
    assert "no such key" in everything
    for secret in (mine, key):
        assert secret not in everything


def admin_calls(krouter: Krouter, names: list[str]) -> Iterator[httpx.Response]:
    """Everything that the pages ask for, of combos whose provider has quoted its credential."""
    http = krouter.http
    for page in ("view", "log", "routes?limit=1000", "faults", "quota"):
        yield http.get(f"/api/{page}")
    for name in names:
        yield http.get(f"/api/combos/{name}")
        yield http.post(f"/api/combos/{name}/preview", json={"combo": {"models": ["local/x"]}})
        yield http.post("/api/whatif", json={"combo": name, "fail": {"local": 401}})
    for account, place in [(each, place) for each in ACCOUNTS for place in range(len(WAYS))]:
        body = {"account": account, "model": f"{account}-{place}"}
        yield http.post("/api/providers/local/test", json=body)
    yield http.put("/api/settings", json={"combo_sticky_limit": 2})
    yield http.put("/api/providers/local", json={"account_strategy": "p2c"})
    yield http.put("/api/providers/local", json={"account_strategy": 5})


def test_no_credential_comes_out_of_an_admin_call(
    tmp_path: Path, caller_key: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{account}-{place}" for account in ACCOUNTS for place in range(len(WAYS))]
    combos = {
        name: {"models": [{"model": f"local/{name}", "accounts": [name.partition("-")[0]]}]}
        for name in names
    }
    with Upstream() as upstream:
        for name in names:
            account, _, place = name.partition("-")
            upstream.script(name, [WAYS[int(place)].format(key=quote(ACCOUNTS[account], safe=""))])
        settings = SETTINGS.format(url=upstream.url)
        with Krouter(tmp_path, combos=combos, settings=settings, env=ENV) as krouter:
            krouter.http.headers["x-krouter-key"] = caller_key
            with krouter.http.stream("GET", "/api/live") as live:
                lines = live.iter_lines()
                out = [next(lines)]
                for name in names:
                    krouter.chat(name)
                told = list(admin_calls(krouter, names[:4]))
                krouter.chat("demo")
                while "demo → demo/" not in out[-1]:
                    out.append(next(lines))
            out += [seen_by(each) for each in told]
        used = {request.credential for request in upstream.requests}
    assert used == set(ACCOUNTS.values()), "each key was at risk"
    everything = "\n".join([*out, caplog.text])
    assert "no such key" in everything, "the providers' own words do come out"
    assert {each.status_code for each in told} == {200, 400}
    for secret in (*ACCOUNTS.values(), caller_key):
        assert secret not in everything
