"""The right entry first, on real sockets: rotation, attachments, quota, the vision adapter."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from click.testing import CliRunner

from krouter.cli.root import cli
from tests.harness import Krouter, Start, calls
from tests.upstream import Upstream

PIXEL = "iVBORw0KGgoAAAANSUhEUg=="
DATA = f"data:image/png;base64,{PIXEL}"
BASE64 = {"type": "base64", "media_type": "image/png", "data": PIXEL}
IMAGES = {
    "chat": {"type": "image_url", "image_url": {"url": DATA}},
    "messages": {"type": "image", "source": BASE64},
}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
READS = '[reads]\n"*/blind*" = []\n"*/sees*" = ["image"]\n"*/all*" = ["image", "audio"]\n'
GLM, DS, CC = "glm/glm-5.1", "ds/deepseek-v4-pro", "cc/claude-sonnet-4-6"


def shows(dialect: str = "chat", *blocks: Any) -> list[dict[str, Any]]:
    content = [{"type": "text", "text": "why?"}, *(blocks or (IMAGES[dialect],))]
    return [{"role": "user", "content": content}]


def order(krouter: Krouter) -> list[str]:
    return [step["entry"] for step in krouter.last_route["plan"]]


def models(upstream: Upstream) -> str:
    return " ".join(request.model or "" for request in upstream.requests)


def switches(krouter: Krouter) -> list[str]:
    return [line for line in krouter.lines if "auto-switch" in line or "Vision adapter" in line]


def refresh(krouter: Krouter) -> None:
    assert krouter.served.house.refresh()


# Round robin


def test_each_entry_leads_in_turn(start: Start, upstream: Upstream) -> None:
    krouter = start("one/a", "one/b", "one/c", strategy="round-robin")
    orders = []
    for dialect, stream in (("chat", False), ("messages", True), ("chat", True), ("chat", False)):
        assert krouter.ask(dialect, "daily", stream).status_code == 200
        orders.append(" ".join(order(krouter)))
    assert orders == [
        "one/a one/b one/c", "one/b one/c one/a", "one/c one/a one/b", "one/a one/b one/c",
    ]  # fmt: skip


def test_a_failure_falls_through_and_the_turn_goes_on(start: Start, upstream: Upstream) -> None:
    upstream.script("b", ["status=400"])
    krouter = start("one/a", "one/b", "one/c", strategy="round-robin")
    for _ in range(5):
        assert krouter.chat("daily").status_code == 200
    assert models(upstream) == "a b c c a b c"


def test_with_a_sticky_limit_of_two_request_five_starts_with_c(
    start: Start, upstream: Upstream
) -> None:
    """B fails and C answers, twice; those were B's turns all the same."""
    upstream.script("b", ["status=400"])
    krouter = start("one/a", "one/b", "one/c", strategy="round-robin", stickyLimit=2)
    for _ in range(5):
        krouter.chat("daily")
    assert models(upstream) == "a a b c b c c"
    assert order(krouter)[0] == "one/c"


def test_the_global_sticky_limit_counts_for_a_combo_s_own_round_robin(
    start: Start, upstream: Upstream
) -> None:
    settings = "[routing]\ncombo_sticky_limit = 2\n"
    krouter = start("one/a", "one/b", strategy="round-robin", settings=settings)
    for _ in range(5):
        krouter.chat("daily")
    assert models(upstream) == "a a b b a"


def test_a_turn_is_taken_though_everything_fails(start: Start, upstream: Upstream) -> None:
    for name in "ab":
        upstream.script(name, ["status=400", "ok"])
    krouter = start("one/a", "one/b", strategy="round-robin")
    assert krouter.chat("daily").status_code == 400
    krouter.chat("daily")
    assert models(upstream) == "a b b"


def test_fifty_callers_share_one_rotation(start: Start, upstream: Upstream) -> None:
    krouter = start(*(f"two/{name}" for name in "abcde"), strategy="round-robin")
    with ThreadPoolExecutor(50) as pool:
        replies = list(
            pool.map(lambda n: krouter.ask(("chat", "messages")[n % 2], "daily"), range(50))
        )
    assert {reply.status_code for reply in replies} == {200}
    assert sorted(models(upstream).split()) == sorted("abcde" * 10)


def test_a_nested_combo_has_a_rotation_of_its_own(start: Start, upstream: Upstream) -> None:
    inner = {"models": ["one/a", "one/b", "one/c"], "strategy": "round-robin"}
    krouter = start("inner", "two/z", combos={"inner": inner}, strategy="round-robin")
    for _ in range(4):
        krouter.chat("daily")
    assert models(upstream) == "a z b z"
    krouter.chat("inner")
    assert models(upstream) == "a z b z c"


