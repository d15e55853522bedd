"""A client that needs a terminal, typed at until its screen shows what is looked for."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from contextlib import suppress
from pathlib import Path

PAUSE = 3.0
"""Seconds between two keys: a program that is still starting loses what comes before."""

NOT_STARTED = 127

CODES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


def shows(
    command: list[str],
    env: dict[str, str],
    folder: Path,
    keys: list[str],
    wanted: str,
    limit: float,
) -> tuple[bool, str]:
    """Whether the pattern `wanted` comes up within `limit` seconds, and the text of the screen.

    Types the `keys` one after the other, with a pause before each."""
    child, screen = pty.fork()
    if child == 0:
        try:
            os.chdir(folder)
            os.execve(command[0], command, env)
        finally:
            os._exit(NOT_STARTED)
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 160, 0, 0))
    ends, typed, left, seen = time.monotonic() + limit, time.monotonic(), list(keys), b""
    try:
        while time.monotonic() < ends and not re.search(wanted, text(seen)):
            if select.select([screen], [], [], 0.2)[0]:
                seen += os.read(screen, 65536)
            if left and time.monotonic() - typed > PAUSE:
                os.write(screen, left.pop(0).encode())
                typed = time.monotonic()
    except OSError:
        seen += b"\n(it has ended)"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(screen)
    return re.search(wanted, text(seen)) is not None, text(seen)


def text(seen: bytes) -> str:
    return CODES.sub(b" ", seen).decode(errors="replace")
