"""Routes as they are when they are over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from krouter.dialects.base import Usage
from krouter.route import REASONS, Attempt, End, Route, Skip, Skipped


def an_attempt(entry: str = "a/m", seen: bool = False, **more: Any) -> Attempt:
    provider, model = entry.split("/", 1)
    outcome = End.ANSWERED if seen else "overloaded"
    given: dict[str, Any] = {"usage": Usage(10, 5), "cost": 7, "outcome": outcome, **more}
    return Attempt(entry, model, "main", "native", 1.0, provider, seen=seen, **given)


def made(id: str, *steps: Attempt | Skipped, began: float | None = None, **more: Any) -> Route:
    """A route whose last attempt that the caller saw has served."""
    at = time.time() if began is None else began
    served = [each for each in steps if isinstance(each, Attempt) and each.seen]
    given: dict[str, Any] = {
        "dialect": "chat",
        "asked": "fast",
        "stream": False,
        "combo": "fast",
        "served": served[-1].entry if served else "",
        "status": 200 if served else 529,
        "outcome": End.ANSWERED if served else "overloaded",
        "ended": at + 1,
        **more,
    }
    return Route(id, at, steps=list(steps), **given)


_tokens = st.integers(0, 2**40)
_usages = st.none() | st.builds(Usage, _tokens, _tokens, _tokens, _tokens)
_times = st.floats(0, 2e9)
_names = st.text(st.characters(codec="utf-8"), max_size=8)
_attempts = st.builds(
    Attempt,
    entry=st.sampled_from(["a/m", "a/n", "b/m", "b/x/y"]),
    model=st.sampled_from(["m", "n"]),
    account=st.sampled_from(["main", "spare"]),
    lane=st.just("native"),
    began=_times,
    provider=st.sampled_from(["", "a", "b"]),
    first_byte=st.none() | _times,
    ended=st.none() | _times,
    outcome=st.sampled_from(sorted(REASONS)),
    row=st.none() | st.integers(1, 15),
    status=st.none() | st.integers(100, 599),
    detail=_names,
    lock=st.none() | _times,
    usage=_usages,
    cost=st.none() | st.integers(0, 2**60),
    seen=st.booleans(),
    dropped=st.lists(_names, max_size=2).map(tuple),
)
_skips = st.builds(Skipped, _names, _names, st.sampled_from(sorted(Skip)), _names)


def routes(ids: Callable[[], str]) -> st.SearchStrategy[Route]:
    """Any routes, with ids of their own."""
    return st.builds(
        Route,
        id=st.builds(ids),
        began=_times,
        dialect=st.sampled_from(["chat", "messages"]),
        asked=_names,
        stream=st.booleans(),
        combo=st.sampled_from(["", "fast", "slow"]),
        steps=st.lists(st.one_of(_attempts, _skips), max_size=5),
        served=st.sampled_from(["", "a/m", "b/m"]),
        status=st.none() | st.integers(100, 599),
        outcome=st.sampled_from(sorted(REASONS)),
        ended=st.none() | _times,
    )
