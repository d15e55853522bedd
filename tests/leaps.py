"""Time that passes only while a provider is silent, so that no limit is reached because the machine
is busy, and none is waited out."""

from __future__ import annotations

import asyncio
import selectors
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.upstream import Upstream

SLOW = 20.0
"""So many real seconds is one of the loop's, as long as something is going on."""
SETTLED = 0.003
"""Real seconds without anything on any socket, after which all is read that had been sent."""


class LeapingLoop(asyncio.SelectorEventLoop):
    """From `silence` on, time leaps from timer to timer, until the silent connection is closed."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._ahead = 0.0
        self._silent: Any = None
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._ahead + (time.monotonic() - self._began) / SLOW

    def leap(self, seconds: float) -> None:
        self._ahead += seconds

    def silence(self, address: Any) -> None:
        """A provider has sent all that it will to this address of ours. From any thread."""
        with suppress(RuntimeError):  # closed
            self.call_soon_threadsafe(self._hear_nothing, address)

    def _hear_nothing(self, address: Any) -> None:
        self._silent = address

    @property
    def silent(self) -> bool:
        if self._silent is not None and not self._is_open(self._silent):
            self._silent = None
        return self._silent is not None

    def _is_open(self, address: Any) -> bool:
        transports = list(self._transports.values())  # type: ignore[attr-defined]
        ours = (t for t in transports if t.get_extra_info("sockname") == address)
        return any(not transport.is_closing() for transport in ours)


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: LeapingLoop) -> None:
        super().__init__()
        self._of = loop

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, selectors._EventMask]]:
        if timeout is None or timeout <= 0 or not self._of.silent:
            return super().select(timeout and timeout * SLOW)
        ready = super().select(SETTLED)
        if not ready:
            self._of.leap(timeout)
        return ready


def leaping_engine(patch: pytest.MonkeyPatch, upstream: Upstream) -> None:
    """For a `krouter.Router` that starts from now on."""

    def new_loop() -> LeapingLoop:
        loop = LeapingLoop()
        upstream.on_silence[:] = [loop.silence]
        return loop

    patch.setattr("krouter.engine._new_loop", new_loop)
