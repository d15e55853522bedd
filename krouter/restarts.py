"""Which rotations start again when files have changed."""

from __future__ import annotations

from krouter.combos import Combo
from krouter.settings import Settings
from krouter.world import World


def restart_rotations(old: World, new: World) -> None:
    """A changed strategy setting starts every rotation again, another edit of a combo its own."""
    before, combos = old.combos, new.combos
    edited = [name for name in {*before, *combos} if before.get(name) != combos.get(name)]
    strategies = _switches(new.settings) != _switches(old.settings) or any(
        _strategy(before[name]) != _strategy(combos[name])
        for name in edited
        if name in before and name in combos
    )
    new.board.turns.restart(None if strategies else edited)


def _switches(settings: Settings) -> tuple[bool, int]:
    return settings.routing.combo_round_robin, settings.routing.combo_sticky_limit


def _strategy(combo: Combo) -> object:
    return combo.strategy, combo.sticky_limit, combo.judge, combo.fusion_tuning
