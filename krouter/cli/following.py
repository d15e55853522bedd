"""Printing for as long as it can be written and somebody reads it."""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import UnsupportedOperation

import click

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
def printing() -> Iterator[None]:
    """A reader that has gone is no failure. Raises ClickException where what is printed cannot be
    written."""
    try:
        yield
    except BrokenPipeError:
        _drop_output()
        raise click.exceptions.Exit(0) from None
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        _drop_output()
        raise click.ClickException(f"the output cannot be written: {error.strerror}.") from None


_FULL = frozenset((errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT, errno.EBADF))
"""How writing to an open file fails; its name is then not in the error."""


def _drop_output() -> None:
    """What is still buffered must not fail when the process ends."""
    try:
        output = sys.stdout.fileno()
    except (AttributeError, UnsupportedOperation):  # no file at all
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
