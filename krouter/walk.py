"""The loop: entries in their order, the accounts of each, until one gives an answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from krouter.accounts import Account
from krouter.adapter import Call, Target
from krouter.answer import Answer, error_answer, stamps
from krouter.attempt import Failed, Limits, Trial
from krouter.board import Block, Blocked, LockState, Pair, Ticket
from krouter.callers import CallerUnsigned, callers_token, how_to_sign_in
from krouter.combos import Entry, Medium
from krouter.dialects.strip import without_images
from krouter.dialects.thinking import UNSIGNED, digest, thinking_digests, without_thinking
from krouter.errors import Failure, Verdict
from krouter.families import related
from krouter.features import Feature, in_other_words, without_features
from krouter.lineup import Candidate, Leaf, Obstacle, candidates, leaves
from krouter.plan import Plan
from krouter.route import Attempt, Route, Skip, Skipped
from krouter.secrets import SecretError
from krouter.standing import standing
from krouter.wire import Headers
from krouter.world import Ask, World

LONGEST_WAIT = 10.0
"""A stated wait above this many seconds is not waited out on the same account."""
LONGEST_RETRY_AFTER = 60
"""Claude Code gives up at once on a longer one, and other clients sleep through it."""

_BODY_HEADERS = frozenset(("content-type", "content-length"))


_UNSIGNED = digest(UNSIGNED)
IMAGE: frozenset[Medium] = frozenset(("image",))


@dataclass(frozen=True, slots=True)
class _Sendable:
    """A call as one provider is sent it, its entry's parameters, and what was taken out."""

    call: Call
    params: Mapping[str, Any]
    dropped: tuple[str, ...]


