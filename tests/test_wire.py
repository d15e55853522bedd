from __future__ import annotations

import asyncio
import gzip
import socket

import pytest

from krouter.errors import Fault
from krouter.wire import AT_ONCE, HttpWire, Outgoing
from tests.harness import nowhere
from tests.peers import CHUNKED, HEAD, Peer, ask, fault, run, serving, until


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", Fault.RESET),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Fault.GARBAGE),
        (b"<html>gateway</html>\r\n\r\n", Fault.GARBAGE),
        (b"HTTP/1.1 two hundred\r\n\r\n", Fault.GARBAGE),
        (HEAD + b"content-length: many\r\n\r\n", Fault.GARBAGE),
        (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab", Fault.GARBAGE),
        (HEAD + b"x-long: " + b"a" * 1_000_000 + b"\r\n\r\n", Fault.GARBAGE),
        (HEAD + b"x-many: aaaa\r\n" * 30_000 + b"\r\n", Fault.GARBAGE),
        (HEAD + b"content-encoding: br\r\ncontent-length: 5\r\n\r\nhello", Fault.GARBAGE),
    ],
)
def test_no_reply(raw: bytes, expected: Fault, end: str) -> None:
    async def test(wire: HttpWire) -> None:
        async with serving(Peer(raw, end=end)) as url:
            assert (await fault(ask(wire, url))).fault is expected

    run(test)


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize(
    "pieces",
    [
        (HEAD + b"content-length: 50\r\n\r\nhello",),
        (CHUNKED,),
        (CHUNKED, b"9\r\nhal"),
        (CHUNKED, b"ZZ\r\nhello\r\n"),
        (HEAD + b"content-encoding: gzip\r\ncontent-length: 5\r\n\r\n", b"hello"),
    ],
)
def test_a_reply_cut_short(pieces: tuple[bytes, ...], end: str) -> None:
    async def test(wire: HttpWire) -> None:
        peer = Peer(*pieces, end=end)
        async with serving(peer) as url:
            reply = await ask(wire, url)
            peer.go.release()
            assert (await fault(reply.read(1 << 20))).fault is Fault.CUT
            reply.close()

    run(test)


def test_refused() -> None:
    async def test(wire: HttpWire) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
            assert (await fault(ask(wire, url))).fault is Fault.REFUSED

    run(test)


def test_a_name_that_is_not_known() -> None:
    async def test(_: HttpWire) -> None:
        wire = HttpWire(nowhere)
        told = await fault(ask(wire, "http://nonexistent.invalid/v1"))
        assert told.fault is Fault.DNS
        await wire.close()

    run(test)


def test_tls_to_a_plain_port() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def test(wire: HttpWire) -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            assert (await fault(ask(wire, url))).fault is Fault.TLS

    run(test)


def test_a_connection_that_is_not_made_in_time() -> None:
    """A handshake that is never answered is part of connecting."""

    async def test(wire: HttpWire) -> None:
        async with serving(Peer(end="keep")) as url:
            told = await fault(ask(wire, url.replace("http:", "https:"), connect=0.05))
            assert told.fault is Fault.TIMEOUT

    run(test)


@pytest.mark.parametrize("url", ["", "nonsense", "http://", "ftp://h/", "http://h:99999/v1"])
def test_no_url_raises_anything_else(url: str) -> None:
    async def test(wire: HttpWire) -> None:
        await fault(ask(wire, url))

    run(test)


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\x00b"])
def test_a_header_that_cannot_be_sent(value: str) -> None:
    async def test(wire: HttpWire) -> None:
        async with serving(Peer(HEAD)) as url:
            request = Outgoing(url, [("x-a", value)], b"")
            told = await fault(wire.send(request, 5))
            assert "b" not in told.detail.replace("ValueError", "")

    run(test)


