"""Server-sent events: cut a byte stream into whole events without changing a byte.

Source: the WHATWG HTML standard, section 9.2 (event stream interpretation).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

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

    __slots__ = ("_begun", "_edge", "_limit", "_parts", "_size")

    def __init__(self, limit: int = 64 << 20) -> None:
        self._begun = False
        self._parts: list[bytes] = []
        self._edge = b""
        """The end of the parts, as much of it as may belong to a blank line."""
        self._size = 0
        self._limit = limit

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes. Raises SSEError when one grows beyond the limit."""
        return list(self.events(self.cut(chunk)))

    def cut(self, chunk: bytes) -> bytes:
        """The bytes of the events that `chunk` completes, for `events`; what follows them is kept.

        Raises SSEError when one event grows beyond the limit.
        """
        if not self._parts:
            if _is_all_whole(chunk):
                return chunk
        else:
            edge = self._edge + chunk
            self._parts.append(chunk)
            if not _may_end(edge):
                self._edge = edge[-3:]
                self._grow(len(chunk))
                return b""
            chunk = b"".join(self._parts)
        end = _end_of_events(chunk)
        self._size = 0
        if end == len(chunk):
            self._parts = []
            return chunk
        self._parts, self._edge = [chunk[end:]], chunk[end:][-3:]
        self._grow(len(chunk) - end)
        return chunk[:end]

    def events(self, whole: bytes) -> Iterator[Event]:
        """The events of which `cut` gave the bytes."""
        line_end = _line_end(whole)
        blocks = _blocks(whole, line_end)
        if whole and not self._begun:
            self._begun = True
            yield _parse_first(next(blocks) + line_end * 2)
        yield from map(_PARSERS[line_end], blocks)

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
        return [_parse_any(ended) if self._begun else _parse_first(ended)]

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise SSEError(f"an event is longer than {self._limit} bytes")


def _may_end(edge: bytes) -> bool:
    """Whether there may be a blank line: only then is a long event put together and looked at."""
    if b"\r" in edge:
        return _BLANK_LINE.search(edge) is not None
    return b"\n\n" in edge


def _line_end(data: bytes) -> bytes:
    """How all lines end; empty where that varies, or where it is a lone CR."""
    returns = data.count(b"\r")
    if not returns:
        return b"\n"
    return b"\r\n" if returns == data.count(b"\n") == data.count(b"\r\n") else b""


def _is_all_whole(data: bytes) -> bool:
    """Whether it is plain that nothing follows the last whole event: so are most chunks."""
    return data.endswith(b"\n\n") and b"\r" not in data and not data.endswith(b"\n\n\n")


def _end_of_events(data: bytes) -> int:
    """Where the last whole event ends. Line ends make blank lines in pairs, from the left."""
    if _is_all_whole(data):
        return len(data)
    line_end = _line_end(data)
    if not line_end:
        return sum(map(len, _split_any(data)))
    end = data.rfind(line_end * 2) + 2 * len(line_end)
    if end < 2 * len(line_end):
        return 0
    if data.endswith(line_end * 3, 0, end):
        run = end - len(data[:end].rstrip(line_end))
        end -= run % (2 * len(line_end))
    return end


def _blocks(whole: bytes, line_end: bytes) -> Iterator[bytes]:
    """Blocks without their blank line; or with it, where line ends vary."""
    if not line_end:
        yield from _split_any(whole, whole=True)
    blank_line, start = line_end * 2, 0
    while line_end and start < len(whole):
        end = whole.index(blank_line, start)
        yield whole[start:end]
        start = end + len(blank_line)


def _split_any(data: bytes, whole: bool = False) -> Iterator[bytes]:
    """Blocks of whole events, each with its blank line, of whatever spelling."""
    start = 0
    for match in _BLANK_LINE.finditer(data):
        # A lone CR at the very end may be half of a CRLF.
        if match.end() == len(data) and data.endswith(b"\r") and not whole:
            break
        yield data[start : match.end()]
        start = match.end()


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


def _parse_first(block: bytes) -> Event:
    """A byte order mark counts only at the very start."""
    return _parse_lines(block, _LINE_END.split(block.removeprefix(_BOM)))


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


_PLAIN_DATA = re.compile(rb"(?:data: .*+\n\n)*+")
_PLAIN_DATA_CRLF = re.compile(rb"(?:data: .*+(?<=\r)\n\r\n)*+")


def plain_data(events: bytes) -> tuple[list[bytes], int]:
    """The data of the first of some whole events, as far as each is one line of it, `data: `, and
    nothing else; and how many bytes each has more than its data."""
    crlf = b"\r" in events
    end = (_PLAIN_DATA_CRLF if crlf else _PLAIN_DATA).match(events).end()  # type: ignore[union-attr]
    if not end:
        return [], 0
    blank_line = b"\r\n\r\n" if crlf else b"\n\n"
    data = events[6 : end - len(blank_line)].split(blank_line + b"data: ")
    if crlf and events.count(b"\r", 0, end) != 2 * len(data):
        return [], 0
    return data, 6 + len(blank_line)


def named_events(names: Iterable[bytes]) -> Callable[[bytes], int]:
    """Tells how many bytes the first of some whole events have, as far as each is a line of its
    name, one of `names`, and one of data, ended by LF."""
    known = b"|".join(map(re.escape, names))
    match = re.compile(rb"(?:event: (?:%b)\ndata: .*+\n\n)*+" % known).match
    return lambda events: 0 if b"\r" in events else match(events).end()  # type: ignore[union-attr]


def last_data(events: bytes) -> bytes:
    """The data of the last of such events."""
    return events[events.rindex(b"\ndata: ") + 7 : -2]


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
