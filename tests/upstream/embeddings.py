"""OpenAI Embeddings: a vector for each text, in numbers or in base64, as long as `text=N` says."""

from __future__ import annotations

import base64
import struct
from typing import Any

from tests.upstream.chat import error, error_event
from tests.upstream.content import Ask, Content
from tests.upstream.script import Behaviour

__all__ = ["SIZE", "error", "error_event", "reply"]
SIZE = 4


def reply(ask: Ask, content: Content, behaviour: Behaviour) -> dict[str, Any]:
    given = ask.fields.get("input", "")
    many = isinstance(given, list) and bool(given) and not isinstance(given[0], int)
    size = int(behaviour.text or ask.fields.get("dimensions") or SIZE)
    data = [
        {"object": "embedding", "index": place, "embedding": vector(ask, size)}
        for place in range(len(given) if many else 1)
    ]
    usage = {"prompt_tokens": content.tokens_in, "total_tokens": content.tokens_in}
    return {
        "object": "list",
        "data": [] if behaviour.empty == "list" else data,
        "model": ask.model,
        "usage": usage,
    }


def vector(ask: Ask, size: int) -> list[float] | str:
    numbers = [0.5] * size
    if ask.fields.get("encoding_format") != "base64":
        return numbers
    return base64.b64encode(struct.pack(f"<{size}f", *numbers)).decode()
