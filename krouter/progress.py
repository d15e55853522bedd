"""One request on its way: what it asks, what time is left, and what is noted of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec import Struct, field

from krouter.adapter import Call
from krouter.answer import Answer, route_header, stamps
from krouter.attempt import Failed
from krouter.board import Blocked, Target
from krouter.callers import carried
from krouter.combos import Entry, Medium
from krouter.lineup import Candidate, Leaf
from krouter.route import Attempt, End, Route, Skip, Skipped
from krouter.standing import standing
from krouter.wire import Headers
from krouter.world import Ask, World

IMAGE: frozenset[Medium] = frozenset(("image",))


@dataclass(frozen=True, slots=True)
class Part:
    """What one call of a fusion is: `is_copy` that it is a panel's, whose answer no caller waits
    for. `name` tells it from the others; with `key`, which the caller gave its request or krouter
    did, it makes the key of each attempt."""

    name: str
    key: str
    is_copy: bool
    left_out: frozenset[str] = frozenset()
    """Fields that no entry's parameters may bring back."""
    cancels: bool = False
    """Whether what is not waited for any longer is to be called off."""


class Progress(Struct, eq=False):
    """How far one request has come. `deadline` is in the event loop's time; `rename` is the model
    name the caller is to see, where it is not the provider's own."""

    call: Call
    world: World
    route: Route
    deadline: float
    rename: str | None
    ask: Ask
    part: Part | None = None
    """Of a fusion; such a one says nothing of itself in the headers of a reply."""
    latest: Attempt | None = None
    last: Failed | None = None
    """The failure of the last attempt."""
    returned: Failed | None = None
    """A refusal that goes to the caller unless an entry that is owed another try answers."""
    held: Answer | None = None
    """An empty reply, in case nothing after it can be sent."""
    as_last: Callable[[], Awaitable[Answer]] | None = None
    """Goes on with a walk that something follows, if nothing of that can be sent."""
    passed: bool = False
    """Every entry has had its turn."""
    ready_at: float = math.inf
    """Epoch seconds at which some entry might answer; infinite where waiting does not help."""
    stripped: list[list[Candidate]] = field(default_factory=list)
    """Accounts of entries that take no images, to be asked without them once nothing is left that
    does."""
    blind: dict[Target, bool] = field(default_factory=dict)
    """Models that have refused this request's images, and whether that was surely meant."""
    secrets: set[str] = field(default_factory=set)
    """The credentials that the request has used or carried."""
    signed: frozenset[str] | None = None
    """Digests of the thinking that the request sends back; None until they are looked for."""

    def __post_init__(self) -> None:
        self.secrets |= carried(self.call.headers, self.call.query)

    @property
    def dropped(self) -> tuple[str, ...]:
        """What the last attempt was sent without."""
        return self.latest.dropped if self.latest else ()

    def has_answered(self, candidate: Candidate) -> bool:
        """Whether an account has answered another call of the same fusion: what locked it since
        is no reason to give up."""
        account = candidate.account
        return self.part is not None and any(
            (each.provider, each.account, each.outcome)
            == (account.provider, account.name, End.ANSWERED)
            for each in self.route.whole.attempts
        )

    def is_blind(self, entry: Entry) -> bool:
        return standing(entry, self.world, IMAGE).is_blind

    def blocked(self, candidate: Candidate) -> Blocked | None:
        account = candidate.account
        return self.world.board.blocked(
            account.provider, account.name, candidate.model, self.request
        )

    @property
    def request(self) -> str:
        """What tells the request to the board, where it makes several calls at once."""
        return self.route.id if self.part else ""

    def has_room(self, candidate: Candidate) -> bool:
        account = candidate.account
        return self.world.board.has_room(account.provider, account.name, account.max_concurrent)

    def takes_no_images(self, candidate: Candidate) -> bool:
        """Whether a model is to be sent no images: it is known, or has just said so."""
        target = candidate.provider.name, candidate.model
        return target in self.blind or bool(self.world.board.images.refused(*target))

    def is_read_later(self, leaf: Leaf) -> bool:
        """Whether an entry that is still to come reads images, or may."""
        tried = {step.entry for step in self.route.attempts}
        return not self.passed and any(
            entry.model not in tried and not self.is_blind(entry) for entry in leaf.later()
        )

    def begin(self, attempt: Attempt) -> None:
        self.latest = attempt
        self.route.add(attempt)

    def failed(self, outcome: Failed) -> None:
        """The last of what was tried."""
        self.last, self.held = outcome, outcome.held

    def served(self, leaf: Leaf, answer: Answer) -> Answer:
        assert self.latest is not None
        self.route.serve(self.latest)
        self.say("%s answers", leaf.name)
        return self.stamped(answer)

    def stamped(self, answer: Answer) -> Answer:
        self.route.status = answer.status
        answer.headers = [*answer.headers, *self.stamps()]
        return answer

    def stamps(self) -> Headers:
        """The headers by which krouter says what it did. Those of a fusion's reply tell nothing of
        its panel."""
        return stamps(self.route) if self.part is None else [route_header(self.route)]

    def wait_helps(self, at: float) -> None:
        self.ready_at = min(self.ready_at, at)

    def end_time(self) -> None:
        """The deadline has passed: a timer may fire a moment before the clock shows it."""
        self.deadline = asyncio.get_running_loop().time()

    def left(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()

    def skip(self, leaf: Leaf, account: str, reason: Skip, detail: str = "") -> None:
        self.route.add(Skipped(leaf.name, account, reason, detail, leaf.places))
        self.say(f"{leaf.name}: skipped, {reason}{f' ({detail})' if detail else ''}")

    def say(self, line: str, *told: object) -> None:
        """Logs a step. What is `told` is put into the line, as `%` does, only if it is read."""
        if self.world.traced:
            line = line % told if told else line
            self.world.log("COMBO", f"{self.route.combo or self.route.asked}: {line}")
