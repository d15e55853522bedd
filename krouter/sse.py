"""Server-sent events: cut a byte stream into whole events without changing a byte.

Source: the WHATWG HTML standard, section 9.2 (event stream interpretation).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_DATA_LINE = re.compile(rb"(?<![^\r\n])(\A\xef\xbb\xbf)?(?:(data: ?)[^\r\n]*|data(?=[\r\n]|\Z))")
_BOM = b"\xef\xbb\xbf"


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event as it arrived. `raw` holds its bytes and the blank line; `data` is None for a
    block of comments."""

    raw: bytes
    name: bytes
    data: bytes | None


class SSEError(ValueError):
    """An event longer than the limit."""


class Splitter:
    """Bytes in, whole events out; joined again they are the bytes that came in."""

    __slots__ = ("_begun", "_limit", "_parts", "_size")

    def __init__(self, limit: int = 64 << 20) -> None:
        self._begun = False
        self._parts: list[bytes] = []
        self._size = 0
        self._limit = limit

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes.

        Raises SSEError when one event grows beyond the limit.
        """
        if self._parts:
            edge = self._parts[-1][-1:] + chunk
            self._parts.append(chunk)
            if b"\n\n" not in edge and b"\r" not in edge:
                self._grow(len(chunk))
                return []
            chunk = b"".join(self._parts)
        blocks, line_end = _cut(chunk)
        rest = blocks.pop()
        self._parts = [rest] if rest else []
        self._size = 0
        self._grow(len(rest))
        if not self._begun:
            return self._first(blocks, line_end * 2)
        parse = _PARSERS[line_end]
        return [parse(block) for block in blocks]

    def flush(self) -> list[Event]:
        """The last event, if the stream ended without a blank line after it."""
        rest, self._parts = b"".join(self._parts), []
        if not rest:
            return []
        if not rest.strip(b"\r\n"):
            return [Event(rest, b"", None)]
        ended = rest
        if not rest.endswith((b"\r\r", b"\n\r")):  # a blank line already, once no LF follows
            ended += b"\n" if rest.endswith(b"\n") else b"\n\n"
        return [_parse_any(ended)] if self._begun else self._first([ended], b"")

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise SSEError(f"an event is longer than {self._limit} bytes")

    def _first(self, blocks: list[bytes], blank_line: bytes) -> list[Event]:
        """A byte order mark counts only at the very start."""
        if not blocks:
            return []
        self._begun = True
        head, *others = [block + blank_line for block in blocks]
        first = _parse_lines(head, _LINE_END.split(head.removeprefix(_BOM)))
        return [first, *map(_parse_any, others)]


def _cut(data: bytes) -> tuple[list[bytes], bytes]:
    """Blocks without their blank line and how lines end in them; or with it, where that varies."""
    returns = data.count(b"\r")
    if not returns:
        return data.split(b"\n\n"), b"\n"
    if returns == data.count(b"\n") == data.count(b"\r\n"):
        return data.split(b"\r\n\r\n"), b"\r\n"
    return _split_any(data), b""


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


def _parser(line_end: bytes) -> Callable[[bytes], Event]:
    blank_line, data_line = line_end * 2, line_end + b"data: "

    def parse(block: bytes) -> Event:
        if block.startswith(b"data: "):
            if line_end not in block:
                return Event(block + blank_line, b"", block[6:])
        elif block.startswith(b"event: "):
            head, _, data = block.partition(data_line)
            if data and line_end not in data and line_end not in head:
                return Event(block + blank_line, head[7:], data)
        return _parse_lines(block + blank_line, block.split(line_end))

    return parse


def _parse_any(block: bytes) -> Event:
    return _parse_lines(block, _LINE_END.split(block))


_PARSERS = {b"\n": _parser(b"\n"), b"\r\n": _parser(b"\r\n"), b"": _parse_any}


def _parse_lines(raw: bytes, lines: list[bytes]) -> Event:
    name, data = b"", None
    for line in lines:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data = value if data is None else data + b"\n" + value
        elif field == b"event":
            name = value
    return Event(raw, name, data)


def whole_events(events: list[Event]) -> list[Event]:
    """Those that were not cut in their middle."""
    return [event for event in events if _is_whole(event.data)]


def _is_whole(data: bytes | None) -> bool:
    if data is None or data == b"[DONE]":
        return data is not None
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def encode(data: bytes, name: str = "") -> bytes:
    """One event."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"


def with_data(event: Event, data: bytes) -> bytes:
    """The bytes of `event` with other data in the same lines; all else stays as it came."""
    lines = data.split(b"\n")
    if event.data is None or event.data.count(b"\n") + 1 != len(lines):
        return encode(data, event.name.decode("utf-8", "replace"))
    rest = iter(lines)

    def line(found: re.Match[bytes]) -> bytes:
        return (found[1] or b"") + (found[2] or b"data: ") + next(rest)

    return _DATA_LINE.sub(line, event.raw)
