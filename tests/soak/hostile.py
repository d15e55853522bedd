"""A provider that sends without end: how is the first part of the path."""

from __future__ import annotations

import gzip
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import cast

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n"
JSON, SSE = HEAD % b"application/json", HEAD % b"text/event-stream"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
PIECE = b'"' + b"a" * (1 << 20)
GIGABYTE = 1 << 30
BOMB = gzip.compress(b"a" * (128 << 20), 6)
HELD = b"data: " + b"a" * 500


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# What comes first, and what comes then until it is hung up on or a gigabyte is sent.
WAYS: dict[str, tuple[bytes, bytes]] = {
    "length": (JSON + b"content-length: %d\r\n\r\n" % GIGABYTE, PIECE),
    "no-length": (JSON + b"\r\n", PIECE),
    "giant-chunk": (JSON + CHUNKED + b"40000000\r\n", PIECE),
    "endless-chunk": (JSON + CHUNKED + b"ffffffffffffffffffff\r\n", PIECE),
    "chunks": (JSON + CHUNKED, chunk(PIECE)),
    "header": (JSON + b"x-a: ", b"a" * (1 << 20)),
    "headers": (JSON, b"x-a: a\r\n" * (1 << 17)),
    "hints": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" * (1 << 14)),
    "trailers": (JSON + CHUNKED + b"1\r\n{\r\n0\r\n", b"x-a: a\r\n" * (1 << 17)),
    "extension": (JSON + CHUNKED + b"1;", b"a" * (1 << 20)),
    "bomb": (JSON + b"content-encoding: gzip\r\n" + CHUNKED, chunk(BOMB)),
    "status": (b"HTTP/1.1 500 No\r\ncontent-type: text/html\r\n\r\n", PIECE),
    "event": (SSE + CHUNKED, chunk(HELD + b"a" * (1 << 20))),
    "event-crlf": (SSE + CHUNKED, chunk((HELD + b"\r\n") * 64)),
    "comments": (SSE + CHUNKED, chunk(b": still here\n\n" * 64)),
    "bomb-event": (SSE + b"content-encoding: gzip\r\n" + CHUNKED, chunk(BOMB)),
    "line": (b"HTTP/1.1 200 ", b"a" * (1 << 20)),
}


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        line = self.rfile.readline().decode()
        while self.rfile.readline() not in (b"\r\n", b""):
            pass
        way = line.split("/")[1]
        first, then = WAYS[way]
        provider = cast("Provider", self.server)
        with suppress(OSError):
            self.wfile.write(first)
            for _ in range(GIGABYTE // len(then)):
                self.wfile.write(then)
                provider.sent[way] = provider.sent.get(way, 0) + len(then)


class Provider(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sent: dict[str, int] = {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def provider() -> Iterator[Provider]:
    with Provider() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join()


def settings(url: str) -> tuple[str, dict[str, str]]:
    """A provider for each way."""
    rows = [
        f'[provider.{way}]\nspeaks = ["chat", "messages"]\n'
        f'base_urls = {{ chat = "{url}/{way}/v1", messages = "{url}/{way}" }}\n'
        f'[[account]]\nprovider = "{way}"\nname = "a"\nkey = "env:ENDLESS"\n'
        for way in WAYS
    ]
    return "".join(rows), {"ENDLESS": "one-a"}