def test_a_combo_nested_twice_takes_one_turn(start: Start, upstream: Upstream) -> None:
    for name in "abc":
        upstream.script(name, ["status=400"])
    inner = {"models": ["one/a", "one/b", "one/c"], "strategy": "round-robin"}
    krouter = start("inner", "outer", combos={"inner": inner, "outer": {"models": ["inner"]}})
    krouter.chat("daily")
    krouter.chat("daily")
    assert models(upstream) == "a b c b c a"


def test_the_global_switch_at_run_time(start: Start, upstream: Upstream) -> None:
    kept = {"models": ["one/a", "one/b"], "strategy": "priority"}
    krouter = start("one/a", "one/b", combos={"kept": kept})
    file = krouter.home / "krouter.toml"
    text = file.read_text()
    for switch in ("", "[routing]\ncombo_round_robin = true\n", ""):
        file.write_text(text + switch)
        krouter.served.house.refresh()
        for _ in range(2):
            krouter.chat("daily")
    assert models(upstream) == "a a a b a a"
    file.write_text(text + "[routing]\ncombo_round_robin = true\n")
    refresh(krouter)
    krouter.chat("kept")
    krouter.chat("kept")
    assert models(upstream).endswith("a a a a")


def test_other_calls_take_no_turn(start: Start, upstream: Upstream) -> None:
    krouter = start("one/a", "one/b", strategy="round-robin")
    krouter.http.get("/v1/models")
    krouter.http.post("/v1/messages/count_tokens", json={"model": "daily", "messages": []})
    krouter.chat("daily")
    assert calls(upstream)[-1].endswith(" a")


MINE = {"models": ["one/a", "one/b", "one/c"], "strategy": "round-robin"}


@pytest.mark.parametrize(
    ("change", "leads"),
    [
        ({"stickyLimit": 1}, "aa"),
        ({"judge": "one/z"}, "aa"),
        ({"fusionTuning": {"minPanel": 1}}, "aa"),
        ({"strategy": "fallback"}, "aa"),
        ({"description": "mine"}, "ab"),
        ({"models": ["one/a", "one/c"]}, "ab"),
        ({"description": None}, "bb"),
    ],
)
def test_what_starts_a_rotation_again(
    start: Start, upstream: Upstream, change: dict[str, Any], leads: str
) -> None:
    """The edited combo first, then another, each after one request."""
    krouter = start(combos={"mine": MINE, "other": MINE})
    krouter.chat("mine")
    krouter.chat("other")
    krouter.write_combo("mine", {k: v for k, v in {**MINE, **change}.items() if v is not None})
    krouter.served.house.refresh()
    upstream.clear()
    krouter.chat("mine")
    krouter.chat("other")
    assert models(upstream).replace(" ", "") == leads


@pytest.mark.parametrize(
    ("added", "lead"),
    [("combo_sticky_limit = 1", "b"), ("combo_sticky_limit = 3", "a"),
     ("combo_round_robin = true", "a"), ("account_sticky_limit = 9", "b")],
)  # fmt: skip
def test_settings_that_start_every_rotation_again(
    start: Start, upstream: Upstream, added: str, lead: str
) -> None:
    krouter = start(combos={"mine": MINE})
    krouter.chat("mine")
    file = krouter.home / "krouter.toml"
    file.write_text(f"{file.read_text()}[routing]\n{added}\n")
    refresh(krouter)
    krouter.chat("mine")
    assert models(upstream) == f"a {lead}"


def test_a_deleted_combo_starts_again_and_no_other_does(start: Start, upstream: Upstream) -> None:
    krouter = start(combos={"mine": MINE, "other": MINE})
    krouter.chat("mine")
    krouter.chat("other")
    krouter.home.joinpath("combos/mine.json").unlink()
    while "mine" in krouter.router.world.combos:
        krouter.served.house.refresh()
    krouter.write_combo("mine", MINE)
    while "mine" not in krouter.router.world.combos:
        krouter.served.house.refresh()
    krouter.chat("mine")
    krouter.chat("other")
    assert models(upstream) == "a a a b"


# Attachments


@pytest.fixture
def daily(start: Start) -> Krouter:
    return start(GLM, DS, CC, accounts={"glm": "a", "ds": "a", "cc": "a"})


