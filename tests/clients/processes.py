"""Processes that end with whoever started them."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

PATIENCE = 30.0
"""Seconds that a process has to end by itself once it has been told to."""
USER = ("--user", "--map-root-user")
APART = ("--pid", "--fork", "--kill-child", "--mount-proc")


def unshare(*options: str) -> list[str]:
    """A program that runs what follows in namespaces of its own. It is killed when the thread ends
    that has started it, however that ends."""
    return [*map(_found, ("setpriv", "--pdeathsig", "KILL", "unshare")), *USER, *options]


def _found(word: str) -> str:
    return shutil.which(word) or word


def isolated(command: Sequence[str]) -> list[str]:
    """The command as the first of a world of processes that ends with it, so that none which it
    leaves behind, in whatever session, lives longer."""
    return [*unshare(*APART), *command]


def works(command: Sequence[str]) -> bool:
    """Whether this machine can run `true` so."""
    try:
        return not subprocess.run([*command, "true"], capture_output=True).returncode
    except FileNotFoundError:
        return False


def leave_on_sigterm() -> None:
    """Lets SIGTERM run what `finally` and `with` promise."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: Any) -> NoReturn:
    sys.exit(128 + number)


def end(process: subprocess.Popen[bytes], patience: float = PATIENCE, group: bool = False) -> None:
    """Asks a process, or its group, to end, and kills it when it does not."""
    if process.poll() is None:
        _tell(process, signal.SIGTERM, group)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            _tell(process, signal.SIGKILL, group)
    process.wait()


def _tell(process: subprocess.Popen[bytes], number: signal.Signals, group: bool) -> None:
    if group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Holds a lock file; a second run ends at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another run holds {path}")
        yield
