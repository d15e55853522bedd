"""How each provider that LiteLLM knows is reached, and where a call to a provider goes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Literal
from urllib.parse import urlsplit

from krouter.providers import Provider, endpoint

FILE = "ways.toml"

Form = Literal["chat", "messages", "gemini", "responses", "other"]
"""What a provider is sent; "other" is a format of its own."""

GENERIC = "custom_openai"
"""LiteLLM's name for any server that speaks chat."""


@dataclass(frozen=True, slots=True)
class Way:
    """One provider of LiteLLM's. `base` is its own address; where it has none, `base_like` shows
    the form of one."""

    way: Literal["classes", "call", "unsupported"]
    reason: str = ""
    body: Form = "chat"
    base: str | None = None
    base_like: str = ""
    env: tuple[str, ...] = ()
    keyless: bool = False


@dataclass(frozen=True, slots=True)
class Aim:
    """Where a call goes: LiteLLM's `name` of the classes, the `base` they are given and the `body`
    they write. `url` is the endpoint where krouter knows it better than they do. `own_call`: not
    the classes but LiteLLM's own call reaches it."""

    name: str
    base: str
    body: Form
    url: str | None = None
    own_call: bool = False


@lru_cache(maxsize=1)
def load_ways() -> Mapping[str, Way]:
    """Every name LiteLLM knows."""
    text = resources.files(__package__).joinpath(FILE).read_text("utf-8")
    return {name: _way(fields) for name, fields in tomllib.loads(text).items()}


def _way(fields: dict[str, Any]) -> Way:
    return Way(**{**fields, "env": tuple(fields.get("env", ()))})


@lru_cache(maxsize=512)
def _aim(
    name: str,
    base: str | None,
    chat: str | None,
    messages: str | None,
    gemini: str | None,
    responses: str | None,
) -> Aim | None:
    way = load_ways().get(name)
    if way is None or way.way == "unsupported":
        return None
    own_call = way.way == "call"
    if base is not None and way.body != "messages":
        return Aim(name, base, way.body, own_call=own_call)
    messages = messages or base
    if gemini and way.body == "gemini":
        return _gemini(gemini)
    if chat:
        url = endpoint(chat, "chat")
        prefix = name if way.body == "chat" and not own_call else GENERIC
        return Aim(prefix, url.removesuffix("/chat/completions"), "chat", url)
    if messages:
        url = endpoint(messages, "messages")
        return Aim("anthropic", url, "messages", url)
    if responses:
        return Aim("openai", responses, "responses", endpoint(responses, "responses"))
    return _gemini(gemini) if gemini else None


def _gemini(base: str) -> Aim:
    parts = urlsplit(endpoint(base, "gemini"))
    return Aim("gemini", parts._replace(path=parts.path.removesuffix("/models")).geturl(), "gemini")


def aim(provider: Provider) -> Aim | None:
    """Where a call to `provider` goes; None where LiteLLM cannot reach it."""
    if provider.builtin or provider.unsupported:
        return None
    urls = provider.base_urls
    name = provider.litellm
    if provider.own and "chat" in urls:
        name = GENERIC
    spoken = urls.get("chat"), urls.get("messages"), urls.get("gemini"), urls.get("responses")
    return _aim(name, None if any(spoken) else provider.litellm_base, *spoken)
