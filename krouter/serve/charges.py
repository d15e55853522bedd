"""What an attempt counts for in a budget where its provider has not told all of its tokens.

A caller that hangs up gets no count, yet its provider has read the request and written what came.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from krouter.body import Body
from krouter.catalog import Prices
from krouter.costs import cost_of
from krouter.dialects.base import Usage
from krouter.errors import Failure
from krouter.estimate import by_characters, countable
from krouter.route import Attempt, End

_LEFT = frozenset((Failure.CALLER_GONE, End.CALLED_OFF))


def charge(attempt: Attempt, prices: Prices, prompt: Callable[[], int]) -> int | None:
    """In `PER_DOLLAR` parts of a US dollar; None where no price is known, or nothing was used.
    `prompt` estimates the tokens of the request."""
    told = attempt.usage
    if not _may_count(attempt):
        return attempt.cost
    if told is not None and not told.partial and attempt.came <= told.output:
        return attempt.cost
    if told is None or not told.input:
        told = Usage(prompt(), 0 if told is None else told.output)
    output = max(told.output, attempt.came)
    return cost_of(replace(told, output=output, partial=False), prices)


def _may_count(attempt: Attempt) -> bool:
    """Whether the provider has done something for it. An error in place of an answer is free."""
    if attempt.seen or attempt.outcome in _LEFT:
        return True
    return attempt.outcome == Failure.TIMED_OUT and attempt.first_byte is not None


def prompt_tokens(body: Body) -> int:
    """About how many tokens a request has."""
    text, fixed = countable(body)
    return max(1, fixed + by_characters(text))
