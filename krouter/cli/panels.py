"""What is said of a fusion before anybody is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from krouter.combos import Combo, Entry, FusionTuning
from krouter.lineup import Site

NAMED, FIRST = "the judge", "judges, as the first of the panel"
"""Why an entry judges."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A fusion where it stands."""

    site: Site

    @property
    def combo(self) -> Combo:
        return self.site.plan.combo

    @property
    def tuning(self) -> FusionTuning:
        return self.combo.fusion_tuning

    @property
    def size(self) -> int:
        return len(self.site.plan.steps)

    @property
    def needed(self) -> int:
        """How many usable answers are a quorum."""
        return min(self.tuning.min_panel, self.size)

    @property
    def longest_ms(self) -> int:
        """How long it is waited for at most, in milliseconds."""
        timeouts = self.combo.timeouts
        total = timeouts.total if timeouts is not None else None
        hard = self.tuning.panel_hard_timeout_ms
        return min(hard, round(total * 1000)) if total else hard

    @property
    def too_large(self) -> str:
        """Why a call is answered 400; empty where it is not."""
        most = self.tuning.max_panel
        if self.size <= most:
            return ""
        return f"its panel has {self.size} entries, and maxPanel allows {most}"

    @property
    def judge(self) -> str:
        """The one that is named, or on Auto the first of the panel."""
        return self.combo.judge_name or self.site.plan.steps[0].entry.model

    def calls(self) -> Iterator[Site]:
        """Each entry of the panel, as it is asked."""
        return (self.site.alone(place) for place, _ in self.site.plan.placed())

    def judging(self) -> Site:
        """The judge, as it is asked."""
        plan, name = self.site.plan, self.combo.judge_name
        entry = Entry.model_construct(model=name) if name else plan.steps[0].entry
        return self.site.instead(entry, NAMED if name else FIRST)

    def as_json(self) -> dict[str, Any]:
        """As `krouter explain` tells it."""
        tuning = self.tuning
        return {
            "combo": self.combo.name,
            "panel": self.size,
            "quorum": self.needed,
            "grace_ms": tuning.straggler_grace_ms,
            "hard_timeout_ms": self.longest_ms,
            "judge": self.judge,
            "auto": self.combo.judge_name is None,
            "on_single": tuning.on_single,
            "on_judge_failure": tuning.on_judge_failure,
            "late_calls": tuning.late_calls,
            "require_quorum": tuning.require_quorum,
            "max_panel": tuning.max_panel,
            "problem": self.too_large or None,
        }


def told(fusion: dict[str, Any]) -> Iterator[str]:
    """How a panel is asked and waited for, and who answers; `fusion` is a `Panel` as JSON."""
    name, size, quorum = fusion["combo"], fusion["panel"], fusion["quorum"]
    if fusion["problem"]:
        yield f"{name}: a call is answered 400: {fusion['problem']}."
        return
    enough = f"{quorum} usable answers are" if quorum > 1 else "1 usable answer is"
    most, grace = (_seconds(fusion[field]) for field in ("hard_timeout_ms", "grace_ms"))
    yield (
        f"{name}: all {size} are asked at once, and waited for {most} at most; {enough} enough, the"
        f" rest then have {grace} more, and what is late {_LATE[fusion['late_calls']]}."
    )
    whose = (
        ", the first of the panel, or else the first that has answered," if fusion["auto"] else ""
    )
    best = fusion["on_judge_failure"] == "best"
    instead = "; if that fails, the longest of theirs is returned" if best else ""
    yield f"{name}: {fusion['judge']}{whose} writes one answer out of theirs{instead}."
    yield f"{name}: {_SINGLE[_single(fusion)]}"


def _single(fusion: dict[str, Any]) -> str:
    """What becomes of exactly one usable answer."""
    if fusion["require_quorum"] and fusion["quorum"] > 1:
        return "quorum"
    is_judged = fusion["on_single"] == "judge" and not fusion["auto"]
    return "judge" if is_judged else fusion["on_single"].replace("judge", "resend")


_LATE = {"run": "runs on", "cancel": "is called off"}
_SINGLE = {
    "quorum": "with fewer usable answers the call fails with 503.",
    "judge": "one usable answer alone goes to the judge too.",
    "resend": "where only one gives a usable answer, that one is asked again, and nobody judges.",
    "return": "where only one gives a usable answer, that is returned, and nobody judges.",
}


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"
