"""A JSON body split at its top level only: every value stays the sender's own bytes."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_PIECE = 1 << 13
"""Bytes that are looked at in one go for what is no UTF-8, so that their text stays in the cache
and only a piece that holds more than ASCII costs more."""

_KEY = re.compile(rb'\s*+([{,])\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+:\s*+').match
_EMPTY = b"[]"
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


class BodyError(ValueError):
    """A body that is not one JSON object; the message says where and why."""


_Member = tuple[str, int, int, int, int]
"""A name, and where stand: the blank before its comma, the comma or brace, its value, the end."""


class Body:
    """One JSON object.

    `fields` maps each top-level name to the raw bytes of its value. What is not edited is sent on
    as it came, number spellings, blanks and unknown fields included.
    """

    __slots__ = ("fields", "outlines", "raw")

    def __init__(self, raw: bytes, fields: dict[str, msgspec.Raw]) -> None:
        self.raw = raw
        self.fields = fields
        self.outlines: dict[str, Any] = {}
        """What has been made of long fields: of the conversation by the dialect's name, of other
        fields by theirs."""

    @classmethod
    def parse(cls, raw: bytes) -> Body:
        """Raises BodyError when `raw` is not a JSON object in UTF-8."""
        check_text(raw)
        return cls.split(raw)

    @classmethod
    def split(cls, raw: bytes) -> Body:
        """`parse` for what is UTF-8 surely."""
        try:
            return cls(raw, _split(raw))
        except msgspec.ValidationError:
            raise BodyError("The body must be a JSON object.") from None
        except RecursionError:
            raise BodyError("The body is nested too deeply.") from None
        except msgspec.DecodeError as error:
            raise BodyError(_why(raw, str(error))) from None

    @classmethod
    def around(cls, raw: bytes, rest: bytes, lists: Mapping[str, slice]) -> Body | None:
        """`split` where `lists` have been read already: what stands in each place, in this order,
        is one JSON list, and `rest` is all else. None where they are not surely the values of
        these fields.

        A list that begins where a value does is that value, since JSON shows where a list ends.
        So it is enough to split what stands around them, with an empty list in each place.
        """
        try:
            fields = _split(rest)
        except (msgspec.MsgspecError, RecursionError):
            return None
        saved, view = 0, memoryview(raw)
        for name, place in lists.items():
            found = _place(fields, name, len(rest))
            if found is None or found.start != place.start - saved or bytes(fields[name]) != _EMPTY:
                return None
            saved += place.stop - place.start - len(_EMPTY)
        for name, place in lists.items():
            fields[name] = msgspec.Raw(view[place])
        return cls(raw, fields)

    def value(self, name: str, default: Any = None) -> Any:
        """The decoded value of one field; `default` if it is absent or cannot be decoded."""
        raw = self.fields.get(name)
        if raw is None:
            return default
        try:
            return msgspec.json.decode(raw)
        except msgspec.ValidationError:  # a number out of range
            return _loads(bytes(raw), default)
        except RecursionError:
            return default

    def edited(self, changes: Mapping[str, Any], drop: Iterable[str] = ()) -> bytes:
        """The object with `changes` set and `drop` left out; all other bytes are untouched."""
        dropped = frozenset(drop)
        added = {name: dump(value) for name, value in changes.items() if name not in dropped}
        if not added and dropped.isdisjoint(self.fields):
            return self.raw
        if len(added) == 1 and not dropped:
            [(name, text)] = added.items()
            if place := _place(self.fields, name, len(self.raw)):
                view = memoryview(self.raw)
                return b"".join((view[: place.start], text, view[place.stop :]))
        members = self._members()
        if members is None:
            return self._written_anew(added, dropped)
        return b"".join(self._pieces(members, added, dropped))

    def _pieces(
        self, members: list[_Member], added: dict[str, bytes], dropped: frozenset[str]
    ) -> Iterator[bytes]:
        raw, at, comma = self.raw, self.raw.index(b"{") + 1, b""
        yield raw[:at]
        for name, blank, start, value, end in members:
            if name in dropped:
                continue
            if comma:
                yield raw[blank : start + 1]
            if name in added:
                yield from (raw[start + 1 : value], added.pop(name))
            else:
                yield raw[start + 1 : end]
            comma = b","
        for name, text in added.items():
            yield from (comma, dump(name), b":", text)
            comma = b","
        yield raw[members[-1][4] if members else raw.index(b"}") :]

    def _members(self) -> list[_Member] | None:
        """Every member in its order; None where a name stands twice."""
        raw, members = self.raw, []
        at = raw.index(b"{")
        for name, value in self.fields.items():
            key = _KEY(raw, at)
            if key is None:
                return None
            text = bytes(value)
            begin = key.end()
            if not raw.startswith(text, begin):
                return None
            at = begin + len(text)
            members.append((name, key.start(), key.start(1), begin, at))
        return None if members and raw[at:].strip() != b"}" else members

    def _written_anew(self, added: Mapping[str, bytes], dropped: frozenset[str]) -> bytes:
        fields = {**self.fields, **{name: msgspec.Raw(value) for name, value in added.items()}}
        return msgspec.json.encode({k: v for k, v in fields.items() if k not in dropped})


def rest_of(raw: bytes, lists: Iterable[slice]) -> bytes:
    """A body with an empty list in each of these places."""
    pieces: list[bytes | memoryview] = []
    at, view = 0, memoryview(raw)
    for place in lists:
        pieces += (view[at : place.start], _EMPTY)
        at = place.stop
    return b"".join((*pieces, view[at:]))


def _place(fields: Mapping[str, msgspec.Raw], name: str, length: int) -> slice | None:
    """Where the value of a field stands in an object of this length, if there is one and the
    object is as short as can be.

    Each name needs its quotes, a colon and the brace or comma before it. An object that is no
    longer than that for all its names has no blank between them and no name twice, so that
    every place follows from the lengths.
    """
    at, place = 0, None
    for key, value in fields.items():
        at += len(key if key.isascii() else key.encode()) + 4
        end = at + len(value)
        if key == name:
            place = slice(at, end)
        at = end
    return place if at + 1 == length else None


def check_text(raw: bytes) -> None:
    """Raises BodyError for what is not UTF-8."""
    if raw.isascii():
        return
    at, view = 0, memoryview(raw)
    try:
        while at < len(raw):
            at += codecs.utf_8_decode(view[at : at + _PIECE], "strict", at + _PIECE >= len(raw))[1]
    except UnicodeDecodeError as error:
        where = at + error.start
        raise BodyError(f"The body is not UTF-8: byte {where} is invalid.") from None


def dump(value: Any) -> bytes:
    """JSON of a value that came from JSON; a half of a surrogate pair is written as its escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _loads(raw: bytes, default: Any) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return default


def _why(raw: bytes, reason: str) -> str:
    if not raw.strip():
        return "The body is empty; send a JSON object."
    if raw.startswith(b"\xef\xbb\xbf"):
        return "The body is not JSON: it begins with a byte order mark; leave it out."
    if _HALF.search(raw) and isinstance(_loads(raw, None), dict):
        reason = r"a \u escape is half of a surrogate pair, such as a cut emoji"
    return f"The body is not JSON: {reason}."
