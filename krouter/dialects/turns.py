"""One more turn of the user's at the end of a request; all before it stays as it came."""

from __future__ import annotations

from typing import Any

import msgspec

from krouter.body import Body, BodyError, dump
from krouter.dialects.base import without_halves
from krouter.dialects.history import FIELD, decoded, raw_history, raw_items

_BLANK = b" \t\r\n"
_GAP = "\n\n"
_RESULTS = ("functionResponse", "function_response")

# Of each dialect, what stands beside the text of a block, and under which name blocks stand.
_TYPE = {"chat": "text", "messages": "text", "responses": "input_text"}


def with_turn(dialect_name: str, body: Body, text: str, *, join: bool = False) -> Body:
    """The request with one more user message. What is there stays byte for byte.

    Where the dialect wants turns to alternate it joins the last turn if that is the user's; with
    `join` it does so in every dialect. A conversation that is none, or of an unknown dialect, does
    not hinder it.
    """
    field = FIELD.get(dialect_name)
    if field is None:
        return body
    text = without_halves(text)
    history = raw_history(dialect_name, body).strip(_BLANK)
    if history[:1] == b'"' and dialect_name == "responses" and join:
        return _with(body, field, _longer(history, text))
    listed = history if history[:1] == b"[" else _list(_lone(dialect_name, body, history))
    joined = _joined(dialect_name, listed, text, join)
    return _with(body, field, joined or _appended(listed, dump(_turn(dialect_name, text))))


def _with(body: Body, field: str, value: bytes) -> Body:
    return Body.parse(body.edited({field: msgspec.Raw(value)}))


def _lone(dialect_name: str, body: Body, history: bytes) -> list[bytes]:
    """The items of a conversation that is no list: a lone text or item, or nothing."""
    if history[:1] == b'"' and dialect_name == "gemini":
        return [b'{"role":"user","parts":[{"text":' + history + b"}]}"]
    return [bytes(item) for item in raw_items(dialect_name, body)]


def _turn(dialect_name: str, text: str) -> dict[str, Any]:
    match dialect_name:
        case "chat":
            return {"role": "user", "content": text}
        case "gemini":
            return {"role": "user", "parts": [_block(dialect_name, text)]}
    return {"role": "user", "content": [_block(dialect_name, text)]}


def _block(dialect_name: str, text: str) -> dict[str, str]:
    kind = _TYPE.get(dialect_name)
    return {"type": kind, "text": text} if kind else {"text": text}


def _joined(dialect_name: str, listed: bytes, text: str, join: bool) -> bytes | None:
    """The conversation with the text in its last turn; None where that cannot take it."""
    items = msgspec.json.decode(listed, type=list[msgspec.Raw])
    if not items:
        return None
    last = bytes(items[-1])
    item = _last_turn(dialect_name, last, join)
    end = listed.rindex(b"]")
    kept = listed[:end].rstrip(_BLANK)
    if item is None or not kept.endswith(last):
        return None
    key = "parts" if dialect_name == "gemini" else "content"
    content = _extended(dialect_name, bytes(item.fields.get(key, b"null")), text)
    if content is None:
        return None
    longer = item.edited({key: msgspec.Raw(content)})
    return kept[: len(kept) - len(last)] + longer + listed[len(kept) :]


def _last_turn(dialect_name: str, raw: bytes, join: bool) -> Body | None:
    """The last item, if it is a turn of the user's that is to be joined."""
    try:
        item = Body.parse(raw)
    except BodyError:
        return None
    role = item.value("role")
    match dialect_name:
        case "messages":
            return item if role == "user" else None
        case "gemini":
            is_user = role == "user" or (role is None and "parts" in item.fields)
            return item if is_user and (join or not _holds_result(item)) else None
        case "responses":
            is_message = item.value("type") in (None, "message")
            return item if join and role == "user" and is_message else None
    return item if join and role == "user" else None


def _holds_result(item: Body) -> bool:
    parts = item.value("parts")
    parts = parts if isinstance(parts, list) else [parts]
    return any(key in part for part in parts if isinstance(part, dict) for key in _RESULTS)


def _extended(dialect_name: str, content: bytes, text: str) -> bytes | None:
    """Content with the text at its end; None for content of no known form."""
    block = dump(_block(dialect_name, text))
    as_text = dialect_name in ("chat", "responses")
    match content[:1]:
        case b"[":
            return _appended(content, block)
        case b"{":
            return _list([content, block])
        case b'"' if as_text:
            return _longer(content, text)
        case b'"' if not decoded(content):
            return _list([block])
        case b'"':
            first = b'{"type":"text","text":' if dialect_name == "messages" else b'{"text":'
            return _list([first + content + b"}", block])
        case b"n":
            return dump(text) if as_text else _list([block])
    return None


def _longer(string: bytes, text: str) -> bytes:
    """A JSON string with more at its end."""
    gap = "" if string == b'""' else _GAP
    return string[:-1] + dump(gap + text)[1:]


def _list(items: list[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def _appended(listed: bytes, item: bytes) -> bytes:
    """A JSON list with one more item, all else as it was."""
    end = listed.rindex(b"]")
    comma = b"," if listed[1:end].strip(_BLANK) else b""
    return listed[:end] + comma + item + listed[end:]
