"""Reading replies that may hold anything: what has not the expected form is left out."""

from __future__ import annotations

import math
from typing import Any


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_number(value: Any) -> float | None:
    """A finite number, which may be written as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def share(value: float) -> float:
    """`value` as a share, from 0 to 1."""
    return min(max(value, 0.0), 1.0)


def left_of_percent(used: Any) -> float | None:
    """The share that is left where `used` percent are gone."""
    number = as_number(used)
    return None if number is None else share(1.0 - number / 100.0)


def span(seconds: float) -> str:
    """The length of a window, as `5h` or `7d`."""
    minutes = round(seconds / 60)
    if minutes % 1440 == 0:
        return f"{minutes // 1440}d"
    return f"{minutes}m" if minutes % 60 else f"{minutes // 60}h"
