"""Fusion: every entry of a panel is asked at once, and a judge writes one answer out of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs

from krouter.adapter import Call
from krouter.answer import Answer
from krouter.attempt import Failed
from krouter.body import dump
from krouter.combos import Entry
from krouter.dialects.base import Kind
from krouter.dialects.counted import Counted
from krouter.dialects.replay import as_stream
from krouter.dialects.turns import with_turn
from krouter.dialects.visible import visible_text
from krouter.errors import Evidence, Failure, Fault
from krouter.errortext import read_error, without_echo
from krouter.headers import stream_to_caller
from krouter.judging import judge_message, refuses_two_turns
from krouter.lineup import Site
from krouter.no_answer import error_for
from krouter.panel import Linger, Member, Panel
from krouter.progress import Progress
from krouter.room import out_of_question, room_for_answers
from krouter.route import End, Role
from krouter.stream import Relay
from krouter.verdict import classify
from krouter.voices import Asked, RunWalk, Voices
from krouter.wire import Canned


@dataclass(frozen=True, slots=True)
class Spoken:
    """What came of whoever was to answer the caller. `dropped` is what the caller's answer came
    without before."""

    answer: Answer
    asked: Asked
    dropped: list[str]

    @property
    def is_held(self) -> bool:
        """Whether it is an empty reply, which was held back until nobody else could be asked."""
        return self.answer is self.asked.progress.held

    def take_back(self) -> None:
        """The caller is not given it, since there is nothing in it."""
        strand = self.asked.strand
        strand.dropped[:] = self.dropped
        if strand.answered is not None:
            strand.answered.seen = False

    def give_back(self) -> None:
        """The caller is given it all the same."""
        strand = self.asked.strand
        if strand.answered is not None:
            strand.answered.seen = strand.heard
            strand.name_dropped(strand.answered)


class Fusion:
    """One request, or one entry of a walk, answered by the combo that `site` is the place of."""

    def __init__(self, progress: Progress, site: Site, walk: RunWalk, linger: Linger) -> None:
        self._voices = Voices(progress, site, walk)
        self._panel = Panel(self._voices, linger)
        self._outer = progress
        self._progress = self._voices.progress
        self._combo = site.plan.combo
        self._tuning = site.plan.combo.fusion_tuning
        self._say = self._voices.say

    async def answer(self) -> Answer | Failed:
        """The answer of the judge, or of whoever answers in its place; else why there is none."""
        size, most = len(self._voices.site.plan.steps), self._tuning.max_panel
        if size > most:
            message = (
                f"The panel of {self._combo.name!r} is too large: it has {size} entries, and"
                f" maxPanel allows {most}."
            )
            return self._error(400, message, End.PANEL_TOO_LARGE)
        if missing := self._judge_missing():
            return self._error(503, missing, End.NOTHING_SENT)
        members = await self._panel.ask()
        usable = [member for member in members if member.text]
        if fault := self._too_few(members, usable):
            for member in members:
                self._progress.wait_helps(member.asked.progress.ready_at)
            return self._error(503, fault, End.PANEL_FAILED, members)
        if len(usable) > 1:
            return await self._judge(members, usable)
        return await self._single(members, usable[0])

    def _judge_missing(self) -> str:
        """Why the named judge cannot be asked at all, and nobody else would answer in its place;
        it is looked at before the panel has cost anything."""
        name = self._combo.judge_name
        if name is None or self._tuning.on_judge_failure == "best":
            return ""
        site = self._instead(Entry.model_construct(model=name), "the judge")
        found = out_of_question(site, self._progress)
        if not found:
            return ""
        return f"The judge of {self._combo.name!r} cannot be asked, so the panel was not: {found}."

    def _too_few(self, members: Sequence[Member], usable: Sequence[Member]) -> str:
        """Why the answers do not do; empty where they do."""
        needed = self._panel.quorum.needed
        if len(usable) >= needed or (usable and not self._tuning.require_quorum):
            return ""
        reasons = "; ".join(f"{m.entry}: {m.why_not}" for m in members if not m.text)
        if not usable:
            return f"All fusion panel models failed: {reasons}."
        return (
            f"Too few fusion panel models answered: {len(usable)}, and requireQuorum asks for"
            f" {needed}. {reasons}."
        )

    async def _judge(self, members: Sequence[Member], usable: Sequence[Member]) -> Answer | Failed:
        """One answer out of the usable ones."""
        entry = self._judge_entry(members, usable)
        site, call = self._instead(entry, "the judge"), self._progress.call
        room = room_for_answers(site, self._progress, self._tuning.judge_prompt or "")
        texts, mark = [member.text for member in usable], self._progress.world.mark()
        message = judge_message(texts, mark, room, self._tuning.judge_prompt)
        self._note_lengths(usable, message.lengths)
        self._say(f"{entry.model} judges {len(usable)}, {sum(message.lengths):,} characters")
        body = with_turn(call.dialect.name, call.body, message.text)
        spoken = await self._speak("judge", site, structs.replace(call, body=body))
        if self._wants_one_turn(spoken):
            joined = with_turn(call.dialect.name, call.body, message.text, join=True)
            if joined.raw != body.raw:
                self._say(f"{entry.model}: again, with the answers in the last turn of the user")
                spoken = await self._speak("judge", site, structs.replace(call, body=joined))
        return self._passed_on(spoken, usable, message.text)

    def _judge_entry(self, members: Sequence[Member], usable: Sequence[Member]) -> Entry:
        """The one that is named; else the first of the panel, or, where that gave no answer, the
        first that did."""
        if name := self._combo.judge_name:
            return Entry.model_construct(model=name)
        first = members[0]
        return (first if first in usable else usable[0]).step.entry

    def _note_lengths(self, usable: Sequence[Member], lengths: Sequence[int]) -> None:
        for member, length in zip(usable, lengths, strict=True):
            voice = member.asked.voice
            voice.given = length
            if voice.length and length < voice.length:
                self._progress.route.notes.append(
                    f"the answer of {voice.entry} was shortened for the judge, from"
                    f" {voice.length} to {length} characters"
                )

    def _wants_one_turn(self, spoken: Spoken) -> bool:
        """Whether it was refused because the user has two turns in a row."""
        last = spoken.asked.progress.last
        if spoken.answer.status < 400 or last is None:
            return False
        raw = self._progress.call.body.raw
        return refuses_two_turns(without_echo(last.verdict.message, raw))

    async def _single(self, members: Sequence[Member], only: Member) -> Answer | Failed:
        """Exactly one usable answer."""
        match self._tuning.on_single:
            case "return":
                return self._best([only])
            case "judge" if self._combo.judge_name:
                return await self._judge(members, [only])
        self._say(f"only {only.entry} has answered, and is asked again")
        site = self._instead(only.step.entry, "the only one to answer")
        return self._passed_on(await self._speak("again", site, self._progress.call), [only])

    def _instead(self, entry: Entry, reason: str) -> Site:
        return self._voices.site.instead(entry, reason)

    async def _speak(self, role: Role, site: Site, call: Call) -> Spoken:
        """Asks one for what the caller is to have."""
        voices, dialect = self._voices, Counted(call.dialect)
        entry = site.plan.steps[0].entry.model
        asked = voices.ask(role, entry, 0, structs.replace(call, dialect=dialect), voices.part)
        self._panel.give_way(site)
        return await self._heard(asked, dialect, voices.run(asked, site))

    async def _heard(self, asked: Asked, dialect: Counted, run: Awaitable[Answer]) -> Spoken:
        voices, dropped = self._voices, list(asked.strand.dropped)
        try:
            answer = await run
        except asyncio.CancelledError:
            if voices.part.is_copy:
                voices.call_off(asked)
            voices.end(asked, Failure.CALLER_GONE)
            raise
        spoken = Spoken(answer, asked, dropped)
        if answer.relay is None:
            voices.end(asked)
            if answer.status < 400:
                text = visible_text(dialect.name, answer.body)
                asked.voice.length = None if text is None else len(text)
            return spoken
        if spoken.is_held:
            voices.end(asked)
            asked.voice.length = dialect.length
            return spoken
        book = answer.on_close

        def close() -> None:
            try:
                book()
            finally:
                asked.voice.length = dialect.length
                voices.end(asked)

        answer.on_close = close
        return spoken

    def _passed_on(
        self, spoken: Spoken, usable: Sequence[Member], told: str = ""
    ) -> Answer | Failed:
        """What has come of the judge, which was `told` so, or of the one that was asked again."""
        answer, asked = _unquoted(spoken, told) if told else spoken.answer, spoken.asked
        if self._tuning.on_judge_failure == "best" and self._is_failure(spoken):
            if answer.status < 400:
                spoken.take_back()
                asked.voice.outcome = End.NO_TEXT
            self._say(f"no answer ({asked.voice.outcome}): the longest of the panel is")
            return self._best(usable)
        if answer.status >= 400:
            self._say(f"no answer: {answer.status} {asked.strand.end}")
            self._progress.wait_helps(asked.progress.ready_at)
            failed = self._failed(answer, asked.strand.end)
            if asked.progress.as_last is not None:
                failed.as_last = partial(self._as_last, asked, usable, told)
            return failed
        if spoken.is_held and not self._voices.site.last:
            return self._held_back(spoken)
        return self._given(spoken)

    async def _as_last(self, asked: Asked, usable: Sequence[Member], told: str) -> Answer | Failed:
        """Nothing after the fusion could be asked, so that whoever refused a feature as one of
        several is asked as the last."""
        walk, dialect = asked.progress.as_last, asked.progress.call.dialect
        assert walk is not None
        assert isinstance(dialect, Counted)
        spoken = await self._heard(asked, dialect, self._voices.run_on(asked, walk))
        return self._passed_on(spoken, usable, told)

    def _held_back(self, spoken: Spoken) -> Failed:
        """An empty reply, while something follows the fusion: the caller's if none of that can be
        sent."""
        spoken.take_back()
        ended = spoken.asked.strand.end
        self._say(f"no answer: {ended}")
        verdict = classify(Evidence(None, fault=Fault.EMPTY), b"", self._voices.now())

        def hand_over() -> Answer:
            spoken.give_back()
            return self._given(spoken)

        return Failed(verdict, held=spoken.answer, ended=ended, hand_over=hand_over)

    def _given(self, spoken: Spoken) -> Answer:
        """The caller is given it."""
        answer, strand, route = spoken.answer, spoken.asked.strand, self._progress.route
        self._say(f"{strand.served} answers")
        route.take_on(strand)
        route.status = answer.status
        if answer.relay is None:
            route.outcome = strand.end
        return answer

    def _is_failure(self, spoken: Spoken) -> bool:
        answer = spoken.answer
        if answer.relay is not None:
            return spoken.is_held
        read = self._progress.call.dialect.read_reply
        return answer.status >= 400 or read(answer.body).kind is Kind.EMPTY

    def _best(self, usable: Sequence[Member]) -> Answer:
        """The longest answer of the panel, as a stream for a caller that asked for one."""
        best = max(usable, key=lambda member: len(member.text))
        answer, strand, route = best.answer, best.asked.strand, self._progress.route
        assert answer is not None
        route.take_on(strand)
        if strand.answered is not None and not self._voices.part.is_copy:
            strand.answered.seen = True
            route.name_dropped(strand.answered)
        route.status, route.outcome = 200, End.ANSWERED
        self._say(f"the answer of {best.entry} is returned")
        call = self._progress.call
        if not call.stream:
            return answer
        raw = as_stream(call.dialect.name, answer.body, call.body)
        tracker = call.dialect.tracker(call.body, self._progress.rename)
        relay = Relay(Canned(200, "text/event-stream", iter((raw,))), tracker, None)
        relay.closing = lambda: call.dialect.ending(tracker)
        headers = [*stream_to_caller(answer.headers), *self._progress.stamps()]
        return Answer(200, headers, b"", relay)

    def _error(
        self, status: int, message: str, outcome: str, asked: Sequence[Member] = ()
    ) -> Failed:
        self._say(f"{status} {message}")
        failed = self._failed(error_for(self._progress, status, message), outcome)
        failed.is_sent = any(member.asked.attempts for member in asked)
        return failed

    def _failed(self, answer: Answer, outcome: str) -> Failed:
        """To a combo around this one it is the failure of an entry."""
        text, _ = read_error(answer.body)
        verdict = classify(Evidence(answer.status, text), b"", self._voices.now())
        self._outer.wait_helps(self._progress.ready_at)
        return Failed(verdict, fused=answer, ended=outcome)


def _unquoted(spoken: Spoken, message: str) -> Answer:
    """An error that quotes what the judge was told is the caller's without that."""
    last = spoken.asked.progress.last
    if spoken.answer.status < 400 or last is None or last.fused is not None:
        return spoken.answer
    said = last.verdict.message
    left = without_echo(said, dump(message))
    if left == said[: len(left)]:
        return spoken.answer
    return error_for(spoken.asked.progress, spoken.answer.status, left, replace(last, told=None))
