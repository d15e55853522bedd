"""What the metrics say is exactly what the routes add up to, and no name makes a scrape fail."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_plain

from krouter.board import Board
from krouter.costs import PER_DOLLAR
from krouter.dialects.base import Usage
from krouter.errors import Failure, Lock, Scope, Verdict
from krouter.metric_series import BUCKETS, LONGEST_LABEL, MOST_NAMES, OTHER, clean
from krouter.metrics import Metrics
from krouter.route import REASONS, Attempt, Placed, Route, Skip, Skipped, Voice, total_usage

OPENMETRICS = "application/openmetrics-text"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def metrics_of(routes: Iterable[Route]) -> Metrics:
    board = Board(lambda: 0.0)
    metrics = Metrics(lambda: board)
    for route in routes:
        metrics.book(route)
    return metrics


def read(metrics: Metrics, accept: str = "") -> Samples:
    text, kind = metrics.text(accept)
    parse = read_openmetrics if kind.startswith(OPENMETRICS) else read_plain
    samples = [sample for family in parse(text.decode()) for sample in family.samples]
    found = {(each.name, frozenset(each.labels.items())): each.value for each in samples}
    assert len(found) == len(samples), "a series is given twice"
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0)


def series(samples: Samples, name: str) -> dict[frozenset[tuple[str, str]], float]:
    return {labels: value for (named, labels), value in samples.items() if named == name and value}


names = st.sampled_from(
    ["", "m", "glm-5.1", 'a"b\\c', "two\nlines", "é☃", "\ud800", "x" * 300, "{}"]
)
providers = st.sampled_from(["glm", "cc"])
outcomes = st.sampled_from(sorted(REASONS))
tokens = st.integers(0, 1 << 40)
moments = st.floats(0, 10_000)
usages = st.builds(Usage, tokens, tokens, tokens, tokens)
attempts = st.builds(
    Attempt,
    entry=st.sampled_from(["glm/a", "cc/b"]),
    model=names,
    account=st.just("env"),
    lane=st.sampled_from(["native", "litellm"]),
    began=moments,
    provider=providers,
    first_byte=st.none() | moments,
    outcome=outcomes,
    lock=st.none() | st.floats(0, 600),
    locked=st.sampled_from(["account", "model", "account and model"]),
    usage=st.none() | usages,
    cost=st.none() | st.integers(0, 10**18),
    seen=st.booleans(),
)
skips = st.builds(Skipped, st.just("glm/a"), st.just("env"), st.sampled_from(Skip))
routes = st.builds(
    Route,
    id=st.just("r"),
    began=moments,
    dialect=st.sampled_from(["chat", "messages"]),
    asked=st.just("daily"),
    stream=st.booleans(),
    combo=names,
    plan=st.lists(st.builds(Placed, st.sampled_from(["glm/a", "cc/b"]), st.just("")), max_size=2),
    steps=st.lists(attempts | skips, max_size=5),
    served=st.sampled_from(["", "glm/a", "cc/b"]),
    status=st.none() | st.sampled_from([200, 404, 429, 503]),
    outcome=outcomes,
    ended=st.none() | moments,
)


def tally(name: str, counted: Iterable[tuple[dict[str, str], int]]) -> Counter[Any]:
    """What the samples of a counter should be."""
    total: Counter[Any] = Counter()
    for labels, amount in counted:
        total[frozenset((key, clean(text)) for key, text in labels.items())] += amount
    return Counter({labels: amount for labels, amount in total.items() if amount})


def whose(route: Route, attempt: Attempt) -> dict[str, str]:
    return {"combo": route.combo, "provider": attempt.provider, "model": attempt.model}


@given(st.lists(routes, max_size=12), st.sampled_from(["", OPENMETRICS]))
def test_the_sums_are_those_of_the_routes(routes: list[Route], accept: str) -> None:
    samples = read(metrics_of(routes), accept)
    pairs = [(route, attempt) for route in routes for attempt in route.attempts]

    def check(name: str, counted: Iterable[tuple[dict[str, str], int]], per: int = 1) -> None:
        expected = {labels: sum_ / per for labels, sum_ in tally(name, counted).items()}
        assert series(samples, name) == expected, name

    def status(route: Route) -> str:
        return f"{str(route.status)[0]}xx" if route.status else "none"

    check(
        "krouter_requests_total",
        (
            ({"combo": r.combo, "dialect": r.dialect, "outcome": r.outcome, "status": status(r)}, 1)
            for r in routes
        ),
    )
    check(
        "krouter_attempts_total",
        (({**whose(r, a), "lane": a.lane, "outcome": a.outcome}, 1) for r, a in pairs),
    )
    check("krouter_skips_total", (({"reason": s.reason}, 1) for r in routes for s in r.skips))
    check(
        "krouter_locks_set_total",
        (
            ({"provider": a.provider, "scope": a.locked, "reason": a.outcome}, 1)
            for _, a in pairs
            if a.lock is not None
        ),
    )
    check(
        "krouter_fallback_attempts_total",
        (({"combo": r.combo}, max(len(r.attempts) - 1, 0)) for r in routes if r.served),
    )
    check(
        "krouter_fallback_requests_total",
        (
            ({"combo": r.combo}, int(not r.plan or r.plan[0].entry != r.served))
            for r in routes
            if r.served
        ),
    )
    for prefix, kept in (("", pairs), ("wasted_", [(r, a) for r, a in pairs if not a.seen])):
        check(
            f"krouter_{prefix}tokens_total",
            (
                ({**whose(r, a), "kind": kind}, getattr(a.usage, kind))
                for r, a in kept
                if a.usage is not None
                for kind in ("input", "output", "cached", "cache_write")
            ),
        )
        check(
            f"krouter_{prefix}cost_dollars_total",
            ((whose(r, a), a.cost or 0) for r, a in kept),
            PER_DOLLAR,
        )
        check(
            f"krouter_{prefix}unpriced_attempts_total",
            ((whose(r, a), int(a.is_unpriced)) for r, a in kept),
        )
    first_bytes = series(samples, "krouter_attempt_first_byte_seconds_count")
    assert sum(first_bytes.values()) == sum(a.first_byte is not None for _, a in pairs)
    ended = series(samples, "krouter_request_duration_seconds_count")
    assert sum(ended.values()) == sum(r.ended is not None for r in routes)


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=20))
def test_no_name_makes_a_scrape_fail(odd: list[tuple[str, str, str]]) -> None:
    metrics = metrics_of(one_call(combo, provider, model) for combo, provider, model in odd)
    for accept in ("", OPENMETRICS):
        for _, labels in read(metrics, accept):
            for _, text in labels:
                assert len(text) <= LONGEST_LABEL
                assert text.isprintable()


def one_call(combo: str, provider: str, model: str, **change: Any) -> Route:
    attempt = Attempt(f"{provider}/{model}", model, "env", "native", 0.0, provider, **change)
    return Route("r", 0.0, "chat", combo, False, combo=combo, steps=[attempt])


def test_many_names_are_one() -> None:
    many = range(MOST_NAMES + 50)
    samples = read(metrics_of(one_call(f"c{n}", "glm", f"m{n}") for n in many))
    attempts = [dict(labels) for labels in series(samples, "krouter_attempts_total")]
    for label in ("combo", "model"):
        found = {labels[label] for labels in attempts}
        assert len(found) == MOST_NAMES + 1
        assert OTHER in found
    assert (
        value(
            samples,
            "krouter_attempts_total",
            combo=OTHER,
            provider="glm",
            model=OTHER,
            lane="native",
            outcome="under way",
        )
        == len(many) - MOST_NAMES
    )


def test_a_model_called_directly_has_no_combo_however_many_there_are() -> None:
    metrics = metrics_of(one_call(f"c{n}", "glm", "m") for n in range(MOST_NAMES + 1))
    metrics.book(one_call("", "glm", "m"))
    labels = {"combo": "", "dialect": "chat", "outcome": "under way", "status": "none"}
    assert value(read(metrics), "krouter_requests_total", **labels) == 1


@pytest.mark.parametrize(
    ("plan", "nested", "served", "fell_back"),
    [
        (["a/x", "b/y"], {}, "a/x", 0),
        (["a/x", "b/y"], {}, "b/y", 1),
        (["inner", "b/y"], {"inner": ["c/z", "d/w"]}, "c/z", 0),
        (["combo/inner", "b/y"], {"inner": ["c/z", "d/w"]}, "d/w", 1),
        (["inner"], {"inner": ["deep"], "deep": ["c/z"]}, "c/z", 0),
        (["inner", "b/y"], {}, "b/y", 1),
        (["a/x"], {}, "", 0),
    ],
)
def test_a_request_falls_back_when_not_its_first_entry_serves_it(
    plan: list[str], nested: dict[str, list[str]], served: str, fell_back: int
) -> None:
    route = one_call("daily", "a", "x")
    route.plan = [Placed(entry, "") for entry in plan]
    route.nested = {name: [Placed(each, "") for each in inner] for name, inner in nested.items()}
    route.served = served
    found = value(read(metrics_of([route])), "krouter_fallback_requests_total", combo="daily")
    assert found == fell_back


def test_times_fall_in_their_buckets() -> None:
    times = [0.0, 0.05, 0.06, 45.0, 10_000.0, -3.0]
    samples = read(metrics_of(one_call("", "glm", "m", first_byte=time) for time in times))
    name, labels = "krouter_attempt_first_byte_seconds", {"provider": "glm", "model": "m"}
    for bound in BUCKETS:
        expected = sum(time <= bound for time in times)
        assert value(samples, f"{name}_bucket", le=str(bound), **labels) == expected
    assert value(samples, f"{name}_bucket", le="+Inf", **labels) == len(times)
    assert value(samples, f"{name}_sum", **labels) == sum(max(time, 0.0) for time in times)


def test_the_locks_and_calls_of_the_moment() -> None:
    now = 0.0
    board = Board(lambda: now)
    metrics = Metrics(lambda: board)
    scopes = {Scope.ACCOUNT: "account", Scope.MODEL: "model"}
    scopes[Scope.ACCOUNT_MODEL] = "account and model"
    for scope in scopes:
        lock = Lock(scope, 60)
        ticket = board.begin("glm", "env", "m")
        board.fail(ticket, Verdict(Failure.OVERLOADED, 9, True, True, lock, 529, "", None, False))
    samples = read(metrics)
    for scope in scopes.values():
        labels = {"provider": "glm", "scope": scope, "reason": "overloaded"}
        assert value(samples, "krouter_locks", **labels) == 1
    assert value(samples, "krouter_calls_in_flight") == 3
    now = 61.0
    assert series(read(metrics), "krouter_locks") == {}


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/plain"),
        ("text/plain;version=0.0.4,application/openmetrics-text;q=0.1", "text/plain"),
        ("application/openmetrics-text", OPENMETRICS),
        ("Application/OpenMetrics-Text; version=1.0.0; q=0.6,text/plain;q=0.3", OPENMETRICS),
        ("application/openmetrics-text;version=nonsense", OPENMETRICS),
        (";;=,,\x00", "text/plain"),
    ],
)
def test_the_format_is_the_one_that_is_accepted(accept: str, kind: str) -> None:
    text, content_type = metrics_of([]).text(accept)
    assert content_type.partition(";")[0] == kind
    assert text.endswith(b"# EOF\n") == (kind == OPENMETRICS)


def test_the_sums_of_money_are_exact() -> None:
    """Three times ten cents, which floats do not add up to."""
    priced = [one_call("", "glm", "m", usage=Usage(1), cost=PER_DOLLAR // 10) for _ in range(3)]
    samples = read(metrics_of(priced))
    labels = {"combo": "", "provider": "glm", "model": "m"}
    assert value(samples, "krouter_cost_dollars_total", **labels) == 0.3
    assert sum([0.1] * 3) != 0.3


def test_the_whole_is_what_its_attempts_used() -> None:
    used = [Usage(5, 3, 2, 1), Usage(7, 0, 0, 0)]
    route = one_call("daily", "glm", "m", usage=used[0])
    route.steps += one_call("daily", "glm", "m", usage=used[1], seen=True).steps
    total, samples = total_usage(route.attempts), read(metrics_of([route]))
    labels = {"combo": "daily", "provider": "glm", "model": "m"}
    for kind in ("input", "output", "cached", "cache_write"):
        found = value(samples, "krouter_tokens_total", kind=kind, **labels)
        assert found == getattr(total, kind)
        wasted = value(samples, "krouter_wasted_tokens_total", kind=kind, **labels)
        assert wasted == getattr(used[0], kind)


def test_the_docs_name_every_metric_with_its_labels() -> None:
    docs = (Path(__file__).parent.parent / "docs/metrics.md").read_text()
    told = {}
    for line in docs.splitlines():
        if line.startswith("| `krouter_"):
            name, kind, labels = (cell.strip() for cell in line.split("|")[1:4])
            told[name.strip("`")] = kind, frozenset(re.findall("`(.*?)`", labels))
    route = one_call("daily", "glm", "m", first_byte=1.0, lock=2.0, usage=Usage(1), cost=1)
    route.steps.append(Skipped("glm/m", "env", Skip.LOCKED))
    route.served, route.ended = "glm/m", 1.0
    route.voices.append(Voice("judge", "glm/m", 1.0))
    board = Board(lambda: 0.0)
    lock = Lock(Scope.MODEL, 60)
    verdict = Verdict(Failure.OVERLOADED, 9, True, True, lock, 529, "", None, False)
    board.fail(board.begin("glm", "env", "m"), verdict)
    metrics = Metrics(lambda: board)
    metrics.book(route)
    assert told == {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            frozenset(family.samples[0].labels) - {"le"},
        )
        for family in read_plain(metrics.text()[0].decode())
    }
