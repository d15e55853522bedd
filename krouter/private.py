"""Files that nobody but their owner should read."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private(path: Path) -> None:
    """Takes from others what they may do with a file of this user's. It is not opened: closing it
    would let go of the locks that this process holds on it."""
    with suppress(OSError):
        found = os.stat(path)
        if stat.S_ISREG(found.st_mode) and found.st_mode & OTHERS and _is_own(found):
            os.chmod(path, stat.S_IMODE(found.st_mode) & ~OTHERS)


def check_regular(path: Path) -> None:
    """Raises OSError for what is there and is no file: a pipe or a device may be read for ever."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")


def exposure(path: Path) -> str:
    """What others on this machine may do with a file: `read`, `write` or nothing. A file in a
    folder that they cannot enter is safe whatever its own mode says."""
    if os.name != "posix":
        return ""
    try:
        mode = path.stat().st_mode
        shut = [
            folder for folder in path.resolve().parents if not folder.stat().st_mode & stat.S_IXOTH
        ]
    except OSError:
        return ""
    if shut:
        return ""
    return "write" if mode & stat.S_IWOTH else "read" if mode & stat.S_IROTH else ""


def _is_own(found: os.stat_result) -> bool:
    return hasattr(os, "geteuid") and found.st_uid == os.geteuid()
