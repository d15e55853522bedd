"""The record of one request: what was tried, what was passed over, and why.

It holds all that the order was made from, so that `Route.snapshots` and `Route.rankings` give the
very same order again. Nothing in it is a credential, nor the conversation unless the settings ask
to keep that.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from krouter.costs import dollars
from krouter.dialects.base import Usage
from krouter.errors import Failure
from krouter.plan import IN_THE_PANEL, Plan, Snapshot, is_moved, strategy_of, whys
from krouter.ranking import AccountsSnapshot, Place
from krouter.vocabulary import known_names

Log = Callable[[str, str], None]
"""Takes a tag such as `COMBO` and a line of text."""


Places = tuple[int, ...]
"""Where an entry stands: its place in the order, then in that of each combo nested there, counted
from 1. Names alone do not tell, since a model may be listed twice."""


class Skip(StrEnum):
    """Why an entry or an account is passed over."""

    LOCKED = "locked"
    PROBING = "being probed"
    AT_LIMIT = "at its concurrency limit"
    NO_ACCOUNT = "no account"
    NO_CREDENTIAL = "credential cannot be read"
    CALLER_UNSIGNED = "the caller sent no credential of its own"
    NEEDS_TRANSLATION = "needs translation"
    UNSUPPORTED = "cannot be reached"
    NO_EMBEDDINGS = "cannot be reached for embeddings"
    NO_ADDRESS = "has no address"
    UNKNOWN_PROVIDER = "unknown provider"
    NESTED_TOO_DEEPLY = "nested too deeply"
    ALREADY_TRIED = "listed before"
    SMALLER_WINDOW = "window not larger"
    COMBO_ENDED = "its combo returned a refusal"
    NO_TIME = "no time left"


class End(StrEnum):
    """How an attempt or a request ends that neither a `Failure` nor a `Skip` ends."""

    UNDER_WAY = "under way"
    ANSWERED = "answered"
    UNKNOWN_MODEL = "unknown model"
    STORED_ELSEWHERE = "stored elsewhere"
    NO_MESSAGES = "no messages"
    VECTORS_DIFFER = "vectors of different sizes"
    NOTHING_SENT = "nothing could be sent"
    PANEL_TOO_LARGE = "panel too large"
    PANEL_FAILED = "no answer of the panel"
    NO_TEXT = "no text"
    UNREADABLE = "unreadable"
    LATE = "late"
    CALLED_OFF = "called off"
    KROUTER_FAILED = "krouter failed"


REASONS: frozenset[str] = frozenset((*Skip, *Failure, *End))
"""The closed list: every `reason` of a step and every `outcome` is one of these."""


_CUT_OFF = frozenset((Failure.TIMED_OUT, Failure.CALLER_GONE, End.CALLED_OFF))


class Skipped(Struct, tag="skip", tag_field="step"):
    """An entry, or one of its accounts, that was not sent to."""

    entry: str
    account: str
    reason: Skip
    detail: str = ""
    places: Places = ()
    voice: int = 0
    """Which of the route's voices it belongs to, counted from 1; 0 for none."""


class Attempt(Struct, tag="attempt", tag_field="step"):
    """One call to a provider. Times are epoch seconds; `lock` is in seconds."""

    entry: str
    model: str
    account: str
    lane: str
    began: float
    provider: str = ""
    first_byte: float | None = None
    ended: float | None = None
    outcome: str = End.UNDER_WAY
    """Of `REASONS`."""
    row: int | None = None
    """Of the error table."""
    status: int | None = None
    detail: str = ""
    lock: float | None = None
    locked: str = ""
    """What the lock closes: `account`, `model`, or `account and model`."""
    wait: float | None = None
    """Seconds after which the same account was to be tried again; None for not at all."""
    usage: Usage | None = None
    """None where the provider told none."""
    cost: int | None = None
    """In `PER_DOLLAR` parts of a US dollar; None where tokens or a price are not known."""
    seen: bool = False
    """Whether what it answered went to the caller."""
    dropped: tuple[str, ...] = ()
    """What of the request could not be carried to the provider."""
    places: Places = ()
    """Of the entry, or of the one that it stands in for."""
    voice: int = 0
    """Which of the route's voices it belongs to, counted from 1; 0 for none."""
    came: int = 0
    """About how many tokens of output had come, where the provider has not told all of them."""

    @property
    def is_unpriced(self) -> bool:
        """Whether it used tokens of which the number or the price is not known, or may have: a
        provider may count what it did before it was cut off. An error of its own used none."""
        may_have = self.seen or self.outcome in _CUT_OFF
        return self.cost is None and (self.usage is not None or may_have)


