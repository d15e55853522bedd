"""Schemas of tools as Anthropic and Gemini take them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from krouter_adapters.litellm_lane.translate.schemas import object_schema, plain_schema

from tests.dialects.streams import shaped

TEXT = {"type": "string"}
POINT = {"type": "object", "properties": {"x": TEXT}, "required": ["x"]}
TREE = {
    "type": "object",
    "properties": {"of": {"$ref": "#/$defs/T"}},
    "$defs": {"T": {"type": "array", "items": {"$ref": "#/$defs/T", "description": "more"}}},
}


@pytest.mark.parametrize(
    ("schema", "wanted", "lost"),
    [
        (POINT, POINT, False),
        ({"$ref": "#/$defs/A", "$defs": {"A": POINT}}, {**POINT, "$defs": {"A": POINT}}, False),
        ({"allOf": [POINT, {"properties": {"y": TEXT}}]}, {"x": TEXT, "y": TEXT}, False),
        ({"anyOf": [POINT, {"properties": {"y": TEXT}}]}, {"x": TEXT, "y": TEXT}, True),
        (
            {"oneOf": [POINT, {"properties": {"x": {"type": "null"}}}]},
            {"x": {"anyOf": [TEXT, {"type": "null"}]}},
            True,
        ),
        ({**POINT, "patternProperties": {"a": TEXT}}, POINT, True),
        ({**POINT, "$schema": "s"}, {**POINT, "$schema": "s"}, False),
        (TEXT, TEXT, True),
    ],
)
def test_an_object_at_the_top(schema: Any, wanted: Any, lost: bool) -> None:
    before = copy.deepcopy(schema)
    got, less = object_schema(schema)
    assert less is lost
    assert got == wanted or got["properties"] == wanted
    assert schema == before


@pytest.mark.parametrize(("key", "needs"), [("anyOf", None), ("allOf", ["x", "y"])])
def test_what_is_required_of_variants(key: str, needs: Any) -> None:
    other = {"properties": {"y": TEXT}, "required": ["y"]}
    assert object_schema({key: [POINT, other]})[0].get("required") == needs
    assert object_schema({key: [POINT, POINT]})[0]["required"] == ["x"]


@pytest.mark.parametrize(
    ("schema", "wanted", "lost"),
    [
        (POINT, POINT, False),
        (
            {"type": "object", "properties": {"p": {"$ref": "#/definitions/A", "title": "t"}}}
            | {"definitions": {"A": POINT}, "$schema": "s"},
            {"type": "object", "properties": {"p": {**POINT, "title": "t"}}},
            False,
        ),
        (
            {"properties": {"const": {"const": 1}, "b": {"const": True}}},
            {"type": "object", "properties": {"const": {"enum": [1]}, "b": {"const": True}}},
            False,
        ),
        (
            {"properties": {"d": {"default": {"const": 1, "$ref": "#"}}}},
            {"type": "object", "properties": {"d": {"default": {"const": 1, "$ref": "#"}}}},
            False,
        ),
        ({"type": ["object", "null"]}, {"type": "object"}, False),
        (
            TREE,
            {
                "type": "object",
                "properties": {
                    "of": {"type": "array", "items": {"type": "array", "description": "more"}}
                },
            },
            True,
        ),
        ({"$ref": "#"}, {"type": "object"}, True),
    ],
)
def test_nothing_refers_to_elsewhere(schema: Any, wanted: Any, lost: bool) -> None:
    before = copy.deepcopy(schema)
    assert plain_schema(schema) == (wanted, lost)
    assert schema == before


def test_references_that_multiply_are_cut_off() -> None:
    defs: dict[str, Any] = {
        f"D{n}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/D{n + 1}"} for k in "ab"}}
        for n in range(40)
    }
    got, lost = plain_schema({"$ref": "#/$defs/D0", "$defs": {**defs, "D40": TEXT}})
    assert lost
    assert len(json.dumps(got)) < 1 << 20


KEYS = (
    "properties anyOf allOf $ref $defs type items const enum required default #/$defs/a"
).split()


@given(shaped(*KEYS))
def test_schemas_of_any_form_never_raise(schema: Any) -> None:
    if isinstance(schema, dict):
        assert plain_schema(schema)[0]["type"] == "object"
        object_schema(schema)
