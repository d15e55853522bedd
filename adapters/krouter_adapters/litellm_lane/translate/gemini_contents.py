"""The contents of a Gemini request, as chat messages.

Results of tools come directly after their calls in chat, each as a message of its own; what chat
cannot hold inside a result follows in a user message.
"""

from __future__ import annotations

from typing import Any

from krouter.dialects.thinking import ANY_SIGNATURE
from krouter_adapters.litellm_lane.translate.conversation import decoded
from krouter_adapters.litellm_lane.translate.gemini_shapes import (
    Names,
    objects,
    spelled,
    thinking_in,
)
from krouter_adapters.litellm_lane.translate.sealed import of_form
from krouter_adapters.litellm_lane.translate.shapes import (
    Dropped,
    Json,
    arguments_object,
    as_dict,
    as_text,
    folded,
    text_part,
    to_json,
)

_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
# Fields beside a part that change nothing of what it says.
_MARKS = frozenset(("thought", "thoughtSignature", "text"))
_WITH_SIGNATURES = frozenset(("thinking", "sealed", "thought_signature"))
_RESULT_KEYS = ("output", "result")


class Contents:
    """Collects chat messages. `keep` names what the host takes beyond chat; `maker` is who takes
    thinking of its own back."""

    def __init__(self, names: Names, dropped: Dropped, keep: frozenset[str], maker: str) -> None:
        self._names = names
        self._dropped = dropped
        self._keep = keep
        self._maker = maker
        self._out: list[Json] = []
        self._open: list[tuple[str, str]] = []
        """Name and id of each call that has no result yet."""
        self._ids: set[str] = set()
        self._thoughts: list[tuple[Json, str]] = []

    def system(self, given: Any) -> None:
        """A system prompt: a content, or its text alone."""
        parts = [{"text": given}] if isinstance(given, str) else _parts_of(given)
        texts = [as_text(part.get("text")) for part in parts]
        if said := "\n\n".join(filter(None, texts)):
            self._out.append({"role": "system", "content": said})
        if any("text" not in part for part in parts):
            self._dropped.add("systemInstruction.parts")

    def add(self, content: Json) -> None:
        match content.get("role"):
            case "model" | "assistant":
                self._model(_parts_of(content))
            case "system":
                self.system(content)
            case _:  # user, function, tool or none
                self._user(_parts_of(content))

    def messages(self) -> list[Json]:
        if "reasoning_content" in self._keep:
            for message, thought in self._thoughts:
                message["reasoning_content"] = thought
        return self._out

    # The model's turns

    def _model(self, parts: list[Json]) -> None:
        self._open = []
        texts: list[str] = []
        thoughts: list[str] = []
        signed: list[Json] = []
        calls: list[Json] = []
        for part in parts:
            signed += self._signed(part)
            if isinstance(part.get("functionCall"), dict):
                calls.append(self._call(part))
            elif part.get("thought") is True:
                thoughts.append(as_text(part.get("text")))
            else:
                texts.append(self._said(part))
        message: Json = {"role": "assistant", "content": "".join(texts) or None}
        if calls:
            message["tool_calls"] = calls
        if not calls and not message["content"]:
            if any(thoughts):
                self._dropped.add("thought")
            return
        if signed:
            message["thinking_blocks"] = signed
        elif any(thoughts):
            self._thought(message, "".join(thoughts))
        self._out.append(message)

    def _signed(self, part: Json) -> list[Json]:
        """The thinking that this host once signed; signatures of others are named, unless they say
        that there is none."""
        signature = part.get("thoughtSignature")
        if not signature:
            return []
        thinking, ours = thinking_in(self._maker, signature)
        if ours and not _WITH_SIGNATURES.isdisjoint(self._keep):
            kept = of_form(thinking, sealed="sealed" in self._keep)
            if "thought_signature" in self._keep or not kept or len(kept) < len(thinking):
                self._dropped.add_thinking()
            return [] if "thought_signature" in self._keep else kept
        known = ours or signature in (ANY_SIGNATURE, _ANY_IN_BASE64)
        if not known and "thought_signature" not in self._keep:
            self._dropped.add("thoughtSignature")
        return []

    def _thought(self, message: Json, thought: str) -> None:
        if "reasoning_content" in self._keep:
            self._thoughts.append((message, thought))
        else:
            self._dropped.add("thought")

    def _call(self, part: Json) -> Json:
        given = spelled(part["functionCall"])
        name = as_text(given.get("name"))
        call_id = as_text(given.get("id"))
        if not call_id or call_id in self._ids:
            call_id = self._new_id()
        self._ids.add(call_id)
        self._open.append((name, call_id))
        value, _ = arguments_object(given.get("args"))
        function = {"name": self._names.sent(name), "arguments": to_json(value)}
        call: Json = {"id": call_id, "type": "function", "function": function}
        signature = part.get("thoughtSignature")
        ours = thinking_in(self._maker, signature)[1]
        if signature and not ours and "thought_signature" in self._keep:
            call["provider_specific_fields"] = {"thought_signature": signature}
        return call

    def _new_id(self) -> str:
        """The same in every request that holds the conversation so far."""
        number = len(self._ids)
        while f"call_{number}" in self._ids:
            number += 1
        return f"call_{number}"

    def _said(self, part: Json) -> str:
        if as_text(part.get("text")):
            return as_text(part["text"])
        if code := spelled(part.get("executableCode")):
            language = as_text(code.get("language")).lower().replace("language_unspecified", "")
            return f"\n```{language}\n{as_text(code.get('code'))}\n```\n"
        if result := spelled(part.get("codeExecutionResult")):
            return f"\n```\n{as_text(result.get('output'))}\n```\n"
        self._name_lost(part)
        return ""

    def _name_lost(self, part: Json) -> None:
        for key in part.keys() - _MARKS:
            self._dropped.add(key)

    # The user's turns

    def _user(self, parts: list[Json]) -> None:
        beside: list[Json] = []
        for part in parts:
            if isinstance(part.get("functionResponse"), dict):
                beside += self._result(spelled(part["functionResponse"]))
            else:
                beside += self._shown(part)
        if beside:
            self._open = []
            self._out.append({"role": "user", "content": folded(beside)})

    def _result(self, result: Json) -> list[Json]:
        """The tool message of a result, and the parts that must follow it. A result of no call is
        told in words: hosts refuse one that stands alone."""
        name = as_text(result.get("name"))
        text, call_id = _result_text(result.get("response")), self._answered(result, name)
        media = [shown for part in objects(result.get("parts")) for shown in self._shown(part)]
        if call_id is None:
            return [text_part(f"(The result of {name}:)\n{text}"), *media]
        if media and text in ("", "{}"):
            text = "(The result follows.)"
        self._out.append({"role": "tool", "tool_call_id": call_id, "content": text})
        return [text_part(f"(From the result of {name}:)"), *media] if media else []

    def _answered(self, result: Json, name: str) -> str | None:
        """The id of the call that a result belongs to: by its own, else by the name, in order."""
        wanted = as_text(result.get("id"))
        by_id = [call for call in self._open if wanted and call[1] == wanted]
        by_name = [call for call in self._open if call[0] == name]
        found = next(iter(by_id or by_name), None)
        if found is None:
            return None
        self._open.remove(found)
        return found[1]

    def _shown(self, part: Json) -> list[Json]:
        if as_text(part.get("text")):
            return [text_part(part["text"])]
        if data := spelled(part.get("inlineData")):
            return [self._inline(data)]
        if file := spelled(part.get("fileData")):
            return [self._linked(file)]
        said = self._said(part)
        return [text_part(said)] if said else []

    def _inline(self, data: Json) -> Json:
        mime, body = _mime(data), as_text(data.get("data"))
        body = body.replace("-", "+").replace("_", "/")  # Google's clients may write either
        url = f"data:{mime};base64,{body}"
        major = mime.partition("/")[0]
        if major == "image":
            return {"type": "image_url", "image_url": {"url": url}}
        if mime in _FORMATS:
            return {"type": "input_audio", "input_audio": {"data": body, "format": _FORMATS[mime]}}
        if major == "video":
            return {"type": "video_url", "video_url": {"url": url}}
        text = decoded(body) if major == "text" else None
        if text is not None:
            name = as_text(data.get("displayName"))
            return text_part(f"[Document: {name}]\n{text}" if name else text)
        name = as_text(data.get("displayName")) or f"file.{mime.rpartition('/')[2]}"
        return {"type": "file", "file": {"filename": name, "file_data": url}}

    def _linked(self, file: Json) -> Json:
        """Google's own files are no one else's to read."""
        url, mime = as_text(file.get("fileUri")), _mime(file)
        own = "thought_signature" in self._keep
        if own or (url.startswith("http") and "//generativelanguage." not in url):
            if mime.startswith("image/"):
                return {"type": "image_url", "image_url": {"url": url}}
            if mime.startswith("video/"):
                return {"type": "video_url", "video_url": {"url": url}}
            if own or "file_url" in self._keep:
                return {"type": "file", "file": {"file_id": url, "format": mime}}
        self._dropped.add("fileData")
        return text_part(f"[file not shown: {url}]")


_ANY_IN_BASE64 = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""ANY_SIGNATURE as Google's clients send it, to which signatures are bytes."""


def _parts_of(content: Any) -> list[Json]:
    given = as_dict(content).get("parts")
    texts = [{"text": part} for part in [given] if isinstance(part, str)]
    return texts or list(objects(given))


def _mime(part: Json) -> str:
    mime = as_text(part.get("mimeType")).partition(";")[0].strip().lower()
    return mime or "application/octet-stream"


def _result_text(response: Any) -> str:
    """The documented keys of a result hold all of it; any other object is the result."""
    fields = as_dict(response)
    if len(fields) == 1:
        ((key, value),) = fields.items()
        if key == "error":
            return f"Error: {_written(value)}"
        if key in _RESULT_KEYS:
            return _written(value)
    return _written(response)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else to_json(value)
