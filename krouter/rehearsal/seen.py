"""What one caller saw, and what really happened."""

from __future__ import annotations

from msgspec import Struct

from krouter.costs import dollars
from krouter.rehearsal.reading import Came
from krouter.route import Attempt, Route, Skipped
from krouter.wire import Headers


class Seen(Struct, frozen=True):
    """One request from its caller's side. Times are in virtual seconds from its beginning: to the
    `head`, to the `first` byte that is more than a sign of life, and until all was over; `silence`
    is the longest wait in between the first byte and the end."""

    came: Came
    status: int | None
    text: str
    message: str
    """Of the error, if there is one."""
    headers: Headers
    body: bytes
    head: float | None
    first: float | None
    seconds: float
    silence: float
    pings: int
    """How many signs of life came."""
    route: Route | None
    """None where krouter refused the request before it was routed."""

    @property
    def attempts(self) -> list[Attempt]:
        return self.route.attempts if self.route else []

    @property
    def skips(self) -> list[Skipped]:
        return self.route.skips if self.route else []

    @property
    def served(self) -> str:
        """The entry that answered; empty where none did."""
        return self.route.served if self.route else ""

    @property
    def cost(self) -> float | None:
        """US dollars of all attempts, as far as known by now; None where no price is known."""
        known = [each.cost for each in self.attempts if each.cost is not None]
        if not known and any(each.is_unpriced for each in self.attempts):
            return None
        return dollars(sum(known))

    def header(self, name: str) -> str | None:
        return next((value for given, value in self.headers if given == name), None)
