"""Fusion on real sockets: the panel, the judge, and every way in which answers are missing."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.harness import Krouter, Start, provider_settings
from tests.serve.test_pairings import CHECKS
from tests.upstream import Upstream
from tests.upstream.book import Request
from tests.validators import check_chat_stream

PANEL = ("one/a:text=Alpha", "two/b:text=Beta", "one/c:text=Gamma")
ACCOUNTS = {"one": "a", "two": "x"}


def fusion(start: Start, *models: Any, **more: Any) -> Krouter:
    more.setdefault("accounts", ACCOUNTS)
    return start(*(models or PANEL), strategy="fusion", **more)


def to(upstream: Upstream, model: str) -> list[Request]:
    return [each for each in upstream.requests if each.model.partition(":")[0] == model]


def judged(upstream: Upstream) -> list[Request]:
    """The calls to a judge called `j`."""
    return to(upstream, "j")


def voices(krouter: Krouter) -> list[str]:
    return [
        f"{v['role']} {v['entry'].partition(':')[0]}: {v['outcome']}" for v in voice_list(krouter)
    ]


def voice_list(krouter: Krouter) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = krouter.last_route["voices"]
    return found


FIRST = ("one/a:gate=first", "two/b:gate=first")
"""Two that answer once the others have been asked, see `while_late`."""


def while_late(krouter: Krouter, upstream: Upstream, gate: str, count: int = 1) -> httpx.Response:
    """A reply that is given while `count` calls wait at a gate."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(krouter.chat, "daily")
        assert upstream.gate(gate).reached.wait(30)
        while sum(f"gate={gate}" in each.model for each in upstream.requests) < count:
            threading.Event().wait(0.002)
        upstream.gate("first").open()
        return asked.result(30)


def fusion_lines(krouter: Krouter) -> list[str]:
    return [line for line in krouter.lines if line.startswith("FUSION")]


def test_all_are_asked_and_the_judge_answers(start: Start, upstream: Upstream) -> None:
    krouter = fusion(start, judge="one/j:text=Whole")
    reply = krouter.chat("daily")
    assert reply.status_code == 200
    assert reply.json()["choices"][0]["message"]["content"] == "Whole"
    assert {each.model[0] for each in upstream.requests} == {"a", "b", "c", "j"}
    [request] = judged(upstream)
    *before, last = request.json["messages"]
    assert before == [{"role": "user", "content": "hello"}]
    assert last["role"] == "user"
    places = [last["content"].index(text) for text in ("Alpha", "Beta", "Gamma")]
    assert places == sorted(places)
    assert "one/a" not in last["content"]


def test_the_reply_carries_no_sign_of_the_panel(start: Start) -> None:
    krouter = fusion(start, judge="one/j")
    reply = krouter.chat("daily")
    ours = {name for name in reply.headers if name.startswith("x-krouter")}
    assert ours == {"x-krouter-route"}
    assert reply.headers["x-krouter-route"] == krouter.last_route["id"]


def test_the_route_tells_every_voice(start: Start) -> None:
    krouter = fusion(start, judge="one/j:text=Whole")
    krouter.chat("daily")
    route = krouter.last_route
    assert voices(krouter) == [
        "panel one/a: answered",
        "panel two/b: answered",
        "panel one/c: answered",
        "judge one/j: answered",
    ]
    told = [(v["place"], v["length"], v["given"]) for v in route["voices"]]
    assert told == [(1, 5, 5), (2, 4, 4), (3, 5, 5), (0, 5, None)]
    assert sum(v["usage"]["output"] for v in route["voices"]) == route["usage"]["output"]
    assert (route["served"], route["outcome"], route["status"]) == (
        "one/j:text=Whole",
        "answered",
        200,
    )
    assert [step["seen"] for step in route["steps"]].count(True) == 1
    assert all(v["ended"] >= v["began"] for v in route["voices"])


def test_each_step_is_told(start: Start) -> None:
    krouter = fusion(start, judge="one/j:text=Whole")
    krouter.chat("daily")
    lines = " ".join(fusion_lines(krouter))
    for words in ("asks 3", "one/a", "5 characters", "2 answers are enough", "judges 3", "answers"):
        assert words in lines


def test_copies_go_without_tools_and_the_judge_gets_all(start: Start, upstream: Upstream) -> None:
    krouter = fusion(start, judge="one/j")
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    krouter.chat(
        "daily",
        stream=True,
        tools=tools,
        tool_choice="auto",
        parallel_tool_calls=True,
        stream_options={"include_usage": True},
        temperature=0.5,
    )
    [copy] = to(upstream, "a")
    assert copy.json == {
        "model": "a:text=Alpha",
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.5,
        "stream": False,
    }
    [request] = judged(upstream)
    assert request.json["tools"] == tools
    assert request.json["stream"] is True
    assert request.json["stream_options"] == {"include_usage": True}
    assert request.json["parallel_tool_calls"] is True


def test_parameters_of_an_entry_bring_no_tools_back(start: Start, upstream: Upstream) -> None:
    params = {"tools": [], "tool_choice": "none", "stream": True, "top_p": 0.5}
    fusion(start, {"model": "one/a", "params": params}, "two/b", judge="one/j").chat("daily")
    [copy] = to(upstream, "a")
    assert set(copy.json) == {"model", "messages", "stream", "top_p"}
    assert copy.json["stream"] is False


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses", "gemini"])
def test_the_judge_streams(start: Start, dialect: str) -> None:
    krouter = fusion(start, judge="one/j:thinking;text=Whole%20answer")
    reply = krouter.ask(dialect, "daily", stream=True)
    assert CHECKS[dialect](reply.content).text == "Whole answer"
    krouter.idle()
    assert voices(krouter)[-1] == "judge one/j: answered"
    assert voice_list(krouter)[-1]["length"] == len("Whole answer")
    assert krouter.last_route["served"].startswith("one/j")


def test_a_panel_of_one_is_a_plain_call(start: Start, upstream: Upstream) -> None:
    krouter = fusion(start, "one/a", judge="one/j")
    reply = krouter.chat("daily", tools=[])
    assert [each.model for each in upstream.requests] == ["a"]
    assert upstream.requests[0].json["tools"] == []
    assert reply.headers["x-krouter-model"] == "one/a"
    assert krouter.last_route["voices"] == []


# Who judges


@pytest.mark.parametrize(
    ("models", "judge"),
    [
        (("one/a", "two/b", "one/c"), "a"),
        (("one/a:status=500", "two/b", "one/c"), "b"),
        (("one/a:empty=text", "two/b", "one/c"), "b"),
    ],
)
def test_on_auto_the_first_that_answered_judges(
    start: Start, upstream: Upstream, models: tuple[str, ...], judge: str
) -> None:
    krouter = fusion(start, *models)
    assert krouter.chat("daily").status_code == 200
    assert voices(krouter)[-1].startswith("judge")
    assert voice_list(krouter)[-1]["entry"].partition("/")[2].partition(":")[0] == judge


def test_a_combo_may_judge_and_backs_itself_up(start: Start) -> None:
    judges = {"models": ["one/j:status=500", "two/k:text=Backup"]}
    krouter = fusion(start, judge="judges", combos={"judges": judges})
    assert krouter.chat("daily").json()["choices"][0]["message"]["content"] == "Backup"
    route = krouter.last_route
    assert route["served"] == "two/k:text=Backup"
    assert route["nested"]["judges"][0]["entry"] == "one/j:status=500"
    assert route["entered"]["judges"] == (0,)


def test_the_judge_falls_back_over_its_own_accounts_only(start: Start, upstream: Upstream) -> None:
    upstream.script("j", ["status=401"], key="one-a")
    krouter = fusion(start, "two/b", "two/c", judge="one/j", accounts={"one": "a b", "two": "x"})
    assert krouter.chat("daily").status_code == 200
    assert [each.credential for each in judged(upstream)] == ["one-a", "one-b"]


def test_nested_combos_are_one_voice_each(start: Start, upstream: Upstream) -> None:
    inner = {"models": ["one/a:status=500", "two/b:text=Beta"]}
    krouter = fusion(start, "inner", "one/c:text=Gamma", judge="one/j", combos={"inner": inner})
    assert krouter.chat("daily").status_code == 200
    assert voices(krouter)[:2] == ["panel inner: answered", "panel one/c: answered"]
    route = krouter.last_route
    assert [step["places"] for step in route["steps"] if step["voice"] == 1] == [(1, 1), (1, 2)]
    content = judged(upstream)[0].json["messages"][-1]["content"]
    assert content.index("Beta") < content.index("Gamma")


def test_a_fusion_inside_a_fusion(start: Start, upstream: Upstream) -> None:
    inner = {"models": ["one/a", "two/b"], "strategy": "fusion", "judge": "one/i:text=Inner"}
    krouter = fusion(start, "inner", "one/c:text=Gamma", judge="one/j", combos={"inner": inner})
    assert krouter.chat("daily").status_code == 200
    route = krouter.last_route
    told = [(v["role"], v["entry"].partition(":")[0], v["within"]) for v in route["voices"]]
    assert sorted(told) == [
        ("judge", "one/i", 1),
        ("judge", "one/j", 0),
        ("panel", "inner", 0),
        ("panel", "one/a", 1),
        ("panel", "one/c", 0),
        ("panel", "two/b", 1),
    ]
    assert "Inner" in judged(upstream)[0].json["messages"][-1]["content"]
    of = {v["entry"].partition(":")[0]: v["usage"]["output"] for v in route["voices"]}
    assert of["inner"] == of["one/a"] + of["two/b"] + of["one/i"]


