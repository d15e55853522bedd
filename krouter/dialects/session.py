"""Which conversation a request belongs to."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from krouter.body import Body, dump
from krouter.dialects.history import decoded, raw_items

HEADERS = (
    "x-claude-code-session-id",
    "session-id",
    "thread-id",
    "x-session-id",
    "x-session-affinity",
)
"""Headers that name a session, the most telling first."""

_LONGEST = 128
_IN_USER_ID = re.compile(r"_session_([0-9A-Za-z-]{8,})$")
_SYSTEM_FIELDS = ("system", "instructions", "systemInstruction", "system_instruction")
_SYSTEM_ROLES = ("system", "developer")


def session_key(dialect_name: str, body: Body, headers: Iterable[tuple[str, str]]) -> str:
    """A name for the conversation: the client's own if it gives one, else a digest of the system
    prompt and the user's first message."""
    given = _from_headers(headers) or _from_body(body)
    if not given:
        return _digest(_opening(dialect_name, body))
    return given if len(given) <= _LONGEST else _digest([given.encode("utf-8", "replace")])


def _from_headers(headers: Iterable[tuple[str, str]]) -> str:
    named = {name.lower(): value.strip() for name, value in headers}
    return next(filter(None, map(named.get, HEADERS)), "") or ""


def _from_body(body: Body) -> str:
    key = body.value("prompt_cache_key")
    if isinstance(key, str) and key:
        return key
    metadata = body.value("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    return _from_user_id(user) if isinstance(user, str) else ""


def _from_user_id(user: str) -> str:
    """Claude Code's user id is JSON text; older versions end theirs with the session."""
    if user.lstrip().startswith("{"):
        try:
            session = json.loads(user).get("session_id")
        except (ValueError, RecursionError):
            return ""
        return session if isinstance(session, str) else ""
    match = _IN_USER_ID.search(user)
    return match[1] if match else ""


def _opening(dialect_name: str, body: Body) -> Iterator[bytes]:
    """The system prompt and the user's first message, less what changes from turn to turn."""
    for name in _SYSTEM_FIELDS:
        yield from _said(body.value(name))
    for item in map(decoded, raw_items(dialect_name, body)):
        if not isinstance(item, dict):
            continue
        role = item.get("role", "user")
        yield from _said(item.get("content", item.get("parts")))
        if role not in _SYSTEM_ROLES:
            return


def _said(content: Any) -> Iterator[bytes]:
    """What a content says, however it is written: clients move their cache marks."""
    if isinstance(content, dict):
        content = content.get("parts", content)
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, dict):
            text = block.get("text")
            unmarked = {key: value for key, value in block.items() if key != "cache_control"}
            yield dump(text if isinstance(text, str) else unmarked)
        elif block is not None:
            yield dump(block)


def _digest(parts: Iterable[bytes]) -> str:
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).hexdigest()
