"""One request on its way: what it asks, what time is left, and what is noted of it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from krouter.adapter import Call
from krouter.answer import Answer, stamps
from krouter.attempt import Failed
from krouter.board import Blocked, Target
from krouter.callers import carried
from krouter.combos import Entry, Medium
from krouter.lineup import Candidate, Leaf
from krouter.route import Route, Skip, Skipped
from krouter.standing import standing
from krouter.world import Ask, World

IMAGE: frozenset[Medium] = frozenset(("image",))


@dataclass(slots=True)
class Progress:
    """How far one request has come. `deadline` is in the event loop's time; `rename` is the model
    name the caller is to see, where it is not the provider's own."""

    call: Call
    world: World
    route: Route
    deadline: float
    rename: str | None
    ask: Ask
    last: Failed | None = None
    """The failure of the last attempt."""
    returned: Failed | None = None
    """A refusal that goes to the caller unless an entry that is owed another try answers."""
    held: Answer | None = None
    """An empty reply, in case nothing after it can be sent."""
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
        return self.route.attempts[-1].dropped

    def is_blind(self, entry: Entry) -> bool:
        return standing(entry, self.world, IMAGE).is_blind

    def blocked(self, candidate: Candidate) -> Blocked | None:
        account = candidate.account
        return self.world.board.blocked(account.provider, account.name, candidate.model)

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

    def served(self, leaf: Leaf, answer: Answer) -> Answer:
        self.route.serve(leaf.name)
        self.say(f"{leaf.name} answers")
        return self.stamped(answer)

    def stamped(self, answer: Answer) -> Answer:
        self.route.status = answer.status
        answer.headers = [*answer.headers, *stamps(self.route)]
        return answer

    def wait_helps(self, at: float) -> None:
        self.ready_at = min(self.ready_at, at)

    def end_time(self) -> None:
        """The deadline has passed: a timer may fire a moment before the clock shows it."""
        self.deadline = asyncio.get_running_loop().time()

    def left(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()

    def skip(self, leaf: Leaf, account: str, reason: Skip, detail: str = "") -> None:
        self.route.steps.append(Skipped(leaf.name, account, reason, detail, leaf.places))
        self.say(f"{leaf.name}: skipped, {reason}{f' ({detail})' if detail else ''}")

    def say(self, line: str) -> None:
        self.world.log("COMBO", f"{self.route.combo or self.route.asked}: {line}")
