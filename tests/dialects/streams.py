"""What the tests of every dialect do with a tracker."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from krouter.dialects.base import Tracker
from krouter.sse import Splitter

JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(),
        st.text(max_size=3),
        st.sampled_from(["\ud83d", "stop", "error", "text", "429"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=6,
)


def shaped(*names: str) -> st.SearchStrategy[Any]:
    """Arbitrary JSON under the names a dialect reads."""
    keys = st.sampled_from(names)
    return st.recursive(
        JSON,
        lambda inner: st.one_of(
            st.dictionaries(keys, inner, max_size=4), st.lists(inner, max_size=3)
        ),
        max_leaves=12,
    )


def play(tracker: Tracker, raw: bytes) -> bytes:
    """What the caller receives of a provider's bytes."""
    splitter, out = Splitter(), []
    for event in [*splitter.feed(raw), *splitter.flush()]:
        if tracker.closed:
            break
        changed = tracker.feed(event)
        out.append(event.raw if changed is None else changed)
    return b"".join(out)
