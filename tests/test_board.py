"""Locks, back-off, probes and places on a board of its own, with an injected clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from krouter.board import BACKOFF_MOST, PROBE_SECONDS, Block, Board, Ticket
from krouter.errors import Failure, Lock, Scope, Verdict
from tests.harness import Clock

CALL = ("glm", "a", "glm-5.1")
BUSY = Verdict(
    Failure.OVERLOADED, 9, True, True, Lock(Scope.ACCOUNT_MODEL), 529, "busy", None, True
)
BROKEN = Verdict(
    Failure.SERVER_ERROR,
    10,
    True,
    True,
    Lock(Scope.ACCOUNT_MODEL, from_second=True),
    502,
    "broken",
    None,
    True,
)
BAD = Verdict(Failure.BAD_REQUEST, 14, False, True, None, 400, "bad", None, False)


def stated(seconds: float, row: int = 8, scope: Scope = Scope.ACCOUNT_MODEL) -> Verdict:
    kind = {5: Failure.ACCOUNT_BARRED, 6: Failure.QUOTA_SPENT, 7: Failure.NOT_SIGNED_IN}
    failure = kind.get(row, Failure.RATE_LIMITED)
    return Verdict(failure, row, True, True, Lock(scope, seconds), 429, "later", None, True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    return Board(clock)


def fails(board: Board, verdict: Verdict, call: tuple[str, str, str] = CALL) -> float | None:
    """One whole call that fails."""
    ticket = board.begin(*call)
    seconds = board.fail(ticket, verdict)
    board.end(ticket)
    return seconds


def succeeds(board: Board) -> None:
    ticket = board.begin(*CALL)
    board.first_byte(ticket)
    board.succeed(ticket)
    board.end(ticket)


def why(board: Board, call: tuple[str, str, str] = CALL) -> Block | None:
    blocked = board.blocked(*call)
    return blocked.why if blocked else None


def test_back_off_doubles_up_to_five_minutes(board: Board, clock: Clock) -> None:
    lengths = []
    for _ in range(10):
        lengths.append(fails(board, BUSY))
        clock.forward(BACKOFF_MOST)
    assert lengths == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_a_success_clears_lock_and_level(board: Board, clock: Clock) -> None:
    fails(board, BUSY)
    clock.forward(3)
    fails(board, BUSY)
    clock.forward(5)
    succeeds(board)
    assert why(board) is None
    assert fails(board, BUSY) == 2


def test_a_server_error_locks_from_the_second_in_a_row(board: Board, clock: Clock) -> None:
    assert fails(board, BROKEN) is None
    assert why(board) is None
    assert fails(board, BROKEN) == 2
    clock.forward(2)
    assert fails(board, BROKEN) == 4


def test_a_success_between_server_errors_breaks_the_row(board: Board) -> None:
    for _ in range(5):
        assert fails(board, BROKEN) is None
        succeeds(board)


def test_a_failure_that_asks_for_no_lock_changes_nothing(board: Board) -> None:
    assert fails(board, BAD) is None
    assert list(board.locks()) == []


@pytest.mark.parametrize(
    ("scope", "closed", "open_"),
    [
        (Scope.ACCOUNT, ("glm", "a", "other"), ("glm", "b", "glm-5.1")),
        (Scope.ACCOUNT_MODEL, CALL, ("glm", "a", "other")),
        (Scope.MODEL, ("glm", "b", "glm-5.1"), ("glm", "a", "other")),
    ],
)
def test_what_a_lock_closes(
    board: Board, scope: Scope, closed: tuple[str, str, str], open_: tuple[str, str, str]
) -> None:
    fails(board, stated(60, scope=scope))
    assert why(board, closed) is Block.LOCKED
    assert why(board, open_) is None


def test_a_stated_reset_locks_exactly_until_then(board: Board, clock: Clock) -> None:
    assert fails(board, stated(37)) == 37
    clock.forward(36.9)
    assert why(board) is Block.LOCKED
    clock.forward(0.1)
    assert why(board) is None


def test_a_stated_reset_replaces_a_longer_back_off(board: Board, clock: Clock) -> None:
    for _ in range(4):
        fails(board, BUSY)
        clock.forward(16)
    fails(board, BUSY)
    assert fails(board, stated(5)) == 5
    clock.forward(5)
    assert why(board) is None


def test_a_stated_reset_is_not_cut_short_by_a_back_off(board: Board) -> None:
    fails(board, stated(500))
    assert fails(board, BUSY) == 500
    blocked = board.blocked(*CALL)
    assert blocked is not None
    assert blocked.lock.failure is Failure.RATE_LIMITED
    assert not blocked.soft


def test_of_two_locks_on_an_account_the_later_end_holds_with_its_reason(board: Board) -> None:
    fails(board, stated(3600, 6, Scope.ACCOUNT))
    assert fails(board, stated(120, 7, Scope.ACCOUNT)) == 3600
    blocked = board.blocked(*CALL)
    assert blocked is not None
    assert blocked.lock.failure is Failure.QUOTA_SPENT


def test_a_lock_that_can_be_ignored_does_not_hide_one_that_cannot(board: Board) -> None:
    fails(board, stated(60, 6, Scope.ACCOUNT))
    for _ in range(8):
        lock = fails(board, BUSY)
        assert lock is not None
        board.now.forward(lock)  # type: ignore[attr-defined]
    fails(board, stated(60, 6, Scope.ACCOUNT))
    fails(board, BUSY)
    blocked = board.blocked(*CALL)
    assert blocked is not None
    assert (blocked.soft, blocked.lock.failure) == (False, Failure.QUOTA_SPENT)
    assert blocked.until == board.now() + 300


def test_a_replaced_credential_opens_the_account(board: Board) -> None:
    fails(board, stated(120, 7, Scope.ACCOUNT))
    board.signed_in("glm", "a")
    assert why(board) is None
    fails(board, stated(3600, 6, Scope.ACCOUNT))
    board.signed_in("glm", "a")
    assert why(board) is Block.LOCKED


def test_one_request_probes_until_its_first_byte(board: Board, clock: Clock) -> None:
    fails(board, BUSY)
    clock.forward(2)
    assert why(board) is None
    probe = board.begin(*CALL)
    assert why(board) is Block.PROBING
    board.first_byte(probe)
    assert why(board) is None


def test_others_follow_a_silent_probe_after_ten_seconds(board: Board, clock: Clock) -> None:
    fails(board, BUSY)
    clock.forward(2)
    board.begin(*CALL)
    clock.forward(PROBE_SECONDS - 0.01)
    assert why(board) is Block.PROBING
    clock.forward(0.01)
    assert why(board) is None


def test_a_probe_that_ends_without_a_word_lets_the_next_one_probe(
    board: Board, clock: Clock
) -> None:
    fails(board, BUSY)
    clock.forward(2)
    board.end(board.begin(*CALL))
    assert why(board) is None
    board.begin(*CALL)
    assert why(board) is Block.PROBING


def test_the_end_of_an_old_probe_does_not_end_a_newer_one(board: Board, clock: Clock) -> None:
    fails(board, BUSY)
    clock.forward(2)
    old = board.begin(*CALL)
    clock.forward(PROBE_SECONDS)
    fails(board, BUSY)
    clock.forward(4)
    board.begin(*CALL)
    board.first_byte(old)
    board.end(old)
    assert why(board) is Block.PROBING


def test_an_old_probe_does_not_keep_a_new_lock_from_being_probed(
    board: Board, clock: Clock
) -> None:
    fails(board, BUSY)
    clock.forward(2)
    board.begin(*CALL)
    clock.forward(PROBE_SECONDS)
    fails(board, BUSY)
    clock.forward(4)
    assert why(board) is None
    board.begin(*CALL)
    assert why(board) is Block.PROBING


def test_failures_under_way_together_raise_the_level_once(board: Board, clock: Clock) -> None:
    tickets = [board.begin(*CALL) for _ in range(8)]
    assert [board.fail(ticket, BUSY) for ticket in tickets[:5]] == [2] * 5
    clock.forward(2)
    assert [board.fail(ticket, BUSY) for ticket in tickets[5:]] == [None] * 3
    assert fails(board, BUSY) == 4


def test_only_a_call_that_began_after_the_failure_clears_it(board: Board) -> None:
    early = board.begin(*CALL)
    fails(board, BUSY)
    board.succeed(early)
    assert why(board) is Block.LOCKED
    succeeds(board)
    assert why(board) is None


def test_a_success_begun_before_a_server_error_does_not_forget_it(board: Board) -> None:
    early = board.begin(*CALL)
    fails(board, BROKEN)
    board.succeed(early)
    assert fails(board, BROKEN) == 2


def test_the_board_is_bounded(clock: Clock) -> None:
    board = Board(clock, size=10)
    for number in range(1000):
        fails(board, BUSY, ("glm", "a", f"model-{number}"))
    assert len(list(board.locks())) == 10
    assert why(board, ("glm", "a", "model-999")) is Block.LOCKED
    assert board.in_flight == 0


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 5))


ROOM = ("glm", "a")
LIMITS = {ROOM: 1}


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_places_go_to_those_who_wait_in_order(board: Board) -> None:
    async def work() -> None:
        served: list[int] = []

        async def caller(number: int) -> None:
            assert await board.wait_for_room(LIMITS) == ROOM
            ticket = board.begin(*CALL, taken=True)
            served.append(number)
            assert board.in_flight == 1
            await settle()
            board.end(ticket)

        first = board.begin(*CALL)
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(caller(number))
            await settle()
            assert not served
            board.end(first)
            assert not board.has_room(*ROOM, 1)  # a newcomer does not overtake
        assert served == [0, 1, 2, 3, 4]
        assert board.in_flight == 0

    run(work())


@pytest.mark.parametrize("granted", [False, True])
def test_a_cancelled_waiter_leaves_the_line(board: Board, granted: bool) -> None:
    async def work() -> None:
        first = board.begin(*CALL)
        gone = asyncio.create_task(board.wait_for_room(LIMITS))
        stays = asyncio.create_task(board.wait_for_room(LIMITS))
        await settle()
        if granted:
            board.end(first)
        gone.cancel()
        await settle()
        if not granted:
            board.end(first)
        assert gone.cancelled() or gone.done()
        assert await stays == ROOM
        assert board.in_flight == 1
        board.leave(ROOM)
        assert board.in_flight == 0

    run(work())


def test_waiting_for_several_accounts_takes_the_first_that_is_free(board: Board) -> None:
    async def work() -> None:
        other = ("ds", "b")
        board.begin(*CALL)
        busy = board.begin(*other, "m")
        waiter = asyncio.create_task(board.wait_for_room({ROOM: 1, other: 1}))
        await settle()
        board.end(busy)
        assert await waiter == other
        assert board.in_flight == 2

    run(work())


def test_a_place_that_is_free_is_taken_at_once(board: Board) -> None:
    async def work() -> None:
        assert await board.wait_for_room(LIMITS) == ROOM
        assert not board.has_room(*ROOM, 1)

    run(work())


MODELS = st.sampled_from(["m1", "m2"])
VERDICTS = st.sampled_from([BUSY, BROKEN, BAD, stated(30), stated(3600, 6, Scope.ACCOUNT)])


class BoardMachine(RuleBasedStateMachine):
    """Calls begin, get a first byte, fail, succeed and end in any order while time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.board = Board(self.clock)
        self.open: set[Ticket] = set()
        self.probes: dict[str, tuple[Ticket, float]] = {}
        self.levels: dict[object, int] = {}

    calls: Bundle[Ticket | None] = Bundle("calls")

    @rule(target=calls, model=MODELS)
    def begin(self, model: str) -> Ticket | None:
        """As the walk does: only where nothing is in the way."""
        if self.board.blocked("p", "a", model):
            return None
        after_lock = self._is_first_after_lock(model)
        ticket = self.board.begin("p", "a", model)
        self.open.add(ticket)
        if after_lock:
            assert self.board.blocked("p", "a", model)
            if model in self.probes:
                probe, began = self.probes[model]
                assert probe not in self.open or self.clock.now - began >= PROBE_SECONDS
            self.probes[model] = ticket, self.clock.now
        return ticket

    def _is_first_after_lock(self, model: str) -> bool:
        known = self.board._known("p", "a", model)
        return any(lock.may_probe(self.clock.now) for lock in known)

    @rule(ticket=calls)
    def first_byte(self, ticket: Ticket | None) -> None:
        if ticket in self.open and ticket:
            self.board.first_byte(ticket)
            self._forget(ticket)

    @rule(ticket=consumes(calls), verdict=VERDICTS)
    def fail(self, ticket: Ticket | None, verdict: Verdict) -> None:
        if ticket is None:
            return
        before = self._levels()
        seconds = self.board.fail(ticket, verdict)
        grown = [key for key, level in self._levels().items() if level != before.get(key, 0)]
        assert len(grown) <= 1
        if grown:
            assert verdict in (BUSY, BROKEN)
            assert seconds
            self.levels = self._levels()
        if verdict in (BUSY, BROKEN):
            blocked = self.board.blocked("p", "a", ticket.model)
            assert seconds is None or (blocked and blocked.until >= self.clock.now + seconds)
        self._over(ticket)

    @rule(ticket=consumes(calls))
    def succeed(self, ticket: Ticket | None) -> None:
        if ticket is not None:
            self.board.succeed(ticket)
            self.levels = self._levels()
            self._over(ticket)

    @rule(ticket=consumes(calls))
    def leave(self, ticket: Ticket | None) -> None:
        if ticket is not None:
            self._over(ticket)

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 11.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.clock.forward(seconds)

    def _over(self, ticket: Ticket) -> None:
        self.board.end(ticket)
        self.open.discard(ticket)
        self._forget(ticket)

    def _forget(self, ticket: Ticket) -> None:
        if self.probes.get(ticket.model, (None,))[0] is ticket:
            del self.probes[ticket.model]

    def _levels(self) -> dict[object, int]:
        return {key: lock.level for key, lock in self.board._locks.items()}

    @invariant()
    def levels_grow_only_with_failures(self) -> None:
        assert self._levels().keys() >= {key for key, level in self.levels.items() if level}
        for key, level in self._levels().items():
            assert level == self.levels.get(key, 0)

    @invariant()
    def every_call_is_counted(self) -> None:
        assert self.board.in_flight == len(self.open)

    def teardown(self) -> None:
        for ticket in list(self.open):
            self._over(ticket)
        assert self.board.in_flight == 0


TestBoard = BoardMachine.TestCase
TestBoard.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
