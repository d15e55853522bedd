"""`/api/view`, `/api/live` and `/api/log`, over a real socket."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from krouter.keys import Limits, add_key, change_key
from krouter.reporter import Figure, Report, Window
from krouter.route import Attempt, Route
from krouter.serve.console import KEPT_LINES, Console
from krouter.serve.live import MOST_WAITING, Listener
from krouter.serve.news import NewLines, NewSteps
from tests.harness import Krouter, Start, provider_settings
from tests.upstream import Upstream

SETTINGS, ENV = provider_settings("http://127.0.0.1:1", one="a", two="a b")
COMBOS: dict[str, Any] = {
    "c": {"description": "d", "models": [{"model": "one/m", "label": "First"}, "inner", "no/m"]},
    "inner": {"strategy": "round-robin", "models": ["two/gpt-4o", "two/m"], "stickyLimit": 2},
    "p": {
        "strategy": "fusion",
        "models": ["one/m", "two/m"],
        "fusionTuning": {"minPanel": 1, "judgeModel": "two/j"},
    },
    "bad": {"models": []},
}
PATHS = ("/api/view", "/api/live", "/api/log")


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, combos=COMBOS, settings=SETTINGS, env=ENV) as krouter:
        yield krouter


def view(krouter: Krouter) -> dict[str, Any]:
    reply = krouter.http.get("/api/view")
    assert reply.status_code == 200
    found: dict[str, Any] = reply.json()
    return found


def named(listed: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(each for each in listed if each["name"] == name)


class Ear:
    """Reads events as they come."""

    def __init__(self, reply: httpx.Response) -> None:
        self.lines = reply.iter_lines()
        self.heard: list[tuple[str, Any]] = []

    def until(self, name: str, **told: Any) -> Any:
        """The next event of this name that tells so much."""
        event = ""
        for line in self.lines:
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                self.heard.append((event, data))
                if event == name and told.items() <= data.items():
                    return data
            elif line.startswith(":"):
                break
        raise AssertionError(f"nothing more came: {self.heard}")


@contextmanager
def listening(krouter: Krouter) -> Iterator[Ear]:
    with krouter.http.stream("GET", "/api/live") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        ear = Ear(reply)
        ear.until("hello")
        yield ear


def until_nobody_looks(krouter: Krouter) -> None:
    end = time.monotonic() + 20
    while krouter.served.app.live.is_looking:
        assert time.monotonic() < end, "it goes on looking for news"
        krouter.http.get("/health")


def test_combos_are_shown_with_their_entries(krouter: Krouter) -> None:
    combos = view(krouter)["combos"]
    shown = named(combos, "c")
    first, inner, unknown = shown["entries"]
    assert (shown["shipped"], shown["description"], shown["rotates"]) == (False, "d", False)
    assert shown["file"] == str(krouter.home / "combos" / "c.json")
    assert (first["label"], first["kind"], first["provider"]) == ("First", "model", "one")
    assert [each["name"] for each in first["accounts"]] == ["a"]
    assert (inner["kind"], inner["skip"], inner["accounts"]) == ("combo", "", [])
    assert inner["reads"]["image"] == "yes", "as its best entry"
    assert unknown["skip"] == "unknown provider"
    assert named(combos, "daily")["shipped"] is True


def test_a_fusion_tells_its_judge_and_only_the_tuning_of_its_file(krouter: Krouter) -> None:
    shown = named(view(krouter)["combos"], "p")
    assert (shown["judge"], shown["auto_judge"]) == ("two/j", False)
    assert shown["tuning"] == {"minPanel": 1, "judgeModel": "two/j"}
    assert named(view(krouter)["combos"], "panel")["strategy"] == "fusion"


def test_how_requests_pass_through_a_combo_is_told(tmp_path: Path) -> None:
    combos = {
        "alone": {"strategy": "fusion", "models": ["one/m"]},
        "fan": COMBOS["p"],
        "ring": {"strategy": "round-robin", "models": ["one/m", "two/m"]},
        "plain": {"models": ["one/m", "two/m"]},
        "never": {"strategy": "priority", "models": ["one/m", "two/m"]},
    }
    shapes = []
    for is_on in ("false", "true"):
        settings = f"[routing]\ncombo_round_robin = {is_on}\n{SETTINGS}"
        with Krouter(tmp_path, combos=combos, settings=settings, env=ENV) as krouter:
            shown = view(krouter)
        shapes.append([named(shown["combos"], name)["shape"] for name in combos])
        strategies = {each["name"]: each for each in shown["strategies"]}
        for name, combo in combos.items():
            row = strategies[combo.get("strategy", shown["strategies"][0]["name"])]
            by_rule = row["alone" if name == "alone" else "shape"]
            assert by_rule == named(shown["combos"], name)["shape"]
    assert shapes[0] == ["chain", "fan", "ring", "chain", "chain"]
    assert shapes[1] == ["chain", "fan", "ring", "ring", "chain"]
    assert [name for name, row in strategies.items() if row["turns"]] == ["fallback", "round-robin"]
    assert all(row["title"] for row in strategies.values())


def test_the_tuning_that_holds_is_told(krouter: Krouter) -> None:
    shown = view(krouter)
    numbers = {"minPanel": 2, "stragglerGraceMs": 8000, "panelHardTimeoutMs": 90_000}
    assert numbers.items() <= shown["fusion_tuning"].items()
    assert named(shown["combos"], "p")["effective"] == {**shown["fusion_tuning"], "minPanel": 1}


def test_a_bad_file_is_shown_with_what_is_wrong(krouter: Krouter) -> None:
    shown = view(krouter)
    bad = named(shown["combos"], "bad")
    assert "at least one entry" in bad["problem"]
    assert bad["entries"] == []
    assert any("bad.json" in problem for problem in shown["problems"])


def test_the_last_good_version_is_shown_with_the_fault_of_the_file(tmp_path: Path) -> None:
    with Krouter(tmp_path, combos={"c": COMBOS["p"]}, settings=SETTINGS, env=ENV) as krouter:
        krouter.write_combo("c", {"models": 3})
        krouter.served.house.refresh()
        shown = named(view(krouter)["combos"], "c")
    assert "should be a list" in shown["problem"]
    assert len(shown["entries"]) == 2


def test_what_keeps_a_file_from_taking_the_place_of_a_shipped_combo_is_told(tmp_path: Path) -> None:
    with Krouter(tmp_path, combos={"daily": {"models": 3}}) as krouter:
        shown = named(view(krouter)["combos"], "daily")
    assert shown["shipped"] is True
    assert "daily.json: $.models: should be a list" in shown["problem"]


def test_settings_are_shown(krouter: Krouter) -> None:
    settings = view(krouter)["settings"]
    assert (settings["combo_round_robin"], settings["combo_sticky_limit"]) == (False, 1)
    assert (settings["account_strategy"], settings["account_sticky_limit"]) == ("zenith", 3)
    assert settings["vision_adapter"]["image"]["enabled"] is True
    assert settings["vision_adapter"]["pdf"]["models"] == []


def test_whose_turn_it_is(start: Start) -> None:
    combo = {"strategy": "round-robin", "models": ["one/a", "one/b", "one/c"], "stickyLimit": 2}
    krouter = start(combos={"ring": combo, "plain": {"models": ["one/a", "one/b"]}})
    turns = []
    for _ in range(7):
        turns.append(named(view(krouter)["combos"], "ring")["turn"])
        krouter.chat("ring")
    assert turns == [0, 0, 1, 1, 2, 2, 0]
    assert named(view(krouter)["combos"], "plain")["turn"] is None


def test_the_global_switch_rotates_a_fallback(start: Start) -> None:
    settings = "[routing]\ncombo_round_robin = true\n"
    krouter = start("one/a", "one/b", settings=settings)
    krouter.chat("daily")
    shown = named(view(krouter)["combos"], "daily")
    assert (shown["strategy"], shown["rotates"], shown["turn"]) == ("fallback", True, 1)


@pytest.mark.parametrize(
    ("model", "scope", "reason", "status"),
    [
        ("one/x:status=401", "account", "not signed in", 401),
        ("one/x:status=429;retry-after=60", "account and model", "rate limited", 429),
        ("one/x:status=404", "model", "model gone", 404),
    ],
)
def test_a_lock_is_shown_until_it_ends(
    start: Start, model: str, scope: str, reason: str, status: int
) -> None:
    krouter = start(model, accounts={"one": "a"})
    krouter.chat("daily")
    entry = named(view(krouter)["combos"], "daily")["entries"][0]
    lock = entry["accounts"][0]["lock"]
    assert (lock["scope"], lock["reason"], lock["status"]) == (scope, reason, status)
    assert lock["until"] > krouter.clock.now
    assert entry["skip"] == f"a: {reason}"
    krouter.clock.now = lock["until"] + 1
    entry = named(view(krouter)["combos"], "daily")["entries"][0]
    assert (entry["accounts"][0]["lock"], entry["skip"]) == (None, "")


def test_health_and_quota_are_shown(start: Start) -> None:
    krouter = start("one/ok", "two/x:status=500")
    assert named(view(krouter)["combos"], "daily")["entries"][0]["accounts"][0]["health"] is None
    krouter.chat("daily")
    resets = krouter.clock.now + 900
    for name, left in (("a", 0.25), ("b", 0.5)):
        report = Report(figures=(Figure("ok", left, resets),))
        krouter.served.house.pool.quota.note("one", name, report, "reported")
    shown = view(krouter)
    first, second = named(shown["combos"], "daily")["entries"][0]["accounts"]
    assert (first["left"], first["resets"], first["health"]) == (0.25, resets, 1.0)
    assert (second["left"], second["health"]) == (0.5, None)
    one = named(shown["providers"], "one")
    assert (one["account_strategy"], one["account_sticky_limit"]) == ("zenith", 3)
    assert [each["name"] for each in one["accounts"]] == ["a", "b"]
    assert "health 100%" in one["accounts"][0]["reason"]
    assert one["accounts"][0]["score"] > 900


def test_every_lock_and_quota_of_an_account_is_told_with_its_model(start: Start) -> None:
    limited, gone = "one/x:status=429;retry-after=250", "one/y:status=404"
    krouter = start(limited, gone, "one/z", accounts={"one": "a b"})
    krouter.chat("daily")
    now = krouter.clock.now
    quota = krouter.served.house.pool.quota
    figures = (Figure("z", 0.5, now + 900), Figure("w", 0.1))
    windows = (Window("week", 0.3), Window("opus", 0.0, now + 60, "opus"))
    quota.note("one", "a", Report(figures=figures, windows=windows), "polled")
    accounts = named(view(krouter)["providers"], "one")["accounts"]
    told = {each["name"]: each for each in accounts}
    assert [
        (lock["model"], lock["reason"], lock["status"], lock["scope"])
        for lock in told["a"]["locks"]
    ] == [
        ("opus", "quota spent", None, "account"),
        ("x:status=429;retry-after=250", "rate limited", 429, "account and model"),
        ("y:status=404", "model gone", 404, "model"),
    ]
    assert [each["until"] - now for each in told["a"]["locks"]][:2] == [60, 250]
    assert told["a"]["lock"] is None, "other models are not locked"
    assert [(each["model"], each["window"], each["left"]) for each in told["a"]["quotas"]] == [
        ("opus", "opus", 0.0),
        ("w", "", 0.1),
        ("", "week", 0.3),
        ("z", "", 0.5),
    ]
    assert told["a"]["quotas"][3]["resets"] == now + 900
    assert told["b"]["quotas"] == []


def test_a_lock_of_a_whole_account_stands_first(start: Start) -> None:
    krouter = start("one/x:status=401", "one/y:status=404", "two/z", accounts={"one": "a"})
    krouter.chat("daily")
    (account,) = named(view(krouter)["providers"], "one")["accounts"]
    assert [(each["model"], each["status"]) for each in account["locks"]] == [("", 401)]
    assert account["locks"][0] | {"model": ""} == {**account["lock"], "model": ""}


def test_a_missing_credential_is_told(tmp_path: Path) -> None:
    with Krouter(tmp_path, combos={"c": COMBOS["p"]}, settings=SETTINGS) as krouter:
        entry = named(view(krouter)["combos"], "c")["entries"][0]
    assert "ONE_A is not set" in entry["accounts"][0]["problem"]
    assert "ONE_A is not set" in entry["skip"]


def test_a_request_under_way_is_shown_in_the_boxes_it_touches(
    start: Start, upstream: Upstream
) -> None:
    combos = {"outer": {"models": ["one/x:status=500", "inner"]}}
    combos["inner"] = {"models": ["two/slow:gate=go"]}
    krouter = start(combos=combos)
    with listening(krouter) as ear, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(krouter.chat, "outer")
        begun = ear.until("begin")
        step = ear.until("step", entry="two/slow:gate=go")
        shown = view(krouter)
        upstream.gate("go").open()
        end = ear.until("end")
        assert asked.result().status_code == 200
    assert (begun["asked"], begun["dialect"], begun["id"]) == ("outer", "chat", end["id"])
    assert step["boxes"] == [
        {"combo": "outer", "entry": "inner", "index": 1},
        {"combo": "inner", "entry": "two/slow:gate=go", "index": 0},
    ]
    assert (step["outcome"], step["ended"]) == ("under way", None)
    flight = shown["in_flight"][0]
    assert (flight["id"], flight["entries"]) == (end["id"], ["two/slow:gate=go"])
    assert named(shown["combos"], "inner")["entries"][0]["accounts"][0]["in_flight"] == 1
    assert (end["outcome"], end["served"], end["status"]) == ("answered", "two/slow:gate=go", 200)
    steps = [data for name, data in ear.heard if name == "step"]
    failed = [each for each in steps if each["entry"] == "one/x:status=500"]
    assert [each["outcome"] for each in failed][-1] == "server error"
    assert view(krouter)["in_flight"] == []


def test_a_fusion_tells_who_is_asked_for_what(start: Start) -> None:
    krouter = start("one/p", "two/q", strategy="fusion", judge="two/j")
    with listening(krouter) as ear:
        krouter.chat("daily")
        ear.until("end")
    steps = [data for name, data in ear.heard if name == "step"]
    roles = {each["entry"]: (each["role"], each["boxes"]) for each in steps}
    panel = [{"combo": "daily", "entry": "two/q", "index": 1}]
    assert roles["two/q"] == ("panel", panel)
    assert roles["two/j"][0] == "judge"


def test_a_judge_lights_its_box_in_its_own_combo(start: Start) -> None:
    inner = {"strategy": "fusion", "models": ["one/p", "two/q"], "judge": "two/j"}
    combos = {"outer": {"models": ["inner"]}, "inner": inner}
    combos["both"] = {"strategy": "fusion", "models": ["inner", "one/r"], "judge": "one/k"}
    krouter = start(combos=combos)
    found: dict[str, dict[str, Any]] = {"outer": {}, "both": {}, "inner": {}}
    with listening(krouter) as ear:
        for name, boxes in found.items():
            ear.heard.clear()
            krouter.chat(name)
            ear.until("end", lingers=False)
            for told in (data for event, data in ear.heard if event == "step"):
                judged = [each for each in told["boxes"] if each["index"] == "judge"]
                boxes[told["entry"]] = [(each["combo"], each["entry"]) for each in judged]
    by_inner = {"one/p": [], "two/q": [], "two/j": [("inner", "two/j")]}
    assert found["inner"] == by_inner
    assert found["outer"] == by_inner
    assert found["both"] == {**by_inner, "one/r": [], "one/k": [("both", "one/k")]}


def test_late_calls_of_a_fusion_end_their_request_twice(start: Start, upstream: Upstream) -> None:
    tuning = {"minPanel": 1, "stragglerGraceMs": 0}
    krouter = start("one/p", "two/q:gate=late", strategy="fusion", fusionTuning=tuning)
    with listening(krouter) as ear:
        krouter.chat("daily")
        assert ear.until("end")["lingers"] is True
        assert [each["entries"] for each in view(krouter)["in_flight"]] == [["two/q:gate=late"]]
        upstream.gate("late").open()
        assert ear.until("step", entry="two/q:gate=late", outcome="answered")["ended"]
        assert ear.until("end")["lingers"] is False


def test_a_change_of_a_combo_is_told(tmp_path: Path) -> None:
    krouter = Krouter(tmp_path, combos=COMBOS, settings=SETTINGS, env=ENV)
    with krouter, listening(krouter) as ear:
        krouter.write_combo("inner", {"models": ["two/m"]})
        told = ear.until("view")
        assert told["combos"] == ["c", "inner"], "what the inner one reads, the outer one reads"
        assert told["settings"] is False
        (tmp_path / "krouter.toml").write_text(f"[routing]\ncombo_sticky_limit = 3\n{SETTINGS}")
        assert ear.until("view")["settings"] is True


def test_a_lock_is_told_when_it_is_set_and_when_it_ends(start: Start) -> None:
    krouter = start("one/x:status=401", combos={"other": {"models": ["two/y"]}})
    with listening(krouter) as ear:
        krouter.chat("daily")
        told = ear.until("view")
        assert (told["combos"], told["providers"]) == (["daily"], ["one"])
        krouter.clock.forward(500)
        assert "daily" in ear.until("view")["combos"]


def test_lines_of_the_log_are_told_and_kept(start: Start) -> None:
    krouter = start("one/x:status=500", "two/y")
    with listening(krouter) as ear:
        krouter.chat("daily")
        line = ear.until("log", kind="ROUTE")
    lines = krouter.http.get("/api/log").json()["lines"]
    assert line == lines[-1]
    assert line["route"] == krouter.last_route["id"]
    assert [each["route"] for each in lines[:-1]] == [""] * (len(lines) - 1)
    assert [each["number"] for each in lines] == list(range(1, len(lines) + 1))
    assert line["at"] == krouter.clock.now
    assert [each["kind"] for each in lines].count("COMBO") >= 2
    assert krouter.http.get("/api/log?limit=1").json()["lines"] == lines[-1:]
    assert krouter.lines[-1] == f"ROUTE {line['text']}", "and printed as before"


def test_without_a_terminal_steps_are_logged_only_while_somebody_listens(tmp_path: Path) -> None:
    with Krouter(tmp_path, traced=False) as krouter:
        krouter.chat("demo")
        assert not krouter.lines
        (before,) = krouter.http.get("/api/log").json()["lines"]
        assert before["kind"] == "ROUTE"
        assert "demo → demo/assistant: answered, 1 attempt" in before["text"]
        with listening(krouter) as ear:
            krouter.chat("demo")
            ear.until("log", kind="ROUTE")
        kinds = [line["kind"] for line in krouter.http.get("/api/log").json()["lines"]]
        assert kinds == ["ROUTE", "COMBO", "COMBO", "ROUTE"]
        until_nobody_looks(krouter)
        printed = len(krouter.lines)
        krouter.chat("demo")
        assert len(krouter.lines) == printed


@pytest.mark.parametrize("limit", ["0", "501", "-1", "x", "", "1e3"])
def test_a_limit_that_is_none_is_refused(krouter: Krouter, limit: str) -> None:
    reply = krouter.http.get(f"/api/log?limit={limit}")
    assert reply.status_code == 400
    assert "limit" in reply.json()["error"]["message"]


def test_only_the_last_lines_are_kept() -> None:
    console = Console(lambda kind, text: None, lambda: 1.0)
    news = NewLines(console)
    for number in range(KEPT_LINES + 7):
        console("COMBO", str(number))
    assert [len(console.last()), console.last()[0].text] == [KEPT_LINES, "7"]
    told = news.look()
    assert told[0] == ("lost", {"events": 7})
    assert len(told) == KEPT_LINES + 1
    assert news.look() == []


def test_requests_that_came_and_went_unseen_are_told_to_be_lost() -> None:
    def route(number: int) -> Route:
        return Route(str(number), 0.0, "chat", "c", False, ended=1.0)

    news = NewSteps([route(0)])
    events = news.look([route(number) for number in range(5, 8)])
    assert events[0] == ("lost", {"events": None})
    assert [data["id"] for name, data in events if name == "end"] == ["5", "6", "7"]


def test_each_step_is_told_when_it_begins_and_when_it_ends() -> None:
    route = Route("r", 0.0, "chat", "c", False)
    news = NewSteps([route])
    route.add(attempt := Attempt("one/m", "m", "a", "native", 1.0))
    assert [name for name, _ in news.look([route])] == ["step"]
    assert news.look([route]) == []
    attempt.ended, attempt.outcome = 2.0, "answered"
    assert [(name, data["outcome"]) for name, data in news.look([route])] == [("step", "answered")]
    route.ended = 3.0
    assert [name for name, _ in news.look([route])] == ["end"]
    assert news.look([route]) == []


async def _heard(listener: Listener) -> bytes:
    async for events in listener.events():
        return events
    return b""


def test_a_slow_listener_loses_events_and_is_told_how_many() -> None:
    async def slow() -> bytes:
        listener = Listener()
        for _ in range(MOST_WAITING + 3):
            listener.tell(b"event: log\ndata: {}\n\n")
        return await _heard(listener)

    heard = asyncio.run(slow())
    assert heard.count(b"event: log") == MOST_WAITING
    assert heard.endswith(b'event: lost\ndata: {"events": 3}\n\n')


def test_silence_is_broken_by_a_comment() -> None:
    assert asyncio.run(_heard(Listener(silence=0.001))) == b": still here\n\n"


def test_the_stream_ends_when_krouter_does(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter, ThreadPoolExecutor(1) as pool, listening(krouter) as ear:
        ended = pool.submit(lambda: list(ear.lines))
        krouter.served.stop()
        assert not [line for line in ended.result(20) if line.startswith("event:")]


def test_nobody_looks_for_news_while_nobody_listens(tmp_path: Path) -> None:
    with Krouter(tmp_path) as krouter:
        live = krouter.served.app.live
        with listening(krouter):
            assert live.is_looking
        until_nobody_looks(krouter)


def test_head_has_no_endless_body(krouter: Krouter) -> None:
    for path in PATHS:
        reply = krouter.http.head(path)
        assert (reply.status_code, reply.content) == (200, b"")


@pytest.mark.parametrize("path", PATHS)
def test_who_may_see_it(tmp_path: Path, path: str) -> None:
    key = add_key(tmp_path / "keys.json", "full", 0.0)
    limited = add_key(tmp_path / "keys.json", "small", 0.0)
    change_key(tmp_path / "keys.json", "small", lambda key: Limits(rpm=5))
    with Krouter(tmp_path) as krouter:
        asked: tuple[tuple[dict[str, str], int], ...] = (
            ({}, 401),
            ({"x-krouter-key": limited}, 403),
            ({"x-krouter-key": key, "origin": "https://evil.example"}, 403),
            ({"x-krouter-key": key}, 200),
        )
        for headers, status in asked:
            assert krouter.http.head(path, headers=headers).status_code == status
