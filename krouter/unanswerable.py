"""Requests that nobody is asked, since no answer could be the right one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from krouter.adapter import Call
from krouter.combos import Combo, reference
from krouter.dialects.embeddings import EMBEDDINGS, nothing_given
from krouter.dialects.history import empty_field
from krouter.embeddable import why_not
from krouter.errors import Failure
from krouter.naming import LONGEST_NAME, Destination
from krouter.route import End
from krouter.world import World


class Unanswerable(Struct, frozen=True):
    """What the caller is told in place of an answer: `notes` are added to the error, `reason` is
    the outcome of the route."""

    status: int
    message: str
    reason: str
    notes: Mapping[str, Any] = MappingProxyType({})


def unanswerable(
    call: Call, destination: Destination, stored: str, world: World
) -> Unanswerable | None:
    """Why nobody is asked; None where somebody can be. `stored` is the field that names what a
    provider has stored, empty where there is none."""
    if stored and not _has_stored(call, destination, world):
        return _stored_elsewhere(stored, call)
    name, combo = call.dialect.name, destination.combo
    empty = empty_field(name, call.body)
    if empty and not _is_spoken(name, combo, world):
        message = f"The field {empty!r} must hold at least one message."
        return Unanswerable(400, message, End.NO_MESSAGES, {"param": empty})
    return _no_vectors(call, combo, world) if call.dialect is EMBEDDINGS else None


def _has_stored(call: Call, destination: Destination, world: World) -> bool:
    """Only a single account of a provider that speaks the dialect itself has what it stored."""
    entry = destination.combo.models[0]
    provider, _ = world.registry.split(entry.model)
    if not destination.direct or provider is None or call.dialect.name not in provider.base_urls:
        return False
    return len(list(world.accounts_of(provider.name, entry))) < 2


def _stored_elsewhere(field: str, call: Call) -> Unanswerable:
    given = call.body.value(field)
    is_previous = field == "previous_response_id"
    found = f"Previous response {given!r:.100} not found. " if is_previous else ""
    message = (
        f"{found}{field!r} needs what one account of a provider has stored, and for"
        f" {call.model[:LONGEST_NAME]!r} another may answer, or one that stores nothing. Send"
        " the whole conversation, or name a provider/model that speaks this dialect itself and"
        " has one account."
    )
    code = "previous_response_not_found" if is_previous else "unsupported_parameter"
    return Unanswerable(400, message, End.STORED_ELSEWHERE, {"code": code, "param": field})


def _is_spoken(dialect_name: str, combo: Combo, world: World) -> bool:
    """Whether an entry's provider speaks the dialect itself. Such a one says what it thinks of a
    conversation without messages; nobody else is worth asking."""
    for entry in combo.models:
        name = reference(entry.model)
        if name is not None:
            inner = world.combos.get(name)
            if inner is not None and _is_spoken(dialect_name, inner, world):
                return True
            continue
        provider, _ = world.registry.split(entry.model)
        if provider is None or dialect_name in provider.speaks:
            return True
    return False


def _no_vectors(call: Call, combo: Combo, world: World) -> Unanswerable | None:
    """Nothing to embed, or vectors that could not be compared; a size that is asked for is all
    entries'."""
    if fault := nothing_given(call.body):
        return Unanswerable(400, fault, Failure.BAD_REQUEST)
    if not call.body.value("dimensions") and (fault := why_not(combo, world)):
        return Unanswerable(400, fault, End.VECTORS_DIFFER)
    return None
