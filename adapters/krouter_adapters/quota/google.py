"""Google's code assistants: Antigravity and Gemini CLI tell what is left of each model.

In their JSON a value of 0 is left out, so a quota without `remainingFraction` is spent and waits
for its reset.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from krouter.reporter import Figure, Report
from krouter.resets import moment
from krouter_adapters.quota.reading import as_dict, as_dicts, as_number, share


def parse_antigravity(body: Any, now: float) -> Report:
    """The reply of `v1internal:fetchAvailableModels`: `models`, each with a `quotaInfo`."""
    models = as_dict(as_dict(body).get("models"))
    quotas = {model: as_dict(as_dict(told).get("quotaInfo")) for model, told in models.items()}
    return _report(_figure(m, quota, now) for m, quota in quotas.items() if _is_quota(quota))


def parse_gemini_cli(body: Any, now: float) -> Report:
    """The reply of `v1internal:retrieveUserQuota`: `buckets`, each with a `modelId`. Of several
    for one model the least counts."""
    buckets = as_dicts(as_dict(body).get("buckets"))
    named = [(bucket.get("modelId"), bucket) for bucket in buckets if _is_quota(bucket)]
    figures = [_figure(model, told, now) for model, told in named if isinstance(model, str)]
    least = {each.model: each for each in sorted(figures, key=lambda each: -each.remaining)}
    return _report(least.values())


def _is_quota(told: dict[str, Any]) -> bool:
    if not told:
        return False
    return "remainingFraction" not in told or as_number(told["remainingFraction"]) is not None


def _figure(model: str, told: dict[str, Any], now: float) -> Figure:
    left = as_number(told.get("remainingFraction", 0.0)) or 0.0
    return Figure(model, share(left), moment(told.get("resetTime"), now))


def _report(figures: Iterable[Figure]) -> Report:
    return Report(figures=tuple(figures))