def quota(krouter: Krouter, entry: str, remaining: float, **more: Any) -> None:
    provider, _, model = entry.partition("/")
    body = {"provider": provider, "model": model, "remaining": remaining, **more}
    reply = krouter.http.post("/api/quota", json=body)
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_screenshot_goes_to_the_entry_that_reads_it(
    daily: Krouter, dialect: str, stream: bool
) -> None:
    reply = daily.ask(dialect, "daily", stream, messages=shows(dialect))
    assert reply.headers["x-krouter-model"] == CC
    assert order(daily) == [CC, GLM, DS]
    assert switches(daily) == [f"COMBO daily: Capacity auto-switch: image → {CC}"]
    assert daily.last_route["plan"][0]["reason"] == "as listed; reads image"
    daily.ask(dialect, "daily", stream)
    assert order(daily) == [GLM, DS, CC]
    assert len(switches(daily)) == 1


def test_quota_cannot_move_it_back(daily: Krouter) -> None:
    quota(daily, GLM, 0.9)
    quota(daily, DS, 1.0)
    daily.chat("daily", messages=shows())
    assert order(daily) == [CC, DS, GLM]
    quota(daily, CC, 0.01)
    daily.chat("daily", messages=shows())
    assert order(daily) == [CC, DS, GLM]
    assert [line for line in switches(daily) if "Quota" in line] == []


