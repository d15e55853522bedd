"""Which connection a request goes over, and how long one stays open."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from krouter.errors import Fault
from krouter.http_pool import KEPT, MOST_IDLE
from krouter.http_reply import HttpReply
from krouter.wire import HttpWire, Incoming
from tests.peers import (
    CHUNKED,
    HEAD,
    OK,
    Host,
    Peer,
    answer,
    ask,
    fault,
    get,
    run,
    run_in,
    serving,
    until,
)


class LeapingLoop(asyncio.SelectorEventLoop):
    """Whose time can be put forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def leap(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LeapingLoop)
    loop.ahead += seconds


def test_one_after_the_other_over_one_connection() -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK)
        async with serving(host) as url:
            assert [await answer(wire, url) for _ in range(5)] == [b"ok"] * 5
        assert host.asked == [0] * 5

    run(test)


def test_the_connection_used_last_is_used_first() -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK)
        async with serving(host) as url:
            await asyncio.gather(*(answer(wire, url) for _ in range(3)))
            assert wire.open == 3
            asked = host.asked[:]
            await answer(wire, url)
            await answer(wire, url)
            assert host.asked == [*asked, asked[-1], asked[-1]]

    run(test)


def test_each_place_has_connections_of_its_own() -> None:
    async def test(wire: HttpWire) -> None:
        hosts = Host(OK), Host(OK)
        async with serving(hosts[0]) as one, serving(hosts[1]) as other:
            for url in (one, other, one, other):
                await answer(wire, url)
        assert [host.asked for host in hosts] == [[0, 0], [0, 0]]

    run(test)


def test_idle_connections_are_closed_in_time() -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK)
        async with serving(host) as url:
            await asyncio.gather(answer(wire, url), answer(wire, url))
            leap(KEPT - 1)
            await answer(wire, url)
            assert (host.open, len(host.writers)) == (2, 2)
            leap(2)
            await until(lambda: host.open == 1)
            leap(KEPT - 4)
            await asyncio.sleep(0)
            assert wire.open == 1
            await answer(wire, url)
            leap(KEPT)
            await until(lambda: host.open == 0)
            await until(lambda: wire.open == 0)
            await answer(wire, url)

    run_in(LeapingLoop, test)


def test_a_busy_connection_is_not_idle() -> None:
    async def test(wire: HttpWire) -> None:
        peer = Peer(CHUNKED, b"0\r\n\r\n", end="keep")
        host = Host(OK)
        async with serving(peer) as url, serving(host) as other:
            reply = await ask(wire, url)
            await answer(wire, other)
            leap(2 * KEPT)
            await until(lambda: host.left)
            peer.go.release()
            assert await reply.read(9) == b"hello"

    run_in(LeapingLoop, test)


def test_so_many_stay_open_and_no_more() -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK)
        async with serving(host, backlog=MOST_IDLE + 9) as url:
            replies = await asyncio.gather(*(answer(wire, url) for _ in range(MOST_IDLE + 9)))
            assert replies == [b"ok"] * (MOST_IDLE + 9)
            await until(lambda: wire.open == MOST_IDLE)

    run_in(asyncio.new_event_loop, test, debug=False)


def test_a_connection_that_was_closed_meanwhile_is_not_used() -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK)
        async with serving(host) as url:
            await answer(wire, url)
            host.writers[0].close()
            await until(lambda: wire.open == 0)
            assert await answer(wire, url) == b"ok"
        assert host.asked == [0, 1]

    run(test)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
def test_nor_one_whose_end_the_loop_has_not_read_yet(said: bytes) -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK)
        async with serving(host) as url:
            await answer(wire, url)
            descriptor = host.writers[0].get_extra_info("socket").fileno()
            with socket.socket(fileno=os.dup(descriptor)) as theirs:
                theirs.sendall(said)
                theirs.shutdown(socket.SHUT_WR)
            assert await answer(wire, url) == b"ok"
        assert host.asked == [0, 1]

    run(test)


def test_an_idle_connection_that_speaks_up_is_closed() -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK)
        async with serving(host) as url:
            await answer(wire, url)
            host.writers[0].write(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
            await until(lambda: wire.open == 0)
            assert await answer(wire, url) == b"ok"

    run(test)


def test_a_post_is_not_sent_again_where_its_connection_breaks() -> None:
    """What became of it nobody knows."""

    async def test(wire: HttpWire) -> None:
        host = Host(OK, b"", OK)
        async with serving(host) as url:
            await answer(wire, url)
            told = await fault(ask(wire, url))
            assert (told.fault, told.detail) == (Fault.RESET, "the provider hung up")
            assert host.asked == [0, 0]
            assert await answer(wire, url) == b"ok"

    run(test)


def test_a_get_is_sent_again_over_a_new_connection() -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK, b"", OK)
        async with serving(host) as url:
            await answer(wire, url)
            assert await (await get(wire, url)).read(9) == b"ok"
        assert host.asked == [0, 0, 1]

    run(test)


