"""A relay in front of krouter: hands on every byte as it is, and notes each request and status."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import httptools

READ_SIZE = 65536
CONTINUE, UPGRADED = 100, 101
UNTAKEN, UNREADABLE = "krouter takes no connection", "what is no HTTP"
"""What stands in place of the method where there is no request to tell of."""


@dataclass(slots=True)
class Visit:
    """One HTTP request of a client; `status` is none until krouter has answered."""

    method: str
    target: str = ""
    status: int | None = None
    body: bytearray = field(default_factory=bytearray, compare=False, repr=False)

    @property
    def failed(self) -> bool:
        return self.status is None or self.status >= 400

    def __str__(self) -> str:
        asked = f"{self.method} {self.target.partition('?')[0]}".rstrip()
        return f"{asked}: {self.status or 'no answer'}"


class Door:
    """Stands at a free port of 127.0.0.1 in front of the server at `url`, in a thread."""

    def __init__(self, url: str) -> None:
        self.url = ""
        self.visits: list[Visit] = []
        """What has come since the last `clear`, oldest first."""
        self._inner = urlsplit(url)
        self._ready = threading.Event()
        self._relays: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._thread = threading.Thread(target=self._run, name="door", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def clear(self) -> None:
        self.visits.clear()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._open, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stopping.wait()
        server.close()

    def _open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """asyncio itself forgets the task of a connection that is lost, and what it waits for."""
        task = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        meter = Meter(self.visits)
        try:
            answers, asks = await asyncio.open_connection(self._inner.hostname, self._inner.port)
        except OSError:
            self.visits.append(Visit(UNTAKEN))
            writer.transport.abort()
            return
        ways = (pass_on(reader, asks, meter.ask), pass_on(answers, writer, meter.answer))
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*ways)
        for end in (asks, writer):
            end.close()


async def pass_on(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, note: Callable[[bytes], None]
) -> None:
    """Until one side ends: an end is handed on as an end, a break as a break."""
    try:
        while data := await source.read(READ_SIZE):
            note(data)
            sink.write(data)
            await sink.drain()
        sink.write_eof()
    except OSError:
        sink.transport.abort()


class Meter:
    """Reads both directions of one connection, until one of them cannot be read."""

    def __init__(self, visits: list[Visit]) -> None:
        self._visits = visits
        self._open: list[Visit] = []
        self._requests = Requests(self._begin)
        self._responses = Responses(self._end)
        self._is_lost = False

    def ask(self, data: bytes) -> None:
        self._read(self._requests.feed, data)

    def answer(self, data: bytes) -> None:
        self._read(self._responses.feed, data)

    def _read(self, feed: Callable[[bytes], None], data: bytes) -> None:
        if self._is_lost:
            return
        try:
            feed(data)
        except httptools.HttpParserError:
            self._is_lost = True
            self._visits.append(Visit(UNREADABLE))

    def _begin(self, method: str, target: str) -> Visit:
        visit = Visit(method, target)
        self._visits.append(visit)
        self._open.append(visit)
        return visit

    def _end(self, status: int) -> bool:
        """Whether no body follows, whatever the headers say."""
        if CONTINUE <= status < UPGRADED or not self._open:
            return False
        visit = self._open.pop(0)
        visit.status = status
        return visit.method == "HEAD"


class Requests:
    """Tells of each request once its headers are read, and keeps its body."""

    def __init__(self, begin: Callable[[str, str], Visit]) -> None:
        self._begin = begin
        self._target = b""
        self._visit = Visit("")
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:  # krouter makes none: the next one follows
            self._parser = httptools.HttpRequestParser(self)
            if rest := data[upgrade.args[0] :]:
                self.feed(rest)

    def on_message_begin(self) -> None:
        self._target = b""

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_headers_complete(self) -> None:
        self._visit = self._begin(self._parser.get_method().decode(), self._target.decode())

    def on_body(self, part: bytes) -> None:
        self._visit.body += part


class Responses:
    """Tells of each status; `end` says whether the reply has no body."""

    def __init__(self, end: Callable[[int], bool]) -> None:
        self._end = end
        self._bare = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        with suppress(httptools.HttpParserUpgrade):
            self._parser.feed_data(data)
        if self._bare:
            self._bare, self._parser = False, httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        self._bare = self._end(self._parser.get_status_code())
