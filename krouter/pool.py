"""All that is known of accounts while krouter runs, and the order that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from krouter.accounts import Account
from krouter.board import Turns
from krouter.health import HealthBook
from krouter.quota import QuotaBook
from krouter.ranking import Chance, Place, Standing, order
from krouter.reporter import QuotaReporter
from krouter.sessions import Sessions
from krouter.settings import AccountStrategy


@dataclass(frozen=True, slots=True)
class Pool:
    """In memory, bounded, one for all requests. `now` gives epoch seconds."""

    now: Callable[[], float]
    health: HealthBook
    quota: QuotaBook
    sessions: Sessions
    turns: Turns

    @classmethod
    def empty(cls, now: Callable[[], float], reporters: Iterable[QuotaReporter] = ()) -> Pool:
        quota = QuotaBook(now, reporters)
        return cls(now, HealthBook(now), quota, Sessions(now), Turns())

    def order(
        self,
        accounts: Sequence[Account],
        model: str,
        strategy: AccountStrategy,
        sticky_limit: int,
        turn: int,
        chance: Chance,
        session: str = "",
    ) -> list[Place]:
        """One provider's accounts, best first. `turn` is from `turns`, taken once a request."""
        if not accounts:
            return []
        provider = accounts[0].provider
        kept = self.sessions.account(session, provider) if session else None
        standing = self._standing(provider, accounts, model, turn)
        return order(accounts, strategy, standing, self.now(), chance, sticky_limit, kept)

    def _standing(
        self, provider: str, accounts: Sequence[Account], model: str, turn: int
    ) -> Standing:
        names = [account.name for account in accounts]
        left = {name: self.quota.left(provider, name, model) for name in names}
        return Standing(
            {name: self.health.of(provider, name) for name in names},
            {name: share for name, share in left.items() if share is not None},
            turn,
        )

    def forget(self, provider: str, account: str) -> None:
        """The account's credential is another one now."""
        self.health.forget(provider, account)
        self.quota.forget(provider, account)
