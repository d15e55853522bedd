from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.problems import ConfigError
from krouter.settings import (
    ComboTimeouts,
    Settings,
    TimeoutOverrides,
    Timeouts,
    load_settings,
    parse_settings,
    reference_parts,
)

EXAMPLE = """
[server]
host = "127.0.0.1"
port = 20128

[routing]
combo_round_robin = false
combo_sticky_limit = 1
account_strategy = "zenith"
account_sticky_limit = 3
reply_model = "auto"

[timeouts]
first_byte = 60

[vision_adapter.image]
enabled = true
models = []

[aliases]
"claude-haiku-*" = "fast"

[reads]
"local/qwen3-vl" = ["image"]

[provider.local]
base_url = "http://127.0.0.1:8000/v1"
speaks = ["chat"]
key = "env:LOCAL_KEY"

[[account]]
provider = "glm"
name = "work"
key = "env:GLM_API_KEY_WORK"
priority = 1
auth = "key"
max_concurrent = 4

[provider.glm]
account_strategy = "round-robin"
account_sticky_limit = 3
"""


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, "krouter.toml")
    return [str(problem) for problem in caught.value.problems]


def test_the_documented_example_loads() -> None:
    settings = parse_settings(EXAMPLE, "krouter.toml")
    assert settings.aliases == {"claude-haiku-*": "fast"}
    assert settings.reads == {"local/qwen3-vl": ("image",)}
    assert settings.provider["local"].speaks == ("chat",)
    assert settings.provider["glm"].account_strategy == "round-robin"
    assert settings.account[0].max_concurrent == 4


def test_defaults() -> None:
    settings = Settings()
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 20128)
    assert settings.server.body_limit == 64
    assert settings.routing.account_strategy == "zenith"
    assert settings.routing.account_sticky_limit == 3
    adapter = settings.vision_adapter
    pools = (adapter.image, adapter.pdf, adapter.audio, adapter.video)
    assert [pool.enabled for pool in pools] == [True, False, False, False]


def test_naming_models_of_the_image_pool_keeps_it_on() -> None:
    settings = parse_settings('[vision_adapter.image]\nmodels = ["cc/a"]', "krouter.toml")
    assert settings.vision_adapter.image.enabled
    assert settings.vision_adapter.image.models == ("cc/a",)


@pytest.mark.parametrize(
    ("text", "path", "says"),
    [
        ("[server]\nprot = 1", "$.server.prot", "Did you mean 'port'?"),
        ("[servr]", "$.servr", "Did you mean 'server'?"),
        ("[server]\nport = 70000", "$.server.port", "70000"),
        ("[server]\ncors_origins = ['https://a/b']", "$.server.cors_origins[0]", "origin"),
        ("[routing]\naccount_strategy = 'best'", "$.routing.account_strategy", "'zenith'"),
        ("[routing]\ncombo_sticky_limit = 0", "$.routing.combo_sticky_limit", "1"),
        ("[timeouts]\nstall = 0", "$.timeouts.stall", "above 0"),
        ("[timeouts]\nstall = nan", "$.timeouts.stall", "above 0"),
        ("[timeouts]\nstall = inf", "$.timeouts.stall", "above 0"),
        (f"[timeouts]\nstall = 1{'0' * 400}", "$.timeouts.stall", "above 0"),
        ("[timeouts]\nstall = true", "$.timeouts.stall", "number of seconds"),
        ("[timeouts]\ntotal = 'off'", "$.timeouts.total", "number of seconds"),
        ("[reads]\n'a/b' = ['imag']", '$.reads["a/b"][0]', "'image'"),
        ("[provider.'a/b']", '$.provider["a/b"]', "letters"),
        ("[provider.combo]", "$.provider.combo", "taken"),
        ("[provider.a]\nbase_url = 'ftp://x'", "$.provider.a.base_url", "http://"),
        ("[provider.a]\nbase_url = 'http://'", "$.provider.a.base_url", "host"),
        ("[provider.a]\nbase_url = 'http://x:port'", "$.provider.a.base_url", "ort"),
        ("[provider.a]\nspeaks = []", "$.provider.a.speaks", "1"),
        ("[provider.a]\nspeaks = ['chat', 'chat']", "$.provider.a.speaks", "twice"),
        ("[provider.a]\nbase_urls = {chatt = 'http://x'}", "$.provider.a.base_urls.chatt", "chat"),
        ("[provider.a]\nheaders = {'a b' = 'c'}", "$.provider.a.headers", "header name"),
        ('[provider.a]\nheaders = {a = "b\\r\\nc"}', "$.provider.a.headers", "line break"),
        ("[[account]]\nname = 'x'", "$.account[0].provider", "missing"),
        ("[[account]]\nprovider = 'a'\npriority = 0", "$.account[0].priority", "1"),
        ("[[account]]\nprovider = 'a'\nname = 'a b'", "$.account[0].name", "letters"),
        ("[[account]]\nprovider = 'a'\nauth = 'basic'", "$.account[0].auth", "'caller'"),
    ],
)
def test_a_fault_names_its_place(text: str, path: str, says: str) -> None:
    (fault,) = faults(text)
    assert fault.startswith(f"krouter.toml: {path}: ")
    assert says in fault


