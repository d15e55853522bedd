"""The wire formats krouter speaks, one file each."""

from __future__ import annotations

from krouter.dialects.base import Dialect
from krouter.dialects.chat import CHAT
from krouter.dialects.messages import MESSAGES

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (CHAT, MESSAGES)}


def get(name: str) -> Dialect:
    """Raises KeyError for a dialect that is not built."""
    return DIALECTS[name]
