"""Whether what a caller saw was right: judged by what left krouter and what came to the caller.

Nothing here asks the router, its route or its walk. What was sent is known from the providers,
what the caller has from its own bytes, and what must follow from the rules of a combo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from krouter.drill.cast import Step
from krouter.drill.spots import Spot, is_panel
from krouter.rehearsal import Came, Seen
from krouter.script import Kind

Wrong = Literal["", "cut", "hang", "lost"]

SLACK = 8.0
"""Seconds that a request may take beyond a limit: to read the body of an error, and the last words
of a stream."""
_BEGUN = frozenset(("cut", "reset midway", "error midway", "stall"))
"""How streams break that had begun."""
_ANSWERED = frozenset((Came.WHOLE, Came.EMPTY))


@dataclass(frozen=True, slots=True)
class Finding:
    """What is `wrong` and at which `step` of the request; or, where no answer came though another
    entry could have given one, the `rule` by which that is right."""

    wrong: Wrong = ""
    step: str = ""
    told: str = ""
    rule: str = ""


def find(
    kind: Kind, spot: Spot | None, spots: Sequence[Spot], steps: Sequence[Step], seen: Seen
) -> Finding:
    """The worst that is to be said of one request, which had `kind` befall `spot`, or all."""
    here = _step(steps, {each.target: each.name for each in spots})
    if told := _passed_off(steps, seen):
        return Finding("cut", here, told)
    if told := _hangs(spots, seen):
        return Finding("hang", here, told)
    if seen.came in _ANSWERED and not (seen.came is Came.EMPTY and spot):
        return Finding()
    others = _could_answer(spot, spots, steps)
    if not others:
        alone = spot is not None and spot.role == "judge" and len(spot.judges) == 1
        return Finding(rule="the judge has no backup of its own" if alone else "")
    at = spot or spots[0]
    rule, excused = _rule(kind, at, steps, seen)
    left = [other for other in others if not _is_excused(other, at, kind, excused)]
    if not left:
        return Finding(rule=rule)
    why = f"after {seen.seconds:g} s " if seen.came is not Came.GONE else ""
    told = f"the caller got {_named(seen)} {why}though {left[0].name} had not been asked"
    return Finding("lost", here, told)


def _step(steps: Sequence[Step], names: Mapping[str, str]) -> str:
    """The last thing that was sent, in words."""
    if not steps:
        return "before anything was sent"
    last = steps[-1]
    role = ", the judge" if last.role == "judge" else ""
    return (
        f"step {len(steps)}, {names.get(last.target, last.target)}{role}: {last.fault or 'answers'}"
    )


def _named(seen: Seen) -> str:
    return f"{seen.status}" if seen.came is Came.ERROR else str(seen.came)


def _passed_off(steps: Sequence[Step], seen: Seen) -> str:
    """How what is not whole looks as if it were."""
    if seen.came is Came.WHOLE and seen.text not in {s.text for s in steps if s.is_whole}:
        return f"the caller takes {seen.text[:60]!r} for the whole answer, and nobody gave that"
    if seen.came is Came.EMPTY and not any(step.how == "empty" for step in steps):
        return "the caller takes nothing for the whole answer, and nobody gave that"
    if seen.came is Came.CUT:
        return "what the caller got ends without its proper end, and without an error"
    return ""


def _hangs(spots: Sequence[Spot], seen: Seen) -> str:
    """How the caller waits longer than the limits say."""
    if seen.came is Came.HUNG:
        return "the caller waits for ever"
    total = max((spot.timeouts.total for spot in spots), default=inf)
    waited = seen.seconds if seen.first is None else seen.first
    if waited > total + SLACK:
        return f"the caller waits {waited:g} s for a reply, and total is {total:g} s"
    stalls = [spot.timeouts.stall for spot in spots]
    longest = max((stall for stall in stalls if stall is not None), default=0.0)
    if None not in stalls and seen.silence > longest + SLACK:
        return f"the caller's stream is silent for {seen.silence:g} s, and stall is {longest:g} s"
    return ""


def _could_answer(spot: Spot | None, spots: Sequence[Spot], steps: Sequence[Step]) -> list[Spot]:
    """Who was never asked, and would have answered; where everybody fails, nobody. The same model
    elsewhere is no help: its accounts are locked."""
    if spot is None:
        return []
    asked = {(step.target, step.role) for step in steps}
    others = (each for each in spots if each.able and each.target != spot.target)
    return [e for e in others if (e.target, e.role) not in asked and _stands_in(e, spot)]


def _stands_in(other: Spot, spot: Spot) -> bool:
    """Whether one could be asked for what the spot was asked for: only another judge judges, and
    who is of the same panel is asked anyway, or has a member before it that answers."""
    if other.role == "judge":
        return spot.role == "judge" and other.target in spot.judges
    fusions = list(filter(is_panel, spot.combos))
    return not any(fusion in other.combos for fusion in fusions)


Excused = Literal["", "all", "inside", "smaller", "provider"]
"""Whom a rule excuses from answering: all others, those in the same combo, those whose window is
not known to be larger, or those of the same provider."""


def _rule(kind: Kind, spot: Spot, steps: Sequence[Step], seen: Seen) -> tuple[str, Excused]:
    """By which rule of the combo no other entry is asked, and which others it excuses."""
    combo = spot.combo
    if seen.came is Came.GONE:
        return "the caller has left", "all"
    if kind.row == 3:
        larger = all(each.on_too_large == "larger" for each in spot.combos)
        return f"onTooLarge is {combo.on_too_large}", "smaller" if larger else "all"
    if kind.row == 12 and combo.on_refusal == "return":
        return "onRefusal is return", "inside"
    if kind.row in (5, 6, 7):
        return "its accounts are locked for all models", "provider"
    last = steps[-1] if steps else None
    if last is not None and last.stream and kind.how in _BEGUN and combo.stream_guard != "full":
        return f"its first bytes had gone out, and streamGuard is {combo.stream_guard}", "all"
    if last is not None and last.stream and kind.how == "empty" and combo.stream_guard == "off":
        return "an empty stream is an answer while streamGuard is off", "all"
    is_pinged = last is not None and last.stream and kind.how == "pings"
    if is_pinged and spot.timeouts.first_token is None:
        return "signs of life are no silence while firstToken is off", "all"
    return "", ""


def _is_excused(other: Spot, spot: Spot, kind: Kind, excused: Excused) -> bool:
    match excused:
        case "all":
            return True
        case "inside":
            return spot.combo in other.combos
        case "provider":
            return other.target.partition("/")[0] == spot.target.partition("/")[0]
        case "smaller":
            return _window(other, spot) <= (spot.window or 0)
    return False


def _window(other: Spot, spot: Spot) -> int:
    """Tokens; 0 where it is not known, as that of a whole fusion is not."""
    is_fused = any(is_panel(each) and each not in spot.combos for each in other.combos)
    return 0 if is_fused else other.window or 0
