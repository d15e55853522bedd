"""A call becomes an answer: what its name means, in which order it is tried, and what is booked."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable

from krouter.adapter import Call
from krouter.answer import NO_RETRY, Answer, error_answer, stamps
from krouter.attempt import Failed
from krouter.combos import Combo
from krouter.costs import cost_of
from krouter.dialects.embeddings import EMBEDDINGS
from krouter.dialects.needs import needs
from krouter.dialects.session import session_key
from krouter.dialects.stored import stored_field
from krouter.errors import Failure
from krouter.fusion import Fusion
from krouter.late import Late
from krouter.lineup import Site, merged
from krouter.naming import LONGEST_NAME, UnknownModel, resolve
from krouter.no_answer import failure
from krouter.progress import Progress
from krouter.route import Attempt, End, Route, Skipped
from krouter.settings import ComboTimeouts
from krouter.standing import plan_for
from krouter.unanswerable import Unanswerable, unanswerable
from krouter.walk import Walk
from krouter.world import Ask, World

KEPT_ROUTES = 1000
MOST_KEPT = 256 << 10
"""Bytes of a request that a record keeps, where it may keep any."""
SEEDS = 1 << 53


def new_route_id() -> str:
    """19 characters: 11 that sort by time to the millisecond, then 40 random bits."""
    chance = random.getrandbits(64).to_bytes(8).translate(_BASE32).decode()
    return f"{int(time.time() * 1000):011x}{chance}"


_BASE32 = b"abcdefghijklmnopqrstuvwxyz234567" * 8
"""A character for each byte."""


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
        except UnknownModel as unknown:
            return self._refused(call, route, Unanswerable(404, str(unknown), End.UNKNOWN_MODEL))
        stored = stored_field(call.dialect.name, call.body)
        if why := unanswerable(call, destination, stored, world):
            return self._refused(call, route, why)
        combo = _timed(destination.combo, call) if destination.direct else destination.combo
        ask = _ask(call, world)
        plan = plan_for(combo, world, ask, adapted=not stored)
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

    def _refused(self, call: Call, route: Route, why: Unanswerable) -> Answer:
        self.world.log("COMBO", f"{route.asked}: {why.status} {why.message}")
        route.status, route.outcome = why.status, why.reason
        headers = [*stamps(route), NO_RETRY]
        return error_answer(call.dialect, why.status, why.message, notes=why.notes, headers=headers)

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
            world.log("ROUTE", summary(route))
        for book in self.books:
            book(route)

    def _amend(self, route: Route, news: list[Attempt | Skipped], world: World) -> None:
        """What was late has come to its end."""
        _account(route, [step for step in news if isinstance(step, Attempt)], world)
        route.revision += 1
        for book in self.amended:
            book(route, news)


def summary(route: Route) -> str:
    """What the log says of a request that is over."""
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
