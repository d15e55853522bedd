"""A fusion over a record: the panel, how long it is waited for, and who speaks then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from krouter.combos import Entry, reference
from krouter.errors import Failure
from krouter.lineup import Site
from krouter.plan import Step
from krouter.quorum import Quorum
from krouter.replay.evidence import NOBODY, Sitting
from krouter.replay.scene import Ended, Scene
from krouter.replay.walk import Walk
from krouter.route import End, Role, Voice

_LATE = (End.LATE, End.CALLED_OFF)


class Member(NamedTuple):
    """One of the panel: how its walk has ended, and what the record says of it."""

    step: Step
    ended: Ended
    voice: Voice | None

    def answered(self, *, late: bool) -> bool:
        """Whether it has an answer that can be used; what was `late` then may be in time now."""
        if self.voice is None or self.voice.outcome == End.ANSWERED:
            return self.ended.served is not None
        return late and self.voice.outcome in _LATE and self.ended.served is not None


def fuse(scene: Scene, site: Site, at: float, within: int) -> Ended:
    """How a fusion ends that begins `at` seconds after the request, asked by the voice `within`.
    One that was asked with the same combos ends as it did; another panel is waited for as its combo
    says."""
    evidence, name = scene.evidence, site.plan.combo.name
    if scene.is_then:
        sitting = evidence.next_sitting(within)
        if sitting is None:
            evidence.unasked.add(name)
        else:
            sitting.site = site
        return _Past(scene, site, at, sitting).run()
    sitting = evidence.sitting_of(name, within)
    if sitting is not None and sitting.site is not None and not scene.differs(name):
        return _Past(scene.as_then(), sitting.site, at, sitting).run()
    if sitting is None and name in evidence.unasked and not scene.differs(name):
        return _Past(scene.as_then(), site, at, None).run()
    return _Changed(scene, site, at, sitting).run()


class _Fusion:
    """What both have in common."""

    def __init__(self, scene: Scene, site: Site, at: float, sitting: Sitting | None) -> None:
        self._scene, self._site, self._at, self._sitting = scene, site, at, sitting
        self._route = scene.evidence.route

    def _walk(self, scene: Scene, role: Role, at: float, voice: int, site: Site) -> Ended:
        return Walk(scene, fuse, role, at, voice).run(site)

    def _voiced(self, number: int) -> Voice:
        return self._route.voices[number - 1]

    def _error(self, status: int, outcome: str, at: float) -> Ended:
        return Ended(None, status, outcome, at, at)


class _Past(_Fusion):
    """One that is in the record."""

    def run(self) -> Ended:
        sitting = self._sitting
        if sitting is None:
            return self._as_it_was(self._at)
        members = [self._member(number) for number in sitting.panel]
        late = max((member.ended.at for member in members), default=self._at)
        ended = None
        for number in sitting.speakers:
            voice = self._voiced(number)
            site = self._site.instead(Entry.model_construct(model=voice.entry), voice.role)
            at = self._at + voice.began - self._began
            ended = self._walk(self._scene, voice.role, at, number, site)
        for member in members:
            call = member.ended.served
            if call is not None and call.was is not None and call.was.seen:
                return member.ended
        if ended is not None and (ended.served is not None or ended.cut):
            return ended
        alone = [member for member in members if member.answered(late=False)]
        if len(alone) == 1 and ended is None and self._was_enough:
            return alone[0].ended
        if self._was_left:
            return Ended(None, self._route.status, self._route.outcome, late, late, True)
        late = min(late, max((self._route.ended or 0.0) - self._route.began, self._at))
        if sitting.lasted is not None:
            late = self._at + sitting.lasted
        return self._as_it_was(late) if ended is None else replace(ended, at=late)

    @property
    def _began(self) -> float:
        """When the panel was asked, in epoch seconds."""
        assert self._sitting is not None
        return self._voiced(self._sitting.panel[0]).began

    @property
    def _was_enough(self) -> bool:
        """Whether the only answer of a panel inside another one was returned: whoever had asked
        went on to nobody else, and told of no failure."""
        assert self._sitting is not None
        within = self._sitting.within
        told = self._voiced(within).outcome if within else End.PANEL_FAILED
        return told != End.PANEL_FAILED and not self._scene.evidence.went_on(self._sitting)

    @property
    def _was_left(self) -> bool:
        """Whether the caller left it while the panel was waited for, or a judge."""
        assert self._sitting is not None
        spoke = [self._voiced(number).outcome for number in self._sitting.speakers]
        evidence = self._scene.evidence
        cut = evidence.was_cut and not evidence.went_on(self._sitting)
        return Failure.CALLER_GONE in spoke or cut

    def _member(self, number: int) -> Member:
        voice = self._voiced(number)
        site = self._site.alone(voice.place)
        ended = self._walk(self._scene, "panel", self._at, number, site)
        return Member(self._site.plan.steps[voice.place - 1], ended, voice)

    def _as_it_was(self, at: float) -> Ended:
        """Nobody answered, or nobody was asked at all; to a combo around it, it has failed."""
        if len(self._site.nest) > 1:
            return self._error(503, End.PANEL_FAILED, at)
        return Ended(None, self._route.status, self._route.outcome, at, at)


class _Changed(_Fusion):
    """One with a panel or a judge that the record has not."""

    def run(self) -> Ended:
        plan, tuning = self._site.plan, self._site.plan.combo.fusion_tuning
        if len(plan.steps) > tuning.max_panel:
            return self._error(400, End.PANEL_TOO_LARGE, self._at)
        self._left = list(self._sitting.panel) if self._sitting else []
        members = [self._member(place, step) for place, step in plan.placed()]
        if cut := next((m.ended for m in members if m.ended.cut), None):
            return cut
        heard, at = self._heard(members)
        usable = [member for member in heard if member.answered(late=True)]
        usable.sort(key=members.index)
        needed, judge = min(max(tuning.min_panel, 1), len(members)), plan.combo.judge_name
        if not usable or (tuning.require_quorum and len(usable) < needed):
            return self._error(503, End.PANEL_FAILED, at)
        first = members[0] if members[0] in usable else usable[0]
        if len(usable) > 1 or (tuning.on_single == "judge" and judge):
            return self._speak("judge", judge or first.step.entry.model, at, usable)
        if tuning.on_single == "return":
            return usable[0].ended
        return self._speak("again", usable[0].step.entry.model, at, usable)

    def _member(self, place: int, step: Step) -> Member:
        number = self._match(place, step)
        name = reference(step.entry.model)
        if number == NOBODY:
            site = self._site.alone(place)
            return Member(step, self._walk(self._scene, "panel", self._at, NOBODY, site), None)
        voice, sitting = self._voiced(number), self._sitting
        assert sitting is not None
        assert sitting.site is not None
        if name is not None and self._scene.differs(name):
            site = self._site.alone(place)
            ended = self._walk(self._scene, "panel", self._at, number, site)
            return Member(step, ended, None if ended.served else voice)
        site = sitting.site.alone(voice.place)
        ended = self._walk(self._scene.as_then(), "panel", self._at, number, site)
        return Member(step, ended, voice)

    def _match(self, place: int, step: Step) -> int:
        """The voice that such an entry was of the panel then, that of the same place first."""
        fits = [n for n in self._left if self._voiced(n).entry == step.entry.model]
        if not fits:
            return NOBODY
        number = next((n for n in fits if self._voiced(n).place == place), fits[0])
        self._left.remove(number)
        return number

    def _heard(self, members: Sequence[Member]) -> tuple[list[Member], float]:
        """Who has ended while the panel was waited for, and until when that was."""
        tuning = self._site.plan.combo.fusion_tuning
        quorum = Quorum(
            len(members),
            tuning.min_panel,
            tuning.straggler_grace_ms / 1000,
            tuning.panel_hard_timeout_ms / 1000,
            self._at,
        )
        heard: list[Member] = []
        for member in sorted(members, key=lambda each: each.ended.at):
            if member.ended.at > quorum.deadline:
                return heard, quorum.deadline
            heard.append(member)
            quorum.note(member.answered(late=True), member.ended.at)
        return heard, max((member.ended.at for member in heard), default=self._at)

    def _speak(self, role: Role, name: str, at: float, usable: Sequence[Member]) -> Ended:
        """The judge, or the only one to answer; who refuses two turns in a row is asked again."""
        ended = None
        for number in self._speakers(role, name):
            ended = self._spoken(role, name, at, number)
            at = ended.at
            if ended.served is not None:
                return ended
        assert ended is not None
        if self._site.plan.combo.fusion_tuning.on_judge_failure == "best" and not ended.cut:
            return max(usable, key=lambda m: (m.voice.length or 0) if m.voice else 0).ended
        return ended

    def _speakers(self, role: Role, name: str) -> list[int]:
        spoke = self._sitting.speakers if self._sitting else []
        inner = reference(name)
        if inner is not None and self._scene.differs(inner):
            return [NOBODY]
        same = [n for n in spoke if (self._voiced(n).role, self._voiced(n).entry) == (role, name)]
        return same or [NOBODY]

    def _spoken(self, role: Role, name: str, at: float, number: int) -> Ended:
        scene, site = self._scene, self._site
        if number != NOBODY:
            assert self._sitting is not None
            assert self._sitting.site is not None
            scene, site = scene.as_then(), self._sitting.site
        judge = site.instead(Entry.model_construct(model=name), role)
        return self._walk(scene, role, at, number, judge)