def test_all_faults_are_reported_at_once() -> None:
    assert len(faults("[server]\nport = -1\nprot = 1\n[timeouts]\nstall = -1")) == 3


@pytest.mark.parametrize(
    "text",
    [
        "[provider.a]\nkey = 'hunter2'",
        "[provider.a]\nkey = 'env:hunter2-x'",
        "[provider.a]\nkey = 'env:'\nkye = 'hunter2'",
        "[provider.a]\napi_key = 'hunter2'",
        "[provider.a]\nbase_url = 'https://me:hunter2@host/v1'",
        "[provider.a]\nheaders = {Authorization = 'Bearer hunter2'}",
        "[[account]]\nprovider = 'a'\nkey = 'hunter2'",
        "[[account]]\nprovider = 'a'\nauth_token = 'hunter2'",
        "[acount]\nprovider = 'a'\nkey = 'hunter2'",
        "[[provider]]\nname = 'a'\nkey = 'hunter2'",
        "[aliases]\na = ['sk-hunter2']",
    ],
)
def test_a_secret_in_the_wrong_place_is_never_shown(text: str) -> None:
    assert "hunter2" not in "\n".join(faults(text))


def test_a_literal_key_is_told_what_to_write() -> None:
    (fault,) = faults("[provider.glm]\nkey = 'sk-1'")
    assert "env:NAME" in fault


@pytest.mark.parametrize(
    "text",
    [
        "[[account]]\nprovider='a'\nname='w'\n[[account]]\nprovider='a'\nname='w'",
        "[provider.a]\nkey='env:A'\n[[account]]\nprovider='a'",
    ],
)
def test_an_account_name_is_unique_in_its_provider(text: str) -> None:
    (fault,) = faults(text)
    assert "already has an account" in fault


def test_broken_toml_is_placed_by_line_and_column() -> None:
    (fault,) = faults("[server]\nport 1")
    assert "line 2, column 6" in fault


@pytest.mark.parametrize("text", [f"a = 1{'0' * 5000}", "a = " + "[" * 100_000])
def test_toml_that_python_cannot_hold(text: str) -> None:
    (fault,) = faults(text)
    assert fault.startswith("krouter.toml: not TOML")


