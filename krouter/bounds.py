"""What bounds a walk: entries that have had their turn, combos that ended, windows too small."""

from __future__ import annotations

from dataclasses import dataclass, field

from krouter.lineup import Leaf, World
from krouter.plan import Plan


@dataclass(slots=True)
class Bounds:
    """Which entries of one walk are not to be tried, or not any more."""

    world: World
    tried: set[object] = field(default_factory=set)
    stopped: set[object] = field(default_factory=set)
    """Entries whose further accounts are not to be tried."""
    over: list[Plan] = field(default_factory=list)
    """Nested combos that have given up."""
    larger_than: int | None = None
    """After a too-large error, only entries with a larger window are tried."""

    def is_out(self, leaf: Leaf) -> bool:
        return leaf.key in self.stopped or self.has_ended(leaf) or self.is_too_small(leaf)

    def has_ended(self, leaf: Leaf) -> bool:
        return any(plan is over for plan in leaf.nest for over in self.over)

    def is_too_small(self, leaf: Leaf) -> bool:
        return self.larger_than is not None and self.window(leaf) <= self.larger_than

    def window(self, leaf: Leaf) -> int:
        """Tokens, as the entry or else the model table has it; 0 where it is not known."""
        if leaf.entry.context_window:
            return leaf.entry.context_window
        alias, _, model = leaf.name.partition("/")
        provider = self.world.registry.find(alias)
        return (self.world.catalog.facts(provider, model).window or 0) if provider else 0
