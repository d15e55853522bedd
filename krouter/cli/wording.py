"""What is said of a route, in words: what was asked, why the order is as it is, what each step did.

The words are a route's own, from its record alone, so they say what was so when the request came.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import tzinfo
from enum import Enum, auto

from krouter.catalog import Known
from krouter.cli.figures import moment, ordinal, span
from krouter.cli.sums import Rows, spent
from krouter.errors import Failure
from krouter.plan import AS_LISTED, IN_THE_PANEL, Snapshot, rotates, strategy_of
from krouter.records import rebuild
from krouter.route import (
    Attempt,
    End,
    Placed,
    Places,
    Ranked,
    Route,
    Skipped,
    located,
)

LANES = {
    "native": "in the provider's own dialect",
    "litellm": "translated",
    "demo": "built in",
}
"""What a user need know of each lane."""
_READS = {Known.YES: "reads", Known.UNKNOWN: "may read", Known.NO: "does not read"}


class Tone(Enum):
    """How something ended, for its colour."""

    PLAIN = auto()
    GOOD = auto()
    MIXED = auto()
    BAD = auto()


def tone(outcome: str) -> Tone:
    if outcome == End.UNDER_WAY:
        return Tone.PLAIN
    return Tone.GOOD if outcome == End.ANSWERED else Tone.BAD


def title(route: Route) -> str:
    return f"{route.asked} → {route.served or 'no answer'}"


def head(route: Route, zone: tzinfo | None) -> Rows:
    """What was asked, when, and what came of it."""
    took = "" if route.ended is None else f", took {span(route.ended - route.began)}"
    yield "route", route.id
    yield "asked", f"{route.asked}: {_target(route)}; {_manner(route)}"
    yield "key", route.caller
    yield "carries", f"{_carried(route)}, in the latest message" if route.needs else ""
    yield "when", f"{moment(route.began, zone)}{took}"
    yield "outcome", outcome(route)


def _target(route: Route) -> str:
    if route.outcome == End.UNKNOWN_MODEL:
        return "no such combo or model"
    if not route.combo:
        return "no combo, one model called directly" if route.plan else "no order was made"
    strategy = f" ({strategy_name(route.snapshots[0])})" if route.snapshots else ""
    return f"the combo {route.combo}{strategy}"


def strategy_name(snapshot: Snapshot) -> str:
    return strategy_of(snapshot.combo, snapshot.routing).name


def _manner(route: Route) -> str:
    return f"{route.dialect}, {'streamed' if route.stream else 'not streamed'}"


def outcome(route: Route) -> str:
    """Status and outcome of the whole; `answered` alone would hide which status was sent."""
    status = "" if route.status is None else f"{route.status} "
    return f"{status}{route.outcome}"


def asked(route: Route) -> list[str]:
    """The request, in a line or two."""
    carried = f", with {_carried(route)}" if route.needs else ""
    return [f"asks for {route.asked}{carried}"]


def given(route: Route) -> list[str]:
    """What the caller was given."""
    if route.outcome == Failure.CALLER_GONE:
        when = f"while the answer of {route.served} came" if route.served else "before any answer"
        return [f"has gone {when}"]
    if route.served and route.outcome not in (End.ANSWERED, Failure.EMPTY_REPLY):
        return [f"gets a part of the answer of {route.served}, then an error ({route.outcome})"]
    if route.served:
        return [f"gets the answer of {_whose(route)} ({outcome(route)})"]
    if route.outcome == End.UNDER_WAY:
        return ["waits"]
    whose = next((each.entry for each in route.attempts[::-1] if each.outcome == route.outcome), "")
    return [f"gets an error: {outcome(route)}{f' of {whose}' if whose else ''}"]


def _whose(route: Route) -> str:
    """Who answered, and in a fusion as what."""
    final = route.final
    role = route.voices[final.voice - 1].role if final and final.voice else ""
    words = {"judge": "the judge, ", "panel": "one of the panel, "}
    return f"{words.get(role, '')}{route.served}"


def listed(order: list[Placed], placed: Placed) -> str:
    """Where an entry stands in the list that its order was made from."""
    if placed.listed is None or len(order) == 1 or _is_panel(order):
        return ""
    return f"listed {ordinal(placed.listed)}" if placed.listed else "not in the list"


def _plan_of(route: Route, nested: str) -> int | None:
    """Which of the snapshots the order of a nested combo, or of all, was made from."""
    if nested:
        return list(route.nested).index(nested) + 1 if nested in route.entered else None
    return 0 if route.snapshots else None


def order_title(route: Route, nested: str) -> str:
    """The heading of the order of a nested combo; its place tells it from an earlier one."""
    places = route.entered.get(nested, ())
    again = bool(places) and nested != name_of(nested)
    at = f", at {'.'.join(map(str, places))} of the order" if again else ""
    what = "Panel of" if _is_panel(route.nested[nested]) else "Order inside"
    return f"{what} {name_of(nested)}{at}"


def name_of(nested: str) -> str:
    """A combo's name holds no blank, and its places stand before one."""
    return nested.rpartition(" ")[2]