Role = Literal["panel", "judge", "again"]
"""What is asked of an entry in a fusion: for its answer, to judge the answers, or, as the only one
that has answered, to answer the caller itself."""


class Voice(Struct):
    """One entry that a fusion asked. Times are epoch seconds, lengths are in characters."""

    role: Role
    entry: str
    began: float
    place: int = 0
    """In the panel, counted from 1; 0 for the others."""
    within: int = 0
    """The voice in whose own panel this one is, counted from 1; 0 for none."""
    ended: float | None = None
    outcome: str = End.UNDER_WAY
    """Of `REASONS`."""
    length: int | None = None
    """Of the text that it gave; None where none could be read, or it went to the caller unread."""
    given: int | None = None
    """How much of it the judge was given; None where the judge was not asked."""


class Placed(Struct, frozen=True):
    """An entry at its place in the order, and why it stands there."""

    entry: str
    reason: str
    listed: int | None = None
    """Its place in the combo's own list, counted from 1; 0 where it is not in the list, None where
    that was not recorded."""


class Ranked(Struct, frozen=True):
    """An account at its place, with its Zenith score where there was a choice."""

    account: str
    score: float | None
    reason: str


class Route(Struct):
    """What happened to one request, step by step."""

    id: str
    began: float
    dialect: str
    asked: str
    stream: bool
    combo: str = ""
    """Empty for a model asked for by its own name."""
    needs: tuple[str, ...] = ()
    """The kinds of attachments in the latest message."""
    plan: list[Placed] = field(default_factory=list)
    nested: dict[str, list[Placed]] = field(default_factory=dict)
    """The plan of each nested combo that was reached, by its name; one that was reached again has
    its places before the name, as often as it takes."""
    entered: dict[str, Places] = field(default_factory=dict)
    """Where each of `nested` stands."""
    switches: list[str] = field(default_factory=list)
    """The steps that changed which entry goes first."""
    steps: list[Attempt | Skipped] = field(default_factory=list)
    accounts: dict[str, list[Ranked]] = field(default_factory=dict)
    """Of each entry with a choice of accounts, by its places and name (`2.1 glm/glm-5.1`): their
    order."""
    snapshots: list[Snapshot] = field(default_factory=list)
    """What the plan was made from, and then each nested one in turn."""
    rankings: dict[str, AccountsSnapshot] = field(default_factory=dict)
    """What each order of accounts was made from."""
    voices: list[Voice] = field(default_factory=list)
    """Whom a fusion asked, in the order in which they were asked."""
    notes: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    request: str | None = None
    """The caller's own body, where the settings ask to keep it."""
    served: str = ""
    status: int | None = None
    outcome: str = End.UNDER_WAY
    """Of `REASONS`."""
    ended: float | None = None
    lingers: bool = False
    """Whether it is over for the caller, though late calls of a fusion are still under way."""
    revision: int = 0
    """How often it was told anew since then, as such calls ended."""
    caller: str = ""
    """The name of the key that the caller has; empty without one."""

    def add(self, step: Attempt | Skipped) -> None:
        self.steps.append(step)

    def strand(self, voice: Voice, *, heard: bool) -> Strand:
        """A part of this route, with what is asked of one entry; whether it is `heard` says that
        its answer goes to the caller."""
        whole = self.whole
        voice.within = self.voice
        whole.voices.append(voice)
        return Strand(
            whole.id,
            voice.began,
            whole.dialect,
            whole.asked,
            whole.stream,
            whole.combo,
            request=whole.request,
            notes=whole.notes,
            dropped=whole.dropped if heard else [],
            whole_route=whole,
            voice_number=len(whole.voices),
            heard=heard,
        )

    @property
    def whole(self) -> Route:
        """The route that this one is a part of, or itself."""
        return self

    @property
    def voice(self) -> int:
        """The number of the voice that this is the part of; 0 for the whole."""
        return 0

    @property
    def final(self) -> Attempt | None:
        """The attempt whose answer the caller was given, or else the last."""
        last = None
        for step in reversed(self.steps):
            if isinstance(step, Attempt):
                if step.seen:
                    return step
                last = last or step
        return last

    @property
    def end(self) -> str:
        """What came of it: an error that is noted already, or else what came of the attempt whose
        answer it is."""
        if self.outcome != End.UNDER_WAY:
            return self.outcome
        final = self.final
        return final.outcome if final else End.NOTHING_SENT

    @property
    def attempts(self) -> list[Attempt]:
        return [step for step in self.steps if isinstance(step, Attempt)]

    @property
    def skips(self) -> list[Skipped]:
        return [step for step in self.steps if isinstance(step, Skipped)]

    def note_plan(self, plan: Plan, places: Places = ()) -> None:
        """The order that was decided, and what it was decided from; `places` are those of a nested
        combo."""
        placed = [Placed(step.entry.model, step.reason, step.listed) for step in plan.steps]
        if places:
            key = plan.combo.name
            while key in self.nested:
                key = located(places, key)
            self.nested[key], self.entered[key] = placed, places
        else:
            self.plan = placed
        self.switches += plan.switches
        self.snapshots.append(plan.snapshot)

    def note_ranking(
        self, entry: str, given: AccountsSnapshot, ranked: list[Place], places: Places = ()
    ) -> None:
        """The order of an entry's accounts, and what it was decided from."""
        key = located(places, entry)
        if key not in self.accounts:
            self.accounts[key] = [Ranked(*each) for each in ranked]
            self.rankings[key] = given

    def inside(self, places: Places) -> str | None:
        """The key in `nested` of the order at `places`."""
        return next((key for key, at in self.entered.items() if at == places), None)

    def order_at(self, places: Places) -> list[Placed]:
        """The order in which the last of `places` is one; empty where that is not known."""
        *outer, _ = places
        return self.nested.get(self.inside(tuple(outer)) or "", []) if outer else self.plan

    def name_dropped(self, attempt: Attempt) -> None:
        """What this attempt dropped is what the caller's answer came without."""
        if attempt.dropped:
            self.dropped += [name for name in attempt.dropped if name not in self.dropped]

    def serve(self, attempt: Attempt) -> None:
        """The caller is given what this attempt has answered."""
        self.served, attempt.seen = attempt.entry, True

    def take_on(self, part: Strand) -> None:
        """What has come of a part is what comes of this."""
        self.served = part.served

    def seal(self) -> None:
        """Leaves of what callers have written only what is no part of the conversation."""
        if self.dropped:
            self.dropped = known_names(self.dropped)
        for step in self.steps:
            if isinstance(step, Attempt) and step.dropped:
                step.dropped = tuple(known_names(step.dropped))

    @property
    def usage(self) -> Usage:
        """Tokens of all attempts together, those the caller never saw included."""
        return total_usage(self.attempts)

    @property
    def wasted(self) -> list[Attempt]:
        """The attempts the caller never saw."""
        return [attempt for attempt in self.attempts if not attempt.seen]

    def trail(self, most: int = 1024) -> str:
        """`entry: status, reason; …`, at most `most` bytes of ASCII."""
        parts: list[str] = []
        for step in self.steps:
            if isinstance(step, Skipped):
                how = "waited" if self._has_waited(step) else "skipped"
                parts.append(f"{step.entry}: {how}, {step.reason}")
            elif step.outcome in _FAILURES:
                parts.append(f"{step.entry}: {step.status or '-'}, {step.outcome}")
        if not parts:
            return ""
        text = plain("; ".join(dict.fromkeys(parts)))
        return text if len(text) <= most else text[: most - 3] + "..."

    def _has_waited(self, skipped: Skipped) -> bool:
        """Whether an account that had no place was asked all the same, in its turn."""
        whom = skipped.entry, skipped.account
        asked = ((attempt.entry, attempt.account) for attempt in self.attempts)
        return skipped.reason is Skip.AT_LIMIT and whom in asked

    def as_json(self) -> dict[str, Any]:
        """The record as plain data, with the sums over its attempts."""
        for step in (record := self._plain())["steps"]:
            if step.get("cost") is not None:
                step["cost"] = dollars(step["cost"])
            step.pop("came", None)
        for number, voice in enumerate(record["voices"], 1):
            voice |= _spent(self.attempts_of(number))
        for order in (record["plan"], *record["nested"].values()):
            for place, placed in enumerate(order, 1):
                placed |= _coded(placed, place)
        return record | {"shape": self.shape} | _spent(self.attempts)

    @property
    def shape(self) -> str:
        """`fan` where all entries of its plan were asked at once, else `chain`."""
        panel = [each.reason == IN_THE_PANEL for each in self.plan]
        return "fan" if len(panel) > 1 and all(panel) else "chain"

    def attempts_of(self, voice: int) -> list[Attempt]:
        """Those of a voice, counted from 1, and of the voices of its own panel."""
        inner = {voice}
        for number, each in enumerate(self.voices, 1):
            if each.within in inner:
                inner.add(number)
        return [attempt for attempt in self.attempts if attempt.voice in inner]

    def fusions(self, places: Places) -> list[Places]:
        """Where the fusions stand in which an entry at `places` was asked, the outermost first."""
        reached = zip(((), *self.entered.values()), self.snapshots, strict=False)
        fused = {at for at, given in reached if strategy_of(given.combo, given.routing).fuses}
        return [places[:level] for level in range(len(places)) if places[:level] in fused]

    def is_of_panel(self, step: Attempt | Skipped) -> bool:
        """Whether it is a part of what one of a panel was asked for."""
        return any(voice.role == "panel" for voice in self.around(step.voice))

    def around(self, voice: int) -> list[Voice]:
        """The voice of a number, after those in whose own panel it is; none for 0."""
        found: list[Voice] = []
        while voice:
            found.append(self.voices[voice - 1])
            voice = found[-1].within
        return found[::-1]

    def _plain(self) -> dict[str, Any]:
        names = (name for name in self.__struct_fields__ if name not in ("snapshots", "rankings"))
        record = {name: msgspec.to_builtins(getattr(self, name)) for name in names}
        for each in (record, *record["steps"]) if self.request is None else ():
            if "dropped" in each:  # one under way is not sealed yet
                each["dropped"] = known_names(each["dropped"])
        return record

    @property
    def unpriced(self) -> list[Attempt]:
        """The attempts of which it is not known what they cost."""
        return [each for each in self.attempts if each.is_unpriced]


