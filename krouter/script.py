"""What a scripted provider is told: what was sent to it, and what it does with that.

A director decides, for each request that would leave krouter, what comes back:

    def director(sent: Sent) -> Turn:
        return Turn("529") if sent.provider == "cc" and sent.at < 60 else Turn(text="hello")

Nothing here sends anything. `krouter.rehearsal` runs a router over it, in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar

from msgspec import Struct

from krouter.problems import did_you_mean

TEXT = "This is the scripted answer."


class Tally(Struct):
    """How many times one request of a caller has been sent to anybody. `number` counts the
    requests, from 1; `note` is what whoever asked wants a director to know of it."""

    number: int = 0
    sent: int = 0
    note: object = None


TALLY: ContextVar[Tally] = ContextVar("tally")
"""Of the request under way; tasks inherit it."""


class Sent(Struct, frozen=True):
    """One request as a provider gets it.

    `provider` is its canonical name, `model` goes without it; `at` is in virtual seconds,
    `attempt` counts from 1 what has been sent for the same `request` of a caller.
    """

    provider: str
    account: str
    model: str
    dialect: str
    stream: bool
    at: float
    attempt: int
    request: int
    body: bytes
    note: object = None
    """What whoever asked has noted of the request."""
    key: str = ""
    """Its idempotency key, which each call of a fusion has."""

    @property
    def entry(self) -> str:
        """`provider/model`."""
        return f"{self.provider}/{self.model}"

    def holds(self, text: str) -> bool:
        """Whether some plain text stands in what was sent, as that of answers does in what a judge
        is sent."""
        return text.encode() in self.body


class Turn(Struct, frozen=True):
    """What the provider does: it answers with `text`, or has a `fault` of the table.

    `wait` is in seconds until the first byte, `took` from there to the last one; an answer that is
    no stream comes whole after both. Tokens left out are counted from bytes and words; `reset` is
    in how many seconds it says that a limit ends, where it says so.
    """

    fault: str = ""
    text: str = TEXT
    wait: float = 1.0
    took: float = 1.0
    input: int | None = None
    output: int | None = None
    reset: float | None = None
    headers: tuple[tuple[str, str], ...] = ()


Director = Callable[[Sent], Turn]


class Kind(Struct, frozen=True):
    """One fault of the table. `row` is that of the error table in which it must be classified, 0
    where it is no failure; `streamed` the same for a request that asks for a stream. `how` says
    what happens; it befalls only requests that hold what is named in `only_with`."""

    name: str
    about: str
    row: int
    how: str
    streamed: int
    status: int = 200
    message: str = ""
    openai: tuple[str, str] = ("", "")
    """Type and code."""
    anthropic: str = ""
    google: str = ""
    only_with: str = ""
    reset: float | None = None
    """Seconds after which the provider says that it ends."""


Faults = Mapping[str, Kind]
Credentials = Mapping[tuple[str, str], str]
"""The account, by its provider and the secret that it is sent with."""


class UnknownFault(ValueError):
    """A name that is no fault; the text says so and what is near."""


def fault_named(name: str | int, known: Faults) -> Kind:
    """The fault of that name; a status that is not in the table is an error without more to it.
    Raises UnknownFault."""
    text = str(name)
    if (found := known.get(text)) is not None:
        return found
    if text.isdecimal() and 300 <= int(text) <= 599:
        return Kind(text, f"status {text}", 0, "status", 0, int(text), f"The answer is {text}.")
    near = did_you_mean(text, known)
    raise UnknownFault(f"there is no fault {text!r}. {near}".rstrip())
