"""Whom a fusion asks. Each call is a request of its own: a `Voice` and a `Strand` of the route to
record it, and a `Progress` for the walk that makes it, which a `Part` tells what it is for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from msgspec import structs

from krouter.adapter import Call
from krouter.answer import Answer, described
from krouter.errors import Failure
from krouter.headers import IDEMPOTENCY_KEY
from krouter.lineup import Site
from krouter.no_answer import error_for
from krouter.progress import Part, Progress
from krouter.route import Attempt, End, Role, Route, Strand, Voice

_log = logging.getLogger("krouter")

RunWalk = Callable[[Progress, Site], Awaitable[Answer]]
"""Runs the entries of a site in order."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One entry that is asked, and how far that has come."""

    voice: Voice
    strand: Strand
    progress: Progress

    @property
    def attempts(self) -> list[Attempt]:
        """Those of the voices of its own panel too."""
        return self.strand.whole.attempts_of(self.strand.voice)

    def under_way(self) -> list[Attempt]:
        """Its attempts that have not ended."""
        return [each for each in self.attempts if each.ended is None]


class Voices:
    """The calls of one fusion, that `site` is the place of, for the walk or the caller `outer`."""

    def __init__(self, outer: Progress, site: Site, walk: RunWalk) -> None:
        self.site = site
        self.combo = site.plan.combo
        self._outer = outer
        self._walk = walk
        around = outer.part or Part("", _key_of(outer), is_copy=False)
        late = self.combo.fusion_tuning.late_calls
        self.part = replace(around, cancels=around.cancels or late == "cancel")
        """What the fusion itself is a part of."""
        self.progress = self._progress(outer.route, outer.call, self.part)
        """Of what the fusion itself says."""

    def ask(self, role: Role, entry: str, place: int, call: Call, part: Part) -> Asked:
        """Begins to ask; a copy of the request is never heard by the caller."""
        voice = Voice(role, entry, self.now(), place)
        strand = self.progress.route.strand(voice, heard=not part.is_copy)
        name = f"{role} {'.'.join(map(str, (*self.site.outer, place)))}"
        return Asked(voice, strand, self._progress(strand, call, replace(part, name=name)))

    async def run(self, asked: Asked, site: Site) -> Answer:
        """Whatever comes of it."""
        return await self._come(asked, self._walk(asked.progress, site))

    async def run_on(self, asked: Asked, walk: Callable[[], Awaitable[Answer]]) -> Answer:
        """Whatever comes of it once it goes on after its end."""
        asked.voice.outcome = asked.strand.outcome = End.UNDER_WAY
        asked.voice.ended = None
        return await self._come(asked, walk())

    async def _come(self, asked: Asked, walk: Awaitable[Answer]) -> Answer:
        """A fault of ours must not cost the caller the other voices."""
        try:
            return await walk
        except Exception as error:
            _log.error("a call of a fusion failed with %s\n%s", *described(error))
            asked.strand.outcome = End.KROUTER_FAILED
            return error_for(asked.progress, 500, f"krouter failed with {type(error).__name__}.")

    def end(self, asked: Asked, outcome: str = "") -> None:
        """It is over, whoever still waited for it."""
        asked.voice.ended = self.now()
        if asked.voice.outcome == End.UNDER_WAY:
            asked.voice.outcome = outcome or asked.strand.end

    def call_off(self, asked: Asked) -> None:
        """Nobody has hung up: its answer is not wanted any more."""
        if asked.voice.outcome == End.UNDER_WAY:
            asked.voice.outcome = End.CALLED_OFF
        for attempt in asked.strand.attempts:
            if attempt.outcome == Failure.CALLER_GONE:
                attempt.outcome = End.CALLED_OFF

    def now(self) -> float:
        return self._outer.world.board.now()

    def say(self, line: str) -> None:
        self._outer.world.log("FUSION", f"{self.combo.name}: {line}")

    def _progress(self, route: Route, call: Call, part: Part) -> Progress:
        outer = self._outer
        ask = structs.replace(outer.ask, stream=call.stream)
        return Progress(
            call,
            outer.world,
            route,
            outer.deadline,
            outer.rename,
            ask,
            part,
            secrets=outer.secrets,
        )


def _key_of(progress: Progress) -> str:
    """What the idempotency keys of this request are made from."""
    given = (value for name, value in progress.call.headers if name == IDEMPOTENCY_KEY)
    return next(given, progress.route.id)
