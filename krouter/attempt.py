"""One call to one account: send it, time it, read the reply, say what came of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import Struct

from krouter.adapter import Adapter, Call, Target, Unsendable
from krouter.answer import Answer, described
from krouter.blot import blotted, blotted_text
from krouter.board import Board, Ticket
from krouter.body import Body
from krouter.combos import StreamGuard
from krouter.dialects.base import Kind, Tracker
from krouter.dialects.gemini_params import gemini_params
from krouter.error_table import ROW_OF
from krouter.errors import Evidence, Failure, Fault, Verdict
from krouter.errortext import ErrorText, read_error
from krouter.features import Feature
from krouter.headers import stream_to_caller, to_caller
from krouter.image_refusals import refuses_images_itself
from krouter.limit import Limit
from krouter.pool import Pool
from krouter.refusals import kept_detail, refused_features, refuses_images
from krouter.route import Attempt, End, Route
from krouter.settings import Timeouts
from krouter.stream import BYTES_A_TOKEN, MOST_HELD, Relay
from krouter.verdict import classify
from krouter.wire import Headers, Incoming, Wire, WireError

MOST_REPLY = 64 << 20
"""Bytes of a JSON reply; a longer one is no answer."""
MOST_ERROR = 1 << 20
ERROR_SECONDS = 5.0
"""How long to wait for the body of an error whose status has come."""

_log = logging.getLogger("krouter")


@dataclass(slots=True)
class Failed:
    """An attempt that gave no answer. `held` is an empty reply, in case nothing else can be had."""

    verdict: Verdict
    told: Any = None
    headers: Headers | None = None
    held: Answer | None = None
    secret: str | None = field(default=None, repr=False)
    """The credential that was sent."""
    total_spent: bool = False
    """The request's own deadline ended it, not the attempt's."""
    own_words: bool = False
    """That the model takes no images is said in words that do not stand in the request."""
    features: tuple[Feature, ...] = ()
    """Optional features of the request that the provider refuses."""
    fused: Answer | None = None
    """The error of a nested fusion, of which `ended` tells what came."""
    ended: str = ""
    is_sent: bool = True
    """Whether anything was sent, which a nested fusion may fail without."""
    hand_over: Callable[[], Answer] | None = None
    """Books `held`, if that is of a nested fusion, as what the caller is given."""
    as_last: Callable[[], Awaitable[Answer | Failed]] | None = None
    """Asks whoever refused a feature inside a nested fusion again, as the last there is."""


class Limits(Struct, frozen=True):
    """How long this attempt may take, in seconds, until its reply begins; `left` is what the whole
    request has left."""

    timeouts: Timeouts
    attempt: float | None
    left: float


class Trial(Struct, eq=False):
    """One attempt under way. `last` says that no other entry follows; `rename` is the model name
    the caller is to see, where it is not the provider's own; `dropped` is what has been taken out
    of the call; `session` tells its conversation, if that matters."""

    call: Call
    target: Target
    lane: Adapter
    wire: Wire
    board: Board
    route: Route
    note: Attempt
    ticket: Ticket
    limits: Limits
    last: bool
    rename: str | None
    pool: Pool
    dropped: tuple[str, ...] = ()
    session: str = ""
    secrets: frozenset[str] = frozenset()
    """What must not come back: the credentials that the request has used or carried."""
    guard: StreamGuard = "off"
    """How much of a stream must have come before the caller gets any of it."""
    callers_own: bool = False
    """The credential is the caller's: what befalls it says nothing about other callers."""

    async def run(self) -> Answer | Failed:
        """Sends, and reads until the reply can be passed on. The ticket is given back here, or,
        for a stream, when the answer is closed."""
        outcome: Answer | Failed | None = None
        total = Limit(self.limits.left)
        try:
            with total:
                await self.lane.ready()
                outcome = await (self._stream() if self.call.stream else self._whole())
                return outcome
        except asyncio.CancelledError:
            self._caller_gone()
            raise
        except WireError as error:
            return self._failed(error.fault, error.detail)
        except Unsendable as error:
            told = ErrorText(blotted_text(str(error), self.secrets))
            if error.reply:
                self.note.usage = self.call.dialect.read_reply(error.reply).usage
            return self._noted(Evidence(None, told, Fault.UNSENDABLE), True)
        except TimeoutError:
            return self._timed_out(total.expired)
        except Exception as error:  # a fault of ours must not cost the caller the other entries
            _log.error("the %s lane failed with %s\n%s", self.lane.name, *described(error))
            detail = f"krouter failed with {type(error).__name__}"
            return self._failed(Fault.GARBAGE, detail, lock=False)
        finally:
            if not (isinstance(outcome, Answer) and outcome.relay):
                self.board.end(self.ticket)

    def _timed_out(self, total_spent: bool) -> Failed:
        """The request's own deadline says nothing about the account, so it locks nothing."""
        failed = self._failed(Fault.TIMEOUT, "", lock=not total_spent)
        failed.total_spent = total_spent
        return failed

    async def _whole(self) -> Answer | Failed:
        with Limit(self.limits.attempt) as timer:
            reply = await self._sent()
            try:
                self._first_byte()
                if not 200 <= reply.status < 300:
                    return await self._refused(reply, timer)
                raw = await reply.read(MOST_REPLY)
            finally:
                reply.close()
        return self._judged(reply, raw)

    async def _sent(self) -> Incoming:
        reply = await self.lane.send(self.call, self.target, self.wire)
        self._note_dropped(reply)
        ticket = self.ticket
        if not self.callers_own:
            self.pool.quota.heard(ticket.provider, ticket.account, ticket.model, reply.headers)
        return reply

    def _note_dropped(self, reply: Incoming) -> None:
        self.note.dropped = (*self.dropped, *reply.dropped)

    def _succeeded(self, signatures: Sequence[str]) -> None:
        self.board.succeed(self.ticket)
        if signatures:
            self.board.makers.note(self.target.provider.maker, signatures)
        provider, account = self.ticket.provider, self.ticket.account
        first_byte = self.note.first_byte
        waited = first_byte - self.note.began if self.call.stream and first_byte else None
        self.pool.health.succeed(provider, account, waited)
        if self.session:
            self.pool.sessions.bind(self.session, provider, account)
        self._end(End.ANSWERED)

    def _judged(self, reply: Incoming, raw: bytes) -> Answer | Failed:
        reading = self.call.dialect.read_reply(raw)
        self.note.usage = reading.usage
        match reading.kind:
            case Kind.ERROR:
                return self._failed_inside(reading.error)
            case Kind.GARBAGE:
                return self._failed(Fault.GARBAGE, "")
        if reading.usage is None and self.call.dialect.name != "embeddings":
            self.note.came = len(raw) // BYTES_A_TOKEN
        answer = self._answer(reply, raw if reading.shown is None else reading.shown)
        if reading.kind is Kind.EMPTY and not self.last:
            failed = self._failed(Fault.EMPTY, "")
            failed.held = answer
            return failed
        self._succeeded(reading.signed)
        self._note_dropped(reply)  # with what the reply itself lost
        self.route.name_dropped(self.note)
        return answer

    def _answer(self, reply: Incoming, raw: bytes) -> Answer:
        if self.rename is not None:
            raw = self.call.dialect.rename_reply(raw, self.rename)
        return Answer(reply.status, to_caller(reply.headers, *self.secrets), raw)

    async def _stream(self) -> Answer | Failed:
        timeouts = self.limits.timeouts
        with (
            Limit(self.limits.attempt) as attempt,
            Limit(timeouts.first_token) as first_token,
            Limit(timeouts.first_byte) as first_byte,
        ):
            reply = await self._sent()
            tracker = self.call.dialect.tracker(self._asked(), self.rename)
            relay = Relay(reply, tracker, timeouts.stall, *self.secrets, quiet=timeouts.total)
            try:
                outcome = await self._primed(reply, relay, first_byte, first_token, attempt)
            except BaseException:
                self._note_usage(relay)
                relay.close()
                raise
        if isinstance(outcome, Failed):
            self.note.usage = self.note.usage or tracker.usage
            relay.close()
        return outcome

    def _asked(self) -> Body:
        """The body as its entry's parameters have it: they may set `n` or ask for usage."""
        body, params = self.call.body, self.target.params
        if params and self.call.dialect.name == "gemini":
            params = gemini_params(body, params)
        return Body.parse(body.edited(params)) if params else body

    async def _primed(
        self,
        reply: Incoming,
        relay: Relay,
        first: Limit,
        token: Limit,
        attempt: Limit,
    ) -> Answer | Failed:
        if not 200 <= reply.status < 300:
            self._first_byte()
            return await self._refused(reply, first, token, attempt)

        def first_byte() -> None:
            first.lift()
            self._first_byte()

        limited = self.limits.timeouts.first_token is not None
        waits = limited or self.guard != "off"
        await relay.prime(first_byte, _has_content if waits else _has_started)
        token.lift()
        if relay.primed and self._holds(relay.tracker) and not await relay.hold():
            self.route.notes.append(f"more than {MOST_HELD >> 20} MiB were not held back")
        return self._unusable(relay, reply) or self._streamed(relay, reply)

    def _holds(self, tracker: Tracker) -> bool:
        """Whether all of a stream is to come first: its guard says so, or it has ended with nothing
        in it and may yet be wanted, in case no other entry answers."""
        return self.guard == "full" or self._is_hollow(tracker)

    def _is_hollow(self, tracker: Tracker) -> bool:
        """A guard waits for content, unless no other entry is left to give any."""
        return self.guard != "off" and not tracker.has_content and not self.last

    def _unusable(self, relay: Relay, reply: Incoming) -> Failed | None:
        """Why a stream of which the caller has nothing yet failed; None for one that can go on."""
        tracker = relay.tracker
        if relay.primed and not (self.guard == "full" and (relay.broken or tracker.error)):
            return self._hollow(relay, reply) if self._is_hollow(tracker) else None
        if tracker.error:
            return self._failed_with(tracker.error_status, reply.headers, tracker.error)
        if relay.fault is not None:
            return self._failed(relay.fault, relay.detail)
        if tracker.started:
            return self._failed(Fault.CUT, "the stream ended before its time")
        if tracker.malformed:
            return self._failed(Fault.GARBAGE, "the first event is not of this dialect")
        return self._not_streamed(relay.body)

    def _hollow(self, relay: Relay, reply: Incoming) -> Failed:
        """A stream that is whole and says nothing: the caller's, if nothing else can be had."""
        failed = self._failed(Fault.EMPTY, "")
        relay.closing = lambda: self.call.dialect.ending(relay.tracker)
        headers = stream_to_caller(reply.headers, *self.secrets)
        failed.held = Answer(reply.status, headers, b"", relay)
        return failed

    def _not_streamed(self, raw: bytes) -> Failed:
        """No event has come: a JSON body in place of a stream, which may tell of an error, or
        nothing."""
        reading = self.call.dialect.read_reply(raw)
        self.note.usage = reading.usage
        match reading.kind:
            case Kind.ERROR:
                return self._failed_inside(reading.error)
            case Kind.GARBAGE:
                return self._failed(Fault.CUT, "the stream ended before it had begun")
        return self._failed(Fault.GARBAGE, "JSON in place of an event stream")

    def _streamed(self, relay: Relay, reply: Incoming) -> Answer:
        self._note_dropped(reply)
        self.route.name_dropped(self.note)
        relay.closing = lambda: self._closing(relay)
        headers = stream_to_caller(reply.headers, *self.secrets)
        return Answer(reply.status, headers, b"", relay, lambda: self._stream_over(relay, reply))

    def _closing(self, relay: Relay) -> bytes:
        """The last bytes of a stream: what its end still lacks, or an error event."""
        if not relay.broken:
            return self.call.dialect.ending(relay.tracker)
        verdict = self._failed(relay.fault or Fault.CUT, relay.detail).verdict
        notes = {"krouter_route": self.route.id}
        return self.call.dialect.error_event(verdict.status, verdict.message, notes, relay.tracker)

    def _stream_over(self, relay: Relay, reply: Incoming) -> None:
        """Books how a stream ended, and gives the ticket back whatever happens."""
        try:
            self._book(relay)
            self._note_dropped(reply)
            self.route.name_dropped(self.note)
        finally:
            self.board.end(self.ticket)

    def _book(self, relay: Relay) -> None:
        """A caller that leaves after the proper end has its answer."""
        tracker = relay.tracker
        self._note_usage(relay)
        if tracker.malformed:
            self.route.notes.append(f"{tracker.malformed} malformed events left out")
        if tracker.complete:
            self._succeeded(tracker.signed)
        elif tracker.error:
            self._failed_with(tracker.error_status, [], tracker.error)
        elif self.note.ended is None:
            self._caller_gone()

    def _note_usage(self, relay: Relay) -> None:
        """What the provider has told, and what has come where that is not all."""
        tracker, usage = relay.tracker, relay.tracker.usage
        self.note.usage = usage
        if usage is None or usage.partial or not tracker.complete:
            self.note.came = relay.came

    async def _refused(self, reply: Incoming, *timers: Limit) -> Failed:
        """The status has come, and it is what counts: the attempt's own limits end here."""
        for timer in timers:
            timer.lift()
        try:
            with Limit(ERROR_SECONDS):
                raw = await reply.read(MOST_ERROR)
        except (WireError, TimeoutError):
            raw = b""
        return self._failed_with(reply.status, reply.headers, raw)

    def _failed_with(self, status: int | None, headers: Headers, raw: bytes) -> Failed:
        """A failure the provider has told of in its own words, credentials blotted out."""
        text, told = read_error(blotted(raw, self.secrets))
        lowered = {name.lower(): value for name, value in headers}
        blind = refuses_images(text, self.call)
        features = refused_features(text, self.call) if status in (400, 422) else ()
        evidence = Evidence(status, text, None, lowered, told, blind, bool(features))
        failed = self._noted(evidence, lock=True)
        failed.features = features
        if blind:
            failed.own_words = refuses_images_itself(text.message, self.call.body.raw)
        failed.told, failed.headers = told, to_caller(headers, *self.secrets)
        return failed

    def _failed_inside(self, raw: bytes) -> Failed:
        """An error inside a 200: the provider's words, but no status of its own, so that it counts
        as garbage whatever they say."""
        text, _ = read_error(blotted(raw, self.secrets))
        return self._noted(Evidence(None, text, Fault.GARBAGE), lock=True)

    def _failed(self, fault: Fault, detail: str, *, lock: bool = True) -> Failed:
        failed = self._noted(Evidence(None, fault=fault), lock)
        if detail := blotted_text(detail, self.secrets):
            told = f"{failed.verdict.message.rstrip('.')} ({detail})."
            failed.verdict = replace(failed.verdict, message=told)
            self.note.detail = detail
        return failed

    def _noted(self, evidence: Evidence, lock: bool) -> Failed:
        verdict = classify(evidence, self.call.body.raw, self.board.now())
        self._end(verdict.failure)
        self.note.row, self.note.status = verdict.row, evidence.status
        self.note.detail = kept_detail(evidence, whole=self.route.request is not None)
        if lock and not self.callers_own:
            self.note.lock = self.board.fail(self.ticket, verdict)
            if self.note.lock and verdict.lock:
                self.note.locked = verdict.lock.scope.replace("+", " and ")
            self.pool.health.fail(self.ticket.provider, self.ticket.account, verdict.failure)
        return Failed(verdict, secret=self.target.secret)

    def _first_byte(self) -> None:
        self.note.first_byte = self.board.now()
        self.board.first_byte(self.ticket)

    def _caller_gone(self) -> None:
        self.note.row = ROW_OF[Failure.CALLER_GONE]
        self._end(Failure.CALLER_GONE)

    def _end(self, outcome: str) -> None:
        self.note.outcome, self.note.ended = outcome, self.board.now()


def _has_started(tracker: Tracker) -> bool:
    return tracker.started and _is_sound(tracker)


def _has_content(tracker: Tracker) -> bool:
    return (tracker.has_content or tracker.complete) and _is_sound(tracker)


def _is_sound(tracker: Tracker) -> bool:
    return not tracker.error and (tracker.complete or not tracker.closed)
