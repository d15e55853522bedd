"""In what order a combo's entries are tried: one function and one registry row a strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

T = TypeVar("T")

Order = Callable[[Sequence[Any], int], Sequence[Any]]
"""The entries in order; the number says how often the turn has passed on."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One that `rotates` counts its requests; one that `fuses` asks all its entries at once."""

    name: str
    title: str
    order: Order
    rotates: bool = False
    fuses: bool = False


def as_listed(entries: Sequence[T], turn: int) -> Sequence[T]:
    return entries


def rotated(entries: Sequence[T], turn: int) -> Sequence[T]:
    shift = turn % len(entries)
    return (*entries[shift:], *entries[:shift])


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        row.name: row
        for row in (
            Strategy("fallback", "the list in order", as_listed),
            Strategy("priority", "the list in order, never rotated", as_listed),
            Strategy("round-robin", "another entry first each time", rotated, rotates=True),
            Strategy("fusion", "ask every entry, a judge writes one answer", as_listed, fuses=True),
        )
    }
)
