"""OpenRouter: the key's own limit, else the credits of its account.

https://openrouter.ai/docs/api/api-reference/api-keys/get-current-key
https://openrouter.ai/docs/api/api-reference/credits/get-credits
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from krouter.providers import Provider
from krouter.reporter import Balance, Get, PollError, Report
from krouter_adapters.quota.reading import as_dict, as_number


class OpenRouter:
    polled: tuple[str, ...] = ("openrouter",)
    heard: tuple[str, ...] = ()

    async def poll(self, provider: Provider, secret: str, get: Get, now: float) -> Report:
        parts = urlsplit(next(iter(provider.base_urls.values())))
        api = f"{parts.scheme}://{parts.netloc}/api/v1"
        headers = [("authorization", f"Bearer {secret}")]
        limited = parse_key(await get(f"{api}/key", headers))
        if limited.balances:
            return limited
        try:
            return parse_credits(await get(f"{api}/credits", headers))
        except PollError as error:
            message = f"the key has no limit of its own, and its credits: {error}"
            raise PollError(message, error.retry_at) from None

    def read_headers(self, headers: Mapping[str, str], model: str, now: float) -> Report:
        return Report()


def parse_key(body: Any) -> Report:
    """`limit_remaining` of `limit`, both null for a key without one."""
    data = as_dict(as_dict(body).get("data"))
    left, limit = as_number(data.get("limit_remaining")), as_number(data.get("limit"))
    return Report() if left is None else Report(balances=(Balance("key limit", left, of=limit),))


def parse_credits(body: Any) -> Report:
    """`total_credits` were bought and `total_usage` is spent: what share that is tells nothing."""
    data = as_dict(as_dict(body).get("data"))
    bought, spent = as_number(data.get("total_credits")), as_number(data.get("total_usage"))
    if bought is None or spent is None:
        return Report()
    return Report(balances=(Balance("credits", bought - spent),))
