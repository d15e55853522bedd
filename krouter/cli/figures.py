"""Tokens, money and times, as people read them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from krouter.costs import dollars
from krouter.dialects.base import Usage

UNKNOWN = "unknown"


NOTHING_TOLD = "-"


def money(parts: int, unpriced: int) -> str:
    """A sum. Of `unpriced` attempts the price is not known, which is said, since it is not 0."""
    if unpriced and not parts:
        return UNKNOWN
    more = f" + {unpriced:,} unpriced" if unpriced else ""
    return f"${_amount(dollars(parts))}{more}"


@dataclass(frozen=True, slots=True)
class Bill:
    """What attempts together cost, `used` being their tokens. An answer costs something though its
    provider told no tokens; a failure that told none need not."""

    parts: int
    unpriced: int
    used: int
    answered: bool

    def __str__(self) -> str:
        if self._is_told:
            return money(self.parts, self.unpriced)
        return UNKNOWN if self.answered else NOTHING_TOLD

    @property
    def dollars(self) -> float | None:
        """None where nothing of it is known."""
        known = self.parts or not self.unpriced
        told = self._is_told or not self.answered
        return dollars(self.parts) if known and told else None

    @property
    def _is_told(self) -> bool:
        return bool(self.parts or self.unpriced or self.used)


def _amount(value: float) -> str:
    """Four decimals, or as many as two digits of a very small sum need."""
    decimals = f"{value:.12f}".partition(".")[2]
    zeros = len(decimals) - len(decimals.lstrip("0"))
    return f"{value:.{zeros + 2}f}" if 0 < value < 0.001 else f"{value:,.4f}"


def tokens(usage: Usage) -> str:
    """`1,200 in (800 cached), 35 out`; what was cached is a part of what went in."""
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    return f"{usage.input:,} in{cached}, {usage.output:,} out"


def span(duration: float) -> str:
    """`42 ms`, `1.42 s`, `3 min 5 s`."""
    left = max(0.0, duration)
    if left < 0.9995:
        return f"{left * 1000:.0f} ms"
    if left < 99.95:
        return f"{left:.3g} s"
    minutes, seconds = divmod(round(left), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (0 if hours else seconds, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def moment(at: float, zone: tzinfo | None = None) -> str:
    """A date and time with its zone: `zone`, or that of this machine."""
    return _dated(at, zone, "%Y-%m-%d %H:%M:%S %Z")


def timestamp(at: float) -> str:
    """The same on this machine's clock, as short as a column."""
    return _dated(at, None, "%Y-%m-%d %H:%M:%S")


def _dated(at: float, zone: tzinfo | None, form: str) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).astimezone(zone).strftime(form).rstrip()
    except (ValueError, OverflowError, OSError):
        return UNKNOWN


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `13th`."""
    teen = number % 100 in (11, 12, 13)
    ending = "th" if teen else _ENDINGS.get(number % 10, "th")
    return f"{number}{ending}"


_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def count(number: int, what: str) -> str:
    """`1 attempt`, `2 attempts`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
