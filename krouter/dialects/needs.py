"""What a request needs a model to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from krouter.body import Body
from krouter.combos import Medium
from krouter.dialects.history import from_the_end, items_of, raw_history
from krouter.dialects.media import is_result, may_hold, media_of


def needs(dialect_name: str, body: Body) -> frozenset[Medium]:
    """The media in the latest message: from the last user turn that holds no tool result to the
    end, so that a screenshot counts through the tool steps that answer it.

    Costs what that turn costs to decode, not the whole conversation.
    """
    return _media(_latest(from_the_end(dialect_name, body)))


def holds(dialect_name: str, body: Body) -> frozenset[Medium]:
    """The media in the whole conversation."""
    return _media(_items(dialect_name, body))


def has_images(dialect_name: str, body: Body) -> bool:
    """Whether an image stands anywhere in the conversation."""
    return "image" in holds(dialect_name, body)


def _items(dialect_name: str, body: Body) -> list[Any]:
    """The conversation; empty if it surely holds no attachment."""
    return items_of(dialect_name, body) if may_hold(raw_history(dialect_name, body)) else []


def _media(items: Iterable[Any]) -> frozenset[Medium]:
    return frozenset(medium for item in items for medium in media_of(item))


def _latest(backwards: Iterable[Any]) -> list[Any]:
    """The items of the latest message, the last first; all of them where no turn is a user's own.

    A system message among a user's messages, as coding tools put there, ends no turn.
    """
    items: list[Any] = []
    begin, clean = None, True
    for item in backwards:
        if _is_user(item):
            begin, clean = len(items) + 1, clean and not _holds_result(item)
        elif begin is not None and not _is_system(item):
            if clean:
                return items[:begin]
            begin, clean = None, True
        items.append(item)
    return items[:begin] if clean else items


def _is_system(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") in ("system", "developer")


def _is_user(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    role, kind = item.get("role"), item.get("type")
    if role is None:
        return "parts" in item or (isinstance(kind, str) and kind.startswith("input_"))
    return bool(role == "user")


def _holds_result(message: Mapping[str, Any]) -> bool:
    blocks = message.get("parts", message.get("content"))
    return isinstance(blocks, list) and any(
        isinstance(block, dict)
        and (is_result(block) or "functionResponse" in block or "function_response" in block)
        for block in blocks
    )
