"""`GET /metrics` of a krouter on a real socket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from krouter._version import __version__
from krouter.catalog import Catalog, Facts, Prices
from krouter.keys import add_key
from krouter.metric_series import MOST_NAMES
from krouter.providers import Provider
from tests.harness import Krouter, Start
from tests.upstream import Upstream

ORDER = (
    *("combo", "dialect", "provider", "model", "lane"),
    *("outcome", "status", "scope", "reason", "kind"),
)
OPENMETRICS = "application/openmetrics-text"


def scrape(krouter: Krouter) -> list[Sample]:
    reply = krouter.http.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(reply.text)
    return [sample for family in families for sample in family.samples]


def found(samples: list[Sample], name: str) -> list[tuple[str, float]]:
    """The label values of every series of that name that is not 0, in `ORDER`, parted by `|`."""
    kept = [sample for sample in samples if sample.name == f"krouter_{name}" and sample.value]
    return sorted(
        ("|".join(s.labels[label] for label in ORDER if label in s.labels), s.value) for s in kept
    )


class Priced:
    """A dollar for a million tokens read, two for as many written."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def facts(self, provider: Provider, model: str) -> Facts:
        return replace(self._catalog.facts(provider, model), prices=Prices(1e-6, 2e-6))


def test_a_fallback(start: Start) -> None:
    krouter = start("one/busy:status=529", "two/good:usage=10,20")
    world = krouter.router.world
    krouter.router.world = replace(world, catalog=Priced(world.catalog))  # type: ignore[arg-type]
    krouter.http.get("/metrics")
    assert krouter.chat("daily").status_code == 200
    krouter.idle()
    samples = scrape(krouter)
    busy, good = "one|busy:status=529", "two|good:usage=10,20"
    assert found(samples, "requests_total") == [("daily|chat|answered|2xx", 1)]
    assert found(samples, "attempts_total") == [
        (f"daily|{busy}|native|overloaded", 2),
        (f"daily|{good}|native|answered", 1),
    ]
    assert found(samples, "fallback_attempts_total") == [("daily", 2)]
    assert found(samples, "fallback_requests_total") == [("daily", 1)]
    locked = [("one|account and model|overloaded", 2)]
    assert found(samples, "locks_set_total") == found(samples, "locks") == locked
    assert found(samples, "tokens_total") == [
        (f"daily|{good}|input", 10),
        (f"daily|{good}|output", 20),
    ]
    assert found(samples, "cost_dollars_total") == [(f"daily|{good}", 5e-05)]
    assert not found(samples, "wasted_tokens_total")
    assert not found(samples, "unpriced_attempts_total")
    assert found(samples, "request_duration_seconds_count") == [("daily|2xx", 1)]
    assert found(samples, "attempt_first_byte_seconds_count") == [(busy, 2), (good, 1)]
    (build,) = (sample for sample in samples if sample.name == "krouter_build_info")
    assert build.labels["version"] == __version__


def test_locked_entries_are_skips_and_their_locks_end(start: Start) -> None:
    krouter = start("one/busy:status=529", "two/good", accounts={"one": "a", "two": "x"})
    for _ in range(2):
        assert krouter.chat("daily").status_code == 200
    krouter.idle()
    samples = scrape(krouter)
    assert found(samples, "skips_total") == [("locked", 1)]
    assert found(samples, "fallback_attempts_total") == [("daily", 1)]
    assert found(samples, "fallback_requests_total") == [("daily", 2)]
    krouter.clock.forward(3)
    samples = scrape(krouter)
    assert not found(samples, "locks")
    assert found(samples, "locks_set_total") == [("one|account and model|overloaded", 1)]


def test_what_the_caller_never_saw_is_waste(start: Start) -> None:
    krouter = start("one/mute:empty=text;usage=7,3", "two/good:usage=10,20")
    assert krouter.chat("daily").status_code == 200
    krouter.idle()
    samples = scrape(krouter)
    mute = "daily|one|mute:empty=text;usage=7,3"
    assert found(samples, "wasted_tokens_total") == [(f"{mute}|input", 7), (f"{mute}|output", 3)]
    assert found(samples, "wasted_unpriced_attempts_total") == [(mute, 1)]
    assert sum(value for _, value in found(samples, "unpriced_attempts_total")) == 2


WISE = {"models": ["one/a", "one/b"], "strategy": "fusion", "judge": "two/j"}


