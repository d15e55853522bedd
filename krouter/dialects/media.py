"""Attachments in a request: which blocks are one, of what medium, and where blocks stand.

All dialects' blocks are known in every dialect, since clients mix them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET, Raw, json

from krouter.combos import Medium
from krouter.dialects.base import UNREADABLE
from krouter.dialects.outline import Block, Item, Marked, Turn, blocks_in, is_text, text_of
from krouter.features import DEEPEST

_BLOCKS: Mapping[str, Medium] = {
    "image": "image",
    "image_url": "image",
    "image_file": "image",
    "input_image": "image",
    "computer_screenshot": "image",
    "image_generation_call": "image",
    "audio": "audio",
    "audio_url": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
    "input_video": "video",
}
_FILES = frozenset(("file", "file_url", "input_file", "document"))
_KINDS = _FILES | _BLOCKS.keys()
_GEMINI_PARTS = ("inlineData", "inline_data", "fileData", "file_data")

ATTACHMENTS = ("attachments", "experimental_attachments")
ON_MESSAGE: Mapping[str, Medium] = {
    "images": "image",
    "image": "image",
    "image_url": "image",
    "audio": "audio",
    "audio_url": "audio",
    "video": "video",
    "video_url": "video",
}
"""Fields of a message, beside its content, that some clients put an attachment in."""

_MIME_KEYS = ("media_type", "mediaType", "mime_type", "mimeType", "content_type", "contentType")
_HOLDERS = ("source", "file", "file_url", "document")
_DATA_KEYS = ("file_data", "data", "url", "uri", "fileUri", "file_uri", "file_url")
_NAME_KEYS = ("filename", "file_name", "name", "displayName")

_BY_MEDIUM: Mapping[Medium, str] = {
    "image": "png jpg jpeg gif webp bmp tif tiff heic heif avif svg ico",
    "pdf": "pdf doc docx odt rtf ppt pptx odp xls xlsx ods epub",
    "audio": "mp3 wav ogg oga opus flac m4a aac aiff weba",
    "video": "mp4 m4v mov webm mkv avi mpg mpeg 3gp wmv flv",
}
_EXTENSIONS: Mapping[str, Medium] = {
    extension: medium for medium, listed in _BY_MEDIUM.items() for extension in listed.split()
}
_EXTENSION = re.compile(r"\.([A-Za-z0-9]{1,10})$")
_TEXT_TYPES = re.compile(
    r"application/(?:[\w.+-]*\+)?(?:json|ndjson|jsonl|xml|yaml|x-yaml|toml|sql|x-sh|graphql"
    r"|(?:x-)?(?:javascript|typescript|python))$"
)

DATA_URI = re.compile(
    r"data:(image/[\w.+-]+|audio/[\w.+-]+|video/[\w.+-]+|application/pdf)"
    r"(?:;[\w.+=-]+)*;base64,[\w+/=-]*"
)

# A type or a key that can make a block an attachment, as it stands in JSON: within a text the
# quote behind it would be escaped. Python's search is fast where a pattern begins with one literal
# character and no more, so the first letters are a class.
_MARK = re.compile(
    rb'"[aicdefv](?:mage(?:s|_url|_file|_generation_call)?|nput_(?:image|audio|video|file)'
    rb"|nline(?:Data|_data)|udio(?:_url)?|ideo(?:_url)?|ile(?:_url|_data|Data)?|ocument"
    rb'|omputer_screenshot|ttachments|xperimental_attachments)"'
)
_URI_MARK = re.compile(rb";[b]ase64,")


def may_hold(raw: bytes) -> bool:
    """False where JSON surely holds no attachment; cheaper than to decode it."""
    return bool(_MARK.search(raw) or _URI_MARK.search(raw))


def may_be_in(turn: Turn) -> bool:
    """False where an item surely holds no attachment, as far as `media_of` would find one."""
    item, blocks = turn
    role, output = item.role, item.output is not UNSET
    if isinstance(role, str):
        if output:
            return True
        output = role in ("tool", "function")
    if _is_suspect(item) or _has_some_beside(item):
        return True
    if item.output is not UNSET and _is_suspect_answer(item.output):
        return True
    for block in blocks:
        if _is_suspect(block) or not (UNSET is block.parts is block.output):
            return True
        if block.content is not UNSET and _is_suspect_content(block.content, block.type, output):
            return True
    if blocks:
        return False
    if not output:
        return "data:" in text_of(item)
    if isinstance(item.content, Raw):
        return is_text(item.content) and _may_be_whole_uri(item.content)
    return isinstance(item.content, str) and _may_be_uri(item.content)


def _is_suspect_content(content: Raw, kind: Any, output: bool) -> bool:
    if is_text(content):
        return (output or names_result(kind)) and _may_be_whole_uri(content)
    return _is_suspect_answer(content)


def _is_suspect_answer(value: Raw) -> bool:
    """Of what a tool has said."""
    if is_text(value):
        return _may_be_whole_uri(value)
    try:
        return any(map(_is_suspect_within, blocks_in(value)))
    except UNREADABLE:
        return True


def _is_suspect_within(block: Block) -> bool:
    return _is_suspect(block) or not (UNSET is block.content is block.parts is block.output)


def _is_suspect(marked: Marked) -> bool:
    kind = marked.type
    if isinstance(kind, str) and kind in _KINDS:
        return True
    if not (
        UNSET
        is marked.source
        is marked.camel_inline_data
        is marked.inline_data
        is marked.camel_file_data
        is marked.file_data
    ):
        return True
    camel, snake = marked.camel_function_response, marked.function_response
    return not (
        (camel is UNSET or camel.parts is UNSET) and (snake is UNSET or snake.parts is UNSET)
    )


def _has_some_beside(item: Item) -> bool:
    return not (
        UNSET
        is item.images
        is item.image
        is item.image_url
        is item.audio
        is item.audio_url
        is item.video
        is item.video_url
        is item.attachments
        is item.experimental_attachments
    )


def _may_be_whole_uri(value: Raw) -> bool:
    """Whether a text may be a data URI and nothing else. One that begins with neither that nor a
    blank is not decoded."""
    head = bytes(memoryview(value)[1:6])
    if head == b"data:" or head[0] in b"\\ " or head[0] >= 0x80:
        return _may_be_uri(str(json.decode(value)))
    return False


def _may_be_uri(text: str) -> bool:
    return text.strip().startswith("data:")


def media_of(item: Any) -> set[Medium]:
    """What one item of a conversation holds, the results of tools in it included."""
    if not isinstance(item, dict):
        return set()
    found = set(_inside(item, 0, is_output(item)))
    if itself := medium_of(item):
        found.add(itself)
    if "role" in item:
        found.update(_beside_content(item))
    return found


def medium_of(block: Mapping[str, Any]) -> Medium | None:
    """The medium of an attachment; None for a block that is none."""
    kind = block.get("type")
    if isinstance(kind, str):
        if kind in _BLOCKS:
            return _BLOCKS[kind]
        if kind in _FILES:
            return None if _source_holds_blocks(block) else _of_file(block, "pdf")
    for key in _GEMINI_PARTS:
        if isinstance(part := block.get(key), dict):
            return _of_file(part, "pdf")
    return None


def uri_media(text: str, whole: bool) -> Iterator[Medium]:
    """The media of the data URIs in a text; `whole` asks that the text be one and nothing else."""
    if "data:" in text:
        if whole:
            match = DATA_URI.fullmatch(text.strip())
            matches = iter((match,)) if match else iter(())
        else:
            matches = DATA_URI.finditer(text)
        yield from (medium_of_mime(match[1]) or "pdf" for match in matches)


def attached(attachment: Any) -> Medium | None:
    """The medium of one of a message's `attachments`."""
    if isinstance(attachment, str):
        return next(uri_media(attachment, True), None) or _of_name(attachment) or "image"
    return _of_file(attachment, "image") if isinstance(attachment, dict) else None


