"""`krouter doctor` on what a client is set to: its key, its models, its files."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from krouter.cli.examine_client import shown_url
from krouter.keys import add_key
from tests.cli.conftest import run
from tests.cli.test_doctor import COMBO, Told, another, doctor
from tests.harness import Krouter, provider_settings
from tests.upstream import Upstream

SECRET = "sk-canary-5512"


@pytest.fixture
def served(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory, user: Path
) -> Iterator[Krouter]:
    settings, env = provider_settings(upstream.url, one="a")
    folder = tmp_path_factory.mktemp("served")
    with Krouter(folder, combos={"daily": COMBO}, settings=settings, env=env) as krouter:
        yield krouter


@pytest.fixture
def locked(upstream: Upstream, tmp_path: Path, user: Path) -> Iterator[tuple[Krouter, str]]:
    """A krouter that asks for a key, and its key."""
    key = add_key(tmp_path / "keys.json", "me", 0.0)
    settings, env = provider_settings(upstream.url, one="a")
    with Krouter(tmp_path, combos={"daily": COMBO}, settings=settings, env=env) as krouter:
        yield krouter, key


def claude(krouter: Krouter, **env: str) -> Told:
    usual = {"ANTHROPIC_BASE_URL": krouter.url, "ANTHROPIC_AUTH_TOKEN": "none", "ONE_A": "x"}
    return doctor(krouter, "claude", **{**usual, **env})


@pytest.mark.parametrize("odd", ["kr-x\n", "kr-x\ny", "kr-\u00fc", "kr-\u4e2d"])
@pytest.mark.parametrize("given", [{}, {"KROUTER_KEY": "good"}])
def test_an_odd_key_of_a_client_is_a_finding(
    locked: tuple[Krouter, str], odd: str, given: dict[str, str]
) -> None:
    krouter, key = locked
    told = claude(krouter, ANTHROPIC_AUTH_TOKEN=odd, **dict.fromkeys(given, key))
    assert "ANTHROPIC_AUTH_TOKEN" in told.faults
    assert "no header can carry" in told.of("ANTHROPIC_AUTH_TOKEN")
    assert ("messages" in told.well) == bool(given)


def test_an_odd_key_is_a_finding_where_none_is_needed(served: Krouter) -> None:
    told = claude(served, ANTHROPIC_AUTH_TOKEN="x\n")
    assert told.faults == ["ANTHROPIC_AUTH_TOKEN"]
    assert "messages" in told.well


def test_an_odd_key_of_krouters_is_a_finding(served: Krouter) -> None:
    told = doctor(served, KROUTER_KEY="kr-x\n", ONE_A="x")
    assert told.faults == ["key"]
    assert "KROUTER_KEY" in told.of("key")
    assert "messages" in told.well


def test_a_clients_own_key_is_enough(locked: tuple[Krouter, str], user: Path) -> None:
    krouter, key = locked
    told = claude(krouter, ANTHROPIC_AUTH_TOKEN=key)
    assert told.faults == []
    assert "that of ANTHROPIC_AUTH_TOKEN is good" in told.of("key")
    assert {"model", "messages", "ANTHROPIC_AUTH_TOKEN"} <= set(told.well)
    openai = {"OPENAI_BASE_URL": f"{krouter.url}/v1", "OPENAI_API_KEY": key}
    assert doctor(krouter, ONE_A="x", **openai).faults == []
    wrong = claude(krouter, ANTHROPIC_AUTH_TOKEN="kr-wrong")
    assert wrong.faults == ["key", "ANTHROPIC_AUTH_TOKEN"]


def test_a_key_that_goes_elsewhere_is_not_tried(locked: tuple[Krouter, str]) -> None:
    krouter, key = locked
    elsewhere = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "ANTHROPIC_AUTH_TOKEN": key}
    told = claude(krouter, **elsewhere)
    assert told.faults == ["ANTHROPIC_BASE_URL"], "one fault, told once"
    assert "none was tried" in told.of("key")


def test_a_key_in_a_file_is_enough(locked: tuple[Krouter, str], user: Path) -> None:
    krouter, key = locked
    asked = ("--url", krouter.url, "--key", key, "--json")
    for client in ("codex", "opencode"):
        told = json.loads(run("env", client, *asked).stdout)
        for file in told["files"]:
            Path(file["path"]).parent.mkdir(parents=True, exist_ok=True)
            Path(file["path"]).write_text(file["text"].replace("KROUTER_KEY", "MY_KEY"))
        assert doctor(krouter, client, MY_KEY=key, ONE_A="x").faults == []
        assert "key" in doctor(krouter, client, MY_KEY="kr-wrong", ONE_A="x").faults


@pytest.mark.parametrize(
    ("client", "name", "value"),
    [
        ("claude", "ANTHROPIC_MODEL", "dayly"),
        ("claude", "ANTHROPIC_MODEL", "dayly[1m]"),
        ("claude", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "dayly"),
        ("claude", "ANTHROPIC_SMALL_FAST_MODEL", "dayly"),
        ("aider", "AIDER_MODEL", "openai/dayly"),
        ("gemini", "GEMINI_MODEL", "dayly"),
        ("copilot", "COPILOT_MODEL", "dayly"),
        ("qwen", "OPENAI_MODEL", "dayly"),
    ],
)
def test_the_model_of_a_client_is_asked_for(
    served: Krouter, client: str, name: str, value: str
) -> None:
    env = json.loads(run("env", client, "--url", served.url, "--json").stdout)["variables"]
    assert doctor(served, client, **{**env, "ONE_A": "x"}).faults == []
    told = doctor(served, client, **{**env, name: value, "ONE_A": "x"})
    assert told.faults == [name]
    assert "Did you mean 'daily'?" in told.of(name)
    well = doctor(served, client, **{**env, name: value.replace("dayly", "daily"), "ONE_A": "x"})
    assert name in well.well


def test_names_of_claude_codes_own_are_not_asked_for(served: Krouter) -> None:
    assert claude(served, ANTHROPIC_MODEL="opusplan", CLAUDE_CODE_SUBAGENT_MODEL="").faults == []


CODEX = """
{top}
[model_providers.k]
base_url = "{url}/v1"
[profiles.mine]
model_provider = "k"
model = "{model}"
"""


def test_the_profile_of_codex_counts(served: Krouter, user: Path) -> None:
    file = user / ".codex" / "config.toml"
    file.parent.mkdir()

    def told(top: str, model: str = "daily") -> Told:
        file.write_text(CODEX.format(top=top, url=served.url, model=model))
        return doctor(served, "codex", ONE_A="x")

    assert told('profile = "mine"').faults == []
    assert told('profile = "mine"', "dayly").faults == ["model"]
    assert told('profile = "other"').faults == ["file"]
    assert told("profile = 7").faults == ["file"]
    assert told('model_provider = ["k"]').faults == ["file"]
    assert told('model = "dayly"\nmodel_provider = "k"').faults == ["model"]


def test_the_variables_in_the_file_of_opencode_count(served: Krouter, user: Path) -> None:
    options = {"baseURL": "{env:KURL}", "apiKey": "none"}
    models = {"own": {"id": "daily"}, "dayly": {}}
    file = user / "work" / "opencode.json"

    def told(model: str, url: str) -> Told:
        provider = {"k": {"options": options, "models": models}}
        file.write_text(json.dumps({"provider": provider, "small_model": model}))
        return doctor(served, "opencode", KURL=url, ONE_A="x")

    assert told("k/daily", f"{served.url}/v1").faults == []
    assert told("k/own", f"{served.url}/v1").faults == []
    assert told("k/dayly", f"{served.url}/v1").faults == ["small_model"]
    assert told("k/daily", "http://127.0.0.1:1/v1").faults == ["file"]


@pytest.mark.parametrize(
    "url",
    [
        "http://me:{s}@{host}/v1",
        "http://{host}/v1?key={s}",
        "http://{host}/v1#{s}",
        "http://me:{s}/x@{host}/v1",
        "me:{s}@{host}/v1",
    ],
)
def test_secrets_in_addresses_are_faults_and_not_shown(
    served: Krouter, user: Path, url: str
) -> None:
    given = url.format(s=SECRET, host=served.url.partition("//")[2])
    (user / ".codex").mkdir()
    (user / ".codex" / "config.toml").write_text(
        f'model_provider = "k"\n[model_providers.k]\nbase_url = "{given}"\n'
    )
    told = doctor(served, "openai", OPENAI_BASE_URL=given, OPENAI_API_KEY="x", ONE_A="x")
    codex = doctor(served, "codex", ONE_A="x")
    every = doctor(served, ONE_A="x", OPENAI_BASE_URL=given)
    assert (told.faults, codex.faults) == (["OPENAI_BASE_URL"], ["file"])
    assert every.faults + every.warnings == ["OPENAI_BASE_URL"]
    assert SECRET not in str((told.findings, codex.findings, every.findings))


def test_a_plain_address_is_shown_whole() -> None:
    assert shown_url("http://127.0.0.1:1/v1") == "http://127.0.0.1:1/v1"


def test_what_a_server_says_cannot_steer_the_terminal(user: Path) -> None:
    body = json.dumps({"error": {"message": "gone\a\r\x9b2J"}}).encode()
    with another(body, 404) as url:
        for command in (("env", "claude"), ("doctor",), ("quota",)):
            result = run(*command, "--url", url)
            assert result.exit_code in (1, 3)
            assert not {"\a", "\r", "\x9b"} & set(result.output)


@pytest.mark.parametrize("text", ['"\\' * 200_000, '"' + '\\"' * 200_000, "/* " * 200_000])
def test_files_of_json_are_read_in_one_pass(served: Krouter, user: Path, text: str) -> None:
    (user / "work" / "opencode.json").write_text(text)
    assert doctor(served, "opencode", ONE_A="x").faults == ["file"]


@pytest.mark.parametrize("text", ["\n" * 400_000, "- " * 200_000 + "\n" * 200_000])
def test_files_of_yaml_are_read_in_one_pass(served: Krouter, user: Path, text: str) -> None:
    folder = user / ".continue"
    folder.mkdir()
    (folder / "config.yaml").write_text(text)
    assert doctor(served, "continue", ONE_A="x").faults == ["file"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_not_waited_for(served: Krouter, user: Path) -> None:
    os.mkfifo(user / "work" / "opencode.json")
    told = doctor(served, "opencode", ONE_A="x")
    assert "no regular file" in told.of("file")
    (user / ".codex").mkdir()
    (user / ".codex" / "config.toml").write_text("# " + "x" * 2**22)
    assert "too long" in doctor(served, "codex", ONE_A="x").of("file")


def test_homes_are_printed_so_that_they_hold_anywhere(served: Krouter, user: Path) -> None:
    (user / "work" / "my home").mkdir()
    result = run("env", "claude", "--url", served.url, "--home", "my home")
    assert shlex.quote(str(user / "work" / "my home")) in result.stdout


def test_a_home_in_a_hint_can_be_copied(upstream: Upstream, tmp_path: Path, user: Path) -> None:
    home = tmp_path / "my home"
    home.mkdir()
    settings, env = provider_settings(upstream.url, one="a")
    with Krouter(home, combos={"daily": COMBO}, settings=settings, env=env) as krouter:
        told = Told("--ask", "--url", krouter.url)
    assert told.of("home").endswith(f"--home {shlex.quote(str(home))}")
    assert told.of("ask").endswith(f"--home {shlex.quote(str(home))}")


def test_the_model_in_the_settings_of_claude_code_counts(served: Krouter, user: Path) -> None:
    own = user / ".claude" / "settings.json"
    here = user / "work" / ".claude" / "settings.json"
    for file, model in ((own, "dayly"), (here, "daily")):
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"model": model}))
    assert "model" in claude(served).well
    here.unlink()
    told = claude(served)
    assert told.faults == ["model"]
    assert "settings.json: " in told.of("model")
    assert claude(served, ANTHROPIC_MODEL="daily").faults == []
    own.write_text(json.dumps({"model": "opusplan"}))
    assert claude(served, model="dayly").faults == []


def test_the_files_of_opencode_are_laid_over_each_other(served: Krouter, user: Path) -> None:
    own, here = user / ".config" / "opencode" / "opencode.json", user / "work" / "opencode.json"
    own.parent.mkdir(parents=True)
    options = {"baseURL": f"{served.url}/v1", "apiKey": "none"}
    own.write_text(json.dumps({"provider": {"k": {"options": options}}, "model": "k/dayly"}))
    here.write_text(json.dumps({"provider": {"k": {"models": {"own": {"id": "daily"}}}}}))
    assert doctor(served, "opencode", ONE_A="x").faults == ["model"]
    both = {"provider": {"k": {"options": {"timeout": 1}}}, "model": "k/daily"}
    here.write_text(json.dumps(both))
    assert doctor(served, "opencode", ONE_A="x").faults == []


@pytest.mark.parametrize("named", ["key.txt", "~/work/key.txt", "{home}/work/key.txt"])
def test_a_key_of_opencode_may_be_in_a_file(
    locked: tuple[Krouter, str], user: Path, named: str
) -> None:
    krouter, key = locked
    (user / "work" / "key.txt").write_text(f"{key}\n")
    options = {"baseURL": f"{krouter.url}/v1", "apiKey": f"{{file:{named.format(home=user)}}}"}
    settings = {"provider": {"k": {"options": options}}, "model": "k/daily"}
    (user / "work" / "opencode.json").write_text(json.dumps(settings))
    assert doctor(krouter, "opencode", ONE_A="x").faults == []
    (user / "work" / "key.txt").write_text("kr-wrong")
    assert "key" in doctor(krouter, "opencode", ONE_A="x").faults
    (user / "work" / "key.txt").unlink()
    assert "not there" in doctor(krouter, "opencode", ONE_A="x").of("file")


YAML = {
    "aider": (".aider.conf.yml", "openai-api-base: {url}/v1\nweak-model: 'openai/{model}' # w\n"),
    "llm": (
        ".config/io.datasette.llm/extra-openai-models.yaml",
        "- model_id: other\n  model_name: dayly\n  api_base: http://127.0.0.1:1/v1\n"
        '- model_id: k\n  api_base: "{url}/v1"\n  model_name: "{model}"\n',
    ),
    "continue": (
        ".continue/config.yaml",
        "name: x\nmodels:\n  - name: k\n    model: {model}\n    apiBase: {url}/v1\n    roles:\n"
        "      - chat\n    nested:\n      model: dayly\n  - name: o\n    model: gpt-x\n",
    ),
}


@pytest.mark.parametrize("client", YAML)
def test_the_models_in_files_of_yaml_count(served: Krouter, user: Path, client: str) -> None:
    name, text = YAML[client]
    file = user / name
    file.parent.mkdir(parents=True, exist_ok=True)
    env = {"ONE_A": "x", "OPENAI_API_BASE": f"{served.url}/v1", "OPENAI_API_KEY": "none"}
    field = {"aider": "weak-model", "llm": "model_name", "continue": "model"}[client]
    for model, faults in (("daily", []), ("dayly", [field])):
        file.write_text(text.format(url=served.url, model=model))
        told = doctor(served, client, **env)
        assert told.faults == faults
        assert f"~/{name}: " in told.of(field)
    if client == "aider":
        assert doctor(served, client, **env, AIDER_WEAK_MODEL="openai/daily").faults == []
        file.write_text("model: openai/dayly\n")
        assert doctor(served, client, **env).faults == ["model"]