@pytest.mark.parametrize(
    ("models", "attempts", "requests"),
    [
        (["wise", "two/never"], 0, 0),
        (["outer"], 0, 0),
        (["two/busy:status=529", "outer"], 1, 1),
        (["one/good", "wise"], 0, 0),
        (["wide", "two/good"], 1, 1),
    ],
)
def test_a_panel_is_no_fallback(
    start: Start, models: list[str], attempts: int, requests: int
) -> None:
    """Whichever of its voices is heard, it is one entry; what came before it is a fallback."""
    wide = {**WISE, "judge": "two/j:status=500"}
    combos = {"wise": WISE, "wide": wide, "outer": {"models": ["wise", "two/x"]}}
    krouter = start(*models, combos=combos, accounts={"one": "a", "two": "x"})
    assert krouter.chat("daily").status_code == 200
    krouter.idle()
    samples = scrape(krouter)
    counted = dict(found(samples, "fallback_attempts_total")).get("daily", 0)
    fell_back = dict(found(samples, "fallback_requests_total")).get("daily", 0)
    assert (counted, fell_back) == (attempts, requests)


def test_a_fusion_itself_falls_back_to_nobody(start: Start) -> None:
    krouter = start("one/a", "one/b", strategy="fusion", judge="two/j")
    assert krouter.chat("daily").status_code == 200
    krouter.idle()
    samples = scrape(krouter)
    assert not found(samples, "fallback_attempts_total")
    assert not found(samples, "fallback_requests_total")
    voices = [s for s in samples if s.name == "krouter_fusion_voices_total" and s.value]
    assert sorted((s.labels["role"], s.labels["outcome"], s.value) for s in voices) == [
        ("judge", "answered", 1),
        ("panel", "answered", 2),
    ]


def test_a_late_call_is_counted_once_it_has_ended(start: Start, upstream: Upstream) -> None:
    late = "one/c:gate=late;usage=7,3"
    tuning = {"stragglerGraceMs": 0}
    krouter = start(
        "one/a", "one/b", late, strategy="fusion", judge="two/j", fusionTuning=tuning,
    )  # fmt: skip
    told: SimpleQueue[int] = SimpleQueue()
    krouter.router.amended.append(lambda route, news: told.put(len(news)))
    assert krouter.chat("daily").status_code == 200
    samples = scrape(krouter)
    assert sum(value for _, value in found(samples, "attempts_total")) == 3
    assert found(samples, "calls_in_flight") == [("", 1)]
    assert not found(samples, "fusion_voices_total")
    upstream.gate("late").open()
    assert told.get(timeout=30) == 1
    samples = scrape(krouter)
    assert sum(value for _, value in found(samples, "attempts_total")) == 4
    assert ("daily|one|c:gate=late;usage=7,3|native|answered", 1) in found(
        samples, "attempts_total"
    )
    assert ("daily|one|c:gate=late;usage=7,3|input", 7) in found(samples, "wasted_tokens_total")
    assert found(samples, "requests_total") == [("daily|chat|answered|2xx", 1)]


def test_a_call_under_way_is_seen(start: Start, upstream: Upstream) -> None:
    krouter = start()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(krouter.chat, "two/m:gate=held")
        assert upstream.gate("held").reached.wait(30)
        held = scrape(krouter)
        upstream.gate("held").open()
        assert call.result().status_code == 200
    krouter.idle()
    assert found(held, "calls_in_flight") == [("", 1)]
    assert not found(held, "requests_total")
    after = scrape(krouter)
    assert not found(after, "calls_in_flight")
    assert found(after, "requests_total") == [("|chat|answered|2xx", 1)]


def test_a_caller_cannot_make_series_without_end(start: Start) -> None:
    krouter = start()
    many = MOST_NAMES + 5
    for number in range(many):
        assert krouter.chat(f'two/"{number}":ok').status_code == 200
    krouter.chat("no such model")
    krouter.idle()
    samples = scrape(krouter)
    models = [s.labels["model"] for s in samples if s.name == "krouter_attempts_total"]
    assert len(models) == MOST_NAMES + 1
    assert '"0":ok' in models
    assert dict(found(samples, "attempts_total"))["|two|other|native|answered"] == 5
    assert found(samples, "requests_total") == [
        ("|chat|answered|2xx", many),
        ("|chat|unknown model|4xx", 1),
    ]


def test_openmetrics_for_whoever_asks(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        reply = krouter.http.get("/metrics", headers={"accept": OPENMETRICS})
        assert reply.headers["content-type"].startswith(f"{OPENMETRICS}; version=1.0.0")
        assert reply.text.endswith("# EOF\n")
        assert "/metrics" in krouter.http.get("/").text


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_a_key_opens_it(tmp_path: Path, header: str) -> None:
    key = add_key(tmp_path / "keys.json", "prometheus", 0.0)
    with Krouter(tmp_path) as krouter:
        assert krouter.http.get("/metrics").status_code == 401
        given = f"Bearer {key}" if header == "authorization" else key
        assert krouter.http.get("/metrics", headers={header: given}).status_code == 200
        assert krouter.http.post("/metrics", headers={header: given}).status_code == 405
