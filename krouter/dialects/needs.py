"""What a request needs a model to read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from itertools import islice
from typing import Any, TypeVar

from msgspec import UNSET

from krouter.body import Body
from krouter.combos import Medium
from krouter.dialects.history import (
    from_the_end,
    items_of,
    prompt_item,
    raw_history,
    raw_prompts,
)
from krouter.dialects.media import is_result, may_be_in, may_hold, media_of, names_result
from krouter.dialects.outline import Turn, outline


def needs(dialect_name: str, body: Body) -> frozenset[Medium]:
    """The media in the latest message: from the last user turn that holds no tool result to the
    end, so that a screenshot counts through the tool steps that answer it.

    Nothing is decoded where the outline shows that it holds none, and no more than that turn where
    it may.
    """
    turns = outline(dialect_name, body)
    if turns is None:
        items = from_the_end(dialect_name, body)
        return _media(_latest(items, _speaker_of_item, _item_holds_result))
    latest = _latest(reversed(turns), _speaker_of_turn, _turn_holds_result)
    if not any(map(may_be_in, latest)):
        return frozenset()
    return _media(islice(from_the_end(dialect_name, body), len(latest)))


def holds(dialect_name: str, body: Body) -> frozenset[Medium]:
    """The media in the whole conversation, the system prompt included."""
    prompts = raw_prompts(dialect_name, body).values()
    items = [prompt_item(raw) for raw in prompts if may_hold(bytes(raw))]
    return _media([*items, *_items(dialect_name, body)])


def has_images(dialect_name: str, body: Body) -> bool:
    """Whether an image stands anywhere in the conversation."""
    return "image" in holds(dialect_name, body)


def _items(dialect_name: str, body: Body) -> list[Any]:
    """The conversation; empty if it surely holds no attachment."""
    return items_of(dialect_name, body) if may_hold(raw_history(dialect_name, body)) else []


def _media(items: Iterable[Any]) -> frozenset[Medium]:
    return frozenset(medium for item in items for medium in media_of(item))


class _Speaker(Enum):
    """Who speaks in an item, as far as it counts for where a turn begins and ends."""

    USER = auto()
    SYSTEM = auto()
    OTHER = auto()


_USER, _SYSTEM, _OTHER = _Speaker
_T = TypeVar("_T")


def _latest(
    backwards: Iterable[_T], speaker: Callable[[_T], _Speaker], holds_result: Callable[[_T], bool]
) -> list[_T]:
    """The items of the latest message, the last first; all of them where no turn is a user's own.

    A system message among a user's messages, as coding tools put there, ends no turn.
    """
    items: list[_T] = []
    begin, clean = None, True
    for item in backwards:
        speaks = speaker(item)
        if speaks is _USER:
            begin, clean = len(items) + 1, clean and not holds_result(item)
        elif begin is not None and speaks is not _SYSTEM:
            if clean:
                return items[:begin]
            begin, clean = None, True
        items.append(item)
    return items[:begin] if clean else items


def _speaker(role: Any, kind: Any, has_parts: bool) -> _Speaker:
    if role == "user":
        return _USER
    if role is None and (has_parts or (isinstance(kind, str) and kind.startswith("input_"))):
        return _USER
    return _SYSTEM if role in ("system", "developer") else _OTHER


def _speaker_of_item(item: Any) -> _Speaker:
    if not isinstance(item, dict):
        return _OTHER
    return _speaker(item.get("role"), item.get("type"), "parts" in item)


def _item_holds_result(message: Mapping[str, Any]) -> bool:
    blocks = message.get("parts", message.get("content"))
    return isinstance(blocks, list) and any(
        isinstance(block, dict)
        and (is_result(block) or "functionResponse" in block or "function_response" in block)
        for block in blocks
    )


def _speaker_of_turn(turn: Turn) -> _Speaker:
    item = turn[0]
    return _speaker(item.role, item.type, item.parts is not UNSET)


def _turn_holds_result(turn: Turn) -> bool:
    return any(
        not (UNSET is block.camel_function_response is block.function_response)
        or names_result(block.type)
        for block in turn[1]
    )
