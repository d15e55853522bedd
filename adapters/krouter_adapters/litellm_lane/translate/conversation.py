"""The turns of a messages request, as chat messages.

Chat has one message for each tool result, directly after the calls; so results go before the text
that stood beside them, and what chat cannot hold inside a result (images, files) follows in a user
message, in its place among that text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from krouter.dialects.chat import said_as_error
from krouter.dialects.thinking import UNSIGNED
from krouter_adapters.litellm_lane.translate.replies import joined_text
from krouter_adapters.litellm_lane.translate.sealed import of_form
from krouter_adapters.litellm_lane.translate.shapes import (
    THINKING,
    Dropped,
    Json,
    as_dict,
    as_dicts,
    as_text,
    folded,
    text_part,
    to_json,
    tool_id_back,
)


class Conversation:
    """Collects chat messages. `shorter` maps tool names to those the host is sent."""

    def __init__(
        self, shorter: Mapping[str, str], dropped: Dropped, keep: frozenset[str] = frozenset()
    ) -> None:
        self._shorter = shorter
        self._dropped = dropped
        self._keep = keep
        self._out: list[Json] = []
        self._open: set[str] = set()
        self._waiting: list[Json] = []
        self._call_names: dict[str, str] = {}
        self._thoughts: list[tuple[Json, str]] = []

    def system(self, system: Any) -> None:
        content = self._system_content(system)
        if content:
            self._out.append({"role": "system", "content": content})

    def add(self, message: Json) -> None:
        content = message.get("content")
        match message.get("role"):
            case "assistant":
                self._assistant(content)
            case "system" | "developer":
                said = self._system_content(content)
                if said:
                    held = {"role": "system", "content": said}
                    # Nothing may stand between calls and their results.
                    (self._waiting if self._open else self._out).append(held)
            case "user":
                self._user(content)
            case role:
                self._dropped.add(f"messages.role={role}")

    def messages(self) -> list[Json]:
        self._flush()
        if "reasoning_content" in self._keep:
            for message, thought in self._thoughts:
                message["reasoning_content"] = thought
        return self._out

    def _flush(self) -> None:
        self._out += self._waiting
        self._waiting = []
        self._open = set()

    def _system_content(self, system: Any) -> Any:
        if isinstance(system, str):
            return system
        blocks = [block for block in as_dicts(system) if as_text(block.get("text"))]
        for block in blocks:
            self._marks(block)
        if "cache_control" in self._keep and any(block.get("cache_control") for block in blocks):
            return [self._text_part(block, block["text"]) for block in blocks]
        return "\n\n".join(block["text"] for block in blocks)

    # The assistant's turns

    def _assistant(self, content: Any) -> None:
        self._flush()
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        blocks = as_dicts(content)
        kinds = [_kind(block) for block in blocks]
        for block, kind in zip(blocks, kinds, strict=True):
            self._note_assistant(block, kind)
        text = joined_text(blocks, kinds)
        calls = [self._call(block) for block in blocks if block.get("type") == "tool_use"]
        if not text and not calls:
            self._dropped_thinking(blocks)
            return
        message: Json = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = calls
            self._open = {call["id"] for call in calls}
        self._keep_thinking(message, blocks)
        self._out.append(message)

    def _note_assistant(self, block: Json, kind: str) -> None:
        self._marks(block)
        if kind == "text" and block.get("citations"):
            self._dropped.add("citations")
        elif kind not in ("text", "tool_use", *THINKING):
            self._dropped.add(kind)

    def _call(self, block: Json) -> Json:
        call_id = tool_id_back(block.get("id"))
        name = as_text(block.get("name"))
        self._call_names[call_id] = name
        given = block.get("input")
        arguments = to_json(given if isinstance(given, dict) else {})
        function = {"name": self._shorter.get(name, short_name(name)), "arguments": arguments}
        return {"id": call_id, "type": "function", "function": function}

    def _keep_thinking(self, message: Json, blocks: list[Json]) -> None:
        thinking = [block for block in blocks if block.get("type") in THINKING]
        if not thinking:
            return
        if not _WITH_BLOCKS.isdisjoint(self._keep):
            signed = [
                b for b in thinking if b.get("signature", "") not in ("", UNSIGNED) or b.get("data")
            ]
            kept = of_form(signed, sealed="sealed" in self._keep)
            if kept:
                message["thinking_blocks"] = kept
            if len(kept) < len(signed):
                self._dropped.add_thinking()
            if signed:
                return
        thought = "".join(as_text(block.get("thinking")) for block in thinking)
        if thought and "reasoning_content" in self._keep:
            self._thoughts.append((message, thought))
        else:
            self._dropped.add(thinking[0]["type"])

    def _dropped_thinking(self, blocks: list[Json]) -> None:
        """Hosts refuse a turn that holds nothing else."""
        for block in blocks:
            if block.get("type") in THINKING:
                self._dropped.add(block["type"])

    # The user's turns

    def _user(self, content: Any) -> None:
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        parts: list[Json] = []
        results = 0
        for block in as_dicts(content):
            self._marks(block)
            if block.get("type") == "tool_result":
                parts += self._result(block)
                results += 1
            else:
                parts += self._parts(block)
        self._flush()
        if self._thoughts and not results:
            # A new turn of the user's: hosts want no reasoning of turns before it back.
            self._thoughts.clear()
            self._dropped.add("thinking")
        if parts:
            self._out.append({"role": "user", "content": folded(parts)})
        elif not results and content:
            self._out.append({"role": "user", "content": ""})

    def _result(self, block: Json) -> list[Json]:
        """The tool message of a result, and the parts that must follow it."""
        call_id = tool_id_back(block.get("tool_use_id"))
        content = block.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        parts = [part for inner in as_dicts(content) for part in self._parts(inner)]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        others = [part for part in parts if part["type"] != "text"]
        if others and not texts:
            texts = ["(The result follows.)"]
        text = "\n".join(texts)
        if block.get("is_error"):
            text = said_as_error(text)
        self._out.append({"role": "tool", "tool_call_id": call_id, "content": text})
        self._open.discard(call_id)
        if not others:
            return []
        name = self._call_names.get(call_id)
        line = f"(From the result of {name}:)" if name else "(From the tool result:)"
        return [text_part(line), *others]

    def _parts(self, block: Json) -> Iterator[Json]:
        match block.get("type"):
            case "text":
                if as_text(block.get("text")):
                    yield self._text_part(block, block["text"])
            case "image":
                yield self._image(as_dict(block.get("source")))
            case "document":
                yield from self._document(block)
            case "search_result":
                self._citations(block)
                yield text_part(_headed("Search result", block, part_lines(block.get("content"))))
            case "tool_reference":
                # What a search for tools has found: other hosts have all tools of a request loaded.
                yield text_part(f"The tool {as_text(block.get('tool_name'))} can be called now.")
            case kind:
                if as_text(block.get("text")):
                    yield text_part(block["text"])
                else:
                    self._dropped.add(kind)

    def _text_part(self, block: Json, text: str) -> Json:
        mark = block.get("cache_control")
        kept = {"cache_control": mark} if mark and "cache_control" in self._keep else {}
        return {**text_part(text), **kept}

    def _image(self, source: Json) -> Json:
        url = _source_url(source, "image/png")
        if url is None:
            return self._left_out("image", source)
        return {"type": "image_url", "image_url": {"url": url}}

    def _left_out(self, what: str, source: Json) -> Json:
        """A line in place of what stays behind, so that the model knows that it is missing."""
        kind = as_text(source.get("type")) or "unknown"
        self._dropped.add(f"{what}.{kind}")
        where = as_text(source.get("url"))
        return text_part(f"[{what} not shown: {where}]" if where else f"[{what} not shown]")

    def _document(self, block: Json) -> Iterator[Json]:
        source = as_dict(block.get("source"))
        self._citations(block)
        text = _document_text(source)
        if text is not None:
            yield text_part(_headed("Document", block, text))
        elif source.get("type") == "content":
            yield from self._document_content(block, source)
        elif source.get("type") == "base64" and isinstance(source.get("data"), str):
            if as_text(block.get("context")):
                yield text_part(_headed("Document", block, ""))
            name = as_text(block.get("title")) or "document.pdf"
            data = _source_url(source, "application/pdf")
            yield {"type": "file", "file": {"filename": name, "file_data": data}}
        else:
            yield self._left_out("document", source)

    def _document_content(self, block: Json, source: Json) -> Iterator[Json]:
        content = source.get("content")
        if isinstance(content, str):
            yield text_part(_headed("Document", block, content))
            return
        if as_text(block.get("title")) or as_text(block.get("context")):
            yield text_part(_headed("Document", block, ""))
        for inner in as_dicts(content):
            yield from self._parts(inner)

    def _citations(self, block: Json) -> None:
        if as_dict(block.get("citations")).get("enabled"):
            self._dropped.add("citations")

    def _marks(self, block: Json) -> None:
        if block.get("cache_control") and "cache_control" not in self._keep:
            self._dropped.add("cache_control")


_WITH_BLOCKS = frozenset(("thinking", "sealed"))


def _kind(block: Json) -> str:
    """A block of a kind not known that holds text is text."""
    kind = str(block.get("type"))
    known = kind in ("tool_use", *THINKING)
    return "text" if not known and as_text(block.get("text")) else kind


def part_lines(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(as_text(part.get("text")) for part in as_dicts(content))


def _headed(what: str, block: Json, text: str) -> str:
    """A document's or search result's text below its title, source and context."""
    where = block.get("source")
    told = [as_text(block.get("title")), where if isinstance(where, str) else ""]
    head = " ".join([f"[{what}:", *filter(None, told)]) + "]" if any(told) else ""
    return "\n".join(filter(None, (head, as_text(block.get("context")), text)))


def _document_text(source: Json) -> str | None:
    """The text of a plain-text document; None for any other."""
    data = source.get("data")
    if not isinstance(data, str):
        return None
    if source.get("type") == "text":
        return data
    media = as_text(source.get("media_type"))
    if source.get("type") != "base64" or not media.startswith("text/"):
        return None
    return decoded(data)


def decoded(data: str) -> str | None:
    """Text in base64, or None where it is none."""
    try:
        return base64.b64decode(data, validate=False).decode("utf-8")
    except (binascii.Error, ValueError):
        return None


def _source_url(source: Json, media_type: str) -> str | None:
    """A source as a URL: the link, or the data itself."""
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return as_text(source["url"])
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        media = as_text(source.get("media_type")) or media_type
        return f"data:{media};base64,{source['data']}"
    return None


def short_name(name: str) -> str:
    """A name no longer defined as a tool, cut to what hosts take."""
    return name if len(name) <= 64 else name[:64]
