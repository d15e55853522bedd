"""Routes of past requests, with what their order was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from krouter.catalog import Known
from krouter.combos import Combo, Entry, Medium
from krouter.dialects.base import Usage
from krouter.errors import Failure
from krouter.health import Health
from krouter.plan import Snapshot, Standing, make_plan
from krouter.ranking import AccountsSnapshot, order
from krouter.route import (
    Attempt,
    End,
    Places,
    Role,
    Route,
    Skip,
    Skipped,
    Strand,
    Voice,
)
from krouter.settings import RoutingSettings

BEGAN = 1_800_000_000.0
GLM, DS, CC = "glm/glm-5.1", "ds/deepseek-v4-pro", "cc/claude-sonnet-4-6"
IMAGE: frozenset[Medium] = frozenset(("image",))
TEXT_ONLY = Standing(dict.fromkeys(("image", "pdf", "audio", "video"), Known.NO))
SEES = Standing({**TEXT_ONLY.reads, "image": Known.YES})
DAILY = {GLM: TEXT_ONLY, DS: TEXT_ONLY, CC: SEES}
DOLLAR = 10**12


Seen = Mapping[str, Standing] | Sequence[tuple[str, Standing]]


def begun(number: int, asked: str, seen: Seen, **fields: Any) -> Route:
    """A route with its order; what is needed, and the turn of a rotation, are among `fields`."""
    listed = list(seen.items() if isinstance(seen, Mapping) else seen)
    snapshot = Snapshot(
        Combo(
            name=fields.pop("combo", asked),
            models=tuple(Entry(model=model) for model, _ in listed),
            strategy=fields.pop("strategy", "fallback"),
        ),
        RoutingSettings(),
        tuple(standing for _, standing in listed),
        needs=fields.get("needs", frozenset()),
        turn=fields.pop("turn", 0),
    )
    fields["needs"] = tuple(sorted(fields.get("needs", ())))
    given = {"dialect": "chat", "stream": False, "combo": snapshot.combo.name, **fields}
    route = Route(f"{number:016x}", BEGAN + number, asked=asked, **given)
    route.note_plan(make_plan(snapshot))
    return route


def attempt(route: Route, entry: str, account: str = "default", **fields: Any) -> Attempt:
    """A call that began where the last one ended and took a second, unless told otherwise."""
    provider, _, model = entry.partition("/")
    last = route.attempts[-1].ended if route.attempts else None
    began = last if last is not None else route.began + 0.004
    given = {"lane": "native", "began": began, "ended": began + 1.0, "provider": provider,
             "places": place_of(route, entry), **fields}  # fmt: skip
    made = Attempt(entry, model, account, **given)
    route.steps.append(made)
    return made


def skip(route: Route, entry: str, account: str, reason: Skip, detail: str = "") -> None:
    route.steps.append(Skipped(entry, account, reason, detail, place_of(route, entry)))


def place_of(route: Route, entry: str) -> Places:
    """Where an entry stands first."""
    for nested, placed in (("", route.plan), *route.nested.items()):
        names = [each.entry for each in placed]
        if entry in names:
            return (*route.entered.get(nested, ()), names.index(entry) + 1)
    return ()


def over(route: Route, status: int) -> Route:
    last = route.attempts[-1]
    route.ended, route.outcome, route.status = last.ended, last.outcome, status
    if last.outcome == End.ANSWERED:
        route.serve(last)
        route.name_dropped(last)
    return route


def screenshot() -> Route:
    """The third entry answers, since it alone reads what the request carries."""
    route = begun(1, "daily", DAILY, needs=IMAGE, stream=True)
    attempt(
        route,
        CC,
        first_byte=route.began + 0.42,
        usage=Usage(1_532, 88, cached=1_024),
        cost=3_400_000_000,
        outcome=End.ANSWERED,
    )
    return over(route, 200)


def failed() -> Route:
    """Nobody answers; the caller is given the last one's error."""
    route = begun(2, "daily", DAILY)
    attempt(
        route, GLM, outcome=Failure.RATE_LIMITED, row=8, status=429, detail="rate_limit_exceeded",
        lock=30.0, locked="account and model",
    )  # fmt: skip
    attempt(route, DS, outcome=Failure.QUOTA_SPENT, row=6, status=402, lock=3_600.0,
            locked="account")  # fmt: skip
    attempt(
        route, CC, outcome=Failure.EMPTY_REPLY, row=15, status=200, usage=Usage(20, 1),
        first_byte=route.began + 2.5, lane="litellm",
    )  # fmt: skip
    return over(route, 502)


