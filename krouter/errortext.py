"""What a provider's error body says, less what it merely quotes from the request."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ErrorText:
    """What a provider's error body says, in its own words."""

    message: str = ""
    type: str = ""
    code: str = ""


STANDS_FOR: Mapping[str, int] = {
    "invalid_request_error": 400,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "content_filter": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "unauthenticated": 401,
    "billing_error": 402,
    "permission_error": 403,
    "permission_denied": 403,
    "not_found_error": 404,
    "not_found": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "insufficient_quota": 429,
    "usage_limit_reached": 429,
    "api_error": 500,
    "server_error": 500,
    "internal": 500,
    "unavailable": 503,
    "service_unavailable": 503,
    "service_unavailable_error": 503,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "timeout_error": 504,
    "deadline_exceeded": 504,
    "overloaded_error": 529,
}


_VAGUE = frozenset(("invalid_prompt", "invalid_request_error"))


def stands_for(text: ErrorText) -> int | None:
    """The HTTP status that an error inside a stream stands for, by its code, then its type; what
    says more than whose fault it is goes first."""
    found = [(name.lower(), status) for name in (text.code, text.type) if (status := _status(name))]
    clear = (status for name, status in found if status != 500 and name not in _VAGUE)
    return next(clear, found[0][1] if found else None)


def _status(name: str) -> int | None:
    if re.fullmatch(r"[45]\d\d", name, re.A):
        return int(name)
    return STANDS_FOR.get(name.lower())


RUN = 20
READ = 4096
# Any 20 characters hold a block of 9 that starts at a multiple of 12, with 6 more on one side.
_BLOCK, _STEP, _HALF = 9, 12, 15
_LOOKED_THROUGH = 1 << 20
_GAP = " … "
_BACKSLASH = "\udc5c"  # stands for an escaped backslash: no decoded request holds a lone surrogate
_SHORT_ESCAPES = (
    ("\\n", "\n"),
    ('\\"', '"'),
    ("\\t", "\t"),
    ("\\r", "\r"),
    ("\\/", "/"),
    ("\\b", "\b"),
    ("\\f", "\f"),
)


def without_echo(message: str, request: bytes) -> str:
    """The first 4096 characters of `message`, less what they quote from `request`.

    Every run of 20 or more characters that also stands in the request, escaped as JSON or not,
    is replaced by an ellipsis, so that no wording can come together across the gap.
    """
    if len(message) < RUN:
        return message
    head = message[: READ + RUN]
    shared = _shared(head, _forms(request, "\\" in head))
    if not shared:
        return head[:READ]
    quoted = bytearray(len(head))
    for start in range(len(head) - RUN + 1):
        if head[start : start + RUN] in shared:
            quoted[start : start + RUN] = b"\1" * RUN
    return _blanked(head, quoted[:READ])


def stands_in(words: str, request: bytes) -> bool:
    """Whether the request holds these words, in whatever case and spacing."""
    wanted = _folded(words)
    return any(wanted in _folded(text) for text in _forms(request, False))


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _blanked(head: str, quoted: bytearray) -> str:
    pieces = re.finditer(rb"(\x00+)|\x01+", quoted)
    return "".join(head[p.start() : p.end()] if p[1] else _GAP for p in pieces)


def _shared(message: str, texts: Iterable[str]) -> set[str]:
    """The runs of exactly RUN characters that stand both in `message` and in one of `texts`."""
    runs, halves, blocks = (_pieces(message, length) for length in (RUN, _HALF, _BLOCK))
    near = {
        text[max(at + _BLOCK - RUN, 0) : at + RUN]
        for text in texts
        for at in range(0, len(text), _STEP)
        if text[at : at + _BLOCK] in blocks
        and (text[at : at + _HALF] in halves or text[at + _BLOCK - _HALF : at + _BLOCK] in halves)
    }
    return runs & {run for part in near for run in _pieces(part, RUN)}


def _pieces(text: str, length: int) -> set[str]:
    return {text[at : at + length] for at in range(len(text) - length + 1)}


def _forms(request: bytes, escaped: bool) -> Iterator[str]:
    """The request as it was sent and as it reads; if `escaped`, in both ways to escape that too."""
    if len(request) > 2 * _LOOKED_THROUGH:
        request = request[:_LOOKED_THROUGH] + b"\0" + request[-_LOOKED_THROUGH:]
    raw = request.decode("utf-8", "replace")
    yield raw
    plain = _unescaped(raw)
    if plain != raw:
        yield plain
    if escaped:
        yield from {json.dumps(plain), json.dumps(plain, ensure_ascii=False)}


