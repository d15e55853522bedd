"""The providers of a drill: one spot fails, and whoever answers can be told by what it says."""

from __future__ import annotations

from msgspec import Struct

from krouter.adapter import load_script
from krouter.drill.spots import Role, Spot
from krouter.script import Kind, Sent, Turn

MARK = "This is the whole answer of"
"""How every answer of a drill begins; whoever is sent one is asked to judge it."""
DOWN = "503"
"""What befalls the entries before the spot, so that its turn comes."""
GOOD = frozenset(("slow", "halting"))
"""How a fault happens that is none in the end."""
_ANSWERS_SECONDS = 1.0


class Step(Struct, frozen=True):
    """One request as it left krouter, and what its provider did: it said `text` in full, or had a
    fault that happened as `how` says; `at` is in seconds."""

    target: str
    role: Role
    fault: str
    how: str
    text: str
    at: float
    stream: bool

    @property
    def is_whole(self) -> bool:
        return not self.how


class Cast:
    """Has `kind` befall `spot`, or everybody where there is none, and remembers all that was sent.

    Those before the spot are down until its turn has come; those that are asked beside it answer.
    """

    def __init__(self, kind: Kind, spot: Spot | None) -> None:
        self.steps: list[Step] = []
        self._kind, self._spot = kind, spot
        self._befalls = load_script().befalls
        self.reached = spot is None
        """Whether the spot's turn has come."""

    def __call__(self, sent: Sent) -> Turn:
        role = _role(sent)
        fault = self._fault(sent, role)
        text = f"{MARK} {sent.entry}{', the judge' if role == 'judge' else ''}."
        how = self._how(fault, sent)
        self.steps.append(Step(sent.entry, role, fault, how, text, sent.at, sent.stream))
        return Turn(fault, text, _ANSWERS_SECONDS, _ANSWERS_SECONDS)

    def _fault(self, sent: Sent, role: Role) -> str:
        spot = self._spot
        if spot is None:
            return self._kind.name
        if (sent.entry, role) == (spot.target, spot.role):
            self.reached = True
            return self._kind.name
        return "" if self.reached or _is_beside(sent.entry, role, spot) else DOWN

    def _how(self, fault: str, sent: Sent) -> str:
        """Empty for what is a whole answer in the end."""
        if not fault:
            return ""
        if fault == DOWN:
            return "status"
        if self._kind.how in GOOD or not self._befalls(self._kind, sent):
            return ""
        return self._kind.how


def _role(sent: Sent) -> Role:
    """What it is asked for in a fusion, whose calls have keys of their own."""
    if not sent.key:
        return ""
    return "judge" if sent.holds(MARK) else "panel"


def _is_beside(target: str, role: Role, spot: Spot) -> bool:
    """Whether one is asked at the same time as the spot, or has to have answered before."""
    if role == "judge":
        return spot.role == "panel" or (spot.role == "judge" and target not in spot.judges)
    return role == "panel" and target in spot.fused
