"""`krouter env` against a krouter on a real socket."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from krouter.cli.aim import default_model
from krouter.cli.clients import CLIENTS
from krouter.cli.shells import SHELLS
from krouter.keys import Limits, add_key
from tests.cli.conftest import Home, by, run
from tests.harness import Krouter, provider_settings

SETTINGS, ENV = provider_settings("http://127.0.0.1:1", one="a")
COMBOS = {
    "able": {"models": ["one/m"]},
    "daily": {"models": [{"model": "one/m", "contextWindow": 150_000}]},
}


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, user: Path) -> Iterator[Krouter]:
    home = tmp_path_factory.mktemp("served")
    with Krouter(home, combos=COMBOS, settings=SETTINGS, env=ENV) as krouter:
        yield krouter


def told(krouter: Krouter, client: str, *args: str, **env: str) -> Any:
    result = run("env", client, "--url", krouter.url, "--json", *args, env=env)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def file_of(krouter: Krouter, client: str, *args: str, **env: str) -> tuple[Path, str]:
    (file,) = told(krouter, client, *args, **env)["files"]
    return Path(file["path"]), file["text"]


def evaluated(lines: str, name: str, **env: str) -> list[str]:
    """What a program finds in its environment after a shell has run the lines."""
    program = shutil.which("bash") or "/bin/sh"
    done = subprocess.run(
        [program, "-c", f"{lines}\nenv -0"],
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", **env},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    found = dict(each.split("=", 1) for each in done.stdout.decode().split("\0") if each)
    return [value for key, value in found.items() if key == name]


def test_without_a_client_they_are_listed() -> None:
    assert [row["name"] for row in json.loads(run("env", "--json").stdout)] == list(CLIENTS)
    listed = run("env")
    assert listed.exit_code == 0
    assert all(client.title in listed.stdout for client in CLIENTS.values())


def test_claude_code_is_sent_to_krouter_with_every_model_of_its_own(served: Krouter) -> None:
    found = told(served, "claude")
    assert found["variables"] == {
        "ANTHROPIC_BASE_URL": served.url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": "daily",
        "ANTHROPIC_DEFAULT_OPUS_MODEL": "daily",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "daily",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "daily",
        "ANTHROPIC_DEFAULT_FABLE_MODEL": "daily",
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "150000",
    }
    assert (found["unset"], found["files"], found["start"]) == ([], [], "claude")


def test_the_lines_for_a_shell_are_what_json_says(served: Krouter) -> None:
    printed = run("env", "claude", "--url", served.url, env={"ANTHROPIC_API_KEY": "sk-mine"})
    for name, value in told(served, "claude")["variables"].items():
        assert evaluated(printed.stdout, name) == [value]
    assert evaluated(printed.stdout, "ANTHROPIC_API_KEY", ANTHROPIC_API_KEY="sk-mine") == []
    assert "sk-mine" not in printed.output
    again = f'# To run these lines: eval "$(krouter env claude --url {served.url})"'
    assert again in printed.stdout.splitlines()


@pytest.mark.parametrize("client", CLIENTS)
def test_without_a_file_all_that_is_printed_can_be_run(served: Krouter, client: str) -> None:
    found = told(served, client)
    if not found["files"]:
        printed = run("env", client, "--url", served.url).stdout
        for name, value in found["variables"].items():
            assert evaluated(printed, name) == [value]
        assert evaluated(printed, "PATH") == ["/usr/bin:/bin"]


def test_what_would_lead_claude_code_elsewhere_is_unset(served: Krouter) -> None:
    env = {"ANTHROPIC_API_KEY": "x", "CLAUDE_CODE_USE_BEDROCK": "1", "OPENAI_API_KEY": "y"}
    found = told(served, "claude", **env)
    assert found["unset"] == ["ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK"]


def test_a_model_may_be_asked_for_by_name(served: Krouter) -> None:
    assert told(served, "claude", "--model", "one/m")["variables"]["ANTHROPIC_MODEL"] == "one/m"
    assert told(served, "claude", "--model", "able")["model"] == "able"


def test_a_model_that_is_not_served_is_refused_with_the_nearest(served: Krouter) -> None:
    result = run("env", "claude", "--url", served.url, "--model", "dayly")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "'dayly'" in result.stderr
    assert "Did you mean 'daily'?" in result.stderr


def test_without_daily_it_is_the_first_combo() -> None:
    listed = [{"id": name, "owned_by": "combo"} for name in ("zeta", "alpha", "daily")]
    direct = {"id": "one/m", "owned_by": "one"}
    assert default_model([direct, *listed]) == listed[2]
    assert default_model([direct, *listed[:2]]) == listed[0]
    assert default_model([direct]) is None


def test_by_default_it_is_a_combo_that_can_be_answered() -> None:
    def chosen(**available: bool) -> Any:
        rows = [
            {"id": name, "owned_by": "combo", "available": each} for name, each in available.items()
        ]
        found = default_model(rows)
        return found and found["id"]

    assert chosen(alpha=True, daily=True, demo=True) == "daily"
    assert chosen(daily=False, demo=True, zeta=True, alpha=True) == "zeta"
    assert chosen(alpha=False, daily=False, demo=True) == "demo"
    assert chosen(alpha=False, daily=False) == "daily"


def test_a_model_that_cannot_be_answered_is_warned_of(tmp_path: Path, user: Path) -> None:
    with Krouter(tmp_path) as krouter:
        plain = run("env", "claude", "--url", krouter.url)
        asked = run("env", "claude", "--url", krouter.url, "--model", "daily")
    assert "export ANTHROPIC_MODEL=demo" in plain.stdout
    assert "no combo has an account but demo" in plain.stderr
    assert "export ANTHROPIC_MODEL=daily" in asked.stdout
    assert "daily cannot be answered" in asked.stderr


def test_a_tier_that_has_an_alias_is_left_to_it(tmp_path: Path, user: Path) -> None:
    settings = f'{SETTINGS}[aliases]\n"claude-haiku-*" = "able"\n'
    with Krouter(tmp_path, combos=COMBOS, settings=settings, env=ENV) as krouter:
        variables = told(krouter, "claude")["variables"]
    assert "ANTHROPIC_DEFAULT_HAIKU_MODEL" not in variables
    assert variables["ANTHROPIC_DEFAULT_OPUS_MODEL"] == "daily"


@pytest.mark.parametrize(
    ("aliases", "haiku"),
    [
        ({"claude-haiku-*": "able"}, None),
        ({"claude-*": "able"}, None),
        ({"claude-haiku-4-5*": "able"}, "able"),
        ({"claude-haiku-9-9": "able"}, "able"),
        ({"claude-haiku-4-5": "daily", "claude-haiku-10-2": "able", "claude-haiku-9": "x"}, "able"),
        ({"claude-haiku-?-?": "able"}, "able"),
        ({"claude-sonnet-*": "able"}, "daily"),
        ({"gpt-*": "able"}, "daily"),
    ],
)
def test_aliases_of_some_versions_of_a_tier_count_too(
    tmp_path: Path, user: Path, aliases: dict[str, str], haiku: str | None
) -> None:
    lines = "".join(f'"{name}" = "{combo}"\n' for name, combo in aliases.items())
    with Krouter(
        tmp_path, combos=COMBOS, settings=f"{SETTINGS}[aliases]\n{lines}", env=ENV
    ) as krouter:
        variables = told(krouter, "claude")["variables"]
    assert variables.get("ANTHROPIC_DEFAULT_HAIKU_MODEL") == haiku


LOGIN = '[[account]]\nprovider = "cc"\nname = "login"\nauth = "caller"\n'


def test_a_callers_account_keeps_the_login_of_claude_code(tmp_path: Path, user: Path) -> None:
    with Krouter(tmp_path, combos=COMBOS, settings=SETTINGS + LOGIN, env=ENV) as krouter:
        found = told(krouter, "claude", ANTHROPIC_AUTH_TOKEN="x")
        without = told(krouter, "claude", "--no-login")
    assert "ANTHROPIC_AUTH_TOKEN" not in found["variables"]
    assert found["unset"] == ["ANTHROPIC_AUTH_TOKEN"]
    assert any('auth = "caller"' in note for note in found["notes"])
    assert without["variables"]["ANTHROPIC_AUTH_TOKEN"] == "none"


def test_beside_a_login_the_key_has_a_header_of_its_own(keyed: tuple[Krouter, str]) -> None:
    krouter, key = keyed
    variables = told(krouter, "claude", "--login", KROUTER_KEY=key)["variables"]
    assert variables["ANTHROPIC_CUSTOM_HEADERS"] == f"x-krouter-key: {key}"
    assert "ANTHROPIC_AUTH_TOKEN" not in variables


def test_only_claude_code_has_a_login(served: Krouter) -> None:
    assert run("env", "codex", "--login", "--url", served.url).exit_code == 2


@pytest.fixture
def keyed(tmp_path: Path, user: Path) -> Iterator[tuple[Krouter, str]]:
    key = add_key(tmp_path / "keys.json", "me", 0.0)
    with Krouter(tmp_path, combos=COMBOS, settings=SETTINGS, env=ENV) as krouter:
        yield krouter, key


def test_a_key_that_is_needed_must_be_given(keyed: tuple[Krouter, str]) -> None:
    krouter, _ = keyed
    result = run("env", "claude", "--url", krouter.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "--key or the variable KROUTER_KEY" in result.stderr
    assert "krouter keys add" in result.stderr
    bad = run("env", "claude", "--url", krouter.url, "--key", "kr-wrong")
    assert (bad.exit_code, bad.stdout) == (1, "")
    assert "kr-wrong" not in bad.output
    assert run("env", "claude", "--url", krouter.url, "--key", "a b").exit_code == 2


def test_a_key_with_limits_is_taken(keyed: tuple[Krouter, str]) -> None:
    krouter, _ = keyed
    limits = Limits(models=("able",))
    key = add_key(krouter.home / "keys.json", "guest", 0.0, limits=limits)
    krouter.served.house.keys.reload()
    given = run("env", "codex", "--url", krouter.url, env={"KROUTER_KEY": key})
    assert (given.exit_code, 'model = "able"' in given.stdout) == (0, True), given.output


def test_a_key_of_the_variable_is_named_and_not_shown(keyed: tuple[Krouter, str]) -> None:
    krouter, key = keyed
    for client in CLIENTS:
        printed = run("env", client, "--url", krouter.url, env={"KROUTER_KEY": key})
        assert printed.exit_code == 0, printed.output
        assert (key in printed.output) == (client == "continue"), client
    lines = run("env", "claude", "--url", krouter.url, env={"KROUTER_KEY": key}).stdout
    assert evaluated(lines, "ANTHROPIC_AUTH_TOKEN", KROUTER_KEY=key) == [key]
    given = run("env", "claude", "--url", krouter.url, "--key", key).stdout
    assert evaluated(given, "ANTHROPIC_AUTH_TOKEN") == [key]


@pytest.mark.parametrize("client", ["codex", "opencode"])
def test_files_name_the_variable_of_the_key(keyed: tuple[Krouter, str], client: str) -> None:
    krouter, key = keyed
    found = told(krouter, client, "--key", key)
    assert found["variables"] == {"KROUTER_KEY": key}
    (file,) = found["files"]
    assert key not in file["text"]
    assert "KROUTER_KEY" in file["text"]
    assert any("KROUTER_KEY" in note for note in found["notes"])


def test_codex_gets_a_provider(served: Krouter, user: Path) -> None:
    path, text = file_of(served, "codex")
    assert path == user / ".codex" / "config.toml"
    assert tomllib.loads(text) == {
        "model": "daily",
        "model_provider": "krouter",
        "model_context_window": 150_000,
        "model_providers": {
            "krouter": {
                "name": "krouter",
                "base_url": f"{served.url}/v1",
                "wire_api": "responses",
            }
        },
    }
    assert file_of(served, "codex", CODEX_HOME=str(user / "c"))[0] == user / "c" / "config.toml"


def test_opencode_gets_a_provider_of_each_dialect(served: Krouter, user: Path) -> None:
    path, text = file_of(served, "opencode", "--model", 'one/"m"')
    assert path == user / ".config" / "opencode" / "opencode.json"
    settings = json.loads(text)
    assert settings["model"] == settings["small_model"] == 'krouter/one/"m"'
    packages = {name: each["npm"] for name, each in settings["provider"].items()}
    assert packages == {
        "krouter": "@ai-sdk/openai-compatible",
        "krouter-messages": "@ai-sdk/anthropic",
        "krouter-responses": "@ai-sdk/openai",
    }
    for each in settings["provider"].values():
        assert each["options"] == {"baseURL": f"{served.url}/v1", "apiKey": "none"}
        assert list(each["models"]) == ['one/"m"']


def test_others_get_their_variables_or_file(served: Krouter, user: Path) -> None:
    v1 = f"{served.url}/v1"
    assert told(served, "openai")["variables"] == {"OPENAI_BASE_URL": v1, "OPENAI_API_KEY": "none"}
    assert told(served, "gemini-cli")["variables"]["GOOGLE_GEMINI_BASE_URL"] == served.url
    assert told(served, "aider")["variables"]["AIDER_MODEL"] == "openai/daily"
    assert told(served, "qwen")["variables"]["OPENAI_MODEL"] == "daily"
    assert told(served, "copilot")["variables"]["COPILOT_PROVIDER_BASE_URL"] == v1
    assert told(served, "langchain")["variables"]["OPENAI_API_BASE"] == v1
    assert told(served, "anthropic", ANTHROPIC_AUTH_TOKEN="x")["unset"] == ["ANTHROPIC_AUTH_TOKEN"]
    path, text = file_of(served, "llm", LLM_USER_PATH=str(user))
    assert path == user / "extra-openai-models.yaml"
    assert f'  api_base: "{v1}"\n' in text
    assert f'    apiBase: "{v1}"\n' in file_of(served, "continue")[1]


def test_cursor_is_told_that_it_needs_a_public_address(served: Krouter) -> None:
    printed = run("env", "cursor", "--url", served.url).stdout
    assert "public https address" in printed
    assert "https://YOUR-HOST/v1" in printed
    assert served.url + "/v1" not in printed


def test_a_proxy_is_told_to_leave_krouter_alone(served: Krouter) -> None:
    env = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "example.org"}
    assert told(served, "claude", **env)["variables"]["NO_PROXY"] == "example.org,127.0.0.1"
    for well in ("127.0.0.1", "*", "127.0.0.0/8", "x, 127.0.0.1"):
        assert "NO_PROXY" not in told(served, "claude", **{**env, "NO_PROXY": well})["variables"]


def test_the_url_may_be_that_of_a_client(served: Krouter) -> None:
    result = run("env", "claude", "--json", "--url", f"{served.url}/v1/")
    assert json.loads(result.stdout)["url"] == served.url


def test_the_port_is_that_of_the_settings(home: Home, served: Krouter) -> None:
    home.settings(f"[server]\nport = {served.url.rpartition(':')[2]}\n")
    assert home.json("env", "claude")["url"] == served.url


def test_no_krouter_is_said(user: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = run("env", "claude", "--url", url)
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"no krouter answers at {url}" in result.stderr
    assert "krouter serve" in result.stderr


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://127.0.0.1:99999", "http://[::1"])
def test_an_address_that_is_none_is_a_wrong_command_line(user: Path, url: str) -> None:
    result = run("env", "claude", "--url", url)
    assert result.exit_code == 2
    assert "must be an http:// URL with a host" in result.stderr


def test_an_unknown_client_is_refused_with_the_nearest(user: Path) -> None:
    result = run("env", "cluade")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Did you mean 'claude'" in result.stderr
    assert run("env", "claude", "--shell", "tcsh").exit_code == 2


AWKWARD = ["plain", "", "it's", 'say "hi"', "$HOME `id` $(id)", "a\\b", "x!y", "‘curly’"]


@pytest.mark.parametrize("value", AWKWARD)
def test_sh_takes_every_value_as_it_is(value: str) -> None:
    assert evaluated(SHELLS["sh"].assign("X", value, {}), "X") == [value]


@pytest.mark.parametrize("value", AWKWARD)
def test_fish_and_powershell_quote_what_ends_a_string(value: str) -> None:
    """Undone by their own rules: in fish \\ before \\ and ', in PowerShell a doubled quote."""
    fish = SHELLS["fish"].assign("X", value, {}).removeprefix("set -gx X '").removesuffix("'")
    assert fish.replace("\\'", "'").replace("\\\\", "\\") == value
    power = SHELLS["powershell"].assign("X", value, {}).removeprefix("$env:X = '")[:-1]
    for quote in "'‘’":
        power = power.replace(quote * 2, quote)
    assert power == value


