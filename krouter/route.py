"""The record of one request: what was tried, what was passed over, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from krouter.dialects.base import Usage
from krouter.errors import Failure

Log = Callable[[str, str], None]
"""Takes a tag such as `COMBO` and a line of text."""


class Skip(StrEnum):
    """The closed list of reasons for which an entry or an account is passed over."""

    LOCKED = "locked"
    PROBING = "being probed"
    AT_LIMIT = "at its concurrency limit"
    NO_ACCOUNT = "no account"
    NO_CREDENTIAL = "credential cannot be read"
    NOT_BUILT = "not built"
    NEEDS_TRANSLATION = "needs translation"
    UNSUPPORTED = "cannot be reached"
    NO_ADDRESS = "has no address"
    UNKNOWN_PROVIDER = "unknown provider"
    NESTED_TOO_DEEPLY = "nested too deeply"
    ALREADY_TRIED = "listed before"
    SMALLER_WINDOW = "window not larger"
    COMBO_ENDED = "its combo returned a refusal"
    NO_TIME = "no time left"


@dataclass(slots=True)
class Skipped:
    """An entry, or one of its accounts, that was not sent to."""

    entry: str
    account: str
    reason: Skip
    detail: str = ""


@dataclass(slots=True)
class Attempt:
    """One call to a provider. Times are epoch seconds; `lock` is in seconds."""

    entry: str
    model: str
    account: str
    lane: str
    began: float
    first_byte: float | None = None
    ended: float | None = None
    outcome: str = "under way"
    row: int | None = None
    status: int | None = None
    detail: str = ""
    lock: float | None = None
    usage: Usage | None = None
    dropped: tuple[str, ...] = ()
    """What of the request could not be carried to the provider."""


@dataclass(slots=True)
class Route:
    """What happened to one request, step by step."""

    id: str
    began: float
    dialect: str
    asked: str
    stream: bool
    combo: str = ""
    plan: list[tuple[str, str]] = field(default_factory=list)
    nested: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """The plan of each nested combo that was reached, by its name."""
    steps: list[Attempt | Skipped] = field(default_factory=list)
    rankings: dict[str, list[tuple[str, float | None, str]]] = field(default_factory=dict)
    """Of each entry with a choice of accounts: their names in order, with score and reason."""
    notes: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    served: str = ""
    status: int | None = None
    outcome: str = "under way"
    ended: float | None = None

    @property
    def attempts(self) -> list[Attempt]:
        return [step for step in self.steps if isinstance(step, Attempt)]

    def note_nested(self, combo: str, plan: list[tuple[str, str]]) -> None:
        self.nested.setdefault(combo, plan)

    def rank(self, entry: str, accounts: list[tuple[str, float | None, str]]) -> None:
        self.rankings.setdefault(entry, accounts)

    def name_dropped(self) -> None:
        """What the last attempt dropped is what the caller's answer came without."""
        self.dropped += [name for name in self.attempts[-1].dropped if name not in self.dropped]

    @property
    def usage(self) -> Usage:
        """Tokens of all attempts together, those the caller never saw included."""
        total = Usage()
        for attempt in self.attempts:
            total = total.plus(attempt.usage) if attempt.usage else total
        return total

    def trail(self, most: int = 1024) -> str:
        """`entry: status, reason; …`, at most `most` bytes of ASCII."""
        parts: list[str] = []
        for step in self.steps:
            if isinstance(step, Skipped):
                parts.append(f"{step.entry}: skipped, {step.reason}")
            elif step.outcome in _FAILURES:
                parts.append(f"{step.entry}: {step.status or '-'}, {step.outcome}")
        text = plain("; ".join(dict.fromkeys(parts)))
        return text if len(text) <= most else text[: most - 3] + "..."

    def as_json(self) -> dict[str, Any]:
        """The record as plain data."""
        return {
            "id": self.id,
            "began": self.began,
            "ended": self.ended,
            "dialect": self.dialect,
            "asked": self.asked,
            "stream": self.stream,
            "combo": self.combo or None,
            "plan": _plan_json(self.plan),
            "nested": {combo: _plan_json(plan) for combo, plan in self.nested.items()},
            "accounts": {
                entry: [{"account": n, "score": s, "reason": r} for n, s, r in accounts]
                for entry, accounts in self.rankings.items()
            },
            "steps": [_step_json(step) for step in self.steps],
            "notes": self.notes,
            "dropped": self.dropped,
            "served": self.served or None,
            "status": self.status,
            "outcome": self.outcome,
            "usage": _usage_json(self.usage),
        }


_FAILURES = frozenset(Failure)


def plain(text: str) -> str:
    """`text` fit for a header: what is not printable ASCII becomes a question mark."""
    return "".join(c if " " <= c <= "~" else "?" for c in text)


def _plan_json(plan: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"entry": entry, "reason": reason} for entry, reason in plan]


def _step_json(step: Attempt | Skipped) -> dict[str, Any]:
    names = [name for name in step.__slots__ if name != "usage"]
    fields: dict[str, Any] = {name: getattr(step, name) for name in names}
    if isinstance(step, Skipped):
        return {"step": "skip", **fields}
    return {"step": "attempt", **fields, "usage": _usage_json(step.usage)}


def _usage_json(usage: Usage | None) -> dict[str, int] | None:
    return None if usage is None else {name: getattr(usage, name) for name in usage.__slots__}
