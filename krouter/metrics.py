"""What all requests come to, for Prometheus; docs/metrics.md says what each number means.

Booking happens on the event loop once a request, so it only adds to numbers in memory. Sums are
kept in whole parts: what is shown is exactly what the routes add up to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from krouter.board import Board
from krouter.combos import reference
from krouter.metric_series import (
    ENTRY,
    OTHER,
    Consumption,
    Labels,
    Level,
    MetricsSnapshot,
    Names,
    Series,
    Spread,
    Sum,
)
from krouter.route import Attempt, Route, Skipped

MOST_PROVIDERS = 1000
"""More than the registry has: a bound for what settings that change again and again bring."""
_CLASSES: dict[int | None, str] = {code: f"{code // 100}xx" for code in range(100, 600)}
_CLASSES[None] = "none"
_LOCK = ("provider", "scope", "reason")
GATHERED = 64
"""Routes that are counted in one go, which takes less time than each alone."""


class Metrics:
    """Counts every route that it is told of; `board` gives what is so at the moment."""

    def __init__(self, board: Callable[[], Board]) -> None:
        self._board = board
        self._combos = Names()
        self._models = Names()
        self._providers = Names(MOST_PROVIDERS)
        self._requests = Sum(
            "krouter_requests_total",
            "Requests that are over.",
            ("combo", "dialect", "outcome", "status"),
        )
        self._durations = Spread(
            "krouter_request_duration_seconds",
            "From a request's arrival until its answer is closed.",
            ("combo", "status"),
        )
        self._attempts = Sum(
            "krouter_attempts_total", "Calls to providers.", (*ENTRY, "lane", "outcome")
        )
        self._first_bytes = Spread(
            "krouter_attempt_first_byte_seconds",
            "From an attempt's beginning until the provider's first byte.",
            ("provider", "model"),
        )
        self._fallback_attempts = Sum(
            "krouter_fallback_attempts_total",
            "Attempts after the first, in requests that were served.",
            ("combo",),
        )
        self._fallback_requests = Sum(
            "krouter_fallback_requests_total",
            "Requests served by another entry than the first in their order.",
            ("combo",),
        )
        self._voices = Sum(
            "krouter_fusion_voices_total",
            "Whom fusions asked: panel, judge, or again for the only one that had answered.",
            ("combo", "role", "outcome"),
        )
        self._skips = Sum(
            "krouter_skips_total", "Entries and accounts that were passed over.", ("reason",)
        )
        self._locks_set = Sum(
            "krouter_locks_set_total", "Attempts that left an account or a model locked.", _LOCK
        )
        self._spent = Consumption("", "all attempts")
        self._wasted = Consumption("wasted_", "the attempts that the caller never saw")
        self._uncounted: list[Route] = []

    def book(self, route: Route) -> None:
        """A request is over. What is still under way in it is counted when it has ended."""
        self._uncounted.append(route)
        if route.lingers or len(self._uncounted) >= GATHERED:
            self._count()

    def _count(self) -> None:
        routes, self._uncounted = self._uncounted, []
        for route in routes:
            self._book(route)

    def _book(self, route: Route) -> None:
        combo, status = self._combos.label(route.combo), _CLASSES.get(route.status, OTHER)
        self._requests.values[combo, route.dialect, route.outcome, status] += 1
        if route.ended is not None:
            self._durations.observe((combo, status), route.ended - route.began)
        for step in route.steps:
            if not (route.lingers and _is_under_way(step)):
                self._book_step(combo, step)
        if route.served:
            self._fallback_attempts.values[(combo,)] += max(_own_attempts(route) - 1, 0)
            self._fallback_requests.values[(combo,)] += fell_back(route)
        self._book_voices(combo, route)

    def amend(self, route: Route, news: Sequence[Attempt | Skipped]) -> None:
        """The late calls of a request that is over have ended; `news` are their steps."""
        self._count()
        combo = self._combos.label(route.combo)
        for step in news:
            self._book_step(combo, step)
        self._book_voices(combo, route)

    def _book_voices(self, combo: str, route: Route) -> None:
        """Once, when all of them have ended: a late one may ask others."""
        for voice in () if route.lingers else route.voices:
            self._voices.values[combo, voice.role, voice.outcome] += 1

    def _book_step(self, combo: str, step: Attempt | Skipped) -> None:
        if isinstance(step, Attempt):
            self._book_attempt(combo, step)
        else:
            self._skips.values[(step.reason,)] += 1

    def _book_attempt(self, combo: str, attempt: Attempt) -> None:
        provider = self._providers.label(attempt.provider)
        model = self._models.label(attempt.model)
        self._attempts.values[combo, provider, model, attempt.lane, attempt.outcome] += 1
        if attempt.first_byte is not None:
            self._first_bytes.observe((provider, model), attempt.first_byte - attempt.began)
        if attempt.lock is not None:
            self._locks_set.values[provider, attempt.locked, attempt.outcome] += 1
        if attempt.usage is not None or attempt.cost is not None or attempt.is_unpriced:
            entry = (combo, provider, model)
            self._spent.add(entry, attempt)
            if not attempt.seen:
                self._wasted.add(entry, attempt)

    def snapshot(self) -> MetricsSnapshot:
        """Everything as it is now; to be asked for on the event loop."""
        self._count()
        return MetricsSnapshot([each.copy() for each in (*self._series(), *self._levels())])

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its content type, for whoever may wait for both steps at once."""
        return self.snapshot().text(accept)

    def _series(self) -> Iterable[Series]:
        return (
            self._requests,
            self._durations,
            self._attempts,
            self._first_bytes,
            self._fallback_attempts,
            self._fallback_requests,
            self._voices,
            self._skips,
            self._locks_set,
            self._spent,
            self._wasted,
        )

    def _levels(self) -> Iterable[Series]:
        board = self._board()
        locks = Counter(
            (self._providers.label(key[0]), _scope(key), lock.failure)
            for key, lock in board.locks()
        )
        yield Level("krouter_locks", "Locks in force.", _LOCK, Counter[Labels](locks))
        calls = Counter[Labels]({(): board.in_flight})
        yield Level("krouter_calls_in_flight", "Calls to providers under way.", (), calls)


def _scope(key: Labels) -> str:
    """What a lock of the board holds, as `Attempt.locked` says it."""
    _, account, model = key
    held = [kind for kind, name in (("account", account), ("model", model)) if name != "*"]
    return " and ".join(held)


def _own_attempts(route: Route) -> int:
    """How many attempts are not those of a panel."""
    attempts = route.attempts
    return sum(not route.is_of_panel(each) for each in attempts) if route.voices else len(attempts)


def fell_back(route: Route) -> bool:
    """Whether another than the first entry served it. A fusion is one entry, whoever answers."""
    final = route.final if route.voices else None
    fusions = route.fusions(final.places) if final and final.voice else []
    return any(at != 1 for at in fusions[0]) if fusions else route.served != first_entry(route)


def _is_under_way(step: Attempt | Skipped) -> bool:
    return isinstance(step, Attempt) and step.ended is None


def first_entry(route: Route) -> str:
    """The entry that was to be tried first, inside nested combos where those come first."""
    if not route.plan:
        return ""
    entry = route.plan[0].entry
    for _ in route.nested:
        inner = route.nested.get(reference(entry) or "")
        if not inner:
            break
        entry = inner[0].entry
    return entry