def test_a_known_variable_is_named_inside_a_value() -> None:
    shown = [each.assign("H", "x-key: abc", {"K": "abc"}) for each in SHELLS.values()]
    assert shown == [
        "export H='x-key: '\"$K\"",
        "set -gx H 'x-key: '\"$K\"",
        "$env:H = ('x-key: ' + $env:K)",
    ]
    assert SHELLS["powershell"].assign("H", "abc", {"K": "abc"}) == "$env:H = $env:K"


def test_every_client_is_told_by_name(served: Krouter) -> None:
    rows = by([told(served, name) for name in CLIENTS], "client")
    assert list(rows) == list(CLIENTS)
    for name, row in rows.items():
        assert row["variables"] or row["files"] or row["notes"], name


FILED = ["codex", "opencode", "llm", "continue"]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("how", [(), ("--key",)])
def test_all_that_is_printed_can_be_run(
    keyed: tuple[Krouter, str], client: str, how: tuple[str, ...]
) -> None:
    """Also of a client whose file is no shell's."""
    krouter, key = keyed
    given, env = ((*how, key), {}) if how else ((), {"KROUTER_KEY": key})
    printed = run("env", client, "--url", krouter.url, *given, env=env).stdout
    assert evaluated(printed, "PATH") == ["/usr/bin:/bin"]
    for line in printed.splitlines():
        assert line.startswith(("#", "export ")), line


