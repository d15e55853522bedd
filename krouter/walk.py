"""The loop: entries in their order, the accounts of each, until one gives an answer."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from krouter.accounts import Account, ranked
from krouter.adapter import Adapter, Call, Target, lane_for
from krouter.answer import Answer, error_answer, stamps
from krouter.attempt import Failed, Limits, Trial
from krouter.board import Block, Blocked, Board
from krouter.combos import LEVELS, Combo, Entry, reference
from krouter.errors import Failure, Verdict
from krouter.plan import NotBuilt, Plan, make_plan
from krouter.providers import Provider, Registry
from krouter.route import Attempt, Log, Route, Skip, Skipped
from krouter.secrets import SecretError, Secrets
from krouter.settings import ComboTimeouts, Settings, Timeouts
from krouter.wire import Headers, Wire

LONGEST_WAIT = 10.0
"""A stated wait above this many seconds is not waited out on the same account."""
LONGEST_RETRY_AFTER = 60
"""Claude Code gives up at once on a longer one, and other clients sleep through it."""

_BODY_HEADERS = frozenset(("content-type", "content-length"))


@dataclass(frozen=True, slots=True)
class World:
    """What a walk works with: one consistent view of settings, providers and combos, and the
    edges, passed in."""

    settings: Settings
    registry: Registry
    accounts: Mapping[str, tuple[Account, ...]]
    combos: Mapping[str, Combo]
    board: Board
    secrets: Secrets
    lanes: tuple[Adapter, ...]
    wire: Wire
    log: Log
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Leaf:
    """One entry at its place in the flattened walk, and the combo whose settings govern it."""

    entry: Entry
    combo: Combo
    timeouts: Timeouts
    last: bool
    problem: tuple[Skip, str] | None = None

    @property
    def name(self) -> str:
        return self.entry.model

    @property
    def key(self) -> object:
        entry = self.entry
        return entry.model, repr(entry.params), entry.accounts


@dataclass(frozen=True, slots=True)
class Candidate:
    """An account that an entry may be sent to."""

    leaf: Leaf
    provider: Provider
    lane: Adapter
    account: Account

    @property
    def model(self) -> str:
        return self.leaf.name.partition("/")[2]


@lru_cache(maxsize=1024)
def merged(base: Timeouts, *overrides: ComboTimeouts | None) -> Timeouts:
    return base.merged(*overrides)


def leaves(
    plan: Plan, world: World, stream: bool, base: Timeouts, level: int = 1, last: bool = True
) -> Iterator[Leaf]:
    """The entries in order. A nested combo is opened up, by its own strategy, when it is reached;
    `last` tells whether anything follows the plan in the whole flattened walk."""
    timeouts = merged(base, plan.combo.timeouts)
    for place, step in enumerate(plan.steps, 1):
        entry, is_last = step.entry, last and place == len(plan.steps)
        within = merged(timeouts, entry.timeouts)
        nested = reference(entry.model)
        inner = nested and _nested_plan(nested, world, stream, level)
        if isinstance(inner, Plan):
            yield from leaves(inner, world, stream, within, level + 1, is_last)
        else:
            yield Leaf(entry, plan.combo, within, is_last, inner or None)


def _nested_plan(name: str, world: World, stream: bool, level: int) -> Plan | tuple[Skip, str]:
    """Loading refuses what is nested too deeply; this guard holds at run time as well."""
    if level >= LEVELS or name not in world.combos:
        return Skip.NESTED_TOO_DEEPLY, f"more than {LEVELS} levels"
    try:
        return make_plan(world.combos[name], world.settings.routing, stream)
    except NotBuilt as missing:
        return Skip.NOT_BUILT, str(missing)


@dataclass(slots=True)
class Walk:
    """One request on its way. `deadline` is in the event loop's time."""

    call: Call
    world: World
    route: Route
    deadline: float
    rename: str | None
    _last: Failed | None = None
    _held: Answer | None = None
    _locked: list[tuple[Candidate, Blocked]] = field(default_factory=list)
    _full: list[Candidate] = field(default_factory=list)
    _tried: set[object] = field(default_factory=set)
    _stopped: set[object] = field(default_factory=set)
    """Entries whose further accounts are not to be tried."""
    _ready_at: float = math.inf
    """Epoch seconds at which some entry might answer; infinite where waiting does not help."""
    _larger_than: int | None = None
    """After a too-large error, only entries with a larger window are tried."""

    async def run(self, plan: Plan) -> Answer:
        """The first answer, or the last entry's error."""
        base = self.world.settings.timeouts
        return (
            await self._first_pass(leaves(plan, self.world, self.call.stream, base))
            or await self._second_pass()
            or await self._queue()
            or self._give_up()
        )

    async def _first_pass(self, entries: Iterator[Leaf]) -> Answer | None:
        for leaf in entries:
            candidates = [] if self._passes_over(leaf) else self._candidates(leaf)
            for place, candidate in enumerate(candidates, 1):
                if not self._is_free(candidate):
                    continue
                final = leaf.last and place == len(candidates)
                outcome = await self._persist(candidate, final)
                if isinstance(outcome, Answer):
                    return outcome
                if outcome is not None and not outcome.verdict.next_account:
                    break
        return None

    async def _second_pass(self) -> Answer | None:
        """Nothing is left: locks that only say "busy" or "silent" are ignored."""
        soft = [candidate for candidate, blocked in self._locked if blocked.soft]
        for place, candidate in enumerate(soft, 1):
            if candidate.leaf.key in self._stopped:
                continue
            if not self._has_room(candidate):
                self._full.append(candidate)
                continue
            self._say(f"{candidate.leaf.name} is locked, but nothing else is left")
            outcome = await self._persist(candidate, place == len(soft))
            if isinstance(outcome, Answer):
                return outcome
        return None

    async def _queue(self) -> Answer | None:
        """Nothing is left but accounts at their limit: wait in line for the first."""
        for place, candidate in enumerate(self._full, 1):
            account = candidate.account
            if candidate.leaf.key in self._stopped:
                continue
            try:
                async with asyncio.timeout_at(self.deadline):
                    await self.world.board.wait_for_room(
                        account.provider, account.name, account.max_concurrent
                    )
            except TimeoutError:
                return None
            outcome = await self._persist(candidate, place == len(self._full))
            if isinstance(outcome, Answer):
                return outcome
        return None

    def _passes_over(self, leaf: Leaf) -> bool:
        if leaf.problem is not None:
            self._skip(leaf.name, "", *leaf.problem)
            return True
        if leaf.key in self._tried:
            self._skip(leaf.name, "", Skip.ALREADY_TRIED)
            return True
        self._tried.add(leaf.key)
        if self._larger_than is not None and (leaf.entry.context_window or 0) <= self._larger_than:
            self._skip(leaf.name, "", Skip.SMALLER_WINDOW)
            return True
        return False

    def _candidates(self, leaf: Leaf) -> list[Candidate]:
        """The accounts that could take the request, locks aside; none where the entry cannot."""
        world = self.world
        alias = leaf.name.partition("/")[0]
        provider = world.registry.find(alias)
        if provider is None:
            self._skip(leaf.name, "", Skip.UNKNOWN_PROVIDER)
            return []
        lane = lane_for(world.lanes, provider, self.call.dialect.name)
        if lane is None:
            self._skip(leaf.name, "", Skip.NEEDS_TRANSLATION)
            return []
        allowed = leaf.entry.accounts
        accounts = [
            account
            for account in ranked(world.accounts.get(provider.name, ()))
            if allowed is None or account.name in allowed
        ]
        if not accounts:
            self._skip(leaf.name, "", Skip.NO_ACCOUNT, missing_account(provider, allowed))
        return [Candidate(leaf, provider, lane, account) for account in accounts]

    def _is_free(self, candidate: Candidate) -> bool:
        account, leaf = candidate.account, candidate.leaf
        if account.auth == "caller":
            self._skip(leaf.name, account.name, Skip.NOT_BUILT, 'auth = "caller"')
            return False
        blocked = self.world.board.blocked(account.provider, account.name, candidate.model)
        if blocked is not None:
            self._locked.append((candidate, blocked))
            self._wait_helps(blocked.lock.until)
            reason = Skip.LOCKED if blocked.why is Block.LOCKED else Skip.PROBING
            self._skip(leaf.name, account.name, reason, blocked.lock.failure)
            return False
        if not self._has_room(candidate):
            self._full.append(candidate)
            self._skip(leaf.name, account.name, Skip.AT_LIMIT)
            return False
        return True

    def _has_room(self, candidate: Candidate) -> bool:
        account = candidate.account
        return self.world.board.has_room(account.provider, account.name, account.max_concurrent)

    async def _persist(self, candidate: Candidate, final: bool) -> Answer | Failed | None:
        """One account, as often as the combo's `retries` and a refreshed credential allow; None
        where it could not be tried."""
        refreshed = False
        turn = 0
        while True:
            outcome = await self._try(candidate, final)
            if not isinstance(outcome, Failed):
                return outcome
            verdict = outcome.verdict
            if verdict.failure is Failure.NOT_SIGNED_IN and not refreshed:
                refreshed = True
                if await self._refresh(candidate.account):
                    continue
            wait = self._pause(outcome, turn) if turn < candidate.leaf.combo.retries else None
            if wait is None:
                return self._conclude(candidate, outcome)
            turn += 1
            self._say(f"{candidate.leaf.name}: again in {wait:.1f} s")
            await self.world.sleep(wait)

    def _pause(self, outcome: Failed, turn: int) -> float | None:
        """Seconds before the same account is tried again; None for not at all."""
        if not outcome.verdict.retry or outcome.total_spent:
            return None
        if outcome.verdict.reset is not None:
            wait = max(0.0, outcome.verdict.reset - self.world.board.now())
        else:
            wait = min(2.0**turn, LONGEST_WAIT) * (0.5 + self.world.chance() / 2)
        return wait if wait <= LONGEST_WAIT and wait < self._left() else None

    async def _refresh(self, account: Account) -> bool:
        """Whether a refused credential that can be had anew has become another one."""
        if account.key is None or account.key.startswith("env:"):
            return False
        secrets = self.world.secrets
        try:
            before = await secrets.reveal(account.key)
            secrets.forget(account.key)
            return await secrets.reveal(account.key) != before
        except SecretError:
            return False

    def _conclude(self, candidate: Candidate, outcome: Failed) -> Answer | Failed:
        """Notes a failure; the caller's answer where the class of it ends the walk."""
        verdict = outcome.verdict
        self._last, self._held = outcome, outcome.held
        if outcome.total_spent:
            return self._failure(outcome)
        if verdict.failure is Failure.TOO_LARGE and candidate.leaf.combo.on_too_large == "larger":
            self._larger_than = candidate.leaf.entry.context_window or 0
        elif not verdict.next_entry or _returned(verdict, candidate.leaf.combo):
            return self._failure(outcome)
        if verdict.failure is Failure.TIMED_OUT and candidate.leaf.timeouts.try_other_accounts:
            outcome.verdict = replace(verdict, next_account=True)
        if not outcome.verdict.next_account:
            self._stopped.add(candidate.leaf.key)
        return outcome

    async def _try(self, candidate: Candidate, final: bool) -> Answer | Failed | None:
        leaf, account, world = candidate.leaf, candidate.account, self.world
        left = self._left()
        if left <= 0:
            return None
        try:
            secret = await world.secrets.reveal(account.key) if account.key else None
        except SecretError as error:
            self._skip(leaf.name, account.name, Skip.NO_CREDENTIAL, str(error))
            return None
        note = Attempt(
            leaf.name, candidate.model, account.name, candidate.lane.name, world.board.now()
        )
        self.route.steps.append(note)
        self._say(f"trying {leaf.name} (account {account.name}, {candidate.lane.name})")
        ticket = world.board.begin(account.provider, account.name, candidate.model)
        target = Target(
            candidate.provider,
            candidate.model,
            secret,
            account.auth,
            leaf.entry.params,
            leaf.timeouts.connect,
        )
        limits = Limits(leaf.timeouts, self._attempt_limit(leaf, final), left)
        outcome = await Trial(
            self.call,
            target,
            candidate.lane,
            world.wire,
            world.board,
            self.route,
            note,
            ticket,
            limits,
            leaf.last or final,
            self.rename,
        ).run()
        if isinstance(outcome, Failed):
            self._failed(candidate, note, outcome)
            return outcome
        return self._served(leaf, outcome)

    def _attempt_limit(self, leaf: Leaf, final: bool) -> float | None:
        """The last attempt may take all the time there is, unless its entry says otherwise."""
        own = leaf.entry.timeouts
        stated = own is not None and own.attempt is not None
        return leaf.timeouts.attempt if stated or not final else None

    def _failed(self, candidate: Candidate, note: Attempt, outcome: Failed) -> None:
        verdict = outcome.verdict
        lock = f", locked {note.lock:.0f} s" if note.lock else ""
        self._say(f"{candidate.leaf.name}: {note.status or '-'} {verdict.failure}{lock}")
        if verdict.lock is not None:
            ready = self.world.board.now() + (note.lock or 0.0)
            self._wait_helps(max(ready, verdict.reset or 0.0))

    def _served(self, leaf: Leaf, answer: Answer) -> Answer:
        self.route.served = leaf.name
        self._say(f"{leaf.name} answers")
        return self._stamped(answer)

    def _stamped(self, answer: Answer) -> Answer:
        self.route.status = answer.status
        answer.headers = [*answer.headers, *stamps(self.route)]
        return answer

    def _give_up(self) -> Answer:
        if self._held is not None:
            self.route.served = self.route.attempts[-1].entry
            return self._stamped(self._held)
        if self._last is not None:
            return self._failure(self._last)
        if self._left() <= 0:
            return self._error(504, "The request's total time is over.")
        if self._locked:
            return self._all_locked()
        return self._nothing_to_send()

    def _failure(self, failed: Failed) -> Answer:
        verdict = failed.verdict
        return self._error(verdict.status, verdict.message, failed)

    def _all_locked(self) -> Answer:
        candidate, blocked = min(self._locked, key=lambda pair: pair[1].lock.until)
        lock = blocked.lock
        left = max(0.0, lock.until - self.world.board.now())
        status = 429 if lock.row in (6, 8) else lock.status
        message = (
            f"Every account that could answer is locked; first back is {candidate.leaf.name},"
            f" account {candidate.account.name}, in {left:.0f} s ({lock.failure}: {lock.message})."
        )
        return self._error(status, message)

    def _nothing_to_send(self) -> Answer:
        skipped = [step for step in self.route.steps if isinstance(step, Skipped)]
        unbuilt = {Skip.NEEDS_TRANSLATION, Skip.NOT_BUILT}
        status = 501 if all(step.reason in unbuilt for step in skipped) else 503
        reasons = (
            f"{step.entry}: {step.reason}{f' ({step.detail})' if step.detail else ''}"
            for step in skipped
        )
        return self._error(status, "No entry could be sent to. " + "; ".join(reasons) + ".")

    def _error(self, status: int, message: str, failed: Failed | None = None) -> Answer:
        notes = {"krouter_route": self.route.id}
        if trail := self.route.trail():
            notes["krouter_tried"] = trail
        headers = [
            (n, v) for n, v in (failed.headers if failed else None) or [] if n not in _BODY_HEADERS
        ]
        told = failed.told if failed else None
        answer = error_answer(
            self.call.dialect, status, message, told=told, notes=notes, headers=headers
        )
        answer.headers += self._waiting(status)
        self._say(f"no answer: {status} {message}")
        return self._stamped(answer)

    def _waiting(self, status: int) -> Headers:
        """When to come back. Clients die without it, sleep for hours on a large one, or loop."""
        wait = self._ready_at - self.world.board.now()
        if wait <= LONGEST_RETRY_AFTER:
            return [("retry-after", str(max(1, math.ceil(wait))))]
        if wait < math.inf or status == 429 or status >= 500:
            return [("x-should-retry", "false")]
        return []

    def _wait_helps(self, at: float) -> None:
        self._ready_at = min(self._ready_at, at)

    def _left(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()

    def _skip(self, entry: str, account: str, reason: Skip, detail: str = "") -> None:
        self.route.steps.append(Skipped(entry, account, reason, detail))
        self._say(f"{entry}: skipped, {reason}{f' ({detail})' if detail else ''}")

    def _say(self, line: str) -> None:
        self.world.log("COMBO", f"{self.route.combo or self.route.asked}: {line}")


def missing_account(provider: Provider, allowed: tuple[str, ...] | None) -> str:
    """What to do about a provider that has no account."""
    if allowed is not None:
        return f"{provider.name} has no account named {' or '.join(allowed)}"
    if provider.env:
        return f"set {' or '.join(provider.env)}"
    return f"give [provider.{provider.name}] a key in krouter.toml"


def _returned(verdict: Verdict, combo: Combo) -> bool:
    return verdict.failure is Failure.REFUSED and combo.on_refusal == "return"
