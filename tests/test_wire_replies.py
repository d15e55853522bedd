"""Bodies, however they are cut into pieces, framed and packed, both ways."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import tracemalloc
import zlib

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from krouter.errors import Fault
from krouter.http_coding import MOST_AT_ONCE
from krouter.http_reply import MOST_UNREAD
from krouter.wire import AT_ONCE, HttpWire, Incoming
from tests.peers import HEAD, OK, Host, Peer, answer, ask, fault, read_request, run, run_in

from tests.peers import serving, until  # isort: skip

GZIP = HEAD + b"content-encoding: gzip\r\n"
SSE = b"data: {}\n\n" * 3
WHOLE = (
    OK,
    HEAD + b"\r\nok",
    b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\nok",
    b"HTTP/1.1 200 OK\nContent-Type: application/json\ncontent-length:2\n\nok",
    b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,
    HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\no\r\n1;a=b\r\nk\r\n0\r\nx-t: 1\r\n\r\n",
    GZIP + b"\r\n" + gzip.compress(b"o") + gzip.compress(b"k"),
    HEAD + b"content-encoding: X-GZip\r\n\r\n" + gzip.compress(b"ok"),
    HEAD + b"content-encoding: deflate\r\n\r\n" + zlib.compress(b"ok"),
    HEAD + b"content-encoding: deflate\r\n\r\n" + zlib.compress(b"ok")[2:-4],
    HEAD + b"content-encoding: x-unknown\r\n\r\nok",
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(WHOLE), st.lists(st.integers(0, 400)), st.booleans())
def test_a_reply_is_the_same_in_any_pieces(raw: bytes, cuts: list[int], fast: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        ends = sorted({cut % (len(raw) + 1) for cut in cuts} | {0, len(raw)})
        for start, end in itertools.pairwise(ends):
            writer.write(raw[start:end])
            for _ in range(4):  # turns in which the client reads it
                await asyncio.sleep(0)
        writer.close()

    async def test(wire: HttpWire) -> None:
        async with serving(serve) as url:
            reply = await ask(wire, url)
            assert (reply.status, await reply.read(9)) == (200, b"ok")
            assert reply.headers[0] == ("Content-Type", "application/json")
            assert not {"link", "x-t"} & {name for name, _ in reply.headers}

    run_in(uvloop.new_event_loop if fast else asyncio.new_event_loop, test)


def test_headers_are_given_as_they_came() -> None:
    raw = b"HTTP/1.1 418 Teapot\r\nX-B:  1 \t\r\nx-a: \r\nX-b: \xc3\xa9\r\nx-c: a\r\n b\r\n"

    async def test(wire: HttpWire) -> None:
        async with serving(Host(raw + b"content-length: 0\r\n\r\n")) as url:
            reply = await ask(wire, url)
            assert (reply.status, reply.dropped) == (418, ())
            pairs = [("X-B", "1"), ("x-a", ""), ("X-b", "é"), ("x-c", "a b")]
            assert reply.headers == [*pairs, ("content-length", "0")]

    run(test)


def test_a_change_of_protocol_is_a_reply_without_a_body() -> None:
    async def test(wire: HttpWire) -> None:
        raw = b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nabc"
        async with serving(Host(raw)) as url:
            reply = await ask(wire, url)
            assert (reply.status, await reply.read(9)) == (101, b"")
            await until(lambda: not wire.open)

    run(test)


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"x: a\x00b\r\n\r\n",
        HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
        HEAD + b"".join(b"x-%d: %s\r\n" % (n, b"a" * 999) for n in range(66)) + b"\r\n",
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 9_999,
        HEAD + b"content-encoding: zstd\r\n\r\n",
    ],
)
def test_a_head_that_is_refused(raw: bytes) -> None:
    async def test(wire: HttpWire) -> None:
        peer = Peer(raw, end="keep")
        async with serving(peer) as url:
            assert (await fault(ask(wire, url))).fault is Fault.GARBAGE
            await peer.gone.wait()

    run(test)


@pytest.mark.parametrize("blank", [b"0\r\n" + b"x-t: 1\r\n" * 99_999, b"1;" + b"x" * 999_999])
def test_a_body_that_goes_on_without_a_byte(blank: bytes) -> None:
    async def test(wire: HttpWire) -> None:
        peer = Peer(HEAD + b"transfer-encoding: chunked\r\n\r\n", blank, end="keep")
        async with serving(peer) as url:
            reply = await ask(wire, url)
            peer.go.release()
            assert (await fault(reply.chunk())).fault is Fault.CUT
            await peer.gone.wait()

    run(test)


def test_a_large_head_with_all_in_it() -> None:
    async def test(wire: HttpWire) -> None:
        fields = b"".join(b"x-%d: %s\r\n" % (n, b"a" * 990) for n in range(64))
        async with serving(Host(HEAD + fields + b"content-length: 2\r\n\r\nok")) as url:
            reply = await ask(wire, url)
            assert (len(reply.headers), await reply.read(9)) == (66, b"ok")

    run(test)


PIECES, PIECE = 512, 64 << 10


def test_a_reply_is_read_no_faster_than_its_reader() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(HEAD + b"content-length: %d\r\n\r\n" % (PIECES * PIECE))
        for number in range(PIECES):
            writer.write(bytes((number % 256,)) * PIECE)
            await writer.drain()
            sent = number
        writer.close()

    async def test(wire: HttpWire) -> None:
        async with serving(serve) as url:
            reply = await ask(wire, url)
            for _ in range(3 * PIECES):
                await asyncio.sleep(0)
            assert 0 < sent < PIECES - 1
            parts = [await reply.chunk()]
            assert MOST_UNREAD < len(parts[0]) <= MOST_UNREAD + (1 << 20)
            while part := await reply.chunk():
                parts.append(part)
            whole = b"".join(parts)
            assert len(whole) == PIECES * PIECE
            assert whole[::PIECE] == bytes(number % 256 for number in range(PIECES))

    run(test)


def test_an_unread_reply_is_closed_while_its_provider_is_held_up() -> None:
    async def test(wire: HttpWire) -> None:
        peer = Peer(HEAD + b"content-length: 99999999\r\n\r\n", b"x" * (64 << 20), end="keep")
        async with serving(peer) as url:
            reply = await ask(wire, url)
            peer.go.release()
            for _ in range(50):
                await asyncio.sleep(0)
            reply.close()
            await peer.gone.wait()
            assert (await fault(reply.chunk())).fault is Fault.CUT

    run(test)


def test_what_is_packed_grows_by_bounded_steps() -> None:
    async def test(wire: HttpWire) -> None:
        packed = gzip.compress(bytes(40 << 20), 1)
        host = Host(GZIP + b"content-length: %d\r\n\r\n" % len(packed) + packed)
        async with serving(host) as url:
            reply = await ask(wire, url)
            sizes = []
            while chunk := await reply.chunk():
                sizes.append(len(chunk))
            assert (sum(sizes), max(sizes)) == (40 << 20, MOST_AT_ONCE)
            told = await fault((await ask(wire, url)).read(3 << 20))
            assert told.fault is Fault.GARBAGE

    run(test)


@pytest.mark.parametrize("packed", [zlib.compress(SSE)[:-3], b"\x78\x9c" + b"\xff" * 9])
def test_packing_that_breaks_off(packed: bytes) -> None:
    async def test(wire: HttpWire) -> None:
        head = HEAD + b"content-encoding: deflate\r\ncontent-length: %d\r\n\r\n" % len(packed)
        async with serving(Host(head + packed)) as url:
            assert (await fault(answer(wire, url))).fault is Fault.CUT

    run(test)


class Reluctant:
    """Answers `first` before it reads a request's body, and `then` after."""

    def __init__(self, first: bytes, then: bytes = b"") -> None:
        self.read = 0
        self.go = asyncio.Event()
        self._first, self._then = first, then

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._first)
        await self.go.wait()
        while self.read < BODY and (piece := await reader.read(1 << 20)):
            self.read += len(piece)
        writer.write(self._then)
        writer.close()