def mixed() -> Route:
    """Skips, several accounts, a nested combo, something dropped, and money that was wasted."""
    seen = {"ds/deepseek-v4-pro": TEXT_ONLY, "backup": Standing(), "gone/model": Standing()}
    route = begun(3, "work", seen, strategy="round-robin", turn=1, dialect="messages")
    inner = Combo(name="backup", models=(Entry(model=GLM), Entry(model="ds/deepseek-v4-flash")))
    snapshot = Snapshot(inner, RoutingSettings(), (TEXT_ONLY, Standing(left=0.4)))
    route.note_plan(make_plan(snapshot), (1,))
    accounts = AccountsSnapshot(
        "zenith", {"main": 1, "spare": 2, "old": 3}, {"main": Health(0.5, 2.0, route.began)},
        {"spare": 0.12}, route.began,
    )  # fmt: skip
    flash = "ds/deepseek-v4-flash"
    route.note_ranking(flash, accounts, order(accounts), place_of(route, flash))
    skip(route, flash, "old", Skip.LOCKED, "account barred")
    attempt(
        route, flash, "main", outcome=Failure.SERVER_ERROR, row=10, status=500,
        usage=Usage(9_000, 700), cost=DOLLAR // 50,
    )  # fmt: skip
    attempt(route, GLM, outcome=Failure.MODEL_GONE, row=4, status=404, lock=1_800.0,
            locked="model")  # fmt: skip
    attempt(route, "glm/glm-5", outcome=Failure.TIMED_OUT, row=11, ended=route.began + 62.0,
            places=place_of(route, GLM))  # fmt: skip
    skip(route, "gone/model", "", Skip.NO_ACCOUNT, "set GONE_API_KEY")
    attempt(
        route, DS, outcome=End.ANSWERED, first_byte=route.began + 63.0, usage=Usage(9_100, 321),
        dropped=("thinking", "image"),
    )  # fmt: skip
    route.notes.append("1 event was not JSON and was left out")
    return over(route, 200)


def fused() -> Route:
    """A panel of three: one answers at length, one is a fusion itself of which one answers, one is
    late; the judge falls back to its second account."""
    seen = {GLM: Standing(), "pair": Standing(), DS: Standing()}
    route = begun(5, "wise", seen, strategy="fusion", lingers=True)
    pair = Combo(name="pair", models=(Entry(model="a/x"), Entry(model="b/y")), strategy="fusion")
    began = route.began
    glm, inner, late = (_asked(route, "panel", name, n + 1) for n, name in enumerate(seen))
    route.note_plan(make_plan(Snapshot(pair, RoutingSettings(), (Standing(),) * 2)), (2,))
    _tried(glm, GLM, (1,), began + 4.0, usage=Usage(1_200, 30_000), cost=DOLLAR // 25)
    first, second = (_asked(inner, "panel", name, n) for n, name in ((1, "a/x"), (2, "b/y")))
    _tried(first, "a/x", (2, 1), began + 2.0, usage=Usage(1_100, 40))
    second.add(Skipped("b/y", "default", Skip.LOCKED, "overloaded", (2, 2)))
    _tried(late, DS, (3,), None, outcome=End.UNDER_WAY)
    again = _asked(inner, "again", "a/x", 0, began + 2.0)
    _tried(again, "a/x", (2, 0), began + 3.0, usage=Usage(1_100, 45))
    judge = _asked(route, "judge", CC, 0, began + 12.0)
    _tried(judge, CC, (0,), began + 12.5, "main", outcome=Failure.RATE_LIMITED, row=8, status=429,
           lock=30.0, locked="account and model")  # fmt: skip
    answer = _tried(judge, CC, (0,), began + 19.0, "spare", first_byte=began + 13.0,
                    usage=Usage(9_800, 700), cost=DOLLAR // 20)  # fmt: skip
    ends = (
        (began + 4.0, End.ANSWERED, 120_000, 32_000),
        (began + 3.0, End.ANSWERED, 180, 180),
        (None, End.LATE, None, None),
        (began + 2.0, End.ANSWERED, 160, None),
        (began + 2.0, Skip.LOCKED, None, None),
        (began + 3.0, End.ANSWERED, 180, None),
        (began + 19.0, End.ANSWERED, 2_800, None),
    )
    for voice, ended in zip(route.voices, ends, strict=True):
        voice.ended, voice.outcome, voice.length, voice.given = ended
    route.notes.append(
        f"the answer of {GLM} was shortened for the judge, from 120000 to 32000 characters"
    )
    route.serve(answer)
    route.ended, route.outcome, route.status = began + 19.0, End.ANSWERED, 200
    return route


def _asked(route: Route, role: Role, entry: str, place: int, began: float | None = None) -> Strand:
    at = route.began + 0.004 if began is None else began
    return route.strand(Voice(role, entry, at, place), heard=role != "panel")


def _tried(
    strand: Strand, entry: str, places: Places, ended: float | None, account: str = "default",
    **fields: Any,
) -> Attempt:  # fmt: skip
    provider, _, model = entry.partition("/")
    given = {"provider": provider, "ended": ended, "outcome": End.ANSWERED, **fields}
    made = Attempt(entry, model, account, "native", strand.began, places=places, **given)
    strand.add(made)
    return made


HOSTILE = "[red]x[/red]\x1b[31m\nFAKE\u202e:boom: "
LONG = "p/" + "very-long-name-" * 12


def hostile() -> Route:
    """Names and words made to colour, move or break a terminal."""
    route = begun(4, HOSTILE, {LONG: Standing(), "p/日本語モデル": Standing()}, combo="combo")
    attempt(
        route, LONG, HOSTILE, outcome=Failure.BAD_REQUEST, row=14, status=400, detail=HOSTILE * 3
    )
    route.steps.append(Skipped(HOSTILE, "[bold]", Skip.NO_CREDENTIAL, "\x07\x9b2J"))
    attempt(
        route, "p/日本語モデル", outcome=End.ANSWERED, lane="[link=http://x]", dropped=(HOSTILE,)
    )
    return over(route, 200)