@dataclass(slots=True)
class Walk:
    """One request on its way. `deadline` is in the event loop's time."""

    call: Call
    world: World
    route: Route
    deadline: float
    rename: str | None
    ask: Ask
    _last: Failed | None = None
    _held: Answer | None = None
    _locked: list[tuple[Candidate, Blocked]] = field(default_factory=list)
    _full: list[Candidate] = field(default_factory=list)
    _tried: set[object] = field(default_factory=set)
    _stopped: set[object] = field(default_factory=set)
    """Entries whose further accounts are not to be tried."""
    _over: list[Plan] = field(default_factory=list)
    """Nested combos that have given up."""
    _ready_at: float = math.inf
    """Epoch seconds at which some entry might answer; infinite where waiting does not help."""
    _larger_than: int | None = None
    """After a too-large error, only entries with a larger window are tried."""
    _signed: frozenset[str] | None = None
    """Digests of the thinking that the request sends back."""
    _stripped: list[list[Candidate]] = field(default_factory=list)
    """Accounts of entries that take no images, to be asked without them once nothing is left that
    does."""
    _inner: list[Plan] = field(default_factory=list)
    """Nested combos that have been reached."""
    _refuser: tuple[Candidate, Failed] | None = None
    """Who refused a feature last, in case nobody after it can be asked."""
    _passed: bool = False
    """Every entry has had its turn."""

    async def run(self, plan: Plan) -> Answer:
        """The first answer, or the last entry's error."""
        base = self.world.settings.timeouts
        return (
            await self._first_pass(leaves(plan, self.world, self.ask, base))
            or await self._second_pass()
            or await self._queue()
            or await self._without_features()
            or self._give_up()
        )

    async def _first_pass(self, entries: Iterator[Leaf]) -> Answer | None:
        for leaf in entries:
            self._note_nest(leaf)
            if self._is_due(leaf) and (answer := await self._without_images()):
                return answer
            if answer := await self._entry(leaf):
                return answer
        self._passed = True
        return await self._without_images()

    def _is_due(self, leaf: Leaf) -> bool:
        """Whether no entry that may read the images is left, from `leaf` on."""
        waiting = bool(self._stripped) and self._is_blind(leaf.entry)
        return waiting and not self._is_read_later(leaf)

    def _note_nest(self, leaf: Leaf) -> None:
        """The order of a nested combo is known once it is reached."""
        for plan in leaf.nest[1:]:
            if any(plan is known for known in self._inner):
                continue
            self._inner.append(plan)
            self.route.note_plan(plan, nested=True)
            for line in plan.switches:
                self._say(f"{plan.combo.name}: {line}")

    def _is_blind(self, entry: Entry) -> bool:
        return standing(entry, self.world, IMAGE).is_blind

    async def _entry(self, leaf: Leaf) -> Answer | None:
        """One entry, and where its model is gone, those that stand in for it."""
        if self._passes_over(leaf):
            return None
        outcome = await self._accounts(leaf, self._candidates(leaf))
        if isinstance(outcome, Answer):
            return outcome
        return await self._family(leaf) if outcome else None

    async def _family(self, leaf: Leaf) -> Answer | None:
        for stand_in in self._stand_ins(leaf):
            if self._passes_over(stand_in):
                continue
            answer = await self._accounts(stand_in, self._candidates(stand_in))
            if isinstance(answer, Answer):
                return answer
        return None

    async def _accounts(self, leaf: Leaf, candidates: list[Candidate]) -> Answer | bool:
        """The answer of one of the accounts; else whether the model is gone."""
        gone = False
        for place, candidate in enumerate(candidates, 1):
            if not self._is_free(candidate):
                gone = gone or self._is_gone(candidate)
                continue
            final = leaf.last and place == len(candidates)
            outcome = await self._persist(candidate, final)
            if isinstance(outcome, Answer):
                return outcome
            if outcome is not None and not outcome.verdict.next_account:
                failure = outcome.verdict.failure
                if failure is Failure.IMAGE_REJECTED and "image" not in self._dropped:
                    self._stripped.append(candidates[place - 1 :])
                return failure is Failure.MODEL_GONE
        return gone

    @property
    def _dropped(self) -> tuple[str, ...]:
        """What the last attempt was sent without."""
        return self.route.attempts[-1].dropped

    def _is_gone(self, candidate: Candidate) -> bool:
        """Whether what locks an account is that its provider has not the model."""
        account = candidate.account
        blocked = self.world.board.blocked(account.provider, account.name, candidate.model)
        return blocked is not None and blocked.lock.failure is Failure.MODEL_GONE

    def _stand_ins(self, leaf: Leaf) -> Iterator[Leaf]:
        """Models of the same family at the same provider. Who asks for one model gets no other."""
        alias, _, model = leaf.name.partition("/")
        provider = self.world.registry.find(alias)
        if not self.route.combo or provider is None:
            return
        find = self.world.registry.find
        tried = [
            step.model
            for step in self.route.attempts
            if find(step.entry.partition("/")[0]) is provider
        ]
        names = related(provider, model, self.world.catalog, tried)
        for place, name in enumerate(names, 1):
            entry = leaf.entry.model_copy(update={"model": f"{alias}/{name}"})
            last = leaf.last and place == len(names)
            yield replace(leaf, entry=entry, reason=f"stands in for {leaf.name}", last=last)

    async def _without_images(self) -> Answer | None:
        """Those that take no images, asked once more without them."""
        while self._stripped:
            accounts = self._stripped.pop(0)
            leaf = accounts[0].leaf
            if self._has_ended(leaf) or self._is_too_small(leaf):
                continue
            self._say(f"{leaf.name}: again, without the images")
            outcome = await self._accounts(leaf, accounts)
            if isinstance(outcome, Answer):
                return outcome
        return None

    async def _second_pass(self) -> Answer | None:
        """Nothing is left: locks that only say "busy" or "silent" are ignored."""
        soft = [candidate for candidate, blocked in self._locked if blocked.soft]
        for place, candidate in enumerate(soft, 1):
            if self._is_out(candidate.leaf):
                continue
            if not self._has_room(candidate):
                self._full.append(candidate)
                continue
            self._say(f"{candidate.leaf.name} is locked, but nothing else is left")
            outcome = await self._persist(candidate, place == len(soft) and not self._full)
            if answer := await self._answer_or_family(candidate, outcome):
                return answer
        return None

    async def _answer_or_family(
        self, candidate: Candidate, outcome: Answer | Failed | None
    ) -> Answer | None:
        if isinstance(outcome, Failed) and outcome.verdict.failure is Failure.MODEL_GONE:
            return await self._family(candidate.leaf)
        return outcome if isinstance(outcome, Answer) else None

    async def _queue(self) -> Answer | None:
        """Nothing is left but accounts at their limit: wait in line for the first to be free."""
        while self._full:
            candidate = await self._turn()
            if candidate is None:
                return None
            outcome = None
            if self._may_go(candidate):
                outcome = await self._persist(candidate, not self._full, taken=True)
            if answer := await self._answer_or_family(candidate, outcome):
                return answer
            self._full = [waiting for waiting in self._full if not self._is_out(waiting.leaf)]
        return None

    async def _turn(self) -> Candidate | None:
        """Waits for a place, which is then taken; None when the request's time is over."""
        limits = {_pair(c.account): c.account.max_concurrent for c in self._full}
        try:
            async with asyncio.timeout_at(self.deadline):
                pair = await self.world.board.wait_for_room(limits)
        except TimeoutError:
            self._end_time()
            self._wait_helps(self.world.board.now())
            return None
        candidate = next(c for c in self._full if _pair(c.account) == pair)
        self._full.remove(candidate)
        return candidate

    def _may_go(self, candidate: Candidate) -> bool:
        """Whether an account is still open after the wait; its place is given back if not."""
        account = candidate.account
        blocked = self.world.board.blocked(account.provider, account.name, candidate.model)
        if blocked is None or blocked.soft:
            return True
        self._note_locked(candidate, blocked)
        self.world.board.leave(_pair(account))
        return False

    def _passes_over(self, leaf: Leaf) -> bool:
        obstacle = leaf.obstacle
        if leaf.key in self._tried:
            obstacle = Obstacle(Skip.ALREADY_TRIED)
        elif self._has_ended(leaf):
            obstacle = Obstacle(Skip.COMBO_ENDED)
        elif self._is_too_small(leaf):
            obstacle = Obstacle(Skip.SMALLER_WINDOW)
        if obstacle is not None:
            self._skip(leaf.name, "", *obstacle)
            return True
        self._tried.add(leaf.key)
        return False

    def _is_out(self, leaf: Leaf) -> bool:
        return leaf.key in self._stopped or self._has_ended(leaf) or self._is_too_small(leaf)

    def _has_ended(self, leaf: Leaf) -> bool:
        return any(plan is over for plan in leaf.nest for over in self._over)

    def _is_too_small(self, leaf: Leaf) -> bool:
        return self._larger_than is not None and self._window(leaf) <= self._larger_than

    def _window(self, leaf: Leaf) -> int:
        """Tokens, as the entry or else the model table has it; 0 where it is not known."""
        if leaf.entry.context_window:
            return leaf.entry.context_window
        provider, model = self.world.registry.split(leaf.name)
        return (self.world.catalog.facts(provider, model).window or 0) if provider else 0

    def _candidates(self, leaf: Leaf) -> list[Candidate]:
        found = candidates(leaf, self.world, self.ask)
        if isinstance(found, Obstacle):
            self._skip(leaf.name, "", *found)
            return []
        if standing := found[0].standing:
            self.route.note_ranking(leaf.name, standing, [c.place for c in found if c.place])
        return found

    def _is_free(self, candidate: Candidate) -> bool:
        account, leaf = candidate.account, candidate.leaf
        blocked = self.world.board.blocked(
            account.provider, account.name, candidate.model
        ) or self._used_up(candidate)
        if blocked is not None:
            self._note_locked(candidate, blocked)
            return False
        if not self._has_room(candidate):
            self._full.append(candidate)
            self._skip(leaf.name, account.name, Skip.AT_LIMIT)
            return False
        return True

    def _used_up(self, candidate: Candidate) -> Blocked | None:
        """The provider itself says that nothing is left until a reset: others go first."""
        account = candidate.account
        until = self.world.pool.quota.full_at(account.provider, account.name, candidate.model)
        if until is None:
            return None
        lock = LockState(Failure.QUOTA_SPENT, 6, 429, "its limit is used up", until=until)
        lock.advisory = True
        return Blocked(Block.LOCKED, lock, until)

    def _note_locked(self, candidate: Candidate, blocked: Blocked) -> None:
        self._locked.append((candidate, blocked))
        self._wait_helps(blocked.until)
        reason = Skip.LOCKED if blocked.why is Block.LOCKED else Skip.PROBING
        self._skip(candidate.leaf.name, candidate.account.name, reason, blocked.lock.failure)

    def _has_room(self, candidate: Candidate) -> bool:
        account = candidate.account
        return self.world.board.has_room(account.provider, account.name, account.max_concurrent)

    async def _persist(
        self, candidate: Candidate, final: bool, taken: bool = False
    ) -> Answer | Failed | None:
        """One account, as often as the combo's `retries` and a refreshed credential allow; None
        where it could not be tried. `taken` says that its place is held already."""
        outcome = await self._try(candidate, final, taken)
        failed, refreshed, turn = None, False, 0
        learned: set[Failure] = set()
        while isinstance(outcome, Failed):
            self._last = failed = outcome
            if not refreshed and await self._refresh(candidate, failed):
                refreshed = True
            elif failed.verdict.failure not in learned and self._learns(candidate, failed):
                learned.add(failed.verdict.failure)
            elif await self._waits(candidate, failed, turn):
                turn += 1
            else:
                break
            outcome = await self._try(candidate, final)
        if failed is not None and failed.verdict.failure is Failure.FEATURE_REFUSED:
            self._refuser = candidate, failed
        if isinstance(outcome, Answer) or failed is None:
            return outcome
        return self._conclude(candidate, failed)

    def _learns(self, candidate: Candidate, failed: Failed) -> bool:
        """Whether the same account is to be asked at once without what it refuses, which from now
        on is left out of what it is sent."""
        provider, model, leaf = candidate.provider.name, candidate.model, candidate.leaf
        match failed.verdict.failure:
            case Failure.IMAGE_REJECTED:
                self.world.board.images.note(provider, model, None)
                readers_first = "image" in self.ask.needs and self._is_read_later(leaf)
                return "image" not in self._dropped and not readers_first
            case Failure.FEATURE_REFUSED if leaf.last:
                known = self.world.board.features.refused(provider, model)
                without = self._sendable(candidate, known.union(failed.features)).dropped
                if set(without) <= set(self._dropped):
                    return False
                self.world.board.features.note(provider, model, *failed.features)
                return True
        return False

    async def _without_features(self) -> Answer | None:
        """The last that could be asked refused a feature: as the last it is asked without."""
        if self._refuser is None or self._last is not self._refuser[1]:
            return None
        candidate, self._refuser = self._refuser[0], None
        if not self._has_room(candidate):
            return None
        as_last = replace(candidate, leaf=replace(candidate.leaf, last=True))
        if not self._learns(as_last, self._last):
            return None
        outcome = await self._persist(as_last, True)
        return outcome if isinstance(outcome, Answer) else None

    def _is_read_later(self, leaf: Leaf) -> bool:
        """Whether an entry that is still to come reads images, or may."""
        tried = {step.entry for step in self.route.attempts}
        return not self._passed and any(
            entry.model not in tried and not self._is_blind(entry) for entry in leaf.later()
        )

    async def _waits(self, candidate: Candidate, failed: Failed, turn: int) -> bool:
        """Waits before the same account is tried again, if it is to be."""
        wait = self._pause(failed, turn) if turn < candidate.leaf.combo.retries else None
        if wait is None:
            return False
        self._say(f"{candidate.leaf.name}: again in {wait:.1f} s")
        await self.world.sleep(wait)
        return self._has_room(candidate)

    def _pause(self, outcome: Failed, turn: int) -> float | None:
        """Seconds before the same account is tried again; None for not at all."""
        if not outcome.verdict.retry or outcome.total_spent:
            return None
        if outcome.verdict.reset is not None:
            wait = max(0.0, outcome.verdict.reset - self.world.board.now())
        else:
            wait = min(2.0**turn, LONGEST_WAIT) * (0.5 + self.world.chance() / 2)
        return wait if wait <= LONGEST_WAIT and wait < self._left() else None

    async def _refresh(self, candidate: Candidate, failed: Failed) -> bool:
        """Whether a refused credential that can be had anew has become another one."""
        account, secrets = candidate.account, self.world.secrets
        if failed.verdict.failure is not Failure.NOT_SIGNED_IN:
            return False
        if account.key is None or account.key.startswith("env:"):
            return False
        try:
            async with asyncio.timeout_at(self.deadline):
                if await secrets.reveal(account.key) == failed.secret:
                    secrets.forget(account.key)
                fresh = await secrets.reveal(account.key) != failed.secret
        except (SecretError, TimeoutError):
            return False
        if fresh:
            self._say(f"{candidate.leaf.name}: the credential of {account.name} is new")
            self.world.board.signed_in(account.provider, account.name)
        return fresh and self._has_room(candidate)

    def _conclude(self, candidate: Candidate, outcome: Failed) -> Answer | Failed:
        """What a failure means for the rest; the caller's answer where it ends the walk."""
        verdict, leaf = outcome.verdict, candidate.leaf
        self._held = outcome.held
        if outcome.total_spent:
            return self._failure(outcome)
        if verdict.failure is Failure.TOO_LARGE and leaf.combo.on_too_large == "larger":
            self._larger_than = self._window(leaf)
        elif not verdict.next_entry or self._returns(verdict, leaf):
            return self._failure(outcome)
        if verdict.failure is Failure.TIMED_OUT and leaf.timeouts.try_other_accounts:
            outcome.verdict = replace(verdict, next_account=True)
        if not outcome.verdict.next_account:
            self._stopped.add(leaf.key)
        return outcome

    def _returns(self, verdict: Verdict, leaf: Leaf) -> bool:
        """Whether a refusal goes to the caller. A nested combo that returns it only ends itself:
        to the combo around it, that is the failure of one entry."""
        if verdict.failure is not Failure.REFUSED:
            return False
        for plan in reversed(leaf.nest):
            if plan.combo.on_refusal != "return":
                return False
            self._over.append(plan)
        return True

    async def _try(
        self, candidate: Candidate, final: bool, taken: bool = False
    ) -> Answer | Failed | None:
        leaf, account, board = candidate.leaf, candidate.account, self.world.board
        with ExitStack() as unless_sent:
            ticket = board.begin(account.provider, account.name, candidate.model, taken=taken)
            unless_sent.callback(board.end, ticket)
            try:
                async with asyncio.timeout_at(self.deadline):
                    secret = await self._secret(candidate)
            except SecretError as error:
                unsigned = isinstance(error, CallerUnsigned)
                reason = Skip.CALLER_UNSIGNED if unsigned else Skip.NO_CREDENTIAL
                self._skip(leaf.name, account.name, reason, str(error))
                if error.wait is not None:
                    self._wait_helps(board.now() + error.wait)
                return None
            except TimeoutError:
                self._end_time()
                self._skip(leaf.name, account.name, Skip.NO_TIME)
                return None
            if self._left() <= 0:
                self._skip(leaf.name, account.name, Skip.NO_TIME)
                return None
            trial = self._trial(candidate, final, ticket, secret)
            unless_sent.pop_all()
        outcome = await trial.run()
        if isinstance(outcome, Failed):
            self._failed(candidate, outcome)
            return outcome
        return self._served(leaf, outcome)

    async def _secret(self, candidate: Candidate) -> str | None:
        """Raises SecretError for a credential that cannot be had."""
        account, world, provider = candidate.account, self.world, candidate.provider
        if account.auth != "caller":
            return await world.secrets.reveal(account.key) if account.key else None
        spoken = self.call.dialect.name
        own = (url for dialect, url in provider.base_urls.items() if dialect == spoken)
        url = next(filter(None, (*own, provider.litellm_base, *provider.base_urls.values())), "")
        token = callers_token(self.call.headers, provider, url, world.is_own_key)
        if token is None:
            raise CallerUnsigned
        return token

    def _sendable(self, candidate: Candidate, refused: frozenset[Feature]) -> _Sendable:
        """The call without what its model is known to refuse. A translated call may have another
        name for it."""
        call, name, dropped = self.call, self.call.dialect.name, []
        board, provider, model = self.world.board, candidate.provider.name, candidate.model
        params = candidate.leaf.entry.params

        def drop(feature: Feature) -> bool:
            nonlocal call, params
            body, headers = without_features(call.body, call.headers, (feature,))
            if body is call.body and headers is call.headers and feature.name not in params:
                return False
            call = replace(call, body=body, headers=headers)
            params = {key: value for key, value in params.items() if key != feature.name}
            dropped.append(str(feature))
            return True

        if board.images.refused(provider, model):
            body = without_images(name, call.body)
            if body is not call.body:
                board.images.mattered(provider, model)
                call = replace(call, body=body)
                dropped.append("image")
        foreign = self._foreign(candidate)
        if foreign:
            call = replace(call, body=without_thinking(name, call.body, foreign))
            dropped.append("thinking of another provider")
        translated = name not in candidate.provider.speaks
        for feature in sorted(refused, key=str):
            if not drop(feature) and translated:
                for other in in_other_words(feature):
                    drop(other)
        return _Sendable(call, params, tuple(dropped))

    def _foreign(self, candidate: Candidate) -> frozenset[str]:
        """The thinking in the request that this provider has not signed."""
        if self._signed is None:
            self._signed = thinking_digests(self.call.dialect.name, self.call.body)
        if not self._signed:
            return frozenset()
        foreign = self.world.board.makers.foreign(candidate.provider.maker, self._signed)
        unsigned = {_UNSIGNED} if candidate.lane.name == "native" else set()
        return foreign | (self._signed & unsigned)

    def _trial(
        self, candidate: Candidate, final: bool, ticket: Ticket, secret: str | None
    ) -> Trial:
        leaf, account, world = candidate.leaf, candidate.account, self.world
        note = Attempt(
            leaf.name,
            candidate.model,
            account.name,
            candidate.lane.name,
            ticket.began,
            candidate.provider.name,
        )
        features = world.board.features.refused(candidate.provider.name, candidate.model)
        send = self._sendable(candidate, features if leaf.last else frozenset())
        self.route.steps.append(note)
        self._say(f"trying {leaf.name} (account {account.name}, {candidate.lane.name})")
        return Trial(
            call=send.call,
            target=Target(
                candidate.provider,
                candidate.model,
                secret,
                "bearer" if account.auth == "caller" else account.auth,
                send.params,
                leaf.timeouts.connect,
            ),
            lane=candidate.lane,
            wire=world.wire,
            board=world.board,
            route=self.route,
            note=note,
            ticket=ticket,
            limits=Limits(leaf.timeouts, self._attempt_limit(leaf, final), self._left()),
            last=leaf.last or final,
            rename=self.rename,
            pool=world.pool,
            dropped=send.dropped,
            session=self.ask.session() if candidate.standing else "",
            callers_own=account.auth == "caller",
        )

    def _attempt_limit(self, leaf: Leaf, final: bool) -> float | None:
        """Seconds until a reply must begin. The last attempt may take all the time there is,
        unless its entry says otherwise."""
        limits = [own.total for own in leaf.own]
        if not self.call.stream:
            limits += [own.attempt for own in leaf.own if own.attempt != "off"]
            limits += [] if final else [leaf.timeouts.attempt]
        return min(filter(None, limits), default=None)

    def _failed(self, candidate: Candidate, outcome: Failed) -> None:
        verdict, note = outcome.verdict, self.route.attempts[-1]
        lock = f", locked {note.lock:.0f} s" if note.lock else ""
        self._say(f"{candidate.leaf.name}: {note.status or '-'} {verdict.failure}{lock}")
        if verdict.lock is not None:
            ready = self.world.board.now() + (note.lock or 0.0)
            self._wait_helps(max(ready, verdict.reset or 0.0))

    def _served(self, leaf: Leaf, answer: Answer) -> Answer:
        self.route.serve(leaf.name)
        self._say(f"{leaf.name} answers")
        return self._stamped(answer)

    def _stamped(self, answer: Answer) -> Answer:
        self.route.status = answer.status
        answer.headers = [*answer.headers, *stamps(self.route)]
        return answer

    def _give_up(self) -> Answer:
        if self._held is not None:
            self.route.serve(self.route.attempts[-1].entry)
            self.route.name_dropped()
            return self._stamped(self._held)
        if self._last is not None:
            return self._failure(self._last)
        if self._left() <= 0:
            return self._error(504, f"The request's total time is over{self._line()}.")
        if self._locked:
            return self._all_locked()
        return self._nothing_to_send()

    def _line(self) -> str:
        """Whom the time was spent waiting for."""
        if not self._full:
            return ""
        whose = dict.fromkeys(f"{c.leaf.name} (account {c.account.name})" for c in self._full)
        return f": it waited for a place at {' or '.join(whose)}, which is {Skip.AT_LIMIT}"

    def _failure(self, failed: Failed) -> Answer:
        verdict = failed.verdict
        return self._error(verdict.status, verdict.message, failed)

    def _all_locked(self) -> Answer:
        candidate, blocked = min(self._locked, key=lambda pair: pair[1].until)
        lock = blocked.lock
        left = max(0.0, blocked.until - self.world.board.now())
        status = 429 if lock.row in (6, 8) else lock.status
        message = (
            f"Every account that could answer is locked; first back is {candidate.leaf.name},"
            f" account {candidate.account.name}, in {left:.0f} s ({lock.failure}: {lock.message})."
        )
        return self._error(status, message)

    def _nothing_to_send(self) -> Answer:
        skipped = [step for step in self.route.steps if isinstance(step, Skipped)]
        unbuilt = {Skip.NEEDS_TRANSLATION, Skip.NOT_BUILT, Skip.UNSUPPORTED}
        counted = [step for step in skipped if step.reason is not Skip.ALREADY_TRIED]
        if counted and all(step.reason is Skip.CALLER_UNSIGNED for step in counted):
            return self._error(401, self._unsigned(counted))
        status = 501 if all(step.reason in unbuilt for step in counted) else 503
        reasons = (
            f"{step.entry}: {step.reason}{f' ({step.detail})' if step.detail else ''}"
            for step in skipped
        )
        return self._error(status, "No entry could be sent to. " + "; ".join(reasons) + ".")

    def _unsigned(self, skipped: list[Skipped]) -> str:
        names = " and ".join(dict.fromkeys(step.entry for step in skipped))
        how = how_to_sign_in(self.call.headers, self.world.is_own_key)
        return f"{names} is answered with the caller's own credential, and none was sent. {how}"

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

    def _end_time(self) -> None:
        """The deadline has passed: a timer may fire a moment before the clock shows it."""
        self.deadline = asyncio.get_running_loop().time()

    def _left(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()

    def _skip(self, entry: str, account: str, reason: Skip, detail: str = "") -> None:
        self.route.steps.append(Skipped(entry, account, reason, detail))
        self._say(f"{entry}: skipped, {reason}{f' ({detail})' if detail else ''}")

    def _say(self, line: str) -> None:
        self.world.log("COMBO", f"{self.route.combo or self.route.asked}: {line}")


def _pair(account: Account) -> Pair:
    return account.provider, account.name
