"""Ten thousand streams gone wrong at random: never a false stop, a hang or a traceback, and what is
whole is passed on byte for byte."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from krouter_adapters.litellm_lane.reply import received
from krouter_adapters.litellm_lane.telling import Shape
from krouter_adapters.litellm_lane.translate.responses_shapes import Told, echo_of
from krouter_adapters.litellm_lane.ways import Aim

from krouter.adapter import Call, Target
from krouter.answer import Answer
from krouter.board import Board
from krouter.body import Body
from krouter.combos import StreamGuard
from krouter.combostore import ComboStore, GivenCombos
from krouter.dialects import get
from krouter.load import House
from krouter.paths import resolve_paths
from krouter.providers import Provider
from krouter.settings import parse_settings
from krouter.sse import Event, Splitter
from krouter.wire import HttpWire, Incoming, Wire
from tests.harness import Krouter, provider_settings
from tests.serve.fuzzing import SPOKEN, FakeReply, Sent, sent, split, told
from tests.upstream import Upstream
from tests.upstream.script import Behaviour, Break

COUNT = 10_000
PAIRS = [(caller, provider) for caller in SPOKEN for provider in SPOKEN]
GUARDS: tuple[StreamGuard, ...] = ("off", "first", "full")
COMBOS = {
    f"{guard}{more}": {"models": ["one/m", "two/good"][: 1 + more], "streamGuard": guard}
    for guard in GUARDS
    for more in (0, 1)
}
SERVED = '[routing]\nreply_model = "served"\n'
SETTINGS, ENV = provider_settings("http://127.0.0.1:9", one="a", two="x")


TOLD = Told(echo=echo_of({}))


class Lane:
    """Gives `reply` for the first entry, and a good stream for the second."""

    name = "fuzzed"
    form: Any = "chat"
    reply: Incoming

    def speaks(self, provider: Provider, dialect: str) -> bool:
        return True

    async def ready(self) -> None: ...

    def warm_up(self) -> None: ...

    async def send(self, call: Call, target: Target, wire: Wire) -> Incoming:
        if target.model == "good":
            raw = b"".join(SPOKEN[call.dialect.name].events(Random(1)))
            return FakeReply([raw], None, "text/event-stream")
        shape = Shape(Aim("custom_openai", "http://127.0.0.1:9", self.form), "m", {}, (), told=TOLD)
        return received(self.reply, call, shape)


def call(dialect: str, model: str) -> Call:
    body = {"model": model, "messages": [], "stream": True, "max_tokens": 9}
    raw = json.dumps({**body, "stream_options": {"include_usage": True}}).encode()
    return Call(get(dialect), Body.parse(raw), [], model, True)


async def taken(answer: Answer) -> bytes:
    out = answer.body
    if answer.relay is not None:
        while piece := await answer.relay.next():
            out += piece
    await answer.close()
    return out


class Fuzzed:
    """One stream, and what the caller got of it."""

    def __init__(self, caller: str, provider: str, guard: str, given: Sent, answer: Answer) -> None:
        self.caller, self.provider, self.guard = caller, provider, guard
        self.given, self.answer = given, answer
        self.native = caller == provider
        assert answer.route is not None
        self.by_first = answer.route.served == "one/m"

    def check(self, out: bytes) -> None:
        if self.answer.relay is None:
            assert self.answer.status >= 400
            assert json.loads(out)["error"]["message"]
            assert "1" not in self.guard, "a good entry was left"
            return
        last = [data for _, data in told(out[-9000:]) if data][-1]
        failed = tells_of_error(last)
        if not self.by_first:
            assert not failed
            return
        self._check_end(out, failed)
        if self.guard == "full1":
            assert not failed, "it could have fallen over"
        if self.native:
            self._check_bytes(out, failed)
        if not self.native or self.given.sound:
            heard = SPOKEN[self.caller].check(closed(out))
            assert heard.ending == ("error" if failed else "complete")

    def _check_end(self, out: bytes, failed: bool) -> None:
        """Whatever does not end with an error has its end from the provider."""
        if not failed:
            assert SPOKEN[self.caller].ended(out)
            assert SPOKEN[self.provider].ended(self.given.raw), "a false stop"
        assert not (failed and self.given.whole), "nothing was wrong"

    def _check_bytes(self, out: bytes, failed: bool) -> None:
        raw = self.given.raw
        if self.caller == "gemini":
            self._check_data(out)
            return
        if self.given.whole:
            assert out == raw
            return
        splitter = Splitter()
        events = splitter.feed(closed(out))
        assert not splitter.flush()
        if self.given.sound:  # cut: the beginning of what was sent, and then the end or an error
            passed = b"".join(event.raw for event in passed_on(events))
            assert raw.startswith(passed.rstrip(b"\r\n"))
            return
        for event in passed_on(events):
            assert event.raw in raw or event.raw.rstrip(b"\r\n") in raw

    def _check_data(self, out: bytes) -> None:
        """Of what Gemini's clients get, whose lines are always in Google's own form."""
        came = [data for _, data in told(self.given.raw) if data]
        got = [data for _, data in told(closed(out)) if data]
        if self.given.whole:
            assert all(map(is_googles, out.splitlines()))
            assert got == came
            assert out == self.given.raw or not all(map(is_googles, self.given.raw.splitlines()))
        elif self.given.sound:
            assert got[:-1] == came[: len(got) - 1]
        else:
            assert all(data in came for data in got[:-1])


def is_googles(line: bytes) -> bool:
    return not line or line.startswith(b"data: ")


def passed_on(events: list[Event]) -> list[Event]:
    """Less the last, which may be krouter's own; a response that failed takes up to three."""
    passed = events[:-1]
    if events and events[-1].name == b"response.failed":
        passed = passed[:-1] if passed and passed[-1].name == b"error" else passed
        passed = [] if [event.name for event in passed] == [b"response.created"] else passed
    return passed


