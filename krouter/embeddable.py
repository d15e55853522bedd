"""Which combos can be asked for embeddings."""

from __future__ import annotations

from collections.abc import Iterator

from krouter.combos import LEVELS, Combo, reference
from krouter.world import World


def why_not(combo: Combo, world: World) -> str:
    """Why the vectors of a combo could not be compared, as far as the model table knows; empty
    where nothing speaks against it."""
    sizes = dict(_sizes(combo, world, 1))
    if len(set(sizes.values())) < 2:
        return ""
    told = ", ".join(f"{name} {size}" for name, size in sizes.items())
    return (
        f"The combo {combo.name} gives no embeddings: the vectors of its entries differ in size"
        f" ({told}), so that they cannot be compared. Ask for the same 'dimensions' of all, or list"
        " models with vectors of one size."
    )


def _sizes(combo: Combo, world: World, level: int) -> Iterator[tuple[str, int]]:
    for entry in combo.models:
        name = reference(entry.model)
        provider, model = world.registry.split(entry.model)
        if name is not None and name in world.combos and level < LEVELS:
            yield from _sizes(world.combos[name], world, level + 1)
        elif name is None and provider is not None:
            if "dimensions" in entry.params:
                continue
            if size := world.catalog.vector_size(provider, model):
                yield entry.model, size
