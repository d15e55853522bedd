"""What both directions of Gemini's dialect share: fields in either spelling, signatures, counts."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from krouter.dialects.base import Usage, as_count
from krouter.dialects.chat import read_usage
from krouter_adapters.litellm_lane.translate.responses_shapes import Told
from krouter_adapters.litellm_lane.translate.sealed import is_sealed, seal, unseal
from krouter_adapters.litellm_lane.translate.shapes import Json, as_dict, as_text


@dataclass(frozen=True, slots=True)
class ToldOfGemini(Told):
    """What a reply must know of its request. `thoughts`: the caller asked to be told them."""

    thoughts: bool = True


@lru_cache(maxsize=1024)
def camel(name: str) -> str:
    """Google's APIs take every field in snake case too."""
    return re.sub(r"_+([a-z0-9])", lambda found: found[1].upper(), name) if "_" in name else name


def spelled(value: Any) -> Json:
    """An object's fields in camel case; empty for what is no object. Only its own: names below may
    be the caller's."""
    return {camel(name): inner for name, inner in as_dict(value).items()}


def listed(value: Any) -> list[Any]:
    """Google's APIs take a lone item for a list of one."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def objects(value: Any) -> Iterator[Json]:
    """The objects of a list, or a lone one, their fields in camel case."""
    return (spelled(item) for item in listed(value) if isinstance(item, dict))


# Signatures are bytes to Google's clients: they come back in another alphabet of base64.


def signature_of(maker: str, thinking: list[Json]) -> str:
    """The thinking of another provider, signed by it, in the place of a signature of Gemini's."""
    return base64.b64encode(seal(maker, thinking).encode()).decode()


def thinking_in(maker: str, signature: Any) -> tuple[list[Json], bool]:
    """What this maker once thought, and whether the signature is one of krouter's making."""
    text = as_text(signature).replace("-", "+").replace("_", "/")
    try:
        sealed = base64.b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return [], False
    return unseal(maker, sealed), is_sealed(sealed)


def usage_to_gemini(usage: Any) -> dict[str, int]:
    """Chat counts reasoning within the completion, Gemini beside it."""
    counted = read_usage(usage) or Usage()
    details = as_dict(as_dict(usage).get("completion_tokens_details"))
    thoughts = min(as_count(details.get("reasoning_tokens")), counted.output)
    out = {
        "promptTokenCount": counted.input,
        "candidatesTokenCount": counted.output - thoughts,
        "totalTokenCount": counted.input + counted.output,
    }
    if counted.cached:
        out["cachedContentTokenCount"] = counted.cached
    if thoughts:
        out["thoughtsTokenCount"] = thoughts
    return out


# Fields of Gemini's Schema that JSON Schema has not, and its numbers that come as text.
_NOT_IN_JSON_SCHEMA = frozenset(("nullable", "propertyOrdering", "example"))
_COUNTS = frozenset("minItems maxItems minLength maxLength minProperties maxProperties".split())


def json_schema(schema: Any) -> Json:
    """Gemini's Schema, an OpenAPI object with types in capitals, as JSON Schema."""
    fields = spelled(schema)
    out: Json = {}
    for key, value in fields.items():
        if key == "type":
            kind = as_text(value).lower()
            if kind and kind != "type_unspecified":
                out["type"] = kind
        elif key == "properties":
            out[key] = {name: json_schema(each) for name, each in as_dict(value).items()}
        elif key == "items":
            out[key] = json_schema(value)
        elif key == "anyOf":
            out[key] = [json_schema(each) for each in listed(value)]
        elif key in _COUNTS and isinstance(value, str) and value.isdecimal():
            out[key] = int(value)
        elif key not in _NOT_IN_JSON_SCHEMA and not (key == "format" and value == "enum"):
            out[key] = value
    return _nullable(out) if fields.get("nullable") is True else out


def _nullable(schema: Json) -> Json:
    if isinstance(schema.get("enum"), list):
        schema["enum"] = [*schema["enum"], None]
    if "type" in schema:
        return {**schema, "type": [schema["type"], "null"]}
    if "anyOf" in schema:
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    return schema


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64


class Names:
    """Tool names that hosts of chat take, for Gemini's, which hold dots and colons too. `kept`:
    the host is one of Gemini's."""

    def __init__(self, *, kept: bool = False) -> None:
        self._kept = kept
        self.own: dict[str, str] = {}
        """Names as sent → the caller's, where they differ."""
        self._sent: dict[str, str] = {}

    def declare(self, names: Iterable[str]) -> None:
        """Those that need no change first, so that they keep their own."""
        for name in sorted(names, key=lambda name: _plain(name) != name):
            self.sent(name)

    def sent(self, name: str) -> str:
        if self._kept:
            return name
        if name not in self._sent:
            plain, number = _plain(name), 1
            taken = set(self._sent.values())
            made = plain
            while made in taken:
                number += 1
                made = f"{plain[: _LONGEST - 4]}_{number}"
            self._sent[name] = made
            if made != name:
                self.own[made] = name
        return self._sent[name]


def _plain(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST]
