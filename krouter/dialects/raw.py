"""JSON taken apart without decoding it: each value stays the sender's own bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from krouter.body import Body, BodyError, dump
from krouter.dialects.base import UNREADABLE, without_halves

Fields = dict[str, Any]
"""An object: of what was read, each value is a `Raw`; of what was made, a plain one."""

NULL = msgspec.Raw(b"null")
EMPTY = msgspec.Raw(b'""')

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_NOTHING = frozenset((b"null", b'""', b"[]", b"{}"))


def one_line(raw: bytes) -> bytes | None:
    """A JSON object without line ends, which would cut an event. What clients take but is not
    quite JSON is mended; None for what is no object."""
    try:
        Body.parse(raw)
    except BodyError:
        return _mended(raw)
    if b"\n" in raw or b"\r" in raw:
        return msgspec.json.format(raw, indent=-1)
    return raw


def _mended(raw: bytes) -> bytes | None:
    try:
        told = json.loads(
            raw.decode("utf-8", "replace"), parse_constant=lambda _: None, parse_float=_finite
        )
        mended = without_halves(json.dumps(told, ensure_ascii=False)).encode()
    except (ValueError, RecursionError):
        return None
    return mended if isinstance(told, dict) else None


def _finite(number: str) -> float | None:
    value = float(number)
    return value if math.isfinite(value) else None


def fields_of(value: Any) -> Fields:
    """The fields of an object; none of what is no object."""
    try:
        return dict(_object(value)) if isinstance(value, (bytes, msgspec.Raw)) else {}
    except UNREADABLE:
        return {}


def elements(value: Any) -> list[msgspec.Raw]:
    """The elements of a list; none of what is no list."""
    try:
        return _list(value) if isinstance(value, (bytes, msgspec.Raw)) else []
    except UNREADABLE:
        return []


def is_said(value: msgspec.Raw | None) -> bool:
    """Whether a value is there and is not empty."""
    return value is not None and bytes(value) not in _NOTHING


def is_text(value: msgspec.Raw | None) -> bool:
    return value is not None and bytes(memoryview(value)[:1]) == b'"'


def text_of(value: msgspec.Raw | None) -> str:
    """A text, decoded; empty for what is none."""
    return str(msgspec.json.decode(value)) if value is not None and is_text(value) else ""


def as_text(value: msgspec.Raw | None) -> msgspec.Raw:
    """A text as it is; anything else as a text that holds its JSON, and nothing as an empty one."""
    if value is None or bytes(value) == b"null":
        return EMPTY
    return value if is_text(value) else msgspec.Raw(dump(bytes(value).decode()))


def with_default(fields: Mapping[str, Any], name: str, default: Any) -> Any:
    """A field of some text; `default` where it holds none."""
    value = fields.get(name)
    return value if is_text(value) and is_said(value) else default


def over(defaults: Fields, fields: Fields) -> Fields:
    """Fields, and a default for each that holds nothing."""
    told = {k: v for k, v in fields.items() if k not in defaults or is_said(v)}
    return {**defaults, **told}
