"""How long to wait for calls that run side by side: until enough have given something usable, and a
little longer for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Quorum:
    """Whether to wait on. All times are seconds of one clock that only moves forward.

    Of `size` calls, begun at `began`, `needed` usable results are a quorum; from then on the others
    have `grace`. At `began + most` waiting is over regardless.
    """

    size: int
    needed: int
    grace: float
    most: float
    began: float
    usable: int = 0
    ended: int = 0
    reached: float | None = None
    """When there was a quorum."""

    def __post_init__(self) -> None:
        self.needed = min(max(self.needed, 1), self.size)

    @property
    def deadline(self) -> float:
        """When waiting is over, as far as is known."""
        hard = self.began + self.most
        return hard if self.reached is None else min(hard, self.reached + self.grace)

    def note(self, usable: bool, at: float) -> None:
        """One more call has ended."""
        self.ended += 1
        self.usable += usable
        if self.reached is None and self.usable >= self.needed:
            self.reached = at

    def left(self, now: float) -> float:
        """How much longer to wait; 0 where waiting is over."""
        return max(0.0, self.deadline - now) if self.ended < self.size else 0.0


async def collect(
    calls: Sequence[asyncio.Task[T]],
    quorum: Quorum,
    is_usable: Callable[[T], bool],
    now: Callable[[], float],
) -> list[T | None]:
    """What each call has given by the time that waiting is over, in the order of `calls`; None for
    one that was late, which runs on. Each result is looked at once. The calls raise nothing."""
    found: dict[asyncio.Task[T], T] = {}
    while (left := quorum.left(now())) > 0:
        pending = [call for call in calls if call not in found]
        done, _ = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        at = now()
        for call in (each for each in pending if each in done):
            found[call] = call.result()
            quorum.note(is_usable(found[call]), at)
    return [found.get(call) for call in calls]
