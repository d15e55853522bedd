"""OpenAI Responses.

Source: the OpenAI API reference, "Responses" and "Streaming events"; OpenAI's SDKs and Codex, which
read them.
"""

from __future__ import annotations

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
    asked_in,
    error_status,
    read_loosely,
    rename,
)
from krouter.dialects.chat import CHAT
from krouter.dialects.responses_stream import (
    ResponsesTracker,
    error_of,
    failure,
    is_said,
    read_usage,
)
from krouter.dialects.thinking import signatures_of

_FAILED = frozenset(["failed", "cancelled"])
# A response in the background is an answer before it is there.
_FINISHED = frozenset(["completed", "queued", "in_progress"])


class _Reply(msgspec.Struct):
    type: Any = None
    object: Any = None
    status: Any = None
    output: list[Any] | None = None
    usage: Any = None
    error: Any = None


_reply = msgspec.json.Decoder(_Reply).decode


class Responses:
    name = "responses"
    paths: tuple[str, ...] = ("/v1/responses",)
    prefix = ""
    keep_alive = b": keep-alive\n\n"

    def asked(self, body: Body, path: str) -> Asked:
        if "input" not in body.fields and "prompt" in body.fields:
            return asked_in(body, "prompt", "{", "an object that names a prompt")
        return asked_in(body, "input", '["', "a text or a list of items")

    def upstream_edits(self, body: Body) -> dict[str, Any]:
        return {}

    def tracker(self, body: Body, rename: str | None) -> Tracker:
        model = body.value("model")
        return ResponsesTracker(model if isinstance(model, str) else "", rename)

    def read_reply(self, raw: bytes) -> Reading:
        reply: _Reply | None
        try:
            reply = _reply(raw)
        except UNREADABLE:
            reply = read_loosely(raw, _Reply)
        if reply is None:
            return Reading(Kind.GARBAGE)
        if reply.error or reply.type == "error" or _is_one_of(reply.status, _FAILED):
            return Reading(Kind.ERROR, error=raw, status=error_status(raw))
        if reply.output is None and reply.object != "response":
            return Reading(Kind.GARBAGE)
        output = reply.output or []
        answered = any(map(is_said, output)) or _is_one_of(reply.status, _FINISHED)
        kind = Kind.ANSWER if answered else Kind.EMPTY
        return Reading(kind, read_usage(reply.usage), signed=signatures_of(output))

    def rename_reply(self, raw: bytes, model: str) -> bytes:
        return rename(raw, model)

    def error_body(self, status: int, message: str, notes: Mapping[str, Any], told: Any) -> bytes:
        """In the form of chat's, which is OpenAI's. What was an event keeps its error alone."""
        if isinstance(told, dict) and ("sequence_number" in told or "response" in told):
            told = {"error": error_of(told)}
        return CHAT.error_body(status, message, notes, told)

    def error_event(
        self,
        status: int,
        message: str,
        notes: Mapping[str, Any],
        after: Tracker | None = None,
    ) -> bytes:
        tracker = after if isinstance(after, ResponsesTracker) else ResponsesTracker("", None)
        return tracker.ended(failure(status, message, notes))

    def ending(self, tracker: Tracker) -> bytes:
        return tracker.rest() if isinstance(tracker, ResponsesTracker) else b""


def _is_one_of(status: Any, known: frozenset[str]) -> bool:
    return isinstance(status, str) and status in known


RESPONSES = Responses()
