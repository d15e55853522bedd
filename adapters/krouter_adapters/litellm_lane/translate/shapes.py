"""What both directions share: reading loose JSON, ids, finish reasons, usage."""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
from dataclasses import dataclass, field
from typing import Any

import msgspec

from krouter.body import dump
from krouter.dialects.base import Usage, as_count
from krouter.dialects.chat import read_usage

Json = dict[str, Any]

FAILED = "error"
"""How a reply ends that its provider did not bring to an end."""

FINISH_OF = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "content_filter",
    FAILED: FAILED,
}
"""Stop reasons of messages in the words of chat. A paused turn is not finished, which chat can only
call `length`."""

# Finish and stop reasons as hosts are known to say them, by what they mean in messages.
_WORDS = {
    "end_turn": "stop end_turn eos eos_token eos_found end_of_text end_of_sequence end_id normal"
    " complete completed finished done final load stop_words alternative_status_final",
    "stop_sequence": "stop_sequence stop_string_found",
    "tool_use": "tool_use tool_call tool_calls function_call function_calls",
    "max_tokens": "length max_tokens max_output_tokens max_length max_len max_context model_length"
    " maximum_tokens max_predicted_tokens_reached context_length_reached error_limit limit"
    " time_limit incomplete not_finished continuation compaction repetition repetition_truncation"
    " alternative_status_truncated_final",
    "model_context_window_exceeded": "model_context_window_exceeded",
    "pause_turn": "pause_turn",
    "refusal": "refusal content_filter content_filtered safety sensitive recitation blacklist"
    " blocklist prohibited_content spii language image_safety model_armor guardrail_intervened"
    " error_toxic alternative_status_content_filter",
    FAILED: "error failed abort aborted cancelled canceled user_cancel timed_out network_error"
    " insufficient_system_resource malformed_function_call malformed_response malformed_tool_use"
    " malformed_model_output unexpected_tool_call too_many_tool_calls missing_thought_signature"
    " unload model_unloaded",
}
_MEANS = {word: reason for reason, words in _WORDS.items() for word in words.split()}

# What a word not known sounds like; the first that fits counts.
_SOUNDS = tuple(
    (reason, re.compile(sound))
    for reason, sound in (
        (
            FAILED,
            r"error|fail|abort|cancel|time_?d?_?out|interrupt|insufficient|malform|invalid|quota"
            r"|unexpected|disconnect|overload|unavailable|killed|preempt|rate_limit",
        ),
        (
            "refusal",
            r"filter|safety|sensitive|block|policy|moderat|prohibit|guardrail|refus|violat",
        ),
        ("end_turn", r"^(stop|end|eo[stmd])_?(token|word|turn|sequence|string|id|of)"),
        ("max_tokens", r"incomplete|not_|max|length|limit|trunc|token|exceed|budget|(^|_)cut"),
    )
)


def ending(word: Any, *, said: bool) -> str:
    """What a finish or stop reason of any host means: a stop reason of messages, or FAILED. A word
    that says nothing is the end of a reply that `said` something, and of none a failure."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", as_text(word).strip()).lower()
    plain = plain.replace("-", "_").removeprefix("finish_reason_").removeprefix("reason_")
    if plain in _MEANS:
        return _MEANS[plain]
    for reason, sound in _SOUNDS:
        if sound.search(plain):
            return reason
    return "end_turn" if said else FAILED


def failed_with(word: Any) -> Json:
    """The error of a reply that ended with a word that says so."""
    return {"message": f"The provider ended the reply with {word!r}.", "code": as_text(word)[:80]}


NAMELESS: Json = {"message": "The provider sent a tool call without a name."}
CUT_CALL: Json = {"message": "The provider broke off in the arguments of a tool call."}


@dataclass(slots=True)
class Translated:
    """A translated request. `names` maps tool names as sent to the caller's own; `dropped` names
    what could not be carried over."""

    body: Json
    names: dict[str, str] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.=-]")


class Dropped:
    """Names of what was left out, each once, in the order met. They go into a header, and some are
    the caller's own words."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def add(self, name: Any) -> None:
        self._names.setdefault(_NOT_IN_NAMES.sub("_", str(name)[:80]))

    def add_thinking(self) -> None:
        """Thinking that the host has not signed, under the name that it has in native calls too."""
        self._names.setdefault("thinking of another provider")

    def names(self) -> list[str]:
        return list(self._names)


