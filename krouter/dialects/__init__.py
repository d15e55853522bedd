"""The wire formats krouter speaks, one file each."""

from __future__ import annotations

from krouter.dialects.base import Dialect
from krouter.dialects.chat import CHAT
from krouter.dialects.embeddings import EMBEDDINGS
from krouter.dialects.gemini import GEMINI
from krouter.dialects.messages import MESSAGES
from krouter.dialects.responses import RESPONSES

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (CHAT, MESSAGES, RESPONSES, GEMINI)
}

ENDPOINTS: tuple[Dialect, ...] = (*DIALECTS.values(), EMBEDDINGS)
"""Every form of request that is walked: the dialects, and what is no conversation."""


def get(name: str) -> Dialect:
    """Raises KeyError for a dialect that is not built."""
    return EMBEDDINGS if name == EMBEDDINGS.name else DIALECTS[name]
