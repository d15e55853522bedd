"""One client in front of one krouter, as the features try it out."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.clients.cases import HEALTHY, LANES
from tests.clients.clients import PROMPT, Client, Place, Start
from tests.clients.door import Door, Visit
from tests.clients.run import run_command
from tests.upstream import Upstream
from tests.upstream.book import Step


class WrongError(Exception):
    """A feature does not work; says how."""


@dataclass(slots=True)
class Scene:
    """One client in front of one provider, and all that it has printed."""

    client: Client
    place: Place
    lane: str
    upstream: Upstream
    door: Door
    allowed: frozenset[int] = frozenset()
    """The statuses of failure that belong to the feature."""
    printed: str = ""
    runs: int = 0

    def model(self, *steps: str | Step) -> None:
        """How the provider answers; without steps as in the table of cases."""
        self.upstream.clear()
        self.door.clear()
        self.runs = 0
        self.upstream.script(HEALTHY, steps or [self.client.model(self.place)])

    def start(self, *before: str, prompt: str = PROMPT, also: tuple[str, ...] = ()) -> Start:
        """The client's usual start with other words in front of and behind the prompt."""
        usual = self.client.start(self.place)
        at = usual.command.index(PROMPT)
        front, behind = usual.command[:at], usual.command[at + 1 :]
        return replace(usual, command=[*front, *before, prompt, *behind, *also])

    def run(self, start: Start) -> str:
        """The answer of a run that ended well."""
        self.runs += 1
        code, printed, errors = run_command(start, self.place)
        self.printed += f"{start.command}\nexit code {code}\n{printed}\n{errors}\n"
        if code is None:
            raise WrongError("does not end")
        if code:
            raise WrongError(f"exit code {code}")
        return start.answer(printed)

    def prove(self, start: Start) -> str:
        """The answer must hold a proof that is new, which is given."""
        proof = f"proof-{secrets.token_hex(8)}"
        self.place.proof.write_text(proof + "\n")
        if proof not in self.run(start):
            raise WrongError("answer without the proof")
        return proof

    def visits(self) -> list[Visit]:
        """The requests since `model`, without what the client probes in each run."""
        return self.client.count(self.door.visits, self.runs)

    def expect(self, count: int) -> None:
        """How many requests must have come, none of them refused, and have reached the provider."""
        for came in (len(self.visits()), len(self.upstream.requests)):
            if came != count:
                raise WrongError(f"{came} requests instead of {count}")

    def expect_posts(self, count: int) -> None:
        """How many of the requests must have been for an answer, beside those for lists."""
        if (came := sum(visit.method == "POST" for visit in self.visits())) != count:
            raise WrongError(f"{came} requests for an answer instead of {count}")

    def check_statuses(self) -> None:
        """Raises WrongError for a request that failed, unless that is what is tried out."""
        for visit in self.visits():
            if visit.failed and visit.status not in self.allowed:
                raise WrongError(str(visit))


@dataclass(frozen=True, slots=True)
class Feature:
    """`run` raises WrongError where it does not work."""

    title: str
    run: Callable[[Scene], None]
    lanes: tuple[str, ...] = LANES
    """Where there is something to see; the cell of another lane is `-`."""
    allowed: frozenset[int] = frozenset()
