"""Asks providers in the background what is left of the accounts in use."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from krouter.accounts import Account
from krouter.answer import described
from krouter.board import Pair
from krouter.pool import Pool
from krouter.quota import Poll
from krouter.reporter import PollError, QuotaReporter, Report
from krouter.resets import stated_reset
from krouter.secrets import SecretError
from krouter.wire import Headers, Outgoing, Wire, WireError
from krouter.world import World

EVERY = 60.0
IN_USE = 1800.0
"""An account that nobody has called for so many seconds is not asked about."""
LONGEST_BACKOFF = 3600.0
POLL_SECONDS = 10.0
MOST_BYTES = 1 << 20

_log = logging.getLogger("krouter")


class Poller:
    """Keeps the figures of `pool` fresh, over the wire and the accounts of the world as it is at
    the time. Whoever runs the House runs this beside it."""

    def __init__(
        self,
        world: Callable[[], World],
        pool: Pool,
        reporters: Iterable[QuotaReporter],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._world = world
        self._pool = pool
        self._reporters = {name: each for each in reporters for name in each.polled}
        self._sleep = sleep

    async def run(self) -> None:
        """Polls once a minute until cancelled."""
        while True:
            await self.poll()
            await self._sleep(EVERY)

    async def poll(self) -> None:
        """Asks once about every account whose time it is. Raises nothing: what fails is shown, and
        asked again after longer and longer pauses."""
        world, now = self._world(), self._pool.now()
        used = frozenset(self._pool.health.used_since(now - IN_USE))
        due = [account for account in self._with_reporter(world, used) if self._is_due(account)]
        await asyncio.gather(*(self._ask(account, world) for account in due))

    def _with_reporter(self, world: World, used: frozenset[Pair]) -> list[Account]:
        names = {provider for provider, _ in used} & set(self._reporters)
        return [
            account
            for name in sorted(names)
            for account in world.accounts.get(name, ())
            if account.key and (name, account.name) in used
        ]

    def _is_due(self, account: Account) -> bool:
        poll = self._pool.quota.polls.get((account.provider, account.name))
        return poll is None or poll.next_at <= self._pool.now()

    async def _ask(self, account: Account, world: World) -> None:
        try:
            async with asyncio.timeout(POLL_SECONDS):
                report = await self._told(account, world)
        except PollError as error:
            self._fail(account, world, str(error), error.retry_at)
        except SecretError as error:
            self._fail(account, world, str(error))
        except TimeoutError:
            self._fail(account, world, f"no answer within {POLL_SECONDS:g} s")
        except Exception as error:  # a fault of ours must not end the polling of the others
            _log.error("polling %s failed with %s\n%s", account.id, *described(error))
            self._fail(account, world, f"krouter failed with {type(error).__name__}")
        else:
            self._succeed(account, report)

    async def _told(self, account: Account, world: World) -> Report:
        provider = world.registry.providers[account.provider]
        assert account.key is not None, "only those with a credential are asked about"
        secret = await world.secrets.reveal(account.key)
        reporter, now = self._reporters[account.provider], self._pool.now()
        get = _getter(world.wire, self._pool.now)
        report = await reporter.poll(provider, secret, get, now)
        if not report.items:
            raise PollError("the reply says nothing of what is left")
        return report

    def _succeed(self, account: Account, report: Report) -> None:
        now, quota = self._pool.now(), self._pool.quota
        quota.note(account.provider, account.name, report, "polled")
        quota.polls[account.provider, account.name] = Poll(now, now)

    def _fail(
        self, account: Account, world: World, problem: str, retry_at: float | None = None
    ) -> None:
        polls, now = self._pool.quota.polls, self._pool.now()
        before = polls.get((account.provider, account.name))
        failures = 1 + (before.failures if before else 0)
        pause = min(EVERY * 2.0 ** min(failures, 10), LONGEST_BACKOFF)
        next_at = max(now + pause, min(retry_at or 0.0, now + LONGEST_BACKOFF))
        polls[account.provider, account.name] = Poll(now, next_at, failures, problem)
        if failures == 1:
            world.log("QUOTA", f"{account.id}: what is left cannot be read: {problem}")


def _getter(wire: Wire, now: Callable[[], float]) -> Callable[[str, Headers], Awaitable[Any]]:
    async def get(url: str, headers: Headers) -> Any:
        asked = [("accept", "application/json"), ("user-agent", "krouter"), *headers]
        try:
            reply = await wire.send(Outgoing(url, asked, method="GET"), POLL_SECONDS)
            try:
                raw = await reply.read(MOST_BYTES)
            finally:
                reply.close()
        except WireError as error:
            detail = f" ({error.detail})" if error.detail else ""
            raise PollError(f"{error.fault}{detail}") from None
        if reply.status != 200:
            lowered = {name.lower(): value for name, value in reply.headers}
            raise PollError(f"status {reply.status}", stated_reset(lowered, None, "", now()))
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            raise PollError("the reply is not JSON") from None

    return get