def test_what_is_sent_and_nothing_more() -> None:
    async def test(wire: HttpWire) -> None:
        peer = Peer(HEAD + b"content-length: 2\r\n\r\nok")
        async with serving(peer) as url:
            request = Outgoing(f"{url}?a=%2F&b=1", [("x-b", "é"), ("x-a", "1")], b'{"a":1}')
            reply = await wire.send(request, 5)
            assert (reply.status, await reply.read(9)) == (200, b"ok")
        host = url.partition("//")[2].partition("/")[0]
        assert peer.requests == [
            f"POST /v1?a=%2F&b=1 HTTP/1.1\r\nHost: {host}\r\nx-b: é\r\nx-a: 1\r\n"
            'Content-Length: 7\r\n\r\n{"a":1}'.encode()
        ]

    run(test)


def test_a_large_body_is_sent_whole() -> None:
    async def test(wire: HttpWire) -> None:
        peer = Peer(HEAD + b"content-length: 2\r\n\r\nok")
        body = b"x" * (3 * AT_ONCE + 1)
        async with serving(peer) as url:
            reply = await ask(wire, url, body=body)
            assert await reply.read(9) == b"ok"
        head, _, sent = peer.requests[0].partition(b"\r\n\r\n")
        assert sent == body
        assert b"Transfer-Encoding" not in head

    run(test)


def test_redirects_are_not_followed_and_cookies_not_kept() -> None:
    async def test(wire: HttpWire) -> None:
        moved = (
            b"HTTP/1.1 307 Moved\r\nlocation: /else\r\nset-cookie: a=b; Path=/\r\n"
            b"content-length: 0\r\nconnection: close\r\n\r\n"
        )
        peer = Peer(moved)
        async with serving(peer) as url:
            for _ in range(2):
                reply = await ask(wire, url)
                assert (reply.status, await reply.read(9)) == (307, b"")
                peer.go.release()
        assert len(peer.requests) == 2
        assert all(b"ookie" not in request for request in peer.requests)

    run(test)


def test_compressed_though_not_asked_for() -> None:
    async def test(wire: HttpWire) -> None:
        packed = gzip.compress(b"hello" * 1000)
        head = HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
        async with serving(Peer(head + packed)) as url:
            assert await (await ask(wire, url)).read(5000) == b"hello" * 1000

    run(test)


def test_hints_before_the_reply_are_passed_over() -> None:
    async def test(wire: HttpWire) -> None:
        early = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
        async with serving(Peer(early + HEAD + b"content-length: 2\r\n\r\nok")) as url:
            reply = await ask(wire, url)
            assert (reply.status, await reply.read(9)) == (200, b"ok")

    run(test)


def test_a_reply_beyond_the_limit_is_hung_up_on() -> None:
    async def test(wire: HttpWire) -> None:
        endless = HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"5\r\nhello\r\n" * 1000
        peer = Peer(endless, end="keep")
        async with serving(peer) as url:
            told = await fault((await ask(wire, url)).read(100))
            assert (told.fault, told.detail) == (
                Fault.GARBAGE,
                "the reply is longer than 100 bytes",
            )
            await peer.gone.wait()

    run(test)


def test_close_hangs_up_on_an_unfinished_reply() -> None:
    async def test(wire: HttpWire) -> None:
        peer = Peer(CHUNKED, end="keep")
        async with serving(peer) as url:
            reply = await ask(wire, url)
            assert await reply.chunk() == b"hello"
            reply.close()
            await peer.gone.wait()

    run(test)


def test_a_cancelled_request_hangs_up() -> None:
    async def test(wire: HttpWire) -> None:
        peer = Peer(end="keep")
        async with serving(peer) as url:
            asking = asyncio.create_task(ask(wire, url))
            await until(lambda: peer.requests)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await peer.gone.wait()

    run(test)


def test_a_wire_may_be_closed_twice_and_used_again() -> None:
    async def test(wire: HttpWire) -> None:
        await wire.close()
        async with serving(Peer(HEAD + b"content-length: 2\r\n\r\nok")) as url:
            assert await (await ask(wire, url)).read(9) == b"ok"
            await wire.close()
            await wire.close()

    run(test)


def test_what_arrived_before_a_break_can_still_be_read() -> None:
    async def test(wire: HttpWire) -> None:
        async with serving(Peer(CHUNKED)) as url:
            reply = await ask(wire, url)
            await until(lambda: not wire.open)
            assert await reply.chunk() == b"hello"
            assert (await fault(reply.chunk())).fault is Fault.CUT
            reply.close()

    run(test)
