"""What a krouter started now would hold, and what each entry could do in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from krouter.accounts import Account
from krouter.adapter import lane_for
from krouter.combostore import ComboStore
from krouter.dialects import DIALECTS
from krouter.lineup import Leaf, Obstacle, candidates
from krouter.load import House
from krouter.paths import Paths
from krouter.providers import Provider
from krouter.route import Skip
from krouter.settings import AccountStrategy
from krouter.wire import HttpWire
from krouter.world import Ask, World


@dataclass(frozen=True, slots=True)
class View:
    """Settings, providers, accounts and combos as they are on disk and in the environment."""

    paths: Paths
    world: World
    store: ComboStore


def open_view(paths: Paths, *, required: bool) -> View:
    """Loads what `serve` would load. Raises ConfigError."""
    house = House(paths, os.environ, HttpWire(), required=required)
    store = house.store
    assert isinstance(store, ComboStore), "files are what a House is opened over here"
    return View(paths, house.router.world, store)


PanelRole = Literal["panel", "judge"]


@dataclass(frozen=True, slots=True)
class Prospect:
    """What would become of an entry: the accounts it could be sent to, or why it is skipped.

    `accounts` are in order, each with what is wrong with it, or None; `ranking` holds score and
    reason of each by its name, and `strategy` is whose order it is, where there is a choice.
    `role` is what the innermost fusion around it asks it for.
    """

    leaf: Leaf
    provider: Provider | None = None
    lane: str | None = None
    accounts: tuple[tuple[Account, str | None], ...] = ()
    ranking: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    strategy: AccountStrategy | None = None
    skip: Skip | None = None
    detail: str = ""
    role: PanelRole | None = None

    @property
    def usable(self) -> bool:
        return any(fault is None for _, fault in self.accounts)

    @property
    def why_not(self) -> str:
        """Why nothing would be sent; empty where something would."""
        if self.usable:
            return ""
        if self.skip is not None:
            return f"{self.skip} ({self.detail})" if self.detail else str(self.skip)
        return "; ".join(f"{account.name}: {fault}" for account, fault in self.accounts)


def prospect(leaf: Leaf, world: World, ask: Ask, role: PanelRole | None = None) -> Prospect:
    """What would become of one entry."""
    found = leaf.obstacle or candidates(leaf, world, ask)
    if isinstance(found, Obstacle):
        provider, _ = world.registry.split(leaf.name)
        lane = lane_for(world.lanes, provider, ask.dialect) if provider else None
        name = lane.name if lane else None
        return Prospect(leaf, provider, name, skip=found.reason, detail=found.detail, role=role)
    accounts = tuple((each.account, account_fault(each.account, world)) for each in found)
    ranking = {place.account: (place.score, place.reason) for c in found if (place := c.place)}
    given = found[0].snapshot
    strategy = given.strategy if given else None
    return Prospect(
        leaf, found[0].provider, found[0].lane.name, accounts, ranking, strategy, role=role
    )


def account_fault(account: Account, world: World) -> str | None:
    """Why an account would be passed over, whatever is locked."""
    return world.secrets.present(account.key) if account.key else None


def spoken_by(provider: Provider, world: World) -> tuple[str, ...]:
    """The dialects in which `provider` can be asked."""
    return tuple(name for name in DIALECTS if lane_for(world.lanes, provider, name))


def providers_with_accounts(world: World) -> list[str]:
    """The providers that have a credential, and the user's own."""
    return [
        name
        for name, provider in world.registry.providers.items()
        if any(account.auth != "none" for account in world.accounts[name]) or provider.own
    ]


def source_of(view: View, name: str) -> Path | None:
    """The file of a combo; None where there is no such combo."""
    return view.store.source(name) if name in view.store.combos else None
