"""The loop: entries in their order, the accounts of each, until one gives an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from krouter.accounts import Account
from krouter.answer import Answer
from krouter.attempt import Failed
from krouter.board import Block, Blocked, LockState, Pair
from krouter.bounds import Bounds
from krouter.dialects.embeddings import EMBEDDINGS
from krouter.errors import Failure
from krouter.families import related
from krouter.lineup import Candidate, Leaf, Obstacle, Site, candidates, leaves
from krouter.no_answer import failure, give_up
from krouter.plan import Plan
from krouter.progress import Progress
from krouter.route import Skip
from krouter.tries import FULL, Outcome, Tries

Fuse = Callable[[Progress, Site], Awaitable[Answer | Failed]]

# What an entry says of its own model is not said of one that stands in for it.
_ANOTHER: Mapping[str, Any] = {"reads": None, "context_window": None}


class Walk:
    """The passes over the entries of one request. `fuse` answers a nested fusion."""

    def __init__(self, progress: Progress, fuse: Fuse) -> None:
        self.progress = progress
        self._fuse = fuse
        self._bounds = Bounds(progress.world)
        self._tries = Tries(progress, self._bounds)
        self._locked: list[tuple[Candidate, Blocked]] = []
        self._full: list[Candidate] = []
        """Accounts at their limit."""
        self._kin: set[object] = set()
        """Entries whose family has had its turn, and models that stand in for one."""
        self._around = 0
        """How many of the plans that an entry stands in are known from before."""
        self._inner: list[Plan] = []
        """Nested combos that have been reached."""
        self._last = True
        """Whether nothing follows the walk in another."""

    async def run(self, site: Site) -> Answer:
        """The first answer, or the last entry's error."""
        self._around, self._last = len(site.nest), site.last
        entries = leaves(site, self.progress.world, self.progress.ask, flat=self._embeds())
        return (
            await self._first_pass(entries)
            or await self._second_pass()
            or await self._queue()
            or await self._without_features()
            or give_up(self.progress, self._locked, self._full)
        )

    async def _first_pass(self, entries: Iterator[Leaf]) -> Answer | None:
        for leaf in entries:
            self._note_nest(leaf)
            if self._bounds.too_large and (answer := self._too_large_inside(leaf)):
                return answer
            if self._is_due(leaf) and (answer := await self._without_images()):
                return answer
            if answer := await self._entry(leaf):
                return answer
        self.progress.passed = True
        return await self._without_images()

    def _too_large_inside(self, leaf: Leaf) -> Answer | None:
        """What was too large for a nested combo, and for nobody in it larger, is too large for the
        combo around it: the caller's answer unless that one tries larger windows too."""
        bounds, last = self._bounds, self.progress.last
        while left := [found for found in bounds.left(leaf) if found.failed is last]:
            found = left[0]
            if self.progress.stripped or self._is_waited_for(found.nest[-1]):
                return None
            *outer, _ = found.nest
            if outer[-1].combo.on_too_large != "larger":
                return failure(self.progress, found.failed)
            bounds.too_large.remove(found)
            bounds.too_large.append(replace(found, nest=tuple(outer)))
        return None

    def _is_waited_for(self, plan: Plan) -> bool:
        """Whether an account in the combo may still answer later."""
        soft = [candidate for candidate, blocked in self._locked if blocked.soft]
        waiting = [one for one in (*self._full, *soft) if not self._bounds.is_out(one.leaf)]
        return any(plan is each for one in waiting for each in one.leaf.nest)

    def _is_due(self, leaf: Leaf) -> bool:
        """Whether no entry that may read the images is left, from `leaf` on."""
        waiting = bool(self.progress.stripped) and self.progress.is_blind(leaf.entry)
        return waiting and not self.progress.is_read_later(leaf)

    def _note_nest(self, leaf: Leaf) -> None:
        """The order of a nested combo is known once it is reached."""
        inside = leaf.nest if leaf.fusion is None else leaf.fusion.nest
        for level, plan in enumerate(inside[self._around :], self._around):
            if any(plan is known for known in self._inner):
                continue
            self._inner.append(plan)
            self.progress.route.note_plan(plan, leaf.places[:level])
            for line in plan.switches:
                self.progress.say(f"{plan.combo.name}: {line}")

    async def _entry(self, leaf: Leaf) -> Answer | None:
        """One entry, and where its model is gone, those that stand in for it."""
        if self._passes_over(leaf):
            return None
        if leaf.fusion is not None:
            return await self._panel(leaf, leaf.fusion)
        return await self._model(leaf, self._candidates(leaf))

    async def _panel(self, leaf: Leaf, site: Site) -> Answer | None:
        """A nested fusion: to the combo around it, whatever it fails with is the failure of one
        entry."""
        outcome = await self._fuse(self.progress, site)
        if isinstance(outcome, Answer):
            return outcome
        if outcome.is_sent or self.progress.held is None:
            self.progress.failed(outcome)
        self.progress.say(f"{leaf.name}: {outcome.verdict.status} {outcome.ended}")
        return None

    async def _model(self, leaf: Leaf, accounts: list[Candidate]) -> Answer | None:
        outcome = await self._accounts(leaf, accounts)
        if isinstance(outcome, Answer):
            return outcome
        return await self._family(leaf) if outcome else None

    async def _family(self, leaf: Leaf) -> Answer | None:
        """What is gone has one family: nobody stands in for one that stands in itself."""
        if leaf.key in self._kin:
            return None
        self._kin.add(leaf.key)
        for stand_in in self._stand_ins(leaf):
            if self._passes_over(stand_in):
                continue
            self._kin.add(stand_in.key)
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
            outcome = await self._tries.persist(candidate, final)
            if isinstance(outcome, Answer):
                return outcome
            if outcome is FULL:
                self._note_full(candidate)
            elif outcome is not None and not outcome.verdict.next_account:
                why = outcome.verdict.failure
                if why is Failure.IMAGE_REJECTED and "image" not in self.progress.dropped:
                    self.progress.stripped.append(candidates[place - 1 :])
                return why is Failure.MODEL_GONE
        return gone

    def _is_gone(self, candidate: Candidate) -> bool:
        """Whether what locks an account is that its provider has not the model."""
        blocked = self.progress.blocked(candidate)
        return blocked is not None and blocked.lock.failure is Failure.MODEL_GONE

    def _stand_ins(self, leaf: Leaf) -> Iterator[Leaf]:
        """Models of the same family at the same provider. Who asks for one model gets no other,
        and no two models give vectors that can be compared."""
        alias, _, model = leaf.name.partition("/")
        provider = self.progress.world.registry.find(alias)
        if not self.progress.route.combo or provider is None or self._embeds():
            return
        attempts = self.progress.route.attempts
        tried = [each.model for each in attempts if each.provider == provider.name]
        names = related(provider, model, self.progress.world.catalog, tried)
        for place, name in enumerate(names, 1):
            entry = leaf.entry.model_copy(update={**_ANOTHER, "model": f"{alias}/{name}"})
            last = leaf.last and place == len(names)
            yield structs.replace(leaf, entry=entry, reason=f"stands in for {leaf.name}", last=last)

    def _embeds(self) -> bool:
        return self.progress.call.dialect is EMBEDDINGS

    async def _without_images(self) -> Answer | None:
        """Those that take no images, asked once more without them."""
        while self.progress.stripped:
            accounts = self.progress.stripped.pop(0)
            leaf = accounts[0].leaf
            self._bounds.spare(leaf)
            self.progress.say(f"{leaf.name}: again, without the images")
            if answer := await self._model(leaf, accounts):
                return answer
        return None

    async def _second_pass(self) -> Answer | None:
        """Nothing is left: locks that only say "busy" or "silent" are ignored, and those of an
        account that has answered another call of the same fusion."""
        soft = [
            candidate
            for candidate, blocked in self._locked
            if blocked.soft or self.progress.has_answered(candidate)
        ]
        for place, candidate in enumerate(soft, 1):
            if self._bounds.is_out(candidate.leaf):
                continue
            if not self.progress.has_room(candidate):
                self._full.append(candidate)
                continue
            self.progress.say(f"{candidate.leaf.name} is locked, but nothing else is left")
            final = self._last and place == len(soft) and not self._full
            outcome = await self._tries.persist(candidate, final)
            if answer := await self._answer_or_family(candidate, outcome):
                return answer
        return None

    async def _answer_or_family(self, candidate: Candidate, outcome: Outcome) -> Answer | None:
        if outcome is FULL:
            self._note_full(candidate)
        if isinstance(outcome, Failed) and outcome.verdict.failure is Failure.MODEL_GONE:
            return await self._family(candidate.leaf)
        return outcome if isinstance(outcome, Answer) else None

    async def _queue(self) -> Answer | None:
        """Nothing is left but accounts at their limit: wait in line for the first to be free."""
        while waiting := [one for one in self._full if not self._bounds.is_out(one.leaf)]:
            self._full = waiting
            candidate = await self._turn()
            if candidate is None:
                return None
            outcome: Outcome = None
            if self._may_go(candidate):
                final = self._last and not self._full
                outcome = await self._tries.persist(candidate, final, taken=True)
            if answer := await self._answer_or_family(candidate, outcome):
                return answer
        return None

    async def _turn(self) -> Candidate | None:
        """Waits for a place, which is then taken; None when the request's time is over."""
        limits = {_pair(c.account): c.account.max_concurrent for c in self._full}
        try:
            async with asyncio.timeout_at(self.progress.deadline):
                pair = await self.progress.world.board.wait_for_room(limits)
        except TimeoutError:
            self.progress.end_time()
            self.progress.wait_helps(self.progress.world.board.now())
            return None
        candidate = next(c for c in self._full if _pair(c.account) == pair)
        self._full.remove(candidate)
        return candidate

    def _may_go(self, candidate: Candidate) -> bool:
        """Whether an account is still open after the wait; its place is given back if not."""
        blocked = self.progress.blocked(candidate)
        if blocked is None or blocked.soft or self._tries.is_due(candidate):
            return True
        self._note_locked(candidate, blocked)
        self.progress.world.board.leave(_pair(candidate.account))
        return False

    def _passes_over(self, leaf: Leaf) -> bool:
        obstacle, key = leaf.obstacle, leaf.key
        if key in self._bounds.tried:
            obstacle = Obstacle(Skip.ALREADY_TRIED)
        elif self._bounds.has_ended(leaf):
            obstacle = Obstacle(Skip.COMBO_ENDED)
        elif self._bounds.is_too_small(leaf):
            obstacle = Obstacle(Skip.SMALLER_WINDOW)
        if obstacle is not None:
            self.progress.skip(leaf, "", *obstacle)
            return True
        self._bounds.tried.add(key)
        return False

    def _candidates(self, leaf: Leaf) -> list[Candidate]:
        found = candidates(leaf, self.progress.world, self.progress.ask)
        if isinstance(found, Obstacle):
            self.progress.skip(leaf, "", *found)
            return []
        if given := found[0].snapshot:
            ranked = [each.place for each in found if each.place]
            self.progress.route.note_ranking(leaf.name, given, ranked, leaf.places)
        return found

    def _is_free(self, candidate: Candidate) -> bool:
        blocked = self.progress.blocked(candidate) or self._used_up(candidate)
        if blocked is not None:
            self._note_locked(candidate, blocked)
            return False
        if not self.progress.has_room(candidate):
            self._note_full(candidate)
            return False
        return True

    def _note_full(self, candidate: Candidate) -> None:
        self._full.append(candidate)
        self.progress.skip(candidate.leaf, candidate.account.name, Skip.AT_LIMIT)

    def _used_up(self, candidate: Candidate) -> Blocked | None:
        """The provider itself says that nothing is left until a reset: others go first."""
        account, quota = candidate.account, self.progress.world.pool.quota
        until = quota.full_at(account.provider, account.name, candidate.model)
        if until is None:
            return None
        lock = LockState(Failure.QUOTA_SPENT, 429, "its limit is used up", until=until)
        lock.advisory = True
        return Blocked(Block.LOCKED, lock, until)

    def _note_locked(self, candidate: Candidate, blocked: Blocked) -> None:
        self._locked.append((candidate, blocked))
        self.progress.wait_helps(blocked.until)
        reason = Skip.LOCKED if blocked.why is Block.LOCKED else Skip.PROBING
        leaf, account = candidate.leaf, candidate.account
        self.progress.skip(leaf, account.name, reason, blocked.lock.failure)

    async def _without_features(self) -> Answer | None:
        """The last that could be asked refused a feature: as the last it is asked without."""
        failed, refuser = self.progress.last, self._tries.refuser
        if failed is None or not (failed.as_last or (refuser and failed is refuser[1])):
            return None
        if not self._last:
            self.progress.as_last = self._as_last
            return None
        if failed.as_last is not None:
            return await self._inside(failed.as_last)
        return await self._asked_again(refuser[0], failed) if refuser else None

    async def _as_last(self) -> Answer:
        """What is left to be done once nothing that follows the walk can be asked."""
        self._last, self.progress.as_last = True, None
        answer = await self._without_features()
        return answer or give_up(self.progress, self._locked, self._full)

    async def _inside(self, as_last: Callable[[], Awaitable[Answer | Failed]]) -> Answer | None:
        """It refused it inside a nested fusion."""
        outcome = await as_last()
        if isinstance(outcome, Answer):
            return outcome
        self.progress.failed(outcome)
        return None

    async def _asked_again(self, candidate: Candidate, failed: Failed) -> Answer | None:
        self._tries.refuser = None
        last_leaf = structs.replace(candidate.leaf, last=True)
        as_last = structs.replace(candidate, leaf=last_leaf)
        if not self._tries.learns(as_last, failed):
            return None
        self._bounds.spare(as_last.leaf)
        self._full.append(as_last)
        return await self._queue()


def _pair(account: Account) -> Pair:
    return account.provider, account.name
