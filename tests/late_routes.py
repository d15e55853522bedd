"""Routes of fusions whose late calls end after their answer."""

from __future__ import annotations

import copy
import time
from typing import Any

from hypothesis import strategies as st

from krouter.dialects.base import Usage
from krouter.route import Attempt, End, Role, Route, Skip, Skipped, Strand, Voice

Steps = list[Attempt | Skipped]
Told = tuple[Route, Steps]
"""A route that is told anew, and what has come to it since."""

_usages = st.none() | st.builds(Usage, st.integers(0, 9999), st.integers(0, 9999))


@st.composite
def tellings(draw: st.DrawFn, id: str) -> list[Told]:
    """A fusion as it is told first, and after its late calls, if there are any."""
    at = time.time()
    route = Route(id, at, "chat", "wise", False, "wise", status=200, outcome=End.ANSWERED)
    strands = [_voice(route, "panel", n) for n in range(1, draw(st.integers(2, 4)) + 1)]
    late = draw(st.sets(st.sampled_from(range(len(strands)))))
    open_steps: Steps = []
    for number, strand in enumerate(strands):
        entry = f"{'ab'[number % 2]}/m{number}"
        for _ in range(draw(st.integers(0, 1))):
            strand.add(Skipped(entry, "x", Skip.LOCKED))
        for _ in range(draw(st.integers(0, 2))):
            strand.add(_ended(draw, entry, "overloaded"))
        if number in late:
            if draw(st.booleans()):
                open_steps.append(_open(entry))
                strand.add(open_steps[-1])
        else:
            strand.add(_ended(draw, entry, End.ANSWERED))
    judge = _voice(route, "judge", 0)
    answer = _ended(draw, "a/judge", End.ANSWERED)
    judge.add(answer)
    route.serve(answer)
    route.ended, route.lingers = at + 2, bool(late)
    told: list[Told] = [(copy.deepcopy(route), [])]
    if not late:
        return told
    count = len(route.steps)
    for step in open_steps:
        assert isinstance(step, Attempt)
        _end(draw, step, draw(st.sampled_from([End.ANSWERED, End.CALLED_OFF, "timed out"])))
    for number in sorted(late):
        for _ in range(draw(st.integers(0, 2))):
            strands[number].add(_ended(draw, f"a/again{number}", "server error"))
        route.voices[number].ended = at + 9
    route.lingers, route.revision = False, 1
    told.append((route, [*open_steps, *route.steps[count:]]))
    return told


def _voice(route: Route, role: Role, place: int) -> Strand:
    voice = Voice(role, f"a/m{place}", route.began, place, outcome=End.ANSWERED, length=9)
    return route.strand(voice, heard=role == "judge")


def _open(entry: str) -> Attempt:
    provider, model = entry.split("/")
    return Attempt(entry, model, "main", "native", 1.0, provider)


def _ended(draw: Any, entry: str, outcome: str) -> Attempt:
    return _end(draw, _open(entry), outcome)


def _end(draw: Any, attempt: Attempt, outcome: str) -> Attempt:
    attempt.usage, attempt.ended, attempt.outcome = draw(_usages), 2.0, outcome
    attempt.cost = draw(st.none() | st.integers(0, 10**12)) if attempt.usage else None
    return attempt
