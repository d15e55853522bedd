"""How many tokens a request is: the provider is asked where it counts them, else it is estimated.

Counting is no request for an answer: it turns no rotation, sets no lock, takes no account's place,
and leaves no route and nothing in the ledger.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec.structs import replace

from krouter.adapter import Call, Target, Tokenizer, Unsendable, load_tokenizer
from krouter.answer import NO_RETRY, Answer, described, error_answer
from krouter.body import Body
from krouter.dialects.base import UNREADABLE
from krouter.dialects.needs import needs
from krouter.dialects.stored import stored_field
from krouter.estimate import by_characters, countable
from krouter.lineup import Candidate, Obstacle, Site, candidates, leaves
from krouter.naming import Destination, UnknownModel, resolve
from krouter.progress import Progress
from krouter.route import Route, plain
from krouter.router import Router
from krouter.secrets import SecretError
from krouter.sendable import secret_for, sendable
from krouter.standing import plan_for
from krouter.wire import Incoming, WireError
from krouter.world import Ask, World

PROVIDER_SECONDS = 5.0
"""How long a provider may take to count."""
MOST_TEXT = 4 << 20
"""Characters that are counted; of a longer text the rest counts like these."""
MOST_REPLY = 1 << 20
ESTIMATE = "estimate"

_log = logging.getLogger("krouter")


class _Counted(msgspec.Struct):
    input_tokens: int


_KIND = {"responses": {"object": "response.input_tokens"}}
"""What a count has beside the number."""
_TAILS = {"messages": "/count_tokens", "responses": "/input_tokens"}
_counted = msgspec.json.Decoder(_Counted).decode


class TokenCounts:
    """Answers token counts as `Router` answers requests. Estimates are made one at a time, in a
    thread of their own, so that a burst of them holds up nothing."""

    def __init__(
        self, router: Router, load: Callable[[], Tokenizer | None] = load_tokenizer
    ) -> None:
        self._router = router
        self._load = load
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="krouter-tokens")

    @property
    def world(self) -> World:
        return self._router.world

    async def answer(
        self,
        call: Call,
        world: World | None = None,
        began: Callable[[Route], object] = lambda route: None,
    ) -> Answer:
        """`{"input_tokens": n}`, or an error in the caller's dialect. `x-krouter-counted` says who
        has counted: an entry, or nobody where it is an estimate."""
        world = world or self._router.world
        try:
            destination = resolve(call.model, world)
        except UnknownModel as unknown:
            return error_answer(call.dialect, 404, str(unknown), headers=[NO_RETRY])
        if field := stored_field(call.dialect.name, call.body):
            message = f"{field!r} rests on what a provider has stored, which krouter cannot count."
            return error_answer(call.dialect, 400, message, headers=[NO_RETRY])
        by, count = await self._told(call, destination, world) or (ESTIMATE, None)
        if count is None:
            running = asyncio.get_running_loop()
            count = await running.run_in_executor(self._threads, self._estimate, call.body)
        world.log("COUNT", f"{call.model}: {count} tokens ({by})")
        headers = [("content-type", "application/json"), ("x-krouter-counted", plain(by))]
        told = {**_KIND.get(call.dialect.name, {}), "input_tokens": count}
        return Answer(200, headers, msgspec.json.encode(told))

    async def _told(
        self, call: Call, destination: Destination, world: World
    ) -> tuple[str, int] | None:
        """What the provider of the first usable entry counts, and that entry's name."""
        progress = _progress(call, world)
        try:
            async with asyncio.timeout(PROVIDER_SECONDS):
                candidate = _first(destination, progress)
                if candidate is None or not _counts(candidate):
                    return None
                return candidate.leaf.name, await _asked(progress, candidate)
        except (SecretError, WireError, Unsendable, TimeoutError, *UNREADABLE) as error:
            world.log("COUNT", f"{call.model}: no provider counts it ({type(error).__name__})")
        except Exception as error:  # an estimate is better than none
            _log.error("counting tokens failed with %s\n%s", *described(error))
        return None

    def _estimate(self, body: Body) -> int:
        text, fixed = countable(body)
        sample = text[:MOST_TEXT]
        counted = self._count(sample)
        return max(1, fixed + round(counted * len(text) / max(1, len(sample))))

    def _count(self, text: str) -> int:
        tokenizer = self._load()
        if tokenizer is not None:
            try:
                return tokenizer.count(text)
            except OSError as error:
                _log.warning("tokens are counted by characters: %s", error)
        return by_characters(text)


def _progress(call: Call, world: World) -> Progress:
    """What a walk would know of the request, over a route that nobody keeps."""
    ask = Ask(
        call.dialect.name,
        False,
        needs(call.dialect.name, call.body),
        world.board.turns.peek,
        world.pool.turns.peek,
    )
    route = Route("", world.board.now(), call.dialect.name, call.model, False)
    deadline = asyncio.get_running_loop().time() + PROVIDER_SECONDS
    return Progress(call, world, route, deadline, None, ask)


def _first(destination: Destination, progress: Progress) -> Candidate | None:
    """The account that a request would be sent to first, locked ones aside."""
    world, ask = progress.world, progress.ask
    plan = plan_for(destination.combo, world, ask, adapted=True)
    for leaf in leaves(Site((plan,), world.settings.timeouts), world, ask):
        found = leaf.obstacle or candidates(leaf, world, ask)
        if isinstance(found, Obstacle):
            continue
        for candidate in found:
            if progress.blocked(candidate) is None:
                return candidate
    return None


def _counts(candidate: Candidate) -> bool:
    """Only the native lane knows what stands behind an endpoint."""
    return candidate.provider.counts_tokens and candidate.lane.name == "native"


async def _asked(progress: Progress, candidate: Candidate) -> int:
    """Raises WireError, SecretError and what the decoder raises."""
    secret = await secret_for(progress, candidate)
    send = sendable(progress, candidate, frozenset())
    account = candidate.account
    auth = "bearer" if account.auth == "caller" else account.auth
    target = Target(candidate.provider, candidate.model, secret, auth)
    call = replace(send.call, tail=_TAILS[send.call.dialect.name], stream=False)
    reply = await candidate.lane.send(call, target, progress.world.wire)
    try:
        return _read(reply, await reply.read(MOST_REPLY))
    finally:
        reply.close()


def _read(reply: Incoming, raw: bytes) -> int:
    if reply.status != 200:
        raise Unsendable(f"status {reply.status}")
    return _counted(raw).input_tokens
