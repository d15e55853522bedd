"""Stated resets: every form in which providers give them."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.resets import LONGEST, stated_reset

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp()
NOT_STATED = None


def google(delay: object) -> dict[str, object]:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    return {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{}, info]}}


def openrouter(**headers: object) -> dict[str, object]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"error": {"code": 429, "metadata": {"headers": names}}}


HEADERS = [
    ({"retry-after": "7"}, 7),
    ({"retry-after": " 1.5 "}, 1.5),
    ({"retry-after": "0"}, NOT_STATED),
    ({"retry-after": "-5"}, NOT_STATED),
    ({"retry-after": "soon"}, NOT_STATED),
    ({"retry-after": "nan"}, NOT_STATED),
    ({"retry-after": "inf"}, NOT_STATED),
    ({"retry-after": "9" * 40}, NOT_STATED),
    ({"retry-after": "9" * 4000}, NOT_STATED),
    ({"retry-after": str(33 * 86400)}, NOT_STATED),
    ({"retry-after": str(31 * 86400)}, 31 * 86400),
    ({"retry-after": "Fri, 20 Nov 2026 12:01:40 GMT"}, 100),
    ({"retry-after": "Fri, 20 Nov 2026 11:00:00 GMT"}, NOT_STATED),
    ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
    ({"retry-after-ms": "x", "retry-after": "1"}, 1),
    ({"retry-after": "9", "x-ratelimit-reset-requests": "1s"}, 9),
    ({"x-ratelimit-reset-requests": "12ms"}, 0.012),
    ({"x-ratelimit-reset-tokens": "6m0s"}, 360),
    ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
    ({"x-ratelimit-reset-tokens": "2d"}, 172800),
    ({"x-ratelimit-reset-after": "3.25"}, 3.25),
    ({"x-ratelimit-reset": str(int(NOW) + 30)}, 30),
    ({"x-ratelimit-reset": str((int(NOW) + 30) * 1000)}, 30),
    ({"x-ratelimit-reset": str(int(NOW) - 30)}, NOT_STATED),
    ({"x-ratelimit-reset-requests": "5s", "x-ratelimit-reset-tokens": "2s"}, 2),
    (
        {
            "x-ratelimit-reset-requests": "5s",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-tokens": "2s",
            "x-ratelimit-remaining-tokens": "900",
        },
        5,
    ),
    (
        {
            "anthropic-ratelimit-requests-reset": "2026-11-20T12:00:05Z",
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-tokens-reset": "2026-11-20T12:00:40Z",
            "anthropic-ratelimit-tokens-remaining": "0",
        },
        40,
    ),
    ({"anthropic-ratelimit-input-tokens-reset": "2026-11-20T12:00:40+00:00"}, 40),
    ({"anthropic-ratelimit-unified-reset": str(int(NOW) + 7200)}, 7200),
    (
        {
            "anthropic-ratelimit-unified-5h-reset": str(int(NOW) + 60),
            "anthropic-ratelimit-unified-5h-status": "allowed_warning",
            "anthropic-ratelimit-unified-7d-reset": str(int(NOW) + 900),
            "anthropic-ratelimit-unified-7d-status": "rejected",
        },
        900,
    ),
    ({"ratelimit-reset": "12"}, 12),
    ({"x-ratelimit-limit-tokens": "30"}, NOT_STATED),
    ({}, NOT_STATED),
]

BODIES = [
    (google("34s"), 34),
    (google("34.5s"), 34.5),
    (google(""), NOT_STATED),
    (google(None), NOT_STATED),
    ([google("34s")], 34),
    (openrouter(X_RateLimit_Reset=str((int(NOW) + 90) * 1000)), 90),
    (openrouter(X_RateLimit_Reset=(int(NOW) + 90) * 1000, X_RateLimit_Remaining=0), 90),
    (openrouter(X_RateLimit_Reset=(int(NOW) - 90) * 1000), NOT_STATED),
    (openrouter(Retry_After="4"), 4),
    ({"error": {"type": "usage_limit_reached", "resets_at": int(NOW) + 500}}, 500),
    ({"error": {"type": "usage_limit_reached", "resets_in_seconds": 600}}, 600),
    ({"error": {"resets_at": int(NOW) - 5, "resets_in_seconds": 600}}, 600),
    ({"detail": "x", "retry_after": 3}, 3),
    ({"error": {"reset_at": "2026-11-20T13:00:00Z"}}, 3600),
    ({"error": {"resets_at": True}}, NOT_STATED),
    ({"error": {"resets_at": math.nan}}, NOT_STATED),
    ({"error": {"resets_at": math.inf}}, NOT_STATED),
    ({"error": {"resets_at": 10**400}}, NOT_STATED),
    ({"error": {"resets_at": "0001-01-01T00:00:00+23:59"}}, NOT_STATED),
    ({"error": {"details": "no"}}, NOT_STATED),
    ({"error": "text"}, NOT_STATED),
    ([], NOT_STATED),
    ("text", NOT_STATED),
    (None, NOT_STATED),
]

TEXTS = [
    ("You will regain access on 2026-12-01 at 00:00 UTC.", 10.5 * 86400),
    ("You will regain access on 2026-12-01.", 10.5 * 86400),
    ("You will regain access on 2026-11-01 at 00:00 UTC.", NOT_STATED),
    ("You will regain access on 2027-03-01 at 00:00 UTC.", NOT_STATED),
    ("You will regain access on 2026-13-41 at 00:00 UTC.", NOT_STATED),
    ("Please try again in 1.242s. Visit https://platform.openai.com", 1.242),
    ("Please try again in 7m12s.", 432),
    ("Please try again in 120ms.", 0.12),
    ("Please retry in 34.074824224s.", 34.074824224),
    ("Please retry after 20 seconds.", 20),
    ("Your quota will reset after 2h30m.", 9000),
    ("Resets in 1 day, 2 hours", 93600),
    ("Please try again later.", NOT_STATED),
    ("Please try again in 5 messages", NOT_STATED),
]


@pytest.mark.parametrize(("headers", "seconds"), HEADERS)
def test_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert_stated(stated_reset(headers, None, "", NOW), seconds)


@pytest.mark.parametrize(("body", "seconds"), BODIES)
def test_bodies(body: object, seconds: float | None) -> None:
    assert_stated(stated_reset({}, body, "", NOW), seconds)


@pytest.mark.parametrize(("text", "seconds"), TEXTS)
def test_messages(text: str, seconds: float | None) -> None:
    assert_stated(stated_reset({}, None, text, NOW), seconds)


def test_the_most_direct_word_wins() -> None:
    again, headers = "Please try again in 3s.", {"retry-after": "2", "x-ratelimit-reset": "1"}
    assert_stated(stated_reset(headers, google("4s"), again, NOW), 4)
    assert_stated(stated_reset(headers, None, again, NOW), 2)
    assert_stated(stated_reset({"x-ratelimit-reset": "1"}, None, again, NOW), 3)
    assert_stated(stated_reset({"x-ratelimit-reset": "1"}, None, "", NOW), 1)


def assert_stated(reset: float | None, seconds: float | None) -> None:
    if seconds is None:
        assert reset is None
    else:
        assert reset is not None
        assert math.isclose(reset - NOW, seconds, abs_tol=1e-3)


NAMES = st.sampled_from(
    [name for headers, _ in HEADERS for name in headers] + ["x-ratelimit-remaining"]
)
VALUES = st.one_of(
    st.text(max_size=70),
    st.floats().map(str),
    st.integers().map(str),
    st.sampled_from([value for headers, _ in HEADERS for value in headers.values()]),
    st.datetimes().map(str),
    st.datetimes().map(lambda at: at.strftime("%a, %d %b %Y %H:%M:%S GMT")),
    st.from_regex(r"\A(\d{1,3}(ms|s|m|h|d)){1,3}\Z"),
)
KEYS = st.sampled_from(
    ["error", "details", "metadata", "headers", "retryDelay", "resets_at", "retry_after"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(NAMES, VALUES),
    JSON,
    st.text() | st.sampled_from([text for text, _ in TEXTS]),
    st.floats(0, 1e11),
)
def test_a_reset_is_always_ahead_and_near(
    headers: dict[str, str], body: object, text: str, now: float
) -> None:
    reset = stated_reset(headers, body, text, now)
    assert reset is None or now < reset <= now + LONGEST
