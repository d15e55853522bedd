"""Reasoning on its way through a caller that keeps it: signed by its provider, sealed by krouter.

A caller of another dialect holds the provider's own reasoning as one text, in the place where its
dialect has signatures: `encrypted_content` of responses, `signature` of messages. The text
names the maker, since nobody else takes its reasoning back. Chat has no such place: there it is
remembered beside the calls it led to.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
from contextlib import suppress
from typing import Any

import msgspec
from cachetools import LRUCache

from krouter.body import dump
from krouter.dialects.thinking import digest
from krouter_adapters.litellm_lane.translate.shapes import Json, as_dicts, as_text

_MARK = "krouter1."


class _Seal(msgspec.Struct):
    maker: str
    items: list[Json]


_read = msgspec.json.Decoder(_Seal).decode


def seal(maker: str, items: list[Json]) -> str:
    """`items` of reasoning, as their maker said them, as one text."""
    raw = dump({"maker": digest(maker), "items": items})
    return _MARK + base64.urlsafe_b64encode(raw).decode()


def is_sealed(text: Any) -> bool:
    return isinstance(text, str) and text.startswith(_MARK)


def unseal(maker: str, text: Any) -> list[Json]:
    """What this maker once said; nothing for a text of another's, or of none of krouter's."""
    if not is_sealed(text):
        return []
    try:
        found = _read(base64.urlsafe_b64decode(as_text(text)[len(_MARK) :]))
    except (binascii.Error, ValueError, RecursionError, msgspec.MsgspecError):
        return []
    return as_dicts(found.items) if found.maker == digest(maker) else []


def of_form(blocks: list[Json], *, sealed: bool) -> list[Json]:
    """The signed blocks of thinking that one form of host takes back. `sealed`: those that hold
    reasoning of responses, which says nothing to a host of messages even where both share a maker.
    """
    return [b for b in blocks if is_sealed(b.get("signature") or b.get("data")) == sealed]


_before: LRUCache[str, list[Json]] = LRUCache(1024)
_guard = threading.Lock()


def call_key(call: Json) -> str:
    """Whole calls as keys: ids such as `call_1` come again in other conversations."""
    function = call.get("function") or {}
    arguments = function.get("arguments")
    with suppress(ValueError, TypeError, RecursionError):
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
        arguments = json.dumps(given, sort_keys=True)
    return f"{call.get('id')} {function.get('name')} {arguments}"


def remember_reasoning(maker: str, calls: list[Json], items: list[Json]) -> None:
    """Keeps the reasoning that led to these calls, for its maker."""
    if items and calls:
        with _guard:
            _before[f"{maker} {call_key(calls[0])}"] = items


def reasoning_before(maker: str, calls: list[Json]) -> list[Json]:
    """The reasoning of this maker's that led to these calls, where it is known."""
    with _guard:
        return _before.get(f"{maker} {call_key(calls[0])}", []) if calls else []
