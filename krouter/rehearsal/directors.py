"""The usual directors."""

from __future__ import annotations

from collections.abc import Mapping

from krouter.adapter import load_faults
from krouter.script import Director, Sent, Turn, fault_named
from krouter.world import World

_WELL = Turn()


def well(sent: Sent) -> Turn:
    """Every provider answers."""
    return _WELL


def failing(world: World, faults: Mapping[str, str | int]) -> Director:
    """Who is named in `faults` always has that fault: a provider, by its name or an alias,
    `provider/model`, or `*` for all; the most exact name counts. Everybody else answers. Raises
    UnknownFault."""
    known = load_faults()
    found: dict[str, Turn] = {}
    for name, fault in faults.items():
        kind = fault_named(fault, known)
        alias, slash, model = name.partition("/")
        provider = world.registry.find(alias)
        canonical = provider.name if provider else alias
        found[f"{canonical}{slash}{model}"] = Turn(kind.name)

    def director(sent: Sent) -> Turn:
        return found.get(sent.entry) or found.get(sent.provider) or found.get("*") or _WELL

    return director
