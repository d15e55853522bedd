"""A name becomes a combo or a model; a call becomes an answer."""

from __future__ import annotations

import asyncio
import fnmatch
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from krouter.adapter import Call, bare_names, provider_of
from krouter.answer import NO_RETRY, Answer, error_answer, stamps
from krouter.attempt import Failed
from krouter.combos import Combo, Entry, reference
from krouter.costs import cost_of
from krouter.dialects.embeddings import EMBEDDINGS, nothing_given
from krouter.dialects.history import empty_field
from krouter.dialects.needs import needs
from krouter.dialects.session import session_key
from krouter.dialects.stored import stored_field
from krouter.embeddable import why_not
from krouter.errors import Failure
from krouter.fusion import Fusion
from krouter.late import Late
from krouter.lineup import Site, merged
from krouter.no_answer import failure
from krouter.problems import did_you_mean, nearest
from krouter.progress import Progress
from krouter.route import Attempt, End, Route, Skipped
from krouter.settings import ComboTimeouts
from krouter.standing import plan_for
from krouter.walk import Walk
from krouter.world import Ask, World

SHIPPED_ALIASES: Mapping[str, str] = {"fusion-panel": "panel"}
KEPT_ROUTES = 1000
MOST_KEPT = 256 << 10
"""Bytes of a request that a record keeps, where it may keep any."""
LONGEST_NAME = 300
SEEDS = 1 << 53


FoundBy = Literal["combo", "alias", "claude-name", "model", "bare-name"]


class UnknownModel(Exception):
    """A name that is neither a combo nor a model; the text says so and what is near."""


class StoredElsewhere(Exception):
    """A request that rests on what a provider has stored, and may go to another."""

    def __init__(self, field: str, call: Call) -> None:
        self.field = field
        given = call.body.value(field)
        is_previous = field == "previous_response_id"
        self.code = "previous_response_not_found" if is_previous else "unsupported_parameter"
        found = f"Previous response {given!r:.100} not found. " if is_previous else ""
        super().__init__(
            f"{found}{field!r} needs what one account of a provider has stored, and for"
            f" {call.model[:LONGEST_NAME]!r} another may answer, or one that stores nothing. Send"
            " the whole conversation, or name a provider/model that speaks this dialect itself and"
            " has one account."
        )


class Destination(Struct, frozen=True):
    """What a name stands for, and by which rule; `combo` is made up for a model called directly."""

    combo: Combo
    found_by: FoundBy
    direct: bool = False


def new_route_id() -> str:
    """19 characters: 11 that sort by time to the millisecond, then 40 random bits."""
    chance = random.getrandbits(64).to_bytes(8).translate(_BASE32).decode()
    return f"{int(time.time() * 1000):011x}{chance}"


_BASE32 = b"abcdefghijklmnopqrstuvwxyz234567" * 8
"""A character for each byte."""


def resolve(name: str, world: World) -> Destination:
    """Combo, alias, `claude-NAME` of a combo, `provider/model`, then a name that LiteLLM knows
    without a provider. Raises UnknownModel."""
    if combo := _named_combo(name, world.combos):
        return Destination(combo, "combo")
    if target := aliased(name, world.settings.aliases):
        combo = _named_combo(target, world.combos)
        return Destination(combo, "alias") if combo else _direct(target, name, world)
    if combo := world.combos.get(name.removeprefix("claude-")):
        return Destination(combo, "claude-name")
    return _direct(name, name, world)


def _named_combo(name: str, combos: Mapping[str, Combo]) -> Combo | None:
    return combos.get(name.removeprefix("combo/"))


def aliased(name: str, aliases: Mapping[str, str]) -> str | None:
    """An alias spelled out wins over a glob, the longest glob over others."""
    if exact := aliases.get(name) or SHIPPED_ALIASES.get(name):
        return exact
    globs = [glob for glob in aliases if fnmatch.fnmatchcase(name, glob)]
    return aliases[max(globs, key=len)] if globs else None


