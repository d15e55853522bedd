"""One case after the other, each with a krouter in which nothing has happened but what is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from krouter.accounts import Account
from krouter.cases import ExpectCase, Fault, Given, Reply
from krouter.combos import Combo
from krouter.errors import Evidence, Verdict
from krouter.rehearsal import Came, Rehearsal, Seen, Stage
from krouter.reporter import Figure, Report
from krouter.route import Route
from krouter.script import Sent, Turn
from krouter.trial.names import Cast, Name, fits
from krouter.verdict import classify
from krouter.world import World

_LATE = 700.0
"""Seconds that are given to calls which run on after the caller has its answer."""
_WELL = Turn()


@dataclass(frozen=True, slots=True)
class Miss:
    """Something that was expected and did not come: of `order`, `attempts` or `reply`."""

    what: str
    expected: str
    came: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A case, and what has become of it: the entries as planned and as asked, and the reply."""

    case: ExpectCase
    order: tuple[str, ...]
    attempts: tuple[str, ...]
    reply: Reply
    misses: tuple[Miss, ...]
    seen: Seen

    @property
    def holds(self) -> bool:
        return not self.misses


def try_combo(stage: Stage, combo: Combo) -> Iterator[Trial]:
    """Every case of `combo`, which is one of the stage's."""
    cast = Cast(combo, stage.world)
    for case in combo.expect:
        yield try_case(stage, combo, case, cast)


def try_case(stage: Stage, combo: Combo, case: ExpectCase, cast: Cast | None = None) -> Trial:
    """One case. What it names and nobody is called does nothing: see `misnamed`."""
    cast, given = cast or Cast(combo, stage.world), case.given
    with Rehearsal(stage, _Failing(given, cast)) as rehearsal:
        _prepare(rehearsal.router.world, combo, given, cast)
        seen = rehearsal.ask(
            combo.name, needs=given.needs, dialect=given.dialect, stream=given.stream
        )
        if seen.route is not None and seen.route.lingers:
            rehearsal.wait(_LATE)
    order = tuple(placed.entry for placed in seen.route.plan) if seen.route else ()
    attempts = tuple(_asked(seen.route)) if seen.route else ()
    reply = _reply(seen)
    misses = tuple(_misses(case, cast, order, attempts, reply))
    return Trial(case, order, attempts, reply, misses, seen)


class _Failing:
    """Who is named fails as is given, each time or one time after the other, and then as the last
    time; the most exact name counts. Everybody else answers."""

    def __init__(self, given: Given, cast: Cast) -> None:
        named = [(cast.name(text), faults) for text, faults in given.fail.items()]
        self._named = sorted(named, key=lambda pair: -pair[0].rank)
        self._times: Counter[str] = Counter()

    def __call__(self, sent: Sent) -> Turn:
        for name, faults in self._named:
            if name.means(sent.entry, sent.account):
                return _turn(self._fault(name, faults))
        return _WELL

    def _fault(self, name: Name, faults: Fault | tuple[Fault | None, ...]) -> Fault | None:
        if not isinstance(faults, tuple):
            return faults
        time = self._times[name.text]
        self._times[name.text] += 1
        return faults[min(time, len(faults) - 1)]


def _turn(fault: Fault | None) -> Turn:
    return _WELL if fault is None else Turn(str(fault))


def _prepare(world: World, combo: Combo, given: Given, cast: Cast) -> None:
    """Brings about what is given besides the request."""
    for _ in range(given.turn - 1):
        world.board.turns.take(combo.name)
    for text in given.locked:
        for account, model in _meant(cast.name(text), world, cast):
            _lock(world, account, model)
    ranked = sorted(
        ((cast.name(text), left) for text, left in given.quota.items()),
        key=lambda pair: pair[0].rank,
    )
    for name, left in ranked:
        for account, model in _meant(name, world, cast):
            report = Report((Figure(model, left),))
            world.pool.quota.note(account.provider, account.name, report, "reported")


def _meant(name: Name, world: World, cast: Cast) -> Iterator[tuple[Account, str]]:
    """The accounts of whom is meant, with each model; what may stand in for a gone one too, since
    a lock of its account keeps it from being asked."""
    for target in dict.fromkeys((*cast.targets, *cast.stand_ins())):
        provider, _, model = target.partition("/")
        for account in world.accounts.get(provider, ()):
            if name.means(target, account.name):
                yield account, model


def _spent(now: float) -> Verdict:
    return classify(Evidence(402), b"", now)


def _lock(world: World, account: Account, model: str) -> None:
    board = world.board
    ticket = board.begin(account.provider, account.name, model)
    board.fail(ticket, _spent(board.now()))
    board.end(ticket)


def _asked(route: Route) -> Iterator[str]:
    """The entries that were asked, and the models that stood in for one: each once, however many
    accounts and repeats it took, unless another was asked in between by the same walk."""
    latest: dict[int, tuple[str, tuple[int, ...]]] = {}
    for attempt in route.attempts:
        asked = attempt.entry, attempt.places
        if latest.get(attempt.voice) != asked:
            latest[attempt.voice] = asked
            yield attempt.entry


_CAME = {
    Came.WHOLE: "whole",
    Came.EMPTY: "empty",
    Came.CUT: "cut",
    Came.BROKEN: "cut",
    Came.ERROR: "error",
}


def _reply(seen: Seen) -> Reply:
    """What the caller got, in the words of a case."""
    came = _CAME.get(seen.came)
    if seen.came is Came.BROKEN and not seen.text:
        came = "error"
    served = seen.served if came != "error" else ""
    return Reply.model_construct(from_=served or None, status=seen.status, came=came)


def _misses(
    case: ExpectCase, cast: Cast, order: Sequence[str], attempts: Sequence[str], reply: Reply
) -> Iterator[Miss]:
    for what, wanted, had in (
        ("order", case.order, order),
        ("attempts", case.attempts, attempts),
    ):
        if wanted is not None and not fits([*map(cast.name, wanted)], [*map(cast.of, had)]):
            yield Miss(what, _listed(wanted), _listed(had))
    if case.reply is not None and not _is_such(case.reply, reply, cast):
        yield Miss("reply", reply_in_words(case.reply), reply_in_words(reply))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _is_such(wanted: Reply, had: Reply, cast: Cast) -> bool:
    if wanted.from_ is not None:
        served = had.from_ and cast.name(wanted.from_).means(cast.of(had.from_))
        if not served:
            return False
    if wanted.status not in (None, had.status):
        return False
    return wanted.came in (None, had.came)


def reply_in_words(reply: Reply) -> str:
    """`200, whole, from glm/glm-5.1`, as far as it tells."""
    status = None if reply.status is None else str(reply.status)
    origin = None if reply.from_ is None else f"from {reply.from_}"
    return ", ".join(filter(None, (status, reply.came, origin))) or "nothing, for ever"
