"""The order of a past request, made anew from its record alone, in the form of `explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from krouter.cli.wording import by_name, strategy_name
from krouter.combos import Entry
from krouter.plan import Plan, Step
from krouter.ranking import Place
from krouter.records import rebuild, rebuild_rankings
from krouter.route import Attempt, Places, Route, Skipped, Voice, located

Lines = list[str]

_ROLES = {"judge": "the judge", "again": "the only one to answer, asked again", "panel": ""}


@dataclass(frozen=True, slots=True)
class Difference:
    """Something of an order that comes out in another way than it was recorded."""

    what: str
    recorded: Lines
    rebuilt: Lines


@dataclass(slots=True)
class Rebuilt:
    """A route and what its record gives again."""

    route: Route
    plans: list[Plan] = field(init=False)
    rankings: Mapping[str, list[Place]] = field(init=False)

    def __post_init__(self) -> None:
        self.plans = rebuild(self.route)
        self.rankings = rebuild_rankings(self.route)

    @property
    def nested(self) -> dict[str, Plan]:
        """The plan of each nested combo that was reached, by its key in the record."""
        return dict(zip(self.route.nested, self.plans[1:], strict=False))

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
            "strategy": strategy_name(top.snapshot) if top and route.combo else None,
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
        """Every entry of the flattened walk, in order; who was asked beside a panel, at place 0."""
        places, found = count(1), [self._entry(*leaf) for leaf in self._leaves()]
        return [
            {"place": next(places) if each["role"] in (None, "panel") else 0, **each}
            for each in found
        ]

    def _leaves(self) -> Iterator[tuple[Plan, Step, Places]]:
        if self.plans:
            yield from self._inside(self.plans[0], ())

    def _inside(self, plan: Plan, outer: Places) -> Iterator[tuple[Plan, Step, Places]]:
        for at, step in enumerate(plan.steps, 1):
            yield from self._at(plan, step, (*outer, at))
        for step in self._beside(plan, (*outer, 0)):
            yield from self._at(plan, step, (*outer, 0))

    def _at(self, plan: Plan, step: Step, places: Places) -> Iterator[tuple[Plan, Step, Places]]:
        inner = self.nested.get(self.route.inside(places) or "")
        if inner is None:
            yield plan, step, places
        else:
            yield from self._inside(inner, places)

    def _beside(self, plan: Plan, places: Places) -> list[Step]:
        """Whom a fusion asked beside its panel, each once."""
        route, size = self.route, len(places)
        if not plan.fuses:
            return []
        steps = (step for step in route.steps if step.places[:size] == places)
        voices = [self._voice(step.voice, places) for step in steps]
        found = dict.fromkeys((voice.entry, _ROLES[voice.role]) for voice in voices)
        return [Step(Entry.model_construct(model=entry), reason) for entry, reason in found]

    def _voice(self, number: int, places: Places) -> Voice:
        """Of those around a voice, the one that the innermost fusion around `places` asked."""
        return self.route.around(number)[len(self.route.fusions(places)) - 1]

    def _role(self, places: Places) -> str | None:
        """What the innermost fusion around asked for, as far as anybody was asked."""
        fusions = self.route.fusions(places)
        if not fusions:
            return None
        if places[len(fusions[-1])]:
            return "panel"
        steps = (step.voice for step in self.route.steps if step.places == places)
        return next((self._voice(number, places).role for number in steps), "judge")

    def _entry(self, plan: Plan, step: Step, places: Places) -> dict[str, Any]:
        """An entry at its place, and what became of it there."""
        model = step.entry.model
        key = located(places, model)
        at = ((), places)  # the first where a record tells no places
        steps = [each for each in self.route.steps if each.entry == model and each.places in at]
        attempts = [each for each in steps if isinstance(each, Attempt)]
        skips = [each for each in steps if isinstance(each, Skipped)]
        whole = next((skip for skip in skips if not skip.account), None)
        first = attempts[0] if attempts else None
        direct, ranked = not self.route.combo, self.route.rankings.get(key)
        return {
            "model": model,
            "combo": None if direct else plan.combo.name,
            "role": self._role(places),
            "reason": by_name(step.reason) if direct else step.reason,
            "provider": (first.provider or None) if first else None,
            "lane": first.lane if first else None,
            "account_strategy": ranked.strategy if ranked else None,
            "accounts": self._accounts(key, attempts, skips),
            "skip": str(whole.reason) if whole else None,
            "detail": whole.detail if whole else "",
        }

    def _accounts(
        self, key: str, attempts: list[Attempt], skips: list[Skipped]
    ) -> list[dict[str, Any]]:
        faults: dict[str, str | None] = {s.account: _fault(s) for s in skips if s.account}
        faults |= dict.fromkeys(step.account for step in attempts)
        places = {place.account: place for place in self.rankings.get(key, [])}
        return [
            {
                "name": name,
                "fault": faults.get(name),
                "score": places[name].score if name in places else None,
                "reason": places[name].reason if name in places else "",
            }
            for name in dict.fromkeys((*places, *faults))
        ]


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
