"""Requests of callers, as their clients would send them."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec

QUESTION = "Say something."
_DATA = "iVBORw0KGgo="
_MIMES = {
    "image": "image/png",
    "pdf": "application/pdf",
    "audio": "audio/wav",
    "video": "video/mp4",
}
NEEDS = frozenset((*_MIMES, "tools", "json"))
"""What a request may be told to carry or to ask for."""
_WORD = "word "
"""About a token."""
_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
_TOOL = {"name": "look_up", "description": "Looks something up."}


def path(dialect: str, model: str, stream: bool) -> str:
    """The endpoint that such a request goes to."""
    if dialect == "gemini":
        return f"/v1beta/models/{quote(model, safe='')}:{_METHODS[stream]}"
    return _PATHS[dialect]


def query(dialect: str, stream: bool) -> str:
    return "alt=sse" if dialect == "gemini" and stream else ""


_PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
_METHODS = ("generateContent", "streamGenerateContent")


def body(
    dialect: str, model: str, needs: Collection[str] = (), stream: bool = False, tokens: int = 0
) -> bytes:
    """A request in `dialect` for `model` that carries or asks for the `needs`, with about so many
    `tokens` of text. It has one optional field, `temperature`, which a provider may refuse. Raises
    ValueError for a need that is none."""
    if unknown := set(needs) - NEEDS:
        raise ValueError(f"no request can need {', '.join(sorted(unknown))}")
    return _body(dialect, model, tuple(sorted(set(needs))), stream, tokens)


@lru_cache(maxsize=1024)
def _body(dialect: str, model: str, needs: tuple[str, ...], stream: bool, tokens: int) -> bytes:
    text = QUESTION if tokens <= 0 else f"{_WORD * tokens}{QUESTION}"
    media = [need for need in needs if need in _MIMES]
    return msgspec.json.encode(_WRITERS[dialect](model, text, media, needs, stream))


def _chat(
    model: str, text: str, media: list[str], needs: Collection[str], stream: bool
) -> dict[str, Any]:
    content: Any = text
    if media:
        content = [{"type": "text", "text": text}, *map(_chat_block, media)]
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
    if "tools" in needs:
        asked["tools"] = [{"type": "function", "function": {**_TOOL, "parameters": _SCHEMA}}]
    if "json" in needs:
        schema = {"name": "answer", "strict": True, "schema": _SCHEMA}
        asked["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {"model": model, **asked, "temperature": 0.5, "stream": stream}


def _url(medium: str) -> str:
    return f"data:{_MIMES[medium]};base64,{_DATA}"


def _chat_block(medium: str) -> dict[str, Any]:
    match medium:
        case "pdf":
            held = {"filename": "paper.pdf", "file_data": _url(medium)}
            return {"type": "file", "file": held}
        case "audio":
            return {"type": "input_audio", "input_audio": {"data": _DATA, "format": "wav"}}
    kind = f"{medium}_url"
    return {"type": kind, kind: {"url": _url(medium)}}


def _messages(
    model: str, text: str, media: list[str], needs: Collection[str], stream: bool
) -> dict[str, Any]:
    content: Any = text
    if media:
        content = [{"type": "text", "text": text}, *map(_messages_block, media)]
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
    if "tools" in needs:
        asked["tools"] = [{**_TOOL, "input_schema": _SCHEMA}]
    if "json" in needs:
        asked["output_config"] = {"format": {"type": "json_schema", "schema": _SCHEMA}}
    return {"model": model, "max_tokens": 1024, **asked, "temperature": 0.5, "stream": stream}


def _messages_block(medium: str) -> dict[str, Any]:
    source = {"type": "base64", "media_type": _MIMES[medium], "data": _DATA}
    return {"type": "document" if medium == "pdf" else medium, "source": source}


def _responses(
    model: str, text: str, media: list[str], needs: Collection[str], stream: bool
) -> dict[str, Any]:
    asked: dict[str, Any] = {"input": text}
    if media:
        content = [{"type": "input_text", "text": text}, *map(_responses_block, media)]
        asked["input"] = [{"role": "user", "content": content}]
    if "tools" in needs:
        asked["tools"] = [{"type": "function", **_TOOL, "parameters": _SCHEMA, "strict": True}]
    if "json" in needs:
        form = {"type": "json_schema", "name": "answer", "strict": True, "schema": _SCHEMA}
        asked["text"] = {"format": form}
    return {"model": model, **asked, "temperature": 0.5, "stream": stream}


def _responses_block(medium: str) -> dict[str, Any]:
    match medium:
        case "image":
            return {"type": "input_image", "image_url": _url(medium)}
        case "pdf":
            return {"type": "input_file", "filename": "paper.pdf", "file_data": _url(medium)}
        case "audio":
            return {"type": "input_audio", "input_audio": {"data": _DATA, "format": "wav"}}
    return {"type": "input_video", "video_url": _url(medium)}


def _gemini(
    model: str, text: str, media: list[str], needs: Collection[str], stream: bool
) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": text}]
    parts += ({"inlineData": {"mimeType": _MIMES[each], "data": _DATA}} for each in media)
    config: dict[str, Any] = {"temperature": 0.5}
    if "json" in needs:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": _SCHEMA}
    asked: dict[str, Any] = {"contents": [{"role": "user", "parts": parts}]}
    if "tools" in needs:
        declared = {**_TOOL, "parametersJsonSchema": _SCHEMA}
        asked["tools"] = [{"functionDeclarations": [declared]}]
    return {**asked, "generationConfig": config}


_WRITERS = {"chat": _chat, "messages": _messages, "responses": _responses, "gemini": _gemini}
