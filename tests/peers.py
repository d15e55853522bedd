"""Providers as bare sockets, for tests of the wire; every test runs on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from krouter.wire import HttpWire, Incoming, Outgoing, WireError

CERTIFICATE = Path(__file__).parent / "localhost.pem"
"""Signed by itself, for localhost and bücher.example."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
OK = HEAD + b"content-length: 2\r\n\r\nok"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"

PATIENCE = 300.0  # tests put time forward by less

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
Test = Callable[[HttpWire], Coroutine[Any, Any, None]]


class Peer:
    """Answers the first request on each connection with `pieces`, each once the test lets it."""

    def __init__(self, *pieces: bytes, end: str = "close") -> None:
        self.requests: list[bytes] = []
        self.gone = asyncio.Event()
        self.go = asyncio.Semaphore(1)
        self._pieces = pieces
        self._end = end

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await read_request(reader))
            for piece in self._pieces:
                await self.go.acquire()
                writer.write(piece)
                await writer.drain()
            if self._end == "keep":
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.gone.set()
            reset(writer) if self._end == "reset" else writer.close()


class Host:
    """Answers every request on every connection, each with the next of `answers`, the last of them
    for ever. Where one is empty, it hangs up instead."""

    def __init__(self, *answers: bytes) -> None:
        self.asked: list[int] = []
        """Over which connection each request came, counted from 0."""
        self.requests: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.left = 0
        self._answers = answers

    @property
    def open(self) -> int:
        return len(self.writers) - self.left

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.writers)
        self.writers.append(writer)
        try:
            while request := await read_request(reader):
                answer = self._answers[min(len(self.requests), len(self._answers) - 1)]
                self.asked.append(number)
                self.requests.append(request)
                if not answer:
                    return
                writer.write(answer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.left += 1
            writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(length_of(head))


def length_of(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)


@contextlib.asynccontextmanager
async def serving(peer: Serve, **options: Any) -> AsyncIterator[str]:
    server = await asyncio.start_server(peer, "127.0.0.1", 0, **options)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def run(test: Test, wire: Callable[[], HttpWire] = HttpWire) -> None:
    for new_loop in (asyncio.new_event_loop, uvloop.new_event_loop):
        run_in(new_loop, test, wire)


def run_in(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    test: Test,
    new_wire: Callable[[], HttpWire] = HttpWire,
    *,
    debug: bool = True,
) -> None:
    async def whole() -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        wire = new_wire()
        try:
            async with asyncio.timeout(PATIENCE):
                await test(wire)
        except BaseException:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            raise
        finally:
            await wire.close()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*left, return_exceptions=True)
        # The other side of a handshake that the wire has refused.
        told = [each for each in told if not isinstance(each.get("exception"), ConnectionError)]
        assert not told, told
        assert wire.open == 0

    with asyncio.Runner(debug=debug, loop_factory=new_loop) as runner:
        runner.run(whole())


async def until(so: Callable[[], object]) -> None:
    while not so():
        await asyncio.sleep(0)


async def ask(wire: HttpWire, url: str, connect: float = 5, body: bytes = b"{}") -> Incoming:
    return await wire.send(Outgoing(url, [("x-a", "1")], body), connect)


async def answer(wire: HttpWire, url: str) -> bytes:
    return await (await ask(wire, url)).read(1 << 20)


async def get(wire: HttpWire, url: str) -> Incoming:
    return await wire.send(Outgoing(url, [], method="GET"), 5)


async def fault(step: Coroutine[Any, Any, object]) -> WireError:
    with pytest.raises(WireError) as caught:
        await step
    return caught.value
