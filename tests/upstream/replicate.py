"""Replicate's predictions: created with POST, asked after with GET.

A new prediction is `starting`; one asked after has `succeeded`, unless `finish=R` names its status.
"""

from __future__ import annotations

from typing import Any

from tests.upstream.content import Ask, Content
from tests.upstream.script import Behaviour

BODILESS = frozenset({"polled", "canceled"})
PIECE = 4


def reply(ask: Ask, content: Content, behaviour: Behaviour) -> dict[str, Any]:
    new = ask.dialect == "created"
    text = None if new or behaviour.empty else content.text
    told = {
        "id": "p1",
        "status": behaviour.finish or {"created": "starting"}.get(ask.dialect, "succeeded"),
        "output": text and [text[at : at + PIECE] for at in range(0, len(text), PIECE)],
        "error": behaviour.message,
        "urls": {"get": "http://127.0.0.1:9/v1/predictions/p1"},
    }
    if not new and "usage" not in behaviour.no:
        tokens = {"input_token_count": content.tokens_in, "output_token_count": content.tokens_out}
        told["metrics"] = tokens
    return told


def error(status: int, message: str, behaviour: Behaviour, serial: int) -> dict[str, Any]:
    return {"title": "It failed", "detail": message, "status": status}
