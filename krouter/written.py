"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def target_of(path: Path) -> Path:
    """The file itself, where the path is a link to it."""
    return Path(os.path.realpath(path))


def replace_whole(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Puts `content` in the place of the file, which no link is. Whoever reads, and whatever ends
    this process or the machine, finds the old file or the new one. Raises OSError."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode != 0o600:  # which is what mkstemp makes
            os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _settle(path.parent)


def _settle(folder: Path) -> None:
    """Has the folder itself written, without which a new name may not outlive the machine."""
    with contextlib.suppress(OSError):  # some systems open no folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
