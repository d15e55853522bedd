"""An event loop whose time passes only while nothing else is to be done, so that waits are exact
and take none of ours; and clocks that go by it.

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""The time of day, in epoch seconds, at which a virtual loop begins."""


class NothingLeft(RuntimeError):
    """Everything waits, and nothing is to come that could end a wait."""


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._of = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeft("nothing is left that could end the wait")
        if timeout > 0:
            self._of.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Without sockets and threads: whatever is to come comes from timers. Begins at 0 seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now

    def wall(self) -> float:
        """The time of day in epoch seconds, for what asks for it as `now`."""
        return EPOCH + self.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """What `main` gives, in a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
