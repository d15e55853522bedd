"""What a request names that only the provider has that once stored it."""

from __future__ import annotations

from krouter.body import Body
from krouter.dialects.history import decoded, raw_items
from krouter.dialects.outline import outline

_FIELDS = ("previous_response_id", "conversation", "prompt", "background")
_REFERENCE = "item_reference"


def stored_field(dialect_name: str, body: Body) -> str:
    """The field that names what one account of one provider has stored, or asks it to store the
    reply for later; empty where the request stands for itself."""
    if dialect_name != "responses":
        return ""
    asked = (name for name in _FIELDS if body.value(name) not in (None, False))
    return next(asked, "") or ("input" if _refers(body) else "")


def _refers(body: Body) -> bool:
    """Whether an item of the input is only the id of one."""
    turns = outline("responses", body)
    if turns is not None:
        return any(item.type == _REFERENCE for item, _ in turns)
    items = map(decoded, raw_items("responses", body))
    return any(isinstance(item, dict) and item.get("type") == _REFERENCE for item in items)
