"""What a provider can tell of what is left, and the protocol of those who ask it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from krouter.providers import Provider
from krouter.wire import Headers


@dataclass(frozen=True, slots=True)
class Figure:
    """What is left of exactly one model, from 0 to 1, and when it is full again, in epoch
    seconds."""

    model: str
    remaining: float
    resets_at: float | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """What is left of a limit in time that many models share. `model` is a part of the names it
    counts for, empty for all."""

    name: str
    remaining: float
    resets_at: float | None = None
    model: str = ""

    def counts_for(self, model: str) -> bool:
        return self.model in model


@dataclass(frozen=True, slots=True)
class Balance:
    """Money that is left, of a budget where there is one."""

    name: str
    amount: float
    currency: str = "USD"
    of: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """All that one reply tells."""

    figures: tuple[Figure, ...] = ()
    windows: tuple[Window, ...] = ()
    balances: tuple[Balance, ...] = ()

    @property
    def items(self) -> tuple[Figure | Window | Balance, ...]:
        return (*self.figures, *self.windows, *self.balances)


class PollError(Exception):
    """A provider that did not tell. `retry_at` is when it wants to be asked again, if it says."""

    def __init__(self, message: str, retry_at: float | None = None) -> None:
        self.retry_at = retry_at
        super().__init__(message)


Get = Callable[[str, Headers], Awaitable[Any]]
"""Fetches a URL's JSON. Raises PollError."""


class QuotaReporter(Protocol):
    """Knows how providers, by canonical name, tell what is left: those that can be `polled`, and
    those that are `heard` in the headers of their replies. Never raises for what a reply holds:
    what cannot be read is left out."""

    polled: tuple[str, ...]
    heard: tuple[str, ...]

    async def poll(self, provider: Provider, secret: str, get: Get, now: float) -> Report:
        """Asks one of `polled`. Raises PollError."""

    def read_headers(self, headers: Mapping[str, str], model: str, now: float) -> Report:
        """What the headers of a reply tell, names in lower case; `model` was asked for."""


def load_reporters() -> tuple[QuotaReporter, ...]:
    """Every reporter that ships with krouter."""
    found: tuple[QuotaReporter, ...] = import_module("krouter_adapters.quota").REPORTERS
    return found
