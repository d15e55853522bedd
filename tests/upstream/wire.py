"""HTTP/1.1 messages as bytes: requests read, reply heads written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

PHRASES = {int(status): status.phrase for status in HTTPStatus}
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Head:
    """The request line and the headers of one request."""

    method: str
    target: str
    pairs: list[tuple[str, str]]
    headers: dict[str, str]

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def length(self) -> int:
        return int(self.headers.get("content-length", "0"))

    @property
    def expects_continue(self) -> bool:
        return self.headers.get("expect", "").lower() == "100-continue"

    @property
    def closes(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


class RequestReader:
    """Cuts what a connection receives into requests."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self._buffer = bytearray()
        self._chunks = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def read_head(self) -> Head | None:
        """The head of the next request, once it is here; ValueError if it is not HTTP."""
        if self.head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end >= 0:
                self.head = parse_head(self._take(end + 4))
        return self.head

    def read_body(self) -> bytes | None:
        """The whole body, once it is here; the next head follows it."""
        if self.head is None:
            return None
        body = self._read_chunks() if self.head.chunked else self._read_length(self.head.length)
        if body is not None:
            self.head = None
        return body

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _read_length(self, length: int) -> bytes | None:
        return self._take(length) if len(self._buffer) >= length else None

    def _read_chunks(self) -> bytes | None:
        while (end := self._buffer.find(b"\r\n")) >= 0:
            size = int(self._buffer[:end].split(b";")[0], 16)
            if len(self._buffer) < end + 2 + size + 2:
                return None
            self._take(end + 2)
            self._chunks += self._take(size)
            self._take(2)
            if size == 0:
                body = bytes(self._chunks)
                self._chunks.clear()
                return body
        return None


def parse_head(raw: bytes) -> Head:
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"{version} is not HTTP/1")
    pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    return Head(method, target, pairs, {name.lower(): value for name, value in pairs})


def write_head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status} {PHRASES.get(status, '')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def write_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
