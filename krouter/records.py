"""A route as it is kept: JSON, with each combo beside it once, under the digest of its text.

`decode(encode(route))` is the route again, and `rebuild` gives the very order it was sent in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import msgspec
from cachetools import LRUCache
from pydantic import BaseModel, ValidationError

from krouter.combos import Combo, Entry
from krouter.plan import Plan, make_plan
from krouter.ranking import Place, order
from krouter.route import Route
from krouter.settings import RoutingSettings

VERSION = 1
"""Of this form; a reader refuses what is newer."""

_texts: LRUCache[int, tuple[Combo, str, bytes]] = LRUCache(256)


class RecordError(ValueError):
    """A record that cannot be read; the message says why."""


def encode(route: Route) -> tuple[bytes, dict[str, bytes]]:
    """The JSON of a route, and that of the combos in it by their digests."""
    combos: dict[str, bytes] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Combo):
            digest, text = _text(value)
            combos[digest] = text
            return digest
        if isinstance(value, RoutingSettings):
            return value.model_dump()
        if isinstance(value, Entry):
            return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
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
    text = combo.model_dump_json(by_alias=True, exclude_unset=True).encode()
    digest = blake2b(text, digest_size=12).hexdigest()
    _texts[id(combo)] = combo, digest, text
    return digest, text


def _combo(text: bytes | None, digest: str) -> Combo:
    if text is None:
        raise RecordError(f"The combo {digest} that the record names is not kept.")
    try:
        return Combo.model_validate_json(text)
    except ValidationError:  # a model called directly, under a name that no combo may list
        given = msgspec.json.decode(text)
        models = tuple(Entry.model_construct(**entry) for entry in given["models"])
        return Combo.model_construct(name=given["name"], models=models)