def _unescaped(raw: str) -> str:
    if "\\" not in raw:
        return raw
    text = raw.replace("\\\\", _BACKSLASH)
    for escape, character in _SHORT_ESCAPES:
        text = text.replace(escape, character)
    if "\\u" in text:
        text = text.encode("raw_unicode_escape").decode("raw_unicode_escape", "replace")
        pairs = text.replace(_BACKSLASH, "\\").encode("utf-16-le", "surrogatepass")
        return pairs.decode("utf-16-le", "replace")
    return text.replace(_BACKSLASH, "\\")


_PAGE = 65_536
_SHOWN = 300
_READABLE = 4000  # Python refuses to read a character reference of more than 4300 digits
_PIECES = re.compile(r"(<[a-zA-Z/!?][^<>]*>)")
_HIDES = re.compile(r"<(/?)(head|script|style)\b", re.I)
_TITLE = re.compile(r"<title[^<>]*>([^<>]*)", re.I)
_WRAPPERS = ("error", "errors", "detail", "response", "message")
_MESSAGES = ("message", "error_description", "error", "detail", "errors", "msg", "title")


def read_error(body: bytes) -> tuple[ErrorText, Any]:
    """What an error body says, and the body parsed (None if it is not JSON).

    Understands the error shapes of all dialects, problem details, and plain or HTML pages, whose
    message is their first 300 visible characters.
    """
    text = body.decode("utf-8-sig", "replace")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return ErrorText(_visible(text)), None
    return _of_json(parsed), parsed


def _visible(page: str) -> str:
    page = page[:_PAGE]
    said = " ".join(_shown_pieces(page))
    if not said.strip() and (title := _TITLE.search(page)):
        said = title[1]
    return " ".join(html.unescape(said[:_READABLE]).split())[:_SHOWN]


def _shown_pieces(page: str) -> Iterator[str]:
    hidden_by = ""
    for at, piece in enumerate(_PIECES.split(page)):
        is_tag = at % 2 == 1
        if is_tag and (tag := _HIDES.match(piece)):
            closes, name = tag[1], tag[2].lower()
            if not hidden_by or hidden_by == name:
                hidden_by = "" if closes else name
        elif not is_tag and not hidden_by:
            yield piece


def _of_json(parsed: Any) -> ErrorText:
    holder = _first(parsed)
    if not isinstance(holder, dict):
        return ErrorText(_clean(holder) if isinstance(holder, str) else "")
    while inner := _inner(holder):
        holder = inner
    text = ErrorText(
        message=_message(holder),
        type=_name(holder, "type", "status", "__type"),
        code=_narrow_reason(holder) or _name(holder, "code"),
    )
    return _completed(text, holder.get("metadata"))


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _inner(holder: dict[Any, Any]) -> dict[Any, Any] | None:
    """The error wrapped in `holder`; the items of a list of validation errors stay together."""
    for key in _WRAPPERS[:1] if isinstance(holder.get("message"), str) else _WRAPPERS:
        inner = _first(holder.get(key))
        if isinstance(inner, dict) and "loc" not in inner:
            return inner
    message = holder.get("message")
    return message if isinstance(message, dict) else None


def _completed(text: ErrorText, metadata: Any) -> ErrorText:
    """OpenRouter's `Provider returned error`, completed by what that provider said."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if not isinstance(raw, str) or not raw:
        return text
    inner, _ = read_error(raw.encode("utf-8", "replace"))
    message = ": ".join(filter(None, (text.message, inner.message)))
    return ErrorText(message, inner.type or text.type, inner.code or text.code)


def _message(holder: dict[Any, Any]) -> str:
    for key in _MESSAGES:
        value = holder.get(key)
        if isinstance(value, str) and value:
            return _clean(value)
        if isinstance(value, list) and value:
            return _clean("; ".join(map(_item, value)))
    return ""


def _item(item: Any) -> str:
    """One of a list of errors; of a validation error, where and what, never the input."""
    if not isinstance(item, dict):
        return str(item)
    where = item.get("loc")
    path = ".".join(map(str, where)) if isinstance(where, list) else ""
    said = str(item.get("msg") or item.get("message") or "")
    return f"{path}: {said}" if path else said


def _clean(text: str) -> str:
    """`text` without lone surrogates, which could not be sent on."""
    return text.encode("utf-8", "replace").decode()


def _name(error: dict[Any, Any], *keys: str) -> str:
    for key in keys:
        value = error.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
            return _clean(str(value))
    return ""


def _narrow_reason(error: dict[Any, Any]) -> str:
    """The narrower name that Google gives in its details: the quotas exceeded, or a reason."""
    details = _dicts(error.get("details"))
    violations = [v for detail in details for v in _dicts(detail.get("violations"))]
    quotas = [_name(violation, "quotaId") for violation in violations]
    reasons = [_name(detail, "reason") for detail in details]
    return " ".join(filter(None, quotas)) or next(filter(None, reasons), "")


def _dicts(values: Any) -> list[dict[Any, Any]]:
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []
