"""`streamGuard`: how much of a stream is held back, and what becomes of one that goes wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.harness import Krouter, provider_settings
from tests.test_walk_streams import Caller, events
from tests.upstream import Upstream

DIALECTS = ("chat", "messages")
PATIENT, SHORT = {"stall": 20}, {"stall": 0.2}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def guarded(guard: str, *models: str, **more: Any) -> dict[str, Any]:
    return {"models": list(models), "streamGuard": guard, "timeouts": PATIENT, **more}


COMBOS = {
    **{guard: guarded(guard, "one/m", "two/good") for guard in ("off", "first", "full")},
    **{f"last-{guard}": guarded(guard, "one/m") for guard in ("off", "first", "full")},
    **{
        f"{name}-short": guarded(guard, *models, timeouts=SHORT)
        for guard in ("off", "first", "full")
        for name, models in ((guard, ("one/m", "two/good")), (f"last-{guard}", ("one/m",)))
    },
    "nested-full": {"models": ["last-full", "two/good"]},
    "nested-off": guarded("full", "last-off", "two/good"),
    "spent": guarded("first", "one/m", "none/x"),
    "token": guarded("full", "one/m", "two/good", timeouts={"firstToken": 0.2}),
    "entry": guarded("full", {"model": "one/m", "timeouts": {"total": 0.2}}, "two/good"),
    "total": guarded("full", "one/m", "two/good", timeouts={"total": 0.2}),
}


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    settings, env = provider_settings(upstream.url, one="a", two="x")
    home = tmp_path_factory.mktemp("home")
    with Krouter(home, combos=COMBOS, settings=settings, env=env) as krouter:
        yield krouter


@pytest.fixture
def krouter(served: Krouter, upstream: Upstream) -> Krouter:
    upstream.clear()
    served.forget()
    served.router.routes.clear()
    return served


class Case(NamedTuple):
    """What a stream does, and under which guards another entry answers in its place."""

    does: str
    guards: str
    row: int
    only: str = ""


CASES = (
    Case("ok", "", 0),
    Case("thinking=only", "", 0),
    Case("tool=weather;args={}", "", 0),
    Case("error=0;status=529", "off first full", 9),
    Case("end=0", "off first full", 10),
    Case("error=1;status=529", "first full", 9),
    Case("close=1", "first full", 10),
    Case("reset=1;half", "first full", 10),
    Case("end=1", "first full", 10),
    Case("stall=1", "first full", 11),
    Case("empty=done", "first full", 15),
    Case("close=4", "full", 10),
    Case("reset=4;half", "full", 10),
    Case("end=4", "full", 10),
    Case("stall=4", "full", 11),
    Case("error=4;status=529", "full", 9),
    Case("no=finish", "full", 10),
    Case("no=done", "full", 10, "messages"),
    Case("no=done", "", 0, "chat"),
)


def cases() -> list[Any]:
    return [
        pytest.param(case, guard, dialect, id=f"{case.does}-{guard}-{dialect}")
        for case in CASES
        for guard in ("off", "first", "full")
        for dialect in DIALECTS
        if case.only in ("", dialect)
    ]


def _short(does: str) -> str:
    """Which combos to ask where the silence must be waited for."""
    return "-short" if does.startswith("stall") else ""


def tell(dialect: str, reply: httpx.Response) -> str:
    """How a stream ends for the caller."""
    if reply.status_code != 200:
        return str(reply.status_code)
    last = events(reply.text)[-1][1]
    end = "[DONE]" if dialect == "chat" else '{"type":"message_stop"}'
    return "complete" if last == end else "error" if "error" in json.loads(last) else "open"


@pytest.mark.parametrize(("case", "guard", "dialect"), cases())
def test_what_goes_wrong_before_the_caller_has_anything_falls_over(
    krouter: Krouter, upstream: Upstream, case: Case, guard: str, dialect: str
) -> None:
    upstream.script("m", [case.does])
    reply = krouter.ask(dialect, guard + _short(case.does), True)
    krouter.idle()
    falls_over = guard in case.guards.split()
    assert reply.headers["x-krouter-model"] == ("two/good" if falls_over else "one/m")
    fine = falls_over or not case.guards or case.row == 15
    assert tell(dialect, reply) == ("complete" if fine else "error")
    first = krouter.last_route["steps"][0]
    assert first["row"] == (case.row if falls_over or not fine else None)
    assert krouter.router.world.board.in_flight == 0


@pytest.mark.parametrize("guard", ["first", "full"])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("does", "ends"),
    [
        ("empty=done", "complete"),
        ("close=1", "502"),
        ("stall=1", "504"),
        ("error=1;status=529;type=overloaded_error", "529"),
        ("ok", "complete"),
    ],
)
def test_the_last_entry(
    krouter: Krouter, upstream: Upstream, guard: str, dialect: str, does: str, ends: str
) -> None:
    """Its empty stream is passed on as it came; what broke before the caller had anything is an
    error status."""
    upstream.script("m", [does])
    reply = krouter.ask(dialect, f"last-{guard}{_short(does)}", True)
    krouter.idle()
    assert tell(dialect, reply) == ends
    assert krouter.last_route["status"] == reply.status_code


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("guard", "ends"), [("first", "error"), ("full", "502")])
def test_a_cut_of_the_last_entry_after_its_first_content(
    krouter: Krouter, upstream: Upstream, guard: str, dialect: str, ends: str
) -> None:
    upstream.script("m", ["close=4"])
    assert tell(dialect, krouter.ask(dialect, f"last-{guard}", True)) == ends


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_empty_stream_is_passed_on_when_nothing_after_it_can_be_sent(
    krouter: Krouter, upstream: Upstream, dialect: str
) -> None:
    upstream.script("m", ["empty=done"])
    reply = krouter.ask(dialect, "spent", True)
    krouter.idle()
    assert tell(dialect, reply) == "complete"
    assert reply.headers["x-krouter-model"] == "one/m"
    assert krouter.last_route["outcome"] == "empty reply"


@pytest.mark.parametrize(("combo", "by"), [("nested-full", "two/good"), ("nested-off", "one/m")])
def test_the_guard_of_the_innermost_combo_counts(
    krouter: Krouter, upstream: Upstream, combo: str, by: str
) -> None:
    upstream.script("m", ["close=4"])
    assert krouter.chat(combo, True).headers["x-krouter-model"] == by


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("shape", ["crlf", "multiline", "tight", "comments", "bom"])
@pytest.mark.parametrize("guard", ["first", "full"])
def test_what_is_replayed_is_byte_for_byte_what_came(
    krouter: Krouter, upstream: Upstream, dialect: str, shape: str, guard: str
) -> None:
    options = {"stream_options": {"include_usage": True}} if dialect == "chat" else {}
    texts = []
    for combo in ("off", guard):
        upstream.clear()
        upstream.script("m", [f"sse={shape};split=7;usage=11,5;text=the same"])
        texts.append(krouter.ask(dialect, combo, True, **options).content)
    assert _without_ids(texts[0]) == _without_ids(texts[1])


def _without_ids(raw: bytes) -> bytes:
    """The provider of the tests numbers its replies."""
    raw = re.sub(rb'(chatcmpl|msg)[-_]\w+|"created":(\s|data:)*\d+', b"ID", raw)
    return re.sub(rb'"(first|full|off)"', b'"COMBO"', raw)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("combo", ["first", "full"])
def test_a_caller_that_leaves_while_a_stream_is_held(
    krouter: Krouter, upstream: Upstream, dialect: str, combo: str
) -> None:
    upstream.script("m", ["gate=more,1"])
    caller = Caller(krouter, dialect, combo)
    assert upstream.gate("more").reached.wait(30)
    caller.leave()
    assert upstream.requests[0].closed.wait(1)
    krouter.idle()
    assert krouter.last_route["outcome"] == "caller gone"
    assert krouter.locks() == {}
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("combo", "does", "by", "row"),
    [
        ("token", "gate=never,1", "two/good", 11),
        ("token", "slow-each=0.1", "one/m", None),  # a token in time, then more than the limit
        ("entry", "gate=never,3", "two/good", 11),
        ("total", "gate=never,3", None, 11),
    ],
)
def test_time_limits_under_a_guard(
    krouter: Krouter, upstream: Upstream, combo: str, does: str, by: str | None, row: int | None
) -> None:
    upstream.script("m", [does])
    reply = krouter.chat(combo, True)
    krouter.idle()
    assert reply.headers.get("x-krouter-model") == by
    assert reply.status_code == (200 if by else 504)
    assert krouter.last_route["steps"][0]["row"] == row


def test_tokens_of_a_held_stream_that_broke_are_booked(
    krouter: Krouter, upstream: Upstream
) -> None:
    upstream.script("m", ["usage=77,1;close=4"])
    krouter.messages("full", True)
    krouter.idle()
    first, second = krouter.router.routes[-1].attempts
    assert first.usage is not None
    assert first.usage.input == 77
    assert (first.seen, second.seen) == (False, True)
