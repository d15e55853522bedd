"""One account of an entry: tried, and tried again where that may help."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import Enum

from msgspec import Struct, field

from krouter.adapter import Adapter, Target
from krouter.answer import Answer
from krouter.attempt import Failed, Limits, Trial
from krouter.board import Ticket
from krouter.bounds import Bounds, TooLarge
from krouter.callers import CallerUnsigned, secrets_of
from krouter.errors import Failure, Verdict
from krouter.image_refusals import names_image_rejection
from krouter.lineup import Candidate, Leaf
from krouter.no_answer import failure
from krouter.progress import Progress
from krouter.route import Attempt, Skip
from krouter.secrets import SecretError
from krouter.sendable import keyed, secret_for, sendable
from krouter.vectors import guarded

LONGEST_WAIT = 10.0
"""A stated wait above this many seconds is not waited out on the same account."""


class Full(Enum):
    """An account is owed another try, but its place has been taken meanwhile."""

    FULL = "full"


FULL = Full.FULL
Outcome = Answer | Failed | Full | None


class _Again(Struct, eq=False):
    """What one account of an entry has been tried again for."""

    refreshed: bool = False
    learned: set[Failure] = field(default_factory=set)
    turns: int = 0
    due: bool = False
    """Another try waits for a place."""


class Tries(Struct, eq=False):
    """The attempts of one request at accounts, one account after the other."""

    progress: Progress
    bounds: Bounds
    refuser: tuple[Candidate, Failed] | None = None
    """Who refused a feature last, in case nobody after it can be asked."""
    _again: dict[object, _Again] = field(default_factory=dict)

    async def persist(self, candidate: Candidate, final: bool, taken: bool = False) -> Outcome:
        """One account, as often as the combo's `retries` and a refreshed credential allow; None
        where it could not be tried. `taken` says that its place is held already."""
        if self._again:
            self._again_of(candidate).due = False
        outcome = await self._try(candidate, final, taken)
        if not isinstance(outcome, Failed):
            return outcome
        again = self._again_of(candidate)
        while isinstance(outcome, Failed):
            failed = outcome
            self.progress.failed(failed)
            if not await self._may_help(candidate, failed, again):
                break
            if not self.progress.has_room(candidate):
                again.due = True
                return FULL
            outcome = await self._try(candidate, final)
        if failed.verdict.failure is Failure.FEATURE_REFUSED:
            self.refuser = candidate, failed
        if isinstance(outcome, Answer):
            return outcome
        return self._conclude(candidate, failed)

    def is_due(self, candidate: Candidate) -> bool:
        """Whether an account is owed another try, for which its locks do not count."""
        return self._again_of(candidate).due

    def _again_of(self, candidate: Candidate) -> _Again:
        key = candidate.leaf.key, candidate.provider.name, candidate.account.name
        return self._again.setdefault(key, _Again())

    async def _may_help(self, candidate: Candidate, failed: Failed, again: _Again) -> bool:
        """Whether the same account is to be tried again, after a wait where one is due."""
        failure = failed.verdict.failure
        if not again.refreshed and await self._refresh(candidate, failed):
            again.refreshed = True
        elif failure not in again.learned and self.learns(candidate, failed):
            again.learned.add(failure)
        elif await self._waits(candidate, failed, again.turns):
            again.turns += 1
        else:
            return False
        return True

    def learns(self, candidate: Candidate, failed: Failed) -> bool:
        """Whether the same account is to be asked at once without what it refuses, which from now
        on is left out of what it is sent."""
        provider, model, leaf = candidate.provider.name, candidate.model, candidate.leaf
        progress = self.progress
        match failed.verdict.failure:
            case Failure.IMAGE_REJECTED:
                return self._goes_blind(candidate, failed)
            case Failure.FEATURE_REFUSED if leaf.last:
                known = progress.world.board.features.refused(provider, model)
                without = sendable(progress, candidate, known.union(failed.features)).dropped
                if set(without) <= set(progress.dropped):
                    return False
                progress.world.board.features.note(provider, model, *failed.features)
                return True
        return False

    def _goes_blind(self, candidate: Candidate, failed: Failed) -> bool:
        """Whether the images are taken out at once, rather than after those who may read them. What
        it says of the model is learned from how the call without them ends; where that comes
        later, if at all, only from words that are surely the provider's own."""
        progress, target = self.progress, (candidate.provider.name, candidate.model)
        if "image" in progress.dropped:
            return False
        progress.blind[target] = failed.own_words
        if "image" in progress.ask.needs and progress.is_read_later(candidate.leaf):
            if failed.own_words:
                progress.world.board.images.note(*target, None)
            return False
        self.bounds.spare(candidate.leaf)
        return True

    def _learn_images(self, candidate: Candidate, outcome: Answer | Failed) -> None:
        """Without its images a call gets past a refusal of images, or else it was none."""
        target = candidate.provider.name, candidate.model
        images = self.progress.world.board.images
        sure = self.progress.blind.get(target)
        if sure is None or "image" not in self.progress.dropped:
            return
        if isinstance(outcome, Answer):
            images.note(*target, None)
        elif names_image_rejection(outcome.verdict.message):
            images.forget(*target)
        elif sure:
            images.note(*target, None)

    async def _waits(self, candidate: Candidate, failed: Failed, turn: int) -> bool:
        """Waits before the same account is tried again, if it is to be."""
        wait = self._pause(failed, turn) if turn < candidate.leaf.combo.retries else None
        if wait is None:
            return False
        assert self.progress.latest is not None
        self.progress.latest.wait = wait
        self.progress.say(f"{candidate.leaf.name}: again in {wait:.1f} s")
        await self.progress.world.sleep(wait)
        return True

    def _pause(self, outcome: Failed, turn: int) -> float | None:
        """Seconds before the same account is tried again; None for not at all."""
        if not outcome.verdict.retry or outcome.total_spent:
            return None
        if outcome.verdict.reset is not None:
            wait = max(0.0, outcome.verdict.reset - self.progress.world.board.now())
        else:
            wait = min(2.0**turn, LONGEST_WAIT) * (0.5 + self.progress.world.chance() / 2)
        return wait if wait <= LONGEST_WAIT and wait < self.progress.left() else None

    async def _refresh(self, candidate: Candidate, failed: Failed) -> bool:
        """Whether a refused credential that can be had anew has become another one."""
        account, secrets = candidate.account, self.progress.world.secrets
        if failed.verdict.failure is not Failure.NOT_SIGNED_IN:
            return False
        if account.key is None or account.key.startswith("env:"):
            return False
        try:
            async with asyncio.timeout_at(self.progress.deadline):
                if await secrets.reveal(account.key) == failed.secret:
                    secrets.forget(account.key)
                fresh = await secrets.reveal(account.key) != failed.secret
        except (SecretError, TimeoutError):
            return False
        if fresh:
            self.progress.say(f"{candidate.leaf.name}: the credential of {account.name} is new")
            self.progress.world.board.signed_in(account.provider, account.name)
        return fresh

    def _conclude(self, candidate: Candidate, outcome: Failed) -> Answer | Failed:
        """What a failure means for the rest; the caller's answer where it ends the walk."""
        verdict, leaf = outcome.verdict, candidate.leaf
        if outcome.total_spent:
            return failure(self.progress, outcome)
        if verdict.failure is Failure.TOO_LARGE and leaf.combo.on_too_large == "larger":
            found = TooLarge(leaf.nest, self.bounds.window(leaf), outcome)
            self.bounds.too_large.append(found)
        elif not verdict.next_entry:
            return failure(self.progress, outcome)
        elif self._returns(verdict, leaf):
            if not self._owes():
                return failure(self.progress, outcome)
            self.progress.returned = outcome
        if verdict.failure is Failure.TIMED_OUT and leaf.timeouts.try_other_accounts:
            outcome.verdict = replace(verdict, next_account=True)
        if not outcome.verdict.next_account:
            self.bounds.stopped.add(leaf.key)
        return outcome

    def _owes(self) -> bool:
        """Whether an entry whose turn came before is owed another try."""
        return bool(self.progress.stripped) or not self.bounds.spared <= self.bounds.stopped

    def _returns(self, verdict: Verdict, leaf: Leaf) -> bool:
        """Whether a refusal goes to the caller. A nested combo that returns it only ends itself:
        to the combo around it, that is the failure of one entry."""
        if verdict.failure is not Failure.REFUSED:
            return False
        for plan in reversed(leaf.nest):
            if plan.combo.on_refusal != "return":
                return False
            self.bounds.over.append(plan)
        return True

    async def _try(
        self, candidate: Candidate, final: bool, taken: bool = False
    ) -> Answer | Failed | None:
        leaf, account, board = candidate.leaf, candidate.account, self.progress.world.board
        ticket = board.begin(
            account.provider, account.name, candidate.model, self.progress.request, taken=taken
        )
        trial: Trial | None = None
        try:
            trial = await self._prepared(candidate, final, ticket)
        finally:
            if trial is None:
                board.end(ticket)
        if trial is None:
            return None
        outcome = await trial.run()
        self._learn_images(candidate, outcome)
        if isinstance(outcome, Failed):
            self._failed(candidate, outcome)
            return outcome
        return self.progress.served(leaf, outcome)

    async def _prepared(self, candidate: Candidate, final: bool, ticket: Ticket) -> Trial | None:
        """What is to be sent; None where nothing can be."""
        leaf, account, progress = candidate.leaf, candidate.account, self.progress
        try:
            secret = await secret_for(progress, candidate)
        except SecretError as error:
            unsigned = isinstance(error, CallerUnsigned)
            reason = Skip.CALLER_UNSIGNED if unsigned else Skip.NO_CREDENTIAL
            progress.skip(leaf, account.name, reason, str(error))
            if error.wait is not None:
                progress.wait_helps(progress.world.board.now() + error.wait)
            return None
        except TimeoutError:
            progress.end_time()
        if progress.left() <= 0:
            progress.skip(leaf, account.name, Skip.NO_TIME)
            return None
        if secret:
            progress.secrets.add(secret)
        if candidate.provider.headers:
            progress.secrets.update(secrets_of(candidate.provider.headers))
        return self._trial(candidate, final, ticket, secret)

    def _trial(
        self, candidate: Candidate, final: bool, ticket: Ticket, secret: str | None
    ) -> Trial:
        leaf, account, world = candidate.leaf, candidate.account, self.progress.world
        note = Attempt(
            leaf.name,
            candidate.model,
            account.name,
            candidate.lane.name,
            ticket.began,
            candidate.provider.name,
            places=leaf.places,
        )
        features = world.board.features.refused(candidate.provider.name, candidate.model)
        send = sendable(self.progress, candidate, features if leaf.last else frozenset())
        self.progress.begin(note)
        self.progress.say("trying %s (account %s, %s)", leaf.name, account.name, note.lane)
        return Trial(
            call=keyed(self.progress, send.call, note),
            target=Target(
                candidate.provider,
                candidate.model,
                secret,
                "bearer" if account.auth == "caller" else account.auth,
                send.params,
                leaf.timeouts.connect,
            ),
            lane=self._lane(candidate),
            wire=world.wire,
            board=world.board,
            route=self.progress.route,
            note=note,
            ticket=ticket,
            limits=Limits(leaf.timeouts, self._attempt_limit(leaf, final), self.progress.left()),
            last=leaf.last or final,
            rename=self.progress.rename,
            pool=world.pool,
            dropped=send.dropped,
            session=self.progress.ask.session() if candidate.snapshot else "",
            secrets=frozenset(self.progress.secrets),
            guard=leaf.combo.stream_guard,
            callers_own=account.auth == "caller",
        )

    def _lane(self, candidate: Candidate) -> Adapter:
        progress = self.progress
        combo, vectors = progress.route.combo, progress.world.pool.vectors
        return guarded(candidate.lane, progress.call, vectors, combo, candidate.leaf.name)

    def _attempt_limit(self, leaf: Leaf, final: bool) -> float | None:
        """Seconds until a reply must begin. The last attempt may take all the time there is,
        unless its entry says otherwise; how long a panel is waited for is the fusion's to say."""
        if self.progress.part is not None and self.progress.part.is_copy:
            return None
        if not leaf.own:
            return None if final or self.progress.call.stream else leaf.timeouts.attempt
        limits = [own.total for own in leaf.own]
        if not self.progress.call.stream:
            limits += [own.attempt for own in leaf.own if own.attempt != "off"]
            limits += [] if final else [leaf.timeouts.attempt]
        return min(filter(None, limits), default=None)

    def _failed(self, candidate: Candidate, outcome: Failed) -> None:
        verdict, note = outcome.verdict, self.progress.latest
        assert note is not None
        lock = f", locked {note.lock:.0f} s" if note.lock else ""
        self.progress.say(f"{candidate.leaf.name}: {note.status or '-'} {verdict.failure}{lock}")
        if verdict.lock is not None:
            ready = self.progress.world.board.now() + (note.lock or 0.0)
            self.progress.wait_helps(max(ready, verdict.reset or 0.0))
