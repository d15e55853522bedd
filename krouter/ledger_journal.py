"""The journal of the ledger: what was put and is not in the file yet, where no crash can take it.

Each process appends to journals of its own beside the file, `NAME.journal-PID-RANDOM`, and holds
them locked (flock) while it lives. One that nobody holds was left by a process that has ended:
whoever writes or reads the ledger next takes it in. A line is `[form, combos, record]` as JSON; a
line that was cut off ends without a newline.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from krouter.records import VERSION, Encoded, decode, encode
from krouter.route import Route

try:
    import fcntl
except ImportError:  # a system without flock: what was put waits in memory alone
    fcntl = None  # type: ignore[assignment]

SEGMENT_BYTES = 1_000_000
"""From when on the next journal is begun, so that a written one can go."""
MOST_BYTES = 64_000_000
"""Of all the journals of a process; beyond, routes wait in memory alone."""
LARGE = 1 << 16
"""A record of more bytes is not held beside its route: it is encoded again when it is written."""


class _Line(Struct, array_like=True):
    form: int
    combos: dict[str, Raw]
    record: Raw


@dataclass(slots=True)
class Segment:
    """One file of a journal. `waiting` of its lines are not settled."""

    path: Path
    fd: int
    size: int = 0
    waiting: int = 0

    def append(self, line: bytes) -> None:
        """All of a line or nothing. Raises OSError."""
        if os.write(self.fd, line) < len(line):
            os.ftruncate(self.fd, self.size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.size += len(line)
        self.waiting += 1

    def is_in_place(self) -> bool:
        return _is_at(self.path, self.fd)

    def remove(self) -> None:
        with suppress(OSError):
            if self.is_in_place():
                self.path.unlink()
        os.close(self.fd)


class Kept(Struct, frozen=True, eq=False):
    """A route on its way into the file. `encoded` is None where it is too large or cannot be,
    `segment` where only the memory holds it."""

    route: Route
    encoded: Encoded | None
    segment: Segment | None = None


class Journal:
    """Of one process and one ledger. Any thread may use it; nothing here raises."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        self._is_broken = fcntl is None
        self._forking = False

    def keep(self, route: Route) -> Kept:
        """Appends a route: one write to the page cache, which outlives a killed process."""
        try:
            record, combos = encoded = encode(route)
            if route.lingers:  # it goes on to change, while another thread writes it
                route = decode(record, combos.get)
        except Exception:  # the thread of the ledger meets it again, and tells it
            return Kept(route, None)
        segment = self._append(_line(record, combos))
        return Kept(route, encoded if len(record) <= LARGE else None, segment)

    def _append(self, line: bytes) -> Segment | None:
        with self._lock:
            try:
                segment = None if self._is_broken else self._current()
                if segment is not None:
                    segment.append(line)
            except OSError:
                self._is_broken = True
                return None
            return segment

    def _current(self) -> Segment | None:
        """Where the next line goes; None when there is too much already. Raises OSError."""
        if self._segments and (last := self._segments[-1]).size < SEGMENT_BYTES:
            return last
        if sum(each.size for each in self._segments) >= MOST_BYTES:
            return None
        self._segments.append(_begin(self._ledger))
        return self._segments[-1]

    def settle(self, done: Iterable[Kept]) -> None:
        """These are in the file, or given up."""
        with self._lock:
            for each in done:
                if each.segment is not None:
                    each.segment.waiting -= 1
            self._tidy()

    def _tidy(self) -> None:
        for segment in [each for each in self._segments if not each.waiting]:
            try:
                if segment is self._segments[-1] and segment.is_in_place():
                    if segment.size:
                        os.ftruncate(segment.fd, 0)
                        segment.size = 0
                    continue
            except OSError:  # then a new one is begun
                pass
            self._segments.remove(segment)
            segment.remove()

    def mend(self) -> None:
        """The file can be written: so may the journal be."""
        if fcntl is not None:
            self._is_broken = False

    def close(self) -> None:
        """Removes what is settled; what is not stays, for whoever comes next."""
        with self._lock:
            for segment in [each for each in self._segments if not each.waiting]:
                self._segments.remove(segment)
                segment.remove()

    def before_fork(self, seconds: float) -> None:
        self._forking = self._lock.acquire(timeout=seconds)

    def after_fork(self, is_child: bool) -> None:
        """The journals stay those of the old process; the new one must not keep them locked."""
        if is_child:
            for segment in self._segments:
                with suppress(OSError):
                    os.close(segment.fd)
            self._segments, self._lock = [], threading.Lock()
        elif self._forking:
            self._lock.release()


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A journal of a process that has ended, locked by this one."""

    path: Path
    fd: int

    def kept(self) -> tuple[list[Kept], int]:
        """Its routes, and how many lines cannot be read. Raises OSError, and NewerLine."""
        *lines, _ = _read(self.fd).split(b"\n")
        found = list(filter(None, map(_kept, lines)))
        return found, len(lines) - len(found)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class NewerLine(Exception):
    """A journal that a newer krouter has written."""


def left_over(ledger: Path) -> Iterator[LeftOver]:
    """Each journal that nobody holds, locked while the caller looks at it. Raises OSError where
    the folder cannot be read."""
    for path in _journals(ledger) if fcntl is not None else ():
        with _taken(path) as fd:
            if fd is not None:
                yield LeftOver(path, fd)


def has_left_over(ledger: Path) -> bool:
    """Whether there is a journal that nobody holds."""
    try:
        return any(True for _ in left_over(ledger))
    except OSError:
        return False


_BEGIN = b"[%d,{" % VERSION


def _line(record: bytes, combos: dict[str, bytes]) -> bytes:
    """A `_Line`, put together of JSON that is made already."""
    named = b",".join([b'"' + digest.encode() + b'":' + text for digest, text in combos.items()])
    return b"".join((_BEGIN, named, b"},", record, b"]\n"))


def _kept(line: bytes) -> Kept | None:
    try:
        read = msgspec.json.decode(line, type=_Line)
        if read.form > VERSION:
            raise NewerLine
        combos = {digest: bytes(text) for digest, text in read.combos.items()}
        route = decode(bytes(read.record), combos.get)
    except ValueError:  # RecordError and whatever msgspec and pydantic raise
        return None
    return Kept(route, (bytes(read.record), combos))


def _journals(ledger: Path) -> list[Path]:
    start = f"{ledger.name}.journal-"
    with suppress(FileNotFoundError), os.scandir(ledger.parent) as found:
        return sorted(Path(each.path) for each in found if each.name.startswith(start))
    return []


def _begin(ledger: Path) -> Segment:
    """A journal that only its owner may read, locked. Raises OSError."""
    ledger.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        name = f"{ledger.name}.journal-{os.getpid()}-{secrets.token_hex(4)}"
        path = ledger.with_name(name)
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND, 0o600)
        try:
            if _lock(fd) and _is_at(path, fd):
                return Segment(path, fd)
        except OSError:
            path.unlink(missing_ok=True)
            os.close(fd)
            raise
        os.close(fd)  # another process took it for one left over


@contextmanager
def _taken(path: Path) -> Iterator[int | None]:
    """The journal at `path`, where it is this user's own and nobody holds it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield None
        return
    try:
        is_own = os.fstat(fd).st_uid == os.geteuid()
        yield fd if is_own and _lock(fd) and _is_at(path, fd) else None
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _read(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)
