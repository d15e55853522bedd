"""What is wrong with a file or a setting, said so that a person can mend it."""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ValidationError


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: where it is, what it is, what to do.

    `path` is a JSON path (`$.models[1].weight`), also for TOML files; empty for a fault of the
    whole file.
    """

    file: str
    path: str
    message: str
    hint: str = ""
    level: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        where = f"{self.file}: {self.path}" if self.path else self.file
        return f"{where}: {self.message}" + (f" {self.hint}" if self.hint else "")


class ConfigError(Exception):
    """Settings or combos that cannot be used; `problems` lists every fault found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


DEEPEST = 100
"""Levels of objects and lists in a file."""


def is_deep(value: object) -> bool:
    """Whether it is nested deeper than files may be."""
    level = [value]
    for _ in range(DEEPEST):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Known names that look like `name`, best first."""
    folded = {candidate.lower(): candidate for candidate in known}
    return [folded[m] for m in difflib.get_close_matches(name.lower(), folded, most, 0.6)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'a' or 'b'?`, or nothing when no known name is near."""
    names = nearest(name, known)
    return f"Did you mean {' or '.join(map(repr, names))}?" if names else ""


def json_path(loc: Iterable[str | int]) -> str:
    """`("models", 1, "weight")` as `$.models[1].weight`; odd names as `$.reads["local/a"]`."""
    return "$" + "".join(map(_json_path_step, loc))


def _json_path_step(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if re.fullmatch(r"[\w-]+", part) else f"[{json.dumps(part)}]"


def problems_of(error: ValidationError, file: str, model: type[BaseModel]) -> list[Problem]:
    """Every fault pydantic found, with the value and the nearest known field.

    Values of fields that hold secrets, and values that look like one, are not shown.
    """
    return [_problem(dict(item), file, model) for item in error.errors(include_url=False)]


_WRONG_SHAPE = {
    "model_type": "should be an object",
    "dict_type": "should be an object",
    "tuple_type": "should be a list",
    "list_type": "should be a list",
}


def _problem(item: dict[str, Any], file: str, model: type[BaseModel]) -> Problem:
    loc = item["loc"]
    if loc[-1:] == ("[key]",) and item["type"] != "extra_forbidden":
        loc = loc[:-1]
    shown = _shown(item["input"], loc)
    if item["type"] == "extra_forbidden":
        known = field_names(_model_at(model, loc[:-1]))
        hint = did_you_mean(str(loc[-1]), known) or f"Known fields: {', '.join(known)}."
        if any(map(_SECRET_FIELD.search, nearest(str(loc[-1]), known))):
            shown = HIDDEN
        message = f"unknown field {loc[-1]!r} (value {shown})."
        return Problem(file, json_path(loc), message, hint)
    message = _WRONG_SHAPE.get(item["type"]) or item["msg"].removeprefix("Value error, ")
    if item["type"] == "missing":
        return Problem(file, json_path(loc), "required field is missing.")
    return Problem(file, json_path(loc), f"{message} (value {shown}).")


HIDDEN = "(hidden)"
_SECRET_FIELD = re.compile(
    r"(key|secret|password|credentials?|authorization|hash|headers|(?<!first)(?<!first_)token)$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\b(sk|kr|xai|nvapi|fw)-\w|\bgsk_\w|\bAIza\w|\bBearer \S|://[^@\s]{0,1000}@"
)


def _shown(value: object, loc: Sequence[str | int]) -> str:
    if any(isinstance(part, str) and _SECRET_FIELD.search(part) for part in loc):
        return HIDDEN
    text = json.dumps(_redacted(value), default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


def _redacted(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: HIDDEN if _SECRET_FIELD.search(str(key)) else _redacted(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(item) for item in value]
    return HIDDEN if isinstance(value, str) and _SECRET_VALUE.search(value) else value


def field_names(model: type[BaseModel] | None) -> list[str]:
    """The names by which a file calls the fields of `model`."""
    if model is None:
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_at(model: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel] | None:
    found: type[BaseModel] | None = model
    annotation: Any = model
    for part in loc:
        if isinstance(part, int) or found is None:
            annotation = _item(annotation)
        else:
            fields = {field.alias or name: field for name, field in found.model_fields.items()}
            annotation = fields[part].annotation if part in fields else None
        found = _as_model(annotation)
    return found


def _as_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(filter(None, map(_as_model, typing.get_args(annotation))), None)
    return None


def _item(annotation: Any) -> Any:
    """The element type of a list, tuple or mapping annotation."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        items = [_item(option) for option in typing.get_args(annotation)]
        return next((item for item in items if item is not None), None)
    args = [a for a in typing.get_args(annotation) if a is not Ellipsis]
    return args[-1] if args else None
