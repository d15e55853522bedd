"""Printing for as long as somebody reads it."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import UnsupportedOperation

POLL_SECONDS = 0.5


def somebody_reads(seconds: float = POLL_SECONDS) -> bool:
    """Waits so long, or until whoever reads stdout has gone, which is noticed though nothing is
    written."""
    try:
        output = sys.stdout.fileno()
        poll = select.poll()
    except (AttributeError, UnsupportedOperation):  # no such call here, or no file at all
        time.sleep(seconds)
        return True
    poll.register(output, 0)
    return not poll.poll(seconds * 1000)


@contextmanager
def quiet_end() -> Iterator[None]:
    """Ctrl-C and a reader that has gone are no failures."""
    try:
        yield
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:  # what is still buffered must not fail when the process ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
