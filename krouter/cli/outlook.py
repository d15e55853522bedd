"""What a krouter started now could do with a combo: what would become of each of its entries, of
the judge of a panel, and of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from krouter.cli.panels import Panel
from krouter.cli.view import PanelRole, Prospect, prospect
from krouter.combos import Combo
from krouter.dialects import DIALECTS
from krouter.lineup import Site, leaves
from krouter.plan import Plan
from krouter.route import Skip
from krouter.standing import plan_for
from krouter.world import Ask, World


def top(plan: Plan, world: World) -> Site:
    """The plan of a request, where it stands."""
    return Site((plan,), world.settings.timeouts)


def panels(site: Site, world: World, ask: Ask) -> Iterator[Panel]:
    """Every fusion in the order of a request, those inside others after them."""
    if site.plan.fuses:
        yield Panel(site)
    for leaf in leaves(site, world, ask, flat=False):
        if leaf.fusion is not None:
            yield from panels(leaf.fusion, world, ask)


def prospects(site: Site, world: World, ask: Ask) -> Iterator[Prospect]:
    """Every entry of the flattened walk, in order, and after each panel its judge."""
    if not site.plan.fuses:
        yield from _walked(site, world, ask, None)
        return
    panel = Panel(site)
    for call in panel.calls():
        yield from _walked(call, world, ask, "panel")
    yield from _walked(panel.judging(), world, ask, "judge")


def _walked(site: Site, world: World, ask: Ask, role: PanelRole | None) -> Iterator[Prospect]:
    """What one walk tries, each entry once."""
    seen: set[object] = set()
    for leaf in leaves(site, world, ask, flat=False):
        if leaf.fusion is not None:
            yield from prospects(leaf.fusion, world, ask)
            continue
        repeated = leaf.obstacle is None and leaf.key in seen
        seen.add(leaf.key)
        if repeated:
            yield Prospect(leaf, skip=Skip.ALREADY_TRIED, role=role)
        else:
            yield prospect(leaf, world, ask, role)


def fault(site: Site, world: World, ask: Ask) -> str:
    """Why no answer could come of it; empty where one could."""
    return _panels_fault(Panel(site), world, ask) if site.plan.fuses else _walks(site, world, ask)


def _walks(site: Site, world: World, ask: Ask) -> str:
    faults: list[str] = []
    for leaf in leaves(site, world, ask, flat=False):
        inside = leaf.fusion
        why = fault(inside, world, ask) if inside else prospect(leaf, world, ask).why_not
        if not why:
            return ""
        faults.append(why)
    return "; ".join(dict.fromkeys(faults))


def _panels_fault(panel: Panel, world: World, ask: Ask) -> str:
    if panel.too_large:
        return panel.too_large
    tuning, name = panel.tuning, panel.combo.judge_name
    faults = [_walks(call, world, ask) for call in panel.calls()]
    usable, told = faults.count(""), "; ".join(dict.fromkeys(filter(None, faults)))
    if not usable:
        return told
    if usable < panel.needed and tuning.require_quorum:
        return f"requireQuorum asks for {panel.needed} answers, and {usable} can come: {told}"
    is_judged = name and (usable > 1 or tuning.on_single == "judge")
    if not is_judged or tuning.on_judge_failure == "best":
        return ""
    judging = _walks(panel.judging(), world, ask)
    return f"the judge {name}: {judging}" if judging else ""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Whether a name can be answered at all, in which dialects, and if not, why."""

    usable: bool
    why: str
    speaks: tuple[str, ...]


def outlook(combo: Combo, world: World) -> Outlook:
    """The outlook of a combo over every dialect, not streamed."""
    site = top(plan_for(combo, world, Ask("chat")), world)
    faults = {name: fault(site, world, Ask(name)) for name in DIALECTS}
    if usable := tuple(name for name in DIALECTS if not faults[name]):
        return Outlook(True, "", usable)
    lanes = {
        name: sum(each.lane is not None for each in prospects(site, world, Ask(name)))
        for name in DIALECTS
    }
    why = faults[max(lanes, key=lanes.__getitem__)]
    return Outlook(False, why, tuple(name for name in lanes if lanes[name]))
