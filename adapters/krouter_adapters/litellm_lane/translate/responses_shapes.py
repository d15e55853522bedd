"""What both directions of responses share: tools by the names they have in chat, the envelope of a
reply, counts.

Source: the OpenAI API reference, "Responses".
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from krouter.dialects.base import Usage, as_count
from krouter.dialects.chat import read_usage
from krouter_adapters.litellm_lane.translate.shapes import (
    Json,
    arguments_object,
    as_dict,
    as_dicts,
    as_text,
    to_json,
)

_LONGEST_NAME = 64
_NOT_IN_TOOL_NAMES = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the caller's. A custom one takes any text: chat gives it as the one argument
    `input` of a function."""

    name: str
    kind: Literal["function", "custom"] = "function"
    namespace: str = ""


@dataclass(slots=True)
class Tools:
    """The caller's tools by their names in chat, which has no namespaces."""

    by_name: dict[str, Tool] = field(default_factory=dict)
    _names: dict[tuple[str, str], str] = field(default_factory=dict)

    def name_of(self, tool: Tool) -> str:
        """The tool's name in chat; the same each time it is asked."""
        key = (tool.namespace, tool.name)
        if key not in self._names:
            name = self._free(tool)
            self._names[key] = name
            self.by_name[name] = tool
        return self._names[key]

    def find(self, name: str, namespace: str = "") -> str | None:
        """The name in chat of a tool that is known."""
        found = self._names.get((namespace, name))
        if found or namespace:
            return found
        return next((sent for (_, own), sent in self._names.items() if own == name), None)

    def _free(self, tool: Tool) -> str:
        between = "" if not tool.namespace or tool.namespace.endswith("_") else "__"
        whole = tool.namespace + between + tool.name
        fits = _NOT_IN_TOOL_NAMES.sub("_", whole) or "tool"
        if fits == whole and len(fits) <= _LONGEST_NAME and fits not in self.by_name:
            return fits
        mark = hashlib.blake2b(
            f"{tool.namespace}\0{tool.name}".encode("utf-8", "replace"), digest_size=4
        )
        return f"{fits[: _LONGEST_NAME - 9]}_{mark.hexdigest()}"


def custom_input(arguments: str) -> str:
    """What a custom tool is given, from the arguments of the function it was in chat."""
    value, _ = arguments_object(arguments)
    given = value.get("input")
    if isinstance(given, str) and len(value) == 1:
        return given
    return to_json(value) if value else ""


@dataclass(frozen=True, slots=True)
class Told:
    """What a reply must know of its request. `echo` are fields that it repeats;
    `maker` is who signs its reasoning."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    echo: Mapping[str, Any] = field(default_factory=dict)
    maker: str = ""


_ECHOED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "user": None,
}


def echo_of(body: Mapping[str, Any]) -> Json:
    """The fields of a request that its reply repeats; clients read some without asking whether they
    are there. Nothing is stored, whatever was asked for."""
    found = {name: body.get(name) for name in _ECHOED}
    return {name: _ECHOED[name] if value is None else value for name, value in found.items()}


def envelope(response_id: str, model: str, echo: Mapping[str, Any]) -> Json:
    """A response that has only begun."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "previous_response_id": None,
        "service_tier": "default",
        "store": False,
        "top_logprobs": 0,
        "truncation": "disabled",
        "usage": None,
        **echo,
    }


def usage_to_responses(usage: Any) -> Json:
    counted = read_usage(usage) or Usage()
    details = as_dict(as_dict(usage).get("completion_tokens_details"))
    return {
        "input_tokens": counted.input,
        "input_tokens_details": {
            "cached_tokens": counted.cached,
            "cache_write_tokens": counted.cache_write,
        },
        "output_tokens": counted.output,
        "output_tokens_details": {"reasoning_tokens": as_count(details.get("reasoning_tokens"))},
        "total_tokens": counted.input + counted.output,
    }


def usage_from_responses(usage: Any) -> Json:
    fields = as_dict(usage)
    given, told = as_dict(fields.get("input_tokens_details")), fields.get("output_tokens_details")
    prompt, output = as_count(fields.get("input_tokens")), as_count(fields.get("output_tokens"))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {
            "cached_tokens": as_count(given.get("cached_tokens")),
            "cache_write_tokens": as_count(given.get("cache_write_tokens")),
        },
        "completion_tokens_details": {
            "reasoning_tokens": as_count(as_dict(told).get("reasoning_tokens"))
        },
    }


def reasoning_text(item: Json) -> str:
    """What a reasoning item says in the clear."""
    return "\n\n".join(_texts(item.get("summary"))) or "".join(_texts(item.get("content")))


def _texts(parts: Any) -> Iterator[str]:
    return filter(None, (as_text(part.get("text")) for part in as_dicts(parts)))
