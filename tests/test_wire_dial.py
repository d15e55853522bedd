"""How a connection comes about: names, addresses, TLS, and in what time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from krouter.errors import Fault
from krouter.http_dial import HEAD_START, KNOWN_FOR, AddressInfo
from krouter.http_pool import KEPT
from krouter.wire import AT_ONCE, HttpWire, Outgoing
from tests.harness import nowhere
from tests.peers import CERTIFICATE, CHUNKED, OK, Host, Peer, answer, ask, fault, run, run_in

from tests.peers import serving, until  # isort: skip
from tests.test_wire_pool import LeapingLoop, leap


class Book:
    """A resolver for names on this machine; it holds its answers back until `go` is set."""

    def __init__(self, *hosts: str) -> None:
        self.asked: list[str] = []
        self.go = asyncio.Event()
        self.go.set()
        self.hosts = hosts or ("127.0.0.1",)

    async def __call__(self, host: str, port: int) -> list[AddressInfo]:
        self.asked.append(host)
        await self.go.wait()
        return [info for each in self.hosts for info in socket.getaddrinfo(each, port, type=KIND)]


KIND = socket.SOCK_STREAM


def named(url: str, name: str = "a.name") -> str:
    return url.replace("127.0.0.1", name)


def test_a_name_is_looked_up_once_for_all_who_ask() -> None:
    async def test(_: HttpWire) -> None:
        book = Book()
        wire = HttpWire(book)
        book.go.clear()
        host = Host(OK)
        async with serving(host) as url:
            asking = [asyncio.create_task(answer(wire, named(url))) for _ in range(3)]
            await until(lambda: book.asked)
            asking[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking[0]
            book.go.set()
            assert await asyncio.gather(*asking[1:]) == [b"ok", b"ok"]
            shown = named(url).split("/")[2]
            assert f"\r\nHost: {shown}\r\n".encode() in host.requests[0]
            await asyncio.gather(*(answer(wire, named(url)) for _ in range(4)))
            assert book.asked == ["a.name"]
            assert await answer(wire, url) == b"ok"
            assert book.asked == ["a.name"]
        await wire.close()

    run(test)


def test_a_name_is_looked_up_again_after_a_minute() -> None:
    async def test(_: HttpWire) -> None:
        book = Book()
        wire = HttpWire(book)
        async with serving(Host(OK)) as url:
            for seconds in (0, KEPT, KNOWN_FOR - KEPT + 1):
                leap(seconds)
                await until(lambda: not wire.open)
                await answer(wire, named(url))
            assert len(book.asked) == 2
        await wire.close()

    run_in(LeapingLoop, test)


def test_what_was_not_found_or_refused_is_looked_up_again() -> None:
    async def test(_: HttpWire) -> None:
        book = Book()
        wire = HttpWire(book)
        with free_port() as port:
            for count in (1, 2):
                told = await fault(ask(wire, f"http://a.name:{port}/"))
                assert (told.fault, len(book.asked)) == (Fault.REFUSED, count)
        await wire.close()

    run(test)


@pytest.mark.parametrize("name", ["a" * 64 + ".name", "a.name"])
def test_a_name_that_cannot_be_found(name: str) -> None:
    async def test(wire: HttpWire) -> None:
        unknown = HttpWire() if len(name) > 63 else HttpWire(nowhere)
        assert (await fault(ask(unknown, f"http://{name}/"))).fault is Fault.DNS
        await unknown.close()

    run(test)


def test_a_lookup_that_takes_too_long() -> None:
    async def test(_: HttpWire) -> None:
        book = Book()
        book.go.clear()
        wire = HttpWire(book)
        told = await fault(ask(wire, "http://a.name/", connect=0.01))
        assert told.fault is Fault.TIMEOUT
        await wire.close()

    run(test)


@contextlib.contextmanager
def free_port() -> Iterator[int]:
    """At which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield free.getsockname()[1]