BODY = 32 * AT_ONCE


def test_a_reply_that_comes_before_the_request_is_sent() -> None:
    async def test(wire: HttpWire) -> None:
        early = Reluctant(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        async with serving(early) as url:
            reply = await ask(wire, url, body=bytes(BODY))
            assert (reply.status, await reply.read(9)) == (413, b"no")
            await until(lambda: wire.open == 0)
            early.go.set()

    run(test)


def test_a_request_is_sent_on_while_its_reply_is_under_way() -> None:
    async def test(wire: HttpWire) -> None:
        early = Reluctant(HEAD + b"\r\nwhy", b" not")
        async with serving(early) as url:
            reply = await ask(wire, url, body=bytes(BODY))
            assert await reply.chunk() == b"why"
            early.go.set()
            assert await reply.read(9) == b" not"
            assert early.read == BODY

    run(test)


def test_a_request_is_sent_no_faster_than_it_is_taken() -> None:
    async def test(wire: HttpWire) -> None:
        early, body = Reluctant(HEAD + b"\r\n"), bytes(BODY)
        async with serving(early) as url:
            tracemalloc.start()
            try:
                reply = await ask(wire, url, body=body)
                for _ in range(300):
                    await asyncio.sleep(0)
                assert tracemalloc.get_traced_memory()[1] < BODY // 2
            finally:
                tracemalloc.stop()
            early.go.set()
            await reply.read(9)
            assert early.read == BODY

    run_in(asyncio.new_event_loop, test, debug=False)


@pytest.mark.parametrize("size", [0, 1, 32 << 10, (32 << 10) + 1, AT_ONCE, AT_ONCE + 1])
def test_a_body_of_any_size_arrives_as_it_is(size: int) -> None:
    async def test(wire: HttpWire) -> None:
        host, body = Host(OK), (bytes(range(251)) * (size // 251 + 1))[:size]
        async with serving(host, limit=2 * AT_ONCE) as url:
            for _ in range(2):
                assert await (await ask(wire, url, body=body)).read(9) == b"ok"
        assert host.asked == [0, 0]
        assert [request.partition(b"\r\n\r\n")[2] for request in host.requests] == [body, body]

    run(test)


async def turns_of(reply: Incoming) -> tuple[list[bytes], list[int]]:
    """All pieces, and in which turn of the loop each came."""
    turn = 0

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    pieces, turns = [], []
    while piece := await reply.chunk():
        pieces.append(piece)
        turns.append(turn)
    counting.cancel()
    return pieces, turns


def test_others_have_their_turn_while_much_is_unpacked() -> None:
    async def test(wire: HttpWire) -> None:
        async with serving(Peer(GZIP + b"\r\n" + gzip.compress(bytes(9 << 20)))) as url:
            pieces, turns = await turns_of(await ask(wire, url))
        assert sum(map(len, pieces)) == 9 << 20
        assert len(set(turns)) == len(turns) >= 9
        hollow = gzip.compress(b"") * 900
        async with serving(Peer(GZIP + b"\r\n" + hollow + gzip.compress(b"ok"))) as url:
            pieces, turns = await turns_of(await ask(wire, url))
        assert pieces == [b"ok"]
        assert turns[0] >= 900

    run(test)


def test_what_follows_the_packed_is_nobodys_and_is_not_kept() -> None:
    async def test(wire: HttpWire) -> None:
        head = HEAD + b"content-encoding: deflate\r\n\r\n" + zlib.compress(b"ok")
        peer = Peer(head, *[bytes(1 << 20)] * 32)
        async with serving(peer) as url:
            reply = await ask(wire, url)
            assert await reply.chunk() == b"ok"
            tracemalloc.start()
            for _ in range(32):
                peer.go.release()
            assert await reply.chunk() == b""
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 16 << 20

    run_in(uvloop.new_event_loop, test, debug=False)


def test_a_header_has_nothing_that_none_may_have() -> None:
    async def test(wire: HttpWire) -> None:
        odd = b"x-a: a\x01\x0b\x7fb\tc\r\nx-b: \xc3\xa9\xff\r\n"
        async with serving(
            Host(b"HTTP/1.1 200 OK\r\n" + odd + b"content-length: 0\r\n\r\n")
        ) as url:
            reply = await ask(wire, url)
            assert reply.headers[:2] == [("x-a", "a   b\tc"), ("x-b", "é\udcff")]

    run(test)
