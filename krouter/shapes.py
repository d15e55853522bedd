"""What the library needs of LiteLLM's objects; the adapters have it, and LiteLLM with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from krouter.errors import Failure
from krouter.route import Route
from krouter.wire import Headers


class Unreadable(Exception):
    """A reply, or a piece of one, of which LiteLLM's objects cannot be made."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a reply comes from. `provider` is LiteLLM's name for it."""

    provider: str
    model: str
    entry: str
    api_base: str | None
    headers: Headers
    route: Route | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """An answer that is an error. `failure` is why the last attempt failed, None if there was none;
    `cut` says that the connection failed, not the provider's reply."""

    failure: Failure | None
    status: int
    message: str
    provider: str
    model: str
    headers: Headers
    body: bytes
    cut: bool = False


class Pieces(Protocol):
    """Makes the pieces of one stream."""

    @property
    def hidden_params(self) -> Mapping[str, Any]:
        """What LiteLLM notes beside each of them."""

    def made(self, told: dict[str, Any]) -> Any:
        """LiteLLM's object for the JSON of a chunk. Raises Unreadable."""


class Shapes(Protocol):
    @property
    def options(self) -> Collection[str]:
        """Names of LiteLLM's own options, which go to no provider."""

    def schema_of(self, given: Any, /) -> Mapping[str, Any] | None:
        """The response format of a dict or of a pydantic class. Raises what LiteLLM raises."""

    def without(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        """`body` less what `path` names, such as `tools[*].function.strict`."""

    def decode(self, raw: bytes) -> dict[str, Any]:
        """A JSON object; an empty one for what is none."""

    def reply(self, body: bytes, source: Source) -> Any:
        """LiteLLM's reply for the JSON of a chat completion. Raises Unreadable."""

    def embeddings(self, body: bytes, source: Source) -> Any:
        """LiteLLM's reply for the JSON of embeddings. Raises Unreadable."""

    def pieces(self, source: Source) -> Pieces: ...

    def error(self, told: Trouble, route: Route | None) -> Exception:
        """The exception to raise, with `status_code`, `response`, `body` and `route`."""
