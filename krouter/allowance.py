"""What a key allows: which models, how often, and for how much money. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal, get_args

Period = Literal["hour", "day", "week", "month"]

PERIODS: tuple[Period, ...] = get_args(Period)
MOST_PER_MINUTE = 60_000
MOST_PATTERNS = 100
LONGEST_PATTERN = 300
MINUTE = 60.0
_BUDGET = re.compile(r"\$?(\d{1,7}(?:\.\d{1,6})?)/([a-z]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Budget:
    """US dollars for each period. A period begins at a full hour of UTC, a week on its Monday."""

    dollars: Decimal
    period: Period

    def __str__(self) -> str:
        return f"{self.dollars.normalize():f}/{self.period}"


def parse_budget(text: str) -> Budget:
    """`5/day`. Raises ValueError."""
    found = _BUDGET.fullmatch(text.strip())
    period = next((each for each in PERIODS if found and each == found[2]), None)
    if found is None or period is None:
        told = "US dollars per hour, day, week or month, as 5/day or 0.50/hour"
        raise ValueError(f"a budget is {told}; at most 7 digits before the point, 6 after it")
    dollars = Decimal(found[1])
    if not dollars:
        raise ValueError("a budget is more than 0 dollars")
    return Budget(dollars, period)


def period_at(period: Period, now: float) -> tuple[int, int]:
    """Where the period around `now` begins, and where the next one does, in epoch seconds."""
    day = datetime.fromtimestamp(now, UTC).replace(minute=0, second=0, microsecond=0)
    if period == "hour":
        return _seconds(day), _seconds(day + timedelta(hours=1))
    day = day.replace(hour=0)
    if period == "day":
        return _seconds(day), _seconds(day + timedelta(days=1))
    if period == "week":
        day -= timedelta(days=day.weekday())
        return _seconds(day), _seconds(day + timedelta(days=7))
    day = day.replace(day=1)
    return _seconds(day), _seconds((day + timedelta(days=31)).replace(day=1))


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def parse_models(text: str) -> tuple[str, ...]:
    """`daily,glm/*` as its names. Raises ValueError."""
    return check_models(tuple(part.strip() for part in text.split(",")))


def check_models(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Each once. Raises ValueError."""
    if not patterns or len(patterns) > MOST_PATTERNS:
        raise ValueError(f"there are 1 to {MOST_PATTERNS} names")
    for pattern in patterns:
        if not pattern or pattern.split() != [pattern] or not pattern.isprintable():
            raise ValueError("names of combos and models are parted by commas, as daily,glm/*")
        if len(pattern) > LONGEST_PATTERN:
            raise ValueError(f"a name has at most {LONGEST_PATTERN} characters")
    return tuple(dict.fromkeys(patterns))


def is_glob(pattern: str) -> bool:
    return not set(pattern).isdisjoint("*?[")


def fits(names: Iterable[str], patterns: Iterable[str]) -> bool:
    """Whether one of the names is one of the patterns, or matches it, as with aliases."""
    known = tuple(patterns)
    return any(fnmatch.fnmatchcase(name, each) or name == each for name in names for each in known)


class Rate:
    """At most so many requests in any minute. Only those let in count."""

    __slots__ = ("_let_in",)

    def __init__(self) -> None:
        self._let_in: deque[float] = deque()

    def ask(self, limit: int, now: float) -> float:
        """Lets a request in and gives 0, or gives the seconds after which one would be let in."""
        wait = self.wait(limit, now)
        if not wait:
            self._let_in.append(now)
        return wait

    def wait(self, limit: int, now: float) -> float:
        """The seconds after which a request would be let in."""
        seen = self._let_in
        while seen and not now - MINUTE < seen[0]:
            seen.popleft()
        if seen and seen[-1] > now:  # the clock has been set back
            seen.clear()
        if len(seen) < limit:
            return 0.0
        return min(seen[len(seen) - limit] + MINUTE - now, MINUTE)