def _is_panel(order: list[Placed]) -> bool:
    return bool(order) and all(each.reason == IN_THE_PANEL for each in order)


def top_title(route: Route) -> str:
    """The heading of the order of the whole; a panel has none, since all are asked at once."""
    return "Panel" if _is_panel(route.plan) else "Order"


def reason(route: Route, placed: Placed) -> str:
    """Why it stands there, without the words that its place in the list says as well."""
    if placed.reason == IN_THE_PANEL:
        return ""
    if not route.combo:
        return by_name(placed.reason)
    return placed.reason.removeprefix(f"{AS_LISTED}; ")


def by_name(reason: str) -> str:
    """Why a model that was called directly stands where it does."""
    return f"asked for by name{reason.removeprefix(AS_LISTED)}"


def switches(route: Route, nested: str = "") -> list[str]:
    """The lines of the steps that changed which entry goes first, of one order. The record holds
    those of all orders, one order after the other."""
    plans = rebuild(route)
    at = _plan_of(route, nested)
    if at is None:
        return []
    before = sum(len(plan.switches) for plan in plans[:at])
    return route.switches[before : before + len(plans[at].switches)]


def why_first(route: Route) -> Iterator[str]:
    """Why the first entry of the order is the first, and where another answered, why that one
    stands where it does: a sentence each."""
    if not route.snapshots or len(route.plan) < 2 or _is_panel(route.plan):
        return
    snapshot, first = route.snapshots[0], route.plan[0].entry
    listed = route.plan[0].listed
    if listed is None:
        return
    if not listed:
        yield f"{first} went first: no entry of the list reads {_carried(route)}."
        yield from _why_served(route)
        return
    place = listed - 1
    though = f", though {ordinal(place + 1)} in the list" if place else ""
    passed = {skip.entry for skip in route.skips} - {each.entry for each in route.attempts}
    went = "comes first" if first in passed else "went first"
    yield f"{first} {went}{though}: {'; '.join(_causes(route, snapshot, place))}."
    yield from _why_served(route)


def _why_served(route: Route) -> Iterator[str]:
    """Why who answered stood before others of the list, where it was not the first."""
    order = route.plan
    at = next((n for n, each in enumerate(order) if each.entry == route.served), 0)
    listed = order[at].listed
    if not at or not listed:
        return
    behind = [each.entry for each in order[at + 1 :] if each.listed and each.listed < listed]
    if behind:
        why = order[at].reason.partition("; ")[2] or order[at].reason
        yield (
            f"{route.served}, {ordinal(listed)} in the list, came before {' and '.join(behind)}:"
            f" {why}."
        )


def _causes(route: Route, snapshot: Snapshot, place: int) -> Iterator[str]:
    """What put the entry listed at `place` to the front."""
    moved = " ".join(switches(route))
    if "Capacity auto-switch" in moved:
        yield f"the latest message carries {_carried(route)}, which it {_reading(snapshot, place)}"
        yield from _passed(snapshot, place)
    if "Quota auto-switch" in moved:
        left = snapshot.seen[place].left
        spent = "the quota of what stood before it is spent"
        yield spent if left is None else f"its provider reports the most quota left, {left:.0%}"
    if not moved and rotates(snapshot.combo, snapshot.routing):
        yield "it is its turn in the rotation"
    elif not moved:
        unread = snapshot.needs and snapshot.is_blind
        yield "it stands first in the list, and nothing moved it" + (
            f"; no entry reads {_carried(route)}" if unread else ""
        )


def _passed(snapshot: Snapshot, place: int) -> Iterator[str]:
    """What those that stand before it in the list lack."""
    models = [entry.model for entry in snapshot.combo.models]
    for verb in ("does not read", "may read"):
        names = [
            _told_apart(entry.model, models, f"{ordinal(at + 1)} in the list")
            for at, entry in enumerate(snapshot.combo.models[:place])
            if _reading(snapshot, at) == verb
        ]
        if names:
            what = "it" if len(snapshot.needs) == 1 else "all of that"
            yield f"{' and '.join(names)} {_many(verb, names)} {what}"


def _told_apart(name: str, names: list[str], where: str) -> str:
    """A name, and where another has it as well, which of them."""
    return f"{name} ({where})" if names.count(name) > 1 else name


