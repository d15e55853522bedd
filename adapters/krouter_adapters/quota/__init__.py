"""What is left at each provider, one file a provider."""

from __future__ import annotations

from krouter.reporter import QuotaReporter
from krouter_adapters.quota.claude import Claude
from krouter_adapters.quota.openrouter import OpenRouter

REPORTERS: tuple[QuotaReporter, ...] = (Claude(), OpenRouter())