def tells_of_error(last: Any) -> bool:
    if not isinstance(last, dict):
        return False
    return bool(last.get("error")) or last.get("type") in ("response.failed", "response.cancelled")


def closed(out: bytes) -> bytes:
    """A lone CR at the very end might be half of a line's end."""
    return out + b"\n" if out.endswith(b"\r") else out


def house(tmp_path: Path, lane: Lane) -> House:
    paths = resolve_paths(home=tmp_path, env=ENV, cwd=tmp_path)
    store, settings = GivenCombos(COMBOS, ComboStore([])), parse_settings(SERVED + SETTINGS, "")
    made = House(paths, ENV, HttpWire(), settings=settings, store=store, ledger=False)
    made.router.world = replace(made.router.world, lanes=(lane,))
    return made


def test_ten_thousand_streams(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    lane = Lane()
    made = house(tmp_path, lane)
    router = made.router

    async def test() -> None:
        dice = Random(20_128)
        for number in range(COUNT):
            caller, lane.form = PAIRS[number % len(PAIRS)]
            guard = dice.choice(list(COMBOS))
            given = sent(dice, lane.form)
            kind = dice.choice(("text/event-stream", "text/event-stream", "application/json"))
            router.world = replace(router.world, board=Board(time.time))  # without any locks
            lane.reply = FakeReply(split(dice, given.raw), given.end, kind)
            async with asyncio.timeout(5):
                answer = await router.answer(call(caller, guard))
                out = await taken(answer)
            try:
                Fuzzed(caller, lane.form, guard, given, answer).check(out)
            except Exception as error:
                error.add_note(f"{number}: {lane.form} to {caller}, {guard}: {given} gave {out!r}")
                raise
            assert router.world.board.in_flight == 0
            assert router.routes[-1].ended

    asyncio.run(test())
    assert not caplog.records


@pytest.mark.native_garbage("a provider that sends anything")
def test_over_sockets_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    dice = Random(7)
    with Upstream() as upstream:
        settings, env = provider_settings(upstream.url, one="a", two="x")
        with Krouter(tmp_path, combos=COMBOS, settings=SERVED + settings, env=env) as krouter:
            for number in range(200):
                dialect = dice.choice(list(SPOKEN))
                given = sent(dice, dialect)
                upstream.script("m", [behaviour(dice, given)])
                krouter.forget()
                reply = krouter.ask(dialect, dice.choice(list(COMBOS)), True)
                if reply.status_code != 200:
                    assert reply.json()["error"]["message"], number
                    continue
                last = [data for _, data in told(reply.content) if data][-1]
                failed = tells_of_error(last)
                assert failed or SPOKEN[dialect].ended(reply.content), number
                first = reply.headers["x-krouter-model"] == "one/m"
                assert failed or not first or SPOKEN[dialect].ended(given.raw), number
            krouter.idle()
            assert krouter.chat("demo/assistant", True).text.endswith("data: [DONE]\n\n")
    assert not caplog.records


def behaviour(dice: Random, given: Sent) -> Behaviour:
    """A provider that sends these bytes, and ends or breaks in the middle of them."""
    kind = dice.choice(("text/event-stream", "application/json"))
    broken = Break(dice.choice(("reset", "close", "end")), 1) if dice.random() < 0.3 else None
    headers = (("content-type", kind),)
    return Behaviour(
        body=given.raw, headers=headers, split=dice.choice((0, 50, 999)), broken=broken
    )
