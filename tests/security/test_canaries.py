"""No secret comes out of krouter: planted everywhere, said back by providers in every way that they
know, and looked for in all that krouter says and keeps."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

import krouter as library
from krouter.cli.root import cli
from krouter.keys import add_key
from tests.harness import Krouter
from tests.security.canaries import CASES, CORES, found, secret
from tests.upstream import Upstream

DIALECTS = ("chat", "messages", "gemini", "responses")
ACCOUNTS = ("env", "file", "command", "caller")
BASES = {"chat": "/v1", "messages": "", "gemini": "", "responses": ""}
ENV = {"CANARY": secret("env"), "PRINTED": secret("command"), "GLM_API_KEY": secret("unused")}
SETTINGS = """
[provider.{name}]
speaks = ["{name}"]
base_urls = {{ {name} = "{url}" }}
headers = {{ x-team-token = '''{header}''', x-team = "blue" }}
"""
ACCOUNT = """
[[account]]
provider = "{provider}"
name = "{name}"
{key}
"""
KEYS = {
    "env": 'key = "env:CANARY"',
    "file": 'key = "file:token.json"',
    "command": """key = 'command:printf %s "$PRINTED"'""",
    "caller": 'auth = "caller"',
}
HEADERS = {
    "authorization": f"Bearer {secret('caller')}",
    "x-api-key": secret("x-api-key"),
    "x-goog-api-key": secret("x-goog-api-key"),
    "cookie": f"session={secret('cookie')}",
}
OWN_REQUEST_ONLY = frozenset(ACCOUNTS) | {"setting"}
"""The secrets that a provider is sent."""


def prepare(home: Path, url: str) -> str:
    home.mkdir(parents=True, exist_ok=True)
    (home / "token.json").write_text(json.dumps({"access_token": secret("file")}))
    text = ""
    for name in DIALECTS:
        text += SETTINGS.format(name=name, url=url + BASES[name], header=secret("setting"))
        text += "".join(ACCOUNT.format(provider=name, name=a, key=KEYS[a]) for a in ACCOUNTS)
    return text


@pytest.mark.native_garbage("a provider says back what it was sent, in bytes of no dialect")
@pytest.mark.parametrize(("caller", "spoken"), [*product(DIALECTS, DIALECTS)])
def test_no_secret_comes_out(
    tmp_path: Path,
    shared: Upstream,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    caller: str,
    spoken: str,
) -> None:
    caplog.set_level(logging.DEBUG, "krouter")
    shared.clear()
    settings = prepare(tmp_path, shared.url)
    key = add_key(tmp_path / "keys.json", "laptop", 0.0)
    combos = {
        f"c{place}-{account}": {"models": [{"model": f"{spoken}/m{place}", "accounts": [account]}]}
        for place in range(len(CASES))
        for account in (ACCOUNTS[place % 4],)
    }
    for place, echo in enumerate(CASES):
        shared.script(f"m{place}", [echo])
    out: list[bytes] = []
    env = {**ENV, "PATH": os.environ["PATH"]}
    with Krouter(tmp_path, combos=combos, settings=settings, env=env, ledger=True) as krouter:
        krouter.http.headers.update({**HEADERS, "x-krouter-key": key})
        krouter.http.params = krouter.http.params.set("key", secret("query"))
        for name, stream in product(combos, (False, True)):
            reply = krouter.ask(caller, name, stream)
            out += [repr(reply.headers.raw).encode(), reply.content]
            krouter.clock.forward(100_000)
        krouter.idle()
        pages = ("routes?limit=999", "quota", "view", "log", "faults")
        for page in ("/metrics", "/health", "/v1/models", *(f"/api/{each}" for each in pages)):
            reply = krouter.http.get(page)
            assert reply.status_code == 200
            out += [repr(reply.headers.raw).encode(), reply.content]
        out += [line.encode() for line in krouter.lines]
        out += files(tmp_path)
        out += commands(krouter, env, key) if caller == spoken else ()
    out += files(tmp_path)
    sent = shared.requests
    assert any(b"no such key" in each for each in out), "the providers' own words do come out"
    assert len(sent) >= 2 * len(CASES)
    told = capfd.readouterr()
    out += [caplog.text.encode(), told.out.encode(), told.err.encode()]
    for each in out:
        assert not found(each), (found(each), each[:3000])
        assert key.encode() not in each
    for request in sent:
        whole = f"{request.path}{request.headers}".encode() + request.body
        own = request_account(request.model)
        assert found(whole) == [name for name in CORES if name in (own, "setting")], request.path
        assert key.encode() not in whole


def request_account(model: str) -> str:
    return ACCOUNTS[int(model.removeprefix("m")) % 4]


def files(home: Path) -> list[bytes]:
    """The ledger with all that lies beside it."""
    return [path.read_bytes() for path in home.iterdir() if path.name.startswith("ledger.db")]


def commands(krouter: Krouter, env: dict[str, str], key: str) -> Iterator[bytes]:
    """What the command line says of the same home and the same server."""
    route = krouter.router.routes[-1].id
    home = ["--home", str(krouter.home)]
    running = [*home, "--url", krouter.url]
    asks: list[list[str]] = [
        ["check", *home],
        ["check", *home, "--json"],
        ["models", *home, "--json"],
        ["combos", *home, "--json"],
        ["log", *home, "--json"],
        ["usage", *home, "--json"],
        ["route", route, *home],
        ["route", route, *home, "--json"],
        ["keys", "list", *home, "--json"],
        ["paths", *home],
        ["explain", "c0-env", *home],
        ["explain", "c1-file", *home, "--json"],
        ["quota", *running, "--json"],
        ["doctor", *running],
        ["doctor", "claude", *running, "--json"],
        ["env", "claude", *running],
        ["env", "codex", *running],
    ]
    for args in asks:
        given = dict.fromkeys(os.environ, None) | env
        given |= {"HOME": str(krouter.home), "KROUTER_KEY": None if args[0] == "env" else key}
        result = CliRunner().invoke(cli, args, env=given, prog_name="krouter")
        assert result.exception is None or isinstance(result.exception, SystemExit), args
        yield " ".join(args[:2]).encode() + result.output.encode()


def test_no_secret_of_settings_comes_out_where_they_are_wrong(tmp_path: Path) -> None:
    typed = secret("setting")
    wrong = [
        f"[provider.x]\nkey = '''{typed}'''\n",
        f"[provider.x]\nkeys = '''{typed}'''\n",
        f"[provider.x]\nheaders = {{ authorization = '''{typed}''' }}\n",
        f"[provider.x]\nheaders = '''{typed}'''\n",
        f"[provider.x]\nbase_url = '''https://user:{typed}@example.org'''\n",
        f"[[account]]\nprovider = 'x'\nkey = '''env:{typed}'''\n",
        f"[[account]]\nprovider = 'x'\ntoken = '''{typed}'''\n",
        f"[[account]]\nprovider = 'x'\nkey = ['''{typed}''']\n",
        f"[provider.x]\nkey = '''command:exit 3 {typed}'''\nbase_url='http://127.0.0.1:1'\n",
    ]
    for text in wrong:
        with Krouter(tmp_path) as krouter:
            (tmp_path / "krouter.toml").write_text(text)
            krouter.served.house.refresh()
            reply = krouter.http.get("/health")
            assert "command:" in text or reply.json()["problems"]
            asked = krouter.chat("x/m").text if "command:" in text else ""
            out = [reply.text, asked, *krouter.lines]
        for args in (["check"], ["models"], ["explain", "demo"]):
            result = CliRunner().invoke(cli, [*args, "--home", str(tmp_path)])
            out.append(result.output + repr(result.exception))
        assert not found("\n".join(out).encode()), (text, out)


@pytest.mark.parametrize("spoken", DIALECTS)
def test_no_secret_comes_out_of_the_library(
    tmp_path: Path, shared: Upstream, caplog: pytest.LogCaptureFixture, spoken: str
) -> None:
    caplog.set_level(logging.DEBUG, "krouter")
    shared.clear()
    settings = tmp_path / "krouter.toml"
    settings.write_text(prepare(tmp_path, shared.url))
    for place, echo in enumerate(CASES):
        shared.script(f"m{place}", [echo])
    hello = [{"role": "user", "content": "hello"}]
    combos = {
        f"c{place}": {
            "models": [{"model": f"{spoken}/m{place}", "accounts": [ACCOUNTS[place % 3]]}]
        }
        for place in range(len(CASES))
    }
    env = {**ENV, "PATH": os.environ["PATH"]}
    out: list[str] = []

    def ask(model: str, stream: bool, **more: Any) -> None:
        try:
            reply = router.completion(model=model, messages=hello, stream=stream, **more)
            if stream:
                out.extend(str(chunk) for chunk in reply)
            out.append(f"{reply} {vars(reply)} {reply.route}")
        except Exception as error:
            shown = {name: value for name, value in vars(error).items() if name != "request"}
            out.append(f"{error!r} {error} {shown}")
            response = getattr(error, "response", None)
            out.append(f"{getattr(response, 'headers', '')} {getattr(response, 'text', '')}")

    with library.Router(combos=combos, home=tmp_path, env=env) as router:
        for place, stream in product(range(len(CASES)), (False, True)):
            ask(f"c{place}", stream)
            ask(f"{spoken}/m{place}", stream, api_key=secret("argument"))
    assert any("no such key" in each for each in out)
    assert {found(str(r.headers).encode(), "setting")[0] for r in shared.requests} == {
        *ACCOUNTS[:3],
        "argument",
    }
    for each in (*out, caplog.text, *(raw.decode("latin-1") for raw in files(tmp_path))):
        assert not found(each.encode()), (found(each.encode()), quote(each[:2000]))
