"""`krouter doctor` against a krouter, another program, and nobody, all on real sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from krouter.keys import add_key
from tests.cli.conftest import Home, put_program, run
from tests.harness import Krouter, provider_settings
from tests.upstream import Upstream

COMBO = {"models": ["one/good:text=Hello."]}


@pytest.fixture
def served(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory, user: Path
) -> Iterator[Krouter]:
    settings, env = provider_settings(upstream.url, one="a")
    lonely = {"models": ["glm/glm-5.1"]}
    combos = {"daily": COMBO, "bad": {"models": ["one/b:status=401"]}, "lonely": lonely}
    folder = tmp_path_factory.mktemp("served")
    with Krouter(folder, combos=combos, settings=settings, env=env) as krouter:
        yield krouter


class Told:
    """What the doctor says of each thing, by what it is about."""

    def __init__(self, *args: str, **env: str) -> None:
        result = run("doctor", *args, "--json", env=env)
        told = json.loads(result.stdout)
        assert result.exit_code == (0 if told["ok"] else 1)
        self.findings: list[dict[str, str]] = told["findings"]
        self.faults = [each["about"] for each in self.findings if each["level"] == "fault"]
        self.warnings = [each["about"] for each in self.findings if each["level"] == "warning"]
        self.well = [each["about"] for each in self.findings if each["level"] == "ok"]
        assert told["ok"] == (not self.faults)

    def of(self, about: str) -> str:
        return " ".join(f"{e['message']} {e['hint']}" for e in self.findings if e["about"] == about)


def doctor(krouter: Krouter, *args: str, **env: str) -> Told:
    return Told(*args, "--url", krouter.url, "--home", str(krouter.home), **env)


def test_all_is_well(served: Krouter) -> None:
    told = doctor(served, ONE_A="x")
    assert (told.faults, told.warnings) == ([], [])
    expected = "server health home key model outlook chat messages responses gemini".split()
    assert told.well == expected


def test_people_get_a_line_each_and_the_sum(served: Krouter) -> None:
    args = ("doctor", "--url", served.url, "--home", str(served.home))
    result = run(*args, env={"ONE_A": "x", "OPENAI_BASE_URL": served.url})
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].split()[:2] == ["ok", "server"]
    at = next(i for i, line in enumerate(lines) if line.startswith("fault"))
    assert lines[at].split(maxsplit=3)[1:3] == ["OPENAI_BASE_URL", "lacks"]
    again = f"krouter env --home {served.home} --url {served.url} openai"
    assert lines[at + 1].strip() == again
    assert result.stderr == "1 fault, 0 warnings\n"


def test_nobody_answers(user: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        told = Told("--url", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert told.faults == ["server"]
    assert "krouter serve" in told.of("server")


@contextmanager
def another(body: bytes, status: int = 200) -> Iterator[str]:
    """A web server that answers everything alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'["version"]', b"[" * 100_000])
@pytest.mark.parametrize("status", [200, 404])
def test_another_program_answers(user: Path, body: bytes, status: int) -> None:
    with another(body, status) as url:
        told = Told("--url", url)
        env = run("env", "claude", "--url", url)
    assert told.faults == ["server"]
    assert f"another program answers at {url} ({status}, BaseHTTP" in told.of("server")
    assert env.exit_code in (1, 3)


@pytest.mark.parametrize(
    "more", [{}, {"home": "/"}, {"home": "/", "data": [3]}, {"home": 7, "data": {}}]
)
def test_another_program_may_have_a_version_too(user: Path, more: dict[str, Any]) -> None:
    with another(json.dumps({"version": 1, **more}).encode()) as url:
        told = Told("--url", url)
        for asked in ((), ("--model", "x")):
            assert run("env", "claude", "--url", url, *asked).exit_code in (1, 3)
    assert told.faults == ["server"]


