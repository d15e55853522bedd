"""What bounds a walk: entries that have had their turn, combos that ended, windows too small."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct, field

from krouter.attempt import Failed
from krouter.lineup import Leaf
from krouter.plan import Plan
from krouter.world import World


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A too-large error: the combo that tries larger windows because of it, and whatever is nested
    in that one, tries no others."""

    nest: tuple[Plan, ...]
    """The combo, after those that it stands in."""
    window: int
    failed: Failed

    def holds_for(self, leaf: Leaf) -> bool:
        return any(plan is self.nest[-1] for plan in leaf.nest)


class Bounds(Struct, eq=False):
    """Which entries of one walk are not to be tried, or not any more."""

    world: World
    tried: set[object] = field(default_factory=set)
    stopped: set[object] = field(default_factory=set)
    """Entries whose further accounts are not to be tried."""
    spared: set[object] = field(default_factory=set)
    """Entries that are owed another try, which only a failure of their own may end."""
    over: list[Plan] = field(default_factory=list)
    """Combos that have given up."""
    too_large: list[TooLarge] = field(default_factory=list)

    def is_out(self, leaf: Leaf) -> bool:
        """Whether no further account of an entry may be tried."""
        if leaf.key in self.stopped:
            return True
        return leaf.key not in self.spared and (self.has_ended(leaf) or self.is_too_small(leaf))

    def spare(self, leaf: Leaf) -> None:
        """An entry whose turn had come has it again, whatever others have found since."""
        self.spared.add(leaf.key)
        self.stopped.discard(leaf.key)

    def has_ended(self, leaf: Leaf) -> bool:
        return bool(self.over) and any(plan is over for plan in leaf.nest for over in self.over)

    def is_too_small(self, leaf: Leaf) -> bool:
        if not self.too_large:
            return False
        limits = [found.window for found in self.too_large if found.holds_for(leaf)]
        return bool(limits) and self.window(leaf) <= max(limits)

    def left(self, leaf: Leaf) -> list[TooLarge]:
        """What was too large in combos that the walk has come out of with `leaf`."""
        return [found for found in self.too_large if not found.holds_for(leaf)]

    def window(self, leaf: Leaf) -> int:
        """Tokens, as the entry or else the model table has it; 0 where it is not known."""
        if leaf.entry.context_window:
            return leaf.entry.context_window
        provider, model = self.world.registry.split(leaf.name)
        return (self.world.catalog.facts(provider, model).window or 0) if provider else 0
