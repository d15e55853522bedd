"""How each account does right now, as plain data: health, locks, quota, calls under way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from krouter.accounts import Account
from krouter.board import Block, Blocked, Key
from krouter.health import NEUTRAL
from krouter.quota import Note, headroom
from krouter.ranking import account_strategy_of, order
from krouter.reporter import Balance, Figure, Window
from krouter.world import World

SCOPES = {(False, True): "account", (True, False): "model", (False, False): "account and model"}


class Accounts:
    """What is known of all accounts of a world at one moment."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._now = world.pool.now()
        self._in_force = list(world.board.locks())
        self._notes: dict[tuple[str, str], list[Note]] = {}
        for note in world.pool.quota.notes():
            self._notes.setdefault((note.provider, note.account), []).append(note)

    def of_model(self, account: Account, model: str) -> dict[str, Any]:
        """How an account stands for one model; `model` is named without its provider."""
        pair = account.provider, account.name
        left, resets = self._quota(account, model)
        return {
            "name": account.name,
            "health": self._health(account),
            "lock": self._lock(account, model),
            "left": left,
            "resets": resets,
            "in_flight": self._world.board.under_way(*pair),
            "problem": self._problem(account),
        }

    def of_provider(self, name: str) -> list[dict[str, Any]]:
        """All accounts of a provider, best first, each with its score, why it stands there, and
        all its locks and quotas, those of single models too."""
        accounts = self._world.accounts.get(name, ())
        if not accounts:
            return []
        strategy, limit = self.strategy(name)
        turn = self._world.pool.turns.peek(name)
        standing = self._world.pool.snapshot(accounts, "", strategy, limit, turn)
        by_name = {account.name: account for account in accounts}
        return [
            {
                **self.of_model(by_name[place.account], ""),
                "locks": self._locks(by_name[place.account]),
                "quotas": self._quotas(by_name[place.account]),
                "score": round(place.score, 1),
                "reason": place.reason,
            }
            for place in order(standing)
        ]

    def strategy(self, name: str) -> tuple[Any, int]:
        """The account strategy of a provider, and its sticky limit."""
        world = self._world
        return account_strategy_of(world.registry.settings_of(name), world.settings.routing)

    def _health(self, account: Account) -> float | None:
        """The success average; None where nobody has asked."""
        known = self._world.pool.health.of(account.provider, account.name)
        return None if known is NEUTRAL else round(known.drifted(self._now).success, 2)

    def _locks(self, account: Account) -> list[dict[str, Any]]:
        """All that keeps it from being asked, each with the model that it is for, empty for every
        one: what closes the whole account first, then what ends first."""
        found = [*self._set_locks(account), *self._used_up(account)]
        whole = self._lock(account, "")
        if whole is not None and whole["probing"]:
            found.append({**whole, "model": ""})
        return sorted(found, key=lambda each: (each["model"] != "", each["until"], each["model"]))

    def _set_locks(self, account: Account) -> Iterator[dict[str, Any]]:
        for (provider, name, model), lock in self._in_force:
            if provider == account.provider and name in ("*", account.name):
                yield {
                    "model": "" if model == "*" else model,
                    "reason": lock.failure,
                    "status": lock.status,
                    "until": lock.until,
                    "scope": SCOPES[name == "*", model == "*"],
                    "probing": False,
                }

    def _used_up(self, account: Account) -> Iterator[dict[str, Any]]:
        """Windows that are, each for the part of models' names that it counts for."""
        notes = self._notes.get((account.provider, account.name), ())
        parts = {"", *(note.item.model for note in notes if isinstance(note.item, Window))}
        whole = self._world.pool.quota.full_at(account.provider, account.name, "")
        for part in sorted(parts):
            until = self._world.pool.quota.full_at(account.provider, account.name, part)
            if until is not None and (not part or until != whole):
                yield {"model": part, **_spent(until)}

    def _quotas(self, account: Account) -> list[dict[str, Any]]:
        """What is left of each limit that is known, the least first; `model` is the one it counts
        for, empty for all, and `window` names a limit that is not of one model alone."""
        found = []
        for note in self._notes.get((account.provider, account.name), ()):
            item = note.item
            model = "" if isinstance(item, Balance) else item.model
            share = headroom((note,), model, self._now)
            if share is not None:
                window = "" if isinstance(item, Figure) else item.name
                resets = getattr(item, "resets_at", None)
                told = {"model": model, "window": window, "left": round(share, 4)}
                found.append({**told, "resets": resets})
        return sorted(found, key=lambda each: (each["left"], each["model"], each["window"]))

    def _lock(self, account: Account, model: str) -> dict[str, Any] | None:
        blocked = self._world.board.blocked(account.provider, account.name, model)
        if blocked is not None:
            scope = self._scope(blocked, account, model)
            return {**_told(blocked), "scope": scope, "status": blocked.lock.status}
        until = self._world.pool.quota.full_at(account.provider, account.name, model)
        return None if until is None else _spent(until)

    def _scope(self, blocked: Blocked, account: Account, model: str) -> str:
        for key in _keys(account, model):
            if self._world.board.lock_at(key) is blocked.lock:
                return SCOPES[key[1] == "*", key[2] == "*"]
        return SCOPES[False, False]

    def _quota(self, account: Account, model: str) -> tuple[float | None, float | None]:
        """The least share that is left of what counts for the model, and when that is full again,
        epoch seconds."""
        found = [
            (share, note)
            for note in self._notes.get((account.provider, account.name), ())
            if (share := headroom((note,), model, self._now)) is not None
        ]
        if not found:
            return None, None
        share, note = min(found, key=lambda each: each[0])
        return round(share, 4), getattr(note.item, "resets_at", None)

    def _problem(self, account: Account) -> str:
        """What is wrong with its credential; empty where nothing is known to be."""
        return (self._world.secrets.present(account.key) or "") if account.key else ""


def _spent(until: float) -> dict[str, Any]:
    told = {"reason": "quota spent", "until": until, "probing": False}
    return {**told, "scope": "account", "status": None}


def _told(blocked: Blocked) -> dict[str, Any]:
    probing = blocked.why is Block.PROBING
    return {"reason": blocked.lock.failure, "until": blocked.until, "probing": probing}


def _keys(account: Account, model: str) -> Iterator[Key]:
    yield account.provider, account.name, model
    yield account.provider, account.name, "*"
    yield account.provider, "*", model