def _direct(target: str, asked: str, world: World) -> Destination:
    _, slash, model = target.partition("/")
    found_by: FoundBy = "model" if slash else "bare-name"
    provider = None if slash or len(target) > LONGEST_NAME else provider_of(target)
    called = f"{provider}/{target}" if provider else target
    can_be = (model or provider) and len(called) <= LONGEST_NAME and called.split() == [called]
    if not can_be or not known_provider(called, world):
        raise UnknownModel(_unknown(target, asked, world))
    return Destination(_single(called), found_by if target == asked else "alias", direct=True)


def known_provider(model: str, world: World) -> bool:
    """Whether the provider of `provider/model` is one that krouter knows."""
    return world.registry.split(model)[0] is not None


def _unknown(target: str, asked: str, world: World) -> str:
    if len(asked) > LONGEST_NAME:
        return f"Unknown model {asked[:50]!r}...: a name has at most {LONGEST_NAME} characters."
    if asked.split() != [asked]:
        return f"Unknown model {asked!r}: a name holds no blanks."
    for name in (target.removeprefix("combo/"), target.removeprefix("claude-")):
        if fault := world.unserved.get(name):
            return f"Unknown model {asked!r}: the combo {name} is not served: {fault}"
    usable = (name for name in entries(world.combos) if known_provider(name, world))
    known = [*world.combos, *world.settings.aliases, *usable]
    via = "" if target == asked else f" (an alias for {target!r})"
    provider, slash, model = target.partition("/")
    if slash:
        providers = nearest(provider, world.registry.names_with_aliases())
        near = did_you_mean(target, [*known, *(f"{name}/{model}" for name in providers)])
        what = f"no provider {provider!r} is known"
        if provider == "combo":
            near, what = did_you_mean(model, world.combos), f"there is no combo {model!r}"
        elif not near:
            near = (
                f"A provider of your own needs a base_url in krouter.toml: [provider.{provider}]."
            )
    else:
        near = did_you_mean(target, [*known, *bare_names()])
        what = "no combo or alias has that name, and a model is written provider/model"
    return " ".join(filter(None, [f"Unknown model {asked!r}{via}: {what}.", near]))


def entries(combos: Mapping[str, Combo]) -> Iterator[str]:
    """Every `provider/model` that a combo names, judges too, once."""
    models = (model for combo in combos.values() for model in _named_in(combo))
    return iter(dict.fromkeys(m for m in models if "/" in m and not m.startswith("combo/")))


def _named_in(combo: Combo) -> Iterator[str]:
    yield from (entry.model for entry in combo.models)
    if combo.strategy == "fusion" and combo.judge_name:
        yield combo.judge_name


@lru_cache(maxsize=1024)
def _single(model: str) -> Combo:
    return Combo.model_construct(name="direct", models=(Entry.model_construct(model=model),))


def _check_stored(field: str, call: Call, destination: Destination, world: World) -> None:
    """Only a single account of a provider that speaks the dialect itself has what it stored.
    Raises StoredElsewhere."""
    entry = destination.combo.models[0]
    provider, _ = world.registry.split(entry.model)
    if not destination.direct or provider is None or call.dialect.name not in provider.base_urls:
        raise StoredElsewhere(field, call)
    if len(list(world.accounts_of(provider.name, entry))) > 1:
        raise StoredElsewhere(field, call)


def _unspoken(call: Call, combo: Combo, world: World) -> str:
    """The field that holds no message, where no entry's provider speaks the dialect itself: one
    that does says what it thinks of that, and nobody else is worth asking."""
    field = empty_field(call.dialect.name, call.body)
    return "" if field and _is_spoken(call.dialect.name, combo, world) else field


def _is_spoken(dialect_name: str, combo: Combo, world: World) -> bool:
    for entry in combo.models:
        name = reference(entry.model)
        if name is not None:
            inner = world.combos.get(name)
            if inner is not None and _is_spoken(dialect_name, inner, world):
                return True
            continue
        provider, _ = world.registry.split(entry.model)
        if provider is None or dialect_name in provider.speaks:
            return True
    return False


def _ask(call: Call, world: World) -> Ask:
    """What the request asks of the order, and carries."""
    drawn, name = _Drawn(call, world), call.dialect.name
    return Ask(
        name,
        call.stream,
        needs(name, call.body),
        drawn.turn,
        drawn.account_turn,
        drawn.session,
        drawn.seed,
    )


