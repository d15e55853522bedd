"""Breaks at every point of a reply, and hundreds of requests that are given up at once."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from krouter.errors import Fault
from krouter.wire import HttpWire, WireError
from tests.peers import (
    HEAD,
    OK,
    Host,
    Peer,
    answer,
    ask,
    read_request,
    reset,
    run,
    run_in,
    serving,
    until,
)

REPLIES = (
    OK,
    b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,
    HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\no\r\n1;a=b\r\nk\r\n0\r\nx-t: 1\r\n\r\n",
    HEAD + b"content-encoding: gzip\r\ncontent-length: 40\r\n\r\n" + bytes(40),
)
CROWD = 500


@pytest.mark.parametrize("end", ["reset", "close"])
@pytest.mark.parametrize("raw", REPLIES)
def test_a_break_at_any_byte_is_a_fault_and_leaves_nothing(raw: bytes, end: str) -> None:
    async def test(wire: HttpWire) -> None:
        for cut in range(len(raw)):
            async with serving(Peer(raw[:cut], end=end)) as url:
                with pytest.raises(WireError) as caught:
                    await answer(wire, url)
                assert caught.value.fault in (Fault.RESET, Fault.CUT, Fault.GARBAGE)
                assert raw.startswith(HEAD) or caught.value.fault is not Fault.GARBAGE
                await until(lambda: wire.open == 0)

    run(test)


@pytest.mark.parametrize("first", [b"", OK, HEAD + b"content-length: 9\r\n\r\nhalf"])
def test_a_break_while_the_request_is_being_sent(first: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first)
        await writer.drain()
        await asyncio.sleep(0)
        reset(writer)

    async def test(wire: HttpWire) -> None:
        async with serving(serve) as url:
            told: bytes | Fault
            try:  # what had come before the reset may have been read or not
                told = await (await ask(wire, url, body=bytes(32 << 20))).read(99)
            except WireError as error:
                told = error.fault
            assert told in (b"ok", Fault.RESET, Fault.CUT)
            await until(lambda: wire.open == 0)

    run(test)


def test_hundreds_that_are_given_up_at_once() -> None:
    """Some wait for a head, some for more of a body, some have not been sent yet."""

    async def test(wire: HttpWire) -> None:
        here = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal here
            try:
                await read_request(reader)
                here += 1
                if here % 2:
                    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n")
                await reader.read()
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        async def stream(url: str) -> None:
            reply = await ask(wire, url, connect=60)
            try:
                while await reply.chunk():
                    pass
            finally:
                reply.close()

        async with serving(serve, backlog=2 * CROWD) as url:
            tasks = [asyncio.create_task(stream(url)) for _ in range(CROWD)]
            await until(lambda: here > CROWD - 50)
            for task in tasks:
                task.cancel()
            told = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in told} == {asyncio.CancelledError}
            await until(lambda: wire.open == 0)

    run_in(uvloop.new_event_loop, test, debug=False)


def test_a_provider_that_closes_every_idle_connection_at_once_costs_no_request() -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK)
        async with serving(host) as url:
            for _ in range(5):
                got = await asyncio.gather(*(answer(wire, url) for _ in range(100)))
                assert got == [b"ok"] * 100
                for writer in host.writers:
                    writer.close()
                await until(lambda: wire.open == 0)

    run_in(uvloop.new_event_loop, test, debug=False)
