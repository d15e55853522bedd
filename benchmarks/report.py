"""From samples to figures, to the table of docs/performance.md, and to a comparison of two runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Samples = Mapping[str, Mapping[str, list[float]]]
Figures = dict[str, dict[str, Any]]
"""By name: the median of each server, and under `ratio` that of krouter to each of the others."""

OTHERS = ("forwarder", "litellm")
BEGIN, END = "<!-- begin: make bench -->", "<!-- end: make bench -->"
LOSS = 1.25
"""How much more than committed a ratio may be."""


class Limit(NamedTuple):
    """What krouter may need of another's, or in all."""

    most: float
    of: str = ""


LIMITS = {
    "native, 1 kB: CPU ms a request": Limit(2, "forwarder"),
    "native, 100 kB: CPU ms a request": Limit(2, "forwarder"),
    "native, paced: CPU ms per 1000 chunks": Limit(1.3, "forwarder"),
    "native, flat: CPU ms per 1000 chunks": Limit(1.3, "forwarder"),
    **{
        f"{lane}, {size}: CPU ms a request": Limit(0.15, "litellm")
        for lane in ("messages to chat", "chat to messages")
        for size in ("1 kB", "100 kB")
    },
    **{
        f"{lane}, {pace}: CPU ms per 1000 chunks": Limit(0.08, "litellm")
        for lane in ("messages to chat", "chat to messages")
        for pace in ("paced", "flat")
    },
    "SDK, 1 kB: CPU ms a call": Limit(0.5, "litellm"),
    "SDK, stream of 100 chunks: CPU ms a call": Limit(0.5, "litellm"),
    "start-up: s to the first answer": Limit(1.5),
    "native: RSS MB after 1,000 requests": Limit(90),
}


def summed_up(samples: Samples) -> Figures:
    """Medians; a ratio is the median of the rounds' own ratios, with the least and the largest."""
    figures: Figures = {}
    for name, columns in samples.items():
        figures[name] = {who: _rounded(statistics.median(got)) for who, got in columns.items()}
        figures[name]["rounds"] = max(len(got) for got in columns.values())
        figures[name]["ratio"] = {
            other: _spread([a / b for a, b in zip(columns["krouter"], columns[other], strict=True)])
            for other in OTHERS
            if other in columns and "krouter" in columns and all(columns[other])
        }
    return figures


def _spread(ratios: list[float]) -> dict[str, float]:
    found = {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
    return {name: _rounded(value) for name, value in found.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def table(figures: Figures) -> str:
    """Markdown."""
    head = "| figure | forwarder | krouter | litellm | of forwarder | of litellm | limit | | load |"
    return "\n".join([head, "| --- " * 9 + "|", *(_row(*each) for each in figures.items())])


def _row(name: str, figure: Mapping[str, Any]) -> str:
    cells = [_shown(figure.get(who)) for who in ("forwarder", "krouter", "litellm")]
    ratios = [figure["ratio"].get(other, {}).get("median") for other in OTHERS]
    limit, verdict = _judged(name, figure)
    load = "–".join(map(str, figure.get("load", ())))
    return f"| {' | '.join([name, *cells, *map(_shown, ratios), limit, verdict, load])} |"


def _judged(name: str, figure: Mapping[str, Any]) -> tuple[str, str]:
    if name not in LIMITS:
        return "", ""
    most, of = LIMITS[name]
    found = figure["ratio"].get(of, {}).get("median") if of else figure.get("krouter")
    verdict = "" if found is None else "ok" if found <= most else "missed"
    return (f"{most:g} × {of}" if of else f"{most:g}"), verdict


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def put_between(text: str, inner: str) -> str:
    """The document with another text between its markers. Raises ValueError without them."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{BEGIN} and {END} are missing")
    return f"{before}{begin}\n{inner}\n{end}{after}"


class Loss(NamedTuple):
    """A figure whose ratio is worse than that committed."""

    figure: str
    other: str
    committed: float
    now: float

    def __str__(self) -> str:
        return f"{self.figure}: {self.now:g} × {self.other}, was {self.committed:g}"


def losses(committed: Figures, now: Figures) -> Iterator[Loss]:
    """Of CPU and memory, which a busy machine moves least."""
    for name, figure in now.items():
        if "CPU" not in name and "RSS" not in name:
            continue
        for other, ratio in figure["ratio"].items():
            was = committed.get(name, {}).get("ratio", {}).get(other)
            if was and ratio["median"] > was["median"] * LOSS:
                yield Loss(name, other, was["median"], ratio["median"])


def kind_of(figure: str) -> str:
    """What has to be measured again for it; of those that can be lost."""
    if figure.startswith("SDK"):
        return "sdk"
    if "CPU" not in figure:
        return "start"
    return "chunks" if "chunks" in figure else "cpu"
