"""Responses requests as chat requests.

Sources: the OpenAI API reference, "Responses" and "Chat Completions".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from krouter.dialects.tool_names import Tools
from krouter_adapters.litellm_lane.translate.from_messages import takes
from krouter_adapters.litellm_lane.translate.responses_input import Input
from krouter_adapters.litellm_lane.translate.responses_shapes import Told, echo_of
from krouter_adapters.litellm_lane.translate.responses_tools import choice_to_chat, tools_to_chat
from krouter_adapters.litellm_lane.translate.shapes import (
    Dropped,
    Json,
    Translated,
    as_dict,
    as_dicts,
    as_list,
    as_text,
    loops_unsigned,
)
from krouter_adapters.litellm_lane.ways import Form

_SAME = ("temperature", "top_p", "user")
_OPENAI = ("openai", "azure")
_OPENAI_FIELDS = (
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "verbosity",
    "effort",
)
_HANDLED = frozenset(
    (
        *_SAME,
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
        "max_output_tokens",
        "include",
        "stream",
        "stream_options",
    )
)

# Values that ask for what happens anyway. Nothing is stored; reasoning always comes back
# sealed.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "background": (False,),
    "include": ([],),
    "metadata": ({},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
    "verbosity": ("medium",),
}
_INCLUDED = "reasoning.encrypted_content"
_EFFORTS = frozenset(("minimal", "low", "medium", "high"))
_ABOVE_HIGH = frozenset(("xhigh", "max"))


def takes_of_responses(provider: str, model: str, form: Form) -> frozenset[str]:
    """What a host takes beyond chat, for `keep` of responses_to_chat: what `takes` knows,
    OpenAI's own fields, and blocks of thinking and addresses of files where the body is to be one
    of messages. `own_loops`: Claude as another service hosts it."""
    known = takes(provider, model)
    if form == "messages":
        return known | {"thinking", "file_url"}
    own = _OPENAI_FIELDS if provider in _OPENAI else ()
    return known | frozenset(own) | ({"own_loops"} if "thinking" in known else set())


@dataclass(slots=True)
class Carried:
    """A request in chat form, and what its reply must know of it."""

    translated: Translated
    told: Told


def responses_to_chat(body: Json, keep: frozenset[str] = frozenset(), maker: str = "") -> Carried:
    """`keep` names what the host takes beyond chat (see `takes_of_responses`), `maker` who takes
    its own reasoning back."""
    dropped = Dropped()
    tools = Tools()
    chat_tools = tools_to_chat(_offered(body), tools, dropped)
    chat_tools, choice = choice_to_chat(body.get("tool_choice"), chat_tools, tools, dropped)
    out: Json = {
        "model": body.get("model"),
        "messages": _messages(body, tools, dropped, keep, maker),
    }
    if chat_tools:
        out["tools"] = chat_tools
        if choice is not None:
            out["tool_choice"] = choice
        if body.get("parallel_tool_calls") is False:
            out["parallel_tool_calls"] = False
    out.update((key, body[key]) for key in _SAME if body.get(key) is not None)
    if body.get("max_output_tokens") is not None:
        out["max_tokens"] = body["max_output_tokens"]
    _text(out, as_dict(body.get("text")), dropped, keep)
    _reasoning(out, as_dict(body.get("reasoning")), dropped, keep)
    _rest(out, body, dropped, keep)
    return Carried(Translated(out, {}, dropped.names()), Told(tools.by_name, echo_of(body), maker))


def _offered(body: Json) -> list[Any]:
    """The tools of the request, and those that a search for tools has found."""
    found = [
        tool
        for item in as_dicts(body.get("input"))
        if item.get("type") == "tool_search_output"
        for tool in as_list(item.get("tools"))
    ]
    return [*as_list(body.get("tools")), *found]


def _messages(
    body: Json, tools: Tools, dropped: Dropped, keep: frozenset[str], maker: str
) -> list[Json]:
    given = body.get("input")
    collected = Input(tools, dropped, keep, maker)
    if as_text(body.get("instructions")):
        collected.add({"role": "system", "content": body["instructions"]})
    for item in [given] if isinstance(given, str | dict) else as_list(given):
        collected.add(item)
    return collected.messages()


def _text(out: Json, text: Json, dropped: Dropped, keep: frozenset[str]) -> None:
    for key in text:
        if key not in ("format", "verbosity"):
            dropped.add(f"text.{key}")
    wanted = as_dict(text.get("format"))
    match wanted.get("type"):
        case None | "text":
            pass
        case "json_schema":
            schema = {key: value for key, value in wanted.items() if key != "type"}
            out["response_format"] = {"type": "json_schema", "json_schema": schema}
        case "json_object":
            out["response_format"] = {"type": "json_object"}
        case kind:
            dropped.add(f"text.format.{kind}")
    _optional(out, "verbosity", text.get("verbosity"), dropped, keep, "text.verbosity")


def _reasoning(out: Json, reasoning: Json, dropped: Dropped, keep: frozenset[str]) -> None:
    """Hosts know no effort above high, and none below minimal, but OpenAI's newest models. What is
    told of the reasoning is the host's choice."""
    for key in reasoning:
        if key not in ("effort", "summary", "generate_summary"):
            dropped.add(f"reasoning.{key}")
    effort = reasoning.get("effort")
    if effort is None:
        return
    if "effort" in keep or effort in _EFFORTS:
        out["reasoning_effort"] = effort
    elif effort in _ABOVE_HIGH:
        out["reasoning_effort"] = "high"
        dropped.add(f"reasoning.effort={effort}")
    else:
        dropped.add(f"reasoning.effort={effort}" if effort == "none" else "reasoning.effort")
    if "own_loops" in keep and loops_unsigned(out["messages"]) and "reasoning_effort" in out:
        # Claude refuses to think in a tool loop that did not begin with it.
        del out["reasoning_effort"]
        dropped.add("reasoning.effort")


def _optional(
    out: Json, name: str, value: Any, dropped: Dropped, keep: frozenset[str], own: str
) -> None:
    if value is None or value in _NEUTRAL.get(name, ()):
        return
    if name in keep:
        out[name] = value
    else:
        dropped.add(own)


def _rest(out: Json, body: Json, dropped: Dropped, keep: frozenset[str]) -> None:
    for wanted in as_list(body.get("include")):
        if wanted != _INCLUDED:
            dropped.add(f"include.{wanted}")
    for key, value in body.items():
        if key not in _HANDLED:
            _optional(out, key, value, dropped, keep, key)
    options = as_dict(body.get("stream_options"))
    for key in options:
        if key not in ("include_obfuscation", "include_usage"):
            dropped.add(f"stream_options.{key}")
