"""`PUT /api/settings`, `PUT /api/providers/NAME`: what the pages may change of `krouter.toml`."""

from __future__ import annotations

import asyncio
import hashlib
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from pydantic import BaseModel, ConfigDict

from krouter.adapterfaults import adapter_faults
from krouter.load import House
from krouter.private import check_regular
from krouter.problems import ConfigError, Problem, did_you_mean
from krouter.providers import Provider
from krouter.serve.admin import read_json
from krouter.serve.combofiles import refused, told_problems
from krouter.serve.intake import Refusal
from krouter.serve.tomledit import Edits, Unsuitable, edited, shown_diff
from krouter.serve.view import shown_path
from krouter.settings import LARGEST_FILE, AccountStrategy, Count, Flag, Text, is_there
from krouter.world import World
from krouter.written import replace_whole, target_of


class _Given(BaseModel):
    """A field that is not given stays as it is; one that is null goes back to its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def edits(self, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        for name in self.model_fields_set:
            value = getattr(self, name)
            if isinstance(value, _Given):
                yield from value.edits((*path, name))
            else:
                yield (*path, name), value


class GivenPool(_Given):
    enabled: Flag | None = None
    round_robin: Flag | None = None
    models: list[Text] | None = None


class GivenPools(_Given):
    image: GivenPool = GivenPool()
    pdf: GivenPool = GivenPool()
    audio: GivenPool = GivenPool()
    video: GivenPool = GivenPool()


class GivenAccounts(_Given):
    """What there is to say of a provider's accounts, or of all of them."""

    account_strategy: AccountStrategy | None = None
    account_sticky_limit: Count | None = None


class GivenSettings(GivenAccounts):
    combo_round_robin: Flag | None = None
    combo_sticky_limit: Count | None = None
    reply_model: str | None = None
    vision_adapter: GivenPools = GivenPools()

    def edits(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
        for where, value in super().edits(path):
            yield where if where[0] == "vision_adapter" else ("routing", *where), value


Dry = Annotated[bool, Query()]
"""Whether only the diff is asked for."""
Digest = Annotated[str | None, Query()]
"""Of the file that the diff was of; where it is another by now nothing is written."""


def add_settings(app: FastAPI, house: House) -> None:
    """Changes of the settings, which are judged by what loads them."""
    file = SettingsFile(house)

    async def change(edits: Edits, dry: bool, digest: str | None) -> dict[str, Any]:
        made = await asyncio.to_thread(file.change, edits, dry, digest)
        if made.diff and not dry:
            await house.take_in()
        problems = told_problems(made.problems)
        return {"diff": made.diff, "problems": problems, "digest": made.digest}

    @app.put("/api/settings")
    async def settings(request: Request, dry: Dry = False, digest: Digest = None) -> dict[str, Any]:
        given = await read_json(request, GivenSettings)
        return await change(dict(given.edits()), dry, digest)

    @app.put("/api/providers/{name}")
    async def provider(
        name: str, request: Request, dry: Dry = False, digest: Digest = None
    ) -> dict[str, Any]:
        given = await read_json(request, GivenAccounts)
        edits = dict(given.edits(("provider", _spelled(name, house))))
        return await change(edits, dry, digest)


def provider_named(name: str, world: World) -> Provider:
    """Raises HTTPException where there is none."""
    provider = world.registry.find(name)
    if provider is None:
        hint = did_you_mean(name, world.registry.names_with_aliases())
        raise HTTPException(404, f"There is no provider {name[:100]!r}. {hint}".strip())
    return provider


def _spelled(name: str, house: House) -> str:
    """The provider as the settings call it, which may be by an alias. Raises HTTPException."""
    world = house.router.world
    provider = provider_named(name, world)
    spellings = world.settings.provider
    found = (each for each in spellings if world.registry.find(each) is provider)
    return next(found, provider.name)


@dataclass(frozen=True, slots=True)
class Change:
    """What a change comes to: its diff, models that would have no effect, and the digest of the
    file as it is then."""

    diff: str
    problems: list[Problem]
    digest: str


class SettingsFile:
    """`krouter.toml`, of which some values are changed and nothing else."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._path = house.paths.config
        self._changing = threading.Lock()

    def change(self, edits: Edits, dry: bool, digest: str | None = None) -> Change:
        """Makes the change, unless this is a `dry` run. Raises Refusal."""
        with self._changing:
            raw = self._raw()
            if digest is not None and digest != _digest(raw):
                raise Refusal(409, f"{self._shown} has changed since it was read: look again.")
            old = self._judged(raw)
            try:
                new = edited(old, edits)
                config = self._house.judge(new)
            except Unsuitable as error:
                raise Refusal(409, f"{self._shown}: {error}. Change it by hand.") from None
            except ConfigError as error:
                raise refused(list(error.problems)) from None
            if new != old and not dry:
                raw = self._write(raw, new)
        combos = self._house.router.world.combos
        useless = list(adapter_faults(config, combos, self._shown))
        return Change(shown_diff(old, new, self._path.name), useless, _digest(raw))

    @property
    def _shown(self) -> str:
        return shown_path(self._path)

    def _raw(self) -> bytes:
        if not is_there(self._path):
            return b""
        try:
            check_regular(self._path)
            with self._path.open("rb") as file:
                raw = file.read(LARGEST_FILE + 1)
        except OSError as error:
            raise Refusal(409, f"{self._shown} cannot be read: {error.strerror}.") from None
        if len(raw) > LARGEST_FILE:
            raise Refusal(409, f"{self._shown} is larger than {LARGEST_FILE} bytes.")
        return raw

    def _judged(self, raw: bytes) -> str:
        """The text of a file that is good as it is."""
        try:
            text = raw.decode("utf-8-sig")
            self._house.judge(text)
        except UnicodeDecodeError as error:
            raise refused([Problem(self._shown, "", f"not UTF-8 (byte {error.start}).")]) from None
        except ConfigError as error:
            raise refused(list(error.problems)) from None
        return text

    def _write(self, old: bytes, new: str) -> bytes:
        path = target_of(self._path)
        mark = b"\xef\xbb\xbf" if old.startswith(b"\xef\xbb\xbf") else b""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
            replace_whole(path, mark + new.encode(), mode)
        except OSError as error:
            raise Refusal(409, f"{self._shown} cannot be written: {error.strerror}.") from None
        return mark + new.encode()


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
