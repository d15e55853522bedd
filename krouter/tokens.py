"""Secrets as tools write them: a plain token, or JSON that holds one and says when it expires."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

_TOKEN = ("access_token", "accessToken", "token")
_EXPIRY = ("expires_at", "expiresAt", "expiry_date", "expiry")


class Token(NamedTuple):
    """A secret, and when it expires in epoch seconds, None if that is not told."""

    secret: str
    expires: float | None = None


def read_token(text: str) -> Token | None:
    """The token in `text`; None for JSON in which there is none.

    JSON may hold it one level down, as the files of Claude Code and Codex do. Where nothing tells
    the expiry, the token itself may: a JWT does.
    """
    stripped = text.strip()
    if not stripped.startswith("{"):
        return Token(stripped, _jwt_expiry(stripped))
    for place in _places(stripped):
        secret = next((place[n] for n in _TOKEN if isinstance(place.get(n), str)), "").strip()
        if secret:
            told = next((place[name] for name in _EXPIRY if name in place), None)
            return Token(secret, _moment(told) or _jwt_expiry(secret))
    return None


def _places(text: str) -> Iterator[dict[str, Any]]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return
    yield whole
    yield from (value for value in whole.values() if isinstance(value, dict))


def _jwt_expiry(token: str) -> float | None:
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    return _moment(claims.get("exp")) if isinstance(claims, dict) else None


def _moment(value: Any) -> float | None:
    """Epoch seconds or milliseconds, as a number or in digits, or an ISO 8601 time."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return _dated(value) if isinstance(value, str) else None
    if not 0 < number < 1e15:
        return None
    return number / 1000 if number >= 1e11 else number


def _dated(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
