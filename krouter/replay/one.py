"""One recorded request, as it was and with other combos."""

from __future__ import annotations

import math
from collections import Counter

from msgspec import Struct

from krouter.board import Turns
from krouter.combos import Combo
from krouter.lineup import Site, merged
from krouter.plan import Plan
from krouter.replay.change import Change
from krouter.replay.evidence import Bare, Evidence
from krouter.replay.fusion import fuse
from krouter.replay.orders import Orders, plans_then
from krouter.replay.scene import Call, Ended, Guesses, Scene
from krouter.replay.walk import Walk
from krouter.route import Route
from krouter.world import World


class Side(Struct):
    """How a request went, or would have gone. `wait` is in seconds until the caller had the first
    byte of an answer, or the error; None where the median of a model is not known. `cost` is in
    `PER_DOLLAR` parts, without the `unpriced` calls."""

    served: str
    status: int | None
    outcome: str
    wait: float | None
    cost: int
    unpriced: int
    calls: list[Call]

    @property
    def assumed(self) -> bool:
        """Whether any of it is assumed."""
        return any(call.assumed for call in self.calls)


class Replayed(Struct):
    """Both sides of a request; `passed_over` are entries that nobody could be sent to now, and
    why."""

    then: Side
    now: Side
    plan: Plan
    passed_over: list[tuple[str, str]]

    @property
    def moved(self) -> bool:
        """Whether it would have gone elsewhere, or ended otherwise."""
        then, now = self.then, self.now
        ends = (then.served, then.status, then.outcome) == (now.served, now.status, now.outcome)
        return not ends or _trail(then.calls) != _trail(now.calls)


def replay(
    route: Route, combo: Combo, change: Change, world: World, guesses: Guesses, turns: Turns
) -> Replayed:
    """What would have come of a recorded request that goes to `combo`, one of those of `change`,
    which `world` holds too. Raises Bare where the record does not tell enough."""
    evidence = Evidence(route)
    over = evidence.time_was_over
    then = Scene(evidence, plans_then(evidence), world, guesses, True, math.inf)
    then.deadline = math.inf if over is None else over
    ended = _run(then, evidence.plans[()])
    _check(route, then, ended)
    control = _changed(then, evidence.plans[()].combo, change.nothing(), world, Turns())
    _check_control(then, ended, *control[:2])
    now, ended, plan = _changed(then, combo, change, world, turns)
    return Replayed(recorded(route, then.calls), _side(now, ended), plan, now.passed_over)


def _changed(
    then: Scene, combo: Combo, change: Change, world: World, turns: Turns
) -> tuple[Scene, Ended, Plan]:
    """The run over other combos."""
    evidence = then.evidence
    evidence.fresh()
    orders = Orders(evidence, change, world, turns)
    plan = orders.top(combo)
    now = Scene(evidence, orders.plan_of, world, then.guesses, False, then=then)
    now.differs = orders.differs
    now.deadline = min(then.deadline, _tightened(evidence.plans[()].combo, combo, world))
    return now, _run(now, plan), plan


def recorded(route: Route, calls: list[Call] | None = None) -> Side:
    """How it went."""
    final, end = route.final, route.ended or route.began
    at = final.first_byte if final and final.seen and final.first_byte and route.stream else end
    return Side(
        route.served,
        route.status,
        route.outcome,
        max(at - route.began, 0.0),
        sum(attempt.cost or 0 for attempt in route.attempts),
        len(route.unpriced),
        calls or [],
    )


def _run(scene: Scene, plan: Plan) -> Ended:
    site = Site((plan,), scene.world.settings.timeouts)
    if plan.fuses:
        return fuse(scene, site, 0.0, 0)
    return Walk(scene, fuse).run(site)


def _check(route: Route, scene: Scene, ended: Ended) -> None:
    """The record, walked by its own order, gives itself again; or else it is not understood, and
    nothing may follow from it. Raises Bare."""
    calls = [id(call.was) for call in scene.calls]
    end = route.served, route.status, route.outcome
    if sorted(calls) != sorted(map(id, route.attempts)) or _told(ended) != end:
        raise Bare("what it tells of does not follow from its order")


def _check_control(then: Scene, was: Ended, now: Scene, ended: Ended) -> None:
    """Without a change nothing changes, or else nothing may follow from a change. Raises Bare."""
    if _trail(then.calls) != _trail(now.calls) or _told(was) != _told(ended):
        raise Bare("it does not tell enough of how its entries were tried")


def _told(ended: Ended) -> tuple[str, int | None, str]:
    return ended.served.entry if ended.served else "", ended.status, ended.outcome


def _tightened(then: Combo, now: Combo, world: World) -> float:
    """The total time, where the new combo gives less of it."""
    base = world.settings.timeouts
    was, total = merged(base, then.timeouts).total, merged(base, now.timeouts).total
    return total if total < was else math.inf


def _side(scene: Scene, ended: Ended) -> Side:
    calls = scene.calls
    return Side(
        ended.served.entry if ended.served else "",
        ended.status,
        ended.outcome,
        None if any(call.lasted is None for call in calls) else ended.wait,
        sum(call.cost or 0 for call in calls),
        sum(call.unpriced for call in calls),
        calls,
    )


def _trail(calls: list[Call]) -> object:
    """What was asked, in its order; a panel is asked at once."""
    keys = [call.key for call in calls]
    return Counter(keys) if any(call.role for call in calls) else keys
