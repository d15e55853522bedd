"""What the tokens of an attempt cost. Pure, in whole parts of a dollar so that sums are exact."""

from __future__ import annotations

from functools import lru_cache

from krouter.catalog import Prices
from krouter.dialects.base import Usage

PER_DOLLAR = 10**12


def cost_of(usage: Usage | None, prices: Prices) -> int | None:
    """In parts of `PER_DOLLAR`; None where not all tokens or prices are known.

    `usage.input` is the whole prompt: what was read from a cache, or written to one, is counted
    at its own price and no other, or like the rest of the prompt where the table has none for it.
    """
    if usage is None or usage.partial:
        return None
    fresh = max(usage.input - usage.cached - usage.cache_write, 0)
    counted = [(fresh, prices.input), (usage.output, prices.output)]
    if usage.cached:
        price = prices.cache_read
        counted.append((usage.cached, prices.input if price is None else price))
    if usage.cache_write:
        price = prices.cache_write
        counted.append((usage.cache_write, prices.input if price is None else price))
    total = 0
    for tokens, price in counted:
        if not tokens:
            continue
        if price is None:
            return None
        total += tokens * _parts(price)
    return total


@lru_cache(maxsize=4096)
def _parts(price: float) -> int:
    return round(price * PER_DOLLAR)


def dollars(parts: int) -> float:
    return parts / PER_DOLLAR