def beside(key: str, value: Any) -> Medium | None:
    """The medium of a field of ON_MESSAGE. An audio of which there is only an id is a reply's."""
    if not value or (isinstance(value, dict) and value.keys() == {"id"}):
        return None
    return ON_MESSAGE[key]


def places(holder: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where in an item or a block other blocks stand, as an object and its key."""
    for key in ("content", "parts", "output"):
        if key in holder:
            yield holder, key
    for key in ("functionResponse", "function_response"):
        if isinstance(inner := holder.get(key), dict) and "parts" in inner:
            yield inner, "parts"
    source = holder.get("source")
    if isinstance(source, dict) and "content" in source:
        yield source, "content"


def is_output(item: Mapping[str, Any]) -> bool:
    """Whether what an item says, a tool has said."""
    role = item.get("role")
    return role in ("tool", "function") if isinstance(role, str) else "output" in item


def medium_of_mime(mime: str) -> Medium | None:
    """None for text; anything else that a model can only read as a document counts as PDF."""
    mime = mime.partition(";")[0].strip().lower()
    major = mime.partition("/")[0]
    if major in ("image", "audio", "video"):
        return major  # type: ignore[return-value]
    return None if major == "text" or _TEXT_TYPES.match(mime) else "pdf"


def _inside(holder: dict[str, Any], depth: int, output: bool) -> Iterator[Medium]:
    for inner, key in places(holder):
        value = inner[key]
        if isinstance(value, str):
            if depth == 0 or output:
                yield from uri_media(value, output)
            continue
        for block in value if isinstance(value, list) else [value]:
            if not isinstance(block, dict):
                continue
            if medium := medium_of(block):
                yield medium
            elif depth < DEEPEST:
                yield from _inside(block, depth + 1, output or is_result(block))


def is_result(block: Mapping[str, Any]) -> bool:
    """Whether a block is what a tool answered."""
    return names_result(block.get("type"))


def names_result(kind: Any) -> bool:
    """Whether that is a type of such blocks."""
    return isinstance(kind, str) and kind.endswith("tool_result")


def _beside_content(message: Mapping[str, Any]) -> Iterator[Medium]:
    for key in ON_MESSAGE:
        if key in message and (medium := beside(key, message[key])):
            yield medium
    for key in ATTACHMENTS:
        attachments = message.get(key)
        for attachment in attachments if isinstance(attachments, list) else ():
            if medium := attached(attachment):
                yield medium


def _source_holds_blocks(block: Mapping[str, Any]) -> bool:
    source = block.get("source")
    return isinstance(source, dict) and (source.get("type") in ("content", "text"))


def _of_file(block: Mapping[str, Any], default: Medium) -> Medium | None:
    """The medium of a file: by its MIME type, else by its name, else the default."""
    inner = (block.get(key) for key in _HOLDERS)
    holders = [block, *(holder for holder in inner if isinstance(holder, dict))]
    data = [text for text in _texts(holders, _DATA_KEYS) if text]
    heads = [text[5:200].partition(",")[0] for text in data if text[:5].lower() == "data:"]
    for mime in (*_texts(holders, _MIME_KEYS), *heads):
        if "/" in mime and not mime.startswith("application/octet-stream"):
            return medium_of_mime(mime)
    links = [text[:2000].partition("?")[0] for text in data if text[:4].lower() == "http"]
    for name in (*_texts(holders, _NAME_KEYS), *links):
        if "youtube.com/" in name or "youtu.be/" in name:
            return "video"
        if extension := _EXTENSION.search(name):
            known = _EXTENSIONS.get(extension[1].lower())
            if known or name not in links:
                return known
    return default


def _of_name(name: str) -> Medium | None:
    extension = _EXTENSION.search(name[:2000].partition("?")[0])
    return _EXTENSIONS.get(extension[1].lower()) if extension else None


def _texts(holders: list[Any], keys: tuple[str, ...]) -> Iterator[str]:
    for holder in holders:
        for key in keys:
            if isinstance(value := holder.get(key), str):
                yield value
