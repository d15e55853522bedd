"""JSON schemas of tools, in the forms that Anthropic and Gemini take.

Sources: the Anthropic API reference, "Tool use" (`input_schema` is an object at its top, and holds
no `oneOf`, `anyOf` or `allOf` there); the Gemini API reference, "FunctionDeclaration"
(`parametersJsonSchema` takes JSON Schema, `parameters` a small part of OpenAPI's) and
"GenerationConfig" (which keywords are read; an enum holds strings or numbers).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from krouter_adapters.litellm_lane.translate.shapes import Json, as_dict, as_dicts, as_list, as_text

_MOST_NODES = 4000
_DEEPEST = 100
_SETS = ("allOf", "anyOf", "oneOf")

# What LiteLLM's class keeps at the top of a schema, and what nobody misses there.
_KEPT = frozenset(("type", "properties", "additionalProperties", "required", "$defs"))
_UNMISSED = frozenset(("definitions", "$schema", "$id", "$comment", "title", "description"))


def object_schema(schema: Json) -> tuple[Json, bool]:
    """The schema as LiteLLM's class for Anthropic leaves it whole, and whether it now says less."""
    top, lost = _flat(schema)
    kind = top.get("type", "object")
    lost = lost or any(key not in _KEPT and key not in _UNMISSED for key in top)
    lost = lost or "object" not in (kind if isinstance(kind, list) else [kind])
    return {key: value for key, value in top.items() if key in _KEPT or key in _UNMISSED}, lost


def _flat(schema: Json) -> tuple[Json, bool]:
    """The schema as one object at its top, with the properties of all its variants, and whether it
    now says less."""
    top = _at(schema, schema)
    if not any(key in top for key in _SETS):
        return top, False
    required = [set(map(str, as_list(top.get("required"))))]
    properties = dict(as_dict(top.get("properties")))
    for key in _SETS:
        variants = [_at(schema, variant) for variant in as_dicts(top.get(key))]
        for variant in variants:
            _add_properties(properties, as_dict(variant.get("properties")))
        needed = [set(map(str, as_list(variant.get("required")))) for variant in variants]
        if needed:
            required.append(set.union(*needed) if key == "allOf" else set.intersection(*needed))
    out = {key: value for key, value in top.items() if key not in _SETS}
    out |= {"type": "object", "properties": properties}
    if needs := sorted(set.union(*required)):
        out["required"] = needs
    return out, "anyOf" in top or "oneOf" in top


def _add_properties(properties: Json, more: Json) -> None:
    for name, value in more.items():
        other = properties.setdefault(name, value)
        if other != value:
            properties[name] = {"anyOf": [other, value]}


def _at(root: Json, schema: Json) -> Json:
    """The schema with a reference at its top followed."""
    for _ in range(8):
        target = _target(root, schema.get("$ref"))
        if target is None:
            break
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _target(root: Json, ref: Any) -> Json | None:
    """What a reference within the schema points at."""
    if not isinstance(ref, str) or not ref.startswith("#/"):
        return root if ref == "#" else None
    found: Any = root
    for step in ref[2:].split("/"):
        found = as_dict(found).get(step.replace("~1", "/").replace("~0", "~"))
    return found if isinstance(found, dict) else None


def plain_schema(schema: Json) -> tuple[Json, bool]:
    """The schema for Gemini, with what it refers to in place, and whether it now says less: a
    schema that holds itself has no such form."""
    top, lost = _flat(schema)
    plain = _Plain(schema)
    out = plain.object_of(top, (), 0)
    for key in ("$schema", "$defs", "definitions"):
        out.pop(key, None)
    kind = out.get("type", "object")
    if kind != "object":
        lost = lost or "object" not in as_list(kind)
        out["type"] = "object"
    return {"type": "object", **out}, lost or plain.lost


class _Plain:
    def __init__(self, root: Json) -> None:
        self.lost = False
        self._root = root
        self._nodes = 0

    def of(self, value: Any, within: tuple[str, ...], depth: int) -> Any:
        if isinstance(value, list):
            return [self.of(each, within, depth) for each in value]
        return self.object_of(value, within, depth) if isinstance(value, dict) else value

    def object_of(self, schema: Json, within: tuple[str, ...], depth: int) -> Json:
        self._nodes += 1
        ref = as_text(schema.get("$ref"))
        target = _target(self._root, ref) if ref else None
        if depth > _DEEPEST:
            return schema
        if target is not None:
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            if ref in within or self._nodes > _MOST_NODES:
                self.lost = True
                kind = {"type": target["type"]} if "type" in target else {}
                return {**kind, **beside}
            return self.object_of({**target, **beside}, (*within, ref), depth + 1)
        return dict(self._members(schema, within, depth + 1))

    def _members(
        self, schema: Json, within: tuple[str, ...], depth: int
    ) -> Iterator[tuple[str, Any]]:
        for key, value in schema.items():
            if key in ("properties", "patternProperties") and isinstance(value, dict):
                yield key, {name: self.of(each, within, depth) for name, each in value.items()}
            elif key == "const" and "enum" not in schema and _in_enums(value):
                yield "enum", [value]
            elif key in _VALUES:
                yield key, value
            elif key not in ("$defs", "definitions") or depth > 1:
                yield key, self.of(value, within, depth)


# Their members are no schemas.
_VALUES = frozenset(("const", "enum", "default", "example", "examples", "required", "x-order"))


def _in_enums(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