@pytest.fixture
def greeter() -> Iterator[str]:
    """Something that speaks no HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def serve() -> None:
            while True:
                there, _ = listening.accept()
                with there:
                    if stop.is_set():
                        return
                    there.recv(4096)
                    there.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        yield f"http://127.0.0.1:{port}"
        stop.set()
        socket.create_connection(("127.0.0.1", port)).close()
        thread.join()


def test_what_speaks_no_http_is_no_krouter(user: Path, greeter: str) -> None:
    told = Told("--url", greeter)
    assert told.faults == ["server"]
    assert "does not speak HTTP" in told.of("server")
    for command in (("env", "claude"), ("quota",)):
        result = run(*command, "--url", greeter)
        assert (result.exit_code, result.stdout) == (3, "")
        assert "is no krouter" in result.stderr


def test_a_host_that_krouter_refuses(served: Krouter) -> None:
    port = served.url.rpartition(":")[2]
    told = Told("--url", f"http://127.1:{port}")
    assert told.faults == ["server"]
    assert "allowed_hosts" in told.of("server")
    local = doctor(served, "--url", f"http://localhost:{port}", ONE_A="x")
    assert local.faults == []


def test_https_where_krouter_speaks_http(served: Krouter) -> None:
    told = Told("--url", served.url.replace("http:", "https:"))
    assert told.faults == ["server"]
    assert "speaks no https" in told.of("server")
    assert f"--url {served.url}" in told.of("server")
    env = run("env", "claude", "--url", served.url.replace("http:", "https:"))
    assert "speaks no https" in env.stderr, "and krouter env says the same"


def test_settings_that_cannot_be_used(home: Home, user: Path) -> None:
    home.settings("[servr]\n")
    told = Told("--home", str(home.path))
    assert told.faults == ["settings"]
    assert "servr" in told.of("settings")
    assert run("doctor", "--home", str(home.path), "--url", "x").exit_code == 2


def test_krouters_own_problems_are_told(tmp_path: Path, user: Path) -> None:
    with Krouter(tmp_path, combos={"broken": {"models": 7}}) as krouter:
        told = doctor(krouter, "--model", "demo")
    assert told.warnings == ["health"]
    assert "broken" in told.of("health")


def test_a_key_is_needed(upstream: Upstream, tmp_path: Path, user: Path) -> None:
    key = add_key(tmp_path / "keys.json", "me", 0.0)
    settings, env = provider_settings(upstream.url, one="a")
    with Krouter(tmp_path, combos={"daily": COMBO}, settings=settings, env=env) as krouter:
        assert doctor(krouter).faults == ["key"]
        wrong = doctor(krouter, "--key", "kr-wrong")
        assert wrong.faults == ["key"]
        assert "kr-wrong" not in str(wrong.findings)
        good = doctor(krouter, KROUTER_KEY=key, ONE_A="x")
        assert (good.faults, "messages" in good.well) == ([], True)
        claude = {"ANTHROPIC_BASE_URL": krouter.url, "KROUTER_KEY": key}
        token = doctor(krouter, "claude", ANTHROPIC_AUTH_TOKEN="none", **claude)
        assert token.faults == ["ANTHROPIC_AUTH_TOKEN"]
        assert doctor(krouter, "claude", ANTHROPIC_AUTH_TOKEN=key, **claude).faults == []


def test_a_model_that_is_not_served(served: Krouter) -> None:
    told = doctor(served, "--model", "dayly")
    assert told.faults == ["model"]
    assert "Did you mean 'daily'?" in told.of("model")


def test_a_combo_without_accounts_is_warned_of(served: Krouter) -> None:
    """The running krouter knows best: what this shell's variables hold says nothing of it."""
    assert doctor(served).warnings == []
    told = doctor(served, "--model", "lonely")
    assert (told.faults, told.warnings) == ([], ["outlook"])
    assert "lonely cannot be answered" in told.of("outlook")
    assert f"krouter explain --home {served.home} lonely" in told.of("outlook")


@pytest.mark.parametrize("client", ["claude", "codex", "aider", "gemini"])
def test_asked_to_it_sends_one_real_request(
    served: Krouter, upstream: Upstream, client: str
) -> None:
    told = doctor(served, client, "--ask")
    assert told.of("ask").endswith(served.last_route["id"])
    assert "one/good:text=Hello. answers for daily" in told.of("ask")
    assert len(upstream.requests) == 1


