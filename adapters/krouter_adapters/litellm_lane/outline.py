"""What LiteLLM's classes make of a request apart from its conversation, kept from call to call.

Most of the time that a class takes goes into looking up what it knows of a model and into tools
that are the same in every call of a conversation. So a request with a plain conversation is written
once with a short conversation in its place, and from then on only the conversation is new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from krouter_adapters.litellm_lane.build import Written
from krouter_adapters.litellm_lane.kept import Kept
from krouter_adapters.litellm_lane.translate.plain import Kind, kind_of, turns_of
from krouter_adapters.litellm_lane.translate.shapes import Json
from krouter_adapters.litellm_lane.ways import Aim, Form

MOST_KEPT = 2 << 20
"""Bytes of the requests whose outlines are kept, without their conversations."""


class Told(NamedTuple):
    """A plain conversation as it goes out: `fields` of the body, in the place of those that a
    `stand_in` of its kind has given."""

    kind: Kind
    fields: Json


def told(form: Form, messages: list[Json]) -> Told | None:
    """None where the class itself has to write the conversation."""
    kind = kind_of(messages)
    if kind is None or form == "chat":
        return kind and Told(kind, {"messages": messages})
    turns = turns_of(messages, kind)
    if turns is None:
        return None
    system = {"system": turns.system} if kind.system else {}
    return Told(kind, {"messages": turns.messages, **system})


class Asked(NamedTuple):
    """All of a request but its conversation: two that are equal have the same outline."""

    goal: Aim
    model: str
    key: str
    stream: bool
    kind: Kind
    fields: bytes


class Outlines:
    def __init__(self) -> None:
        self._kept: Kept[Asked, Written | None] = Kept(MOST_KEPT)

    def completed(
        self, asked: Asked, told: Told, write: Callable[[list[Json]], Written]
    ) -> Written | None:
        """The request with this conversation; None where the class has to write it all. `write` is
        the class at work, for any conversation."""
        outline = self._kept.get(
            asked, len(asked.fields), lambda: _outlined(told.kind, asked.goal.body, write)
        )
        return outline and replace(outline, data={**outline.data, **told.fields})


def _outlined(kind: Kind, form: Form, write: Callable[[list[Json]], Written]) -> Written | None:
    """None where the class does more to a plain conversation than is known here."""
    written = write(kind.stand_in())
    expected = told(form, kind.stand_in())
    if expected is None or written.names:
        return None
    found = {name: written.data.get(name) for name in ("messages", "system")}
    return written if found == {"system": None, **expected.fields} else None
