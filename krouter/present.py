"""What is known right now of accounts and models, as it can be taken into another world's time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from krouter.board import Key, LockState, Pair
from krouter.health import Health
from krouter.quota import Item, Note
from krouter.reporter import Balance, Figure, Report, Window
from krouter.world import World


@dataclass(frozen=True, slots=True)
class Present:
    """Locks, rotations, health and quotas at `now`, in epoch seconds: copies, which stay as they
    are."""

    now: float
    locks: Sequence[tuple[Key, LockState]]
    turns: dict[str, int]
    account_turns: dict[str, int]
    health: dict[Pair, Health]
    notes: Sequence[Note]

    @classmethod
    def of(cls, world: World) -> Present:
        """To be taken on the event loop."""
        pool = world.pool
        return cls(
            world.board.now(),
            [(key, replace(lock)) for key, lock in world.board.locks()],
            world.board.turns.counts(),
            pool.turns.counts(),
            pool.health.known(),
            pool.quota.notes(),
        )

    def put_into(self, world: World) -> None:
        """Has all of it known in a world in which nothing has happened yet: what ends in a minute
        here ends in a minute there."""
        shift = world.board.now() - self.now
        for key, lock in self.locks:
            world.board.put(key, lock, lock.until + shift)
        world.board.turns.resume(self.turns)
        world.pool.turns.resume(self.account_turns)
        for (provider, account), health in self.health.items():
            moved = structs.replace(health, at=health.at + shift)
            world.pool.health.put(provider, account, moved)
        for note in self.notes:
            report = _report(_moved(note.item, shift))
            world.pool.quota.note(note.provider, note.account, report, note.source)


def _moved(item: Item, shift: float) -> Item:
    if isinstance(item, Balance) or item.resets_at is None:
        return item
    return replace(item, resets_at=item.resets_at + shift)


def _report(item: Item) -> Report:
    match item:
        case Figure():
            return Report(figures=(item,))
        case Window():
            return Report(windows=(item,))
    return Report(balances=(item,))
