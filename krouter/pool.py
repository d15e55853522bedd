"""All that is known of accounts while krouter runs, and the order that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from krouter.accounts import Account
from krouter.board import Turns
from krouter.health import NEUTRAL, HealthBook
from krouter.quota import QuotaBook
from krouter.ranking import AccountsSnapshot
from krouter.reporter import QuotaReporter
from krouter.sessions import Sessions
from krouter.settings import AccountStrategy
from krouter.vectors import Vectors


@dataclass(frozen=True, slots=True)
class Pool:
    """In memory, bounded, one for all requests. `now` gives epoch seconds."""

    now: Callable[[], float]
    health: HealthBook
    quota: QuotaBook
    sessions: Sessions
    turns: Turns
    vectors: Vectors

    @classmethod
    def empty(cls, now: Callable[[], float], reporters: Iterable[QuotaReporter] = ()) -> Pool:
        quota = QuotaBook(now, reporters)
        return cls(now, HealthBook(now), quota, Sessions(now), Turns(), Vectors())

    def snapshot(
        self,
        accounts: Sequence[Account],
        model: str,
        strategy: AccountStrategy,
        sticky_limit: int,
        turn: int = 0,
        session: str = "",
        seed: int = 0,
    ) -> AccountsSnapshot:
        """What the order of one provider's accounts follows from. `turn` is from `turns`, taken
        once a request."""
        provider, health, left = accounts[0].provider, {}, {}
        for name in (account.name for account in accounts):
            if (known := self.health.of(provider, name)) is not NEUTRAL:
                health[name] = known
            if (share := self.quota.left(provider, name, model)) is not None:
                left[name] = share
        return AccountsSnapshot(
            strategy,
            {account.name: account.priority for account in accounts},
            health,
            left,
            self.now(),
            turn,
            sticky_limit,
            (self.sessions.account(session, provider) or "") if session else "",
            seed,
        )

    def forget(self, provider: str, account: str) -> None:
        """The account's credential is another one now."""
        self.health.forget(provider, account)
        self.quota.forget(provider, account)
        self.sessions.forget(provider, account)
