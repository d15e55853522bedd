from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from krouter import virtual
from krouter.body import Body
from krouter.dialects import get
from krouter.dialects.base import Tracker
from krouter.errors import Fault
from krouter.stream import DRAIN_SECONDS, LAST_WORDS_SECONDS, MOST_IDLE, Relay, Watchdog
from krouter.wire import Headers, WireError

T = TypeVar("T")


class Jump(selectors.SelectSelector):
    """Waits for nothing: time passes at once."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing is left to wait for")
        if not ready:
            self.now += max(timeout or 0.0, 1e-6)
        return ready


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(main)


def now() -> float:
    return asyncio.get_running_loop().time()


class Reply:
    """A reply whose body is bytes, seconds of silence and errors, in turn."""

    def __init__(self, *steps: bytes | float | Exception, end: bytes = b"") -> None:
        self.end = end
        self.status = 200
        self.headers: Headers = []
        self.left = list(steps)
        self.closed = False
        self.cancelled = 0

    async def chunk(self) -> bytes:
        while self.left:
            step = self.left.pop(0)
            if isinstance(step, bytes):
                return step
            if isinstance(step, Exception):
                raise step
            await self._wait(step)
        return b""

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def read(self, limit: int) -> bytes:
        raise NotImplementedError

    def ending(self) -> bytes:
        return self.end

    def close(self) -> None:
        self.closed = True


FOREVER = 1e9
CHAT = get("chat")
HI = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"key sk-1 is bad"}}\n\n'


def tracker() -> Tracker:
    return CHAT.tracker(Body.parse(b'{"model":"m","messages":[]}'), None)


def relay(reply: Reply, stall: float | None = 60, secret: str | None = None) -> Relay:
    made = Relay(reply, tracker(), stall, secret)
    made.closing = lambda: b"<end>"
    return made


async def rest(relay: Relay) -> list[bytes]:
    pieces = []
    while piece := await relay.next():
        pieces.append(piece)
    return pieces


async def prime(
    relay: Relay, until: Callable[[Tracker], bool] = lambda tracker: tracker.started
) -> int:
    """How often the first byte was told of."""
    told: list[None] = []
    await relay.prime(lambda: told.append(None), until)
    return len(told)


class Silence(Exception):
    """A watchdog has ended a wait."""


async def wait(watchdog: Watchdog, reply: Reply) -> bytes:
    watchdog.begin()
    try:
        return await reply.chunk()
    except asyncio.CancelledError:
        if watchdog.bit():
            raise Silence from None
        raise
    finally:
        watchdog.end()


async def wait_each(watchdog: Watchdog, *waits: float) -> None:
    for seconds in waits:
        assert await wait(watchdog, Reply(seconds, b"x")) == b"x"


def test_only_silence_within_a_wait_counts() -> None:
    async def test() -> None:
        watchdog = Watchdog(10)
        await wait_each(watchdog, 0, 9.9, 9.9, 9.9, 0)
        await asyncio.sleep(50)
        await wait_each(watchdog, 9.9, 5, 9.9)
        watchdog.stop()

    run(test())


@pytest.mark.parametrize("before", [(), (9,), (5, 9.5), (0, 0, 1)])
def test_silence_ends_a_wait_on_time(before: tuple[float, ...]) -> None:
    async def test() -> None:
        watchdog = Watchdog(10)
        await wait_each(watchdog, *before)
        began = now()
        with pytest.raises(Silence):
            await wait(watchdog, Reply(FOREVER))
        assert now() - began == pytest.approx(10, abs=1e-4)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(test())


class Sparing(virtual.VirtualLoop):
    """Has few timers to give."""

    left = 20

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, **more: Any) -> Any:
        self.left -= 1
        assert self.left, "a timer is set again and again"
        return super().call_at(when, callback, *args, **more)


@pytest.mark.parametrize("before", [5.6, 11.64936786941121, 1e6 / 3])
@pytest.mark.parametrize("seconds", [60, 10.1, 0.3])
def test_a_silence_ends_where_its_end_is_rounded_down(before: float, seconds: float) -> None:
    async def test() -> None:
        await asyncio.sleep(before)
        with pytest.raises(Silence):
            async with asyncio.timeout(seconds + 1):
                await wait(Watchdog(seconds), Reply(FOREVER))

    with asyncio.Runner(loop_factory=Sparing) as runner:
        runner.run(test())


def test_a_watchdog_without_a_limit_lets_wait() -> None:
    async def test() -> None:
        await wait_each(Watchdog(None), 1e6)

    run(test())


def test_the_callers_cancellation_is_not_silence() -> None:
    async def test() -> None:
        reply = Reply(FOREVER)
        waiting = asyncio.create_task(wait(Watchdog(60), reply))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (waiting.cancelled(), reply.cancelled) == (True, 1)

    run(test())


def test_the_callers_cancellation_wins_over_silence_at_the_same_moment() -> None:
    async def test() -> None:
        waiting = asyncio.create_task(wait(Watchdog(10), Reply(FOREVER)))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_at(now() + 10, waiting.cancel)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(test())


def test_a_timeout_around_a_wait_is_not_silence() -> None:
    async def test() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await wait(Watchdog(10), Reply(FOREVER))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await wait(Watchdog(10), Reply(FOREVER))

    run(test())


def test_a_stopped_watchdog_cancels_nobody() -> None:
    async def test() -> None:
        watchdog = Watchdog(10)
        await wait_each(watchdog, 1)
        watchdog.stop()
        watchdog.stop()
        await asyncio.sleep(100)

    run(test())


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_stream_passes_byte_for_byte(size: int) -> None:
    async def test() -> None:
        raw = b": a\n\n" + HI + HI + STOP + b": b\r\n\r\n" + DONE
        live = relay(Reply(*(raw[i : i + size] for i in range(0, len(raw), size))))
        assert await prime(live) == 1
        assert b"".join(await rest(live)) == raw + b"<end>"
        assert (live.over, live.broken, live.fault) == (True, False, None)
        live.close()

    run(test())


def test_priming_waits_for_an_event_and_keeps_what_came_before() -> None:
    async def test() -> None:
        reply = Reply(b": a\n\n", 5.0, b": b\n\n", 5.0, HI, STOP)
        live = relay(reply)
        assert await prime(live) == 1
        assert reply.left == [STOP]
        assert await live.next() == b": a\n\n: b\n\n" + HI

    run(test())


def test_silence_before_the_first_byte_is_not_this_watchdogs() -> None:
    async def test() -> None:
        live = relay(Reply(1000.0, HI, STOP), stall=10)
        assert await prime(live) == 1
        assert (live.primed, live.fault) == (True, None)

    run(test())


@pytest.mark.parametrize(
    ("tail", "passed"), [(DONE[:-2], True), (STOP[:-1], True), (STOP[:-9], False), (b": c", False)]
)
def test_an_event_without_its_blank_line_passes_if_it_is_whole(tail: bytes, passed: bool) -> None:
    async def test() -> None:
        live = relay(Reply(HI, STOP, tail))
        await prime(live)
        out = b"".join(await rest(live)).removesuffix(b"<end>")
        assert out == HI + STOP + (tail.rstrip() + b"\n\n" if passed else b"")

    run(test())


def test_priming_until_content() -> None:
    async def test() -> None:
        role = b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'
        reply = Reply(role, HI, STOP)
        live = relay(reply)
        await prime(live, lambda tracker: tracker.has_content)
        assert reply.left == [STOP]
        assert await live.next() == role + HI

    run(test())


@pytest.mark.parametrize("most", [len(HI) * 2, 1 << 20])
def test_a_stream_is_held_until_it_is_over_or_too_large(most: int) -> None:
    async def test() -> None:
        reply = Reply(*[HI] * 5, STOP)
        live = relay(reply)
        await prime(live)
        assert await live.hold(most) is (most > len(HI) * 5)
        assert len(reply.left) == (0 if most > len(HI) * 5 else 3)
        assert b"".join(await rest(live)) == HI * 5 + STOP + b"<end>"

    run(test())


@pytest.mark.parametrize(
    ("steps", "fault", "broken"),
    [
        ((HI, STOP + DONE), None, False),
        ((HI, STOP), None, False),
        ((HI, STOP, WireError(Fault.CUT)), Fault.CUT, False),
        ((HI, HI), None, True),
        ((HI, FOREVER), Fault.TIMEOUT, True),
        ((HI, WireError(Fault.CUT)), Fault.CUT, True),
    ],
)
def test_a_held_stream_is_known_to_be_whole_or_not(
    steps: tuple[Any, ...], fault: Fault | None, broken: bool
) -> None:
    async def test() -> None:
        live = relay(Reply(*steps))
        await prime(live)
        assert await live.hold() is True
        assert (live.fault, live.broken) == (fault, broken)

    run(test())


def test_what_has_come_can_be_taken_after_close() -> None:
    async def test() -> None:
        reply = Reply(HI, STOP)
        live = relay(reply)
        await prime(live)
        await live.hold()
        live.close()
        await live.drain()
        assert await rest(live) == [HI + STOP, b"<end>"]

    run(test())


@pytest.mark.parametrize("body", [b'{"a":1}', b'{\n\n"a": 1\n}', b"", b"<p>\r\n\r\n</p>"])
@pytest.mark.parametrize("size", [1, 100])
def test_a_body_without_events_is_kept(body: bytes, size: int) -> None:
    async def test() -> None:
        live = relay(Reply(*(body[i : i + size] for i in range(0, len(body), size))))
        await prime(live)
        assert live.primed is False
        assert live.body.rstrip(b"\n") == body

    run(test())


def test_comments_while_waiting_are_bounded() -> None:
    async def test() -> None:
        comment = b":" + b"x" * 1021 + b"\n\n"
        live = relay(Reply(*([comment, 1.0] * 1000), HI, comment, STOP))
        await prime(live)
        first = await live.next()
        assert first == comment * (MOST_IDLE // 1024) + HI
        assert await live.next() == comment

    run(test())


@pytest.mark.parametrize(
    ("steps", "fault", "out"),
    [
        ((WireError(Fault.CUT, "gone"),), Fault.CUT, []),
        ((b": a\n\n", FOREVER), Fault.TIMEOUT, [b": a\n\n"]),
        ((), None, []),
        ((b": a\n\n",), None, [b": a\n\n"]),
        ((HI, WireError(Fault.CUT, "gone")), Fault.CUT, [HI]),
        ((HI + HI[:9], WireError(Fault.CUT, "gone")), Fault.CUT, [HI]),
        ((HI, 59.0, HI, FOREVER), Fault.TIMEOUT, [HI, HI]),
        ((HI, HI[:9]), None, [HI]),
        ((HI, b"data: " + b"x" * (65 << 20)), Fault.GARBAGE, [HI]),
    ],
)
def test_a_broken_stream_ends_with_what_closing_says(
    steps: tuple[bytes | float | Exception, ...], fault: Fault | None, out: list[bytes]
) -> None:
    async def test() -> None:
        live = relay(Reply(*steps))
        await prime(live)
        assert await rest(live) == [*out, b"<end>"]
        assert (live.fault, live.broken, await live.next()) == (fault, True, b"")

    run(test())


@pytest.mark.parametrize(
    "steps", [(HI, STOP, WireError(Fault.CUT)), (HI, STOP, FOREVER), (HI, STOP), (HI, STOP + DONE)]
)
def test_a_stream_with_its_proper_end_is_not_broken(steps: tuple[Any, ...]) -> None:
    async def test() -> None:
        live = relay(Reply(*steps))
        await prime(live)
        assert (await rest(live))[-1] == b"<end>"
        assert (live.over, live.broken) == (True, False)

    run(test())


def test_nothing_is_passed_after_the_end() -> None:
    async def test() -> None:
        live = relay(Reply(HI + STOP + DONE + HI, HI))
        await prime(live)
        assert await rest(live) == [HI + STOP + DONE, b"<end>"]

    run(test())


def test_the_providers_own_error_passes_without_the_credential() -> None:
    async def test() -> None:
        live = relay(Reply(HI, ERROR), secret="sk-1")
        await prime(live)
        assert await rest(live) == [HI, ERROR.replace(b"sk-1", b"[credential]"), b"<end>"]
        assert (live.over, live.broken) == (True, False)

    run(test())


def test_a_caller_that_leaves_is_seen_in_next() -> None:
    async def test() -> None:
        live = relay(Reply(HI, FOREVER))
        await prime(live)
        reading = asyncio.create_task(rest(live))
        await asyncio.sleep(1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert live.fault is None

    run(test())


@pytest.mark.parametrize(
    ("after", "waited", "left"),
    [((), 0, 0), ((0.1, b"more", 0.1), 0.2, 0), ((FOREVER, b"x"), DRAIN_SECONDS, 1)],
)
def test_drain_waits_a_bounded_moment_for_the_end(
    after: tuple[Any, ...], waited: float, left: int
) -> None:
    async def test() -> None:
        reply = Reply(HI + STOP + DONE, *after)
        live = relay(reply)
        await prime(live)
        await rest(live)
        began = now()
        await live.drain()
        assert now() - began == pytest.approx(waited, abs=1e-4)
        assert len(reply.left) == left
        live.close()
        assert reply.closed

    run(test())


def test_drain_of_an_endless_reply_is_bounded() -> None:
    async def test() -> None:
        reply = Reply(HI + STOP + DONE, *([0.2, b"x"] * 100))
        live = relay(reply)
        await prime(live)
        await rest(live)
        began = now()
        await live.drain()
        assert now() - began == pytest.approx(DRAIN_SECONDS, abs=1e-4)

    run(test())


@pytest.mark.parametrize("error", [WireError(Fault.CUT), None])
def test_drain_asks_nothing_of_a_reply_that_broke_or_ended(error: Exception | None) -> None:
    async def test() -> None:
        reply = Reply(HI, *([error] if error else []))
        live = relay(reply)
        await prime(live)
        await rest(live)
        reply.left = [FOREVER]
        await live.drain()
        assert reply.left == [FOREVER]

    run(test())


def test_an_error_while_draining_is_nobodys_concern() -> None:
    async def test() -> None:
        live = relay(Reply(HI + STOP + DONE, WireError(Fault.CUT)))
        await prime(live)
        await rest(live)
        await live.drain()

    run(test())


def test_a_cancelled_drain_is_cancelled() -> None:
    async def test() -> None:
        live = relay(Reply(HI + STOP + DONE, FOREVER))
        await prime(live)
        await rest(live)
        draining = asyncio.create_task(live.drain())
        await asyncio.sleep(0.1)
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining

    run(test())


CREATED = b'event: response.created\ndata: {"type":"response.created","response":{}}\n\n'
FAULT = b'event: error\ndata: {"type":"error","message":"key sk-1 is bad"}\n\n'
FAILED = b'event: response.failed\ndata: {"type":"response.failed","response":{}}\n\n'


@pytest.mark.parametrize(
    ("after", "waited", "own"),
    [((FAILED, FOREVER), 0.0, True), ((FOREVER,), LAST_WORDS_SECONDS, False), ((), 0.0, False)],
)
def test_the_last_words_after_an_error(
    after: tuple[bytes | float, ...], waited: float, own: bool
) -> None:
    """Those of the provider, or soon krouter's, without a credential in them."""
    responses = get("responses")

    async def main() -> None:
        follows = responses.tracker(Body.parse(b'{"model":"m","input":"hi"}'), None)
        live = Relay(Reply(CREATED, FAULT, *after), follows, 60, "sk-1")
        live.closing = lambda: responses.ending(follows)
        begun = now()
        told = b"".join(await rest(live))
        assert now() - begun == pytest.approx(waited, abs=0.01)
        assert told.count(b"event: response.failed") == 1
        assert told.endswith(FAILED) is own
        assert b"key [credential] is bad" in told
        assert b"sk-1" not in told
        assert not live.broken

    run(main())


