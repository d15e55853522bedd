"""What the caller is told when nothing has answered."""

from __future__ import annotations

import math
from collections.abc import Sequence

from krouter.answer import NO_RETRY, Answer, error_answer
from krouter.attempt import Failed
from krouter.board import Blocked
from krouter.callers import how_to_sign_in
from krouter.errors import Failure
from krouter.lineup import Candidate
from krouter.progress import Progress
from krouter.route import Skip, Skipped
from krouter.wire import Headers

LONGEST_RETRY_AFTER = 60
"""Claude Code gives up at once on a longer one, and other clients sleep through it."""

_LIMITS = (Failure.QUOTA_SPENT, Failure.RATE_LIMITED)
_BODY_HEADERS = frozenset(("content-type", "content-length"))


def give_up(
    progress: Progress, locked: Sequence[tuple[Candidate, Blocked]], full: Sequence[Candidate]
) -> Answer:
    """An empty reply if one came last, else the last error; else why nothing was sent."""
    if progress.returned is not None:
        return failure(progress, progress.returned)
    if progress.held is not None:
        return _handed_over(progress, progress.held)
    if progress.last is not None:
        return failure(progress, progress.last)
    if progress.left() <= 0:
        message = f"The request's total time is over{_in_line(full)}."
        return error_for(progress, 504, message)
    if locked:
        return _all_locked(progress, locked)
    return _nothing_to_send(progress)


def _handed_over(progress: Progress, held: Answer) -> Answer:
    """An empty reply, as what came of the request."""
    if progress.last is not None and progress.last.hand_over is not None:
        return progress.last.hand_over()
    assert progress.latest is not None
    progress.route.serve(progress.latest)
    progress.route.name_dropped(progress.latest)
    return progress.stamped(held)


def failure(progress: Progress, failed: Failed) -> Answer:
    """The error of one attempt as the caller is told it: what came of the request."""
    verdict = failed.verdict
    if failed.fused is not None:
        progress.route.outcome, progress.route.status = failed.ended, failed.fused.status
        return failed.fused
    progress.route.outcome = verdict.failure
    return error_for(progress, verdict.status, verdict.message, failed)


def _in_line(full: Sequence[Candidate]) -> str:
    """Whom the time was spent waiting for."""
    if not full:
        return ""
    whose = dict.fromkeys(f"{c.leaf.name} (account {c.account.name})" for c in full)
    return f": it waited for a place at {' or '.join(whose)}, which is {Skip.AT_LIMIT}"


def _all_locked(progress: Progress, locked: Sequence[tuple[Candidate, Blocked]]) -> Answer:
    candidate, blocked = min(locked, key=lambda pair: pair[1].until)
    lock = blocked.lock
    left = max(0.0, blocked.until - progress.world.board.now())
    status = 429 if lock.failure in _LIMITS else lock.status
    message = (
        f"Every account that could answer is locked; first back is {candidate.leaf.name},"
        f" account {candidate.account.name}, in {left:.0f} s ({lock.failure})."
    )
    return error_for(progress, status, message)


def _nothing_to_send(progress: Progress) -> Answer:
    skipped = [step for step in progress.route.steps if isinstance(step, Skipped)]
    unbuilt = {
        Skip.NEEDS_TRANSLATION,
        Skip.UNSUPPORTED,
        Skip.NO_EMBEDDINGS,
    }
    counted = [step for step in skipped if step.reason is not Skip.ALREADY_TRIED]
    if counted and all(step.reason is Skip.CALLER_UNSIGNED for step in counted):
        return error_for(progress, 401, _unsigned(progress, counted))
    status = 501 if all(step.reason in unbuilt for step in counted) else 503
    reasons = (
        f"{step.entry}: {step.reason}{f' ({step.detail})' if step.detail else ''}"
        for step in skipped
    )
    return error_for(progress, status, "No entry could be sent to. " + "; ".join(reasons) + ".")


def _unsigned(progress: Progress, skipped: list[Skipped]) -> str:
    names = " and ".join(dict.fromkeys(step.entry for step in skipped))
    how = how_to_sign_in(progress.call.headers, progress.world.is_own_key)
    return f"{names} is answered with the caller's own credential, and none was sent. {how}"


def error_for(
    progress: Progress, status: int, message: str, failed: Failed | None = None
) -> Answer:
    """An error as the caller of this request gets it."""
    notes = {"krouter_route": progress.route.id}
    if progress.part is None and (trail := progress.route.trail()):
        notes["krouter_tried"] = trail
    headers = [
        (n, v) for n, v in (failed.headers if failed else None) or [] if n not in _BODY_HEADERS
    ]
    theirs = failed.told if failed else None
    answer = error_answer(
        progress.call.dialect, status, message, told=theirs, notes=notes, headers=headers
    )
    answer.headers += _waiting(progress, status, failed is None)
    why = f", {failed.verdict.failure}" if failed else f": {message}"
    progress.say(f"no answer: {status}{why}")
    return progress.stamped(answer)


def _waiting(progress: Progress, status: int, is_own: bool) -> Headers:
    """When to come back. Clients die without it, sleep for hours on a large one, or loop."""
    wait = progress.ready_at - progress.world.board.now()
    if wait <= LONGEST_RETRY_AFTER:
        return [("retry-after", str(max(1, math.ceil(wait))))]
    if wait < math.inf or status == 429 or status >= 500 or is_own:
        return [NO_RETRY]
    return []