def test_a_home_that_is_not_this_one_is_said(home: Home, served: Krouter) -> None:
    told = Told("--ask", "--url", served.url, "--home", str(home.path))
    assert (told.faults, told.warnings) == ([], ["home"])
    assert told.of("ask").endswith(f"--home {served.home}")


def test_without_asking_no_model_is_asked(served: Krouter, upstream: Upstream) -> None:
    doctor(served)
    assert upstream.requests == []


def test_a_request_that_fails_is_a_fault(served: Krouter) -> None:
    told = doctor(served, "--ask", "--model", "bad")
    assert told.faults == ["ask"]
    assert "tried one/b:status=401" in told.of("ask")


@pytest.mark.parametrize(
    ("client", "name", "value", "level", "words"),
    [
        ("claude", "ANTHROPIC_BASE_URL", "{url}", "ok", ""),
        ("claude", "ANTHROPIC_BASE_URL", "{url}/", "ok", ""),
        ("claude", "ANTHROPIC_BASE_URL", "{local}", "ok", ""),
        ("claude", "ANTHROPIC_BASE_URL", "{url}/v1", "warning", "a /v1 too many"),
        ("claude", "ANTHROPIC_BASE_URL", "{url}/v1/v1", "fault", "has the path /v1/v1"),
        ("claude", "ANTHROPIC_BASE_URL", "{url}/v1/messages", "fault", "holds an endpoint"),
        ("claude", "ANTHROPIC_BASE_URL", "http://127.0.0.1:1", "fault", "not this krouter"),
        ("claude", "ANTHROPIC_BASE_URL", "http://u:secret@x/?k=secret", "fault", "'http://x/'"),
        ("openai", "OPENAI_BASE_URL", "{url}/v1", "ok", ""),
        ("openai", "OPENAI_BASE_URL", "{url}", "fault", "lacks /v1"),
        ("openai", "OPENAI_BASE_URL", "{url}/v1/v1", "warning", "a /v1 too many"),
        ("openai", "OPENAI_BASE_URL", "{tls}/v1", "fault", "not this krouter"),
        ("openai", "OPENAI_BASE_URL", "http://127.0.0.1:99999/v1", "fault", "not this krouter"),
        ("aider", "OPENAI_API_BASE", "{url}/v1/chat/completions", "fault", "holds an endpoint"),
        ("gemini", "GOOGLE_GEMINI_BASE_URL", "{url}/v1beta", "fault", "the path /v1beta"),
    ],
)
def test_the_address_of_a_client(
    served: Krouter, client: str, name: str, value: str, level: str, words: str
) -> None:
    local = served.url.replace("127.0.0.1", "localhost")
    tls = served.url.replace("http:", "https:")
    given = value.format(url=served.url, local=local, tls=tls)
    keys = {"ANTHROPIC_AUTH_TOKEN": "x", "OPENAI_API_KEY": "x", "GEMINI_API_KEY": "x"}
    told = doctor(served, client, ONE_A="x", **{name: given}, **keys)
    (found,) = (each for each in told.findings if each["about"] == name)
    assert found["level"] == level
    assert words in found["message"]
    assert "secret" not in str(told.findings)


def test_addresses_that_krouter_passes_over_work(served: Krouter) -> None:
    """What is only warned of must really be answered."""
    for path in ("/v1/v1/messages/count_tokens", "/v1/v1/responses/input_tokens"):
        body = {"model": "daily", "messages": [], "input": "x"}
        assert served.http.post(path, json=body).status_code == 200
    assert served.http.get("/v1/v1/v1/models").status_code == 404


def test_without_a_client_a_foreign_address_is_only_warned_of(served: Krouter) -> None:
    told = doctor(served, ONE_A="x", OPENAI_BASE_URL="https://api.openai.com/v1")
    assert (told.faults, told.warnings) == ([], ["OPENAI_BASE_URL"])


def claude(krouter: Krouter, **env: str) -> Told:
    usual = {
        "ANTHROPIC_BASE_URL": krouter.url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": "daily",
        "ONE_A": "x",
    }
    return doctor(krouter, "claude", **{**usual, **env})