@pytest.mark.parametrize("client", FILED)
def test_a_file_can_be_printed_alone(served: Krouter, client: str) -> None:
    (file,) = told(served, client)["files"]
    printed = run("env", client, "--url", served.url, "--file")
    assert (printed.exit_code, printed.stdout) == (0, file["text"])
    assert "Put this into ~/" in printed.stderr
    assert "Where there is one already" in printed.stderr
    assert "Where there is one already" in run("env", client, "--url", served.url).stdout


def test_a_file_that_is_printed_alone_holds_no_key(keyed: tuple[Krouter, str]) -> None:
    krouter, key = keyed
    for client in FILED:
        printed = run("env", client, "--url", krouter.url, "--file", env={"KROUTER_KEY": key})
        assert key not in printed.output
    assert (
        "KROUTER_KEY=KEY"
        in run("env", "continue", "--url", krouter.url, "--file", "--key", key).stderr
    )


def test_a_client_without_a_file_has_none_to_print(served: Krouter) -> None:
    printed = run("env", "claude", "--url", served.url, "--file")
    assert (printed.exit_code, printed.stdout) == (2, "")


def test_the_line_to_run_keeps_the_options_and_never_the_key(keyed: tuple[Krouter, str]) -> None:
    krouter, key = keyed
    args = ("--url", krouter.url, "--no-login", "--model", "able", "--home", str(krouter.home))
    lines = run("env", "claude", *args, "--key", key).stdout.splitlines()
    assert lines[1] == (
        "# To run these lines: put the key into KROUTER_KEY, and then"
        f' eval "$(krouter env claude --model able --url {krouter.url} --home {krouter.home}'
        ' --no-login)"'
    )


def test_a_home_that_is_not_the_one_that_answers_is_said(served: Krouter, home: Home) -> None:
    home.settings(f"[server]\nport = {served.url.rpartition(':')[2]}\n")
    result = home.run("env", "claude")
    assert result.exit_code == 0
    assert f"has another home, {served.home}, not {home.path}" in result.stderr
    assert run("env", "claude", "--home", str(served.home), "--url", served.url).stderr == ""


@pytest.mark.parametrize(
    "name", ["Claude Code", "claude code", "claude-code", "CLAUDE", "Gemini CLI", "LangChain"]
)
def test_clients_may_be_called_by_their_titles(served: Krouter, name: str) -> None:
    assert told(served, name)["client"] in ("claude", "gemini", "langchain")
    assert "claude-code" in run("env").stdout


def test_an_address_without_its_scheme_is_corrected(user: Path) -> None:
    result = run("env", "claude", "--url", "127.0.0.1:20128")
    assert result.exit_code == 2
    assert "http://127.0.0.1:20128" in result.stderr