def test_a_fusion_inside_a_list(start: Start, upstream: Upstream) -> None:
    inner = {"models": ["one/a", "two/b"], "strategy": "fusion", "judge": "one/j:text=Inner"}
    krouter = start(
        "one/z:status=500", "inner", "two/y", combos={"inner": inner}, accounts=ACCOUNTS
    )
    reply = krouter.chat("daily")
    assert reply.json()["choices"][0]["message"]["content"] == "Inner"
    assert krouter.last_route["outcome"] == "answered"
    assert "y" not in [each.model for each in upstream.requests]


@pytest.mark.parametrize("stream", [False, True])
def test_a_fusion_that_fails_inside_a_list_is_one_entry_that_failed(
    start: Start, stream: bool
) -> None:
    inner = {"models": ["one/a:status=500", "two/b:status=429"], "strategy": "fusion"}
    krouter = start("inner", "two/y:text=Next", combos={"inner": inner}, accounts=ACCOUNTS)
    reply = krouter.chat("daily", stream=stream)
    assert reply.status_code == 200
    assert "Next" in reply.text
    krouter.idle()
    assert krouter.last_route["outcome"] == "answered"
    assert krouter.last_route["served"] == "two/y:text=Next"
    assert reply.headers["x-krouter-model"] == "two/y:text=Next"


def test_a_fusion_that_fails_last_in_a_list_is_its_answer(start: Start) -> None:
    inner = {"models": ["one/a:status=500", "two/b:status=500"], "strategy": "fusion"}
    krouter = start("two/y:status=500", "inner", combos={"inner": inner}, accounts=ACCOUNTS)
    reply = krouter.chat("daily")
    assert reply.status_code == 503
    assert reply.json()["error"]["message"].startswith("All fusion panel models failed")


# What is missing


def test_all_fail(start: Start) -> None:
    krouter = fusion(
        start,
        "one/a:status=500",
        "two/b:empty=text",
        "one/c:garbage=html",
        "nowhere/d",
    )
    reply = krouter.chat("daily")
    assert reply.status_code == 503
    assert reply.json()["error"]["message"] == (
        "All fusion panel models failed: one/a:status=500: 500 server error;"
        " two/b:empty=text: empty; one/c:garbage=html: unreadable;"
        " nowhere/d: unknown provider."
    )
    assert krouter.last_route["outcome"] == "no answer of the panel"
    assert {n for n in reply.headers if n.startswith("x-krouter")} == {"x-krouter-route"}


def test_all_empty(start: Start) -> None:
    krouter = fusion(start, "one/a:empty=text", "two/b:thinking=only")
    reply = krouter.chat("daily")
    assert reply.status_code == 503
    assert reply.json()["error"]["message"] == (
        "All fusion panel models failed: one/a:empty=text: empty; two/b:thinking=only: empty."
    )


def test_tool_calls_alone_are_no_answer(start: Start) -> None:
    krouter = fusion(start, "one/a:tool=look;args={}", "two/b:text=Beta", judge="one/j")
    krouter.chat("daily")
    assert voices(krouter)[0] == "panel one/a: no text"


def test_exactly_one_is_asked_again_with_all_that_was_asked(
    start: Start, upstream: Upstream
) -> None:
    krouter = fusion(start, "one/a:status=500", "two/b:text=Beta", judge="one/j")
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    reply = krouter.chat("daily", stream=True, tools=tools)
    assert check_chat_stream(reply.content).text == "Beta"
    assert not judged(upstream)
    copy, again = to(upstream, "b")
    assert "tools" not in copy.json
    assert (again.json["tools"], again.json["stream"]) == (tools, True)
    assert again.json["messages"] == [{"role": "user", "content": "hello"}]
    krouter.idle()
    assert voices(krouter)[-1] == "again two/b: answered"


def test_exactly_one_goes_to_a_judge_that_is_named(start: Start, upstream: Upstream) -> None:
    tuning = {"onSingle": "judge"}
    krouter = fusion(
        start, "one/a:status=500", "two/b:text=Beta", judge="one/j:text=J", fusionTuning=tuning
    )
    assert krouter.chat("daily").json()["choices"][0]["message"]["content"] == "J"
    assert "Beta" in judged(upstream)[0].json["messages"][-1]["content"]


def test_exactly_one_is_asked_again_where_no_judge_is_named(
    start: Start, upstream: Upstream
) -> None:
    krouter = fusion(
        start, "one/a:status=500", "two/b:text=Beta", fusionTuning={"onSingle": "judge"}
    )
    assert krouter.chat("daily").json()["choices"][0]["message"]["content"] == "Beta"
    assert len(to(upstream, "b")) == 2
    assert voices(krouter)[-1] == "again two/b: answered"


