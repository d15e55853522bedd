"""What is remembered from call to call, within a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_LEAST = 1 << 10
"""What a thing counts for at the least."""


class Kept(Generic[K, V]):
    """Those used last, as long as their sizes are no more than `most` in sum; requests are built in
    more than one thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: LRUCache[K, tuple[V, int]] = LRUCache(most, lambda kept: kept[1])
        self._guard = threading.Lock()

    def get(self, key: K, size: int, make: Callable[[], V]) -> V:
        """What `make` has made for an equal key. One that is large is made each time."""
        with self._guard:
            kept = self._kept.get(key)
        if kept is not None:
            return kept[0]
        made = make()
        if size < self._most // 4:
            with self._guard:
                self._kept[key] = made, size + _LEAST
        return made