@contextlib.asynccontextmanager
async def silence(port: int, host: str) -> AsyncIterator[None]:
    """A full house: whoever connects now gets no answer at all."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(0)
        for _ in range(8):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex((host, port))
        yield


def test_the_next_address_is_tried_where_one_refuses() -> None:
    async def test(_: HttpWire) -> None:
        wire = HttpWire(Book("127.0.0.2", "127.0.0.3", "127.0.0.1"))
        async with serving(Host(OK)) as url:
            assert await answer(wire, named(url)) == b"ok"
        await wire.close()

    run(test)


def test_all_addresses_refuse() -> None:
    async def test(_: HttpWire) -> None:
        wire = HttpWire(Book("127.0.0.2", "127.0.0.1"))
        with free_port() as port:
            told = await fault(ask(wire, f"http://a.name:{port}/"))
            assert told.fault is Fault.REFUSED
        await wire.close()

    run(test)


def test_an_address_that_says_nothing_holds_up_for_a_moment() -> None:
    async def test(_: HttpWire) -> None:
        wire = HttpWire(Book("127.0.0.2", "127.0.0.1"))
        host = Host(OK)
        async with serving(host) as url, silence(int(url[:-3].rpartition(":")[2]), "127.0.0.2"):
            asking = asyncio.create_task(answer(wire, named(url)))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not host.requests
            leap(HEAD_START)
            assert await asking == b"ok"
        await wire.close()

    run_in(LeapingLoop, test)


def test_no_address_says_anything() -> None:
    async def test(_: HttpWire) -> None:
        for hosts in (("127.0.0.2",), ("127.0.0.2", "127.0.0.1")):
            wire = HttpWire(Book(*hosts))
            with free_port() as port:
                pass
            async with silence(port, "127.0.0.1"), silence(port, "127.0.0.2"):
                told = await fault(ask(wire, f"http://a.name:{port}/", connect=0.02))
                assert told.fault is Fault.TIMEOUT
            await wire.close()

    run(test)


def test_an_address_of_the_sixth_version() -> None:
    async def test(wire: HttpWire) -> None:
        host = Host(OK)
        server = await asyncio.start_server(host, "::1", 0)
        async with server:
            shown = f"[::1]:{server.sockets[0].getsockname()[1]}"
            assert await answer(wire, f"http://{shown}/v1") == b"ok"
            assert f"\r\nHost: {shown}\r\n".encode() in host.requests[0]

    run(test)


# TLS


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(CERTIFICATE)
    made.set_alpn_protocols(["h2", "http/1.1"])
    return made


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system trusts the certificate of the tests."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))


def secure(url: str, name: str) -> str:
    return named(url, name).replace("http:", "https:")


def known_here() -> HttpWire:
    return HttpWire(Book())


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize(
    ("name", "ascii_name"),
    [("localhost", "localhost"), ("bücher.example", "xn--bcher-kva.example")],
)
def test_over_tls(name: str, ascii_name: str) -> None:
    async def test(wire: HttpWire) -> None:
        names: list[str | None] = []
        spoken: list[Any] = []
        host, tls = Host(OK), context()
        tls.sni_callback = lambda connection, name, context: names.append(name)
        body = bytes(3 * AT_ONCE)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            spoken.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
            await host(reader, writer)

        async with serving(serve, ssl=tls, limit=1 << 22) as url:
            assert await answer(wire, secure(url, name)) == b"ok"
            reply = await ask(wire, secure(url, name), body=body)
            assert await reply.read(9) == b"ok"
        assert (host.asked, names, spoken) == ([0, 0], [ascii_name], ["http/1.1"])
        assert host.requests[1].endswith(b"\r\n\r\n" + body)

    run(test, known_here)


@pytest.mark.usefixtures("trusted")
def test_over_tls_connections_end_as_elsewhere() -> None:
    async def test(wire: HttpWire) -> None:
        peer, host = Peer(CHUNKED, end="keep"), Host(OK)
        async with serving(peer, ssl=context()) as url, serving(host, ssl=context()) as other:
            reply = await ask(wire, secure(url, "localhost"))
            assert await reply.chunk() == b"hello"
            reply.close()
            await peer.gone.wait()
            await answer(wire, secure(other, "localhost"))
            host.writers[0].close()
            await until(lambda: not wire.open)
            assert await answer(wire, secure(other, "localhost")) == b"ok"

    run(test, known_here)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("name", ["other.example", "127.0.0.1"])
def test_a_certificate_for_another_name(name: str) -> None:
    refused(name)


def test_a_certificate_that_is_not_trusted() -> None:
    refused("localhost")


def refused(name: str) -> None:
    async def test(wire: HttpWire) -> None:
        async with serving(Host(OK), ssl=context()) as url:
            told = await fault(ask(wire, secure(url, name)))
            assert (told.fault, told.detail) == (Fault.TLS, "CERTIFICATE_VERIFY_FAILED")

    run(test, known_here)


@pytest.mark.usefixtures("trusted")
def test_a_handshake_given_up_hangs_up() -> None:
    async def test(wire: HttpWire) -> None:
        gone = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            gone.set()

        async with serving(serve) as url:
            request = Outgoing(secure(url, "localhost"), [])
            told = await fault(wire.send(request, 0.05))
            assert told.fault is Fault.TIMEOUT
            await gone.wait()

    run(test, known_here)