class _Drawn:
    """What a request draws when it is asked for: each turn, its session and its seed once."""

    __slots__ = ("_account_turns", "_call", "_seed", "_session", "_turns", "_world")

    def __init__(self, call: Call, world: World) -> None:
        self._call, self._world = call, world
        self._turns: dict[str, int] = {}
        self._account_turns: dict[str, int] = {}
        self._session: str | None = None
        self._seed: int | None = None

    def turn(self, combo: str) -> int:
        if combo not in self._turns:
            self._turns[combo] = self._world.board.turns.take(combo)
        return self._turns[combo]

    def account_turn(self, provider: str) -> int:
        if provider not in self._account_turns:
            self._account_turns[provider] = self._world.pool.turns.take(provider)
        return self._account_turns[provider]

    def session(self) -> str:
        if self._session is None:
            self._session = _session(self._call)
        return self._session

    def seed(self) -> int:
        if self._seed is None:
            self._seed = int(self._world.chance() * SEEDS)
        return self._seed


def _session(call: Call) -> str:
    """Embeddings belong to no conversation."""
    if call.dialect is EMBEDDINGS:
        return ""
    return session_key(call.dialect.name, call.body, call.headers)


def _unlike(call: Call, combo: Combo, world: World) -> str:
    """Why a combo's vectors could not be compared; a size that is asked for is all entries'."""
    return "" if call.body.value("dimensions") else why_not(combo, world)


def _timed(combo: Combo, call: Call) -> Combo:
    """A caller's own time limit is all that counts where no other entry waits for its turn."""
    if call.total is None:
        return combo
    limits = {"firstByte": "off", "firstToken": "off", "stall": call.total}
    return combo.model_copy(update={"timeouts": ComboTimeouts.model_validate(limits)})


