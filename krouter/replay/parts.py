"""The pieces of a walk over a record: accounts that were passed over, and entries owed a try."""

from __future__ import annotations

import math

from msgspec import Struct

from krouter.errors import Failure, Verdict
from krouter.lineup import Leaf
from krouter.replay.evidence import BLOCKED, Step, Turn
from krouter.replay.scene import Call, error_status
from krouter.route import Attempt, Skip, Skipped


class Shut(Struct):
    """An account that was passed over, and what is known of it if it was asked later."""

    leaf: Leaf
    turn: Turn | None
    account: str
    later: list[list[Step]]
    """What followed from each time that it was asked later."""
    why: str = ""


class Owed(Struct):
    """An entry that is owed another try, and what is known of that."""

    leaf: Leaf
    turn: Turn
    rest: list[Step]
    call: Call


def silent(call: Call) -> float:
    """Seconds until its first byte, or its end without one."""
    return (call.lasted if call.first is None else call.first) or 0.0


def place_had(shut: Shut) -> float:
    """When it was asked at last; for ever later where it was not."""
    return first(shut.later)


def had_no_room(shut: Shut, turns: list[Turn]) -> bool:
    """Whether an account was at its limit too, since entries after it were asked before it."""
    turn, began = shut.turn, place_had(shut)
    return turn is not None and any(
        other.voice == turn.voice and other.places > turn.places and asked_later(other) < began
        for other in turns
    )


def asked_later(turn: Turn) -> float:
    """When an account was asked that had been passed over."""
    return min(map(first, parted(turn)[1].values()), default=math.inf)


def first(later: list[list[Step]]) -> float:
    asked = (step for steps in later for step in steps)
    return min((step.began for step in asked if isinstance(step, Attempt)), default=math.inf)


Later = dict[tuple[str, str], list[list[Step]]]


def parted(turn: Turn) -> tuple[list[Step], Later]:
    """The steps of a turn in its time; and those at accounts that were passed over then and asked
    later, by entry and account, with what followed from them, each time that they were asked."""
    first: list[Step] = []
    later: Later = {}
    blocked: set[tuple[str, str]] = set()
    waits: set[tuple[str, str]] = set()
    into = first
    for step in turn.steps:
        who = step.entry, step.account
        if isinstance(step, Skipped):
            if step.reason not in BLOCKED:
                continue
            if who not in blocked:
                first.append(step)
                waits.add(who)
            elif step.reason is Skip.AT_LIMIT:
                later.setdefault(who, []).append([])
                waits.add(who)
            else:
                later.setdefault(who, []).append([step])
                waits.discard(who)
            blocked.add(who)
            continue
        if who in waits:
            waits.discard(who)
            times = later.setdefault(who, [])
            if not times or times[-1]:
                times.append([])
            into = times[-1]
        into.append(step)
    return first, later


def verdict(call: Call) -> Verdict:
    failure = Failure(call.outcome) if call.outcome in set(Failure) else Failure.SERVER_ERROR
    return Verdict(failure, call.row or 0, False, True, None, error_status(call), "", None, False)
