"""What metrics are counted in, and how Prometheus is told of them."""

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
from krouter.costs import PER_DOLLAR
from krouter.route import Attempt

Labels = tuple[str, ...]

OTHER = "other"
MOST_NAMES = 200
LONGEST_LABEL = 100
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds: a first byte comes in tenths of one, an agent's long reply in minutes."""

_BOUNDS = (*map(floatToGoString, BUCKETS), "+Inf")


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


ENTRY = ("combo", "provider", "model")


@dataclass(slots=True)
class Consumption:
    """What attempts used, by entry. `prefix` and `whose` tell which attempts."""

    prefix: str
    whose: str
    values: dict[Labels, Used] = field(default_factory=dict)

    def add(self, entry: Labels, attempt: Attempt) -> None:
        used = self.values.get(entry)
        if used is None:
            used = self.values[entry] = Used()
        used.add(attempt)

    def copy(self) -> Consumption:
        return replace(self, values={entry: used.copy() for entry, used in self.values.items()})

    def families(self) -> Iterator[Metric]:
        yield counter(
            f"krouter_{self.prefix}tokens_total",
            f"Tokens of {self.whose}; input is the whole prompt, with what was cached.",
            (*ENTRY, "kind"),
            self._tokens(),
        )
        yield counter(
            f"krouter_{self.prefix}cost_dollars_total",
            f"US dollars of {self.whose}, where the price is known.",
            ENTRY,
            ((entry, used.cost / PER_DOLLAR) for entry, used in self.values.items()),
        )
        yield counter(
            f"krouter_{self.prefix}unpriced_attempts_total",
            f"How many of {self.whose} used tokens whose price is not known.",
            ENTRY,
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
