"""What a record knows of each entry: what became of it, in the order in which it happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile

from msgspec import Struct, field

from krouter.combos import Entry, StreamGuard
from krouter.dialects.base import Usage
from krouter.errors import Failure
from krouter.lineup import Site
from krouter.plan import Plan
from krouter.records import rebuild
from krouter.route import Attempt, End, Places, Route, Skip, Skipped

Step = Attempt | Skipped

BLOCKED = frozenset((Skip.LOCKED, Skip.PROBING, Skip.AT_LIMIT))
"""Why an account is passed over that may be asked later in the same request."""
_OF_THE_WALK = frozenset((Skip.ALREADY_TRIED, Skip.COMBO_ENDED, Skip.SMALLER_WINDOW, Skip.NO_TIME))
"""Why an entry is passed over that follows from the walk, and says nothing of the entry."""
SLACK = 0.05
"""Seconds by which times may differ that are the same."""
TIMED_OUT_ROW = 11
_OUTSIDE = frozenset((Failure.CALLER_GONE, End.KROUTER_FAILED))


class Bare(Exception):
    """A record from which a request cannot be replayed; the text says why."""


class Turn(Struct):
    """What became of one entry when it was asked, in this `role` of a fusion, or in none."""

    entry: Entry
    role: str
    places: Places
    voice: int
    steps: list[Step] = field(default_factory=list)
    taken: bool = False
    last: bool = False
    """Whether nothing followed it; told by the walk that the record is of."""
    guard: StreamGuard = "off"
    limit: float = 0.0
    """How long an attempt could take until its reply began, in seconds."""
    retries: int = 0

    @property
    def accounts(self) -> set[str]:
        return {step.account for step in self.steps if step.account}


NOBODY = -1
"""In place of the number of a voice: one that the record has not."""


class Sitting(Struct):
    """One panel of the record and who spoke after it, by the numbers of their voices; `site` is
    where it stood, told by the walk that the record is of."""

    within: int
    panel: list[int] = field(default_factory=list)
    speakers: list[int] = field(default_factory=list)
    site: Site | None = None
    lasted: float | None = None
    """Seconds after which whoever had asked it asked another one; None where nobody was."""
    taken: bool = False


class Evidence:
    """A record, taken apart. Raises Bare."""

    def __init__(self, route: Route) -> None:
        self.route = route
        if not route.snapshots:
            raise Bare(f"no order was made for it ({route.outcome})")
        if any(not step.places for step in route.steps):
            raise Bare("it is too old: it does not tell where each entry stood")
        if any(step.ended is None for step in route.attempts):
            raise Bare("not all that was asked had ended")
        first, *rest = rebuild(route)
        self.plans: Mapping[Places, Plan] = {
            (): first,
            **dict(zip(route.entered.values(), rest, strict=False)),
        }
        self.turns: list[Turn] = list(self._turns())
        self.sittings = self._sittings()
        self.spent = self._spent()
        self.unasked: set[str] = set()
        """Fusions that nobody was asked for."""
        self.leads = dict(self._leads())
        """Seconds before each attempt, by its identity, in which nothing else was asked."""

    def fresh(self) -> None:
        """Nothing of it has been taken."""
        for turn in self.turns:
            turn.taken = False
        for sitting in self.sittings:
            sitting.taken = False

    def _turns(self) -> Iterator[Turn]:
        found: dict[tuple[int, Places], Turn] = {}
        for step in self.route.steps:
            key = step.voice, step.places
            if key not in found:
                found[key] = Turn(self._entry(step), self._role(step), step.places, step.voice)
            if not (isinstance(step, Skipped) and step.reason in _OF_THE_WALK):
                found[key].steps.append(step)
        self._empty = {key for key, turn in found.items() if not turn.steps}
        return (turn for turn in found.values() if turn.steps)

    def may_have(self, voice: int, places: Places) -> bool:
        """Whether the entry that stood just there was not merely passed over by the walk."""
        return (voice, places) not in self._empty

    def _entry(self, step: Step) -> Entry:
        """The entry of the list that a step belongs to, not one that stands in for it."""
        *outer, place = step.places
        if not place:
            return Entry.model_construct(model=self.route.voices[step.voice - 1].entry)
        plan = self.plans.get(tuple(outer))
        if plan is None or place > len(plan.steps):
            raise Bare("its order cannot be made anew")
        return plan.steps[place - 1].entry

    def _role(self, step: Step) -> str:
        return self.route.voices[step.voice - 1].role if step.voice else ""

    def _leads(self) -> Iterator[tuple[int, float]]:
        """From the end of what was asked before, by the same voice, or from its beginning."""
        ends: dict[int, float] = {}
        open_ones = list(self.sittings)
        for attempt in self.route.attempts:
            voice = attempt.voice
            began = self.route.voices[voice - 1].began if voice else self.route.began
            before = ends.get(voice, began)
            for sitting in [each for each in open_ones if self._is_over(each, attempt)]:
                open_ones.remove(sitting)
                before = attempt.began
                sitting.lasted = attempt.began - self.route.voices[sitting.panel[0] - 1].began
            yield id(attempt), max(attempt.began - before, 0.0)
            ends[voice] = attempt.ended or attempt.began

    def _is_over(self, sitting: Sitting, attempt: Attempt) -> bool:
        """Whether a fusion had failed, since whoever asked it went on with an attempt."""
        asked = self.route.voices[sitting.panel[0] - 1]
        return sitting.within == attempt.voice and asked.began <= attempt.began

    def _sittings(self) -> list[Sitting]:
        """In the order in which they began, as far as one voice asked them."""
        found: dict[int, list[Sitting]] = {}
        for number, voice in enumerate(self.route.voices, 1):
            known = found.setdefault(voice.within, [])
            if voice.role == "panel":
                if not known or voice.place == 1:
                    known.append(Sitting(voice.within))
                known[-1].panel.append(number)
            elif known:
                known[-1].speakers.append(number)
        return [sitting for known in found.values() for sitting in known if sitting.panel]

    def next_sitting(self, within: int) -> Sitting | None:
        """The next that a voice asked."""
        left = (each for each in self.sittings if not each.taken and each.within == within)
        return self._taken(next(left, None))

    def sitting_of(self, name: str, within: int) -> Sitting | None:
        """What is known of a fusion of that name, first of one that the same voice asked."""
        fits = [
            each
            for each in self.sittings
            if not each.taken and each.site is not None and each.site.plan.combo.name == name
        ]
        return self._taken(max(fits, key=lambda each: each.within == within, default=None))

    def _taken(self, sitting: Sitting | None) -> Sitting | None:
        if sitting is not None:
            sitting.taken = True
        return sitting

    def went_on(self, sitting: Sitting) -> bool:
        """Whether whoever asked a fusion asked somebody after it, or passed somebody over."""
        last = max((*sitting.panel, *sitting.speakers))
        later = any(voice.within == sitting.within for voice in self.route.voices[last:])
        steps = iter(self.route.steps)
        any(step.voice == sitting.panel[0] for step in steps)  # up to the first of the panel
        return later or any(step.voice == sitting.within for step in steps)

    def turn_at(self, voice: int, places: Places) -> Turn | None:
        """What became of the entry that stood just there."""
        for turn in self.turns:
            if not turn.taken and turn.voice == voice and turn.places == places:
                turn.taken = True
                return turn
        return None

    def take(self, entry: Entry, role: str, places: Places) -> Turn | None:
        """What is known of an entry in a role, each once: of several, first what was known of one
        with the same parameters and accounts, then of the same place."""
        likeness = lambda turn: (  # noqa: E731
            sorted(turn.entry.params) == sorted(entry.params),
            turn.entry.accounts == entry.accounts,
            turn.places == places,
        )
        fits = [
            turn
            for turn in self.turns
            if not turn.taken and turn.role == role and turn.entry.model == entry.model
        ]
        if not fits:
            return None
        best = max(fits, key=likeness)
        best.taken = True
        return best

    def stood_in(self, model: str) -> list[Step]:
        """What is known of a model that stood in for another."""
        return [
            step
            for turn in self.turns
            if turn.entry.model != model
            for step in turn.steps
            if step.entry == model
        ]

    def attempt_at(self, entry: str, account: str, role: str) -> Attempt | None:
        """How an account ended with a model, whatever entry of the list that was for."""
        found = None
        for attempt in self.route.attempts:
            its = self.route.voices[attempt.voice - 1].role if attempt.voice else ""
            if (attempt.entry, attempt.account, its) == (entry, account, role):
                found = attempt
        return found

    @property
    def usage(self) -> Usage | None:
        """The tokens of the request: of its answer, or else the most that an attempt told."""
        final = self.route.final
        if final is not None and final.seen and final.usage is not None:
            return final.usage
        told = [each.usage for each in self.route.attempts if each.usage is not None]
        return max(told, key=lambda usage: (usage.output > 0, usage.input), default=None)

    @property
    def was_answered(self) -> bool:
        """Whether somebody answered, so that the end of the walk was not reached. An empty reply
        is passed on only there."""
        final = self.route.final
        held = final is not None and final.outcome == Failure.EMPTY_REPLY
        return bool(self.route.served) and not held

    @property
    def was_cut(self) -> bool:
        """Whether its caller left, or krouter failed, while nothing was being asked."""
        final = self.route.final
        is_told = final is not None and (final.outcome in _OUTSIDE or final.seen)
        return self.route.outcome in _OUTSIDE and not is_told

    @property
    def time_was_over(self) -> float | None:
        """After how many seconds the time of the request was over, where it was."""
        skipped = any(skip.reason is Skip.NO_TIME for skip in self.route.skips)
        if not skipped and self.spent is None:
            return None
        ends = (attempt.ended or 0.0 for attempt in self.route.attempts)
        return max(ends, default=self.route.began) - self.route.began

    def _spent(self) -> Attempt | None:
        """The attempt that the deadline of the request ended, which locks nothing."""
        attempts = self.route.attempts
        latest = max((attempt.ended or 0.0 for attempt in attempts), default=0.0)
        for attempt in attempts:
            timed_out = attempt.outcome == Failure.TIMED_OUT and attempt.row == TIMED_OUT_ROW
            unlocked = timed_out and attempt.lock is None and not attempt.seen
            if unlocked and (attempt.ended or 0.0) >= latest - SLACK:
                return attempt
        return None

    def account_fails(self, alias: str, account: str) -> Attempt | None:
        """An attempt by which the account itself was found to be of no use."""
        for attempt in self.route.attempts:
            same = attempt.account == account and alias_of(attempt.entry) == alias
            if same and attempt.locked == "account":
                return attempt
        return None

    def lockers(self, skip: Skipped) -> list[Attempt]:
        """The attempts of the same request that had locked the account."""
        before = takewhile(lambda step: step is not skip, self.route.steps)
        attempts = (step for step in before if isinstance(step, Attempt))
        return [attempt for attempt in attempts if locks(attempt, skip.entry, skip.account)]

    def lock_of(self, alias: str, account: str) -> Skipped | None:
        """A lock of the whole account that was there before the request."""
        for skip in self.route.skips:
            same = skip.account == account and alias_of(skip.entry) == alias
            hard = skip.reason is Skip.LOCKED and skip.detail in _OF_ACCOUNTS
            if same and hard and not self.lockers(skip):
                return skip
        return None


_OF_ACCOUNTS = frozenset((Failure.ACCOUNT_BARRED, Failure.QUOTA_SPENT, Failure.NOT_SIGNED_IN))


def alias_of(entry: str) -> str:
    return entry.partition("/")[0]


def locks(attempt: Attempt, entry: str, account: str) -> bool:
    """Whether an attempt has locked the account of an entry."""
    if not attempt.lock or alias_of(attempt.entry) != alias_of(entry):
        return False
    same_model = attempt.entry == entry
    match attempt.locked:
        case "account":
            return attempt.account == account
        case "model":
            return same_model
    return same_model and attempt.account == account
