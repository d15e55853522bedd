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
    `provider/model`, `provider@account`, or `*` for all; the most exact name counts. Everybody
    else answers. Raises UnknownFault."""
    known = load_faults()
    found: dict[str, Turn] = {}
    for name, fault in faults.items():
        kind = fault_named(fault, known)
        found[canonical(name, world)] = Turn(kind.name)

    def director(sent: Sent) -> Turn:
        account = f"{sent.provider}@{sent.account}"
        names = (account, sent.entry, sent.provider, "*")
        return next((found[name] for name in names if name in found), _WELL)

    return director


def canonical(name: str, world: World) -> str:
    """A provider, `provider/model` or `provider@account` with the provider's own name in place of
    an alias."""
    alias, mark, rest = split_name(name)
    provider = world.registry.find(alias)
    return f"{provider.name if provider else alias}{mark}{rest}"


def split_name(name: str) -> tuple[str, str, str]:
    """The provider, `/` or `@` or nothing, and the model or account; a model's name may hold any
    of them."""
    mark = min("/@", key=lambda each: name.find(each) % (len(name) + 1))
    return name.partition(mark)
