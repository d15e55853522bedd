"""The outline of a conversation: who speaks, in blocks of what kind, signed with what.

No text in a block is decoded, so that all of it costs little more than to find its end. It shows
what surely is not there; what may be there is looked at in the items themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from krouter.body import Body
from krouter.dialects.base import UNREADABLE
from krouter.dialects.history import FIELD

There = Raw | UnsetType
"""A field of which it counts that it is there, and how its value begins."""


class ToolAnswer(Struct, gc=False):
    """What a tool has answered, in Gemini's dialect."""

    parts: There = UNSET


_CAMEL = {
    "camel_function_response": "functionResponse",
    "camel_inline_data": "inlineData",
    "camel_file_data": "fileData",
    "camel_thought_signature": "thoughtSignature",
}


class Marked(Struct, rename=_CAMEL, gc=False):
    """What may stand in a block and in an item, of whatever dialect."""

    type: Any = None
    output: There = UNSET
    source: There = UNSET
    camel_function_response: ToolAnswer | UnsetType = UNSET
    function_response: ToolAnswer | UnsetType = UNSET
    camel_inline_data: There = UNSET
    inline_data: There = UNSET
    camel_file_data: There = UNSET
    file_data: There = UNSET
    signature: Any = None
    data: Any = None
    encrypted_content: Any = None
    camel_thought_signature: Any = None
    thought_signature: Any = None

    @property
    def signature_sent(self) -> str:
        """Its signature, or what is enciphered of it; empty where it has none."""
        own = None
        match self.type:
            case "thinking":
                own = self.signature
            case "redacted_thinking":
                own = self.data
            case "reasoning":
                own = self.encrypted_content
        found = (own, self.camel_thought_signature, self.thought_signature)
        return next((text for text in found if isinstance(text, str)), "")

    @property
    def may_be_signed(self) -> bool:
        """False where it surely has no signature."""
        return not (
            None
            is self.signature
            is self.data
            is self.encrypted_content
            is self.camel_thought_signature
            is self.thought_signature
        )


class Block(Marked, gc=False):
    """A block of content."""

    content: There = UNSET
    parts: There = UNSET


class Item(Marked, gc=False):
    """A message, or whatever stands in its place."""

    role: Any = None
    parts: list[Block] | UnsetType = UNSET
    images: There = UNSET
    image: There = UNSET
    image_url: There = UNSET
    audio: There = UNSET
    audio_url: There = UNSET
    video: There = UNSET
    video_url: There = UNSET
    attachments: There = UNSET
    experimental_attachments: There = UNSET


class BlockItem(Item, gc=False):
    """What nearly always says what it says in blocks."""

    content: list[Block] | str | None = None


class TextItem(Item, gc=False):
    """What nearly always says what it says in one text, which is long where a tool has said it."""

    content: There = UNSET


Turn = tuple[BlockItem | TextItem, list[Block]]
"""An item, and its blocks."""

_text_items = msgspec.json.Decoder(list[TextItem]).decode
_block_items = msgspec.json.Decoder(list[BlockItem]).decode
_LIST, _TEXT, _TEXT_OR_NULL = b"["[0], b'"'[0], b'"n'

_blocks = msgspec.json.Decoder(list[Block]).decode


def outline(dialect_name: str, body: Body) -> Sequence[Turn] | None:
    """Every item of the conversation. None where clients do not write one like that, so that it
    must be looked at as a whole."""
    if (found := body.outlines.get(dialect_name, ...)) is ...:
        found = body.outlines[dialect_name] = _outline(dialect_name, body)
    return found  # type: ignore[no-any-return]


def _outline(dialect_name: str, body: Body) -> list[Turn] | None:
    raw = body.fields.get(FIELD.get(dialect_name, ""))
    if raw is None or memoryview(raw)[0] != _LIST:
        return None
    try:
        return turns_in(dialect_name, raw)
    except UNREADABLE:
        return None


def turns_in(dialect_name: str, conversation: Raw | memoryview | bytes) -> list[Turn]:
    """The outline of a list of items. Raises what `UNREADABLE` holds where there is none."""
    if dialect_name == "chat":
        return [(item, _listed(item)) for item in _text_items(conversation)]
    return [(item, _blocks_of(item)) for item in _block_items(conversation)]


def _listed(item: TextItem) -> list[Block]:
    """Raises msgspec's ValidationError for what is said in another way, which chat has not."""
    said = item.content
    if item.parts is not UNSET:
        raise msgspec.ValidationError
    if said is UNSET or memoryview(said)[0] in _TEXT_OR_NULL:
        return []
    return _blocks(said)


def _blocks_of(item: BlockItem) -> list[Block]:
    """Raises msgspec's ValidationError for what is said in two places."""
    said, parts = item.content, item.parts
    if parts is UNSET:
        return said if isinstance(said, list) else []
    if said is not None:
        raise msgspec.ValidationError
    return parts


def text_of(item: BlockItem | TextItem) -> str:
    """What an item says in one text."""
    said = item.content
    if isinstance(said, Raw):
        return str(msgspec.json.decode(said)) if is_text(said) else ""
    return said if isinstance(said, str) else ""


def blocks_in(value: Raw) -> list[Block]:
    """Raises what `UNREADABLE` holds for a value that is no list of blocks."""
    return _blocks(value)


def is_text(value: Raw) -> bool:
    return memoryview(value)[0] == _TEXT
