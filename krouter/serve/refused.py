"""A refusal, or a fault of krouter's own, as its caller is told it: in the caller's dialect."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from typing import Any

from krouter.answer import NO_RETRY, Answer, described, error_answer
from krouter.dialects.base import Dialect
from krouter.no_answer import LONGEST_RETRY_AFTER
from krouter.serve.intake import Refusal
from krouter.wire import Headers

_log = logging.getLogger("krouter")

_KINDS = {403: "invalid_request_error", 404: "invalid_request_error", 429: "insufficient_quota"}
"""OpenAI's type of an error that has a code of its own here, by its status."""


def waiting(seconds: float) -> Headers:
    """When to come back, as clients stand it: see `no_answer`."""
    if seconds <= LONGEST_RETRY_AFTER:
        return [("retry-after", str(max(1, math.ceil(seconds))))]
    return [NO_RETRY]


def final(status: int, headers: Iterable[tuple[str, str]] | None) -> Headers:
    """The headers of a refusal, which says not to ask again unless it says when."""
    given = list(headers or ())
    names = {name.lower() for name, _ in given}
    if not 400 <= status < 500 or names & {"retry-after", NO_RETRY[0]}:
        return given
    return [*given, NO_RETRY]


def refused(dialect: Dialect, refusal: Refusal) -> Answer:
    return error_answer(
        dialect,
        refusal.status,
        refusal.message,
        told=_told(dialect, refusal),
        notes=refusal.notes,
        headers=final(refusal.status, refusal.headers),
    )


ENDING = "krouter is shutting down."


def failed(dialect: Dialect, error: BaseException, headers: Headers | None = None) -> Answer:
    """A fault of krouter's own, which is logged with where it arose; or its end, which cancels what
    is under way."""
    if isinstance(error, asyncio.CancelledError):
        return error_answer(dialect, 503, ENDING, headers=headers)
    _log.error("a request failed with %s\n%s", *described(error))
    message = f"krouter failed with {type(error).__name__}. Its log says where."
    return error_answer(dialect, 500, message, headers=headers)


def _told(dialect: Dialect, refusal: Refusal) -> Any:
    """What the dialect has to say beyond a status and a message."""
    status = refusal.status
    if dialect.name == "gemini" and refusal.wait is not None:
        delay = f"{math.ceil(refusal.wait)}s"
        info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
        return {"error": {"code": status, "status": "RESOURCE_EXHAUSTED", "details": [info]}}
    if dialect.name in ("chat", "responses", "embeddings") and refusal.code:
        error = {"message": refusal.message, "type": _KINDS[status], "param": None}
        return {"error": {**error, "code": refusal.code}}
    return None