class Strand(Route, kw_only=True):
    """The part of a route that one voice is. What it tries is a part of the whole too."""

    whole_route: Route
    voice_number: int
    heard: bool
    """Whether the caller is given what it answers."""
    answered: Attempt | None = None
    """The attempt whose answer it is."""

    @property
    def whole(self) -> Route:
        return self.whole_route

    @property
    def voice(self) -> int:
        return self.voice_number

    def add(self, step: Attempt | Skipped) -> None:
        step.voice = self.voice_number
        self.steps.append(step)
        self.whole_route.steps.append(step)

    @property
    def final(self) -> Attempt | None:
        return self.answered or super().final

    def serve(self, attempt: Attempt) -> None:
        self.served, self.answered = attempt.entry, attempt
        attempt.seen = self.heard

    def take_on(self, part: Strand) -> None:
        self.served, self.answered = part.served, part.answered

    def note_plan(self, plan: Plan, places: Places = ()) -> None:
        self.whole_route.note_plan(plan, places)

    def note_ranking(
        self, entry: str, given: AccountsSnapshot, ranked: list[Place], places: Places = ()
    ) -> None:
        self.whole_route.note_ranking(entry, given, ranked, places)


_FAILURES = frozenset(Failure)


def _coded(placed: dict[str, Any], place: int) -> dict[str, Any]:
    """What a program may go by in place of the words of the reason."""
    told = whys(placed["reason"])
    moved = is_moved(placed["reason"], place, placed["listed"])
    return {"why": msgspec.to_builtins(told), "moved": moved}


def _spent(attempts: list[Attempt]) -> dict[str, Any]:
    """Tokens, money in US dollars, and the number of attempts of which that is not known."""
    spent = sum(attempt.cost or 0 for attempt in attempts)
    unpriced = sum(attempt.is_unpriced for attempt in attempts)
    return {
        "usage": msgspec.to_builtins(total_usage(attempts)),
        "cost": dollars(spent) if spent or not unpriced else None,
        "unpriced": unpriced,
    }


def total_usage(attempts: list[Attempt]) -> Usage:
    total = Usage()
    for attempt in attempts:
        total = total.plus(attempt.usage) if attempt.usage else total
    return total


def located(places: Places, name: str) -> str:
    """`2.1 glm/glm-5.1`; the name alone where its places are not known."""
    return f"{'.'.join(map(str, places))} {name}" if places else name


def plain(text: str) -> str:
    """`text` fit for a header: what is not printable ASCII becomes a question mark."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if " " <= c <= "~" else "?" for c in text)
