"""The text of a whole reply: what a person sees of it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from krouter.dialects.base import UNREADABLE, read_loosely, without_halves


class _Part(msgspec.Struct):
    """A block of content. Whatever else it holds is not decoded."""

    type: Any = None
    text: Any = None
    thought: Any = None


_Block = _Part | str | float | int | bool | list[Any] | None
_Content = _Part | str | float | int | bool | list[_Block] | None


class _Message(msgspec.Struct):
    content: _Content = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    text: Any = None


class _ChatReply(msgspec.Struct):
    object: Any = None
    choices: list[_Choice] | msgspec.UnsetType | None = msgspec.UNSET
    error: Any = None


class _MessagesReply(msgspec.Struct):
    type: Any = None
    content: _Content | msgspec.UnsetType = msgspec.UNSET
    error: Any = None


class _Item(msgspec.Struct):
    type: Any = None
    content: _Content = None


class _ResponsesReply(msgspec.Struct):
    object: Any = None
    output: list[_Item] | msgspec.UnsetType | None = msgspec.UNSET
    error: Any = None


class _Parts(msgspec.Struct):
    parts: _Content = None


class _Candidate(msgspec.Struct):
    content: _Parts | None = None


class _GeminiReply(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | msgspec.UnsetType | None = msgspec.UNSET
    prompt_feedback: Any = None
    usage_metadata: Any = None
    model_version: Any = None
    error: Any = None


_T = TypeVar("_T")

_TEXTS = ("text", "output_text")


def visible_text(dialect_name: str, raw: bytes) -> str | None:
    """The text of the first choice of a reply; reasoning, calls of tools and refusals are none.

    Blank text is "". None where the reply is an error, or not the dialect's JSON.
    """
    read = _READERS.get(dialect_name)
    pieces = read(raw) if read else None
    if pieces is None:
        return None
    text = without_halves("".join(pieces))
    return text if any(map(_is_seen, text)) else ""


def _is_seen(character: str) -> bool:
    """Neither a blank nor one that only says how others are to be written."""
    return not character.isspace() and unicodedata.category(character) not in ("Cf", "Cc")


def _decoder(kind: type[_T]) -> Callable[[bytes], _T | None]:
    strict = msgspec.json.Decoder(kind).decode

    def decode(raw: bytes) -> _T | None:
        try:
            return strict(raw)
        except UNREADABLE:
            return read_loosely(raw, kind)

    return decode


_chat_reply = _decoder(_ChatReply)
_messages_reply = _decoder(_MessagesReply)
_responses_reply = _decoder(_ResponsesReply)
_gemini_reply = _decoder(_GeminiReply)


def _chat(raw: bytes) -> Iterable[str] | None:
    reply = _chat_reply(raw)
    if reply is None or reply.error:
        return None
    if reply.choices is msgspec.UNSET:
        return () if reply.object == "chat.completion" else None
    if not reply.choices:
        return ()
    first = reply.choices[0]
    if first.message is None:
        return _texts(first.text)
    return _texts(first.message.content)


def _messages(raw: bytes) -> Iterable[str] | None:
    reply = _messages_reply(raw)
    if reply is None or reply.error or reply.type == "error":
        return None
    if reply.content is msgspec.UNSET or reply.content is None:
        return () if reply.type == "message" else None
    return _texts(reply.content)


def _responses(raw: bytes) -> Iterable[str] | None:
    reply = _responses_reply(raw)
    if reply is None or reply.error:
        return None
    if reply.output is msgspec.UNSET or reply.output is None:
        return () if reply.object == "response" else None
    said = (item.content for item in reply.output if item.type == "message")
    return (text for content in said for text in _texts(content))


def _gemini(raw: bytes) -> Iterable[str] | None:
    reply = _gemini_reply(raw)
    if reply is None or reply.error:
        return None
    if reply.candidates is msgspec.UNSET:
        signs = (reply.prompt_feedback, reply.usage_metadata, reply.model_version)
        return None if signs == (None, None, None) else ()
    content = reply.candidates[0].content if reply.candidates else None
    return _texts(content.parts) if content else ()


def _texts(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else (content,):
        if isinstance(block, str):
            yield block
        elif isinstance(block, _Part) and _is_text(block):
            yield block.text


def _is_text(part: _Part) -> bool:
    named = part.type is None or (isinstance(part.type, str) and part.type in _TEXTS)
    return named and isinstance(part.text, str) and not part.thought


_READERS: Mapping[str, Callable[[bytes], Iterable[str] | None]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": _responses,
    "gemini": _gemini,
}
