"""The order of a past request, made anew from its record alone, in the form of `explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from krouter.combos import reference
from krouter.plan import Plan
from krouter.ranking import Place
from krouter.records import rebuild, rebuild_rankings
from krouter.route import Attempt, Route, Skip, Skipped

Lines = list[str]


@dataclass(frozen=True, slots=True)
class Difference:
    """Something of an order that comes out in another way than it was recorded."""

    what: str
    recorded: Lines
    rebuilt: Lines


@dataclass(slots=True)
class Rebuilt:
    """A route and what its record gives again. Raises NotBuilt where that cannot be made."""

    route: Route
    plans: list[Plan] = field(init=False)
    rankings: Mapping[str, list[Place]] = field(init=False)

    def __post_init__(self) -> None:
        self.plans = rebuild(self.route)
        self.rankings = rebuild_rankings(self.route)

    @property
    def nested(self) -> dict[str, Plan]:
        """Of each nested combo that was reached, its first plan, which is the recorded one."""
        return {plan.combo.name: plan for plan in reversed(self.plans[1:])}

    def differences(self) -> list[Difference]:
        """Empty where the record gives the order again that it tells of."""
        return [each for each in self._compared() if each.recorded != each.rebuilt]

    def _compared(self) -> Iterator[Difference]:
        route, plans = self.route, self.plans
        recorded = {name: _placed(placed) for name, placed in route.nested.items()}
        yield Difference("the order", _placed(route.plan), _steps(plans[0]) if plans else [])
        for name in dict.fromkeys((*recorded, *self.nested)):
            plan = self.nested.get(name)
            anew = _steps(plan) if plan else []
            yield Difference(f"the order inside {name}", recorded.get(name, []), anew)
        switches = [line for plan in plans for line in plan.switches]
        yield Difference("the switches", route.switches, switches)
        for entry in dict.fromkeys((*route.accounts, *self.rankings)):
            told = [_ranked(*_fields(each)) for each in route.accounts.get(entry, [])]
            made = [_ranked(*place) for place in self.rankings.get(entry, [])]
            yield Difference(f"the accounts of {entry}", told, made)

    def as_json(self) -> dict[str, Any]:
        """The fields of `explain` that a record has, and whether both orders are the same."""
        route, different = self.route, self.differences()
        top = self.plans[0] if self.plans else None
        return {
            "asked": route.asked,
            "combo": route.combo or None,
            "strategy": top.combo.strategy if top and route.combo else None,
            "dialect": route.dialect,
            "stream": route.stream,
            "needs": sorted(route.needs),
            "switches": [line for plan in self.plans for line in plan.switches],
            "entries": self.entries(),
            "route": route.id,
            "same": not different,
            "differences": list(map(asdict, different)),
        }

    def entries(self) -> list[dict[str, Any]]:
        """Every entry of the flattened walk, in order."""
        seen: set[str] = set()
        found = []
        for place, (plan, model, reason) in enumerate(self._leaves(), 1):
            entry = self._entry(model, repeated=model in seen)
            combo = plan.combo.name if self.route.combo else None
            asked_for = not combo and reason == "as listed"
            found.append(
                {
                    "place": place,
                    "model": model,
                    "combo": combo,
                    "reason": "asked for by name" if asked_for else reason,
                    **entry,
                }
            )
            seen.add(model)
        return found

    def _leaves(self) -> Iterator[tuple[Plan, str, str]]:
        if self.plans:
            yield from self._inside(self.plans[0], frozenset())

    def _inside(self, plan: Plan, around: frozenset[str]) -> Iterator[tuple[Plan, str, str]]:
        for step in plan.steps:
            name = reference(step.entry.model)
            inner = self.nested.get(name) if name and name not in around else None
            if inner is None or name is None:
                yield plan, step.entry.model, step.reason
            else:
                yield from self._inside(inner, around | {name})

    def _entry(self, model: str, *, repeated: bool) -> dict[str, Any]:
        """What became of an entry. One that is listed twice was tried where it stood first."""
        steps = [step for step in self.route.steps if step.entry == model]
        attempts = [step for step in steps if isinstance(step, Attempt) and not repeated]
        skips = [step for step in steps if isinstance(step, Skipped)]
        whole = next((s for s in skips if not s.account and _fits(s, repeated)), None)
        first = attempts[0] if attempts else None
        return {
            "provider": (first.provider or None) if first else None,
            "lane": first.lane if first else None,
            "accounts": [] if repeated else self._accounts(model, attempts, skips),
            "skip": str(whole.reason) if whole else None,
            "detail": whole.detail if whole else "",
        }

    def _accounts(
        self, model: str, attempts: list[Attempt], skips: list[Skipped]
    ) -> list[dict[str, Any]]:
        faults: dict[str, str | None] = {s.account: _fault(s) for s in skips if s.account}
        faults |= dict.fromkeys(step.account for step in attempts)
        places = {place.account: place for place in self.rankings.get(model, [])}
        return [
            {
                "name": name,
                "fault": faults.get(name),
                "score": places[name].score if name in places else None,
                "reason": places[name].reason if name in places else "",
            }
            for name in dict.fromkeys((*places, *faults))
        ]


def _fits(step: Skipped, repeated: bool) -> bool:
    return (step.reason is Skip.ALREADY_TRIED) is repeated


def _fault(step: Skipped) -> str:
    return f"{step.reason} ({step.detail})" if step.detail else str(step.reason)


def _placed(placed: list[Any]) -> Lines:
    return [f"{each.entry}: {each.reason}" for each in placed]


def _steps(plan: Plan) -> Lines:
    return [f"{step.entry.model}: {step.reason}" for step in plan.steps]


def _fields(each: Any) -> tuple[str, float | None, str]:
    return each.account, each.score, each.reason


def _ranked(account: str, score: float | None, reason: str) -> str:
    return f"{account} ({score}): {reason}"
