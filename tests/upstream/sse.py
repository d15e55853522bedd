"""Server-sent events in every shape that a provider gives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

Event = tuple[str | None, Any]

COMMENT = b": keep-alive\n\n"
BOM = b"\xef\xbb\xbf"


def frame(events: Iterable[Event], shapes: frozenset[str], named: bool) -> list[bytes]:
    """Each event as its bytes; data is JSON unless it is a plain string."""
    framed = [frame_one(name if named else None, data, shapes) for name, data in events]
    return reshape(framed, shapes) if shapes else framed


def frame_one(name: str | None, data: Any, shapes: frozenset[str]) -> bytes:
    payload = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    field = b"data:" if "tight" in shapes else b"data: "
    if "multiline" in shapes:
        payload = msgspec.json.format(payload, indent=1) if payload[:1] == b"{" else payload
        payload = payload.replace(b"\n", b"\n" + field)
    opening = b"" if name is None else b"event: %b\n" % name.encode()
    return b"%b%b%b\n\n" % (opening, field, payload)


def reshape(events: list[bytes], shapes: frozenset[str]) -> list[bytes]:
    if "comments" in shapes:
        events = [COMMENT + event for event in events]
    if "bom" in shapes and events:
        events = [BOM + events[0], *events[1:]]
    if "open" in shapes and events:
        events = [*events[:-1], events[-1].rstrip(b"\n")]
    if "crlf" in shapes:
        events = [event.replace(b"\n", b"\r\n") for event in events]
    return events
