"""Which account serves a conversation: providers keep their prompt caches by account."""

from __future__ import annotations

from collections.abc import Callable

from cachetools import TTLCache

KEEP_SECONDS = 900.0


class Sessions:
    """Conversation to account, 15 minutes from its last answer. `now` gives epoch seconds."""

    def __init__(self, now: Callable[[], float], size: int = 10_000) -> None:
        self._bound: TTLCache[tuple[str, str], str] = TTLCache(size, KEEP_SECONDS, timer=now)

    def bind(self, session: str, provider: str, account: str) -> None:
        """An account has answered."""
        self._bound[session, provider] = account

    def forget(self, provider: str, account: str) -> None:
        """Its conversations are free to go elsewhere."""
        for key in [key for key in self._bound if key[1] == provider]:
            if self._bound.get(key) == account:
                del self._bound[key]

    def account(self, session: str, provider: str) -> str | None:
        """The account that answered last."""
        found: str | None = self._bound.get((session, provider))
        return found