PING = b"event: ping\ndata: {}\n\n"


def dripping(content: bytes, seconds: float) -> list[bytes | float | Exception]:
    """A byte every so many seconds."""
    return [step for at in range(len(content)) for step in (content[at : at + 1], seconds)]


def test_a_byte_a_second_is_silence() -> None:
    async def test() -> None:
        live = relay(Reply(HI, *dripping(HI * 9, 1.0)), stall=30)
        await prime(live)
        began = now()
        assert await rest(live) == [HI, b"<end>"]
        assert (live.fault, live.detail) == (Fault.TIMEOUT, "the provider fell silent")
        assert 29 <= now() - began <= 31

    run(test())


def test_a_large_event_may_come_slowly() -> None:
    event = HI.replace(b"hi", b"x" * 65536)
    parts = [step for at in range(0, len(event), 600) for step in (event[at : at + 600], 10.0)]

    async def test() -> None:
        live = relay(Reply(HI, *parts, STOP, DONE), stall=30)
        await prime(live)
        assert await rest(live) == [HI, event, STOP, DONE, b"<end>"]
        assert live.fault is None

    run(test())


def test_an_event_each_time_is_no_silence_however_small() -> None:
    async def test() -> None:
        steps = [step for _ in range(99) for step in (HI, 29.0)]
        live = relay(Reply(*steps, STOP, DONE), stall=30)
        await prime(live)
        assert len(await rest(live)) == 102
        assert live.fault is None

    run(test())


@pytest.mark.parametrize("sign", [b": still here\n\n", PING, b":\n\n" + PING])
def test_signs_of_life_without_end_are_none(sign: bytes) -> None:
    async def test() -> None:
        signs = [step for _ in range(999) for step in (sign, 5.0)]
        live = Relay(Reply(HI, *signs[:200], HI, *signs), tracker(), 30, quiet=600)
        await prime(live)
        began = now()
        assert await rest(live)
        assert (live.fault, live.detail) == (
            Fault.TIMEOUT,
            "the provider sends nothing but signs of life",
        )
        assert 1100 <= now() - began <= 1110

    run(test())
