"""What a combo means: whom it asks in which order for what, what it can answer, what the worst of a
request is, and how entries are asked. Pure, and the same for files that do the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

from msgspec import Struct
from pydantic.alias_generators import to_camel

from krouter.combos import Combo, Entry, references
from krouter.coverage import Coverage, Returned, attachments, cover, returned
from krouter.lineup import Leaf, Site, leaves
from krouter.plan import Needs, rotates
from krouter.settings import ComboTimeouts, Timeouts
from krouter.standing import plan_for
from krouter.world import Ask, World
from krouter.worst import Worst, worst

PANEL = "panel"

About = tuple[str, str]
"""An entry, with its role in a fusion, or the name of a nested combo, empty for the combo itself;
and a setting of it."""

Order = tuple[str, ...]
"""The models in the order in which they are asked; a fusion is one of them."""


class Meaning(Struct, frozen=True):
    """`orders` holds for every set of attachments an order for each turn, sorted, so that a list
    that is rotated means the same wherever it begins; `manner` how each is asked."""

    orders: Mapping[Needs, tuple[Order, ...]]
    coverage: Coverage
    worst: Worst
    returned: tuple[Returned, ...]
    manner: Mapping[About, str]


def meaning(combo: Combo, world: World) -> Meaning:
    """What `combo` means in `world`, whatever is locked or learned there."""
    manner = dict(_manner(combo, world))
    orders = {needs: _orders(combo, world, needs) for needs in (frozenset(), *attachments())}
    coverage = cover(combo, world)
    return Meaning(orders, coverage, worst(combo, world), tuple(returned(coverage, world)), manner)


def _orders(combo: Combo, world: World, needs: Needs) -> tuple[Order, ...]:
    return tuple(sorted(_order(combo, world, ask) for ask in _turns(combo, world, needs)))


def _turns(combo: Combo, world: World, needs: Needs) -> Iterator[Ask]:
    """One request for each turn of the longest rotation in it."""
    routing = world.settings.routing
    inside = [each for each in _reached(combo, world) if rotates(each, routing)]
    sticky = {each.name: each.sticky_limit or routing.combo_sticky_limit for each in inside}
    for number in range(max((len(each.models) for each in inside), default=1)):
        shifts = {name: number * limit for name, limit in sticky.items()}
        yield Ask("chat", needs=needs, turn=partial(_turn, shifts))


def _turn(shifts: Mapping[str, int], name: str) -> int:
    return shifts.get(name, 0)


def _reached(combo: Combo, world: World) -> list[Combo]:
    """The combo and every one that it runs."""
    found = {combo.name: combo}
    for each in (todo := [combo]):
        for _, name in references(each):
            if name not in found and name in world.combos:
                found[name] = world.combos[name]
                todo.append(found[name])
    return list(found.values())


def _order(combo: Combo, world: World, ask: Ask) -> Order:
    site = Site((plan_for(combo, world, ask, adapted=True),), world.settings.timeouts)
    if site.plan.fuses:
        return (f"all of {combo.name}",)
    tried: dict[object, str] = {}
    for leaf in leaves(site, world, ask, flat=False):
        tried.setdefault(leaf.key, leaf.name if leaf.fusion is None else f"all of {leaf.name}")
    return tuple(tried.values())


Said = tuple[About, str]


def _manner(combo: Combo, world: World) -> Iterator[Said]:
    """What is sent to whom, and how failures and silence are met."""
    site = Site((plan_for(combo, world, Ask("chat")),), world.settings.timeouts)
    yield ("", "total"), _seconds(site.base.merged(combo.timeouts).total)
    for each in _reached(combo, world):
        if rotates(each, world.settings.routing):
            limit = each.sticky_limit or world.settings.routing.combo_sticky_limit
            yield (_of(each, combo), "stickyLimit"), str(limit)
    if site.plan.fuses:
        yield from _of_fusion(site, world, combo)
    else:
        yield from _of_walk(site, world, combo, "")


def _of(inner: Combo, top: Combo) -> str:
    return "" if inner.name == top.name else inner.name


def _of_walk(site: Site, world: World, top: Combo, role: str) -> Iterator[Said]:
    counts: Counter[str] = Counter()
    tried: set[object] = set()
    for leaf in leaves(site, world, Ask("chat"), flat=False):
        if leaf.key in tried:
            continue
        tried.add(leaf.key)
        if leaf.fusion is not None:
            yield from _of_fusion(leaf.fusion, world, top)
            continue
        counts[leaf.name] += 1
        again = f" ({counts[leaf.name]})" if counts[leaf.name] > 1 else ""
        who = f"{leaf.name}{again}{f' as {role}' if role else ''}"
        for what, value in _of_leaf(leaf, is_copy=role == PANEL):
            yield (who, what), value


def _of_leaf(leaf: Leaf, is_copy: bool) -> Iterator[tuple[str, str]]:
    """What is said of one entry, less what has no effect on it."""
    entry, combo = leaf.entry, leaf.combo
    if entry.params:
        yield "params", json.dumps(entry.params, sort_keys=True, ensure_ascii=False)
    if entry.accounts is not None:
        yield "accounts", ", ".join(sorted(set(entry.accounts)))
    yield "retries", str(combo.retries)
    yield "onTooLarge", combo.on_too_large
    yield "onRefusal", combo.on_refusal
    if is_copy:
        return
    yield "streamGuard", combo.stream_guard
    yield from _of_timeouts(leaf.timeouts, leaf.own)


def _of_timeouts(timeouts: Timeouts, own: tuple[ComboTimeouts, ...]) -> Iterator[tuple[str, str]]:
    for name, value in timeouts.model_dump().items():
        if name != "total":
            yield to_camel(name), _seconds(value)
    for name in ("total", "attempt"):
        limits = [given for each in own if isinstance(given := getattr(each, name), float)]
        if limits:
            yield f"own {name}", _seconds(min(limits))


def _seconds(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "off" if value is None else f"{value:g} s"


def _of_fusion(site: Site, world: World, top: Combo) -> Iterator[Said]:
    """A panel, how it is waited for, and who answers then."""
    plan, combo = site.plan, site.plan.combo
    for what, value in _of_tuning(combo, [step.entry.model for step in plan.steps]):
        yield (_of(combo, top), what), value
    if len(plan.steps) > combo.fusion_tuning.max_panel:
        return
    for place, _ in plan.placed():
        yield from _of_walk(site.alone(place), world, top, PANEL)
    name = combo.judge_name
    judge = Entry.model_construct(model=name) if name else plan.steps[0].entry
    yield from _of_walk(site.instead(judge, ""), world, top, "judge")


def _of_tuning(combo: Combo, panel: list[str]) -> Iterator[tuple[str, str]]:
    tuning, size = combo.fusion_tuning, len(panel)
    yield PANEL, ", ".join(panel)
    if size > tuning.max_panel:
        yield "maxPanel", f"{tuning.max_panel}, and every call is answered 400"
        return
    needed, hard = min(tuning.min_panel, size), tuning.panel_hard_timeout_ms
    yield "judge", combo.judge_name or f"Auto ({panel[0]})"
    yield "minPanel", str(needed)
    yield "stragglerGraceMs", str(min(tuning.straggler_grace_ms, hard))
    yield "panelHardTimeoutMs", str(hard)
    yield "one answer alone", _alone(combo, needed)
    yield "onJudgeFailure", tuning.on_judge_failure
    yield "lateCalls", tuning.late_calls
    yield "judgePrompt", tuning.judge_prompt or "krouter's own"


def _alone(combo: Combo, needed: int) -> str:
    """What becomes of exactly one usable answer."""
    tuning = combo.fusion_tuning
    if tuning.require_quorum and needed > 1:
        return "503"
    is_unnamed = tuning.on_single == "judge" and not combo.judge_name
    return "resend" if is_unnamed else tuning.on_single
