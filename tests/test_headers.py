from __future__ import annotations

import pytest

from krouter.headers import query_to_provider, to_caller, to_provider
from krouter.keys import PREFIX

PASSED = [
    ("user-agent", "claude-cli/2.1"),
    ("accept", "text/event-stream"),
    ("content-type", "application/json"),
    ("anthropic-version", "2023-06-01"),
    ("anthropic-beta", "a,b"),
    ("anthropic-beta", "c"),
    ("x-claude-code-session-id", "s"),
    ("x-stainless-retry-count", "1"),
    ("x-app", "cli"),
    ("session-id", "t"),
    ("idempotency-key", "k"),
    ("openai-organization", "org"),
    ("x-anything", "é"),
]


def test_a_callers_headers_pass_in_their_order() -> None:
    assert to_provider(PASSED) == PASSED


@pytest.mark.parametrize(
    "name",
    [
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("upgrade", "expect", "host", "content-length", "cookie", "accept-encoding"),
        *("authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key"),
        *("x-krouter-key", "x-krouter-anything"),
    ],
)
def test_what_is_between_caller_and_krouter_stays_there(name: str) -> None:
    assert to_provider([(name, "v"), *PASSED]) == PASSED


def test_headers_named_by_connection_are_one_hops_own() -> None:
    named = [
        ("connection", "X-Hop, close"),
        ("x-hop", "1"),
        ("connection", "x-more"),
        ("x-more", "1"),
    ]
    assert to_provider([*named, *PASSED]) == PASSED
    assert to_caller([("Connection", "X-Hop"), ("X-Hop", "1"), ("A", "1")], None) == [("a", "1")]


@pytest.mark.parametrize(
    "name",
    [
        *("Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "Trailer", "Content-Length"),
        *("Content-Encoding", "Set-Cookie", "Retry-After", "retry-after-ms", "X-Should-Retry"),
        *("x-ratelimit-limit-requests", "Anthropic-Ratelimit-Tokens-Reset", "RateLimit"),
        *("ratelimit-reset", "Proxy-Authenticate", "X-Krouter-Model"),
        *("Access-Control-Allow-Origin", "access-control-allow-credentials"),
    ],
)
def test_what_is_between_krouter_and_provider_stays_there(name: str) -> None:
    assert to_caller([(name, "v"), ("X-Request-Id", "r")], None) == [("x-request-id", "r")]


def test_a_providers_headers_pass_but_for_one_that_quotes_the_key() -> None:
    headers = [
        ("Content-Type", "text/event-stream"),
        ("x-codex-turn-state", "t"),
        ("X-Echo", "a k1 b"),
    ]
    assert to_caller(headers, "k1") == [
        ("content-type", "text/event-stream"),
        ("x-codex-turn-state", "t"),
    ]
    assert len(to_caller(headers, "")) == len(to_caller(headers, None)) == 3


def test_a_header_does_not_pass_whose_name_holds_the_credential() -> None:
    headers = [("X-Sk-Canary-AB12", "1"), ("x-fine", "2")]
    assert to_caller(headers, "sk-canary-ab12") == [("x-fine", "2")]


KEY = PREFIX + "aB3_-" * 9


@pytest.mark.parametrize("value", [KEY, f"Bearer {KEY}", f"a={KEY}; b"])
def test_a_key_of_krouter_s_goes_nowhere_under_any_name(value: str) -> None:
    assert to_provider([("x-auth-token", value), *PASSED]) == PASSED


ENCODED = "".join(f"%{ord(c):02x}" for c in KEY)


@pytest.mark.parametrize(
    "written", [KEY.replace("-", "%2D"), KEY.replace("-", "%252d"), ENCODED, "kr%2d" + KEY[3:]]
)
def test_nor_in_whatever_way_a_url_writes_it(written: str) -> None:
    assert query_to_provider(f"beta=a%20b&x={written}&{written}=1&y=1") == "beta=a%20b&y=1"
    assert to_provider([("x-forwarded-uri", f"/v1?x={written}"), ("x-a", "50%")]) == [
        ("x-a", "50%")
    ]


@pytest.mark.parametrize(
    ("query", "passed"),
    [
        ("", ""),
        ("beta=true", "beta=true"),
        (f"key={KEY}", ""),
        (f"beta=true&key={KEY}&x=kr-1", "beta=true&x=kr-1"),
    ],
)
def test_nor_in_a_query(query: str, passed: str) -> None:
    assert query_to_provider(query) == passed


@pytest.mark.parametrize(
    "name", ["key", "%6bey", "access_token", "access%5Ftoken", "api_key", "api-key", "apikey"]
)
def test_no_credential_in_a_query_goes_to_a_provider(name: str) -> None:
    assert query_to_provider(f"beta=true&{name}=AIzaOfTheCaller&keyword=x") == "beta=true&keyword=x"


@pytest.mark.parametrize(
    "value", ["r-s%2Fec+ret", "dXNlcjpzL2VjcmV0", "s/ec ret s\\/ecret s/ecret"]
)
def test_no_header_quotes_a_credential_however_it_is_written(value: str) -> None:
    secrets = "s/ec ret", "user:s/ecret", "s/ecret"
    assert to_caller([("X-Echo", value), ("x-other", "fine")], *secrets) == [("x-other", "fine")]


@pytest.mark.parametrize(
    "name", ["Location", "refresh", "alt-svc", "clear-site-data", "Strict-Transport-Security"]
)
def test_what_a_provider_says_of_its_own_site_does_not_come_back(name: str) -> None:
    assert to_caller([(name, "https://elsewhere.example"), ("x-other", "fine")]) == [
        ("x-other", "fine")
    ]
