"""When a provider says that a limit ends: stated resets in headers, bodies and messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

DAY = 86_400.0
LONGEST = 32 * DAY

_FIELDS = (
    "resets_at",
    "resets_in_seconds",
    "reset_at",
    "resetsAt",
    "resetAt",
    "reset_after",
    "retry_after",
    "retryAfter",
)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}
_UNIT = r"(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)(?![a-z])"
_PART = re.compile(rf"(\d+(?:\.\d+)?) ?({_UNIT})", re.I | re.A)
_SPAN = rf"\d+(?:\.\d+)? ?{_UNIT}(?:(?:,| and)? ?\d+(?:\.\d+)? ?{_UNIT})*"
_DURATION = re.compile(_SPAN, re.I | re.A)
_AGAIN = re.compile(
    rf"\b(?:try again|retry|wait|resets?)(?: (?:in|after|for))? ({_SPAN})", re.I | re.A
)
_REGAIN = re.compile(
    r"regain access on (\d{4}-\d\d-\d\d)(?: at (\d\d:\d\d)(?: utc)?)?", re.I | re.A
)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?", re.A)


def stated_reset(headers: Mapping[str, str], body: Any, text: str, now: float) -> float | None:
    """The earliest future moment at which the provider says its limit ends, or None.

    `headers` have lower-case names, `body` is the parsed error body, `text` its message; `now`
    and the answer are epoch seconds. The most direct word wins: the body, then `Retry-After`,
    then the message, then the reset headers of single limits. What is past, malformed or more
    than 32 days ahead is passed over.
    """
    sources: tuple[Iterable[object], ...] = (
        (*_in_body(body), *_regained(text)),
        _pick(headers, "retry-after-ms", "{}ms"),
        _pick(headers, "retry-after", "{}"),
        _AGAIN.findall(text),
        _of_limits(headers),
    )
    for values in sources:
        moments = [at for value in values if (at := moment(value, now)) is not None]
        if moments:
            return min(moments)
    return None


def speaks_of_reset(text: str) -> bool:
    """Whether a message names a time at which to come back."""
    return bool(_AGAIN.search(text) or _REGAIN.search(text))


def _pick(headers: Mapping[str, str], name: str, form: str) -> list[str]:
    return [form.format(headers[name].strip())] if name in headers else []


def _in_body(body: Any) -> Iterator[object]:
    holder = body[0] if isinstance(body, list) and body else body
    error = _dict(_dict(holder).get("error"))
    metadata = _dict(error.get("metadata"))
    for place in (_dict(holder), error, metadata):
        yield from (place[name] for name in _FIELDS if name in place)
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        yield _dict(detail).get("retryDelay")
    yield from _in_quoted_headers(_dict(metadata.get("headers")))


def _in_quoted_headers(quoted: dict[Any, Any]) -> Iterator[object]:
    headers = {str(name).lower(): str(value) for name, value in quoted.items()}
    yield from _pick(headers, "retry-after", "{}")
    yield from _of_limits(headers)


def _regained(text: str) -> list[str]:
    return [f"{day}T{time or '00:00'}+00:00" for day, time in _REGAIN.findall(text)]


def _of_limits(headers: Mapping[str, str]) -> list[str]:
    """The resets of limits that are spent, so far as the headers tell which are."""
    resets = [name for name in headers if _is_reset(name)]
    return [headers[name] for name in resets if _may_be_spent(name, headers)]


def _is_reset(name: str) -> bool:
    if name.startswith("anthropic-ratelimit-"):
        return name.endswith("-reset")
    return name.startswith(("x-ratelimit-reset", "ratelimit-reset"))


def _may_be_spent(name: str, headers: Mapping[str, str]) -> bool:
    status = headers.get(_sibling(name, "status"), "")
    remaining = headers.get(_sibling(name, "remaining"), "").strip()
    spent = not _NUMBER.fullmatch(remaining) or float(remaining) <= 0
    return spent and not status.startswith("allowed")


def _sibling(name: str, word: str) -> str:
    """`x-ratelimit-remaining-tokens` for `x-ratelimit-reset-tokens`, and so on."""
    before, _, after = name.rpartition("reset")
    return f"{before}{word}{after}"


def moment(value: object, now: float) -> float | None:
    """A reset in any of the spellings that providers use, in epoch seconds; None for what is none,
    is past, or lies more than 32 days ahead."""
    try:
        at = _parsed(value, now)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return at if now < at <= now + LONGEST else None


def _parsed(value: object, now: float) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _counted(float(value), now)
    if not isinstance(value, str) or len(value) > 64:
        raise ValueError(value)
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return _counted(float(text), now)
    if _DURATION.fullmatch(text):
        return now + sum(float(number) * _seconds(unit) for number, unit in _PART.findall(text))
    return _dated(text)


def _counted(number: float, now: float) -> float:
    """An epoch in milliseconds or seconds if it is large enough for one, else seconds from now."""
    if number >= 1e11:
        return number / 1000
    return number if number >= 1e9 else now + number


def _seconds(unit: str) -> float:
    short = unit.lower()
    return _UNITS["ms" if short.startswith(("ms", "milli")) else short[0]]


def _dated(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = parsedate_to_datetime(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _dict(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}
