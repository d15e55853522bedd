"""A route as it is kept: JSON, with each combo beside it once, under the digest of its text.

`decode(encode(route))` is the route again, but for what of its combos no order follows from, and
`rebuild` gives the very order it was sent in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import msgspec
from pydantic import BaseModel, ValidationError

from krouter.combos import Combo, Entry
from krouter.plan import Plan, make_plan
from krouter.ranking import Place, order
from krouter.route import Route
from krouter.settings import RoutingSettings

VERSION = 1
"""Of this form; a reader refuses what is newer."""

Encoded = tuple[bytes, dict[str, bytes]]
"""The JSON of a route, and that of the combos in it by their digests."""

MOST_TEXTS = 256
_texts: dict[int, tuple[Combo, str, bytes]] = {}
"""By the identity of a combo. Without a lock, which a forked process might find held for ever."""


class RecordError(ValueError):
    """A record that cannot be read; the message says why."""


def encode(route: Route) -> Encoded:
    """Raises TypeError and ValueError where a route cannot be kept."""
    if route.whole is not route:
        raise TypeError("a part of a route is no record")
    combos: dict[str, bytes] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Combo):
            digest, text = _text(value)
            combos[digest] = text
            return digest
        if isinstance(value, RoutingSettings):
            return value.model_dump()
        if isinstance(value, Entry):
            return _plain_entry(value)
        if isinstance(value, MappingProxyType):
            return dict(value)
        raise TypeError(f"{type(value).__name__} cannot be kept in a record")

    return msgspec.json.encode(route, enc_hook=plain), combos


def decode(raw: bytes, combo_text: Callable[[str], bytes | None]) -> Route:
    """The route again. `combo_text` gives a combo's JSON by its digest. Raises RecordError."""

    def read(kind: type, value: Any) -> Any:
        if kind is Combo:
            return _combo(combo_text(value), value)
        model: type[BaseModel] = kind
        return model.model_validate(value)

    try:
        return msgspec.json.decode(raw, type=Route, dec_hook=read)
    except (msgspec.MsgspecError, ValidationError) as error:
        raise RecordError(f"The record cannot be read: {error}") from None


def rebuild(route: Route) -> list[Plan]:
    """The plan and every nested plan that was reached, made anew from what they were made from."""
    return list(map(make_plan, route.snapshots))


def rebuild_rankings(route: Route) -> Mapping[str, list[Place]]:
    """The order of each entry's accounts, made anew."""
    return {entry: order(standing) for entry, standing in route.rankings.items()}


def _text(combo: Combo) -> tuple[str, bytes]:
    known = _texts.get(id(combo))
    if known is not None and known[0] is combo:
        return known[1:]
    text = msgspec.json.encode(_plain_combo(combo))
    digest = blake2b(text, digest_size=12).hexdigest()
    if len(_texts) >= MOST_TEXTS:
        _texts.clear()
    _texts[id(combo)] = combo, digest, text
    return digest, text


_ORDERING = {"name", "strategy", "sticky_limit", "judge", "stream_guard", "on_too_large"} | {
    *("on_refusal", "timeouts", "retries")
}
"""What of a combo an order and its walk follow from, beside its entries. What people write to each
other stays out, and so does all that is sent: it may hold credentials, and text."""
_OF_ENTRY = {"model", "weight", "accounts", "reads", "context_window", "timeouts"}


def _plain_combo(combo: Combo) -> dict[str, Any]:
    plain = _dumped(combo, _ORDERING)
    return plain | {"models": list(map(_plain_entry, combo.models))}


def _plain_entry(entry: Entry) -> dict[str, Any]:
    """Of the parameters their names alone are kept."""
    plain = _dumped(entry, _OF_ENTRY)
    return plain | ({"params": dict.fromkeys(entry.params)} if entry.params else {})


def _dumped(part: BaseModel, fields: set[str]) -> dict[str, Any]:
    return part.model_dump(mode="json", by_alias=True, exclude_unset=True, include=fields)


def _combo(text: bytes | None, digest: str) -> Combo:
    if text is None:
        raise RecordError(f"The combo {digest} that the record names is not kept.")
    try:
        return Combo.model_validate_json(text)
    except ValidationError:  # a model called directly, under a name that no combo may list
        given = msgspec.json.decode(text)
        models = tuple(Entry.model_construct(**entry) for entry in given["models"])
        return Combo.model_construct(name=given["name"], models=models)
