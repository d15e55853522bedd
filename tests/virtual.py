"""An event loop whose time passes only while nothing else is to be done, so that waits are exact
and take none of ours."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._of = loop

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, selectors._EventMask]]:
        if timeout is None:
            raise RuntimeError("nothing is left that could end the wait")
        self._of.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Without sockets: whatever is to come comes from timers. Begins at 0."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """What `main` gives, in a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
