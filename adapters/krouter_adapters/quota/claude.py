"""Claude: the windows of a subscription, and the limits that stand in every reply's headers.

The address of the windows is the one Claude Code itself asks; it is not documented. A token of
`claude setup-token` may not read it (403), and then the headers alone tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from krouter.providers import Provider
from krouter.reporter import Get, PollError, Report, Window
from krouter.resets import moment
from krouter_adapters.quota.reading import as_dict, as_number, left_of_percent, share

_BETA = ("anthropic-beta", "oauth-2025-04-20")
_SPANS = {"five_hour": "5h", "seven_day": "7d"}
_UNIFIED = re.compile(r"anthropic-ratelimit-unified-(\d+[hd])(?:[-_](\w+))?-utilization")
_LIMIT = re.compile(r"anthropic-ratelimit-((?:input-|output-)?tokens|requests)-limit")


class Claude:
    polled: tuple[str, ...] = ("cc",)
    heard: tuple[str, ...] = ("cc", "anthropic")

    async def poll(self, provider: Provider, secret: str, get: Get, now: float) -> Report:
        base = provider.base_urls.get("messages")
        if base is None:
            raise PollError("it has no address for messages")
        parts = urlsplit(base)
        url = f"{parts.scheme}://{parts.netloc}/api/oauth/usage"
        headers = [("authorization", f"Bearer {secret}"), _BETA]
        return parse_usage(await get(url, headers), now)

    def read_headers(self, headers: Mapping[str, str], model: str, now: float) -> Report:
        windows = (*_unified(headers, now), *_by_minute(headers, model, now))
        return Report(windows=windows)


def parse_usage(body: Any, now: float) -> Report:
    """`five_hour`, `seven_day` and `seven_day_MODEL`, each with `utilization` in percent."""
    return Report(windows=tuple(_used(as_dict(body), now)))


def _used(body: dict[str, Any], now: float) -> Iterator[Window]:
    for name, told in body.items():
        begin = next((each for each in _SPANS if name.startswith(each)), None)
        left = left_of_percent(as_dict(told).get("utilization"))
        if begin is None or left is None:
            continue
        model = name.removeprefix(begin).lstrip("_")
        yield _window(_SPANS[begin], model, left, moment(told.get("resets_at"), now))


def _unified(headers: Mapping[str, str], now: float) -> Iterator[Window]:
    """The same windows as in a reply, in shares of 1."""
    for name, value in headers.items():
        match, used = _UNIFIED.fullmatch(name), as_number(value)
        if match and used is not None:
            resets_at = moment(headers.get(name.removesuffix("utilization") + "reset"), now)
            yield _window(match[1], match[2] or "", share(1.0 - used), resets_at)


def _window(span: str, model: str, left: float, resets_at: float | None) -> Window:
    return Window(f"{span} {model}".rstrip(), left, resets_at, model)


def _by_minute(headers: Mapping[str, str], model: str, now: float) -> Iterator[Window]:
    """The limits of an API key, which are per model."""
    for name, value in headers.items():
        match, limit = _LIMIT.fullmatch(name), as_number(value)
        remaining = as_number(headers.get(name.removesuffix("limit") + "remaining"))
        if match and limit and remaining is not None:
            resets_at = moment(headers.get(name.removesuffix("limit") + "reset"), now)
            left = share(remaining / limit)
            # It has been refilled already where the reset is past, and is never older than this.
            yield Window(match[1], left, resets_at or now + 60.0, model)
