"""GLM's coding plan: `GET /api/monitor/usage/quota/limit`, which is not documented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from krouter.reporter import Report, Window
from krouter.resets import moment
from krouter_adapters.quota.reading import as_dict, as_dicts, as_number, left_of_percent

_UNITS = {3: ("h", 1), 5: ("month", 1), 6: ("d", 7)}
"""Their numbers for hours, months and weeks."""


def parse_limits(body: Any, now: float) -> Report:
    """`data.limits`, of which those of tokens bind the models; `percentage` is what is used."""
    limits = as_dicts(as_dict(as_dict(body).get("data")).get("limits"))
    return Report(windows=tuple(_windows(limits, now)))


def _windows(limits: list[dict[str, Any]], now: float) -> Iterator[Window]:
    for limit in limits:
        left = left_of_percent(limit.get("percentage"))
        if limit.get("type") == "TOKENS_LIMIT" and left is not None:
            yield Window(_name(limit), left, moment(limit.get("nextResetTime"), now))


def _name(limit: dict[str, Any]) -> str:
    unit, number = as_number(limit.get("unit")), as_number(limit.get("number"))
    if unit not in _UNITS or not number:
        return "tokens"
    name, times = _UNITS[int(unit)]
    return f"{int(number) * times}{name}"
