from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from krouter.accounts import Account, collect_accounts
from krouter.problems import ConfigError
from krouter.providers import Provider, build_registry
from krouter.settings import Settings

URLS: Mapping[Any, str] = {"chat": "https://h.example/v1"}
ROWS = [
    Provider("glm", aliases=("zai",), base_urls=URLS, env=("GLM_API_KEY", "ZAI_API_KEY")),
    Provider("cc", base_urls=URLS, env=("CLAUDE_CODE_OAUTH_TOKEN",)),
    Provider("ollama", base_urls=URLS, keyless=True),
]


def collect(
    settings: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
) -> dict[str, tuple[Account, ...]]:
    checked = Settings.model_validate(settings or {})
    return collect_accounts(build_registry(ROWS, checked), checked, env or {})


def rows(accounts: tuple[Account, ...]) -> list[tuple[str, str | None, int]]:
    return [(account.name, account.key, account.priority) for account in accounts]


def test_without_anything_only_keyless_providers_have_an_account() -> None:
    assert collect() == {
        "glm": (),
        "cc": (),
        "ollama": (Account("ollama", "default", None, 1, "none"),),
    }


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"GLM_API_KEY": "a"}, [("env", "env:GLM_API_KEY", 1)]),
        ({"GLM_API_KEY": " "}, []),
        ({"GLM_API_KEY_WORK": "a"}, []),
        ({"ZAI_API_KEY": "a"}, [("env", "env:ZAI_API_KEY", 1)]),
        ({"ZAI_API_KEY": "a", "GLM_API_KEY": "b"}, [("env", "env:GLM_API_KEY", 1)]),
        (
            {"GLM_API_KEY_10": "c", "GLM_API_KEY_2": "b", "GLM_API_KEY": "a"},
            [
                ("env", "env:GLM_API_KEY", 1),
                ("env-2", "env:GLM_API_KEY_2", 2),
                ("env-10", "env:GLM_API_KEY_10", 3),
            ],
        ),
        ({"GLM_API_KEY_2": "b"}, [("env-2", "env:GLM_API_KEY_2", 1)]),
    ],
)
def test_accounts_of_the_environment(
    env: Mapping[str, str], expected: list[tuple[str, str, int]]
) -> None:
    assert rows(collect(env=env)["glm"]) == expected


def test_settings_come_before_the_environment_and_unnumbered_ones_count_up() -> None:
    settings = {
        "provider": {"glm": {"key": "env:MAIN"}},
        "account": [
            {"provider": "zai", "name": "late", "key": "env:LATE", "priority": 7},
            {"provider": "glm", "name": "work", "key": "file:k"},
        ],
    }
    assert rows(collect(settings, {"GLM_API_KEY": "x"})["glm"]) == [
        ("default", "env:MAIN", 1),
        ("late", "env:LATE", 7),
        ("work", "file:k", 2),
        ("env", "env:GLM_API_KEY", 3),
    ]


def test_a_variable_already_referred_to_gives_no_second_account() -> None:
    settings = {"account": [{"provider": "glm", "name": "work", "key": "env:GLM_API_KEY"}]}
    env = {"GLM_API_KEY": "x", "GLM_API_KEY_2": "y"}
    assert [name for name, _, _ in rows(collect(settings, env)["glm"])] == ["work", "env-2"]


def test_a_configured_name_hides_the_same_name_from_the_environment() -> None:
    settings = {"account": [{"provider": "glm", "name": "env", "key": "file:k"}]}
    assert rows(collect(settings, {"GLM_API_KEY": "x"})["glm"]) == [("env", "file:k", 1)]


def test_the_callers_own_credential() -> None:
    settings = {"account": [{"provider": "cc", "name": "me", "auth": "caller"}]}
    assert collect(settings)["cc"] == (Account("cc", "me", None, 1, "caller"),)


def test_a_keyless_provider_with_an_account_keeps_only_that() -> None:
    settings = {"account": [{"provider": "ollama", "name": "a", "key": "env:K"}]}
    assert rows(collect(settings)["ollama"]) == [("a", "env:K", 1)]
    bare = {"account": [{"provider": "ollama", "name": "a"}]}
    assert collect(bare)["ollama"] == (Account("ollama", "a", None, 1, "none"),)


def test_an_own_provider_with_and_without_a_key() -> None:
    own = {"base_url": "http://127.0.0.1:1/v1"}
    assert collect({"provider": {"local": own}})["local"][0].auth == "none"
    keyed = collect({"provider": {"local": {**own, "key": "env:K"}}})["local"]
    assert keyed == (Account("local", "default", "env:K", 1),)


def test_the_providers_limit_holds_unless_the_account_has_its_own() -> None:
    settings = {
        "provider": {"zai": {"max_concurrent": 9}},
        "account": [{"provider": "glm", "name": "a", "key": "env:A", "max_concurrent": 2}],
    }
    accounts = collect(settings, {"GLM_API_KEY": "x"})["glm"]
    assert [account.max_concurrent for account in accounts] == [2, 9]


@pytest.mark.parametrize(
    ("accounts", "says"),
    [
        ([{"provider": "glmm", "key": "env:A"}], "unknown provider 'glmm'. Did you mean 'glm'?"),
        ([{"provider": "glm"}], "$.account[0].key: required field is missing"),
        ([{"provider": "cc", "auth": "caller", "key": "env:A"}], "Leave key out"),
        (
            [{"provider": "glm", "key": "env:A"}, {"provider": "zai", "key": "env:B"}],
            "$.account[1].name: 'glm' already has an account 'default'",
        ),
    ],
)
def test_accounts_that_cannot_be_used(accounts: list[dict[str, str]], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        collect({"account": accounts})
    assert says in str(caught.value)


def test_an_account_has_an_id() -> None:
    assert Account("glm", "work").id == "glm/work"
