"""Codex in a ChatGPT plan: `GET https://chatgpt.com/backend-api/wham/usage`, as Codex asks it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from krouter.reporter import Report, Window
from krouter.resets import moment
from krouter_adapters.quota.reading import as_dict, as_number, left_of_percent, span


def parse_usage(body: Any, now: float) -> Report:
    """The primary and the secondary window of `rate_limit`."""
    return Report(windows=tuple(_windows(as_dict(as_dict(body).get("rate_limit")), now)))


def _windows(limits: dict[str, Any], now: float) -> Iterator[Window]:
    for name in ("primary", "secondary"):
        told = as_dict(limits.get(f"{name}_window"))
        left = left_of_percent(told.get("used_percent"))
        if left is None:
            continue
        seconds = as_number(told.get("limit_window_seconds"))
        resets_at = moment(told.get("reset_at"), now)
        yield Window(span(seconds) if seconds else name, left, resets_at)
