"""What a rehearsal needs of the real thing, made ready once: whom it could ask, and with what."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from krouter.accounts import Account
from krouter.adapter import load_faults, load_script
from krouter.board import Board
from krouter.combos import Combo
from krouter.pool import Pool
from krouter.reporter import load_reporters
from krouter.script import Credentials, Director, Faults
from krouter.secrets import Secrets
from krouter.virtual import VirtualLoop
from krouter.world import Tracing, World

INVENTED = "rehearsed"
"""The account of a provider that has none."""
CALLERS = "rehearsed-credential-of-the-caller"


@dataclass(frozen=True, slots=True)
class Stage:
    """Settings, providers, combos and accounts of a real world, none of whose credentials is ever
    looked at: each account of `world` has an invented one."""

    world: World
    credentials: Credentials
    env: Mapping[str, str]
    faults: Faults
    has_callers: bool
    """Whether an account is the caller's own."""

    @classmethod
    def of(cls, world: World) -> Stage:
        """The stage for what `world` holds. A provider without an account gets one, or those that
        entries name."""
        accounts: dict[str, tuple[Account, ...]] = {}
        credentials: dict[tuple[str, str], str] = {}
        env: dict[str, str] = {}
        named = _named_accounts(world)
        for provider in world.registry.providers:
            known = world.accounts.get(provider, ()) or _invented(provider, named)
            keyed = []
            for account in known:
                number = len(credentials)
                variable = f"REHEARSED_{number}"
                secret = f"rehearsed-credential-{number:06d}"
                if account.auth == "caller":
                    credentials[provider, CALLERS] = account.name
                    keyed.append(account)
                    continue
                env[variable] = secret
                credentials[provider, secret] = account.name
                auth = "key" if account.auth == "none" else account.auth
                keyed.append(replace(account, key=f"env:{variable}", auth=auth))
            accounts[provider] = tuple(keyed)
        lane = load_script().lane(world.lanes)
        has_callers = any(secret == CALLERS for _, secret in credentials)
        staged = replace(world, accounts=accounts, lanes=(lane,))
        return cls(staged, credentials, env, load_faults(), has_callers)

    def combo(self, combo: Combo) -> Stage:
        """The same stage with one combo in place of that of its name."""
        combos = {**self.world.combos, combo.name: combo}
        return replace(self, world=replace(self.world, combos=combos))

    def open(self, director: Director, loop: VirtualLoop, seed: int) -> World:
        """A world in which nothing has happened yet, in the time of `loop`."""
        chance = random.Random(seed)  # noqa: S311
        pool = Pool.empty(loop.wall, load_reporters())
        return replace(
            self.world,
            board=Board(loop.wall),
            pool=pool,
            secrets=Secrets(self.env, clock=loop.time, now=loop.wall),
            wire=load_script().wire(director, self.faults, self.credentials),
            log=_unheard,
            tracing=Tracing(False),
            is_own_key=_is_no_key,
            chance=chance.random,
            mark=lambda: f"{chance.getrandbits(64):016x}",
        )


def _named_accounts(world: World) -> Mapping[str, list[str]]:
    """The accounts that entries name, by provider."""
    named: dict[str, list[str]] = {}
    for combo in world.combos.values():
        for entry in combo.models:
            provider, _ = world.registry.split(entry.model)
            if provider is not None and entry.accounts:
                known = named.setdefault(provider.name, [])
                known += (name for name in entry.accounts if name not in known)
    return named


def _invented(provider: str, named: Mapping[str, list[str]]) -> Iterator[Account]:
    for number, name in enumerate(named.get(provider, [INVENTED]), 1):
        yield Account(provider, name, priority=number)


def _unheard(tag: str, line: str) -> None:
    """Nobody reads the log of a rehearsal."""


def _is_no_key(token: str) -> bool:
    return False
