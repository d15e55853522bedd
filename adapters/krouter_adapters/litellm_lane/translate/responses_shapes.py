"""What both directions of responses share: the envelope of a reply, counts.

Source: the OpenAI API reference, "Responses".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from krouter.dialects.base import Usage, as_count
from krouter.dialects.chat import read_usage
from krouter.dialects.tool_names import Tool
from krouter_adapters.litellm_lane.translate.shapes import (
    Json,
    arguments_object,
    as_dict,
    as_dicts,
    as_text,
    to_json,
)


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
