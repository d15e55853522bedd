"""Every request leaves one record, and all that counts requests counts the same."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from krouter.costs import PER_DOLLAR
from krouter.ledger_reader import LedgerReader
from krouter.records import rebuild, rebuild_rankings
from krouter.route import REASONS, Route
from tests.harness import Krouter, provider_settings
from tests.upstream import Upstream

HELLO = [{"role": "user", "content": "hello"}]
PICTURE = [
    {"type": "text", "text": "what is this?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
]
WAYS = (
    "ok:usage=1000,20",
    "a:usage=31,7;chunks=4",
    "b:status=429;retry-after=1",
    "c:status=500",
    "d:status=400",
    "e:reset",
    "f:usage=9,1;reset=2",
    "g:error=0",
    "h:error=2",
    "i:garbage=html",
    "j:empty=text;usage=5,0",
    "k:no=usage",
    "l:status=413",
)


def setting(upstream: Upstream) -> tuple[str, dict[str, str]]:
    """`one` and `two`, whose models nobody knows, and OpenAI's, which have prices."""
    settings, env = provider_settings(upstream.url, one="a b", two="x")
    openai = f'[provider.openai]\nbase_url = "{upstream.url}/v1"\n'
    return settings + openai, {**env, "OPENAI_API_KEY": "fake"}


def combos() -> dict[str, Any]:
    dice = random.Random(5)
    strategies = ("fallback", "round-robin")
    made: dict[str, Any] = {
        f"c{n}": {
            "models": [f"{dice.choice(('one', 'two'))}/{w}" for w in dice.sample(WAYS, 3)],
            "strategy": dice.choice(strategies),
        }
        for n in range(12)
    }
    made["outer"] = {"models": ["combo/c1", "combo/c2", "openai/gpt-4o"]}
    for n in range(8):
        panel = [f"{dice.choice(('one', 'two'))}/{w}" for w in dice.sample(WAYS, 3)]
        tuning = {
            "stragglerGraceMs": 0,
            "minPanel": dice.choice((1, 2)),
            "onSingle": dice.choice(("resend", "return")),
            "onJudgeFailure": dice.choice(("error", "best")),
            "lateCalls": dice.choice(("run", "cancel")),
        }
        made[f"f{n}"] = {"models": panel, "strategy": "fusion", "fusionTuning": tuning}
    made["f8"] = {**made["f0"], "models": ["one/ok", "combo/f1", "combo/c3"], "judge": "combo/c4"}
    late = ["one/ok", "two/ok", "one/late:slow-headers=1"]
    grace = {"stragglerGraceMs": 0}
    made["late"] = {"models": late, "strategy": "fusion", "fusionTuning": grace}
    made["f9"] = {"models": ["one/c:status=500", "f8"]}
    return made


async def ask_all(url: str, count: int) -> list[str]:
    """Route ids of `count` mixed requests, 16 under way at a time."""
    dice, left, ids = random.Random(3), iter(range(count)), list[str]()
    names = [*combos(), "openai/gpt-4o", "one/ok", "nobody", "deepseek/deepseek-chat"]

    async def worker(http: httpx.AsyncClient) -> None:
        for _ in left:
            content: Any = dice.choice(("hello", PICTURE))
            body = {
                "model": dice.choice(names),
                "stream": dice.random() < 0.5,
                "messages": [{"role": "user", "content": content}],
                "max_tokens": 9,
            }
            paths = ("/v1/chat/completions", "/v1/messages")
            path = dice.choice(paths[: 1 if "/" in body["model"] else 2])
            reply = await http.post(path, json=body)
            ids.append(reply.headers["x-krouter-route"])

    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        await asyncio.gather(*(worker(http) for _ in range(16)))
    return ids


def sums(routes: list[Route]) -> Counter[str]:
    attempts = [attempt for route in routes for attempt in route.attempts]
    found: Counter[str] = Counter(requests=len(routes), attempts=len(attempts))
    for attempt in attempts:
        found["unpriced"] += attempt.is_unpriced
        found["cost"] += attempt.cost or 0
        if attempt.usage:
            found["input"] += attempt.usage.input
            found["output"] += attempt.usage.output
        if not attempt.seen:
            found["wasted"] += 1
            found["wasted_cost"] += attempt.cost or 0
            found["wasted_input"] += attempt.usage.input if attempt.usage else 0
    return found


