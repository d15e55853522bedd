"""`GET /api/view`: one snapshot of everything that the pages draw, as plain data.

Times are epoch seconds, shares are from 0 to 1, windows are in tokens; what is not known is null.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI

from krouter._version import __version__
from krouter.adapter import lane_for
from krouter.catalog import MEDIA, Known, with_entry
from krouter.combos import LEVELS, Combo, Entry, FusionTuning, reference
from krouter.combostore import ComboStore
from krouter.lineup import Obstacle, missing_account, out_of_reach
from krouter.load import House
from krouter.plan import Needs, shape_for, sticky_limit, strategy_for, strategy_of
from krouter.providers import Provider
from krouter.route import Skip
from krouter.serve.accountview import Accounts
from krouter.serve.models import known
from krouter.serve.touched import under_way
from krouter.settings import RoutingSettings, Settings
from krouter.standing import standing
from krouter.strategies import STRATEGIES
from krouter.world import World

T = TypeVar("T")

AT_ONCE = 8
"""Cards that are made in one go, which takes about a millisecond."""
ALL: Needs = frozenset(MEDIA)
DIALECT = "chat"
"""The dialect by which a lane is told."""
NESTED_SHUT = "none of its entries can be asked now"


def add_view(app: FastAPI, house: House, problems: Callable[[], list[str]]) -> None:
    """The snapshot."""

    @app.get("/api/view")
    async def view() -> dict[str, Any]:
        await asyncio.to_thread(house.router.world.catalog.warm_up)
        return await snapshot(house, problems)


async def snapshot(house: House, problems: Callable[[], list[str]]) -> dict[str, Any]:
    """Everything that is drawn, as it is now, and what is wrong with the files."""
    world = house.router.world
    cards = Cards(world, house.store if isinstance(house.store, ComboStore) else None)
    return {
        "combos": await _unhurried(cards.all()),
        "providers": await _unhurried(cards.providers()),
        "settings": shown_settings(world.settings),
        "strategies": strategies(world.settings.routing),
        "fusion_tuning": told_tuning(FusionTuning()),
        "in_flight": under_way(house.router.routes),
        "problems": problems(),
        "now": world.pool.now(),
        "version": __version__,
    }


async def _unhurried(made: Iterable[T]) -> list[T]:
    """All that is made, with room for others in between: a stream may not stall for it."""
    found = []
    for number, each in enumerate(made, 1):
        found.append(each)
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


def shown_settings(settings: Settings) -> dict[str, Any]:
    """What the pages may change of the settings."""
    pools = settings.vision_adapter.model_dump(mode="json")
    return {**settings.routing.model_dump(mode="json"), "vision_adapter": pools}


def strategies(routing: RoutingSettings) -> list[dict[str, Any]]:
    """All there are, that of a combo which names none first: the shape of a combo of it now, and of
    one with a single entry, and whether it takes turns ever."""
    return [
        {
            "name": name,
            "title": strategy.title,
            "shape": shape_for(name, 2, routing),
            "alone": shape_for(name, 1, routing),
            "turns": any(strategy_for(name, 2, each).rotates for each in _SWITCHED),
        }
        for name, strategy in STRATEGIES.items()
    ]


_SWITCHED = [RoutingSettings(combo_round_robin=is_on) for is_on in (False, True)]


def told_tuning(tuning: FusionTuning) -> dict[str, Any]:
    """All that holds, what is not set too; without texts and names."""
    return tuning.model_dump(mode="json", by_alias=True, exclude={"judge_model", "judge_prompt"})


class Cards:
    """The combos and providers of a world, each as a card is drawn from."""

    def __init__(self, world: World, store: ComboStore | None) -> None:
        self._world = world
        self._store = store
        self._accounts = Accounts(world)
        self._skips: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        for problem in store.problems if store else ():
            self._problems.setdefault(problem.file, str(problem))

    def all(self) -> Iterator[dict[str, Any]]:
        """Those that are served, and those that a bad file keeps from it."""
        yield from map(self.combo, self._world.combos.values())
        yield from (_unserved(*each) for each in self._world.unserved.items())

    def combo(self, combo: Combo) -> dict[str, Any]:
        routing = self._world.settings.routing
        rotates = strategy_of(combo, routing).rotates
        return {
            **self._file(combo.name),
            "description": combo.description or "",
            "strategy": combo.strategy,
            "shape": shape_for(combo.strategy, len(combo.models), routing),
            "rotates": rotates,
            "turn": self._turn(combo) if rotates else None,
            "sticky": combo.sticky_limit,
            "judge": combo.judge_name,
            "auto_judge": strategy_of(combo, routing).fuses and combo.judge_name is None,
            "tuning": combo.fusion_tuning.model_dump(
                mode="json", by_alias=True, exclude_unset=True
            ),
            "effective": told_tuning(combo.fusion_tuning),
            "entries": [self.entry(entry) for entry in combo.models],
        }

    def _file(self, name: str) -> dict[str, Any]:
        """Where it is from, and what is wrong with its file."""
        file = self._store.source(name) if self._store and name in self._store.combos else None
        shown = shown_path(file) if file else ""
        shipped = bool(self._store and file and file.parent != self._store.folders[0])
        own = shown_path(self._store.folders[0] / f"{name}.json") if self._store else ""
        problem = self._problems.get(shown) or self._problems.get(own, "")
        return {"name": name, "file": shown, "shipped": shipped, "problem": problem}

    def _turn(self, combo: Combo) -> int:
        """The index of the entry that the next request asks first, were nothing known of any."""
        taken = self._world.board.turns.peek(combo.name)
        return taken // sticky_limit(combo, self._world.settings.routing) % len(combo.models)

    def entry(self, entry: Entry) -> dict[str, Any]:
        name = reference(entry.model)
        seen = standing(entry, self._world, ALL)
        reads = {medium: str(seen.reads.get(medium, Known.UNKNOWN)) for medium in MEDIA}
        common = {"model": entry.model, "label": entry.label or "", "reads": reads}
        if name is not None:
            return common | self._nested(name)
        provider, model = self._world.registry.split(entry.model)
        if provider is None:
            return common | _drawn("model", skip=str(Skip.UNKNOWN_PROVIDER))
        return common | self._model(entry, provider, model)

    def _nested(self, name: str) -> dict[str, Any]:
        combo = self._world.combos.get(name)
        if combo is None:
            return _drawn("combo", skip="unknown combo")
        window = known(combo, self._world)["context_window"]
        skip = "" if self._is_open(combo, 2) else NESTED_SHUT
        return _drawn("combo", window=window, skip=skip)

    def _is_open(self, combo: Combo, level: int) -> bool:
        """Whether any entry can be asked now."""
        for entry in combo.models:
            name = reference(entry.model)
            inner = None if name is None else self._world.combos.get(name)
            if inner is not None and level < LEVELS and self._is_open(inner, level + 1):
                return True
            if name is None and not self._skip(entry):
                return True
        return False

    def _skip(self, entry: Entry) -> str:
        """Why one model cannot be asked now; empty where it can."""
        key = repr((entry.model, entry.accounts))
        if key not in self._skips:
            provider, model = self._world.registry.split(entry.model)
            self._skips[key] = (
                str(Skip.UNKNOWN_PROVIDER)
                if provider is None
                else self._model(entry, provider, model)["skip"]
            )
        return self._skips[key]

    def _model(self, entry: Entry, provider: Provider, model: str) -> dict[str, Any]:
        world = self._world
        lane = lane_for(world.lanes, provider, DIALECT)
        accounts = [
            self._accounts.of_model(account, model)
            for account in world.accounts_of(provider.name, entry)
        ]
        obstacle = None
        if lane is None:
            obstacle = out_of_reach(provider, DIALECT)
        elif not accounts:
            obstacle = Obstacle(Skip.NO_ACCOUNT, missing_account(provider, entry.accounts))
        return _drawn(
            "model",
            provider=provider.name,
            window=with_entry(world.catalog.facts(provider, model), entry).window,
            lane=lane.name if lane else "",
            skip=_told(obstacle) if obstacle else _shut(accounts),
            accounts=accounts,
        )

    def providers(self) -> Iterator[dict[str, Any]]:
        """Those that have an account, that a combo names or that the settings speak of."""
        return map(self._provider, sorted(self._named()))

    def _named(self) -> Iterator[str]:
        world = self._world
        named = {entry.model for combo in world.combos.values() for entry in combo.models}
        found = {p.name for model in named if (p := world.registry.split(model)[0])}
        for name, provider in world.registry.providers.items():
            has_account = any(account.auth != "none" for account in world.accounts[name])
            if has_account or provider.own or name in found or name in world.registry.settings:
                yield name

    def _provider(self, name: str) -> dict[str, Any]:
        provider = self._world.registry.providers[name]
        strategy, limit = self._accounts.strategy(name)
        own = self._world.registry.settings_of(name)
        return {
            "name": name,
            "title": provider.title or name,
            "account_strategy": strategy,
            "account_sticky_limit": limit,
            "own_strategy": own.account_strategy,
            "own_sticky_limit": own.account_sticky_limit,
            "accounts": self._accounts.of_provider(name),
        }


def shown_path(path: Path) -> str:
    """The path as text that can be printed, whatever bytes are in it."""
    return str(path).encode(errors="replace").decode()


def _unserved(name: str, problem: str) -> dict[str, Any]:
    """A combo of which there is nothing but a bad file."""
    return {
        "name": name,
        "file": f"{name}.json",
        "shipped": False,
        "problem": problem,
        "description": "",
        "strategy": "",
        "shape": "chain",
        "rotates": False,
        "turn": None,
        "sticky": None,
        "judge": None,
        "auto_judge": False,
        "tuning": {},
        "effective": told_tuning(FusionTuning()),
        "entries": [],
    }


def _drawn(kind: str, **told: Any) -> dict[str, Any]:
    blank: dict[str, Any] = {"provider": "", "window": None, "lane": "", "skip": "", "accounts": []}
    return {"kind": kind, **blank, **told}


def _told(obstacle: Obstacle) -> str:
    return f"{obstacle.reason} ({obstacle.detail})" if obstacle.detail else str(obstacle.reason)


def _shut(accounts: list[dict[str, Any]]) -> str:
    """Why none of an entry's accounts can be asked now; empty where one can."""
    faults = [each["problem"] or (each["lock"] or {}).get("reason", "") for each in accounts]
    if not all(faults):
        return ""
    return "; ".join(f"{each['name']}: {why}" for each, why in zip(accounts, faults, strict=True))
