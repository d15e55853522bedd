"""What goes wrong while a client works, and the combos that make it so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TRANSLATED = {"chat": "messages", "messages": "chat", "responses": "chat"}
"""The dialect of a provider whose replies have to be translated for a caller of the first."""

ADDRESS = {"chat": "/v1", "messages": "", "responses": "/v1"}


@dataclass(frozen=True, slots=True)
class Case:
    """One fault of the first entry; none if `fault` is empty."""

    title: str
    fault: str = ""
    guard: str = "off"
    changes: bool = False
    """Whether the first entry answers the first turn and fails the next, which then goes to a
    provider of the other lane."""


CASES: Mapping[str, Case] = {
    "well": Case("no fault"),
    "limited": Case("429", "status=429;retry-after=30"),
    "overloaded": Case("529", "status=529"),
    "reset": Case("reset", "reset"),
    "error": Case("error first", "error=0"),
    "cut": Case("cut before any event", "end=0"),
    "guarded-cut": Case("guarded: cut before content", "end=1", "first"),
    "guarded-empty": Case("guarded: empty stream", "empty=done", "first"),
    "changes": Case("529 on the second turn, other lane", "status=529", changes=True),
}
LANES = ("native", "translated")
HEALTHY = "healthy"


def combo_name(lane: str, case: str) -> str:
    return f"{lane}-{case}"


def write_home(home: Path, dialect: str, url: str) -> None:
    """Settings and combos for callers of one dialect. Where a case has a fault, the model of the
    first entry has the name of the combo.

    Every case has a provider of its own, so that none suffers from what another has locked."""
    settings = []
    (home / "combos").mkdir(parents=True)
    for lane in LANES:
        speaks = dialect if lane == "native" else TRANSLATED[dialect]
        settings.append(provider(lane, speaks, url))
        for name, case in CASES.items():
            title = combo_name(lane, name)
            healthy = LANES[1 - LANES.index(lane)] if case.changes else lane
            models = [f"{healthy}/{HEALTHY}"]
            if case.fault:
                settings.append(provider(title, speaks, url))
                models.insert(0, f"{title}/{title}")
            combo = {"models": models, "streamGuard": case.guard}
            (home / "combos" / f"{title}.json").write_text(json.dumps(combo))
    (home / "krouter.toml").write_text("".join(settings))


def provider(name: str, speaks: str, url: str) -> str:
    counts = "counts_tokens = true\n" if speaks == "messages" else ""
    return (
        f'[provider.{name}]\n{counts}speaks = ["{speaks}"]\nkey = "env:FAKE_PROVIDER_KEY"\n'
        f'base_url = "{url}{ADDRESS[speaks]}"\n'
    )
