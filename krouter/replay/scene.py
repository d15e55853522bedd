"""What a replay goes by: the record, the combos, and what is assumed beyond the record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from krouter.combos import Entry
from krouter.dialects.base import Usage
from krouter.errors import Failure
from krouter.lineup import Leaf, Obstacle, PlanOf
from krouter.plan import Plan
from krouter.replay.evidence import Evidence, Turn
from krouter.route import Attempt, End
from krouter.world import World

STRICTER: Mapping[str, int] = {"off": 0, "first": 1, "full": 2}


class Call(Struct):
    """One call to a provider as it was, or as it is assumed to have been.

    Times are in seconds: it began `lead` after what was asked before, its `first` byte and its end
    came `first` and `lasted` after its beginning, None where nothing tells that.
    """

    entry: str
    provider: str
    model: str
    account: str
    outcome: str
    role: str = ""
    status: int | None = None
    row: int | None = None
    lead: float = 0.0
    lasted: float | None = None
    first: float | None = None
    usage: Usage | None = None
    cost: int | None = None
    unpriced: bool = False
    seen: bool = False
    assumed: bool = False
    was: Attempt | None = None
    """In the record."""
    like: Attempt | None = None
    """The attempt that it is assumed to fail like."""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells one call from another one."""
        return self.role, self.entry, self.account, self.outcome, str(self.assumed)


class Ended(Struct):
    """How a walk has ended, `at` seconds after the request came; `wait` is until the caller had
    the first byte of an answer, or the error."""

    served: Call | None
    status: int | None
    outcome: str
    at: float
    wait: float
    cut: bool = False
    """Whether the caller left, so that nothing comes after it."""


class Guesses(Protocol):
    """What is assumed of what a record does not know."""

    def obstacle(self, entry: Entry, dialect: str) -> Obstacle | None:
        """Why an entry cannot be sent to by anybody."""

    def accounts(self, entry: Entry) -> list[str]:
        """The accounts it would be tried with, in order; never empty."""

    def call(self, entry: Entry, account: str, usage: Usage | None, *, stream: bool) -> Call:
        """An answer of a model to a request of so many tokens."""


class Scene(Struct):
    """One run over a record: as it was (`is_then`), or with other combos."""

    evidence: Evidence
    plan_of: PlanOf
    world: World
    guesses: Guesses
    is_then: bool
    deadline: float = math.inf
    differs: Callable[[str], bool] = lambda name: False
    """Whether a combo, or one inside it, is another one than then."""
    then: Scene | None = None
    """As it was."""
    calls: list[Call] = field(default_factory=list)
    passed_over: list[tuple[str, str]] = field(default_factory=list)
    """Entries of which nothing is known that nobody could be sent to, and why."""

    def as_then(self) -> Scene:
        """The same run, where a part of it goes as it went."""
        assert self.then is not None
        return replace(self.then, calls=self.calls, deadline=self.deadline)

    @property
    def stream(self) -> bool:
        return self.evidence.route.stream

    @property
    def dialect(self) -> str:
        return self.evidence.route.dialect

    def told(self, attempt: Attempt, role: str) -> Call:
        """A call as it stands in the record."""
        began, first = attempt.began, attempt.first_byte
        return Call(
            attempt.entry,
            attempt.provider,
            attempt.model,
            attempt.account,
            attempt.outcome,
            role,
            attempt.status,
            attempt.row,
            self.evidence.leads[id(attempt)],
            max((attempt.ended or began) - began, 0.0),
            None if first is None else max(first - began, 0.0),
            attempt.usage,
            attempt.cost,
            attempt.is_unpriced,
            attempt.seen,
            was=attempt,
        )

    def assumed(self, leaf: Leaf, account: str, role: str) -> Call:
        """An answer of an entry of which nothing is known."""
        stream = self.stream and role != "panel"
        call = self.guesses.call(leaf.entry, account, self.evidence.usage, stream=stream)
        return replace(call, role=role, assumed=True)

    def failing(self, attempt: Attempt, leaf: Leaf, account: str, role: str) -> Call:
        """A call that fails as another one did, since its account is of no use."""
        model = leaf.name.partition("/")[2]
        told = self.told(attempt, role)
        return replace(
            told,
            entry=leaf.name,
            model=model,
            lead=0.0,
            assumed=True,
            was=None,
            like=attempt,
            seen=False,
        )


def cut(call: Call, limit: float) -> Call:
    """A call that is given up after `limit` seconds. What it cost by then is not known."""
    return replace(
        call, outcome=Failure.TIMED_OUT, row=11, status=None, lasted=limit, first=None,
        usage=None, cost=None, unpriced=True, seen=False, assumed=True,
    )  # fmt: skip


def limit_of(leaf: Leaf, final: bool, *, stream: bool, is_copy: bool) -> float:
    """How long one attempt at an entry may take until its reply begins, as the walk has it; that of
    the panel's copies is the fusion's to say."""
    if is_copy:
        return math.inf
    limits = [own.total for own in leaf.own]
    if stream:
        limits.append(leaf.timeouts.first_byte)
    else:
        limits += [own.attempt for own in leaf.own if own.attempt != "off"]
        limits += [] if final else [leaf.timeouts.attempt]
    return min(filter(None, limits), default=math.inf)


def reply_after(call: Call, *, stream: bool) -> float:
    """Seconds from the beginning of a call to its reply, or its failure."""
    begun = stream and call.first is not None and is_answer(call)
    return (call.first if begun else call.lasted) or 0.0


def error_status(call: Call) -> int:
    """The status that the caller is told of a failure."""
    if call.status is not None and call.status >= 400:
        return call.status
    return 504 if call.outcome == Failure.TIMED_OUT else 502


def is_answer(call: Call) -> bool:
    """Whether the caller had it, or an end of it; an empty reply may yet be passed on."""
    return call.outcome == End.ANSWERED or (call.seen and call.outcome != Failure.EMPTY_REPLY)


def is_blind(plan: Plan, listed: int) -> bool:
    """Whether an image is no use to an entry; those of the vision adapter are there to read it."""
    return bool(listed) and plan.snapshot.seen[listed - 1].is_blind


def falls_over(call: Call, turn: Turn | None, leaf: Leaf) -> bool:
    """Whether a stream that broke off would have been held back by a guard that is stricter now."""
    guard = leaf.combo.stream_guard
    if turn is None or STRICTER[guard] <= STRICTER[turn.guard] or call.outcome == End.ANSWERED:
        return False
    nothing_came = call.was is not None and not call.was.came
    return call.outcome != Failure.CALLER_GONE and (guard == "full" or nothing_came)
