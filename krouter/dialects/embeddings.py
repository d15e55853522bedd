"""OpenAI Embeddings: not a conversation, but asked for, answered and refused like one.

Source: the OpenAI API reference, "Embeddings".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from krouter.body import Body
from krouter.dialects.base import (
    UNREADABLE,
    Asked,
    Kind,
    Reading,
    Tracker,
    Usage,
    asked_in,
    error_status,
    rename,
)
from krouter.dialects.chat import CHAT, read_usage

FLOAT_BYTES = 4
"""Of one number in a vector that is sent as base64."""


class _Datum(msgspec.Struct):
    embedding: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Reply(msgspec.Struct):
    data: list[_Datum] | msgspec.UnsetType | None = msgspec.UNSET
    usage: Any = None
    error: Any = None


_reply = msgspec.json.Decoder(_Reply).decode
_vector = msgspec.json.Decoder(list[float]).decode


class Embeddings:
    """Errors are those of chat, and nothing is ever streamed."""

    name = "embeddings"
    paths: tuple[str, ...] = ("/v1/embeddings",)
    prefix = ""
    keep_alive = b""

    def asked(self, body: Body, path: str) -> Asked:
        asked = asked_in(body, "input", '"[', "a text, a list of texts, or lists of tokens")
        return asked._replace(stream=False)

    def upstream_edits(self, body: Body) -> dict[str, Any]:
        return {}

    def tracker(self, body: Body, rename: str | None) -> Tracker:
        return CHAT.tracker(body, rename)

    def read_reply(self, raw: bytes) -> Reading:
        try:
            reply = _reply(raw)
        except UNREADABLE:
            return Reading(Kind.GARBAGE)
        if reply.error:
            return Reading(Kind.ERROR, error=raw, status=error_status(raw))
        usage = _usage(reply.usage)
        if reply.data is msgspec.UNSET or not all(map(_is_vector, reply.data or ())):
            return Reading(Kind.GARBAGE, usage)
        return Reading(Kind.ANSWER if reply.data else Kind.EMPTY, usage)

    def rename_reply(self, raw: bytes, model: str) -> bytes:
        return rename(raw, model)

    def error_body(self, status: int, message: str, notes: Mapping[str, Any], told: Any) -> bytes:
        return CHAT.error_body(status, message, notes, told)

    def error_event(
        self, status: int, message: str, notes: Mapping[str, Any], after: Tracker | None = None
    ) -> bytes:
        return CHAT.error_event(status, message, notes)

    def ending(self, tracker: Tracker) -> bytes:
        return CHAT.ending(tracker)


def _usage(told: Any) -> Usage | None:
    """Vectors are no tokens, so those of the input are all there are."""
    if read_usage(told) is None:
        return None
    return read_usage({"completion_tokens": 0, **told})


_NOTHING = re.compile(rb"\[\s*\]")


def nothing_given(body: Body) -> str:
    """What is wrong with an input that is an empty list, in OpenAI's words; else empty."""
    if not _NOTHING.fullmatch(body.fields.get("input", b"")):
        return ""
    return "'$.input' is invalid: it is an empty list, so there is nothing to embed."


def _is_vector(datum: _Datum) -> bool:
    return datum.embedding is not msgspec.UNSET and bytes(datum.embedding)[:1] in (b"[", b'"')


def vector_size(raw: bytes) -> int | None:
    """How many numbers the first vector of a reply has; None where none can be read."""
    try:
        data = _reply(raw).data
        vector = data[0].embedding if data else msgspec.UNSET
        if isinstance(vector, msgspec.UnsetType):
            return None
        if bytes(vector)[:1] == b"[":
            return len(_vector(vector))
        return len(base64.b64decode(msgspec.json.decode(vector), validate=True)) // FLOAT_BYTES
    except (binascii.Error, TypeError, ValueError, *UNREADABLE):
        return None


EMBEDDINGS = Embeddings()
