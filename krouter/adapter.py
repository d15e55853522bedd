"""The protocol between the walk and a lane to a provider, and the lanes' lazy look-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from krouter.body import Body
from krouter.dialects.base import Dialect
from krouter.providers import Provider
from krouter.wire import Headers, Incoming, Wire


@dataclass(frozen=True, slots=True)
class Call:
    """A caller's request as it came. `model` is the name it asked for."""

    dialect: Dialect
    body: Body
    headers: Headers
    model: str
    stream: bool
    query: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """Where one attempt goes. `auth` says how `secret` travels; `connect` is in seconds."""

    provider: Provider
    model: str
    secret: str | None = None
    auth: str = "key"
    params: Mapping[str, Any] = field(default_factory=dict)
    connect: float = 10.0


class Adapter(Protocol):
    """A lane: takes a call in the caller's dialect, gives a reply in the caller's dialect."""

    name: str

    def speaks(self, provider: Provider, dialect: str) -> bool:
        """Whether this lane can take a call of `dialect` to `provider`."""

    async def send(self, call: Call, target: Target, wire: Wire) -> Incoming:
        """Raises WireError when no reply comes. Whatever status comes is a reply."""


# In order of preference: a builtin provider, then the provider's own dialect.
_LANES = (("krouter_adapters.demo", "Demo"), ("krouter_adapters.native_lane", "NativeLane"))


def load_lanes() -> tuple[Adapter, ...]:
    """Every lane, the cheapest first."""
    return tuple(getattr(import_module(module), name)() for module, name in _LANES)


def load_rows() -> tuple[Provider, ...]:
    """The providers that ship with krouter."""
    rows: tuple[Provider, ...] = import_module("krouter_adapters.rows").load_rows()
    return rows


def lane_for(lanes: Iterable[Adapter], provider: Provider, dialect: str) -> Adapter | None:
    return next((lane for lane in lanes if lane.speaks(provider, dialect)), None)
