"""The limits of a key: the models it may ask for, its requests a minute, its budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

from krouter.allowance import Rate, fits, is_glob, period_at
from krouter.body import Body
from krouter.catalog import Prices
from krouter.costs import PER_DOLLAR, dollars
from krouter.keys import Key
from krouter.naming import LONGEST_NAME, Destination, UnknownModel, resolve
from krouter.route import Attempt, Route, Skipped
from krouter.serve.charges import charge, prompt_tokens
from krouter.serve.intake import Refusal
from krouter.serve.refused import waiting
from krouter.spending import Spending, Spent
from krouter.world import World

_SHOWN = 10

PricesOf = Callable[[Attempt], Prices | None]
"""The prices of what was asked; None where its provider is not known."""


class _Payer:
    """The id of the key that a request is on, and what its attempts are charged by."""

    __slots__ = ("_body", "_prices", "_prompt", "key")

    def __init__(self, key: str, body: Body, prices: PricesOf) -> None:
        self.key, self._body, self._prices = key, body, prices
        self._prompt: int | None = None

    def charge(self, attempt: Attempt) -> int | None:
        prices = self._prices(attempt)
        return attempt.cost if prices is None else charge(attempt, prices, self._tokens)

    def _tokens(self) -> int:
        if self._prompt is None:
            self._prompt = prompt_tokens(self._body)
        return self._prompt


class Limiter:
    """Counts what keys with limits ask for and spend. `now` gives epoch seconds."""

    def __init__(self, spending: Spending, now: Callable[[], float]) -> None:
        self._spending, self._now = spending, now
        self._rates: dict[str, Rate] = {}
        self._payers: dict[str, _Payer] = {}
        """Of the routes under way, by their ids."""

    def check(self, key: Key, *, free: bool) -> None:
        """Whether a request of `key` may come; one that is `free` costs nothing. Raises Refusal."""
        self._check(key, free, Rate.wait)

    def admit(self, key: Key, *, free: bool) -> None:
        """A request of `key` has come, and counts. Raises Refusal."""
        self._check(key, free, Rate.ask)

    def _check(self, key: Key, free: bool, ask: Callable[[Rate, int, float], float]) -> None:
        now = self._now()
        if key.budget is not None and not free:
            self._check_budget(key, now)
        if key.rpm is None:
            return
        rate = self._rates.get(key.id)
        if rate is None:
            rate = self._rates[key.id] = Rate()
        if wait := ask(rate, key.rpm, now):
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

    def begin(self, route: Route, key: Key, body: Body, prices: PricesOf) -> None:
        """A request of `key` begins. It is the key's, whatever becomes of its name meanwhile."""
        if key.budget is not None:
            self._payers[route.id] = _Payer(key.id, body, prices)

    def book(self, route: Route) -> None:
        """A request is over. What a late call of it costs comes with `amend`."""
        if self._payers:
            done = [each for each in route.attempts if each.ended is not None]
            self._add(route, done if route.lingers else route.attempts)

    def amend(self, route: Route, news: Iterable[Attempt | Skipped]) -> None:
        """Late calls of a request that is over have ended; `news` are their steps."""
        self._add(route, [step for step in news if isinstance(step, Attempt)])

    def _add(self, route: Route, attempts: Iterable[Attempt]) -> None:
        payer = self._payers.get(route.id)
        if payer is None:
            return
        if not route.lingers:
            del self._payers[route.id]
        spent = Spent()
        for each in attempts:
            cost = payer.charge(each)
            if cost is not None and cost != each.cost:
                told = f"about ${dollars(cost):.4f} in the budget of its key"
                route.notes.append(f"{each.entry}: not all its tokens are known; {told}")
            unpriced = cost is None and each.is_unpriced
            spent = spent.plus(Spent(cost or 0, unpriced))
        if spent != Spent():
            self._spending.add(payer.key, spent)

    @property
    def problems(self) -> list[str]:
        return [self._spending.problem] if self._spending.problem else []

    def close(self) -> None:
        self._spending.close()


def check_model(key: Key, asked: str, world: World) -> None:
    """Raises Refusal for a model that `key` may not ask for, and for one that there is not: what is
    near it may be none of the key's."""
    if key.models is None:
        return
    destination, called = None, repr(asked[:LONGEST_NAME])
    with suppress(UnknownModel):
        destination = resolve(asked, world)
    if destination is not None and is_allowed(key, asked, destination, world):
        return
    if destination is None and len(asked) <= LONGEST_NAME and fits([asked], key.models):
        raise Refusal(404, f"Unknown model {called}.", code="model_not_found")
    told = ", ".join(key.models[:_SHOWN]) + (", …" if len(key.models) > _SHOWN else "")
    raise Refusal(
        403,
        f"The key {key.name!r} may not ask for {called}, but for {told}.",
        code="model_not_found",
    )


_FURTHER = ("models", "fallbacks")
"""Fields by which OpenRouter, LiteLLM's proxy and their like are told of models to ask as well."""


def check_further(key: Key, body: Body) -> None:
    """Raises Refusal where `body` has a provider ask further models: nobody here can tell which of
    them are the key's."""
    if key.models is None or not (found := next(_further(body), "")):
        return
    raise Refusal(
        403,
        f"The key {key.name!r} is limited to some models, so `{found}` may name no others: leave it"
        " out.",
        code="model_not_found",
    )


def _further(body: Body) -> Iterator[str]:
    """The fields that name further models."""
    for name in _FURTHER:
        if body.value(name):
            yield name
    extra = body.value("extra_body")
    if isinstance(extra, dict):
        yield from (f"extra_body.{name}" for name in _FURTHER if extra.get(name))
    tools = body.value("tools")
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("model"):
            yield f"tools[{place}].model"


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
