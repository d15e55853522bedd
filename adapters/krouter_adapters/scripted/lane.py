"""The lane to the scripted provider: it sends what the native lane would, over whatever wire."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any

from msgspec import structs

from krouter.adapter import Adapter, Call, Target
from krouter.providers import DEFAULT_AUTH, Provider
from krouter.settings import Dialect
from krouter.wire import Incoming, Wire
from krouter_adapters.native_lane import build

DIALECTS: tuple[Dialect, ...] = ("chat", "messages", "responses", "gemini")


class ScriptedLane:
    """Stands in for all of `lanes`: it reaches whom one of them would reach, and speaks the
    caller's dialect to everybody."""

    name = "scripted"

    def __init__(self, lanes: Iterable[Adapter]) -> None:
        self._lanes = tuple(lanes)
        self._reached: dict[str, Provider] = {}
        self._speaks: dict[tuple[str, str], bool] = {}

    def speaks(self, provider: Provider, dialect: str) -> bool:
        key = provider.name, dialect
        if key not in self._speaks:
            able = any(lane.speaks(provider, dialect) for lane in self._lanes)
            self._speaks[key] = able and dialect in DIALECTS
        return self._speaks[key]

    def send(self, call: Call, target: Target, wire: Wire) -> Coroutine[Any, Any, Incoming]:
        name = target.provider.name
        provider = self._reached.get(name)
        if provider is None:
            provider = self._reached[name] = _everywhere(target.provider)
        scripted = structs.replace(target, provider=provider)
        return wire.send(build(call, scripted), target.connect)

    async def ready(self) -> None:
        """It always is."""

    def warm_up(self) -> None:
        """It is always ready."""


def _everywhere(provider: Provider) -> Provider:
    """The provider with an address for every dialect, in which its name stands."""
    urls = dict.fromkeys(DIALECTS, f"https://{provider.name}.invalid")
    return replace(provider, base_urls=urls, auth=DEFAULT_AUTH)
