"""From files and environment to a World: the first load, and every reload."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from krouter.accounts import Account, collect_accounts
from krouter.adapter import lane_for, load_lanes, load_models, load_rows
from krouter.answer import described
from krouter.board import Board
from krouter.catalog import build_catalog
from krouter.combos import Combo
from krouter.combostore import Changes, ComboStore
from krouter.dialects import DIALECTS
from krouter.errors import Failure
from krouter.faults import credential_faults, unknown_accounts
from krouter.keys import KeyRing
from krouter.ledger import Ledger
from krouter.naming import entries
from krouter.paths import Paths, shipped_combos
from krouter.poller import Poller
from krouter.pool import Pool
from krouter.private import make_private
from krouter.problems import ConfigError, Problem
from krouter.providers import Registry, build_registry
from krouter.reporter import load_reporters
from krouter.restarts import restart_rotations
from krouter.route import Log, Route
from krouter.router import Router
from krouter.secrets import Secrets
from krouter.settings import Settings, load_settings, parse_settings
from krouter.wire import Wire
from krouter.world import Tracing, World

_log = logging.getLogger("krouter")

WATCH_SECONDS = 0.5
"""How often the files are looked at for changes."""
CLOSE_SECONDS = 5.0
"""How long the ledger may take to write what it still holds."""


@dataclass(frozen=True, slots=True)
class Config:
    """What `krouter.toml` and the environment say together."""

    settings: Settings
    registry: Registry
    accounts: Mapping[str, tuple[Account, ...]]


class Combos(Protocol):
    """Where combos come from: folders that are followed, or what a program has given."""

    @property
    def combos(self) -> Mapping[str, Combo]: ...

    @property
    def problems(self) -> tuple[Problem, ...]: ...

    @property
    def unserved(self) -> Mapping[str, str]: ...

    def refresh(self, anew: bool = False) -> Changes | None: ...


def load_config(
    paths: Paths,
    env: Mapping[str, str],
    *,
    required: bool = False,
    settings: Settings | None = None,
) -> Config:
    """`required` is for a file asked for by name; `settings` are taken instead of the file's.
    Raises ConfigError with every problem."""
    file = str(paths.config)
    settings = settings or load_settings(paths.config, required=required)
    registry = build_registry(load_rows(), settings, file)
    return Config(settings, registry, collect_accounts(registry, settings, env, file))


def open_combos(paths: Paths) -> ComboStore:
    """The user's combos, with the packaged ones behind them."""
    return ComboStore([paths.combos, shipped_combos()])


def quiet(tag: str, line: str) -> None:
    """A log that nobody reads."""


