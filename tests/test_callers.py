"""Where the caller's own credential may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from krouter_adapters.native_lane import credential

from krouter.accounts import collect_accounts
from krouter.adapter import Target, load_rows
from krouter.callers import callers_token, how_to_sign_in, secrets_of
from krouter.providers import Provider, build_registry
from krouter.settings import Settings
from krouter.wire import Headers

CC = Provider("cc", base_urls={"messages": "https://api.anthropic.com"})
URL = "https://api.anthropic.com/v1/messages"
TOKEN = "sk-ant-oat01-x"
OURS = "wellknown"


def token(headers: Headers, url: str = URL, provider: Provider = CC) -> str | None:
    return callers_token(headers, provider, url, lambda given: given == OURS)


def bearer(value: str = TOKEN, scheme: str = "Bearer") -> Headers:
    return [("accept", "*/*"), ("authorization", f"{scheme} {value}")]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (bearer(), TOKEN),
        (bearer(scheme="bearer"), TOKEN),
        (bearer(f"  {TOKEN} "), TOKEN),
        ([*bearer(), ("x-krouter-key", OURS)], TOKEN),
        (bearer(OURS), None),
        (bearer("kr-removed-long-ago"), None),
        (bearer(scheme="Basic"), None),
        (bearer(""), None),
        (bearer("tökén"), None),
        ([*bearer(), *bearer("other")], None),
        ([("x-api-key", TOKEN)], None),
        ([("x-goog-api-key", TOKEN)], None),
        ([("cookie", TOKEN)], None),
        ([], None),
    ],
)
def test_which_header_may_go(headers: Headers, expected: str | None) -> None:
    assert token(headers) == expected


@pytest.mark.parametrize(
    ("headers", "has_key"),
    [
        ([], False),
        (bearer("Basic"), False),
        (bearer(OURS), True),
        ([("x-api-key", OURS)], True),
        ([("x-krouter-key", OURS)], True),
        ([("cookie", OURS)], False),
    ],
)
def test_who_has_a_key_of_ours_is_told_its_header(headers: Headers, has_key: bool) -> None:
    told = how_to_sign_in(headers, lambda given: given == OURS)
    assert told.startswith("Send Authorization: Bearer")
    assert ("x-krouter-key" in told) is has_key


@pytest.mark.parametrize(
    ("url", "goes"),
    [
        (URL, True),
        ("https://API.anthropic.com:443/v1/messages?beta=true", True),
        ("https://api.anthropic.com/api/oauth/usage", True),
        ("http://api.anthropic.com/v1/messages", False),
        ("https://api.anthropic.com:8443/v1/messages", False),
        ("https://api.anthropic.com.evil.example/v1/messages", False),
        ("https://evil.example/api.anthropic.com", False),
        ("https://api.anthropic.com@evil.example/v1/messages", False),
        ("https://openrouter.ai/api/v1/messages", False),
    ],
)
def test_to_which_host(url: str, goes: bool) -> None:
    assert (token(bearer(), url) == TOKEN) == goes


def test_a_provider_that_was_moved_has_its_new_host_as_its_own() -> None:
    moved = Provider("cc", base_urls={"messages": "http://127.0.0.1:9/v1"})
    assert token(bearer(), "http://127.0.0.1:9/v1/messages", moved) == TOKEN
    assert token(bearer(), URL, moved) is None


@given(st.text().filter(lambda value: value.strip()))
def test_a_key_of_krouters_never_goes(key: str) -> None:
    assert callers_token(bearer(key), CC, URL, lambda _: True) is None
    assert token(bearer(f"kr-{key}")) is None


def test_the_subscriptions_own_variable_travels_as_a_bearer_token() -> None:
    registry = build_registry(load_rows(), Settings())
    accounts = collect_accounts(registry, Settings(), {"CLAUDE_CODE_OAUTH_TOKEN": TOKEN})
    (account,) = accounts["cc"]
    assert account.key == "env:CLAUDE_CODE_OAUTH_TOKEN"
    target = Target(registry.providers["cc"], "m", TOKEN, account.auth)
    assert credential(target, "messages") == [("authorization", f"Bearer {TOKEN}")]


def test_what_is_secret_of_the_headers_that_settings_add() -> None:
    given = {
        "x-team": "a-long-name-of-a-team",
        "x-portkey-api-key": "pk-123456",
        "helicone-auth": "Bearer a-long-credential",
        "x-use-key": "true",
        "x-session-mode": "sticky",
    }
    assert secrets_of(given) == ["pk-123456", "a-long-credential"]
