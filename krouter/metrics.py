"""What all requests come to, for Prometheus; docs/metrics.md says what each number means.

Booking happens on the event loop once a request, so it only adds to numbers in memory. Sums are
kept in whole parts: what is shown is exactly what the routes add up to.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.utils import floatToGoString

from krouter._version import __version__
from krouter.board import Board
from krouter.combos import reference
from krouter.costs import PER_DOLLAR
from krouter.route import Attempt, Route, Skipped

Labels = tuple[str, ...]

OTHER = "other"
MOST_NAMES = 200
MOST_PROVIDERS = 1000
"""More than the registry has: a bound for what settings that change again and again bring."""
LONGEST_LABEL = 100
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds: a first byte comes in tenths of one, an agent's long reply in minutes."""

_BOUNDS = (*map(floatToGoString, BUCKETS), "+Inf")
_CLASSES: dict[int | None, str] = {code: f"{code // 100}xx" for code in range(100, 600)}
_CLASSES[None] = "none"


def clean(text: str) -> str:
    """`text` fit for a label: printable, and short enough not to burden every scrape."""
    text = text[:LONGEST_LABEL]
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


class Names:
    """The first `most` names that come; callers choose names, so the rest go by one."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._left = most
        self._known = {""}

    def label(self, name: str) -> str:
        if name in self._known or (name := clean(name)) in self._known:
            return name
        if not self._left:
            return OTHER
        self._left -= 1
        self._known.add(name)
        return name


class Series(Protocol):
    """One metric, or some that are counted together, with all label sets."""

    def copy(self) -> Series: ...

    def families(self) -> Iterator[Metric]: ...


def counter(name: str, help: str, labels: Labels, values: Iterable[tuple[Labels, float]]) -> Metric:
    family = CounterMetricFamily(name, help, labels=labels)
    for named, value in values:
        family.add_metric(named, value)
    return family


@dataclass(slots=True)
class Sum:
    """A counter."""

    name: str
    help: str
    labels: Labels
    values: Counter[Labels] = field(default_factory=Counter)

    def copy(self) -> Sum:
        return replace(self, values=self.values.copy())

    def families(self) -> Iterator[Metric]:
        yield counter(self.name, self.help, self.labels, self.values.items())


@dataclass(slots=True)
class Spread:
    """A histogram over `BUCKETS`. Each value is how many fell in each bucket, then their sum."""

    name: str
    help: str
    labels: Labels
    values: dict[Labels, list[float]] = field(default_factory=dict)

    def observe(self, labels: Labels, seconds: float) -> None:
        """A clock that was set back makes no time negative."""
        found = self.values.get(labels)
        if found is None:
            found = self.values[labels] = [0] * len(_BOUNDS) + [0.0]
        if seconds > 0:
            found[bisect_left(BUCKETS, seconds)] += 1
            found[-1] += seconds
        else:
            found[0] += 1

    def copy(self) -> Spread:
        return replace(self, values={labels: [*each] for labels, each in self.values.items()})

    def families(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels, unit="seconds")
        for labels, (*counts, total) in self.values.items():
            buckets = list(zip(_BOUNDS, accumulate(counts), strict=True))
            family.add_metric(labels, buckets, total)
        yield family


class Used:
    """What some attempts of one entry used: tokens, and what they cost in `PER_DOLLAR` parts."""

    __slots__ = ("cached", "cost", "input", "output", "unpriced", "written")

    def __init__(self) -> None:
        self.input = self.output = self.cached = self.written = self.cost = self.unpriced = 0

    def add(self, attempt: Attempt) -> None:
        usage, cost = attempt.usage, attempt.cost
        if usage is not None:
            self.input += usage.input
            self.output += usage.output
            self.cached += usage.cached
            self.written += usage.cache_write
        self.unpriced += attempt.is_unpriced
        if cost is not None:
            self.cost += cost

    def copy(self) -> Used:
        used = Used()
        used.input, used.output, used.cached = self.input, self.output, self.cached
        used.written, used.cost, used.unpriced = self.written, self.cost, self.unpriced
        return used


_ENTRY = ("combo", "provider", "model")


@dataclass(slots=True)
class Spending:
    """What attempts used, by entry. `prefix` and `whose` tell which attempts."""

    prefix: str
    whose: str
    values: dict[Labels, Used] = field(default_factory=dict)

    def add(self, entry: Labels, attempt: Attempt) -> None:
        used = self.values.get(entry)
        if used is None:
            used = self.values[entry] = Used()
        used.add(attempt)

    def copy(self) -> Spending:
        return replace(self, values={entry: used.copy() for entry, used in self.values.items()})

    def families(self) -> Iterator[Metric]:
        yield counter(
            f"krouter_{self.prefix}tokens_total",
            f"Tokens of {self.whose}; input is the whole prompt, with what was cached.",
            (*_ENTRY, "kind"),
            self._tokens(),
        )
        yield counter(
            f"krouter_{self.prefix}cost_dollars_total",
            f"US dollars of {self.whose}, where the price is known.",
            _ENTRY,
            ((entry, used.cost / PER_DOLLAR) for entry, used in self.values.items()),
        )
        yield counter(
            f"krouter_{self.prefix}unpriced_attempts_total",
            f"How many of {self.whose} used tokens whose price is not known.",
            _ENTRY,
            ((entry, used.unpriced) for entry, used in self.values.items()),
        )

    def _tokens(self) -> Iterator[tuple[Labels, float]]:
        for entry, used in self.values.items():
            yield (*entry, "input"), used.input
            yield (*entry, "output"), used.output
            yield (*entry, "cached"), used.cached
            yield (*entry, "cache_write"), used.written


@dataclass(frozen=True, slots=True)
class Level:
    """A gauge: what is so at the moment of the scrape."""

    name: str
    help: str
    labels: Labels
    values: Counter[Labels]

    def copy(self) -> Level:
        return self

    def families(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        yield family


@dataclass(frozen=True, slots=True, eq=False)
class MetricsSnapshot:
    """All metrics at one moment. It can be written out in any thread."""

    series: Sequence[Series]

    def collect(self) -> Iterator[Metric]:
        build = {"version": __version__, "python": platform.python_version()}
        yield InfoMetricFamily("krouter_build", "The krouter that runs.", value=build)
        for each in self.series:
            yield from each.families()

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its content type: OpenMetrics for whoever accepts it."""
        registry = CollectorRegistry()
        registry.register(self)
        if wants_openmetrics(accept):
            # the names need no escaping, and this is the way that does not look for it
            write: Callable[..., bytes] = openmetrics.generate_latest
            return write(registry, openmetrics.ALLOWUTF8), openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


def wants_openmetrics(accept: str) -> bool:
    """Whether the first of the two formats that an `Accept` header names is OpenMetrics."""
    kinds = (each.partition(";")[0].strip().lower() for each in accept.split(","))
    known = (kind for kind in kinds if kind in ("application/openmetrics-text", "text/plain"))
    return next(known, "") == "application/openmetrics-text"


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
            "krouter_attempts_total", "Calls to providers.", (*_ENTRY, "lane", "outcome")
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
        self._spent = Spending("", "all attempts")
        self._wasted = Spending("wasted_", "the attempts that the caller never saw")
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
