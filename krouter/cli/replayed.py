"""What a replay has found, as data and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from typing import Any

from krouter.cli.figures import UNKNOWN, count, money, ordinal, span, timestamp
from krouter.cli.output import print_table, say, shortened
from krouter.costs import PER_DOLLAR, dollars
from krouter.plan import AS_LISTED
from krouter.replay import Call, Found, Replayed, Side

COLUMNS = ("time", "id", "combo", "then", "now", "why", "wait", "cost")
GONE = "no such combo any more"


def as_json(found: Iterable[Found], without_account: Set[str]) -> dict[str, Any]:
    """The whole replay as plain data; `found` is read once, and `without_account` afterwards."""
    counted = Counter[str]()
    sums = _Sums()
    rows: list[dict[str, Any]] = []
    untold: list[dict[str, Any]] = []
    for each in found:
        counted[each.kind] += 1
        if each.kind == "bare":
            untold.append({**_named(each), "why": each.why})
            continue
        sums.add(each)
        if each.kind != "same":
            rows.append(_row(each))
    return {
        "requests": counted.total(),
        "moved": counted["moved"] + counted["gone"],
        "gone": counted["gone"],
        "assumed": sum(row["now"]["assumed"] for row in rows),
        "bare": counted["bare"],
        **sums.as_json(),
        "without_account": sorted(without_account),
        "rows": rows,
        "untold": untold,
    }


class _Sums:
    """Money of all requests, and the waits of those that moved."""

    def __init__(self) -> None:
        self._cost, self._unpriced = [0, 0], [0, 0]
        self._waits: list[tuple[float, float]] = []

    def add(self, found: Found) -> None:
        for at, side in enumerate((found.then, found.now)):
            self._cost[at] += side.cost
            self._unpriced[at] += side.unpriced
        then, now = found.then.wait, found.now.wait
        if found.kind == "moved" and then is not None and now is not None:
            self._waits.append((then, now))

    def as_json(self) -> dict[str, Any]:
        known = len(self._waits)
        means = [sum(each) / known for each in zip(*self._waits, strict=True)] or [None, None]
        return {
            "cost": dict(zip(("then", "now"), map(dollars, self._cost), strict=True)),
            "unpriced": dict(zip(("then", "now"), self._unpriced, strict=True)),
            "wait": dict(zip(("then", "now"), means, strict=True)),
            "waits": known,
        }


def _named(found: Found) -> dict[str, Any]:
    return {"id": found.row.id, "began": found.row.began, "combo": found.row.combo}


def _row(found: Found) -> dict[str, Any]:
    why = GONE if found.replayed is None else _why(found.replayed)
    return {
        **_named(found),
        "asked": found.row.asked,
        "then": _side(found.then),
        "now": _side(found.now),
        "why": why,
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "served": side.served or None,
        "status": side.status,
        "outcome": side.outcome,
        "wait": None if side.wait is None else round(side.wait, 6),
        "cost": dollars(side.cost) if side.cost or not side.unpriced else None,
        "unpriced": side.unpriced,
        "assumed": side.assumed,
        "attempts": [
            {
                "entry": call.entry,
                "account": call.account,
                "outcome": call.outcome,
                "assumed": call.assumed,
            }
            for call in side.calls
        ],
    }


def _why(found: Replayed) -> str:
    """The first thing that goes another way."""
    then, now = found.then.calls, found.now.calls
    same = 0
    while same < min(len(then), len(now)) and then[same].key == now[same].key:
        same += 1
    was = then[same] if same < len(then) else None
    call = now[same] if same < len(now) else None
    over = "".join(f"; {entry}: {why}" for entry, why in dict(found.passed_over).items())
    if was is None and call is None:
        return f"it ends as {found.now.outcome}{over}"
    if call is None:
        assert was is not None
        return f"{was.entry} is not {'needed' if found.now.served else 'tried'}{over}"
    if was is None:
        return f"{call.entry} is tried too{_place(found, call)}{over}"
    if (was.entry, was.account) == (call.entry, call.account):
        return f"{call.entry}: {call.outcome}, not {was.outcome}{over}"
    whom = was.entry if was.entry != call.entry else f"its account {was.account}"
    return f"{call.entry} in place of {whom}{_place(found, call)}{over}"


def _place(found: Replayed, call: Call) -> str:
    """Why it stands where it stands, where that is known."""
    step = next((s for s in found.plan.steps if s.entry.model == call.entry), None)
    if step is None:
        return ""
    listed = f"listed {ordinal(step.listed)}" if step.listed else ""
    reason = "" if step.reason == AS_LISTED else step.reason.removeprefix(f"{AS_LISTED}; ")
    told = ", ".join(filter(None, (listed, reason)))
    return f" ({told})" if told else ""


def show(told: dict[str, Any]) -> None:
    """The table, the sums, and what is not in them."""
    if not told["requests"]:
        say("No request that is recorded fits.", err=True)
        return
    if told["rows"]:
        print_table(COLUMNS, list(map(_cells, told["rows"])))
        say()
    for line in _sums(told):
        say(line)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    then, now = row["then"], row["now"]
    return (
        timestamp(row["began"]),
        row["id"],
        shortened(row["combo"] or row["asked"]),
        _end(then),
        f"{_end(now)}{'*' if now['assumed'] else ''}",
        row["why"],
        f"{_wait(then['wait'])} → {_wait(now['wait'])}",
        f"{_money(then)} → {_money(now)}",
    )


def _end(side: dict[str, Any]) -> str:
    """Who answered, or with what it failed."""
    if side["served"]:
        return shortened(side["served"])
    return " ".join(filter(None, (str(side["status"] or ""), side["outcome"])))


def _wait(seconds: float | None) -> str:
    return "?" if seconds is None else span(seconds)


def _money(side: dict[str, Any]) -> str:
    if side["cost"] is None:
        return UNKNOWN
    return money(round(side["cost"] * PER_DOLLAR), side["unpriced"])


def _sums(told: dict[str, Any]) -> Iterable[str]:
    replayed = told["requests"] - told["bare"]
    if not told["moved"]:
        yield f"Nothing would have gone elsewhere: {count(replayed, 'request')} replayed."
    else:
        yield (
            f"{told['moved']:,} of {count(replayed, 'request')} would have gone elsewhere or ended"
            " otherwise."
        )
        cost = told["cost"]
        parts = [money(round(cost[at] * PER_DOLLAR), told["unpriced"][at]) for at in cost]
        yield f"Cost of all: {' → '.join(parts)}."
    if told["waits"]:
        waits = " → ".join(span(told["wait"][at]) for at in ("then", "now"))
        yield f"Mean wait of the {told['waits']:,} whose waits are known: {waits}."
    yield from _remarks(told)


def _remarks(told: dict[str, Any]) -> Iterable[str]:
    if told["assumed"]:
        yield (
            f"* {count(told['assumed'], 'request')} would have gone to an entry that was not tried"
            " then: it is assumed to answer."
        )
    if told["without_account"]:
        providers = ", ".join(told["without_account"])
        yield f"Without an account here, and assumed to answer: {providers}."
    if told["gone"]:
        names = sorted({row["combo"] for row in told["rows"] if row["why"] == GONE})
        yield f"Not in the new combos, so that callers get 404: {', '.join(names)}."
    for why, ids in _untold(told).items():
        more = f" and {len(ids) - 3:,} more" if len(ids) > 3 else ""
        yield f"Not replayed: {', '.join(ids[:3])}{more}: {why}."


def _untold(told: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in told["untold"]:
        found.setdefault(each["why"].rstrip("."), []).append(each["id"])
    return found
