"""The LiteLLM lane: LiteLLM's provider classes build requests and read replies, krouter sends.
Where only LiteLLM's own call can reach a provider, that call is made, over krouter's wire.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from krouter.adapter import Call, Target
from krouter.providers import Provider
from krouter.wire import Incoming, Wire
from krouter_adapters.litellm_lane.aws import Blotted
from krouter_adapters.litellm_lane.library import Library
from krouter_adapters.litellm_lane.load import Loader, hush, without_warnings
from krouter_adapters.litellm_lane.reply import received
from krouter_adapters.litellm_lane.request import NO_KEY
from krouter_adapters.litellm_lane.ways import Aim, aim

_log = logging.getLogger("krouter")

_SPOKEN = frozenset(("chat", "messages", "responses", "gemini"))
"""The dialects of callers."""

_LARGE = 1 << 20
"""Bytes of a body that is translated beside the event loop, which it would hold up for long."""


class LitellmLane:
    name = "litellm"

    def __init__(self, library: Loader[Library] | None = None) -> None:
        self._library = library or LIBRARY

    def speaks(self, provider: Provider, dialect: str) -> bool:
        return dialect in _SPOKEN and aim(provider) is not None

    async def send(self, call: Call, target: Target, wire: Wire) -> Incoming:
        goal = aim(target.provider)
        assert goal is not None, "speaks() was asked first"
        library = await self._library.ready()
        if goal.own_call:
            return await library.call(call, target, goal, wire)
        if len(call.body.raw) > _LARGE:
            built = await asyncio.to_thread(library.request, call, target, goal)
        else:
            built = library.request(call, target, goal)
        reply = await wire.send(built.request, target.connect)
        if built.signer and not 200 <= reply.status < 300:
            reply = Blotted(reply, built.signer)
        return received(reply, call, built.shape)

    async def ready(self) -> None:
        await self._library.ready()

    def warm_up(self) -> None:
        self._library.start()


def _warmed() -> Library:
    """LiteLLM imported, and each kind of body built and read once: first uses take long."""
    with without_warnings(), _no_collection():
        hush()
        library = Library()
        _use_first(library)
    # Of pydantic, on each of LiteLLM's classes that is used for the first time.
    warnings.filterwarnings("ignore", "Items? .* on TypedDict class", UserWarning)
    return library


@contextmanager
def _no_collection() -> Iterator[None]:
    """The collector would stop the event loop to look through what an import leaves for good."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def _use_first(library: Library) -> None:
    for goal, reply, events in _FIRST_USES:
        chat = json.loads(_FIRST_BODY)
        try:
            library.adapt(json.loads(_FIRST_MESSAGE))
            plan = library.plan(goal, "a-model", chat, NO_KEY, True)
            plan.read(reply)
            chunks = plan.chunks()
            for event in events:
                list(chunks(event))
        except Exception:
            _log.debug("warming up %s failed", goal.name, exc_info=True)


_FIRST_BODY = '{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 9}'
_FIRST_MESSAGE = (
    '{"model": "a-model", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}'
)
_NOWHERE = "http://127.0.0.1:9"
_GEMINI_REPLY: dict[str, Any] = {
    "candidates": [
        {"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}
    ],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
}
_CHAT_REPLY: dict[str, Any] = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "a-model",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi"},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
_FIRST_USES: tuple[tuple[Aim, dict[str, Any], tuple[dict[str, Any], ...]], ...] = (
    (Aim("custom_openai", f"{_NOWHERE}/v1", "chat"), _CHAT_REPLY, ()),
    (Aim("anthropic", f"{_NOWHERE}/v1/messages", "messages"), {}, ()),
    (Aim("gemini", f"{_NOWHERE}/v1beta", "gemini"), _GEMINI_REPLY, (_GEMINI_REPLY,)),
)

LIBRARY: Loader[Library] = Loader(_warmed)
"""One for the process: LiteLLM keeps its settings in its module."""
