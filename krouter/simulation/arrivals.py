"""Who comes when: the requests of a load, in the order of their times."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from itertools import count

from krouter.simulation.loads import Asked, Load, Rate


def arrivals(load: Load, seed: int) -> Iterator[Asked]:
    """Each request once. Those of a rate come at random, as many as `requests` says or in
    `seconds`."""
    if isinstance(load.requests, list):
        return iter(sorted(load.requests, key=lambda asked: asked.at))
    return _drawn(load, random.Random(f"arrivals {seed}"))  # noqa: S311


def _drawn(load: Load, chance: random.Random) -> Iterator[Asked]:
    dialects, weights = list(load.dialects), list(load.dialects.values())
    needs = sorted(load.needs.items())
    sessions = count(1)
    session = ""
    most = load.requests if isinstance(load.requests, int) else None
    for number, at in enumerate(_times(load, chance)):
        if most is not None and number >= most:
            return
        if load.seconds is not None and at >= load.seconds:
            return
        if not session or chance.random() * load.session < 1:
            session = f"{next(sessions)}"
        yield Asked(
            at,
            chance.choices(dialects, weights)[0] if len(dialects) > 1 else dialects[0],
            chance.random() < load.stream,
            tuple(need for need, share in needs if chance.random() < share),
            load.input,
            load.output,
            session,
        )


def _times(load: Load, chance: random.Random) -> Iterator[float]:
    """A Poisson process whose rate changes at some times; without end."""
    rates = load.rate if isinstance(load.rate, list) else [Rate(load.rate)]
    rates = sorted(rates, key=lambda each: each.begin)
    begins, at = [each.begin for each in rates], 0.0
    while True:
        place = bisect_right(begins, at) - 1
        ends = begins[place + 1] if place + 1 < len(begins) else float("inf")
        rate = rates[place].rate if place >= 0 else 0.0
        step = chance.expovariate(rate) if rate else float("inf")
        if at + step < ends:
            at += step
            yield at
        else:
            at = ends  # what is left of the wait is drawn anew, as if it began here
