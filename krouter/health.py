"""How well each account does right now, and Zenith: the one number that ranks accounts by it.

    score = share × (1000 × success - 10 × min(first byte, 20) + 40 ÷ priority)

`success` is a moving average of 1 for an answer and 0 for a failure of the account; `first byte`
is one of the seconds until a reply begins, over answers only, so that a quick failure raises
nothing. `share` is 1, or less while under 30 % of the account's quota is left: left ÷ 0.3, at
least 0.1. What is not known is neutral: success 1, first byte 3 s, share 1. An account that
nobody asks for longer than a minute drifts back to neutral, half of the way every five minutes.

So one failure costs 500, more than all waiting and priority together can, which is 240. A second
of waiting costs 10, and priority 1 is worth 2 seconds more than priority 2.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from krouter.board import Pair
from krouter.errors import Failure

NEUTRAL_SUCCESS = 1.0
NEUTRAL_FIRST_BYTE = 3.0
ON_FAILURE = 0.5
"""How much of the success average one failure takes."""
ON_SUCCESS = 0.2
"""How far one success lifts it towards 1."""
ON_FIRST_BYTE = 0.3
"""The weight of the newest wait."""
LONGEST_FIRST_BYTE = 60.0
IDLE_SECONDS = 60.0
HALF_LIFE = 300.0

SUCCESS_POINTS = 1000.0
SECOND_POINTS = 10.0
COUNTED_SECONDS = 20.0
PRIORITY_POINTS = 40.0
LOW_QUOTA = 0.3
LEAST_SHARE = 0.1

HEALTHY = 0.6
"""The success above which a conversation stays where it is; one failure goes below."""

ACCOUNT_FAILURES = frozenset(
    {
        Failure.ACCOUNT_BARRED,
        Failure.QUOTA_SPENT,
        Failure.NOT_SIGNED_IN,
        Failure.RATE_LIMITED,
        Failure.OVERLOADED,
        Failure.SERVER_ERROR,
        Failure.TIMED_OUT,
    }
)
"""Those that say something of the account; the others are of the request, the model, the caller."""


class Health(Struct, frozen=True):
    """The averages of one account as they stood at `at`, epoch seconds of its last call."""

    success: float = NEUTRAL_SUCCESS
    first_byte: float = NEUTRAL_FIRST_BYTE
    at: float = 0.0

    def drifted(self, now: float) -> Health:
        """The averages at `now`, nearer to neutral the longer nobody has asked."""
        idle = now - self.at - IDLE_SECONDS
        if idle <= 0:
            return self
        kept = 0.5 ** (idle / HALF_LIFE)
        return replace(
            self,
            success=NEUTRAL_SUCCESS + (self.success - NEUTRAL_SUCCESS) * kept,
            first_byte=NEUTRAL_FIRST_BYTE + (self.first_byte - NEUTRAL_FIRST_BYTE) * kept,
        )

    def after_success(self, now: float, first_byte: float | None) -> Health:
        """`first_byte` in seconds; None where it tells nothing of the account."""
        old = self.drifted(now)
        waited = old.first_byte
        if first_byte is not None:
            seconds = min(max(first_byte, 0.0), LONGEST_FIRST_BYTE)
            waited += (seconds - waited) * ON_FIRST_BYTE
        return Health(old.success + (1.0 - old.success) * ON_SUCCESS, waited, now)

    def after_failure(self, now: float) -> Health:
        old = self.drifted(now)
        return Health(old.success * (1.0 - ON_FAILURE), old.first_byte, now)


NEUTRAL = Health()


def zenith(health: Health, left: float | None, priority: int) -> float:
    """The score. `health` has drifted already; `left` is the share of the quota that is left, None
    if unknown."""
    points = SUCCESS_POINTS * health.success
    points -= SECOND_POINTS * min(health.first_byte, COUNTED_SECONDS)
    points += PRIORITY_POINTS / max(priority, 1)
    return quota_share(left) * max(points, 0.0)


def quota_share(left: float | None) -> float:
    """What part of the score stays with `left` of the quota."""
    return 1.0 if left is None else min(max(left / LOW_QUOTA, LEAST_SHARE), 1.0)


class HealthBook:
    """The health of every account, in memory and bounded. `now` gives epoch seconds."""

    def __init__(self, now: Callable[[], float], size: int = 10_000) -> None:
        self._now = now
        self._size = size
        self._known: dict[Pair, Health] = {}
        """The one asked longest ago first."""

    def of(self, provider: str, account: str) -> Health:
        """As it stood at the account's last call; neutral if there was none."""
        return self._known.get((provider, account), NEUTRAL)

    def succeed(self, provider: str, account: str, first_byte: float | None) -> None:
        now = self._now()
        health = self.of(provider, account).after_success(now, first_byte)
        self._keep((provider, account), health)

    def fail(self, provider: str, account: str, failure: Failure) -> None:
        """A failure that is not the account's own only shows that it is in use."""
        now, health = self._now(), self.of(provider, account)
        counts = failure in ACCOUNT_FAILURES
        drifted = replace(health.drifted(now), at=now)
        self._keep((provider, account), health.after_failure(now) if counts else drifted)

    def _keep(self, account: Pair, health: Health) -> None:
        self._known.pop(account, None)
        self._known[account] = health
        if len(self._known) > self._size:
            del self._known[next(iter(self._known))]

    def known(self) -> dict[Pair, Health]:
        """Of every account that was called, as it stood then."""
        return dict(self._known)

    def put(self, provider: str, account: str, health: Health) -> None:
        """What was seen elsewhere."""
        self._keep((provider, account), health)

    def used_since(self, moment: float) -> list[Pair]:
        """The accounts called since `moment`."""
        return [pair for pair, health in self._known.items() if health.at >= moment]

    def forget(self, provider: str, account: str) -> None:
        self._known.pop((provider, account), None)
