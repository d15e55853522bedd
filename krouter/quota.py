"""What is left of each account's quota: figures of models, windows and balances.

Figures order entries. Windows and balances are shown and count in Zenith, and order nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from cachetools import LRUCache

from krouter.board import Pair
from krouter.reporter import Balance, Figure, QuotaReporter, Report, Window
from krouter.wire import Headers

Source = Literal["polled", "reported"]
Item = Figure | Window | Balance

SPENT = 0.02
"""With this share left or less, a request is likelier to fail than not."""
POLLED_SECONDS = 300.0
REPORTED_SECONDS = 3600.0
TARGETS_KEPT = 100_000


@dataclass(frozen=True, slots=True)
class Note:
    """One thing known of an account, since `at` in epoch seconds. Polled: krouter asked for it.
    Reported: a reply or a person told it."""

    provider: str
    account: str
    item: Item
    source: Source
    at: float

    @property
    def ends(self) -> float:
        """When it is no longer to be believed: its limit is full again, or it is old. What was
        polled is polled again within a minute, so a figure is old when that has long failed."""
        resets_at = None if isinstance(self.item, Balance) else self.item.resets_at
        if isinstance(self.item, Figure) and self.source == "polled":
            return min(self.at + POLLED_SECONDS, resets_at or self.at + POLLED_SECONDS)
        return resets_at or self.at + REPORTED_SECONDS


def is_spent(figure: Figure) -> bool:
    """Whether an entry with this figure goes last in its group."""
    return figure.remaining <= SPENT


def headroom(notes: Iterable[Note], model: str, now: float) -> float | None:
    """The share of one account's quota that is left for `model`: the least of all that counts for
    it; None if nothing is known."""
    shares = [_share(note.item, model) for note in notes if now < note.ends]
    return min((share for share in shares if share is not None), default=None)


def _share(item: Item, model: str) -> float | None:
    match item:
        case Figure():
            return item.remaining if item.model == model else None
        case Window():
            return item.remaining if item.counts_for(model) else None
        case Balance(of=budget) if budget:
            return min(max(item.amount / budget, 0.0), 1.0)
    return 0.0 if item.amount <= 0 else None


@dataclass(frozen=True, slots=True)
class Poll:
    """How asking a provider about an account goes. `failures` are those in a row."""

    at: float
    next_at: float
    failures: int = 0
    problem: str = ""


class QuotaBook:
    """All notes, in memory and bounded. `now` gives epoch seconds."""

    def __init__(
        self,
        now: Callable[[], float],
        reporters: Iterable[QuotaReporter] = (),
        *,
        accounts: int = 1000,
        items: int = 500,
    ) -> None:
        self._now = now
        self._readers = {name: each.read_headers for each in reporters for name in each.heard}
        self._items = items
        self._told: set[tuple[str, str]] = set()
        self._notes: LRUCache[Pair, LRUCache[tuple[str, str, str], Note]] = LRUCache(accounts)
        self.polls: LRUCache[Pair, Poll] = LRUCache(accounts)

    def note(self, provider: str, account: str, report: Report, source: Source) -> None:
        """What is told now takes the place of what was told before of the same thing."""
        if not report.items:
            return
        known = self._notes.get((provider, account))
        if known is None:
            known = self._notes[provider, account] = LRUCache(self._items)
        now = self._now()
        for item in report.items:
            known[_key(item)] = Note(provider, account, item, source, now)
        if len(self._told) < TARGETS_KEPT:
            self._told.update((provider, figure.model) for figure in report.figures)

    def heard(self, provider: str, account: str, model: str, headers: Headers) -> None:
        """The headers of a reply, of whatever status. Costs nothing where they tell nothing."""
        reader = self._readers.get(provider)
        if reader is None:
            return
        lowered = {name.lower(): value for name, value in headers}
        self.note(provider, account, reader(lowered, model, self._now()), "reported")

    def notes(self) -> list[Note]:
        """Every note that is still to be believed."""
        now = self._now()
        kept = list(self._notes.values())
        return [note for known in kept for note in known.values() if now < note.ends]

    @property
    def has_figures(self) -> bool:
        """Whether anybody has told a figure yet."""
        return bool(self._told)

    def may_tell(self, provider: str, model: str) -> bool:
        """False where surely no account has a figure of `model`; cheaper than to look."""
        return (provider, model) in self._told or len(self._told) >= TARGETS_KEPT

    def figure(self, provider: str, account: str, model: str) -> Figure | None:
        """What is left of exactly `model` for one account, None if nobody has told."""
        known = self._notes.get((provider, account))
        note = known.get(("figure", model, "")) if known else None
        if note is None or self._now() >= note.ends:
            return None
        assert isinstance(note.item, Figure)
        return note.item

    def left(self, provider: str, account: str, model: str) -> float | None:
        """The share of an account's quota that is left for `model`, None if unknown."""
        known = self._notes.get((provider, account))
        return headroom(known.values(), model, self._now()) if known else None

    def full_at(self, provider: str, account: str, model: str) -> float | None:
        """When the last of the account's windows that are used up opens again, in epoch seconds.

        What headers say of single minutes is over before it matters.
        """
        known = self._notes.get((provider, account))
        if not known:
            return None
        now = self._now()
        used_up = (
            note.item.resets_at
            for note in known.values()
            if now < note.ends
            and note.source == "polled"
            and isinstance(note.item, Window)
            and note.item.remaining <= 0
            and note.item.counts_for(model)
        )
        return max(filter(None, used_up), default=None)

    def forget(self, provider: str, account: str) -> None:
        self._notes.pop((provider, account), None)
        self.polls.pop((provider, account), None)


def _key(item: Item) -> tuple[str, str, str]:
    match item:
        case Figure():
            return "figure", item.model, ""
        case Window():
            return "window", item.name, item.model
    return "balance", item.name, ""