def as_dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_dicts(value: Any) -> list[Json]:
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_index(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def to_json(value: Any) -> str:
    """JSON text; an empty object where the value cannot be written."""
    try:
        return dump(value).decode()
    except (RecursionError, TypeError, ValueError, msgspec.MsgspecError):
        return "{}"


def from_json(text: str) -> Any:
    """The value, or None where the text is no JSON even to clients that read loosely."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except (UnicodeEncodeError, RecursionError, msgspec.MsgspecError):
        pass
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def quoted(text: str) -> bytes:
    """A JSON string."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return dump(text)


def arguments_text(value: Any) -> str:
    """Arguments of a call as chat carries them: JSON text. Some hosts send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value)


def arguments_object(text: Any) -> tuple[Json, bool]:
    """Arguments as an object, and whether they had to be changed for it: messages and gemini take
    nothing else. Text that is no JSON is kept under `input`."""
    if isinstance(text, dict):
        return text, False
    value = from_json(text) if isinstance(text, str) else text
    if isinstance(value, str):
        value = from_json(value) if isinstance(from_json(value), dict) else value
    if isinstance(value, dict):
        return value, False
    if value is None:
        rest = as_text(text).strip()
        return ({"input": rest}, True) if rest not in ("", "null") else ({}, False)
    return ({"input": value}, True) if value != "" else ({}, False)


def broken(arguments: Any) -> bool:
    """Whether the arguments of a call are JSON that breaks off, or no JSON at all."""
    text = as_text(arguments).strip()
    return text not in ("", "null") and from_json(text) is None


def part_text(content: Any) -> str:
    """The text of a content field: a string, or text parts joined."""
    if isinstance(content, str):
        return content
    return "".join(as_text(part.get("text")) for part in as_dicts(content))


def text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def folded(parts: list[Json]) -> Any:
    """The content of a message: a single plain text is a string, since every host takes that."""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return parts[0]["text"]
    return parts


THINKING = ("thinking", "redacted_thinking")


def loops_unsigned(messages: list[Json]) -> bool:
    """Whether a tool loop is running that did not begin with Claude's thinking, which refuses to
    begin within one. The messages are in either form."""
    last = next((m for m in reversed(messages) if m.get("role") == "assistant"), {})
    blocks = [*as_dicts(last.get("thinking_blocks")), *as_dicts(last.get("content"))]
    calls = last.get("tool_calls") or any(block.get("type") == "tool_use" for block in blocks)
    begun = blocks[0].get("type") if blocks else None
    return bool(calls) and begun not in THINKING


# Ids. Anthropic takes only these characters in the id of a tool call; ids of other hosts, Gemini's
# with a thought signature among them, are wrapped so that they come back as they were.
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]+")
_WRAPPED = "toolu_b64_"


def tool_id_out(value: Any) -> str:
    text = as_text(value)
    if not text:
        return new_id("toolu_")
    if _PLAIN_ID.fullmatch(text) and not text.startswith(_WRAPPED):
        return text
    raw = text.encode("utf-8", "surrogatepass")
    return _WRAPPED + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def tool_id_back(value: Any) -> str:
    text = as_text(value)
    if not text.startswith(_WRAPPED):
        return text
    code = text[len(_WRAPPED) :]
    try:
        raw = base64.b64decode(code + "=" * (-len(code) % 4), altchars=b"-_", validate=True)
        return raw.decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        return text


def new_id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:24]


def prefixed_id(value: Any, prefix: str) -> str:
    """The provider's own id, recognisable in the other dialect."""
    text = as_text(value)
    if not text:
        return new_id(prefix)
    return text if text.startswith(prefix) else prefix + text


def beside_calls(finish: str, *, calls: Any) -> str:
    """Many hosts say `stop` beside tool calls too."""
    return "tool_calls" if finish == "stop" and calls else finish


def stop_reason(reason: str, *, calls: bool, refused: bool = False, stopped_by: Any = None) -> str:
    """The stop reason of a whole reply that ended for `reason`."""
    if FINISH_OF[reason] not in ("stop", "tool_calls"):
        return reason
    if beside_calls("stop", calls=calls) == "tool_calls":
        return "tool_use"
    if refused:
        return "refusal"
    return "stop_sequence" if stopped_by or reason == "stop_sequence" else "end_turn"


def finish_reason(reason: str, *, calls: bool) -> str:
    """The finish reason of a whole reply that ended for `reason`."""
    return beside_calls(FINISH_OF[reason], calls=calls)


def usage_to_messages(usage: Any) -> dict[str, int]:
    """Chat counts the whole prompt; messages leaves out of `input_tokens` what the cache served or
    stored."""
    counted = read_usage(usage) or Usage()
    read = min(counted.cached, counted.input)
    wrote = min(counted.cache_write, counted.input - read)
    return {
        "input_tokens": counted.input - read - wrote,
        "cache_creation_input_tokens": wrote,
        "cache_read_input_tokens": read,
        "output_tokens": counted.output,
    }


def usage_to_chat(usage: Any) -> Json:
    fields = as_dict(usage)
    read = as_count(fields.get("cache_read_input_tokens"))
    wrote = as_count(fields.get("cache_creation_input_tokens"))
    prompt = as_count(fields.get("input_tokens")) + read + wrote
    output = as_count(fields.get("output_tokens"))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": wrote},
    }
