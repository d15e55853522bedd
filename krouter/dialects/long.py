"""A long body, of which each byte is looked at once as JSON, and none that was looked at before.

Nearly all of it is a conversation and tools, which `Body.parse` would only find the end of, to be
read again at once. So they are read first, where clients put them, and the rest is split without
them. Where that does not succeed, all is done as ever: what comes of it is the same.

With each turn a client sends the tools and all that was said again. How the last long bodies had
them is kept as it was read, and of the next that has the same bytes only what is new is read.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from msgspec import Struct

from krouter.body import Body, BodyError, check_text, rest_of
from krouter.dialects.base import UNREADABLE
from krouter.dialects.cursor import are_flat
from krouter.dialects.history import FIELD, opening_before
from krouter.dialects.outline import Turn, turns_in

LONG = 8 << 10
"""Bytes of a body that is looked at like this."""
MUCH = 16 << 10
"""Bytes of a conversation that must be new for it to be kept."""
KEPT = 32
"""Conversations that are kept of one endpoint, and as many lists of tools,"""
MOST_KEPT = 4 << 20
"""with so many bytes of each at most,"""
_LONGEST_KEPT = 1 << 20
"""and so many of one."""
_UNSETTLED = 4
"""Items at the end of a conversation that may be sent otherwise with the next turn, since clients
move the marks of what is to be cached."""
_TELLING = 512
"""Bytes at the end of a beginning that are looked at first: many begin with the same prompt."""
_NEAR = 32 << 10
"""Bytes in which a conversation begins, or a system prompt behind it ends."""
_OPENINGS = {
    "chat": b'"messages":[',
    "messages": b'"messages":[',
    "responses": b'"input":[',
}
_SYSTEM = {"messages": b'"system":'}
_NAME = b',"tools":'
_TOOLS = _NAME + b"["
_CLOSING = b"]"
_COMMA = b","[0]


class Tools(Struct, eq=False, gc=False):
    """A list of tools, with its comma and name. `behind` is how many bytes before the end of a body
    it began, and `flat` what `are_flat` says of it."""

    text: bytes
    behind: int
    flat: bool


class Begun(Struct, eq=False, gc=False):
    """How a conversation began: the list without its closing bracket, and its outline."""

    text: bytes
    turns: list[Turn]


class Seen:
    """What the last long bodies of an endpoint held, the latest first."""

    def __init__(self, long: int = LONG, much: int = MUCH) -> None:
        self.long, self.much = long, much
        self._tools: list[Tools] = []
        self._begun: list[Begun] = []

    @property
    def sizes(self) -> tuple[int, int]:
        """How many lists of tools are kept, and how many conversations."""
        return len(self._tools), len(self._begun)

    def tools_in(self, raw: bytes, begin: int) -> tuple[int, Tools | None]:
        """Where the tools begin behind `begin`, -1 for nowhere, and these tools if they are
        known."""
        for known in self._tools:
            at = len(raw) - known.behind
            if at > begin and raw.startswith(known.text, at):
                return at, _first(self._tools, known)
        if (at := raw.rfind(_TOOLS, begin)) >= 0:
            for known in self._tools:
                if raw.startswith(known.text, at):
                    return at, _first(self._tools, known)
        return at, None

    def begun_in(self, raw: bytes, begin: int, end: int) -> Begun | None:
        """The longest that is known of how the conversation there begins, with more behind it."""
        longest, found = 0, None
        for known in self._begun:
            length = len(known.text)
            stop = begin + length
            if (
                longest < length < end - begin
                and raw[stop] == _COMMA
                and raw.startswith(known.text[-_TELLING:], stop - min(length, _TELLING))
                and raw.startswith(known.text, begin)
            ):
                longest, found = length, known
        return found and _first(self._begun, found)

    def keep_tools(self, tools: Tools) -> None:
        _keep(self._tools, tools)

    def keep_begun(self, begun: Begun, instead_of: Begun | None) -> None:
        if instead_of is not None:
            self._begun.remove(instead_of)
        _keep(self._begun, begun)


class _Kept(Protocol):
    text: bytes


_K = TypeVar("_K", bound=_Kept)


def _first(kept: list[_K], found: _K) -> _K:
    """Puts what was just used in front."""
    if kept[0] is not found:
        kept.remove(found)
        kept.insert(0, found)
    return found


def _keep(kept: list[_K], new: _K) -> None:
    if len(new.text) > _LONGEST_KEPT:
        return
    kept.insert(0, new)
    while len(kept) > KEPT or sum(len(each.text) for each in kept) > MOST_KEPT:
        kept.pop()


def parsed(dialect_name: str, raw: bytes, seen: Seen) -> Body:
    """A body, as `Body.parse` gives it, and its outline where that is known by now. Raises
    BodyError."""
    found = _read_once(dialect_name, raw, seen) if len(raw) >= seen.long else None
    return Body.parse(raw) if found is None else found


def _read_once(dialect_name: str, raw: bytes, seen: Seen) -> Body | None:
    opening = _OPENINGS.get(dialect_name)
    if opening is None or (found := raw.find(opening, 0, _NEAR)) < 0:
        return None
    begin = found + len(opening) - 1
    tools_at, tools = seen.tools_in(raw, begin)
    if tools_at < 0:
        return None
    end = _end(dialect_name, raw, begin, tools_at)
    if not raw.startswith(_CLOSING, end - 1):
        return None
    lists = {FIELD[dialect_name]: slice(begin, end)}
    if tools is not None:
        lists["tools"] = slice(tools_at + len(_NAME), tools_at + len(tools.text))
    rest = rest_of(raw, lists.values())
    begun = seen.begun_in(raw, begin, end)
    new = raw[begin:end] if begun is None else _after(begun, raw, begin, end)
    try:
        check_text(rest + new)
        turns = turns_in(dialect_name, new)
    except (BodyError, *UNREADABLE):
        return None
    if begun is not None and not turns:
        return None  # a comma, and nothing behind it
    body = Body.around(raw, rest, lists)
    if body is None:
        return None
    body.outlines[dialect_name] = turns if begun is None else begun.turns + turns
    if tools is not None:
        body.outlines["tools"] = tools.flat
    else:
        _learn_tools(dialect_name, body, tools_at, seen)
    if len(new) > seen.much:
        _learn_begun(dialect_name, raw, slice(begin, end), begun, seen)
    return body


def _end(dialect_name: str, raw: bytes, begin: int, tools: int) -> int:
    """Where a conversation ends, in front of the tools or of a system prompt before them."""
    system = _SYSTEM.get(dialect_name)
    if system is not None and raw.find(system, 0, begin) < 0:
        found = raw.rfind(b"]," + system, max(begin, tools - _NEAR), tools)
        if found >= 0:
            return found + 1
    return tools


def _after(begun: Begun, raw: bytes, begin: int, end: int) -> bytes:
    """The list of what stands behind the comma after a known beginning."""
    return b"[" + raw[begin + len(begun.text) + 1 : end]


def _learn_tools(dialect_name: str, body: Body, tools_at: int, seen: Seen) -> None:
    """`tools_at` is where a field with that name seems to begin."""
    tools = body.fields.get("tools")
    if tools is None:
        return
    text, behind = _NAME + bytes(tools), len(body.raw) - tools_at
    if not body.raw.startswith(text, tools_at):
        return
    try:
        flat = dialect_name == "chat" and are_flat(tools)
    except UNREADABLE:
        return
    seen.keep_tools(Tools(text, behind, flat))


def _learn_begun(
    dialect_name: str, raw: bytes, place: slice, known: Begun | None, seen: Seen
) -> None:
    at = place.stop
    for _ in range(_UNSETTLED):
        at = opening_before(raw, at, dialect_name)
        if at <= place.start:
            return
    text = raw[place.start : at - 1]
    if known is not None and len(text) - len(known.text) <= seen.much:
        return
    try:
        turns = turns_in(dialect_name, text + _CLOSING)
    except UNREADABLE:
        return
    if turns:
        seen.keep_begun(Begun(text, turns), known)
