"""`krouter doctor` on the keys and models that clients would send: what is missing is told."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from krouter.keys import Limits, add_key
from tests.cli.conftest import run
from tests.cli.test_doctor import COMBO, Told, doctor
from tests.harness import Krouter, provider_settings
from tests.upstream import Upstream


@pytest.fixture
def served(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory, user: Path
) -> Iterator[Krouter]:
    settings, env = provider_settings(upstream.url, one="a")
    combos = {"daily": COMBO, "lonely": {"models": ["glm/glm-5.1"]}}
    folder = tmp_path_factory.mktemp("served")
    with Krouter(folder, combos=combos, settings=settings, env=env) as krouter:
        yield krouter


@pytest.fixture
def locked(upstream: Upstream, tmp_path: Path, user: Path) -> Iterator[tuple[Krouter, str]]:
    """A krouter that asks for a key, and its key."""
    key = add_key(tmp_path / "keys.json", "me", 0.0)
    settings, env = provider_settings(upstream.url, one="a")
    with Krouter(tmp_path, combos={"daily": COMBO}, settings=settings, env=env) as krouter:
        yield krouter, key


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


CODEX = 'model_provider = "k"\nmodel = "daily"\n[model_providers.k]\nbase_url = "{url}/v1"\n'
YAML = ".config/io.datasette.llm/extra-openai-models.yaml"
LLM = "- model_id: k\n  model_name: daily\n  api_base: {url}/v1\n"
CONTINUE = "models:\n  - name: k\n    model: daily\n    apiBase: {url}/v1\n"
OPENCODE = '{{"model": "k/daily", "provider": {{"k": {{"options": {{"baseURL": "{url}/v1"}}}}}}}}'
FILES: Mapping[str, tuple[str, str, str]] = {
    "codex": (".codex/config.toml", CODEX, "env_key"),
    "llm": (YAML, LLM, "api_key_name"),
    "continue": (".continue/config.yaml", CONTINUE, "apiKey"),
    "opencode": ("work/opencode.json", OPENCODE, "apiKey of k"),
}


@pytest.mark.parametrize("client", FILES)
def test_a_file_without_a_key_is_a_fault_where_one_is_needed(
    locked: tuple[Krouter, str], user: Path, client: str
) -> None:
    krouter, key = locked
    name, text, about = FILES[client]
    put(user / name, text.format(url=krouter.url))
    told = doctor(krouter, client, KROUTER_KEY=key, ONE_A="x")
    assert told.faults == [about]
    assert "sends no key" in told.of(about)
    assert "Add " in told.of(about), "it says what to do"


@pytest.mark.parametrize("client", FILES)
def test_a_file_without_a_key_is_well_where_none_is_needed(
    served: Krouter, user: Path, client: str
) -> None:
    name, text, _ = FILES[client]
    put(user / name, text.format(url=served.url))
    assert doctor(served, client).faults == []


@pytest.mark.parametrize(
    ("client", "more"),
    [
        ("codex", 'env_key = "K"\n'),
        ("codex", 'experimental_bearer_token = "{key}"\n'),
        ("codex", 'http_headers = {{ Authorization = "Bearer {key}" }}\n'),
        ("codex", 'env_http_headers = {{ "x-api-key" = "K" }}\n'),
        ("continue", "    apiKey: {key}\n"),
        ("continue", "    apiKey: ${{{{ secrets.K }}}}\n"),
    ],
)
def test_each_place_of_a_key_counts(
    locked: tuple[Krouter, str], user: Path, client: str, more: str
) -> None:
    krouter, key = locked
    name, text, _ = FILES[client]
    put(user / name, (text + more).format(url=krouter.url, key=key))
    assert doctor(krouter, client, K=key, ONE_A="x").faults == []
    put(user / name, (text + more).format(url=krouter.url, key="kr-wrong"))
    assert len(doctor(krouter, client, K="kr-wrong", KROUTER_KEY=key).faults) == 1


def test_the_keys_that_llm_has_stored_count(locked: tuple[Krouter, str], user: Path) -> None:
    krouter, key = locked
    put(user / YAML, LLM.format(url=krouter.url) + "  api_key_name: krouter\n")
    store = (user / YAML).with_name("keys.json")
    told = doctor(krouter, "llm", KROUTER_KEY=key)
    assert told.faults == ["api_key_name"]
    assert told.of("api_key_name").endswith("llm keys set krouter")
    put(store, json.dumps({"krouter": "kr-wrong"}))
    told = doctor(krouter, "llm", KROUTER_KEY=key)
    assert told.faults == ["krouter in ~/.config/io.datasette.llm/keys.json"]
    assert "kr-wrong" not in str(told.findings)
    put(store, json.dumps({"krouter": key}))
    assert doctor(krouter, "llm").faults == []
    put(store, "{")
    assert "is broken" in doctor(krouter, "llm", KROUTER_KEY=key).of("file")


def test_opencode_may_have_stored_a_key(locked: tuple[Krouter, str], user: Path) -> None:
    krouter, key = locked
    put(user / "work" / "opencode.json", OPENCODE.format(url=krouter.url))
    put(user / ".local/share/opencode/auth.json", json.dumps({"k": {"type": "api", "key": key}}))
    assert doctor(krouter, "opencode").faults == []


def test_continues_secret_is_in_a_file_beside_its_own(
    locked: tuple[Krouter, str], user: Path
) -> None:
    krouter, key = locked
    text = CONTINUE.format(url=krouter.url) + "    apiKey: ${{ secrets.K }}\n"
    put(user / ".continue/config.yaml", text)
    assert doctor(krouter, "continue", KROUTER_KEY=key).faults == ["apiKey"]
    put(user / ".continue/.env", f'# mine\nexport K="{key}" # it\n')
    assert doctor(krouter, "continue").faults == []


def test_aiders_own_files_count(locked: tuple[Krouter, str], user: Path) -> None:
    krouter, key = locked
    put(user / ".aider.conf.yml", f"openai-api-base: {krouter.url}/v1\n")
    assert doctor(krouter, "aider", KROUTER_KEY=key).faults == ["OPENAI_API_KEY"]
    put(user / "work" / ".env", f"OPENAI_API_KEY={key}\n")
    assert doctor(krouter, "aider").faults == []
    put(user / "work" / ".env", f"OPENAI_API_BASE='{krouter.url}/v1'\n")
    assert doctor(krouter, "aider", KROUTER_KEY=key).faults == ["OPENAI_API_KEY"]
    put(user / ".aider.conf.yml", f"openai-api-key: {key}\n")
    assert doctor(krouter, "aider").faults == []


def test_an_unset_variable_of_codex_may_be_left_out_only_without_keys(
    locked: tuple[Krouter, str], user: Path
) -> None:
    krouter, key = locked
    put(user / ".codex/config.toml", CODEX.format(url=krouter.url) + 'env_key = "K"\n')
    told = doctor(krouter, "codex", KROUTER_KEY=key)
    assert told.faults == ["env_key"]
    assert "leave" not in told.of("env_key")


def test_without_a_client_keys_are_looked_at_too(locked: tuple[Krouter, str]) -> None:
    krouter, key = locked
    openai = {"OPENAI_BASE_URL": f"{krouter.url}/v1", "KROUTER_KEY": key}
    assert doctor(krouter, **openai, OPENAI_API_KEY="kr-wrong").faults == ["OPENAI_API_KEY"]
    assert "no key is sent" in doctor(krouter, **openai).of("OPENAI_API_KEY")
    assert doctor(krouter, **openai, OPENAI_API_KEY=key).faults == []
    both = {"ANTHROPIC_BASE_URL": krouter.url, "ANTHROPIC_AUTH_TOKEN": key, "KROUTER_KEY": key}
    assert doctor(krouter, **both, OPENAI_API_KEY="sk-of-openais").faults == []


def claude(krouter: Krouter, *args: str, **env: str) -> Told:
    usual = {"ANTHROPIC_BASE_URL": krouter.url, "ANTHROPIC_AUTH_TOKEN": "none"}
    return doctor(krouter, "claude", *args, **{**usual, **env})


def test_the_model_that_a_client_is_set_to_is_judged(served: Krouter) -> None:
    told = claude(served, ANTHROPIC_MODEL="lonely")
    assert "outlook" in told.warnings
    assert "lonely cannot be answered" in told.of("outlook")
    assert "daily" not in told.of("outlook")
    assert "lonely" in told.of("messages")
    assert "lonely is answered 503" in claude(served, "--ask", ANTHROPIC_MODEL="lonely").of("ask")
    both = claude(served, "--ask", ANTHROPIC_MODEL="daily", CLAUDE_CODE_SUBAGENT_MODEL="lonely")
    assert [each["level"] for each in both.findings if each["about"] == "ask"] == ["ok", "fault"]
    assert "outlook" not in claude(served, "--model", "daily", ANTHROPIC_MODEL="lonely").warnings


def test_claude_code_without_a_model_is_warned_of(served: Krouter, user: Path) -> None:
    assert "ANTHROPIC_MODEL" in claude(served).warnings
    tiers = {f"ANTHROPIC_DEFAULT_{tier}_MODEL": "daily" for tier in ("OPUS", "SONNET")}
    assert "ANTHROPIC_MODEL" not in claude(served, **tiers).warnings
    put(user / ".claude/settings.json", json.dumps({"model": "daily"}))
    assert "ANTHROPIC_MODEL" not in claude(served).warnings


def test_claude_codes_own_models_do_where_an_alias_takes_them(tmp_path: Path, user: Path) -> None:
    with Krouter(tmp_path, settings='[aliases]\n"claude-*" = "demo"\n') as krouter:
        assert "ANTHROPIC_MODEL" not in claude(krouter).warnings


def test_a_broken_file_is_told_once(served: Krouter, user: Path) -> None:
    put(user / ".claude/settings.json", "{")
    env = {"ANTHROPIC_BASE_URL": "", "ANTHROPIC_AUTH_TOKEN": ""}
    assert claude(served, **env).faults == ["file"]
    put(user / "work/opencode.json", "{")
    assert doctor(served, "opencode").faults == ["file"]
    put(user / YAML, "x" * (2**22 + 1))
    assert doctor(served, "llm").faults == ["file"]


def test_a_file_that_is_not_there_is_said_so(served: Krouter) -> None:
    told = doctor(served, "llm")
    assert told.of("file").startswith(f"there is no ~/{YAML}: llm does not ask krouter.")


def test_an_address_is_said_to_be_where_it_is(served: Krouter, user: Path) -> None:
    put(user / ".codex/config.toml", 'model = "daily"\n')
    told = doctor(served, "codex", OPENAI_BASE_URL=f"{served.url}/v1")
    assert told.of("file").startswith("the environment: OPENAI_BASE_URL is")
    put(user / ".config/opencode/opencode.json", OPENCODE.format(url=served.url))
    put(user / "work/opencode.json", '{"theme": "x"}')
    assert doctor(served, "opencode").of("file").startswith("~/.config/opencode/opencode.json")


def test_several_sdks_do_not_what_one_client_does_not(served: Krouter) -> None:
    assert "OpenAI's SDKs do not ask" in doctor(served, "openai").of("OPENAI_BASE_URL")
    assert "Qwen Code does not ask" in doctor(served, "qwen").of("OPENAI_BASE_URL")


def test_what_is_not_served_is_told_with_a_command(served: Krouter) -> None:
    told = claude(served, ANTHROPIC_MODEL="dayly").of("ANTHROPIC_MODEL")
    assert "krouter models lists" in told
    assert "GET /v1" not in told
    assert "GET /v1" not in run("env", "claude", "--url", served.url, "--model", "dayly").stderr


@pytest.mark.parametrize("given", ["KROUTER_KEY", "OPENAI_API_KEY"])
def test_a_key_with_limits_is_good(locked: tuple[Krouter, str], given: str) -> None:
    krouter, _ = locked
    limits = Limits(models=("daily",), rpm=3)
    key = add_key(krouter.home / "keys.json", "guest", 0.0, limits=limits)
    krouter.served.house.keys.reload()
    client = {"OPENAI_BASE_URL": f"{krouter.url}/v1", given: key}
    told = doctor(krouter, "openai", **client, ONE_A="x")
    assert told.faults == ([] if given == "OPENAI_API_KEY" else ["OPENAI_API_KEY"])
    assert "is good; it has limits" in told.of("key")
    assert "model" in told.well
    assert "may not ask for 'lonely'" in doctor(krouter, "--model", "lonely", **client).of("model")


def test_a_limit_that_is_reached_is_no_fault_of_a_dialect(locked: tuple[Krouter, str]) -> None:
    krouter, _ = locked
    key = add_key(krouter.home / "keys.json", "guest", 0.0, limits=Limits(rpm=1))
    krouter.served.house.keys.reload()
    told = doctor(krouter, KROUTER_KEY=key, ONE_A="x")
    assert (told.faults, told.warnings) == ([], ["responses"])
    assert "may make 1 request a minute" in told.of("responses")
