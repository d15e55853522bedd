"""The panel of a fusion: all its entries are asked at once, each without tools, and waited for
until enough have answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from krouter.adapter import Call
from krouter.answer import Answer
from krouter.dialects.toolless import TOOL_FIELDS, without_tools
from krouter.dialects.visible import visible_text
from krouter.errors import Failure, Fault
from krouter.lineup import Site
from krouter.plan import Step
from krouter.quorum import Quorum, collect
from krouter.room import full_accounts
from krouter.route import End, Route
from krouter.voices import Asked, Voices
from krouter.wire import Headers

Linger = Callable[[Route, Sequence[asyncio.Task["Member"]]], None]
"""Is told of the calls of a route that run on though nobody waits for them."""

_WORDS: Mapping[str, str] = {
    End.NO_TEXT: "empty",
    Failure.EMPTY_REPLY: "empty",
    Failure.TIMED_OUT: "timeout",
    End.UNREADABLE: "unreadable",
}


@dataclass(slots=True, eq=False)
class Member:
    """One of the panel, and what it has answered. `text` is empty unless that can be used."""

    step: Step
    asked: Asked
    answer: Answer | None = None
    text: str = ""

    @property
    def entry(self) -> str:
        return self.step.entry.model

    @property
    def why_not(self) -> str:
        """Why there is no text, in a word or two."""
        outcome, route = self.asked.voice.outcome, self.asked.strand
        if outcome in _WORDS or self.answer is None:
            return _WORDS.get(outcome, outcome)
        if route.attempts or not route.skips:
            return f"{self.answer.status} {outcome}"
        reasons = (f"{s.reason}{f' ({s.detail})' if s.detail else ''}" for s in route.skips)
        return ", ".join(dict.fromkeys(reasons))


class Panel:
    """Asks once."""

    def __init__(self, voices: Voices, linger: Linger) -> None:
        self._voices = voices
        self._linger = linger
        self._dialect = voices.progress.call.dialect.name
        self._calls: dict[asyncio.Task[Member], Member] = {}
        tuning = voices.combo.fusion_tuning
        self.quorum = Quorum(
            len(voices.site.plan.steps),
            tuning.min_panel,
            tuning.straggler_grace_ms / 1000,
            tuning.panel_hard_timeout_ms / 1000,
            asyncio.get_running_loop().time(),
        )

    async def ask(self) -> list[Member]:
        """Every member in the panel's order, with what it has answered in time."""
        voices, plan = self._voices, self._voices.site.plan
        call = voices.progress.call
        body = without_tools(self._dialect, call.body)
        copy = structs.replace(call, body=body, headers=_whole(call.headers), stream=False)
        voices.say(f"asks {len(plan.steps)}: {', '.join(s.entry.model for s in plan.steps)}")
        members = [self._member(place, step, copy) for place, step in plan.placed()]
        calls = [asyncio.create_task(self._hear(member)) for member in members]
        self._calls = dict(zip(calls, members, strict=True))
        now = asyncio.get_running_loop().time
        try:
            heard = await collect(calls, self.quorum, self._take_in, now)
        finally:
            self._leave(calls)
        for member in (each for each in members if each not in heard):
            is_late = self.quorum.reached is not None
            member.asked.voice.outcome = End.LATE if is_late else Failure.TIMED_OUT
            voices.progress.wait_helps(voices.now())
            voices.say(f"{member.entry} is not waited for any longer")
        return members

    def _member(self, place: int, step: Step, copy: Call) -> Member:
        # an entry's parameters go by the names of chat, whatever its callers speak
        left_out = TOOL_FIELDS["chat"] | TOOL_FIELDS.get(self._dialect, frozenset())
        part = replace(self._voices.part, is_copy=True, left_out=left_out | {"stream"})
        return Member(step, self._voices.ask("panel", step.entry.model, place, copy, part))

    async def _hear(self, member: Member) -> Member:
        """Whatever comes of it; raises nothing but CancelledError."""
        voices, asked = self._voices, member.asked
        try:
            member.answer = await voices.run(asked, voices.site.alone(asked.voice.place))
        except asyncio.CancelledError:
            voices.call_off(asked)
            raise
        finally:
            voices.end(asked)
        return member

    def _take_in(self, member: Member) -> bool:
        """Reads what one has answered; whether it can be used."""
        voice, answer, quorum = member.asked.voice, member.answer, self.quorum
        assert answer is not None
        final = member.asked.strand.final
        if answer.status >= 400 and final is not None and final.detail == Fault.GARBAGE:
            voice.outcome = End.UNREADABLE
        elif answer.status < 400:
            text = visible_text(self._dialect, answer.body)
            voice.length = None if text is None else len(text)
            member.text = text or ""
            mute = End.UNREADABLE if text is None else End.NO_TEXT
            voice.outcome = End.ANSWERED if text else mute
        took = (voice.ended or voice.began) - voice.began
        came = f"{len(member.text):,} characters" if member.text else member.why_not
        self._voices.say(f"{member.entry} after {took:.1f} s: {came}")
        is_enough = quorum.reached is None and quorum.usable + 1 == quorum.needed
        if member.text and is_enough and quorum.ended + 1 < quorum.size:
            rest = f"the rest have {quorum.grace:g} s more"
            self._voices.say(f"{quorum.needed} answers are enough; {rest}")
        return bool(member.text)

    def give_way(self, site: Site) -> None:
        """Late calls that hold the only places of whoever is asked next are called off: nobody
        waits for them."""
        late = {task: member for task, member in self._calls.items() if not task.done()}
        full = full_accounts(site, self._voices.progress) if late else frozenset()
        for task, member in late.items():
            held = {(each.provider, each.account) for each in member.asked.under_way()}
            if held & full:
                self._voices.say(f"{member.entry} is called off, since its place is needed")
                task.cancel()

    def _leave(self, calls: Sequence[asyncio.Task[Member]]) -> None:
        """What still runs is called off, or runs on for its record alone."""
        running = [call for call in calls if not call.done()]
        if self._voices.part.cancels:
            for call in running:
                call.cancel()
        if running:
            self._linger(self._voices.progress.route.whole, running)


def _whole(headers: Headers) -> Headers:
    """Without a wish for events: a copy is not streamed."""
    return [h for h in headers if not (h[0] == "accept" and "event-stream" in h[1].lower())]
