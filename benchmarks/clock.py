"""What a process has used, with its children, as the kernel counts it (Linux)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path


def tree(pid: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = defaultdict(list)
    for child, parent in _parents():
        children[parent].append(child)
    found = [pid]
    for each in found:
        found += children[each]
    return found


def _parents() -> Iterable[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        yield int(folder.name), int(after_name[1])


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of all their threads so far, to the nanosecond.

    The number of a process's CPU clock is made from its pid, as `clock_getcpuclockid` does it.
    """
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def rss_megabytes(pids: Iterable[int]) -> float:
    return sum(_rss_kilobytes(pid) for pid in pids) / 1024


def _rss_kilobytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])
