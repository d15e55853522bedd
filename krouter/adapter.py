"""The protocol between the walk and a lane to a provider, and the lanes' lazy look-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct

from krouter.body import Body
from krouter.catalog import ModelData
from krouter.dialects.base import Dialect
from krouter.providers import Provider
from krouter.script import Credentials, Director, Faults, Sent
from krouter.script import Kind as FaultKind
from krouter.wire import Headers, Incoming, Wire


class Call(Struct, frozen=True):
    """A caller's request as it came. `model` is the name it asked for; `total` is how many seconds
    the caller gives it, in place of the combo's own total."""

    dialect: Dialect
    body: Body
    headers: Headers
    model: str
    stream: bool
    query: str = ""
    total: float | None = None
    tail: str = ""
    """What stands behind the path of the dialect's endpoint; a native lane's only."""
    caller: str = ""
    """The name of krouter's key that the caller has; empty without one."""


class Target(Struct, frozen=True):
    """Where one attempt goes. `auth` says how `secret` travels; `connect` is in seconds."""

    provider: Provider
    model: str
    secret: str | None = None
    auth: str = "key"
    params: Mapping[str, Any] = MappingProxyType({})
    connect: float = 10.0


class Adapter(Protocol):
    """A lane: takes a call in the caller's dialect, gives a reply in the caller's dialect."""

    name: str

    def speaks(self, provider: Provider, dialect: str) -> bool:
        """Whether this lane can take a call of `dialect` to `provider`."""

    async def send(self, call: Call, target: Target, wire: Wire) -> Incoming:
        """Raises WireError when no reply comes, Unsendable when nothing can be sent. Whatever
        status comes is a reply."""

    async def ready(self) -> None:
        """Waits until the lane can send. What it takes is no fault of the provider's."""

    def warm_up(self) -> None:
        """Called once a provider in use needs this lane: begins what takes long, and returns."""


class Unsendable(Exception):
    """A request that cannot be put in a form the provider takes; the text says what cannot.
    `reply` is what came where only the answer showed it, since that was paid for."""

    def __init__(self, message: str, reply: bytes = b"") -> None:
        self.reply = reply
        super().__init__(message)


# In order of preference: a builtin provider, the provider's own dialect, a translation.
_LANES = (
    ("krouter_adapters.demo", "Demo"),
    ("krouter_adapters.native_lane", "NativeLane"),
    ("krouter_adapters.litellm_lane.lane", "LitellmLane"),
)


def load_lanes() -> tuple[Adapter, ...]:
    """Every lane, the cheapest first."""
    return tuple(getattr(import_module(module), name)() for module, name in _LANES)


def load_rows() -> tuple[Provider, ...]:
    """The providers that ship with krouter."""
    rows: tuple[Provider, ...] = import_module("krouter_adapters.rows").load_rows()
    return rows


def provider_of(name: str) -> str | None:
    """The provider that a model name without a prefix means to LiteLLM; None for an unknown name.

    The first call reads LiteLLM's data file, without importing LiteLLM.
    """
    found: str | None = import_module("krouter_adapters.model_names").provider_of(name)
    return found


def load_models() -> ModelData:
    """What is known of models. The first call reads LiteLLM's data file, without importing
    LiteLLM."""
    data: ModelData = import_module("krouter_adapters.model_data").load_models()
    return data


class Tokenizer(Protocol):
    def count(self, text: str) -> int:
        """Blocks. Raises OSError where it cannot."""


def load_tokenizer() -> Tokenizer | None:
    """What estimates tokens; None where there is none. Its first count takes long."""
    found: Tokenizer | None = import_module("krouter_adapters.tokenizer").load_tokenizer()
    return found


def bare_names() -> Mapping[str, str]:
    """Every model name that LiteLLM knows without a prefix, and its provider."""
    names: Mapping[str, str] = import_module("krouter_adapters.model_names").known_names()
    return names


class ScriptedProvider(Protocol):
    """The provider that does what a director says."""

    def lane(self, lanes: Iterable[Adapter]) -> Adapter:
        """Stands in for all of `lanes`."""

    def wire(self, director: Director, faults: Faults, credentials: Credentials) -> Wire:
        """Where the bytes come from."""

    def befalls(self, kind: FaultKind, sent: Sent) -> bool:
        """Whether what was sent holds what the fault is about; most are about nothing in it."""


def load_script() -> ScriptedProvider:
    found: ScriptedProvider = import_module("krouter_adapters.scripted.provider").SCRIPTED
    return found


def load_faults() -> Faults:
    """Everything that can befall a request at a scripted provider, by its name."""
    faults: Faults = import_module("krouter_adapters.scripted.table").load_faults()
    return faults


def lane_for(lanes: Iterable[Adapter], provider: Provider, dialect: str) -> Adapter | None:
    return next((lane for lane in lanes if lane.speaks(provider, dialect)), None)
