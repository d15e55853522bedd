"""In what order a combo's entries are tried: one function and one registry row a strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from krouter.combos import Entry

Order = Callable[[Sequence[Entry]], Sequence[Entry]]


@dataclass(frozen=True, slots=True)
class Strategy:
    """`order` is None where this version cannot run the strategy yet."""

    name: str
    title: str
    order: Order | None


def as_listed(entries: Sequence[Entry]) -> Sequence[Entry]:
    return entries


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        row.name: row
        for row in (
            Strategy("fallback", "the list in order", as_listed),
            Strategy("priority", "the list in order, never rotated", as_listed),
            Strategy("round-robin", "another entry first each time", None),
            Strategy("fusion", "ask every entry, a judge writes one answer", None),
        )
    }
)
