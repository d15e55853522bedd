"""From files and environment to a World: the first load, and every reload."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from krouter.accounts import Account, collect_accounts
from krouter.adapter import load_lanes, load_rows
from krouter.answer import described
from krouter.board import Board
from krouter.combostore import ComboStore
from krouter.keys import KeyRing
from krouter.lineup import World
from krouter.paths import Paths, shipped_combos
from krouter.problems import ConfigError, Problem
from krouter.providers import Registry, build_registry
from krouter.route import Log
from krouter.router import Router
from krouter.secrets import Secrets
from krouter.settings import Settings, load_settings
from krouter.wire import Wire

_log = logging.getLogger("krouter")

WATCH_SECONDS = 0.5
"""How often the files are looked at for changes."""


@dataclass(frozen=True, slots=True)
class Config:
    """What `krouter.toml` and the environment say together."""

    settings: Settings
    registry: Registry
    accounts: Mapping[str, tuple[Account, ...]]


def load_config(paths: Paths, env: Mapping[str, str], *, required: bool = False) -> Config:
    """`required` is for a file asked for by name. Raises ConfigError with every problem."""
    file = str(paths.config)
    settings = load_settings(paths.config, required=required)
    registry = build_registry(load_rows(), settings, file)
    return Config(settings, registry, collect_accounts(registry, settings, env, file))


def open_combos(paths: Paths) -> ComboStore:
    """The user's combos, with the packaged ones behind them."""
    return ComboStore([paths.combos, shipped_combos()])


def quiet(tag: str, line: str) -> None:
    """A log that nobody reads."""


class House:
    """Everything a running krouter holds, and how it follows its files."""

    def __init__(
        self,
        paths: Paths,
        env: Mapping[str, str],
        wire: Wire,
        log: Log = quiet,
        *,
        now: Callable[[], float] = time.time,
        required: bool = False,
    ) -> None:
        self.paths = paths
        self._env = env
        self._log = log
        self._required = required
        self._stamp = _stamp(paths.config)
        self._vanished = self._stamp is None
        self._config = load_config(paths, env, required=required)
        self._config_problems: tuple[Problem, ...] = ()
        self.store = open_combos(paths)
        self._secrets = Secrets(env, folder=paths.home)
        self.keys = KeyRing(paths.keys)
        self.router = Router(self._world(Board(now), wire))
        for problem in self.store.problems:
            log("CONFIG", str(problem))

    def _world(self, board: Board, wire: Wire) -> World:
        config = self._config
        return World(
            settings=config.settings,
            registry=config.registry,
            accounts=config.accounts,
            combos=self.store.combos,
            board=board,
            secrets=self._secrets,
            lanes=load_lanes(),
            wire=wire,
            log=self._log,
        )

    @property
    def problems(self) -> list[str]:
        """What is wrong with the files as they are now."""
        found = [*self._config_problems, *self.store.problems]
        texts = [str(problem) for problem in found if problem.level == "error"]
        return texts + ([self.keys.problem] if self.keys.problem else [])

    def refresh(self) -> bool:
        """Takes in what has changed on disk; whether anything was. A bad file changes nothing but
        `problems`."""
        settings_changed = self._refresh_config()
        changes = self.store.refresh()
        for problem in changes.problems if changes else ():
            self._log("CONFIG", str(problem))
        if not (settings_changed or changes):
            return False
        self._follow()
        self._log("CONFIG", f"reloaded: {len(self.store.combos)} combos")
        return True

    def _follow(self) -> None:
        """Takes what has been read; a changed credential starts without the old one's locks."""
        world, config = self.router.world, self._config
        for name, accounts in config.accounts.items():
            for account in set(world.accounts.get(name, ())) - set(accounts):
                world.board.forget(account.provider, account.name)
        self.router.reload(
            replace(
                world,
                settings=config.settings,
                registry=config.registry,
                accounts=config.accounts,
                combos=self.store.combos,
            )
        )

    def _refresh_config(self) -> bool:
        stamp = _stamp(self.paths.config)
        vanished, self._vanished = self._vanished, stamp is None
        if stamp is None and not vanished:
            return False  # an editor may be putting a new file in its place
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._config = load_config(self.paths, self._env, required=self._required)
        except ConfigError as error:
            self._config_problems = error.problems
            for problem in error.problems:
                self._log("CONFIG", f"{problem} The settings stay as they were.")
            return False
        self._config_problems = ()
        return True

    async def watch(self) -> None:
        """Follows the files until cancelled. Reading them stays off the event loop."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await asyncio.to_thread(self.refresh)
            except Exception as error:  # whatever it was, the next edit must be seen
                _log.error("following the files failed with %s\n%s", *described(error))


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
