"""Thinking that only the provider that signed it takes back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from krouter.body import Body
from krouter.dialects.history import decoded, raw_history, raw_items, with_items
from krouter.dialects.outline import outline

OMITTED = "[thinking omitted]"
UNSIGNED = "krouter-unsigned"
"""Stands as the signature of thinking that nobody has signed, which no provider takes back."""
SEALED = ("krouter1.", "a3JvdXRlcjEu")
"""How a signature of krouter's own making begins, which holds another dialect's thinking: as it
is, and where signatures are in base64."""
# Gemini 3 asks for a signature on each tool call of the turn and takes this in its place:
# ai.google.dev, "Thought signatures".
ANY_SIGNATURE = "skip_thought_signature_validator"

_MARK = re.compile(rb'"(?:signature|redacted_thinking|encrypted_content|thought_?[sS]ignature)"')
_ALPHABET = str.maketrans("-_", "+/")
_CLEARS = "clear_thinking"
_GEMINI_KEYS = ("thoughtSignature", "thought_signature")


def digest(signature: str) -> str:
    """What to remember of a signature, `redacted_thinking` data or `encrypted_content`. Google's
    clients send a signature back in the other alphabet of base64."""
    signature = signature.translate(_ALPHABET).rstrip("=")
    return hashlib.blake2b(signature.encode("utf-8", "replace"), digest_size=16).hexdigest()


def thinking_digests(dialect_name: str, body: Body) -> frozenset[str]:
    """The digests of all signed thinking that the request sends back."""
    return frozenset(map(digest, _sent_back(dialect_name, body)))


def unsigned_digests(dialect_name: str, body: Body) -> frozenset[str]:
    """The digests of the thinking that no provider of this dialect has signed."""
    return frozenset(
        digest(signature)
        for signature in _sent_back(dialect_name, body)
        if signature == UNSIGNED or signature.startswith(SEALED)
    )


def without_thinking(dialect_name: str, body: Body, digests: Collection[str]) -> Body:
    """The body without the thinking of these digests; the same body where there is none."""
    changes: dict[int, dict[str, Any] | None] = {}
    for at, item in _marked(dialect_name, body):
        if any(digest(signature) in digests for signature in _signatures(item)):
            changes[at] = _without(item, digests)
    if not changes:
        return body
    lost = with_items(dialect_name, body, changes)
    return _no_longer_thinking(lost) if dialect_name == "messages" else lost


def _no_longer_thinking(body: Body) -> Body:
    """Anthropic's API takes a turn of tool calls without thinking only where no fixed budget of
    thinking is asked for."""
    thinking = body.value("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return body
    items = map(decoded, reversed(raw_items("messages", body)))
    last = next((i for i in items if isinstance(i, dict) and i.get("role") == "assistant"), {})
    kinds = [block.get("type") for block in _blocks(last)]
    if "tool_use" not in kinds or kinds[0] in ("thinking", "redacted_thinking"):
        return body
    edits = _without_thinking_edits(body.value("context_management"))
    return Body.parse(body.edited(edits, ("thinking",)))


def _without_thinking_edits(management: Any) -> dict[str, Any]:
    edits = management.get("edits") if isinstance(management, dict) else None
    if not isinstance(edits, list):
        return {}
    kept = [e for e in edits if not str(isinstance(e, dict) and e.get("type")).startswith(_CLEARS)]
    return {"context_management": {**management, "edits": kept}} if len(kept) < len(edits) else {}


def signatures_of(blocks: Iterable[Any]) -> tuple[str, ...]:
    """The signatures in a reply's blocks."""
    found = (_signature(block) for block in blocks if isinstance(block, dict))
    return tuple(filter(None, found))


def _sent_back(dialect_name: str, body: Body) -> Iterator[str]:
    """The signatures in the request. Chat has a place for none."""
    if dialect_name == "chat":
        return
    turns = outline(dialect_name, body)
    if turns is None:
        for _, item in _marked(dialect_name, body):
            yield from _signatures(item)
        return
    for outlined, blocks in turns:
        for marked in (outlined, *blocks):
            if marked.may_be_signed and (signature := marked.signature_sent):
                yield signature


def _marked(dialect_name: str, body: Body) -> Iterator[tuple[int, dict[str, Any]]]:
    """The items that may hold a signature, with their place."""
    if dialect_name == "chat" or not _MARK.search(raw_history(dialect_name, body)):
        return
    for at, raw in enumerate(raw_items(dialect_name, body)):
        item = decoded(raw) if _MARK.search(bytes(raw)) else None
        if isinstance(item, dict):
            yield at, item


def _signatures(item: dict[str, Any]) -> Iterator[str]:
    for block in (item, *_blocks(item)):
        if signature := _signature(block):
            yield signature


def _blocks(item: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = item.get("parts", item.get("content"))
    if isinstance(blocks, dict):
        return [blocks]
    return (
        [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    )


def _signature(block: dict[str, Any]) -> str:
    match block:
        case {"type": "thinking", "signature": str(signature)}:
            return signature
        case {"type": "redacted_thinking", "data": str(data)}:
            return data
        case {"type": "reasoning", "encrypted_content": str(content)}:
            return content
    signatures = (block.get(key) for key in _GEMINI_KEYS)
    return next((found for found in signatures if isinstance(found, str)), "")


def _without(item: dict[str, Any], digests: Collection[str]) -> dict[str, Any] | None:
    """The item, less what is signed; None for an item that is nothing else."""
    if _is_among(item, digests):
        return None
    key = "parts" if "parts" in item else "content"
    kept = [_unsigned(block, digests) for block in _listed(item[key])]
    kept = [block for block in kept if block is not None]
    text = {"text": OMITTED} if key == "parts" else {"type": "text", "text": OMITTED}
    return {**item, key: kept or [text]}


def _listed(blocks: Any) -> list[Any]:
    return [blocks] if isinstance(blocks, dict) else list(blocks)


def _unsigned(block: Any, digests: Collection[str]) -> Any:
    """None for a block of thinking; a Gemini part that says more loses its signature only."""
    if not isinstance(block, dict) or not _is_among(block, digests):
        return block
    if not any(key in block for key in _GEMINI_KEYS) or block.get("thought") is True:
        return None
    part = {key: value for key, value in block.items() if key not in _GEMINI_KEYS}
    if "functionCall" in part or "function_call" in part:
        part["thoughtSignature"] = ANY_SIGNATURE
    return part if part.keys() - {"thought"} else None


def _is_among(block: dict[str, Any], digests: Collection[str]) -> bool:
    signature = _signature(block)
    return bool(signature) and digest(signature) in digests
