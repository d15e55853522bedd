"""What came of a simulation: availability, waits, cost, and the load of each account."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

from krouter.costs import dollars
from krouter.route import Attempt, End, Route

_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


class Waits:
    """Seconds of many requests."""

    def __init__(self) -> None:
        self._seconds = array("d")

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    def as_json(self) -> dict[str, float | None]:
        """Quantiles by the nearest rank; None where there is nothing to rank."""
        ranked = sorted(self._seconds)
        if not ranked:
            return {name: None for name, _ in (*_QUANTILES, ("max", 1.0))}
        found = {name: ranked[max(0, _rank(share, len(ranked)) - 1)] for name, share in _QUANTILES}
        return {name: round(each, 3) for name, each in {**found, "max": ranked[-1]}.items()}


def _rank(share: float, size: int) -> int:
    return -int(-share * size // 1)


class Account:
    """What one account was sent."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.tokens = 0
        self.cost = 0

    def add(self, attempt: Attempt) -> None:
        self.outcomes[attempt.outcome] += 1
        self.cost += attempt.cost or 0
        if attempt.usage is not None:
            self.tokens += attempt.usage.input + attempt.usage.output

    def as_json(self, requests: int) -> dict[str, Any]:
        sent = sum(self.outcomes.values())
        failed = {str(o): n for o, n in self.outcomes.most_common() if o != End.ANSWERED}
        return {
            "sent": sent,
            "a_request": round(sent / requests, 4),
            "answered": self.outcomes[End.ANSWERED],
            "failed": failed,
            "tokens": self.tokens,
            "cost": dollars(self.cost),
        }


class Report:
    """Sums over requests that are over."""

    def __init__(self) -> None:
        self.requests = self.answered = self.fell_over = self.attempts = 0
        self.unpriced = self.cost = self.wasted = 0
        self.seconds = 0.0
        """Of virtual time, when all was over."""
        self.most_attempts = self.most_at_once = 0
        self.served: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.first, self.whole, self.failed = Waits(), Waits(), Waits()
        self.accounts: dict[str, Account] = {}

    def add(self, route: Route, failure: str, first: float, seconds: float) -> None:
        """One request: what its caller was told in place of an answer, empty where there is one,
        and after how many seconds its first byte and its end came."""
        self.requests += 1
        attempts = route.attempts
        self.attempts += len(attempts)
        self.most_attempts = max(self.most_attempts, len(attempts))
        for attempt in attempts:
            self._add_attempt(attempt)
        if failure:
            self.failures[failure] += 1
            self.failed.add(seconds)
            return
        self.answered += 1
        self.fell_over += len(attempts) > 1
        self.served[route.served] += 1
        self.first.add(first)
        self.whole.add(seconds)

    def _add_attempt(self, attempt: Attempt) -> None:
        name = f"{attempt.provider}@{attempt.account}"
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account()
        account.add(attempt)
        self.unpriced += attempt.is_unpriced
        self.cost += attempt.cost or 0
        self.wasted += 0 if attempt.seen else attempt.cost or 0

    def as_json(self) -> dict[str, Any]:
        """All sums. Availability is None where no request came."""
        requests = self.requests or 1
        return {
            "seconds": round(self.seconds, 3),
            "requests": self.requests,
            "answered": self.answered,
            "availability": round(self.answered / requests, 6) if self.requests else None,
            "fell_over": self.fell_over,
            "failures": dict(self.failures.most_common()),
            "served": dict(self.served.most_common()),
            "attempts": self.attempts,
            "most_attempts": self.most_attempts,
            "most_at_once": self.most_at_once,
            "first_byte": self.first.as_json(),
            "whole_answer": self.whole.as_json(),
            "until_failure": self.failed.as_json(),
            "cost": dollars(self.cost),
            "wasted": dollars(self.wasted),
            "unpriced": self.unpriced,
            "accounts": {
                name: self.accounts[name].as_json(requests) for name in sorted(self.accounts)
            },
        }
