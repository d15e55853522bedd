"""A bound on how long a part of one task may take."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any


class Limit:
    """`with Limit(seconds):` raises TimeoutError when its block has taken that long; None is no
    limit. What `asyncio.timeout` does at a third of its cost, which counts on every request."""

    __slots__ = ("_cancelling", "_seconds", "_task", "_timer", "expired")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self.expired = False

    def __enter__(self) -> Limit:
        if self._seconds is not None:
            loop = asyncio.get_running_loop()
            task: asyncio.Task[Any] | None = asyncio.current_task(loop)
            assert task is not None, "a limit bounds a task"
            self._task, self._cancelling = task, task.cancelling()
            self._timer = loop.call_later(self._seconds, self._expire)
        return self

    def lift(self) -> None:
        """The block may take as long as it likes from now on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer, self.expired = None, True
        self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.lift()
        if not self.expired:
            return
        is_own = self._task.uncancel() <= self._cancelling
        if is_own and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error