ASKED = {"role": "user", "content": "do it"}
TOOL_RESULTS = {
    "chat": [
        ASKED,
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "shot", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [IMAGES["chat"]]},
    ],
    "messages": [
        ASKED,
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c", "name": "shot", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [IMAGES["messages"]]}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_screenshot_that_a_tool_returned_counts(daily: Krouter, dialect: str) -> None:
    daily.ask(dialect, "daily", messages=TOOL_RESULTS[dialect])
    assert order(daily)[0] == CC
    later = [*TOOL_RESULTS[dialect], {"role": "assistant", "content": "a cat"}, ASKED]
    daily.ask(dialect, "daily", messages=later)
    assert order(daily)[0] == GLM


def test_settings_and_entries_say_what_is_read(start: Start) -> None:
    entry = {"model": "two/blind", "reads": ["image"]}
    krouter = start("one/blind", "one/unknown", entry, "one/sees", settings=READS)
    krouter.chat("daily", messages=shows())
    assert order(krouter) == ["two/blind", "one/sees", "one/blind", "one/unknown"]


def test_unknown_goes_first_where_nothing_surely_reads(start: Start) -> None:
    krouter = start("one/blind", "one/unknown", "one/blind2", settings=READS)
    krouter.chat("daily", messages=shows())
    assert order(krouter) == ["one/unknown", "one/blind", "one/blind2"]
    assert switches(krouter) == ["COMBO daily: Capacity auto-switch: image → one/unknown"]


def test_a_nested_combo_reads_what_any_of_its_entries_reads(
    start: Start, upstream: Upstream
) -> None:
    inner = {"models": ["two/blind", "two/sees"]}
    krouter = start("one/blind", "inner", combos={"inner": inner}, settings=READS)
    krouter.chat("daily", messages=shows())
    assert order(krouter) == ["inner", "one/blind"]
    assert models(upstream) == "sees"
    nested = krouter.last_route["nested"]["inner"]
    assert [step["entry"] for step in nested] == ["two/sees", "two/blind"]
    assert switches(krouter)[1:] == ["COMBO daily: inner: Capacity auto-switch: image → two/sees"]


# Quota


def test_most_left_first_until_it_expires(start: Start) -> None:
    krouter = start("two/a", "two/b", "two/c")
    quota(krouter, "two/b", 0.2)
    quota(krouter, "two/c", 0.7)
    krouter.chat("daily")
    assert order(krouter) == ["two/c", "two/b", "two/a"]
    assert switches(krouter) == ["COMBO daily: Quota auto-switch: most left → two/c"]
    krouter.clock.forward(3601)
    krouter.chat("daily")
    assert order(krouter) == ["two/a", "two/b", "two/c"]
    assert len(switches(krouter)) == 1


def test_the_spent_goes_last_until_its_reset(start: Start) -> None:
    krouter = start("two/a", "two/b")
    quota(krouter, "two/a", 0.02, resets_at=krouter.clock.now + 7200)
    krouter.chat("daily")
    assert order(krouter) == ["two/b", "two/a"]
    reasons = [step["reason"] for step in krouter.last_route["plan"]]
    assert reasons == ["as listed; moved up", "as listed; quota spent"]
    krouter.clock.forward(7201)
    krouter.chat("daily")
    assert order(krouter) == ["two/a", "two/b"]


def test_a_figure_is_the_best_over_the_unlocked_accounts(start: Start, upstream: Upstream) -> None:
    krouter = start("two/z", "one/m")
    quota(krouter, "one/m", 0.9, account="a")
    quota(krouter, "one/m", 0.1, account="b")
    quota(krouter, "two/z", 0.5)
    krouter.chat("daily")
    assert order(krouter)[0] == "one/m"
    upstream.script("other", ["status=403"], key="one-a")
    krouter.chat("one/other")
    krouter.chat("daily")
    assert order(krouter)[0] == "two/z"


# The vision adapter


ADAPTER = READS + '[vision_adapter.image]\nmodels = ["two/sees", "two/all", "two/blind3"]\n'


def test_the_adapter_goes_in_front_where_nothing_reads(start: Start, upstream: Upstream) -> None:
    krouter = start("one/blind", "one/blind2", settings=ADAPTER)
    krouter.chat("daily", messages=shows())
    assert order(krouter) == ["two/sees", "two/all", "one/blind", "one/blind2"]
    assert switches(krouter) == ["COMBO daily: Vision adapter: image → two/sees"]
    krouter.chat("daily")
    assert order(krouter) == ["one/blind", "one/blind2"]
    assert models(upstream) == "sees blind"


@pytest.mark.parametrize("other", ["one/sees", "one/unknown"])
def test_the_adapter_stays_out_where_something_may_read(start: Start, other: str) -> None:
    krouter = start("one/blind", other, settings=ADAPTER)
    krouter.chat("daily", messages=shows())
    assert order(krouter) == [other, "one/blind"]


def test_the_adapter_s_pool_in_turn(start: Start, upstream: Upstream) -> None:
    krouter = start("one/blind", settings=ADAPTER + "round_robin = true\n")
    for _ in range(4):
        krouter.chat("daily", messages=shows())
    assert models(upstream) == "sees all sees all"


@pytest.mark.parametrize(
    "settings",
    [READS, READS + "[vision_adapter.image]\nmodels = []\n", ADAPTER + "enabled = false\n"],
)
def test_an_adapter_that_is_empty_or_off(start: Start, settings: str) -> None:
    krouter = start("one/blind", settings=settings)
    krouter.chat("daily", messages=shows())
    assert order(krouter) == ["one/blind"]


def test_several_kinds_need_models_that_read_all(start: Start) -> None:
    hearing = ADAPTER + '[vision_adapter.audio]\nenabled = true\nmodels = ["two/all", "one/all2"]\n'
    krouter = start("one/blind", settings=hearing)
    krouter.chat("daily", messages=shows("chat", IMAGES["chat"], AUDIO))
    assert order(krouter) == ["two/all", "one/all2", "one/blind"]


READERS = '[reads]\n"*/sees*" = ["image"]\n"*/blind*" = []\n'


@pytest.mark.parametrize("nested", [False, True])
def test_the_adapter_helps_where_the_only_reader_has_no_account(
    start: Start, upstream: Upstream, nested: bool
) -> None:
    settings = READERS + '[vision_adapter.image]\nmodels = ["groq/sees", "two/sees"]\n'
    inner = {"inner": {"models": ["groq/sees"]}}
    entry = "inner" if nested else "groq/sees"
    krouter = start("one/blind", entry, settings=settings, combos=inner)
    krouter.chat("daily", messages=shows())
    assert models(upstream) == "sees"
    plan = [(step["entry"], step["reason"]) for step in krouter.last_route["plan"]]
    assert plan[0] == ("two/sees", "vision adapter for image")
    assert (entry, "as listed; reads image; no account") in plan


def test_a_reader_without_an_account_has_no_say_in_the_split(
    start: Start, upstream: Upstream
) -> None:
    krouter = start("one/blind", "two/maybe", "groq/sees", settings=READERS)
    krouter.chat("daily", messages=shows())
    assert models(upstream) == "maybe"


def test_the_adapter_serves_a_direct_call(start: Start) -> None:
    krouter = start(settings=ADAPTER)
    reply = krouter.chat("one/blind", messages=shows())
    assert reply.headers["x-krouter-model"] == "two/sees"
    assert order(krouter) == ["two/sees", "two/all", "one/blind"]


def test_the_adapter_is_for_the_top_level_only(start: Start, upstream: Upstream) -> None:
    for name in ("sees", "all"):
        upstream.script(name, ["status=400"])
    krouter = start("inner", combos={"inner": {"models": ["one/blind"]}}, settings=ADAPTER)
    krouter.chat("daily", messages=shows())
    assert order(krouter) == ["two/sees", "two/all", "inner"]
    assert models(upstream) == "sees all blind"


def test_the_order_explained_is_the_order_served(daily: Krouter) -> None:
    args = ["explain", "daily", "--image", "--json", "--home", str(daily.home)]
    shown = json.loads(CliRunner().invoke(cli, args).stdout)
    daily.chat("daily", messages=shows())
    assert [entry["model"] for entry in shown["entries"]] == order(daily)
    assert shown["switches"] == [f"Capacity auto-switch: image → {CC}"]
