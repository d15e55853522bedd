"""The provider on a real socket: one thread, one loop, one protocol object a connection."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from tests.upstream import gemini, replicate
from tests.upstream.book import Book, Gate, Request, Step
from tests.upstream.content import read_ask
from tests.upstream.replies import Reply, build
from tests.upstream.script import Behaviour, Break, Stop, named, parse
from tests.upstream.wire import LAST_CHUNK, Head, RequestReader, write_chunk, write_head

BREAK_PAUSE = 0.02
# asyncio announces an accepted socket a few turns of the loop later, and fails if closed by then
ACCEPT_TURNS = 5
RESET = struct.pack("ii", 1, 0)
PATHS = re.compile(
    r"(?!.*/v1/v1/)(?:/[^/?]+)*?"
    r"/(?:(?P<chat>chat/completions/?|ml/v1/text/chat(?:_stream)?)"
    r"|(?P<embeddings>embeddings)|(?P<responses>responses)"
    r"|(?P<count>v1/messages/count_tokens|v1/responses/input_tokens)|(?P<messages>v1/messages)"
    r"|(?P<gemini>models/[^/]+:(?:g|streamG)enerateContent)"
    r"|(?P<created>(?:(?:models|deployments)/[^/]+/[^/]+/)?predictions)"
    r"|(?P<polled>predictions/[^/]+)|(?P<canceled>predictions/[^/]+/cancel))"
    r"(?:\?.*)?"
)


@dataclass(frozen=True, slots=True)
class Rules:
    """What all connections of one server share."""

    book: Book
    keys: Collection[str] | None
    on_request: Callable[[Request], None] | None
    connections: set[Connection]
    failures: list[BaseException]
    on_silence: list[Callable[[Any], None]]


class Connection(asyncio.Protocol):
    """Reads requests and plays one reply at a time."""

    def __init__(self, rules: Rules) -> None:
        self.lost = asyncio.get_running_loop().create_future()
        self._rules = rules
        self._reader = RequestReader()
        self._writable = asyncio.Event()
        self._writable.set()
        self._head: Head | None = None
        self._request: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(0)
        self._rules.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()
        self._rules.connections.discard(self)
        self.lost.set_result(None)

    def eof_received(self) -> bool:
        self._leave()
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        if self._request is not None:
            return
        try:
            self._read()
        except Exception as error:
            self._rules.failures.append(error)
            self._transport.abort()

    def abort(self) -> None:
        """Hangs up for the server's own reasons, so the request was not closed by its peer."""
        self._request = None
        self._transport.abort()

    def _leave(self) -> None:
        if self._request is not None:
            self._request.close()
            self._request = None
        if self._task is not None:
            self._task.cancel()

    def _read(self) -> None:
        while self._request is None and not self._transport.is_closing():
            try:
                received = self._read_request()
            except ValueError:
                self._transport.write(write_head(400, [("content-length", "0")]))
                self._transport.close()
                return
            if received is None:
                return
            self._answer(*received)

    def _read_request(self) -> tuple[Head, bytes] | None:
        head = self._reader.read_head()
        if head is None:
            return None
        if head.expects_continue and head is not self._head:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._head = head
        body = self._reader.read_body()
        return None if body is None else (head, body)

    def _answer(self, head: Head, body: bytes) -> None:
        request = Request(
            head.method, head.target, head.pairs, head.headers, body, decode(body), credential(head)
        )
        dialect = route(head)
        request.behaviour = behave(self._rules, request, dialect)
        serial = self._rules.book.add(request)
        if self._rules.on_request:
            self._rules.on_request(request)
        created = int(time.time())
        ask = read_ask(dialect or "chat", request.json, len(body), serial, created)
        if dialect == "gemini":
            ask = gemini.asked(ask, head.target, request.json)
        reply = build(ask, request.behaviour)
        self._request = request
        if request.behaviour.immediate and self._send_at_once(reply):
            self._end_reply(request)
        else:
            self._start(request, reply)

    def _send_at_once(self, reply: Reply) -> bool:
        """Sends all of a reply; false while the kernel has not taken the last byte."""
        self._transport.write(b"".join(self._parts(reply)))
        return self._transport.get_write_buffer_size() == 0

    def _parts(self, reply: Reply) -> Iterator[bytes]:
        yield write_head(reply.status, reply.headers)
        if self._head is not None and self._head.method == "HEAD":
            return
        yield from (self._frame(reply, piece) for piece in reply.pieces)
        if reply.length is None:
            yield LAST_CHUNK

    def _frame(self, reply: Reply, piece: bytes) -> bytes:
        return write_chunk(piece) if reply.length is None else piece

    def _start(self, request: Request, reply: Reply) -> None:
        self._task = asyncio.get_running_loop().create_task(self._play(request, reply))
        self._task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled() and (error := task.exception()):
            self._rules.failures.append(error)
            self._transport.abort()
        elif self._request is None and not self._transport.is_closing():
            self._read()

    async def _play(self, request: Request, reply: Reply) -> None:
        behaviour = request.behaviour
        if behaviour.immediate:
            await self._writable.wait()
            self._end_reply(request)
            return
        await asyncio.sleep(behaviour.slow_headers)
        if behaviour.gate and behaviour.gate.after is None:
            await self._pass(behaviour.gate)
        broken = behaviour.broken
        if broken is None or broken.after is not None:
            await self._send_reply(reply, behaviour)
        if broken and broken.kind != "end":
            await self._break(broken)
        else:
            await self._send(b"" if reply.length is not None else LAST_CHUNK)
            self._end_reply(request)

    async def _send_reply(self, reply: Reply, behaviour: Behaviour) -> None:
        await self._send(write_head(reply.status, reply.headers))
        await asyncio.sleep(behaviour.slow_first)
        gate = behaviour.gate
        for number, piece in enumerate(reply.pieces):
            if number and behaviour.slow_each is not None:
                await asyncio.sleep(behaviour.slow_each)
            if gate and gate.after == number:
                await self._pass(gate)
            for part in split(piece, behaviour.split):
                await self._send(self._frame(reply, part))
        if gate and gate.after is not None and gate.after >= len(reply.pieces):
            await self._pass(gate)

    async def _pass(self, stop: Stop) -> None:
        await self._rules.book.gate(stop.gate).passed()

    async def _send(self, data: bytes) -> None:
        self._transport.write(data)
        await self._writable.wait()
        await asyncio.sleep(0)

    async def _break(self, broken: Break) -> None:
        if broken.kind == "stall":
            for listener in list(self._rules.on_silence):
                listener(self._transport.get_extra_info("peername"))
            await asyncio.get_running_loop().create_future()
        if broken.after is not None:
            await asyncio.sleep(BREAK_PAUSE)
        self._request = None
        if broken.kind == "reset":
            connected = self._transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._transport.abort()
        else:
            self._transport.close()

    def _end_reply(self, request: Request) -> None:
        self._request = None
        request.complete()
        if self._head is not None and self._head.closes:
            self._transport.close()


