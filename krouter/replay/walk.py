"""The walk over a record: who is asked in which order, and ends as the record says it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace as replaced

from msgspec.structs import replace

from krouter.dialects.embeddings import EMBEDDINGS
from krouter.errors import Failure
from krouter.lineup import Leaf, Site, opened
from krouter.replay.evidence import BLOCKED, Bare, Step, Turn, alias_of
from krouter.replay.parts import Owed, Shut, had_no_room, parted, place_had
from krouter.replay.scene import (
    Call,
    Ended,
    Scene,
    is_blind,
    limit_of,
)
from krouter.replay.tell import Teller
from krouter.route import Attempt, Skip, Skipped

_SOFT = frozenset((Failure.OVERLOADED, Failure.SERVER_ERROR, Failure.TIMED_OUT))
"""What locks an account and is no reason to give up where nothing else is left."""
Fuse = Callable[[Scene, Site, float, int], Ended]


class Walk(Teller):
    """The passes over the entries of one request, in the order of the real walk. `role` is what a
    fusion asks for, `at` how many seconds after the request it begins, `voice` which of the
    record's voices it is, 0 for none."""

    def __init__(
        self, scene: Scene, fuse: Fuse, role: str = "", at: float = 0.0, voice: int = 0
    ) -> None:
        super().__init__(scene, role, at)
        self._fuse, self._voice = fuse, voice
        self._full: list[Shut] = []
        self._refuser: Owed | None = None
        self._passed = False

    def run(self, site: Site) -> Ended:
        """How it ends. Raises Bare where the record's own order leads where the record has
        nothing."""
        flat = self._scene.dialect == EMBEDDINGS.name
        return (
            self._first_pass(opened(site, self._scene.plan_of, flat=flat))
            or self._second_pass()
            or self._queue()
            or self._without_features()
            or self._give_up()
        )

    def _first_pass(self, leaves: Iterator[Leaf]) -> Ended | None:
        for leaf in leaves:
            if self._bounds.too_large and (ended := self._too_large_inside(leaf)):
                return ended
            if self._is_due(leaf) and (ended := self._without_images()):
                return ended
            if ended := self._entry(leaf):
                return ended
        self._passed = True
        return self._without_images()

    def _too_large_inside(self, leaf: Leaf) -> Ended | None:
        """What was too large for a nested combo is too large for the one around it."""
        while left := [found for found in self._bounds.left(leaf) if found.failed is self._failed]:
            found = left[0]
            if self._stripped or not isinstance(self._last, Call):
                return None
            *outer, _ = found.nest
            if outer[-1].combo.on_too_large != "larger":
                return self._failure(self._last)
            self._bounds.too_large.remove(found)
            self._bounds.too_large.append(replaced(found, nest=tuple(outer)))
        return None

    def _is_due(self, leaf: Leaf) -> bool:
        """Whether no entry that may read the images is left, from `leaf` on."""
        if not self._stripped or self._is_read_later(leaf):
            return False
        plan, place = leaf.nest[-1], leaf.places[-1]
        step = next(step for at, step in plan.placed() if at == place)
        return is_blind(plan, step.listed)

    def _is_read_later(self, leaf: Leaf) -> bool:
        return not self._passed and any(
            step.entry.model not in self._asked and not is_blind(plan, step.listed)
            for plan, place in zip(leaf.nest, leaf.places, strict=True)
            for step in plan.after(place)
        )

    def _entry(self, leaf: Leaf) -> Ended | None:
        if self._passes_over(leaf):
            return None
        if self._is_over:
            return self._time_over()
        if leaf.fusion is not None:
            ended = self._fuse(self._scene, leaf.fusion, self.at, self._voice)
            self.at = ended.at
            held = ended.outcome == Failure.EMPTY_REPLY and not leaf.last
            if ended.cut or (ended.served is not None and not held):
                return ended
            self._last, self._failed = ended, None
            return None
        turn = self._turn(leaf)
        if turn is None:
            return self._unknown(leaf)
        return self._run(leaf, turn, parted(turn)[0])

    def _passes_over(self, leaf: Leaf) -> bool:
        bounds = self._bounds
        over = leaf.obstacle is not None or bounds.has_ended(leaf)
        if self._scene.is_then:  # of the parameters that tell two apart, a record has the names
            over = over or not self._scene.evidence.may_have(self._voice, leaf.places)
        elif leaf.key in bounds.tried:
            return True
        if over or bounds.is_too_small(leaf):
            return True
        bounds.tried.add(leaf.key)
        return False

    def _turn(self, leaf: Leaf) -> Turn | None:
        """What is known of an entry, of its accounts that it may still be tried with."""
        scene, evidence = self._scene, self._scene.evidence
        if scene.is_then:
            turn = evidence.turn_at(self._voice, leaf.places)
        else:
            turn = evidence.take(leaf.entry, self._role, leaf.places)
        stream, is_copy = scene.stream, self._role == "panel"
        if turn is not None and scene.is_then:
            turn.last, turn.guard = leaf.last, leaf.combo.stream_guard
            turn.limit = limit_of(leaf, leaf.last, stream=stream, is_copy=is_copy)
            turn.retries = leaf.combo.retries
        if turn is None and not scene.is_then and (steps := evidence.stood_in(leaf.name)):
            turn = Turn(leaf.entry, self._role, leaf.places, 0, steps)
        allowed = leaf.entry.accounts
        if turn is None or allowed is None or not turn.accounts:
            return turn
        steps = [step for step in turn.steps if not step.account or step.account in allowed]
        return replace(turn, steps=steps) if steps else None

    def _run(
        self,
        leaf: Leaf,
        turn: Turn,
        steps: list[Step],
        *,
        final: bool = False,
        waited: bool = False,
        more: bool = False,
    ) -> Ended | None:
        """The known steps of an entry, as far as they would have been made."""
        repeats, left, evidence = 0, list(steps), self._scene.evidence
        while left:
            step = left.pop(0)
            if isinstance(step, Skipped):
                if not waited and (ended := self._skip(leaf, turn, step)):
                    return ended
                continue
            if self._is_over:
                return self._time_over()
            if self._stands_in_twice(leaf, step):
                continue
            if not waited and self._is_locked_now(leaf, turn, step):
                continue
            call = self._say(leaf, turn, self._scene.told(step, self._role), final)
            if ended := self._answered(leaf, turn, call, final):
                return ended
            if step.wait is not None and evidence.was_cut and step is evidence.route.attempts[-1]:
                return self._cut_off()
            if self._is_postponed(leaf, turn, call, left):
                return None
            repeats += step.wait is not None
            if turn.retries > leaf.combo.retries < repeats:
                left = [s for s in left if (s.entry, s.account) != (call.entry, call.account)]
            if not left and more:
                return None
            if ended := self._concluded(leaf, turn, call, left):
                return ended
            if call.assumed:
                return None
        return None

    def _is_postponed(self, leaf: Leaf, turn: Turn, call: Call, rest: list[Step]) -> bool:
        """Whether it is owed another try, without what it refuses, that comes after the others."""
        was = call.was
        if was is None or call.outcome != was.outcome:
            return False
        if call.outcome == Failure.IMAGE_REJECTED and "image" not in was.dropped:
            needs = self._scene.evidence.route.needs
            if "image" in needs and self._is_read_later(leaf):
                self._stripped.append(Owed(leaf, turn, rest, call))
                return True
            self._bounds.spare(leaf)
        if call.outcome == Failure.FEATURE_REFUSED:
            self._refuser = Owed(leaf, turn, rest, call)
            return not leaf.last
        return False

    def _concluded(self, leaf: Leaf, turn: Turn, call: Call, rest: list[Step]) -> Ended | None:
        """What a failure means for the rest, unless the same account is asked again."""
        again = rest[0] if rest else None
        full = isinstance(again, Skipped) and again.reason is Skip.AT_LIMIT
        if again is not None and (full or isinstance(again, Attempt)):
            is_same = (again.entry, again.account) == (call.entry, call.account)
            if is_same:
                return None
        if not rest and self._is_owed(call, turn) and call.was is not None:
            return self._assume(leaf, call.account)
        return self._conclude(leaf, call)

    def _is_owed(self, call: Call, turn: Turn) -> bool:
        """Whether it would have been tried again at once, though it was not then."""
        if self._scene.is_then or call.was is None:
            return False
        if call.outcome == Failure.IMAGE_REJECTED and "image" not in call.was.dropped:
            return self._is_open
        return self._was_passed_on(call) and not turn.last

    def _was_passed_on(self, call: Call) -> bool:
        """Whether others were asked after an entry that refused a feature, so that it was not known
        whether it answers without."""
        refused = not self._scene.is_then and call.outcome == Failure.FEATURE_REFUSED
        return refused and call.was is not self._scene.evidence.route.attempts[-1]

    @property
    def _is_open(self) -> bool:
        """Whether the record leaves open what would have come at the end of the walk: somebody
        has answered before."""
        return not self._scene.is_then and self._scene.evidence.was_answered

    def _stands_in_twice(self, leaf: Leaf, step: Attempt) -> bool:
        """Whether a model that stood in for the entry has had its own turn before."""
        if step.entry == leaf.name or self._scene.is_then:
            return False
        return step.entry in self._asked and not any(
            was.places == step.places and was.entry == step.entry for was, _, _ in self._ends
        )

    def _skip(self, leaf: Leaf, turn: Turn, step: Skipped) -> Ended | None:
        """An account that was passed over is passed over again, unless it was locked by what comes
        later now."""
        if step.reason not in BLOCKED:
            return None
        evidence, later = self._scene.evidence, parted(turn)[1]
        known = later.get((step.entry, step.account), [])
        if step.reason is Skip.AT_LIMIT:
            self._full.append(Shut(leaf, turn, step.account, known))
            return None
        if self._is_unlocked(evidence.lockers(step)):
            return self._ask(leaf, step.account)
        self._shut.append(Shut(leaf, turn, step.account, known, step.detail))
        return None

    def _is_locked_now(self, leaf: Leaf, turn: Turn, step: Attempt) -> bool:
        if self._scene.is_then:
            return False
        again = any(call.was is step for call in self._scene.calls)
        why = self._is_locked(step.entry, step.account, -1.0 if again else step.began)
        why = why or (step.outcome if again else "")
        if why:
            later: list[list[Step]] = [[step]] if why in _SOFT else []
            self._shut.append(Shut(leaf, turn, step.account, later, why))
        return bool(why)

    def _unknown(self, leaf: Leaf) -> Ended | None:
        """An entry of which the record has nothing."""
        scene = self._scene
        if scene.is_then:
            return self._assume(leaf, "")
        obstacle = scene.guesses.obstacle(leaf.entry, scene.dialect)
        if obstacle is not None:
            scene.passed_over.append((leaf.name, str(obstacle.reason)))
            return None
        for account in scene.guesses.accounts(leaf.entry):
            if ended := self._ask(leaf, account):
                return ended
        return None

    def _ask(self, leaf: Leaf, account: str) -> Ended | None:
        """An account of which nothing is known with this entry: it answers, unless it was locked
        before or another entry has found it to be of no use."""
        evidence, alias = self._scene.evidence, alias_of(leaf.name)
        why = self._is_locked(leaf.name, account)
        skip = evidence.lock_of(alias, account)
        if why or skip is not None:
            self._shut.append(Shut(leaf, None, account, [], why or (skip.detail if skip else "")))
            return None
        asked = {id(call.was) for call in self._scene.calls}
        known = evidence.attempt_at(leaf.name, account, self._role)
        if known is not None and id(known) not in asked:
            call = self._say(leaf, None, self._scene.told(known, self._role))
            return self._answered(leaf, None, call) or self._conclude(leaf, call)
        if failing := evidence.account_fails(alias, account):
            call = self._scene.failing(failing, leaf, account, self._role)
            call = self._say(leaf, None, call)
            return self._answered(leaf, None, call) or self._conclude(leaf, call)
        return self._assume(leaf, account)

    def _assume(self, leaf: Leaf, account: str, final: bool = False) -> Ended | None:
        scene, evidence = self._scene, self._scene.evidence
        if scene.is_then:
            if evidence.was_cut:
                return self._cut_off()
            raise Bare("what it tells of does not lead to its end")
        if self._is_over:
            return self._time_over()
        call = self._say(leaf, None, scene.assumed(leaf, account, self._role), final)
        return self._answered(leaf, None, call, final) or self._conclude(leaf, call)

    def _without_images(self) -> Ended | None:
        """Those that take no images, asked once more without them."""
        while self._stripped:
            owed = self._stripped.pop(0)
            self._bounds.spare(owed.leaf)
            if ended := self._again(owed):
                return ended
        return None

    def _again(self, owed: Owed, final: bool = False) -> Ended | None:
        if owed.rest:
            return self._run(owed.leaf, owed.turn, owed.rest, final=final)
        if self._is_open or self._was_passed_on(owed.call):
            return self._left_open(owed.leaf, owed.call.account, final)
        return None

    def _second_pass(self) -> Ended | None:
        """Nothing is left: locks that only say "busy" or "silent" are ignored."""
        soft = [shut for shut in self._shut if shut.later or shut.why in _SOFT]
        turns = self._scene.evidence.turns
        self._full += (shut for shut in soft if had_no_room(shut, turns))
        soft = [shut for shut in soft if not had_no_room(shut, turns)]
        for place, shut in enumerate(soft, 1):
            if self._bounds.is_out(shut.leaf):
                continue
            final = place == len(soft) and not self._full
            if ended := self._open(shut, final):
                return ended
        return None

    def _open(self, shut: Shut, final: bool) -> Ended | None:
        """An account that was passed over, asked after all."""
        if shut.later and shut.turn is not None:
            now, *again = shut.later
            if again:
                self._full.append(replace(shut, later=again))
            if not now:
                return self._left_open(shut.leaf, shut.account, final)
            return self._run(shut.leaf, shut.turn, now, final=final, waited=True, more=bool(again))
        if self._is_open or self._scene.evidence.was_cut:
            return self._left_open(shut.leaf, shut.account, final)
        return None

    def _left_open(self, leaf: Leaf, account: str, final: bool) -> Ended | None:
        """What the record does not tell: whether an account would have been asked at the end, and
        what had come of it. Where the caller left while it waited for that, it leaves again."""
        if self._scene.evidence.was_cut:
            return self._cut_off()
        return self._assume(leaf, account, final)

    def _queue(self) -> Ended | None:
        """Nothing is left but accounts at their limit: those first of which is known that they had
        a place."""
        while self._full:
            shut = min(self._full, key=place_had)
            self._full.remove(shut)
            if self._bounds.is_out(shut.leaf):
                continue
            if ended := self._open(shut, not self._full):
                return ended
        return None

    def _without_features(self) -> Ended | None:
        """The last that could be asked refused a feature: as the last it is asked without."""
        owed = self._refuser
        if owed is None or self._last is not owed.call or owed.leaf.last:
            return None
        self._bounds.spare(owed.leaf)
        return self._again(owed, final=True)

    def _give_up(self) -> Ended:
        """An empty reply if one came last, else the last error; else why nothing was sent."""
        if self._returned is not None:
            return self._failure(self._returned)
        last = self._last
        if isinstance(last, Ended):
            return replace(last, at=self.at, wait=self.at)
        if last is None:
            hard = {shut.why for shut in self._shut}
            limited = hard & {Failure.RATE_LIMITED, Failure.QUOTA_SPENT}
            return self._nothing(429 if limited else 503)
        if last.outcome == Failure.EMPTY_REPLY:
            return replace(self._served(last), outcome=last.outcome)
        return self._failure(last)
