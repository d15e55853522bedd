"""What is different between two meanings of a combo, in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from krouter.accepts import WORDS, Wants, named
from krouter.catalog import MEDIA, Known
from krouter.coverage import Coverage, smallest, strongest
from krouter.meaning import Meaning, Order
from krouter.plan import Needs

What = Literal[
    "models", "order", "reads", "window", "dead end", "answer", "returned", "bound", "setting"
]


class Change(Struct, frozen=True):
    """One difference. `about` is what it is a difference of, `old` and `new` are how it is there,
    and `text` says it in words."""

    what: What
    about: str
    old: Any
    new: Any
    text: str


def changes(old: Meaning, new: Meaning) -> list[Change]:
    """Every difference, the weightiest first."""
    return [
        *_models(old, new),
        *_orders(old, new),
        *_reads(old.coverage, new.coverage),
        *_answers(old.coverage, new.coverage),
        *_returned(old, new),
        *_bounds(old, new),
        *_settings(old, new),
    ]


def _models(old: Meaning, new: Meaning) -> Iterator[Change]:
    """Who can come to be asked now, and who cannot any more."""
    before, after = (list(_abilities(each.coverage)) for each in (old, new))
    gone = [name for name in before if name not in after]
    come = [name for name in after if name not in before]
    if gone or come:
        said = [f"{', '.join(come)} joins" if len(come) == 1 else f"{', '.join(come)} join"]
        said = said if come else []
        said += [f"{', '.join(gone)} {'leaves' if len(gone) == 1 else 'leave'}"] if gone else []
        yield Change("models", "", before, after, "; ".join(said))


def _abilities(coverage: Coverage) -> dict[str, dict[str, Any]]:
    """What each model takes, and its window, by the name and what it is asked for."""
    found: dict[str, dict[str, Any]] = {}
    for row in coverage.rows():
        name = row.name if row.role == "entry" else f"{row.name} ({row.role})"
        known: dict[str, Any] = found.setdefault(
            name, dict.fromkeys(WORDS, Known.NO) | {"window": None}
        )
        for word in WORDS:
            known[word] = strongest((known[word], Known.NO if row.missing else row.can[word]))
        known["window"] = row.window if known["window"] is None else known["window"]
    return found


def _orders(old: Meaning, new: Meaning) -> Iterator[Change]:
    """Who is asked in which order; sets of attachments for which the same has changed are told of
    together."""
    pairs: dict[tuple[tuple[Order, ...], tuple[Order, ...]], list[Needs]] = {}
    for needs, before in old.orders.items():
        if before != new.orders[needs]:
            pairs.setdefault((before, new.orders[needs]), []).append(needs)
    for (before, after), needs_sets in pairs.items():
        least = [wants.words for wants in smallest(Wants(frozenset(each)) for each in needs_sets)]
        about = ", ".join(named(words) if words else "no attachment" for words in least)
        yield Change("order", about, before, after, f"{about}: {_reordered(before, after)}")


def _reordered(before: Sequence[Order], after: Sequence[Order]) -> str:
    was, leads = (dict.fromkeys(order[0] for order in each) for each in (before, after))
    then = f"{_listed(after)} in turn" if len(after) > 1 else _listed(after)
    if was == leads:
        return f"the order is {then} (it was {_listed(before)})"
    return f"{' or '.join(leads)} goes first, not {' or '.join(was)}; the order is {then}"


def _listed(orders: Sequence[Order]) -> str:
    """One of the orders of a rotation, for which all others are alike."""
    return ", ".join(orders[0])


def _reads(old: Coverage, new: Coverage) -> Iterator[Change]:
    """Who takes what now: any model for attachments, and what else of those that stay."""
    before, after = _abilities(old), _abilities(new)
    for word in WORDS:
        own = None if word in MEDIA else before.keys() & after.keys()
        was, now = (_takers(each, word, own) for each in (before, after))
        if was != now:
            text = f"{word}: {_taken(now)} {_verb(word, now)} it now; before {_taken(was)}"
            yield Change("reads", word, was, now, text)
    for name in before.keys() & after.keys():
        was_window, window = before[name]["window"], after[name]["window"]
        if was_window != window:
            text = f"{name}: its window is {_tokens(window)}, it was {_tokens(was_window)}"
            yield Change("window", name, was_window, window, text)


def _takers(
    abilities: Mapping[str, Mapping[str, Any]], word: str, own: Iterable[str] | None
) -> dict[str, str]:
    """Who takes it, surely or not."""
    names = sorted(abilities if own is None else own)
    return {n: str(abilities[n][word]) for n in names if abilities[n][word] is not Known.NO}


def _taken(takers: Mapping[str, str]) -> str:
    told = (f"{name}{' perhaps' if known != 'yes' else ''}" for name, known in takers.items())
    return " and ".join(told) or "nobody"


def _verb(word: str, takers: Mapping[str, str]) -> str:
    verb = "read" if word in MEDIA else "take"
    return verb if len(takers) > 1 else f"{verb}s"


def _tokens(window: int | None) -> str:
    return "unknown" if window is None else f"{window:,} tokens"


def _answers(old: Coverage, new: Coverage) -> Iterator[Change]:
    """Of every set of needs whether it can be answered; the smallest of those for which the same
    has changed are told."""
    sizes = sorted({*old.sizes, *new.sizes} - {0}) or [0]
    moved: dict[tuple[Known, Known], list[Wants]] = {}
    for wants in old.every(sizes):
        before, after = old.takes(wants), new.takes(wants)
        if before is not after:
            moved.setdefault((before, after), []).append(wants)
    for (before, after), sets in moved.items():
        for wants in smallest(sets):
            about = named(wants.words, _over(wants.size, sizes))
            is_end = Known.NO in (before, after)
            text = f"{_SAID[before, after]}: {about}"
            yield Change("dead end" if is_end else "answer", about, str(before), str(after), text)
    yield from _accepted(old, new)


_SAID = {
    (Known.NO, Known.YES): "no dead end any more",
    (Known.NO, Known.UNKNOWN): "no sure dead end any more, though nobody is known to answer",
    (Known.YES, Known.NO): "a new dead end",
    (Known.UNKNOWN, Known.NO): "now surely a dead end",
    (Known.UNKNOWN, Known.YES): "now surely answered",
    (Known.YES, Known.UNKNOWN): "not surely answered any more",
}


def _over(size: int, sizes: Sequence[int]) -> int:
    return max((each for each in sizes if each < size), default=0)


def _accepted(old: Coverage, new: Coverage) -> Iterator[Change]:
    """Dead ends of both, of which one accepts what the other does not."""
    was, now = ({named(e.words, e.over): e.accepted for e in c.dead_ends()} for c in (old, new))
    for about in (each for each in was if each in now and was[each] is not now[each]):
        text = f"{'accepted now' if now[about] else 'not accepted any more'}: {about}"
        yield Change("dead end", about, was[about], now[about], text)


def _returned(old: Meaning, new: Meaning) -> Iterator[Change]:
    """What goes back to the caller as too large, though another might have room."""
    for was, now, word in ((old, new, "not returned any more"), (new, old, "returned now")):
        for each in was.returned:
            if each not in now.returned:
                about = f"over {each.over:,} tokens, too large for {each.by}"
                is_new = was is new
                yield Change("returned", about, not is_new, is_new, f"{word}: {about}")


def _bounds(old: Meaning, new: Meaning) -> Iterator[Change]:
    """The worst of one request."""
    for about, read in _BOUNDS.items():
        was, now = read(old), read(new)
        if was != now:
            unit = " s" if isinstance(now, float) else ""
            text = f"{about}: {now:g}{unit}, it was {was:g}{unit}"
            yield Change("bound", about, was, now, text)


_BOUNDS: Mapping[str, Callable[[Meaning], float]] = {
    "most models tried": lambda each: each.worst.entries,
    "most attempts": lambda each: each.worst.attempts,
    "longest wait, streamed": lambda each: each.worst.seconds["streamed"],
    "longest wait, not streamed": lambda each: each.worst.seconds["whole"],
    "where all are silent, streamed": lambda each: each.worst.silent["streamed"],
    "where all are silent, not streamed": lambda each: each.worst.silent["whole"],
}


def _settings(old: Meaning, new: Meaning) -> Iterator[Change]:
    """How each is asked. What has changed alike for several is told once; of who joins only what is
    its own, of who leaves nothing."""
    alike: dict[tuple[str, str | None, str | None], list[str]] = {}
    stays = {who for who, _ in old.manner} & {who for who, _ in new.manner}
    for who, what in dict.fromkeys((*old.manner, *new.manner)):
        was, now = old.manner.get((who, what)), new.manner.get((who, what))
        is_own = what in _OWN and now is not None
        if was != now and (who in stays or is_own):
            alike.setdefault((what, was, now), []).append(who)
    entries = len(stays - {""})
    for (what, was, now), names in alike.items():
        who = "every entry" if len(names) == entries > 1 else ", ".join(names)
        about = f"{what} of {who}" if who else what
        text = f"{about}: {now or 'none'}, it was {was or 'none'}"
        yield Change("setting", about, was, now, text)


_OWN = frozenset(("params", "accounts", "own total", "own attempt"))