class Router:
    """Answers calls over one `World`, which `reload` swaps in one step.

    Calls under way keep the world they began with.
    """

    def __init__(self, world: World, new_id: Callable[[], str] = new_route_id) -> None:
        self.world = world
        self.books: list[Callable[[Route], None]] = []
        """Who is told of every route when it is over."""
        self.amended: list[Callable[[Route, list[Attempt | Skipped]], None]] = []
        """Who is told of what has come to a route since it was over."""
        self.routes: deque[Route] = deque(maxlen=KEPT_ROUTES)
        self._late = Late()
        self._new_id = new_id

    def reload(self, world: World) -> None:
        self.world = world

    async def answer(
        self,
        call: Call,
        world: World | None = None,
        began: Callable[[Route], object] = lambda route: None,
    ) -> Answer:
        """The answer, in the caller's dialect; errors are answers too. Its `close` must be awaited.

        A cancelled call cancels what it sent, but for late calls of a fusion. `world` is for this
        call alone; `began` is told its route, which an exception takes along nowhere.
        """
        world = world or self.world
        asked = call.model[:LONGEST_NAME]
        route = Route(self._new_id(), world.board.now(), call.dialect.name, asked, call.stream)
        route.caller = call.caller
        self.routes.append(route)
        began(route)
        if world.settings.ledger.prompts:
            route.request = call.body.raw[:MOST_KEPT].decode("utf-8", "replace")
        try:
            answer = await self._answer(call, world, route)
        except BaseException as error:
            gone = isinstance(error, asyncio.CancelledError)
            route.status = None if gone else 500
            self._finish(route, Failure.CALLER_GONE if gone else End.KROUTER_FAILED, world)
            raise
        return self._finished(answer, route, world)

    async def _answer(self, call: Call, world: World, route: Route) -> Answer:
        try:
            destination = resolve(call.model, world)
            stored = stored_field(call.dialect.name, call.body)
            if stored:
                _check_stored(stored, call, destination, world)
            combo = _timed(destination.combo, call) if destination.direct else destination.combo
            if field := _unspoken(call, combo, world):
                message = f"The field {field!r} must hold at least one message."
                return self._refused(call, route, 400, message, End.NO_MESSAGES, {"param": field})
            if call.dialect is EMBEDDINGS:
                if fault := nothing_given(call.body):
                    return self._refused(call, route, 400, fault, Failure.BAD_REQUEST)
                if fault := _unlike(call, combo, world):
                    return self._refused(call, route, 400, fault, End.VECTORS_DIFFER)
            ask = _ask(call, world)
            plan = plan_for(combo, world, ask, adapted=not stored)
        except UnknownModel as unknown:
            return self._refused(call, route, 404, str(unknown), End.UNKNOWN_MODEL)
        except StoredElsewhere as elsewhere:
            notes = {"code": elsewhere.code, "param": elsewhere.field}
            return self._refused(call, route, 400, str(elsewhere), End.STORED_ELSEWHERE, notes)
        route.combo = "" if destination.direct else destination.combo.name
        route.needs = tuple(sorted(ask.needs))
        for line in plan.switches:
            world.log("COMBO", f"{route.combo or route.asked}: {line}")
        route.note_plan(plan)
        total = call.total or merged(world.settings.timeouts, combo.timeouts).total
        deadline = asyncio.get_running_loop().time() + total
        rename = self._rename(call, world)
        progress = Progress(call, world, route, deadline, rename, ask)
        site = Site((plan,), world.settings.timeouts)
        if not plan.fuses:
            return await Walk(progress, self._fuse).run(site)
        outcome = await self._fuse(progress, site)
        return failure(progress, outcome) if isinstance(outcome, Failed) else outcome

    async def _walk(self, progress: Progress, site: Site) -> Answer:
        return await Walk(progress, self._fuse).run(site)

    async def _fuse(self, progress: Progress, site: Site) -> Answer | Failed:
        return await Fusion(progress, site, self._walk, self._late.add).answer()

    async def close(self) -> None:
        """Ends the calls that nobody waits for."""
        await self._late.close()

    def _refused(
        self,
        call: Call,
        route: Route,
        status: int,
        message: str,
        reason: str,
        notes: Mapping[str, Any] | None = None,
    ) -> Answer:
        self.world.log("COMBO", f"{route.asked}: {status} {message}")
        route.status, route.outcome = status, reason
        return error_answer(
            call.dialect, status, message, notes=notes, headers=[*stamps(route), NO_RETRY]
        )

    def _rename(self, call: Call, world: World) -> str | None:
        """Claude Code sends the reply's model back on resume, so messages callers see the name
        they asked for."""
        match world.settings.routing.reply_model:
            case "served":
                return None
            case "requested":
                return call.model
        return call.model if call.dialect.name == "messages" else None

    def _finished(self, answer: Answer, route: Route, world: World) -> Answer:
        """Books the route when the answer is closed."""
        answer.route = route
        book = answer.on_close

        def close() -> None:
            try:
                book()
            finally:
                self._finish(route, route.end, world)

        answer.on_close = close
        return answer

    def _finish(self, route: Route, outcome: str, world: World) -> None:
        route.outcome = outcome
        _account(route, route.attempts, world)
        route.ended = world.board.now()
        self._late.over(route, lambda news: self._amend(route, news, world))
        if world.traced:
            world.log("ROUTE", _summary(route))
        for book in self.books:
            book(route)

    def _amend(self, route: Route, news: list[Attempt | Skipped], world: World) -> None:
        """What was late has come to its end."""
        _account(route, [step for step in news if isinstance(step, Attempt)], world)
        route.revision += 1
        for book in self.amended:
            book(route, news)


def _summary(route: Route) -> str:
    usage, tries, took = route.usage, len(route.attempts), (route.ended or 0.0) - route.began
    return (
        f"{route.id} {route.asked} → {route.served or '-'}: {route.outcome},"
        f" {tries} attempt{'' if tries == 1 else 's'}, {usage.input} in, {usage.output} out,"
        f" {took:.2f} s"
    )


def _account(route: Route, attempts: list[Attempt], world: World) -> None:
    """What is kept of a route, and what these of its attempts cost."""
    if not world.settings.ledger.prompts:
        route.seal()
    for attempt in attempts:
        provider = world.registry.providers.get(attempt.provider)
        if provider is not None and attempt.usage is not None:
            prices = world.catalog.facts(provider, attempt.model).prices
            attempt.cost = cost_of(attempt.usage, prices)