def test_claude_code_is_well(served: Krouter, user: Path) -> None:
    program = put_program(user / "bin", "claude", "")
    told = claude(served, PATH=str(program.parent))
    assert (told.faults, told.warnings) == ([], [])
    assert str(program) in told.of("program")
    assert claude(served, PATH="").warnings == ["program"]


def test_claude_code_is_told_nothing(served: Krouter) -> None:
    told = claude(served, ANTHROPIC_BASE_URL="")
    assert told.faults == ["ANTHROPIC_BASE_URL"]
    assert "krouter code" in told.of("ANTHROPIC_BASE_URL")
    assert claude(served, ANTHROPIC_AUTH_TOKEN="").faults == ["ANTHROPIC_AUTH_TOKEN"]


def test_claude_code_has_two_keys(served: Krouter) -> None:
    assert "ANTHROPIC_API_KEY" in claude(served, ANTHROPIC_API_KEY="x").warnings


def test_claude_code_is_led_elsewhere(served: Krouter) -> None:
    assert claude(served, CLAUDE_CODE_USE_BEDROCK="1").faults == ["CLAUDE_CODE_USE_BEDROCK"]
    assert claude(served, CLAUDE_CODE_USE_BEDROCK="0").faults == []
    small = claude(served, ANTHROPIC_SMALL_FAST_MODEL="haiku")
    assert "ANTHROPIC_SMALL_FAST_MODEL" in small.warnings


def test_the_settings_of_claude_code_win(served: Krouter, user: Path) -> None:
    for folder in (user, user / "work"):
        (folder / ".claude").mkdir()
    own = user / ".claude" / "settings.json"
    own.write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": "https://elsewhere"}}))
    told = claude(served)
    assert told.faults == ["ANTHROPIC_BASE_URL"]
    assert "in ~/.claude/settings.json: is 'https://elsewhere'" in told.of("ANTHROPIC_BASE_URL")
    near = user / "work" / ".claude" / "settings.local.json"
    near.write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": served.url}, "apiKeyHelper": "x"}))
    told = claude(served)
    assert told.faults == []
    assert "apiKeyHelper" in told.of("file")
    near.write_text(json.dumps({"apiKeyHelper": "x"}))
    own.unlink()
    assert claude(served, ANTHROPIC_BASE_URL="").faults == ["ANTHROPIC_BASE_URL"]
    near.write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": served.url}}))
    own.write_text("{")
    assert claude(served).faults == ["file"]
    own.write_text("[]")
    assert claude(served).faults == []


def test_a_login_must_not_be_hidden_by_a_token(
    upstream: Upstream, tmp_path: Path, user: Path
) -> None:
    settings, env = provider_settings(upstream.url, one="a")
    settings += '[[account]]\nprovider = "cc"\nname = "me"\nauth = "caller"\n'
    with Krouter(tmp_path, combos={"daily": COMBO}, settings=settings, env=env) as krouter:
        assert claude(krouter).faults == ["ANTHROPIC_AUTH_TOKEN"]
        assert claude(krouter, ANTHROPIC_AUTH_TOKEN="").faults == []


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_proxy_in_between(served: Krouter, name: str) -> None:
    told = doctor(served, ONE_A="x", **{name: "http://127.0.0.1:9"})
    assert told.faults == ["proxy"], "and krouter itself is asked without it"
    assert "NO_PROXY" in told.of("proxy")
    assert doctor(served, ONE_A="x", NO_PROXY="127.0.0.1", **{name: "http://x"}).faults == []


CODEX = 'model_provider = "k"\n[model_providers.k]\nbase_url = "{url}/v1"\n'


