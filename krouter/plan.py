"""The order of one request, decided before anything is sent. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from krouter.combos import Combo, Entry
from krouter.settings import RoutingSettings
from krouter.strategies import STRATEGIES


class NotBuilt(Exception):
    """A call that needs what this version of krouter does not do; the text names it."""


@dataclass(frozen=True, slots=True)
class Step:
    """An entry at its place, and why it stands there."""

    entry: Entry
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The order in which a combo's entries are tried."""

    combo: Combo
    steps: tuple[Step, ...]


def make_plan(combo: Combo, routing: RoutingSettings, stream: bool) -> Plan:
    """Raises NotBuilt for a strategy or a guard that cannot be run."""
    strategy = STRATEGIES["round-robin" if _rotates(combo, routing) else combo.strategy]
    if strategy.order is None:
        raise NotBuilt(f"the combo {combo.name!r} uses {strategy.name} ({strategy.title})")
    if stream and combo.stream_guard != "off":
        raise NotBuilt(f'the combo {combo.name!r} sets "streamGuard": "{combo.stream_guard}"')
    return Plan(combo, tuple(Step(entry, "as listed") for entry in strategy.order(combo.models)))


def _rotates(combo: Combo, routing: RoutingSettings) -> bool:
    """`fallback` follows the global Combo Round Robin switch, `priority` never does."""
    return combo.strategy == "fallback" and routing.combo_round_robin and len(combo.models) > 1