@pytest.mark.parametrize("stream", [False, True])
def test_exactly_one_is_returned(start: Start, upstream: Upstream, stream: bool) -> None:
    tuning = {"onSingle": "return"}
    krouter = fusion(start, "one/a:status=500", "two/b:text=Beta", fusionTuning=tuning)
    reply = krouter.chat("daily", stream=stream)
    assert reply.status_code == 200
    assert {n for n in reply.headers if n.startswith("x-krouter")} == {"x-krouter-route"}
    if stream:
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert check_chat_stream(reply.content).text == "Beta"
    else:
        assert reply.json()["choices"][0]["message"]["content"] == "Beta"
    assert len(upstream.requests) == 2
    krouter.idle()
    route = krouter.last_route
    assert (route["served"], route["outcome"]) == ("two/b:text=Beta", "answered")
    assert [step["seen"] for step in route["steps"] if step["entry"].startswith("two")] == [True]


def test_a_quorum_that_is_required(start: Start, upstream: Upstream) -> None:
    tuning = {"requireQuorum": True}
    krouter = fusion(start, "one/a:status=500", "two/b", fusionTuning=tuning)
    reply = krouter.chat("daily")
    assert reply.status_code == 503
    assert reply.json()["error"]["message"] == (
        "Too few fusion panel models answered: 1, and requireQuorum asks for 2."
        " one/a:status=500: 500 server error."
    )
    assert len(upstream.requests) == 2


def test_fewer_than_wanted_are_judged_all_the_same(start: Start, upstream: Upstream) -> None:
    krouter = fusion(
        start, "one/a:status=500", "two/b", "one/c", judge="one/j", fusionTuning={"minPanel": 3}
    )
    assert krouter.chat("daily").status_code == 200
    assert len(judged(upstream)) == 1


def test_a_panel_that_is_too_large_is_not_asked(start: Start, upstream: Upstream) -> None:
    krouter = fusion(start, fusionTuning={"maxPanel": 2})
    reply = krouter.chat("daily")
    assert reply.status_code == 400
    assert "3 entries, and maxPanel allows 2" in reply.json()["error"]["message"]
    assert not upstream.requests


@pytest.mark.parametrize("stream", [False, True])
def test_the_error_of_the_judge_is_the_answer(start: Start, stream: bool) -> None:
    krouter = fusion(start, judge="one/j:status=418;message=No%20tea")
    reply = krouter.chat("daily", stream=stream)
    assert reply.status_code == 418
    assert "No tea" in reply.text
    assert {n for n in reply.headers if n.startswith("x-krouter")} == {"x-krouter-route"}
    assert "krouter_tried" not in reply.text
    assert krouter.last_route["outcome"] == voice_list(krouter)[-1]["outcome"]


