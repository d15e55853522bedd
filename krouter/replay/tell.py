"""What a walk over a record says: its calls one after the other, and how it ends."""

from __future__ import annotations

from krouter.attempt import Failed
from krouter.bounds import Bounds, TooLarge
from krouter.errors import Failure
from krouter.lineup import Leaf
from krouter.replay.evidence import SLACK, Turn, locks
from krouter.replay.parts import Owed, Shut, silent, verdict
from krouter.replay.scene import (
    Call,
    Ended,
    Scene,
    cut,
    error_status,
    falls_over,
    is_answer,
    limit_of,
    reply_after,
)
from krouter.route import Attempt, End

STOPS = frozenset(
    (
        *(Failure.TIMED_OUT, Failure.REFUSED, Failure.FEATURE_REFUSED, Failure.BAD_REQUEST),
        *(Failure.EMPTY_REPLY, Failure.MODEL_GONE, Failure.IMAGE_REJECTED, Failure.TOO_LARGE),
    )
)
"""Failures after which no other account of the entry is asked."""


class Teller:
    """How far a walk has come, and what that means for the rest. `role` is what a fusion asks for,
    `at` how many seconds after the request it begins."""

    def __init__(self, scene: Scene, role: str, at: float) -> None:
        self.at = at
        self._scene, self._role = scene, role
        self._bounds = Bounds(scene.world)
        self._ends: list[tuple[Attempt, float, bool]] = []
        """What has failed, when, and whether the record has it."""
        self._shut: list[Shut] = []
        self._stripped: list[Owed] = []
        self._returned: Call | None = None
        self._last: Call | Ended | None = None
        self._failed: Failed | None = None
        self._asked: set[str] = set()

    def _say(self, leaf: Leaf, turn: Turn | None, call: Call, final: bool = False) -> Call:
        """One call more, as long as its time limits let it."""
        scene, begins = self._scene, self.at + call.lead
        stream = scene.stream and self._role != "panel"
        after = reply_after(call, stream=stream)
        limit = limit_of(leaf, leaf.last or final, stream=stream, is_copy=self._role == "panel")
        left = max(scene.deadline - begins, 0.0)
        spent = scene.evidence.spent
        if spent is not None and call.was is spent and not scene.is_then:
            most = left if call.first is not None else min(limit, left)
            call = cut(call, most) if abs(most - after) > SLACK else call
        elif turn and not scene.is_then and limit < turn.limit and silent(call) > limit + SLACK:
            call = cut(call, limit)
        elif after > left + SLACK:
            call = cut(call, left)
        self.at = begins + (call.lasted or 0.0)
        if (failed := call.was or call.like) is not None:
            self._ends.append((failed, self.at, call.was is not None))
        self._asked.add(call.entry)
        scene.calls.append(call)
        return call

    def _answered(
        self, leaf: Leaf, turn: Turn | None, call: Call, final: bool = False
    ) -> Ended | None:
        if is_answer(call) and not falls_over(call, turn, leaf):
            return self._served(call)
        is_last = (leaf.last or final) and call.entry == leaf.name
        if call.outcome == Failure.EMPTY_REPLY and is_last:
            call.outcome = End.ANSWERED
            return self._served(call)
        self._last = call
        self._failed = Failed(verdict(call))
        return None

    def _served(self, call: Call) -> Ended:
        route = self._scene.evidence.route
        stream = self._scene.stream and self._role != "panel"
        wait = self.at - (call.lasted or 0.0) + reply_after(call, stream=stream)
        if call.was is not None and call.was is route.final and call.outcome == call.was.outcome:
            return Ended(call, route.status, route.outcome, self.at, wait)
        return Ended(call, 200, call.outcome, self.at, wait)

    def _conclude(self, leaf: Leaf, call: Call) -> Ended | None:
        bounds = self._bounds
        if call.outcome in (Failure.CALLER_GONE, End.CALLED_OFF):
            return self._failure(call)
        if call.outcome == Failure.TOO_LARGE:
            if leaf.combo.on_too_large != "larger":
                return self._failure(call)
            assert self._failed is not None
            bounds.too_large.append(TooLarge(leaf.nest, bounds.window(leaf), self._failed))
        elif call.outcome == Failure.REFUSED and self._returns(leaf):
            if not (self._stripped or not bounds.spared <= bounds.stopped):
                return self._failure(call)
            self._returned = call
        if call.outcome in STOPS:
            bounds.stopped.add(leaf.key)
        return None

    def _returns(self, leaf: Leaf) -> bool:
        for plan in reversed(leaf.nest):
            if plan.combo.on_refusal != "return":
                return False
            self._bounds.over.append(plan)
        return True

    def _is_locked(self, entry: str, account: str, since: float = -1.0) -> str:
        """Why an account is locked now by what this walk has asked, of what began after `since`."""
        if self._role:
            return ""
        for was, ended, known in self._ends:
            held = ended + (was.lock or 0.0) > self.at
            newer = not known or was.began > since
            if held and newer and locks(was, entry, account):
                return was.outcome
        return ""

    def _cut_off(self) -> Ended:
        route = self._scene.evidence.route
        return Ended(None, route.status, route.outcome, self.at, self.at, True)

    @property
    def _is_over(self) -> bool:
        return self.at >= self._scene.deadline - SLACK

    def _time_over(self) -> Ended:
        if isinstance(self._last, Call):
            return self._failure(self._last)
        return self._nothing(504)

    def _failure(self, call: Call) -> Ended:
        route = self._scene.evidence.route
        if call.was is not None and call.was is route.final and not route.served:
            gone = call.outcome == Failure.CALLER_GONE
            return Ended(None, route.status, route.outcome, self.at, self.at, gone)
        gone = call.outcome == Failure.CALLER_GONE
        return Ended(None, error_status(call), call.outcome, self.at, self.at, gone)

    def _nothing(self, status: int) -> Ended:
        route = self._scene.evidence.route
        if not route.attempts or (self._scene.is_then and route.outcome == End.NOTHING_SENT):
            return Ended(None, route.status, route.outcome, self.at, self.at)
        return Ended(None, status, End.NOTHING_SENT, self.at, self.at)

    def _is_unlocked(self, lockers: list[Attempt]) -> bool:
        """Whether none of those that had locked an account has been asked by now. A panel is asked
        at once, so that there it is not known who came first."""
        if self._scene.is_then or self._role == "panel" or not lockers:
            return False
        asked = {id(call.was) for call in self._scene.calls}
        return not any(id(attempt) in asked for attempt in lockers)
