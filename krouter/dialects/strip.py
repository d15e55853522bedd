"""A request without its attachments of some media, all else as it came."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import Any

import msgspec

from krouter.body import Body
from krouter.combos import Medium
from krouter.dialects.base import has_text
from krouter.dialects.history import (
    FIELD,
    decoded,
    prompt_item,
    raw_history,
    raw_items,
    raw_prompts,
    with_items,
)
from krouter.dialects.media import (
    ATTACHMENTS,
    DATA_URI,
    ON_MESSAGE,
    attached,
    beside,
    is_output,
    is_result,
    may_hold,
    media_of,
    medium_of,
    medium_of_mime,
    places,
    uri_media,
)
from krouter.features import DEEPEST


def without_images(dialect_name: str, body: Body) -> Body:
    """The body with no image left in its conversation; the same body where there is none."""
    return without(dialect_name, body, frozenset(("image",)))


def without(dialect_name: str, body: Body, media: Set[Medium]) -> Body:
    """The body with no attachment of these media left in its conversation.

    A message or a tool result that would be empty says what was left out, and so does the place
    of a removed block that carried a cache mark.
    """
    stripper = _Stripper(dialect_name, media)
    body = _without_in_prompt(dialect_name, body, stripper)
    raw = raw_history(dialect_name, body)
    if not may_hold(raw):
        return body
    if raw[:1] == b'"':
        whole = body.value(FIELD[dialect_name], "")
        text = stripper.text(whole, False)
        return body if text == whole else Body.parse(body.edited({FIELD[dialect_name]: text}))
    changes: dict[int, dict[str, Any] | None] = {}
    for at, one in enumerate(raw_items(dialect_name, body)):
        item = decoded(one) if may_hold(bytes(one)) else None
        if isinstance(item, dict) and stripper.finds(item):
            changes[at] = stripper.item(item)
    return with_items(dialect_name, body, changes)


def _without_in_prompt(dialect_name: str, body: Body, stripper: _Stripper) -> Body:
    changes: dict[str, Any] = {}
    for name, raw in raw_prompts(dialect_name, body).items():
        item = prompt_item(raw) if may_hold(bytes(raw)) else {}
        if stripper.finds(item):
            left = stripper.item(item)
            changes[name] = left["content"] if "content" in left else _with_parts(raw, left)
    return Body.parse(body.edited(changes)) if changes else body


def _with_parts(raw: msgspec.Raw, left: dict[str, Any]) -> dict[str, Any]:
    return {**decoded(raw), "parts": left["parts"]}


class _Stripper:
    """Takes the attachments of some media out of decoded items, in place."""

    def __init__(self, dialect_name: str, media: Set[Medium]) -> None:
        self._dialect = dialect_name
        self._media = media

    def finds(self, item: dict[str, Any]) -> bool:
        return not media_of(item).isdisjoint(self._media)

    def item(self, item: dict[str, Any]) -> dict[str, Any]:
        if medium := self._removed(item):
            role = "user" if str(item.get("type")).startswith("input_") else "assistant"
            return {"role": role, "content": _omitted(medium)}
        gone = self._beside_content(item) if "role" in item else None
        self._inside(item, 0, is_output(item))
        if gone and not (has_text(item.get("content")) or item.get("tool_calls")):
            item["content"] = _omitted(gone)
        return item

    def text(self, text: str, whole: bool) -> str:
        """`whole`: only a text that is a data URI and nothing else changes."""
        if not self._media_in(uri_media(text, whole)):
            return text

        def replaced(match: re.Match[str]) -> str:
            medium = medium_of_mime(match[1])
            return _omitted(medium) if medium and medium in self._media else match[0]

        return DATA_URI.sub(replaced, text)

    def _removed(self, block: Any) -> Medium | None:
        medium = medium_of(block) if isinstance(block, dict) else None
        return medium if medium and medium in self._media else None

    def _media_in(self, found: Iterable[Medium | None]) -> Medium | None:
        return next((medium for medium in found if medium and medium in self._media), None)

    def _beside_content(self, message: dict[str, Any]) -> Medium | None:
        gone = None
        for key in [key for key in ON_MESSAGE if key in message]:
            if medium := self._media_in([beside(key, message[key])]):
                gone = medium
                del message[key]
        for key in ATTACHMENTS:
            given = message.get(key)
            if isinstance(given, list) and (medium := self._media_in(map(attached, given))):
                gone = medium
                message[key] = [one for one in given if attached(one) not in self._media]
        return gone

    def _inside(self, holder: dict[str, Any], depth: int, output: bool) -> None:
        for inner, key in list(places(holder)):
            value = inner[key]
            if isinstance(value, str):
                if depth == 0 or output:
                    inner[key] = self.text(value, output)
            elif isinstance(value, dict):
                inner[key] = self._blocks([value], depth, output)[0]
            elif isinstance(value, list) and inner is not holder and key == "parts":
                self._answer_parts(inner, value)
            elif isinstance(value, list):
                gone = any(map(self._removed, value))
                kept = self._blocks(value, depth, output)
                is_content = gone and self._dialect == "chat" and depth == 0
                inner[key] = _plain(kept) if is_content else kept

    def _answer_parts(self, answer: dict[str, Any], parts: list[Any]) -> None:
        """The parts of a Gemini tool's answer are attachments and nothing else."""
        medium = self._media_in(map(self._removed, parts))
        if medium is None:
            return
        answer["parts"] = [part for part in parts if not self._removed(part)]
        if not answer["parts"]:
            del answer["parts"]
            answer.setdefault("response", {"output": _omitted(medium)})

    def _blocks(self, blocks: list[Any], depth: int, output: bool) -> list[Any]:
        kept, gone = [], None
        for block in blocks:
            if medium := self._removed(block):
                gone = gone or medium
                if mark := block.get("cache_control"):
                    kept.append({**self._marker(medium), "cache_control": mark})
                continue
            if isinstance(block, dict) and depth < DEEPEST:
                self._inside(block, depth + 1, output or is_result(block))
            kept.append(block)
        return [*kept, self._marker(gone)] if gone and not has_text(kept) else kept

    def _marker(self, medium: Medium) -> dict[str, Any]:
        if self._dialect == "gemini":
            return {"text": _omitted(medium)}
        kind = "input_text" if self._dialect == "responses" else "text"
        return {"type": kind, "text": _omitted(medium)}


def _omitted(medium: Medium) -> str:
    return f"[{medium} omitted]"


def _plain(blocks: list[Any]) -> list[Any] | str:
    """A lone text block as a string: a provider that refuses images may want no list at all."""
    match blocks:
        case [{"type": "text", "text": str(text), **rest}] if not rest:
            return text
    return blocks