@pytest.mark.parametrize(
    ("text", "fault", "words"),
    [
        (CODEX, "", ""),
        (CODEX + 'wire_api = "responses"\n', "", ""),
        (CODEX + 'wire_api = "chat"\n', "wire_api", "responses"),
        (CODEX + 'env_key = "NOT_SET"\n', "env_key", "NOT_SET"),
        (CODEX.replace("/v1", ""), "file", "lacks /v1"),
        (CODEX.replace("{url}", "http://127.0.0.1:1"), "file", "not this krouter"),
        (CODEX.replace('er = "k"', 'er = "other"'), "file", "'other'"),
        ('openai_base_url = "{url}/v1"\n', "", ""),
        ("model = 'x'\n", "file", "'openai'"),
        ("model_providers = 3\n", "file", "'openai'"),
        ("model = ", "file", "is broken"),
        (None, "file", "there is no ~/.codex/config.toml"),
    ],
)
def test_the_file_of_codex(
    served: Krouter, user: Path, text: str | None, fault: str, words: str
) -> None:
    if text is not None:
        (user / ".codex").mkdir()
        (user / ".codex" / "config.toml").write_text(text.format(url=served.url))
    told = doctor(served, "codex", ONE_A="x")
    assert told.faults == ([fault] if fault else [])
    assert words in told.of(fault or "file")


def opencode(url: str, **more: Any) -> dict[str, Any]:
    return {"model": "k/daily", "provider": {"k": {"options": {"baseURL": url}}}, **more}


def test_the_files_of_opencode(served: Krouter, user: Path) -> None:
    def told(text: str | dict[str, Any]) -> Told:
        shown = text if isinstance(text, str) else json.dumps(text)
        (user / "work" / "opencode.jsonc").write_text(shown)
        return doctor(served, "opencode", ONE_A="x")

    url = f"{served.url}/v1"
    assert doctor(served, "opencode", ONE_A="x").faults == ["file"], "there is none"
    assert told(opencode(url)).faults == []
    options = f'{{"baseURL": "{url}",}}'
    commented = f'{{ // "mine"\n/* x */ "provider": {{"k": {{"options": {options}}}}},}}'
    assert told(commented).faults == []
    assert told(opencode(served.url)).faults == ["file"]
    assert told(opencode("https://elsewhere/v1")).faults == ["file"]
    assert told("{").faults[:1] == ["file"]
    assert "model" in told(opencode(url, model="openai/gpt")).warnings
    folder = user / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.json").write_text(json.dumps(opencode(url)))
    assert told({"small_model": "k/daily"}).faults == []


@pytest.mark.parametrize(
    ("client", "path", "line"),
    [
        ("aider", ".aider.conf.yml", 'openai-api-base: "{url}"'),
        (
            "llm",
            ".config/io.datasette.llm/extra-openai-models.yaml",
            "- model_id: k\n  api_base: {url}",
        ),
        ("continue", ".continue/config.yaml", "models:\n  - apiBase: '{url}' # mine"),
    ],
)
def test_files_of_yaml(served: Krouter, user: Path, client: str, path: str, line: str) -> None:
    file = user / path
    assert doctor(served, client, ONE_A="x").faults != []
    file.parent.mkdir(parents=True, exist_ok=True)
    for url, level in ((f"{served.url}/v1", "ok"), (served.url, "fault"), ("http://x/v1", "fault")):
        file.write_text(line.format(url=url))
        told = doctor(served, client, ONE_A="x", OPENAI_API_KEY="none")
        assert {each["level"] for each in told.findings if each["about"] == "file"} == {level}
        assert told.faults == (["file"] if level == "fault" else [])


@pytest.mark.parametrize("client", ["claude", "codex", "opencode", "llm", "continue", "aider"])
def test_what_env_prints_is_well(served: Krouter, user: Path, client: str) -> None:
    """Put where it says, the doctor finds no fault in it."""
    asked = run("env", client, "--url", served.url, "--json")
    told = json.loads(asked.stdout)
    for file in told["files"]:
        Path(file["path"]).parent.mkdir(parents=True, exist_ok=True)
        Path(file["path"]).write_text(file["text"])
    assert doctor(served, client, ONE_A="x", **told["variables"]).faults == []


def test_cursor_cannot_come_to_this_machine(served: Krouter) -> None:
    told = doctor(served, "cursor", ONE_A="x", HTTP_PROXY="http://x")
    assert (told.faults, told.warnings) == (["address"], ["address"])
    assert "public https" in told.of("address")
    assert f"krouter keys add --home {served.home} cursor" in told.of("address")


def test_an_unknown_client_is_refused(user: Path) -> None:
    assert run("doctor", "codx").exit_code == 1
    assert run("doctor", "--shell", "sh").exit_code == 2
