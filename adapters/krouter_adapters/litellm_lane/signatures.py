"""Signatures of Gemini's thoughts, kept for the tool calls they belong to."""

from __future__ import annotations

import threading
from typing import Any

from cachetools import LRUCache

from krouter_adapters.litellm_lane.translate.sealed import call_key
from krouter_adapters.litellm_lane.translate.shapes import Json, as_dicts

# Gemini wants the signature of its thought back beside each call. An id that held it would be too
# long for other providers of the same conversation.
_signatures: LRUCache[str, str] = LRUCache(4096)
_guard = threading.Lock()


def remember(call: Json) -> None:
    for holder in (call, call.get("function") or {}):
        fields = holder.get("provider_specific_fields")
        signature = fields.get("thought_signature") if isinstance(fields, dict) else None
        if signature and call.get("id"):
            with _guard:
                _signatures[call_key(call)] = str(signature)
            return


def with_signatures(messages: Any) -> None:
    """Puts the signatures known back beside the calls of a conversation."""
    for message in as_dicts(messages):
        for call in as_dicts(message.get("tool_calls")):
            with _guard:
                signature = _signatures.get(call_key(call))
            if signature:
                call["provider_specific_fields"] = {"thought_signature": signature}