@pytest.mark.parametrize(
    ("ref", "parts"),
    [
        ("env:GLM_API_KEY", ("env", "GLM_API_KEY")),
        ("env: A", ("env", "A")),
        ("file:~/key", ("file", "~/key")),
        ("command:op read op://a/b", ("command", "op read op://a/b")),
        ("sk-1", None),
        ("env:", None),
        ("env:1A", None),
        ("env:A-B", None),
        ("file: ", None),
        ("keyring:a", None),
        ("", None),
    ],
)
def test_references(ref: str, parts: tuple[str, str] | None) -> None:
    if parts:
        assert reference_parts(ref) == parts
    else:
        with pytest.raises(ValueError, match=r"env:NAME|is followed by"):
            reference_parts(ref)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "krouter.toml"
    assert load_settings(None) == load_settings(path) == Settings()
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(path, required=True)
    path.write_bytes(b"\xef\xbb\xbf[server]\r\nport = 1\r\n")
    assert load_settings(path).server.port == 1
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_settings(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], {}),
        ([None, {}], {}),
        ([{"stall": 5}], {"stall": 5}),
        ([{"stall": "off"}], {"stall": None}),
        ([{"stall": None}], {}),
        ([{"stall": "off"}, {"stall": 7}], {"stall": 7}),
        ([{"stall": 7}, {"total": 3}], {"stall": 7, "total": 3}),
        ([{"first_token": 4, "try_other_accounts": True}, {"try_other_accounts": False}],
         {"first_token": 4}),
    ],
)  # fmt: skip
def test_later_timeouts_win(
    overrides: list[dict[str, object] | None], expected: dict[str, object]
) -> None:
    given_ = [None if o is None else TimeoutOverrides.model_validate(o) for o in overrides]
    assert Timeouts().merged(*given_) == Timeouts().model_copy(update=expected)


def test_combo_timeouts_are_camel_case() -> None:
    given_ = ComboTimeouts.model_validate(
        {"firstByte": "off", "firstToken": 3, "tryOtherAccounts": True}
    )
    merged = Timeouts().merged(given_)
    assert (merged.first_byte, merged.first_token, merged.try_other_accounts) == (None, 3, True)
    with pytest.raises(ValueError, match="first_byte"):
        ComboTimeouts.model_validate({"first_byte": 3})


waits = st.none() | st.floats(min_value=0.001, max_value=1e6)


@given(
    st.builds(
        dict,
        timeouts=st.builds(dict, stall=waits, first_token=waits, total=st.floats(0.1, 900)),
        aliases=st.dictionaries(st.text(min_size=1), st.text(min_size=1), max_size=3),
        routing=st.builds(dict, combo_sticky_limit=st.integers(1, 99)),
        account=st.lists(
            st.builds(
                dict,
                provider=st.sampled_from(["glm", "ds"]),
                name=st.from_regex(r"[a-z0-9_.-]{1,8}", fullmatch=True),
                priority=st.none() | st.integers(1, 9),
            ),
            max_size=3,
        ),
    )
)
def test_settings_survive_being_written_and_read(data: dict[str, object]) -> None:
    settings = Settings.model_validate(data)
    assert Settings.model_validate(json.loads(settings.model_dump_json())) == settings


def test_the_configuration_needs_no_heavy_library() -> None:
    modules = "krouter.settings, krouter.paths, krouter.secrets, krouter.accounts, krouter.keys"
    check = f"import sys, {modules}, krouter_adapters.rows; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert not {"litellm", "fastapi", "aiohttp"} & set(run.stdout.split())


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('[routing]\naccount_sticky_limit = "3"\n', "$.routing.account_sticky_limit"),
        ("[routing]\ncombo_sticky_limit = 2.0\n", "$.routing.combo_sticky_limit"),
        ('[routing]\ncombo_round_robin = "yes"\n', "$.routing.combo_round_robin"),
        ("[timeouts]\ntry_other_accounts = 1\n", "$.timeouts.try_other_accounts"),
        ('[server]\nport = "20128"\n', "$.server.port"),
    ],
)
def test_a_text_is_no_number_and_a_number_no_switch(text: str, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, "krouter.toml")
    assert [problem.path for problem in caught.value.problems] == [path]


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        ("env:", "env: is followed by the name of a variable"),
        ("env:my key", "env: is followed by the name of a variable"),
        ("file: ", "file: is followed by a path"),
        ("command:", "command: is followed by a command line"),
        ("cmd:pass x", "there is no cmd: write command:…"),
        ("environment:A", "there is no environment: write env:NAME"),
        ("sk-hunter2:x", "a key never stands here itself"),
        ("hunter2", "a key never stands here itself"),
    ],
)
def test_a_reference_that_is_none_is_explained_and_not_shown(ref: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(f'[provider.glm]\nkey = "{ref}"\n', "krouter.toml")
    assert says in str(caught.value)
    assert not any(word in str(caught.value) for word in ("hunter2", "my key", "pass x"))