@pytest.mark.parametrize("fault", ["status=500", "error=0", "reset", "garbage=html", "close"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_longest_answer_in_place_of_the_judges(start: Start, fault: str, stream: bool) -> None:
    krouter = fusion(
        start,
        "one/a:text=Short",
        "two/b:text=Longest%20of%20all",
        "two/c:text=Middling",
        judge=f"one/j:{fault}",
        fusionTuning={"onJudgeFailure": "best"},
    )
    reply = krouter.chat("daily", stream=stream)
    assert reply.status_code == 200
    heard = (
        check_chat_stream(reply.content).text
        if stream
        else reply.json()["choices"][0]["message"]["content"]
    )
    assert heard == "Longest of all"
    krouter.idle()
    assert krouter.last_route["served"].startswith("two/b")


def test_an_empty_judge_counts_as_failed(start: Start) -> None:
    krouter = fusion(start, judge="one/j:empty=text", fusionTuning={"onJudgeFailure": "best"})
    assert krouter.chat("daily").json()["choices"][0]["message"]["content"] in ("Alpha", "Gamma")


def test_the_judge_breaks_off(start: Start) -> None:
    krouter = fusion(start, judge="one/j:error=2", fusionTuning={"onJudgeFailure": "best"})
    reply = krouter.chat("daily", stream=True)
    heard = check_chat_stream(reply.content)
    assert heard.ending == "error"
    krouter.idle()
    assert voices(krouter)[-1] != "judge one/j: answered"
    assert krouter.last_route["outcome"] == voice_list(krouter)[-1]["outcome"]


def test_a_judge_that_wants_turns_to_alternate(start: Start, upstream: Upstream) -> None:
    message = "Conversation%20roles%20must%20alternate%20user/assistant/user/assistant/..."
    upstream.script("j", [f"status=400;message={message}", "text=Joined"])
    krouter = fusion(start, judge="one/j")
    reply = krouter.chat("daily")
    assert reply.json()["choices"][0]["message"]["content"] == "Joined"
    [only] = judged(upstream)[-1].json["messages"]
    assert only["role"] == "user"
    assert "hello" in json.dumps(only)
    assert "Alpha" in json.dumps(only)


# Time


def test_late_calls_run_on_and_are_recorded(start: Start, upstream: Upstream) -> None:
    late = "one/c:gate=late;text=Late"
    krouter = fusion(
        start,
        *FIRST,
        late,
        judge="one/j:text=J",
        fusionTuning={"stragglerGraceMs": 0},
    )
    booked: list[int] = []
    news: list[tuple[int, list[str]]] = []
    krouter.router.books.append(
        lambda route: booked.append(sum(v.ended is None for v in route.voices))
    )
    krouter.router.amended.append(
        lambda route, steps: news.append((route.revision, [step.entry for step in steps]))
    )
    reply = while_late(krouter, upstream, "late")
    assert reply.json()["choices"][0]["message"]["content"] == "J"
    assert "Late" not in judged(upstream)[0].json["messages"][-1]["content"]
    assert voices(krouter)[2] == "panel one/c: late"
    assert krouter.last_route["lingers"]
    assert booked == [1]
    upstream.gate("late").open()
    krouter.idle()
    while not news:
        threading.Event().wait(0.002)
    route = krouter.last_route
    assert news == [(1, [late])]
    assert not route["lingers"]
    assert voices(krouter)[2] == "panel one/c: late"
    assert route["voices"][2]["usage"]["output"] > 0
    [step] = [each for each in route["steps"] if each["entry"] == late]
    assert (step["outcome"], step["seen"]) == ("answered", False)


def test_late_calls_are_called_off(start: Start, upstream: Upstream) -> None:
    krouter = fusion(
        start,
        *FIRST,
        "one/c:gate=late",
        judge="one/j",
        fusionTuning={"stragglerGraceMs": 0, "lateCalls": "cancel"},
    )
    assert while_late(krouter, upstream, "late").status_code == 200
    [request] = to(upstream, "c")
    assert request.closed.wait(10)
    krouter.idle()
    [step] = [each for each in krouter.last_route["steps"] if each["entry"].startswith("one/c")]
    assert step["outcome"] == "called off"


def test_waiting_stops_at_the_hard_limit(start: Start, upstream: Upstream) -> None:
    krouter = fusion(
        start,
        "one/a:stall",
        "two/b:stall",
        leaps=True,
        fusionTuning={"panelHardTimeoutMs": 5000, "lateCalls": "cancel"},
    )
    reply = krouter.chat("daily")
    assert reply.status_code == 503
    assert reply.json()["error"]["message"] == (
        "All fusion panel models failed: one/a:stall: timeout; two/b:stall: timeout."
    )


@pytest.mark.parametrize("late", ["run", "cancel"])
def test_the_caller_leaves_during_the_panel(start: Start, upstream: Upstream, late: str) -> None:
    krouter = fusion(
        start,
        "one/a:gate=wait;text=A",
        "two/b:gate=wait;text=B",
        judge="one/j",
        fusionTuning={"lateCalls": late},
    )
    body = json.dumps({"model": "daily", "messages": [{"role": "user", "content": "hi"}]}).encode()
    first = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1"
    head = f"{first}\r\ncontent-length: {len(body)}\r\n\r\n"
    url = httpx.URL(krouter.url)
    with socket.create_connection((url.host, url.port or 80), 5) as caller:
        caller.sendall(head.encode() + body)
        requests = upstream.wait(2)
    if late == "cancel":
        assert all(each.closed.wait(10) for each in requests)
    else:
        while not krouter.last_route["lingers"]:
            threading.Event().wait(0.002)
        upstream.gate("wait").open()
        assert all(each.completed.wait(10) for each in requests)
    krouter.idle()
    assert not judged(upstream)
    route = krouter.last_route
    assert route["outcome"] == "caller gone"
    expected = "answered" if late == "run" else "called off"
    assert {step["outcome"] for step in route["steps"]} == {expected}


@pytest.mark.parametrize("does", ["text=Alpha", "status=500"])
def test_signs_of_life_while_the_panel_is_waited_for(
    start: Start, upstream: Upstream, does: str
) -> None:
    krouter = fusion(
        start,
        f"one/a:gate=g;{does}",
        f"two/b:gate=g;{does}",
        judge="one/j:text=J",
        edges={"keep_alive": 0.02},
    )
    body = {"model": "daily", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    seen = b""
    with krouter.http.stream("POST", "/v1/chat/completions", json=body) as reply:
        for piece in reply.iter_raw():
            seen += piece
            upstream.gate("g").open()
    assert reply.status_code == 200
    assert seen.startswith(b": keep-alive\n\n")
    heard = check_chat_stream(seen)
    if does == "status=500":
        assert heard.ending == "error"
        assert b"All fusion panel models failed" in seen
    else:
        assert (heard.ending, heard.text) == ("complete", "J")


# How much


def test_an_answer_of_5_mb_is_shortened(start: Start, upstream: Upstream) -> None:
    upstream.script("b", ["text=" + "x" * 5_000_000])
    krouter = fusion(start, "one/a:text=Alpha", "two/b", judge="one/j:text=J")
    assert krouter.chat("daily").status_code == 200
    [request] = judged(upstream)
    assert len(request.body) < 500_000
    assert "Alpha" in request.body.decode()
    first, second = voice_list(krouter)[:2]
    assert first["given"] == first["length"] == 5
    assert second["length"] == 5_000_000
    assert 0 < second["given"] < 500_000
    assert any("shortened" in note for note in krouter.last_route["notes"])


def test_the_window_of_the_judge_counts(start: Start, upstream: Upstream) -> None:
    upstream.script("b", ["text=" + "x" * 100_000])
    small = {"models": [{"model": "one/j", "contextWindow": 8000}]}
    krouter = fusion(start, "one/a:text=Alpha", "two/b", judge="small", combos={"small": small})
    assert krouter.chat("daily").status_code == 200
    assert len(judged(upstream)[0].body) < 8000 * 3


# Keys


def test_each_call_has_an_idempotency_key_of_its_own(start: Start, upstream: Upstream) -> None:
    krouter = fusion(start, "one/a", "one/a", "two/b", judge="one/a")
    body = {"model": "daily", "messages": [{"role": "user", "content": "hello"}]}
    for _ in range(2):
        headers = {"idempotency-key": "mine"}
        assert krouter.http.post("/v1/chat/completions", json=body, headers=headers).is_success
    keys = [each.header["idempotency-key"] for each in upstream.requests]
    assert "mine" not in keys
    first, second = keys[:4], keys[4:]
    assert len(set(first)) == 4
    assert set(first) & set(second) == set(first[:3])


def test_outside_of_a_fusion_the_callers_own_key_passes(start: Start, upstream: Upstream) -> None:
    krouter = start("one/a")
    body = {"model": "daily", "messages": [{"role": "user", "content": "hello"}]}
    krouter.http.post("/v1/chat/completions", json=body, headers={"idempotency-key": "mine"})
    krouter.chat("daily")
    keys = [each.header.get("idempotency-key") for each in upstream.requests]
    assert keys == ["mine", None]


# A fusion inside another


NESTED = {
    "models": ["one/a:text=A", "two/b:text=Be"],
    "strategy": "fusion",
    "judge": "one/i:text=Inner",
}


def seen(krouter: Krouter) -> list[str]:
    steps = krouter.last_route["steps"]
    return [step["model"].partition(":")[0] for step in steps if step.get("seen")]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("tuning", "second", "judge"),
    [
        ({"onJudgeFailure": "best"}, "two/c:text=Cee", "one/j:status=500"),
        ({"onSingle": "return"}, "two/c:status=500", "one/j"),
    ],
)
def test_what_an_inner_fusion_said_may_be_returned(
    start: Start, stream: bool, tuning: dict[str, Any], second: str, judge: str
) -> None:
    krouter = fusion(
        start, "inner", second, judge=judge, fusionTuning=tuning, combos={"inner": NESTED}
    )
    reply = krouter.chat("daily", stream=stream)
    assert reply.status_code == 200
    assert "Inner" in reply.text
    krouter.idle()
    assert seen(krouter) == ["i"]
    assert krouter.last_route["served"] == "one/i:text=Inner"


def test_only_what_the_caller_got_counts_as_seen(start: Start) -> None:
    krouter = fusion(start, "inner", "two/c", judge="one/j:error=2", combos={"inner": NESTED})
    krouter.chat("daily", stream=True)
    krouter.idle()
    assert seen(krouter) == ["j"]
    assert krouter.last_route["outcome"] == voice_list(krouter)[-1]["outcome"] != "answered"


def test_a_judge_that_says_nothing_is_taken_back(start: Start) -> None:
    krouter = fusion(
        start,
        "one/a:text=A",
        "two/b:text=Longer",
        judge="one/j:empty=text",
        fusionTuning={"onJudgeFailure": "best"},
    )
    assert krouter.chat("daily").json()["choices"][0]["message"]["content"] == "Longer"
    assert seen(krouter) == ["b"]
    assert voices(krouter)[-1] == "judge one/j: no text"
    assert krouter.last_route["served"] == "two/b:text=Longer"


@pytest.mark.parametrize("inner", ["run", "cancel"])
def test_calls_that_are_called_off_are_so_at_every_depth(
    start: Start, upstream: Upstream, inner: str
) -> None:
    slow = {"models": ["one/x:gate=g", "two/y:gate=g"], "strategy": "fusion"}
    slow["fusionTuning"] = {"lateCalls": inner}
    krouter = fusion(
        start,
        *FIRST,
        "slow",
        judge="one/j",
        combos={"slow": slow},
        fusionTuning={"stragglerGraceMs": 0, "lateCalls": "cancel"},
    )
    assert while_late(krouter, upstream, "g", 2).status_code == 200
    assert all(each.closed.wait(10) for each in [*to(upstream, "x"), *to(upstream, "y")])
    krouter.idle()
    outcomes = {s["model"][0]: s["outcome"] for s in krouter.last_route["steps"]}
    assert (outcomes["x"], outcomes["y"]) == ("called off", "called off")


def test_an_inner_judge_that_is_called_off(start: Start, upstream: Upstream) -> None:
    inner = {**NESTED, "judge": "one/i:gate=g"}
    krouter = fusion(
        start,
        *FIRST,
        "inner",
        judge="one/j",
        combos={"inner": inner},
        fusionTuning={"stragglerGraceMs": 0, "lateCalls": "cancel"},
    )
    assert while_late(krouter, upstream, "g").status_code == 200
    assert to(upstream, "i")[0].closed.wait(10)
    krouter.idle()
    told = {v["entry"].partition(":")[0]: v["outcome"] for v in voice_list(krouter)}
    assert told["one/i"] == "called off"
    [step] = [s for s in krouter.last_route["steps"] if s["model"].startswith("i:")]
    assert step["outcome"] == "called off"


def test_closing_ends_what_late_calls_leave_behind(start: Start, upstream: Upstream) -> None:
    slow = {"models": ["one/x:gate=g", "two/y:gate=g"], "strategy": "fusion"}
    krouter = fusion(
        start,
        *FIRST,
        "slow",
        judge="one/j",
        combos={"slow": slow},
        fusionTuning={"stragglerGraceMs": 0},
    )
    assert while_late(krouter, upstream, "g", 2).status_code == 200
    asyncio.run_coroutine_threadsafe(krouter.router.close(), krouter.loop).result(10)
    assert all(each.closed.wait(10) for each in [*to(upstream, "x"), *to(upstream, "y")])
    krouter.idle()


@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_reply_before_a_fusion_that_fails_is_not_the_answer(
    start: Start, stream: bool
) -> None:
    inner = {"models": ["one/a:status=500", "two/b:status=500"], "strategy": "fusion"}
    krouter = start("two/z:empty=text", "inner", combos={"inner": inner}, accounts=ACCOUNTS)
    krouter.write_combo("daily", {"models": ["two/z:empty=text", "inner"], "streamGuard": "first"})
    assert krouter.chat("daily", stream=stream).status_code in (200, 503)
    if not stream:
        assert krouter.chat("daily").status_code == 503


@pytest.mark.parametrize("dialect", ["messages", "gemini"])
def test_where_the_turns_are_joined_already_nobody_is_asked_again(
    start: Start, upstream: Upstream, dialect: str
) -> None:
    message = "Conversation%20roles%20must%20alternate%20user/assistant/user/assistant/..."
    krouter = fusion(start, "one/a", "two/b", judge=f"one/j:status=400;message={message}")
    assert krouter.ask(dialect, "daily").status_code == 400
    assert len(judged(upstream)) == 1


def test_two_fusions_of_one_request_share_no_key(start: Start, upstream: Upstream) -> None:
    inner = {"models": ["one/a:status=500", "one/b:status=500"], "strategy": "fusion"}
    krouter = start("x", "y", combos={"x": inner, "y": inner}, accounts=ACCOUNTS)
    krouter.chat("daily")
    keys = [each.header["idempotency-key"] for each in upstream.requests]
    assert len(set(keys)) == len(keys) == 4


# Accounts that several of one fusion share


def test_one_request_probes_with_all_its_voices(start: Start, upstream: Upstream) -> None:
    upstream.script("a", ["status=401", "text=A"])
    krouter = fusion(start, "one/a", "one/b", "one/c", judge="two/j", accounts=ACCOUNTS)
    krouter.chat("daily")
    krouter.clock.forward(10_000)
    upstream.clear()
    assert krouter.chat("daily").status_code == 200
    assert [v["outcome"] for v in voice_list(krouter)] == ["answered"] * 4


@pytest.mark.parametrize("status", [401, 402, 403, 429])
def test_a_lock_of_the_panel_does_not_stop_the_judge(
    start: Start, upstream: Upstream, status: int
) -> None:
    krouter = fusion(start, "one/a", "one/b", f"one/c:status={status}", judge="one/j:text=J")
    assert krouter.chat("daily").json()["choices"][0]["message"]["content"] == "J"
    assert len(judged(upstream)) == 1


def test_a_lock_of_the_panel_does_not_stop_whoever_is_asked_again(
    start: Start, upstream: Upstream
) -> None:
    upstream.script("a", ["status=429", "text=A"])
    krouter = fusion(start, "one/a", "one/a")
    assert krouter.chat("daily").json()["choices"][0]["message"]["content"] == "A"
    assert voices(krouter)[-1] == "again one/a: answered"


def test_an_account_that_has_answered_nothing_stays_locked(start: Start) -> None:
    krouter = fusion(start, "two/a", "two/b", "one/c:status=401", judge="one/j")
    reply = krouter.chat("daily")
    assert reply.status_code == 401
    assert "locked" in reply.json()["error"]["message"]


def test_a_late_call_gives_way_to_the_judge(start: Start, upstream: Upstream) -> None:
    narrow = 'name = "x"\nmax_concurrent = 1\n'
    settings, env = provider_settings(upstream.url, one="a", two="x")
    krouter = start(
        "one/a:gate=first",
        "one/b:gate=first",
        "two/c:gate=late",
        strategy="fusion",
        judge="two/j:text=J",
        accounts={},
        settings=settings.replace('name = "x"\n', narrow),
        env=env,
        fusionTuning={"stragglerGraceMs": 0},
    )
    reply = while_late(krouter, upstream, "late")
    assert reply.json()["choices"][0]["message"]["content"] == "J"
    assert to(upstream, "c")[0].closed.wait(10)
    krouter.idle()
    [step] = [s for s in krouter.last_route["steps"] if s.get("model", "").startswith("c:")]
    assert step["outcome"] == "called off"


# What the caller is told


def test_an_entry_without_an_account_says_what_to_set(start: Start) -> None:
    krouter = fusion(start, "openai/gpt-5", "anthropic/claude-sonnet-4-5")
    message = krouter.chat("daily").json()["error"]["message"]
    assert "openai/gpt-5: no account (set OPENAI_API_KEY)" in message
    assert "anthropic/claude-sonnet-4-5: no account (set " in message


def test_a_panel_that_was_too_slow_may_be_asked_again(start: Start, upstream: Upstream) -> None:
    krouter = fusion(
        start,
        "one/a:stall",
        "two/b:stall",
        leaps=True,
        fusionTuning={"panelHardTimeoutMs": 5000, "lateCalls": "cancel"},
    )
    reply = krouter.chat("daily")
    assert reply.headers["retry-after"] == "1"
    assert "x-should-retry" not in reply.headers


@pytest.mark.parametrize("text", ["\u200b", "\ufeff\u2060", " \n"])
def test_what_nobody_can_see_is_no_answer(start: Start, upstream: Upstream, text: str) -> None:
    upstream.script("a", [f"text={quote(text)}"])
    krouter = fusion(start, "one/a", "two/b:text=Beta", judge="one/j")
    krouter.chat("daily")
    assert voices(krouter) == [
        "panel one/a: no text",
        "panel two/b: answered",
        "again two/b: answered",
    ]


def test_copies_do_not_wish_for_events(start: Start, upstream: Upstream) -> None:
    krouter = fusion(start, "one/a", "two/b", judge="one/j")
    body = {"model": "daily", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    krouter.http.post("/v1/chat/completions", json=body, headers={"accept": "text/event-stream"})
    accepts = {each.model[0]: each.header.get("accept") for each in upstream.requests}
    assert (accepts["j"], accepts["a"]) == ("text/event-stream", None)


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_that_quotes_the_panel_is_told_without_that(
    start: Start, upstream: Upstream, stream: bool
) -> None:
    secret = "the panel said exactly this to the judge"
    said = quote(f"Invalid prompt: {secret}, which is refused")
    upstream.script("a", [f"text={quote(secret)}"])
    krouter = fusion(start, "one/a", "two/b", judge=f"one/j:status=400;message={said};code=odd")
    reply = krouter.chat("daily", stream=stream)
    assert reply.status_code == 400
    message = reply.json()["error"]["message"]
    assert message.startswith("Invalid prompt: ")
    assert "which is refused" in message
    assert secret not in reply.text


@pytest.mark.parametrize("judge", ["openai/gpt-5", "gone/x", "judges"])
def test_a_judge_that_cannot_be_asked_costs_nothing(
    start: Start, upstream: Upstream, judge: str
) -> None:
    judges = {"models": ["openai/gpt-5", "gone/x"]}
    krouter = fusion(start, judge=judge, combos={"judges": judges})
    reply = krouter.chat("daily")
    assert reply.status_code == 503
    message = reply.json()["error"]["message"]
    assert message.startswith("The judge of 'daily' cannot be asked, so the panel was not: ")
    assert ("set OPENAI_API_KEY" in message) == (judge != "gone/x")
    assert reply.headers["x-should-retry"] == "false"
    assert not upstream.requests
    assert krouter.last_route["outcome"] == "nothing could be sent"


def test_the_best_needs_no_judge(start: Start) -> None:
    krouter = fusion(start, judge="openai/gpt-5", fusionTuning={"onJudgeFailure": "best"})
    assert krouter.chat("daily").json()["choices"][0]["message"]["content"] in ("Alpha", "Gamma")
