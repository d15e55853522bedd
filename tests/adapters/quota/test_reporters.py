"""What providers tell of quota, in the shapes in which they tell it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from krouter_adapters.quota import claude, codex, glm, google, openrouter
from krouter_adapters.quota.claude import Claude
from krouter_adapters.quota.openrouter import OpenRouter
from krouter_adapters.quota.reading import span

from krouter.providers import Provider
from krouter.reporter import (
    Balance,
    Figure,
    PollError,
    QuotaReporter,
    Report,
    Window,
    load_reporters,
)
from krouter.wire import Headers

NOW = datetime(2026, 9, 30, 12, tzinfo=UTC).timestamp()
LATER = NOW + 3600
LATER_TEXT = "2026-09-30T13:00:00+00:00"


def test_claudes_windows() -> None:
    body = {
        "five_hour": {"utilization": 61.0, "resets_at": "2026-09-30T12:59:59.571404+00:00"},
        "seven_day": {"utilization": 22, "resets_at": LATER_TEXT},
        "seven_day_opus": {"utilization": 100.0, "resets_at": LATER_TEXT},
        "seven_day_sonnet": None,
        "seven_day_oauth_apps": {"utilization": None, "resets_at": None},
        "extra_usage": {"is_enabled": False, "utilization": None},
    }
    found = claude.parse_usage(body, NOW).windows
    assert found[0] == Window("5h", pytest.approx(0.39), pytest.approx(LATER - 0.43, abs=0.01))
    assert found[1:] == (
        Window("7d", pytest.approx(0.78), LATER),
        Window("7d opus", 0.0, LATER, "opus"),
    )


def test_the_windows_in_claudes_headers() -> None:
    headers = {
        "anthropic-ratelimit-unified-status": "allowed",
        "anthropic-ratelimit-unified-5h-utilization": "0.42",
        "anthropic-ratelimit-unified-5h-reset": str(int(LATER)),
        "anthropic-ratelimit-unified-5h-status": "allowed",
        "anthropic-ratelimit-unified-7d-utilization": "1.2",
        "anthropic-ratelimit-unified-7d-sonnet-utilization": "0",
        "anthropic-ratelimit-unified-overage-status": "rejected",
    }
    assert Claude().read_headers(headers, "claude-opus-5", NOW).windows == (
        Window("5h", pytest.approx(0.58), LATER),
        Window("7d", 0.0),
        Window("7d sonnet", 1.0, None, "sonnet"),
    )


def test_the_limits_by_the_minute_in_claudes_headers() -> None:
    headers = {
        "anthropic-ratelimit-requests-limit": "1000",
        "anthropic-ratelimit-requests-remaining": "999",
        "anthropic-ratelimit-requests-reset": "2026-09-30T12:00:30Z",
        "anthropic-ratelimit-input-tokens-limit": "80000",
        "anthropic-ratelimit-input-tokens-remaining": "20000",
        "anthropic-ratelimit-input-tokens-reset": "2026-09-30T11:59:59Z",
        "anthropic-ratelimit-tokens-limit": "0",
        "anthropic-ratelimit-output-tokens-limit": "16000",
    }
    assert Claude().read_headers(headers, "claude-opus-5", NOW).windows == (
        Window("requests", 0.999, NOW + 30, "claude-opus-5"),
        Window("input-tokens", 0.25, NOW + 60, "claude-opus-5"),
    )


def test_the_limit_of_an_openrouter_key() -> None:
    body = {"data": {"limit": 100, "limit_remaining": 74.5}}
    assert openrouter.parse_key(body).balances == (Balance("key limit", 74.5, of=100),)
    assert openrouter.parse_key({"data": {"limit": None, "limit_remaining": None}}) == Report()


def test_the_credits_of_an_openrouter_account() -> None:
    body = {"data": {"total_credits": 100.5, "total_usage": 25.75}}
    assert openrouter.parse_credits(body).balances == (Balance("credits", 74.75),)


def test_antigravitys_models() -> None:
    body = {
        "models": {
            "gemini-3-pro": {"quotaInfo": {"remainingFraction": 0.25, "resetTime": LATER_TEXT}},
            "claude-sonnet-4-6": {"quotaInfo": {"resetTime": LATER_TEXT}},
            "gpt-oss-120b-medium": {"quotaInfo": {"remainingFraction": 1}},
            "chat_23310": {"maxTokens": 32768},
            "odd": {"quotaInfo": {"remainingFraction": "much"}},
        }
    }
    assert google.parse_antigravity(body, NOW).figures == (
        Figure("gemini-3-pro", 0.25, LATER),
        Figure("claude-sonnet-4-6", 0.0, LATER),
        Figure("gpt-oss-120b-medium", 1.0),
    )


def test_gemini_clis_buckets() -> None:
    buckets = [
        {"modelId": "gemini-2.5-flash", "remainingFraction": 0.5, "resetTime": LATER_TEXT},
        {"modelId": "gemini-2.5-flash", "remainingFraction": 0.125, "tokenType": "REQUESTS"},
        {"modelId": "gemini-2.5-pro", "resetTime": LATER_TEXT},
        {"remainingFraction": 0.5},
    ]
    found = google.parse_gemini_cli({"buckets": buckets}, NOW).figures
    assert {each.model: each for each in found} == {
        "gemini-2.5-flash": Figure("gemini-2.5-flash", 0.125),
        "gemini-2.5-pro": Figure("gemini-2.5-pro", 0.0, LATER),
    }


def test_glms_windows() -> None:
    limits = [
        {"type": "TOKENS_LIMIT", "unit": 3, "number": 5, "percentage": 42.5},
        {
            "type": "TOKENS_LIMIT",
            "unit": 6,
            "number": 1,
            "percentage": 3,
            "nextResetTime": LATER * 1000,
        },
        {"type": "TOKENS_LIMIT", "percentage": 100},
        {"type": "TIME_LIMIT", "unit": 5, "number": 1, "percentage": 99},
    ]
    assert glm.parse_limits({"data": {"level": "pro", "limits": limits}}, NOW).windows == (
        Window("5h", pytest.approx(0.575)),
        Window("7d", pytest.approx(0.97), LATER),
        Window("tokens", 0.0),
    )


def test_codexs_windows() -> None:
    body = {
        "plan_type": "pro",
        "rate_limit": {
            "primary_window": {
                "used_percent": 42,
                "limit_window_seconds": 18_000,
                "reset_at": LATER,
            },
            "secondary_window": {"used_percent": 87, "limit_window_seconds": 604_800},
        },
    }
    assert codex.parse_usage(body, NOW).windows == (
        Window("5h", pytest.approx(0.58), LATER),
        Window("7d", pytest.approx(0.13)),
    )
    bare = {"rate_limit": {"primary_window": {"used_percent": 0}, "secondary_window": None}}
    assert codex.parse_usage(bare, NOW).windows == (Window("primary", 1.0),)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(18_000, "5h"), (604_800, "7d"), (86_400, "1d"), (900, "15m")]
)
def test_the_name_of_a_window(seconds: float, expected: str) -> None:
    assert span(seconds) == expected


PARSERS: list[Callable[[Any], Report]] = [
    lambda body: claude.parse_usage(body, NOW),
    openrouter.parse_key,
    openrouter.parse_credits,
    lambda body: google.parse_antigravity(body, NOW),
    lambda body: google.parse_gemini_cli(body, NOW),
    lambda body: glm.parse_limits(body, NOW),
    lambda body: codex.parse_usage(body, NOW),
]
NAMES = (
    "data models buckets limits rate_limit primary_window five_hour seven_day quotaInfo type unit"
    " number modelId remainingFraction resetTime utilization resets_at used_percent percentage"
    " nextResetTime limit_window_seconds reset_at limit limit_remaining total_credits total_usage"
).split()
odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["TOKENS_LIMIT", "x", "1e999", LATER_TEXT]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=15,
)


@pytest.mark.parametrize("parse", PARSERS)
@given(odd)
def test_no_reply_is_too_odd(parse: Callable[[Any], Report], body: Any) -> None:
    report = parse(body)
    shares = [item.remaining for item in (*report.figures, *report.windows)]
    assert all(0 <= each <= 1 for each in shares)


@given(
    st.dictionaries(
        st.from_regex(
            r"anthropic-ratelimit-(unified-(5h|7d)(-opus)?-(utilization|reset)"
            r"|(tokens|requests)-(limit|remaining|reset))",
            fullmatch=True,
        ),
        st.sampled_from(["", "0", "-1", "0.5", "nan", "inf", "1e400", "allowed", "9" * 400]),
    )
)
def test_no_header_is_too_odd(headers: dict[str, str]) -> None:
    report = Claude().read_headers(headers, "m", NOW)
    assert all(0 <= each.remaining <= 1 for each in report.windows)


class Site:
    """Answers by URL; what it does not know is 403."""

    def __init__(self, **pages: Any) -> None:
        self.pages = pages
        self.asked: list[tuple[str, Headers]] = []

    async def get(self, url: str, headers: Headers) -> Any:
        self.asked.append((url, headers))
        page = self.pages.get(url.rpartition("/")[2])
        if page is None:
            raise PollError("status 403")
        return page


def poll(reporter: QuotaReporter, site: Site, **urls: str) -> Report:
    provider = Provider("p", base_urls=urls)  # type: ignore[arg-type]
    return asyncio.run(reporter.poll(provider, "sk-x", site.get, NOW))


def test_claude_is_asked_at_its_own_host_with_the_beta_of_its_tokens() -> None:
    site = Site(usage={"five_hour": {"utilization": 50}})
    assert poll(Claude(), site, messages="http://h.example:1/v1").windows == (Window("5h", 0.5),)
    assert site.asked == [
        (
            "http://h.example:1/api/oauth/usage",
            [("authorization", "Bearer sk-x"), ("anthropic-beta", "oauth-2025-04-20")],
        )
    ]
    with pytest.raises(PollError, match="no address"):
        poll(Claude(), site, chat="http://h.example")


def test_openrouters_credits_are_asked_for_where_the_key_has_no_limit() -> None:
    bare = {"data": {"limit": None, "limit_remaining": None}}
    limited = {"data": {"limit": 10, "limit_remaining": 1}}
    credits = {"data": {"total_credits": 9, "total_usage": 1}}
    url = "http://h.example/api/v1"
    site = Site(key=limited, credits=credits)
    assert poll(OpenRouter(), site, chat=url).balances == (Balance("key limit", 1.0, of=10.0),)
    assert [asked for asked, _ in site.asked] == [f"{url}/key"]
    assert poll(OpenRouter(), Site(key=bare, credits=credits), chat=url).balances == (
        Balance("credits", 8.0),
    )
    with pytest.raises(PollError, match="no limit of its own, and its credits: status 403"):
        poll(OpenRouter(), Site(key=bare), chat=url)


def test_what_ships() -> None:
    assert [each.polled for each in load_reporters()] == [("cc",), ("openrouter",)]
