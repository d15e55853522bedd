"""The limits of a key: the models it may ask for, its requests a minute, its budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from krouter.allowance import Rate, fits, is_glob, period_at
from krouter.costs import PER_DOLLAR, dollars
from krouter.keys import Key, KeyRing
from krouter.route import Attempt, Route, Skipped
from krouter.router import LONGEST_NAME, Destination, UnknownModel, resolve
from krouter.serve.intake import Refusal
from krouter.serve.refused import waiting
from krouter.spending import Spending, Spent
from krouter.world import World

_SHOWN = 10


class Limiter:
    """Counts what keys with limits ask for and spend. `now` gives epoch seconds."""

    def __init__(self, keys: KeyRing, spending: Spending, now: Callable[[], float]) -> None:
        self._keys, self._spending, self._now = keys, spending, now
        self._rates: dict[str, Rate] = {}

    def admit(self, key: Key, *, free: bool) -> None:
        """A request of `key`; one that is `free` costs nothing. Raises Refusal."""
        now = self._now()
        if key.budget is not None and not free:
            self._check_budget(key, now)
        if key.rpm is None:
            return
        rate = self._rates.get(key.id)
        if rate is None:
            rate = self._rates[key.id] = Rate()
        if wait := rate.ask(key.rpm, now):
            times = "request" if key.rpm == 1 else "requests"
            message = (
                f"The key {key.name!r} may make {key.rpm} {times} a minute; the next in"
                f" {wait:.0f} s."
            )
            raise Refusal(429, message, waiting(wait), wait=wait)

    def _check_budget(self, key: Key, now: float) -> None:
        budget = key.allowance
        if budget is None:
            return
        start, end = period_at(budget.period, now)
        spent = self._spending.since(key.id, start).cost
        if spent < int(budget.dollars * PER_DOLLAR):
            return
        reset = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise Refusal(
            429,
            f"The key {key.name!r} has spent its budget: ${dollars(spent):.4f} of ${budget}. It may"
            f" go on at {reset}.",
            waiting(end - now),
            code="insufficient_quota",
            wait=end - now,
            notes={"krouter_resets_at": reset},
        )

    def book(self, route: Route) -> None:
        """A request is over. What a late call of it costs comes with `amend`."""
        if route.caller:
            done = (each for each in route.attempts if each.ended is not None)
            self._add(route, done if route.lingers else route.attempts)

    def amend(self, route: Route, news: Iterable[Attempt | Skipped]) -> None:
        """Late calls of a request that is over have ended; `news` are their steps."""
        if route.caller:
            self._add(route, (step for step in news if isinstance(step, Attempt)))

    def _add(self, route: Route, attempts: Iterable[Attempt]) -> None:
        key = self._keys.named(route.caller)
        if key is None or key.budget is None:
            return
        spent = Spent()
        for each in attempts:
            spent = spent.plus(Spent(each.cost or 0, each.is_unpriced))
        if spent != Spent():
            self._spending.add(key.id, spent)

    @property
    def problems(self) -> list[str]:
        return [self._spending.problem] if self._spending.problem else []

    def close(self) -> None:
        self._spending.close()


def check_model(key: Key, asked: str, world: World) -> None:
    """Raises Refusal for a model that `key` may not ask for."""
    if may_ask(key, asked, world):
        return
    models = key.models or ()
    told = ", ".join(models[:_SHOWN]) + (", …" if len(models) > _SHOWN else "")
    raise Refusal(
        403,
        f"The key {key.name!r} may not ask for {asked[:LONGEST_NAME]!r}, but for {told}.",
        code="model_not_found",
    )


def may_ask(key: Key, asked: str, world: World) -> bool:
    """Whether `key` may ask for what is called `asked`."""
    if key.models is None:
        return True
    if len(asked) > LONGEST_NAME:
        return False
    try:
        return is_allowed(key, asked, resolve(asked, world), world)
    except UnknownModel:
        return fits([asked], key.models)


def is_allowed(key: Key, asked: str, destination: Destination, world: World) -> bool:
    """Whether a name, an alias too, or what it stands for is one of the key's models. A combo is
    asked for as `claude-NAME` by whoever may ask for the combo, or for that very name: no glob
    over the names of Claude's models opens every combo."""
    if key.models is None:
        return True
    if fits(_names(asked, destination, world), key.models):
        return True
    return destination.found_by == "claude-name" and asked in key.models


def _names(asked: str, destination: Destination, world: World) -> Iterator[str]:
    if destination.found_by != "claude-name":
        yield asked
    if not destination.direct:
        yield destination.combo.name
        yield f"combo/{destination.combo.name}"
        return
    called = destination.combo.models[0].model
    yield called
    provider, model = world.registry.split(called)
    if provider is not None:
        yield f"{provider.name}/{model}"


def named_models(key: Key | None) -> list[str]:
    """The names that a key's limits spell out."""
    return [] if key is None else [each for each in key.models or () if not is_glob(each)]
