"""A JSON body split at its top level only: every value stays the sender's own bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_join = msgspec.json.encode


class BodyError(ValueError):
    """A body that is not one JSON object; the message says where and why."""


class Body:
    """One JSON object.

    `fields` maps each top-level name to the raw bytes of its value. What is not edited is sent on
    as it came, number spellings and unknown fields included.
    """

    __slots__ = ("fields", "raw")

    def __init__(self, raw: bytes, fields: dict[str, msgspec.Raw]) -> None:
        self.raw = raw
        self.fields = fields

    @classmethod
    def parse(cls, raw: bytes) -> Body:
        """Raises BodyError when `raw` is not a JSON object in UTF-8."""
        try:
            if not raw.isascii():
                raw.decode()
            return cls(raw, _split(raw))
        except UnicodeDecodeError as error:
            raise BodyError(f"The body is not UTF-8: byte {error.start} is invalid.") from None
        except msgspec.ValidationError:
            raise BodyError("The body must be a JSON object.") from None
        except RecursionError:
            raise BodyError("The body is nested too deeply.") from None
        except msgspec.DecodeError as error:
            raise BodyError(f"The body is not JSON: {error}.") from None

    def value(self, name: str, default: Any = None) -> Any:
        """The decoded value of one field; `default` if it is absent or cannot be decoded."""
        raw = self.fields.get(name)
        if raw is None:
            return default
        try:
            return msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            return default

    def edited(self, changes: Mapping[str, Any], drop: Iterable[str] = ()) -> bytes:
        """The object with `changes` set and `drop` left out; untouched bytes when neither bites."""
        dropped = [name for name in drop if name in self.fields]
        if not changes and not dropped:
            return self.raw
        fields: dict[str, Any] = {**self.fields, **changes}
        for name in dropped:
            del fields[name]
        return _join(fields)