def split(piece: bytes, size: int) -> Iterator[bytes]:
    size = size or max(1, len(piece))
    return (piece[start : start + size] for start in range(0, len(piece), size))


def decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def credential(head: Head) -> str | None:
    scheme, _, token = head.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    names = ("x-api-key", "x-goog-api-key", "api-key")
    return next((head.headers[name] for name in names if name in head.headers), None)


def route(head: Head) -> str | None:
    """The dialect of an endpoint, under any prefix but a doubled `/v1`."""
    found = PATHS.fullmatch(head.target)
    dialect = found.lastgroup if found else None
    return dialect if head.method == ("GET" if dialect == "polled" else "POST") else None


def behave(rules: Rules, request: Request, dialect: str | None) -> Behaviour:
    if dialect is None:
        return Behaviour(status=404, message=f"no {request.method} {request.path} here")
    if rules.keys is not None and request.credential not in rules.keys:
        return Behaviour(status=401, message="Incorrect API key provided.")
    if not isinstance(request.json, dict) and dialect not in replicate.BODILESS:
        return Behaviour(status=400, message="The body is not a JSON object.")
    try:
        if said := request.header.get("x-upstream"):
            return parse(said)
        step = rules.book.next_step(request.model, request.credential)
        if callable(step):
            return step(request)
        return step or named(request.model)
    except ValueError as error:
        return Behaviour(status=400, message=f"not a behaviour: {error}")


class Upstream:
    """A provider in a thread of its own, on 127.0.0.1 and a free port unless told otherwise."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        keys: Collection[str] | None = None,
        on_request: Callable[[Request], None] | None = None,
    ) -> None:
        self.url = ""
        self.on_silence: list[Callable[[Any], None]] = []
        """Called with the address of the peer whenever a reply stalls, with all that comes before
        in the hands of the kernel."""
        self._host = host
        self._port = port
        self._keys = keys
        self._on_request = on_request
        self._rules: Rules
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._ready = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="upstream", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._error:
            self._thread.join()
            raise self._error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        if self._rules.failures and error is None:
            raise self._rules.failures[0]

    @property
    def requests(self) -> list[Request]:
        """The requests received so far, oldest first."""
        return self._rules.book.requests()

    @property
    def open_connections(self) -> int:
        return len(self._rules.connections)

    def wait(self, count: int = 1, timeout: float = 30) -> list[Request]:
        """The requests, once there are `count`; TimeoutError if there never are."""
        return self._rules.book.wait(count, timeout)

    def script(
        self, model: str, behaviours: Sequence[str | Step], *, key: str | None = None
    ) -> None:
        """One behaviour a request for a model (`*`: any), the last for ever. A function is asked
        for it with the request."""
        self._rules.book.script(model, behaviours, key)

    def gate(self, name: str) -> Gate:
        """The gate that `gate=NAME` waits at."""
        return self._rules.book.gate(name)

    def clear(self) -> None:
        """Forgets requests and scripts, opens and forgets gates."""
        self._rules.book.clear()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._rules = Rules(
            Book(self._loop), self._keys, self._on_request, set(), [], self.on_silence
        )
        try:
            server = await self._loop.create_server(
                lambda: Connection(self._rules), self._host, self._port, backlog=1024
            )
        except OSError as error:
            self._error = error
            self._ready.set()
            return
        self.url = f"http://{self._host}:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stopping.wait()
        await self._stop_accepting(server)
        await self._hang_up()

    async def _stop_accepting(self, server: asyncio.Server) -> None:
        for listener in server.sockets:
            self._loop.remove_reader(listener.fileno())
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        server.close()

    async def _hang_up(self) -> None:
        while open_now := list(self._rules.connections):
            for connection in open_now:
                connection.abort()
            await asyncio.gather(*(connection.lost for connection in open_now))