def _many(verb: str, names: list[str]) -> str:
    return verb.replace("does", "do") if len(names) > 1 else verb


def _reading(snapshot: Snapshot, place: int) -> str:
    return _READS[snapshot.seen[place].reads_all(snapshot.needs)]


def skipped(step: Skipped) -> list[str]:
    """Who was passed over, and why."""
    who = f"{step.entry}, account {step.account}" if step.account else step.entry
    return [who, f"{step.reason} ({step.detail})" if step.detail else str(step.reason)]


def tried(route: Route, attempt: Attempt) -> Rows:
    """One call: why this entry, which account, and what became of it."""
    lane = LANES.get(attempt.lane)
    ranked = route.accounts.get(located(attempt.places, attempt.entry), [])
    yield "place", _place(route, attempt)
    yield "account", _account(attempt.account, ranked)
    yield "lane", f"{attempt.lane}, {lane}" if lane else attempt.lane
    yield "time", _times(attempt, route.began)
    yield "tokens", spent([attempt])
    yield "outcome", _verdict(attempt)
    yield "lock", _lock(attempt)
    yield "retry", "" if attempt.wait is None else f"same account, {span(attempt.wait)} later"
    yield "without", ", ".join(attempt.dropped)


def _place(route: Route, attempt: Attempt) -> str:
    if not attempt.places:
        return ""
    if not attempt.places[-1]:
        return _OF_ITSELF[route.voices[attempt.voice - 1].role]
    placed = route.order_at(attempt.places)[attempt.places[-1] - 1]
    if placed.entry != attempt.entry:
        return f"stands in for {placed.entry}, which is gone"
    why = reason(route, placed)
    return f"{_where(route, attempt.places)}{f': {why}' if why else ''}"


_OF_ITSELF = {"judge": "judges the answers", "again": "the only one to answer", "panel": ""}
"""What an entry is asked for that stands in no order."""


def _where(route: Route, places: Places) -> str:
    *outer, at = places
    nested = route.inside(tuple(outer))
    order = route.nested[nested] if nested else route.plan
    if _is_panel(order):
        return f"{ordinal(at)} of the panel{f' of {name_of(nested)}' if nested else ''}"
    return f"{ordinal(at)} {f'inside {name_of(nested)}' if nested else 'in the order'}"


def _account(name: str, ranked: list[Ranked]) -> str:
    """With its score and reason where there was a choice."""
    for at, each in enumerate(ranked, 1):
        if each.account == name:
            score = "" if each.score is None else f", score {each.score:.0f}"
            return f"{name}, {ordinal(at)} of {len(ranked)}{score}: {each.reason}"
    return name


def _times(attempt: Attempt, began: float) -> str:
    """Counted from the request's own beginning."""
    parts = [f"began at {span(attempt.began - began)}"]
    if attempt.first_byte is not None:
        parts.append(f"first byte after {span(attempt.first_byte - attempt.began)}")
    if attempt.ended is not None:
        parts.append(f"took {span(attempt.ended - attempt.began)}")
    return ", ".join(parts)


def _verdict(attempt: Attempt) -> str:
    status = "" if attempt.status is None else f"{attempt.status} "
    row = "" if attempt.row is None else f", row {attempt.row} of the error table"
    told = attempt.detail and attempt.detail != attempt.outcome
    return f"{status}{attempt.outcome}{row}{f': {attempt.detail}' if told else ''}"


def _lock(attempt: Attempt) -> str:
    if attempt.lock is None:
        return ""
    return f"{attempt.locked} for {span(attempt.lock)}".lstrip()


def untried(route: Route) -> str:
    """The entries that were not reached; empty where all were."""
    reached: set[object] = {step.places or step.entry for step in route.steps}
    walk = list(_flattened(route, route.plan))
    names = [each.entry for _, each in walk]
    found = [
        _told_apart(each.entry, names, _where(route, places))
        for places, each in walk
        if places not in reached and each.entry not in reached
    ]
    what = "Not needed" if route.served else "Not tried"
    return f"{what}: {', '.join(found)}." if found else ""


def _flattened(
    route: Route, order: list[Placed], outer: Places = ()
) -> Iterator[tuple[Places, Placed]]:
    """Each nested combo that was reached gives way to its own entries."""
    for at, each in enumerate(order, 1):
        places = (*outer, at)
        nested = route.inside(places)
        if nested is None:
            yield places, each
        else:
            yield from _flattened(route, route.nested[nested], places)


def _carried(route: Route) -> str:
    return " and ".join(_ARTICLE.get(medium, medium) for medium in route.needs)


_ARTICLE = {"image": "an image", "pdf": "a PDF", "video": "a video"}