def exported(text: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            kind = sample.labels.get("kind", "")
            found[f"{sample.name} {kind}".strip()] += sample.value
    return found


@pytest.mark.native_garbage("a stream without usage has none anywhere")
def test_attempts_records_ledger_and_metrics_agree_under_random_faults(tmp_path: Path) -> None:
    with Upstream() as upstream:
        settings, env = setting(upstream)
        with Krouter(tmp_path, combos=combos(), settings=settings, env=env, ledger=True) as krouter:
            ids = asyncio.run(ask_all(krouter.url, 300))
            krouter.idle()
            routes = list(krouter.router.routes)
            assert krouter.served.house.ledger is not None
            assert krouter.served.house.ledger.flush(20)
            metrics = exported(krouter.http.get("/metrics").text)
        assert sorted(ids) == sorted(route.id for route in routes)
        reader = LedgerReader(tmp_path / "ledger.db")
        assert any(route.revision for route in routes)
        told, total = sums(routes), reader.total()
        assert {name: getattr(total, name) for name in told} == told
        assert sums([reader.route(id) for id in ids]) == told
        rows = reader.requests(limit=1000)
        assert sum(row.attempts for row in rows) == told["attempts"]
        assert sum(row.cost for row in rows) == told["cost"]
        for by in ("model", "account"):
            assert sum(row.cost for row in reader.usage(by)) == told["cost"]
            assert sum(row.input for row in reader.usage(by)) == told["input"]
        assert metrics["krouter_requests_total"] == told["requests"]
        assert metrics["krouter_attempts_total"] == told["attempts"]
        assert metrics["krouter_tokens_total input"] == told["input"]
        assert metrics["krouter_tokens_total output"] == told["output"]
        assert metrics["krouter_unpriced_attempts_total"] == told["unpriced"]
        assert round(metrics["krouter_cost_dollars_total"] * PER_DOLLAR) == told["cost"]
        assert metrics["krouter_wasted_tokens_total input"] == told["wasted_input"]
        assert told["cost"] > 0
        assert told["wasted"] > 50


@pytest.mark.parametrize("stream", [False, True])
def test_a_route_is_booked_before_its_reply_ends(tmp_path: Path, stream: bool) -> None:
    """So that a process that is killed thereafter has lost nothing that was answered."""
    with Krouter(tmp_path, ledger=True, combos={"demo": {"models": ["demo/hello"]}}) as krouter:
        body = {"model": "demo", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
        for _ in range(30):
            assert krouter.http.post("/v1/chat/completions", json=body).status_code == 200
            assert krouter.router.routes[-1].ended is not None


@pytest.mark.native_garbage("a stream without usage has none anywhere")
def test_every_record_gives_its_orders_again_and_only_known_reasons(tmp_path: Path) -> None:
    with Upstream() as upstream:
        settings, env = setting(upstream)
        routing = '[routing]\naccount_strategy = "random"\n'
        with Krouter(
            tmp_path, combos=combos(), settings=routing + settings, env=env, ledger=True
        ) as krouter:
            ids = asyncio.run(ask_all(krouter.url, 200))
            krouter.idle()
            assert krouter.served.house.ledger is not None
            assert krouter.served.house.ledger.flush(20)
        (tmp_path / "combos" / "c1.json").unlink()
        reader = LedgerReader(tmp_path / "ledger.db")
        ranked = 0
        for route in map(reader.route, ids):
            plans = rebuild(route)
            kept = [route.plan, *route.nested.values()] if route.plan else []
            made = [[(s.entry.model, s.reason) for s in plan.steps] for plan in plans]
            assert made == [[(each.entry, each.reason) for each in plan] for plan in kept]
            for entry, places in rebuild_rankings(route).items():
                assert [tuple(p) for p in places] == [
                    (each.account, each.score, each.reason) for each in route.accounts[entry]
                ]
                ranked += 1
            assert {route.outcome, *(a.outcome for a in route.attempts)} <= REASONS
            assert {skip.reason for skip in route.skips} <= REASONS
        assert ranked > 50


def test_a_record_holds_no_prompt_unless_it_is_asked_to(tmp_path: Path) -> None:
    """The provider quotes the whole conversation in its errors."""
    said = "the-canary-sings 7f3a"
    quoted = [f"one/q:status=400;message={said};code={said};type={said}", "two/ok"]
    for prompts in (False, True):
        home = tmp_path / str(prompts)
        home.mkdir()
        with Upstream() as upstream:
            settings, env = provider_settings(upstream.url, one="a", two="x")
            kept = f"[ledger]\nprompts = {str(prompts).lower()}\n"
            with Krouter(
                home,
                combos={"daily": {"models": [q.replace(" ", "%20") for q in quoted]}},
                settings=kept + settings,
                env=env,
                ledger=True,
            ) as krouter:
                asked = [{"role": "user", "content": f"{said} and more"}]
                assert krouter.chat("daily", messages=asked).status_code == 200
                krouter.idle()
                assert krouter.served.house.ledger is not None
                assert krouter.served.house.ledger.flush(20)
        found = b"".join(path.read_bytes() for path in home.glob("ledger.db*"))
        assert (b"canary" in found.replace(b"the-canary-sings%20", b"")) is prompts


def test_trouble_with_the_ledger_is_told_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").mkdir()
    with Krouter(tmp_path, ledger=True) as krouter:
        for _ in range(20):
            assert krouter.chat("demo").status_code == 200
        assert krouter.served.house.ledger is not None
        assert not krouter.served.house.ledger.flush(0.5)
        told = krouter.http.get("/health").json()
        assert told["status"] == "degraded"
        assert "ledger.db" in told["problems"][0]
        assert krouter.chat("demo").status_code == 200
        assert sum(line.startswith("LEDGER") for line in krouter.lines) == 1


def test_a_ledger_that_others_hold_is_told_and_stops_nothing(tmp_path: Path) -> None:
    with Krouter(tmp_path, ledger=True) as krouter:
        ledger = krouter.served.house.ledger
        assert ledger is not None
        assert krouter.chat("demo").status_code == 200
        assert ledger.flush(20)
        with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            ids = {krouter.chat("demo").headers["x-krouter-route"] for _ in range(20)}
            assert not ledger.flush(3)
            told = krouter.http.get("/health").json()
            assert (told["status"], len(told["problems"])) == ("degraded", 1)
            assert "holds it locked" in told["problems"][0]
        assert ledger.flush(60)
        assert krouter.http.get("/health").json()["status"] == "ok"
        said = [line for line in krouter.lines if line.startswith("LEDGER")]
        assert ["is not written" in line for line in said] == [True, False]
    assert ids < {row.id for row in LedgerReader(tmp_path / "ledger.db").requests(limit=99)}


def test_a_corrupt_ledger_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"no ledger, " * 999)
    with Krouter(tmp_path, ledger=True) as krouter:
        for _ in range(20):
            assert krouter.chat("demo").status_code == 200
        assert krouter.served.house.ledger is not None
        assert krouter.served.house.ledger.flush(20)
        assert krouter.http.get("/health").json()["status"] == "ok"
        assert sum("is corrupt; it is kept as" in line for line in krouter.lines) == 1


@pytest.mark.parametrize("way", ["chunks=20;usage=1000,500;reset=8", "usage=1000,500;reset=2"])
def test_a_stream_that_was_cut_has_no_known_price(tmp_path: Path, way: str) -> None:
    """The output tokens that a message begins with are a placeholder."""
    with Upstream() as upstream:
        text = f'[provider.anthropic]\nbase_url = "{upstream.url}"\n'
        env = {"ANTHROPIC_API_KEY": "fake"}
        with Krouter(tmp_path, settings=text, env=env) as krouter:
            krouter.messages(f"anthropic/claude-sonnet-4-6:{way}", stream=True)
            krouter.idle()
            (attempt,) = krouter.router.routes[-1].attempts
    assert (attempt.cost, attempt.is_unpriced) == (None, True)


def test_another_callers_conversation_is_not_told_with_a_lock(tmp_path: Path) -> None:
    with Upstream() as upstream:
        settings, env = provider_settings(upstream.url, one="a")
        upstream.script("m", ["status=429;message=zqcanary;retry-after=90"])
        combos = {"daily": {"models": ["one/m"]}}
        with Krouter(tmp_path, combos=combos, settings=settings, env=env) as krouter:
            assert "zqcanary" in krouter.chat("daily").text
            locked = krouter.chat("daily")
            assert locked.status_code == 429
            assert "(rate limited)" in locked.text
            assert "zqcanary" not in locked.text + "".join(krouter.lines)


def test_tokens_told_after_the_finish_are_counted_though_the_caller_left(tmp_path: Path) -> None:
    with Upstream() as upstream:
        settings, env = provider_settings(upstream.url, one="a")
        with Krouter(tmp_path, settings=settings, env=env) as krouter:
            body = {"model": "one/m:usage=70,7;slow-each=0.02", "messages": HELLO, "stream": True}
            with krouter.http.stream("POST", "/v1/chat/completions", json=body) as reply:
                for line in reply.iter_lines():
                    if '"finish_reason":"stop"' in line.replace(" ", ""):
                        break
            krouter.idle()
            (attempt,) = krouter.router.routes[-1].attempts
    assert attempt.outcome == "answered"
    assert attempt.usage is not None
    assert (attempt.usage.input, attempt.usage.output) == (70, 7)
