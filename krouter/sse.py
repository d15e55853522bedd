"""Server-sent events: cut a byte stream into whole events without changing a byte.

Source: the WHATWG HTML standard, section 9.2 (event stream interpretation).
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event as it arrived. `raw` holds its bytes and the blank line; `data` is None for a
    block of comments."""

    raw: bytes
    name: bytes
    data: bytes | None


class SSEError(ValueError):
    """An event longer than the limit."""


class Splitter:
    """Bytes in, whole events out; joined again they are the bytes that came in."""

    __slots__ = ("_limit", "_rest")

    def __init__(self, limit: int = 64 << 20) -> None:
        self._rest = b""
        self._limit = limit

    @property
    def rest(self) -> bytes:
        """The bytes of an event that is not whole yet."""
        return self._rest

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes.

        Raises SSEError when one event grows beyond the limit.
        """
        data = self._rest + chunk if self._rest else chunk
        blocks = data.split(b"\n\n") if b"\r" not in data else _split_any(data)
        self._rest = blocks.pop()
        if len(self._rest) > self._limit:
            raise SSEError(f"an event is longer than {self._limit} bytes")
        if blocks and b"\r" not in data:
            return [_parse_lf(block) for block in blocks]
        return [_parse_any(block) for block in blocks]

    def flush(self) -> list[Event]:
        """The last event, if the stream ended without a blank line after it."""
        rest, self._rest = self._rest, b""
        if not rest.strip():
            return []
        event = _parse_any(rest)
        return [event._replace(raw=rest + b"\n\n")]


def _split_any(data: bytes) -> list[bytes]:
    """Like split on a blank line of any spelling, but each block keeps its own blank line."""
    blocks, start = [], 0
    for match in _BLANK_LINE.finditer(data):
        # A lone CR at the very end may be half of a CRLF.
        if match.end() == len(data) and data.endswith(b"\r"):
            break
        blocks.append(data[start : match.end()])
        start = match.end()
    blocks.append(data[start:])
    return blocks


def _parse_lf(block: bytes) -> Event:
    """A block without its blank line, whose lines end in LF."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return Event(block + b"\n\n", b"", block[6:])
    return _parse_lines(block + b"\n\n", block.split(b"\n"))


def _parse_any(block: bytes) -> Event:
    return _parse_lines(block, _LINE_END.split(block))


def _parse_lines(raw: bytes, lines: list[bytes]) -> Event:
    name, data = b"", None
    for line in lines:
        field, _, value = line.removeprefix(_BOM).partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data = value if data is None else data + b"\n" + value
        elif field == b"event":
            name = value
    return Event(raw, name, data)


def encode(data: bytes, name: str = "") -> bytes:
    """One event; `data` is a single line."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + data + b"\n\n"