class House:
    """Everything a running krouter holds, and how it follows its files.

    `settings` and `store` take the place of the settings file and of the combo folders. Without
    `ledger` no request is kept, whatever the settings say. `log` is told the steps of requests if
    they are `traced`.
    """

    def __init__(
        self,
        paths: Paths,
        env: Mapping[str, str],
        wire: Wire,
        log: Log = quiet,
        *,
        now: Callable[[], float] = time.time,
        required: bool = False,
        settings: Settings | None = None,
        store: Combos | None = None,
        ledger: bool = True,
        traced: bool = True,
    ) -> None:
        self.paths = paths
        self._env = env
        self._log = log
        self._traced = traced and log is not quiet
        self._tracing = Tracing(self._traced)
        self._now = now
        self._required = required
        self._settings = settings
        self._stamp = _stamp(paths.config)
        self._vanished = self._stamp is None
        self._config = self._read_config()
        self._config_problems: tuple[Problem, ...] = ()
        self.store = store or open_combos(paths)
        self._anew = False
        self._wake = asyncio.Event()
        self._refreshing = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._secrets = Secrets(env, folder=paths.home, now=now)
        make_private(paths.keys)
        self.keys = KeyRing(paths.keys)
        reporters = load_reporters()
        self.pool = Pool.empty(now, reporters)
        self.router = Router(self._world(Board(now), wire))
        self.ledger = self._open_ledger() if ledger else None
        self.poller = Poller(lambda: self.router.world, self.pool, reporters)
        for problem in self.store.problems:
            log("CONFIG", str(problem))

    def _open_ledger(self) -> Ledger:
        kept = self._config.settings.ledger
        ledger = Ledger(
            self.paths.ledger,
            days=kept.days,
            megabytes=kept.megabytes,
            warn=lambda text: self._log("LEDGER", text),
            now=self._now,
        )
        self.router.books.append(self._keep)
        self.router.amended.append(lambda route, news: self._keep(route))
        if kept.enabled:
            ledger.begin()
        return ledger

    def _keep(self, route: Route) -> None:
        if self.ledger is not None and self.router.world.settings.ledger.enabled:
            self.ledger.put(route)

    async def close(self) -> None:
        """Ends every connection, and writes what the ledger still has to."""
        await self.router.close()
        await self.router.world.wire.close()
        if self.ledger is not None:
            self.ledger.close(CLOSE_SECONDS)

    def _world(self, board: Board, wire: Wire) -> World:
        config = self._config
        return World(
            settings=config.settings,
            registry=config.registry,
            accounts=config.accounts,
            combos=self.store.combos,
            unserved=self.store.unserved,
            board=board,
            secrets=self._secrets,
            lanes=load_lanes(),
            wire=wire,
            log=self._log,
            tracing=self._tracing,
            catalog=build_catalog(load_models, config.settings.reads),
            pool=self.pool,
            is_own_key=lambda token: self.keys.match(token) is not None,
        )

    def trace(self, listens: bool) -> None:
        """Has the steps of requests logged as long as somebody `listens`, or in any case where they
        are `traced`."""
        self._tracing.on = self._traced or listens

    @property
    def problems(self) -> list[str]:
        """What is wrong with files and credentials as they are now."""
        found = [*self._config_problems, *self.store.problems, *self._faults()]
        texts = [str(problem) for problem in found if problem.level == "error"]
        others = (self.keys.problem, self.ledger.state.problem if self.ledger else "")
        return [*texts, *filter(None, others)]

    def _faults(self) -> Iterator[Problem]:
        """What is wrong with the accounts in use, and with the combos that name them."""
        world, file = self.router.world, str(self.paths.config)
        yield from credential_faults(
            world.settings, world.registry, world.accounts, self._secrets, file
        )
        for name, combo in world.combos.items():
            source = f"the combo {name}"
            yield from unknown_accounts(combo, world.registry, world.accounts, source)

    def refresh(self, anew: bool = False) -> bool:
        """Takes in what has changed on disk; whether anything was. A bad file changes nothing but
        `problems`. `anew` is to read all of it, and to tell all that is wrong. From any thread."""
        with self._refreshing:
            return self._refresh(anew)

    def _refresh(self, anew: bool) -> bool:
        if anew:
            self._stamp, self._vanished, self._config_problems = (), True, ()
            self.keys.reload()
        settings_changed = self._refresh_config()
        before = () if anew else self.store.problems
        changes = self.store.refresh(anew)
        for problem in self.store.problems if changes or anew else ():
            if problem not in before:
                self._log("CONFIG", str(problem))
        if anew and self.keys.problem:
            self._log("CONFIG", self.keys.problem)
        if not (settings_changed or changes or anew):
            return False
        self._follow()
        self._log("CONFIG", f"reloaded: {len(self.store.combos)} combos")
        return True

    def _follow(self) -> None:
        """Takes what has been read; of a changed credential nothing is known yet."""
        world, config = self.router.world, self._config
        for name, accounts in config.accounts.items():
            kept = set(map(_credential, accounts))
            for account in world.accounts.get(name, ()):
                if _credential(account) not in kept:
                    world.board.forget(account.provider, account.name)
                    self.pool.forget(account.provider, account.name)
        self.router.reload(
            replace(
                world,
                settings=config.settings,
                catalog=build_catalog(load_models, config.settings.reads),
                registry=config.registry,
                accounts=config.accounts,
                combos=self.store.combos,
                unserved=self.store.unserved,
            )
        )
        restart_rotations(world, self.router.world)
        if self.ledger is not None:
            self.ledger.configure(config.settings.ledger.days, config.settings.ledger.megabytes)

    async def take_in(self) -> None:
        """`refresh` in another thread, and what is to be made ready for what has changed."""
        if await asyncio.to_thread(self.refresh):
            self.warm_up()

    def recollect(self) -> bool:
        """Takes in accounts that the environment has gained or lost; whether anything changed."""
        with self._refreshing:
            return self._recollect()

    def _recollect(self) -> bool:
        config, before = self._config, self._config.accounts
        accounts = collect_accounts(config.registry, config.settings, self._env)
        if accounts == before:
            return False
        self._config = replace(config, accounts=accounts)
        self._follow()
        return True

    def _read_config(self) -> Config:
        return load_config(self.paths, self._env, required=self._required, settings=self._settings)

    def judge(self, text: str) -> Config:
        """What `text` would be as the settings file. Raises ConfigError with every problem."""
        settings = parse_settings(text, str(self.paths.config))
        return load_config(self.paths, self._env, settings=settings)

    def _refresh_config(self) -> bool:
        if self._settings is not None:
            return False
        stamp = _stamp(self.paths.config)
        vanished, self._vanished = self._vanished, stamp is None
        if stamp is None and not vanished:
            return False  # an editor may be putting a new file in its place
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._config = self._read_config()
        except ConfigError as error:
            before, self._config_problems = self._config_problems, error.problems
            for problem in error.problems:
                if problem not in before:
                    self._log("CONFIG", f"{problem} The settings stay as they were.")
            return False
        self._config_problems = ()
        return True

    def reload(self) -> None:
        """Has `watch` read all files again at once. From any thread, and from a signal."""
        self._anew = True
        if self._loop is not None:
            with suppress(RuntimeError):  # closed
                self._loop.call_soon_threadsafe(self._wake.set)

    async def watch(self) -> None:
        """Follows the files until cancelled. Reading them stays off the event loop."""
        changed, self._loop = True, asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if self._anew else WATCH_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            anew, self._anew = self._anew, False
            try:
                if changed:
                    self.warm_up()
                    await asyncio.to_thread(self.router.world.catalog.warm_up)
                changed = await asyncio.to_thread(self.refresh, anew)
            except Exception as error:  # whatever it was, the next edit must be seen
                _log.error("following the files failed with %s\n%s", *described(error))

    async def mend(self) -> None:
        """Gets credentials that could not be had, or were refused, until cancelled."""
        commands = asyncio.create_task(self._secrets.mend())
        try:
            while True:
                await asyncio.sleep(WATCH_SECONDS)
                try:
                    self._lift_locks()
                except Exception as error:  # the next credential must be seen
                    _log.error("following credentials failed with %s\n%s", *described(error))
                if commands.done():
                    commands = asyncio.create_task(self._secrets.mend())
        finally:
            commands.cancel()
            await asyncio.gather(commands, return_exceptions=True)

    def _lift_locks(self) -> None:
        """Who was not signed in is asked again as soon as the file of its credential is another."""
        world = self.router.world
        refused = {
            (provider, name)
            for (provider, name, _), lock in world.board.locks()
            if lock.failure is Failure.NOT_SIGNED_IN
        }
        for provider, name in refused:
            for account in world.accounts.get(provider, ()):
                if account.name == name and account.key and self._secrets.has_changed(account.key):
                    world.board.signed_in(provider, name)
                    self._log("CONFIG", f"{account.id}: its credential is new")

    def warm_up(self) -> None:
        """Begins what takes long, where a provider in use can be reached by no other lane."""
        world = self.router.world
        for name in (*entries(world.combos), *world.settings.aliases.values()):
            provider, _ = world.registry.split(name)
            if provider is None or not world.accounts.get(provider.name):
                continue
            lanes = [lane_for(world.lanes, provider, dialect) for dialect in DIALECTS]
            first = lanes[0]
            if first is not None and all(lane is first for lane in lanes):
                first.warm_up()


def _credential(account: Account) -> object:
    """What makes it another account: a new priority or limit changes nothing of what is known."""
    return account.provider, account.name, account.key, account.auth


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