@pytest.mark.parametrize("answers", [(b"",), (OK, HEAD), (OK, b"", b"")])
def test_a_get_that_is_not_sent_again(answers: tuple[bytes, ...]) -> None:
    """Not over a connection that was new, nor once anything of a reply has come."""

    async def test(wire: HttpWire) -> None:
        host = Host(*answers)
        async with serving(host) as url:
            if answers[0]:
                await answer(wire, url)
            asking = asyncio.create_task(fault(get(wire, url)))
            await until(lambda: len(host.requests) >= min(len(answers), 2))
            host.writers[0].close()
            assert (await asking).fault is Fault.RESET
            assert len(host.requests) == len(answers)

    run(test)


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"content-length: 2\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + b"and more",
        OK + OK,
        OK + b"H",
    ],
)
def test_a_connection_that_is_not_used_again(raw: bytes) -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(raw)
        async with serving(host) as url:
            assert [await answer(wire, url) for _ in range(2)] == [b"ok", b"ok"]
            await until(lambda: wire.open == 0)
        assert host.asked == [0, 1]

    run(test)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"content-length: 0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\nx-trailer: 1\r\n\r\n",
    ],
)
def test_a_reply_without_a_body_leaves_its_connection_open(raw: bytes) -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(raw)
        async with serving(host) as url:
            for _ in range(2):
                reply = await ask(wire, url)
                assert await reply.chunk() == b""
                assert "x-trailer" not in dict(reply.headers)
        assert host.asked == [0, 0]

    run(test)


def test_a_whole_reply_need_not_be_read() -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK)
        async with serving(host) as url:
            for _ in range(3):
                (await ask(wire, url)).close()
        assert host.asked == [0, 0, 0]

    run(test)


@pytest.mark.parametrize("turns", range(12))
def test_a_request_given_up_at_any_time_disturbs_no_other(turns: int) -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK)
        async with serving(host) as url:
            await answer(wire, url)
            asking = asyncio.create_task(answer(wire, url))
            others = [asyncio.create_task(answer(wire, url))]
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            assert await answer(wire, url) == b"ok"  # over its connection, if that is free by now
            others += [asyncio.create_task(answer(wire, url)) for _ in range(3)]
            assert await asyncio.gather(*others) == [b"ok"] * 4
            await until(lambda: asking.done())
            await until(lambda: wire.open == host.open)

    run(test)


def test_closing_hangs_up_on_everybody() -> None:
    async def test(wire: HttpWire) -> None:
        idle, silent, streaming = Host(OK), Peer(end="keep"), Peer(CHUNKED, end="keep")
        async with serving(idle) as a, serving(silent) as b, serving(streaming) as c:
            await answer(wire, a)
            asking = asyncio.create_task(ask(wire, b))
            dialing = asyncio.create_task(ask(wire, b.replace("http:", "https:"), connect=3600))
            reply = await ask(wire, c)
            assert await reply.chunk() == b"hello"
            reading = asyncio.create_task(reply.chunk())
            await until(lambda: silent.requests)
            await wire.close()
            assert wire.open == 0
            for step in (asking, dialing):
                assert (await fault(_awaited(step))).fault is Fault.RESET
            with pytest.raises(Exception, match="closed") as caught:
                await reading
            assert getattr(caught.value, "fault", None) is Fault.CUT
            await silent.gone.wait()
            await streaming.gone.wait()
            await until(lambda: not idle.open)

    run(test)


async def _awaited(task: asyncio.Task[Incoming]) -> Incoming:
    return await task


def test_one_wire_in_one_loop_after_the_other() -> None:
    wire = HttpWire()

    async def test(_: HttpWire) -> None:
        closing = HEAD + b"content-length: 2\r\nconnection: close\r\n\r\nok"
        async with serving(Host(closing)) as url:
            assert await answer(wire, url) == b"ok"
            await until(lambda: wire.open == 0)

    run(test)


def test_wires_in_two_threads_do_not_disturb_each_other() -> None:
    async def test(wire: HttpWire) -> None:
        async with serving(Host(OK)) as url:
            for _ in range(1000):
                assert await answer(wire, url) == b"ok"
            assert wire.open == 1

    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(run_in, asyncio.new_event_loop, test, debug=False) for _ in range(2)]
    for each in runs:
        each.result()


def test_nothing_is_kept_of_a_reply_that_is_over() -> None:
    def replies() -> set[int]:
        gc.collect()
        return {id(thing) for thing in gc.get_objects() if isinstance(thing, HttpReply)}

    async def test(wire: HttpWire) -> None:
        async with serving(Host(OK)) as url:
            others = replies()
            assert await answer(wire, url) == b"ok"
            assert wire.open == 1
            await asyncio.sleep(0)
            assert replies() <= others

    run(test)
