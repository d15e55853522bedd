"""A route as it is kept: JSON, with each combo beside it once, under the digest of its text.

`decode(encode(route))` is the route again, but for what of its combos no order follows from, and
`rebuild` gives the very order it was sent in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Raw
from pydantic import BaseModel, ValidationError

from krouter.combos import Combo, Entry
from krouter.plan import Plan, Snapshot, make_plan
from krouter.ranking import Place, order
from krouter.route import Route
from krouter.settings import RoutingSettings

VERSION = 1
"""Of this form; a reader refuses what is newer."""

Encoded = tuple[bytes, dict[str, bytes]]
"""The JSON of a route, and that of the combos in it by their digests."""

MOST_KNOWN = 256


class RecordError(ValueError):
    """A record that cannot be read; the message says why."""


Part = TypeVar("Part")
Told = TypeVar("Told")


class _Known(Generic[Part, Told]):
    """What `make` makes of parts that never change, by their identity, since most requests share
    them. Without a lock, which a forked process might find held for ever."""

    def __init__(self, make: Callable[[Part], Told]) -> None:
        self._make = make
        self._known: dict[int, tuple[Part, Told]] = {}

    def of(self, part: Part) -> Told:
        known = self._known.get(id(part))
        if known is not None and known[0] is part:
            return known[1]
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        told = self._make(part)
        self._known[id(part)] = part, told
        return told


def encode(route: Route) -> Encoded:
    """Raises TypeError and ValueError where a route cannot be kept."""
    if route.whole is not route:
        raise TypeError("a part of a route is no record")
    kept = [_snapshots.of(each) for each in route.snapshots]
    told: Any = copy(route)
    told.snapshots = [each.raw for each in kept]
    return _encoder.encode(told), {each.digest: each.text for each in kept}


def _plain(value: Any) -> Any:
    """What msgspec does not know, as what it knows."""
    make = _PLAIN.get(type(value))
    if make is None:
        raise TypeError(f"{type(value).__name__} cannot be kept in a record")
    return make(value)


class _Kept(NamedTuple):
    """A snapshot as it stands in a record, and its combo as it stands beside it."""

    raw: Raw
    digest: str
    text: bytes


def _snapshot(snapshot: Snapshot) -> _Kept:
    return _Kept(Raw(_encoder.encode(snapshot)), *_texts.of(snapshot.combo))


def _text(combo: Combo) -> tuple[str, bytes]:
    """Its digest, and its JSON."""
    text = msgspec.json.encode(_plain_combo(combo))
    return blake2b(text, digest_size=12).hexdigest(), text


def _routing(settings: RoutingSettings) -> Raw:
    return Raw(msgspec.json.encode(settings.model_dump()))


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_snapshots = _Known(_snapshot)
_texts = _Known(_text)
_routings = _Known(_routing)


class Decoder:
    """Reads many records. `combo_text` gives a combo's JSON by its digest; each combo is read once,
    and is one object in all the routes."""

    def __init__(self, combo_text: Callable[[str], bytes | None]) -> None:
        self._combo_text = combo_text
        self._combos: dict[str, Combo] = {}
        self._routings: dict[object, RoutingSettings] = {}
        self._decoder = msgspec.json.Decoder(Route, dec_hook=self._read)

    def decode(self, raw: bytes) -> Route:
        """The route again. Raises RecordError."""
        try:
            return self._decoder.decode(raw)
        except (msgspec.MsgspecError, ValidationError) as error:
            raise RecordError(f"The record cannot be read: {error}") from None

    def combos_of(self, raw: bytes) -> list[Combo]:
        """The combos whose orders were made for a request, its own first, without reading the rest
        of the record. Raises RecordError."""
        try:
            return [self._combo(each.combo) for each in _named_in(raw).snapshots]
        except msgspec.MsgspecError as error:
            raise RecordError(f"The record cannot be read: {error}") from None

    def _read(self, kind: type, value: Any) -> Any:
        if kind is Combo:
            return self._combo(value)
        if kind is RoutingSettings:
            return self._routing(value)
        model: type[BaseModel] = kind
        return model.model_validate(value)

    def _combo(self, digest: str) -> Combo:
        found = self._combos.get(digest)
        if found is None:
            found = self._combos[digest] = _combo(self._combo_text(digest), digest)
        return found

    def _routing(self, value: dict[str, Any]) -> RoutingSettings:
        key = tuple(sorted(value.items()))
        found = self._routings.get(key)
        if found is None:
            found = self._routings[key] = RoutingSettings.model_validate(value)
        return found


class _Snapshot(msgspec.Struct):
    combo: str


class _Snapshots(msgspec.Struct):
    snapshots: list[_Snapshot] = []


_named_in = msgspec.json.Decoder(_Snapshots).decode


def decode(raw: bytes, combo_text: Callable[[str], bytes | None]) -> Route:
    """The route again. `combo_text` gives a combo's JSON by its digest. Raises RecordError."""
    return Decoder(combo_text).decode(raw)


def rebuild(route: Route) -> list[Plan]:
    """The plan and every nested plan that was reached, made anew from what they were made from."""
    return list(map(make_plan, route.snapshots))


def rebuild_rankings(route: Route) -> Mapping[str, list[Place]]:
    """The order of each entry's accounts, made anew."""
    return {entry: order(given) for entry, given in route.rankings.items()}


def _digest(combo: Combo) -> str:
    return _texts.of(combo)[0]


_ORDERING = {"name", "strategy", "sticky_limit", "judge", "stream_guard", "on_too_large"} | {
    *("on_refusal", "timeouts", "retries")
}
"""What of a combo an order and its walk follow from, beside its entries. What people write to each
other stays out, and so does all that is sent: it may hold credentials, and text."""
_OF_ENTRY = {"model", "weight", "accounts", "reads", "context_window", "timeouts"}


def ordering(combo: Combo) -> object:
    """All of a combo that a record keeps, its defaults spelled out: two combos that a record cannot
    tell apart give the same."""
    plain = combo.model_dump(include=_ORDERING)
    entries = [
        (entry.model_dump(include=_OF_ENTRY), sorted(entry.params)) for entry in combo.models
    ]
    return plain, entries


def _plain_combo(combo: Combo) -> dict[str, Any]:
    plain = _dumped(combo, _ORDERING)
    return plain | {"models": list(map(_plain_entry, combo.models))}


def _plain_entry(entry: Entry) -> dict[str, Any]:
    """Of the parameters their names alone are kept."""
    plain = _dumped(entry, _OF_ENTRY)
    return plain | ({"params": dict.fromkeys(entry.params)} if entry.params else {})


def _dumped(part: BaseModel, fields: set[str]) -> dict[str, Any]:
    return part.model_dump(mode="json", by_alias=True, exclude_unset=True, include=fields)


_PLAIN: dict[type, Callable[[Any], Any]] = {
    Combo: _digest,
    Entry: _plain_entry,
    RoutingSettings: _routings.of,
    MappingProxyType: MappingProxyType.copy,
}


def _combo(text: bytes | None, digest: str) -> Combo:
    if text is None:
        raise RecordError(f"The combo {digest} that the record names is not kept.")
    try:
        return Combo.model_validate_json(text)
    except ValidationError:  # a model called directly, under a name that no combo may list
        given = msgspec.json.decode(text)
        models = tuple(Entry.model_construct(**entry) for entry in given["models"])
        return Combo.model_construct(name=given["name"], models=models)
