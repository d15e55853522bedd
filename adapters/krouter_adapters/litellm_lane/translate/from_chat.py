"""Chat requests, made ready for LiteLLM's classes, and what those classes build, put right.

Sources: the OpenAI API reference, "Chat Completions"; the Anthropic API reference, "Messages",
"Extended thinking" and "Structured outputs"; the Gemini API reference, "generateContent".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from krouter_adapters.litellm_lane.translate.custom_tools import as_function, custom_of
from krouter_adapters.litellm_lane.translate.history import History
from krouter_adapters.litellm_lane.translate.schemas import object_schema, plain_schema
from krouter_adapters.litellm_lane.translate.shapes import (
    Dropped,
    Json,
    Translated,
    as_dict,
    as_dicts,
    as_index,
    as_list,
    as_text,
    loops_unsigned,
)
from krouter_adapters.litellm_lane.ways import Form

_TO_MESSAGES = frozenset(
    (
        "model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "stop",
        "stream",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "reasoning_effort",
        "thinking",
        "user",
        "web_search_options",
    )
)
_TO_GEMINI = _TO_MESSAGES - {"user"} | frozenset(
    (
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "modalities",
        "audio",
        "service_tier",
        "safety_settings",
        "stream_options",
    )
)
# What a reply in a format of its own cannot be read for.
_ONE_CHOICE = ("n", "logprobs", "top_logprobs")

# Values that ask for what happens anyway.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "store": (False,),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "metadata": ({},),
    "verbosity": ("medium",),
    "parallel_tool_calls": (True,),
}


def prepare_chat(body: Json, target: Form) -> Translated:
    """`body` as the target's class can take it. The caller's own object is left as it is."""
    dropped = Dropped()
    out = {key: value for key, value in body.items() if value is not None}
    _legacy_functions(out)
    _tools(out, target, dropped)
    history = History(target, dropped)
    out["messages"] = history.messages(as_list(body.get("messages")))
    _limits(out)
    if target == "messages":
        _for_messages(out, dropped)
    elif target == "gemini":
        _for_gemini(out, dropped)
    elif target == "other":
        _drop(out, _ONE_CHOICE, dropped)
    return Translated(out, {}, dropped.names())


def _legacy_functions(out: Json) -> None:
    functions, choice = out.pop("functions", None), out.pop("function_call", None)
    if as_list(functions) and not out.get("tools"):
        out["tools"] = [{"type": "function", "function": f} for f in as_dicts(functions)]
    if choice is None or "tool_choice" in out:
        return
    name = as_dict(choice).get("name")
    out["tool_choice"] = {"type": "function", "function": {"name": name}} if name else choice


def _tools(out: Json, target: Form, dropped: Dropped) -> None:
    given = out.pop("tools", None)
    if given is not None and not isinstance(given, list):
        dropped.add("tools")
    tools = [kept for tool in as_dicts(given) if (kept := _tool(tool, dropped, target))]
    choice = out.pop("tool_choice", None)
    allowed = as_dict(choice)
    if allowed.get("type") == "allowed_tools":
        tools, choice = _allowed(tools, as_dict(allowed.get("allowed_tools")) or allowed)
    elif custom := custom_of(allowed):
        choice = {"type": "function", "function": {"name": custom["name"]}}
    elif allowed and allowed.get("type") != "function":
        dropped.add(f"tool_choice.{allowed.get('type')}")
        choice = None
    if target == "gemini" and any(tool["function"].get("strict") for tool in tools):
        dropped.add("tools.strict")
    tools = [_with_schema(tool, target, dropped) for tool in tools]
    if not tools:
        out.pop("parallel_tool_calls", None)
        if choice not in (None, "auto", "none"):
            dropped.add("tool_choice")
        return
    out["tools"] = tools
    if choice is not None:
        out["tool_choice"] = choice


def _with_schema(tool: Json, target: Form, dropped: Dropped) -> Json:
    """The tool with a schema that the target's class leaves whole."""
    function = as_dict(tool["function"])
    schema = as_dict(function.get("parameters"))
    if target == "messages" and schema:
        schema, lost = object_schema(schema)
        if lost:
            dropped.add("tools.parameters")
    elif target == "gemini" and schema:
        schema = {"type": "object", "properties": {}}  # see finish_gemini_request
    else:
        return tool
    return {**tool, "function": {**function, "parameters": schema}}


def _tool(tool: Json, dropped: Dropped, target: Form = "other") -> Json | None:
    """A function tool; a custom one becomes one, whose grammar responses alone can hold to. The
    flat form of Responses and Anthropic's own are read too."""
    function = tool.get("function")
    if isinstance(function, dict) and as_text(function.get("name")):
        return {**tool, "type": "function"}
    if custom := custom_of(tool):
        return as_function(custom, Dropped() if target == "responses" else dropped)
    name, kind = as_text(tool.get("name")), tool.get("type")
    anthropic = kind == "custom" and "input_schema" in tool
    if not name or not (anthropic or kind in (None, "function")):
        dropped.add(f"tools.{kind or 'unnamed'}")
        return None
    flat = {key: tool[key] for key in ("name", "description", "strict") if key in tool}
    schema = tool.get("parameters", tool.get("input_schema"))
    return {"type": "function", "function": {**flat, "parameters": schema or {"type": "object"}}}


def _allowed(tools: list[Json], allowed: Json) -> tuple[list[Json], Any]:
    """A choice among some tools is the same as offering only those."""
    names = [
        (custom_of(tool) or as_dict(tool.get("function"))).get("name", tool.get("name"))
        for tool in as_dicts(allowed.get("tools"))
    ]
    kept = [tool for tool in tools if tool["function"]["name"] in names]
    return kept, "required" if allowed.get("mode") == "required" else "auto"


def _limits(out: Json) -> None:
    """The newer name wins, since classes that map it would send both."""
    if "max_completion_tokens" in out:
        out.pop("max_tokens", None)


def _for_messages(out: Json, dropped: Dropped) -> None:
    out.pop("stream_options", None)
    _drop_others(out, _TO_MESSAGES, dropped)
    if as_dict(out.get("response_format")).get("type") == "json_object":
        dropped.add("response_format.json_object")
    if as_dict(out.get("response_format")).get("type") != "json_schema":
        out.pop("response_format", None)
    # Anthropic asks for no personal data in a user id.
    if "@" in str(out.get("user", "")):
        dropped.add("user")
        del out["user"]
    stops = [out["stop"]] if isinstance(out.get("stop"), str) else as_list(out.get("stop"))
    kept = [stop for stop in stops if isinstance(stop, str) and stop.strip()]
    if len(kept) < len(stops):
        dropped.add("stop")
    out.pop("stop", None)
    if kept:
        out["stop"] = kept


def _for_gemini(out: Json, dropped: Dropped) -> None:
    _drop_others(out, _TO_GEMINI, dropped)
    if out.get("parallel_tool_calls") is False:
        dropped.add("parallel_tool_calls")
        del out["parallel_tool_calls"]


def _drop_others(out: Json, known: frozenset[str], dropped: Dropped) -> None:
    _drop(out, [key for key in out if key not in known], dropped)


def _drop(out: Json, keys: Iterable[str], dropped: Dropped) -> None:
    for key in keys:
        if out.pop(key, None) not in (None, *_NEUTRAL.get(key, ())):
            dropped.add(key)


_LEAST_BUDGET = 1024


def finish_gemini_request(data: Json, original: Json) -> tuple[Json, list[str]]:
    """The Gemini body LiteLLM built from the chat body `original`, with the tools' own schemas:
    LiteLLM cuts them down to `parameters`, which older Gemini models were limited to."""
    dropped = Dropped()
    with_tools = dict(original)
    _legacy_functions(with_tools)
    schemas: dict[str, Json] = {}
    for tool in as_dicts(with_tools.get("tools")):
        function = as_dict(as_dict(_tool(tool, Dropped())).get("function"))
        schemas[as_text(function.get("name"))] = as_dict(function.get("parameters"))
    tools = [_declared(tool, schemas, dropped) for tool in as_dicts(data.get("tools"))]
    if "thinkingConfig" not in as_dict(data.get("generationConfig")):
        _name_unthought(original, dropped)
    return {**data, **({"tools": tools} if tools else {})}, dropped.names()


def _declared(tool: Json, schemas: dict[str, Json], dropped: Dropped) -> Json:
    key = "function_declarations"
    if key not in tool:
        return tool
    declared = []
    for function in as_dicts(tool[key]):
        out = {name: value for name, value in function.items() if name != "parameters"}
        if schema := schemas.get(as_text(function.get("name"))):
            out["parametersJsonSchema"], lost = plain_schema(schema)
            if lost:
                dropped.add("tools.parameters")
        declared.append(out)
    return {**tool, key: declared}


def _name_unthought(original: Json, dropped: Dropped) -> None:
    """Thinking that was asked for and is not sent, since LiteLLM knows no such of the model."""
    if original.get("reasoning_effort") not in (None, "none", "disable", "default"):
        dropped.add("reasoning_effort")
    if as_dict(original.get("thinking")).get("type") in ("enabled", "adaptive"):
        dropped.add("thinking")


_MOST_OF_OLD_CLAUDE, _MOST_OF_UNKNOWN = 4096, 8192
_OLD_CLAUDE = re.compile(r"claude-(v?[12]\b|instant|3-(opus|sonnet|haiku))")


_PLACEHOLDER = "dummy_tool"
"""The class adds a tool of this name where a history with calls comes without tools, which
Anthropic refuses."""


def finish_messages_request(data: Json, original: Json, most: int | None) -> tuple[Json, list[str]]:
    """The Anthropic body LiteLLM built from the chat body `original`, with what Anthropic would
    refuse taken out. `most` is how many tokens the model can write, where LiteLLM knows it."""
    dropped = Dropped()
    out = dict(data)
    if any(tool.get("name") == _PLACEHOLDER for tool in as_dicts(out.get("tools"))):
        out["tool_choice"] = {"type": "none"}
    _limit(out, original, most)
    if "thinking" not in out and "effort" not in as_dict(out.get("output_config")):
        _name_unthought(original, dropped)
    _think(out, dropped)
    temperature = out.get("temperature")
    if isinstance(temperature, int | float) and temperature > 1:
        out["temperature"] = 1
        dropped.add(f"temperature={temperature}")
    # Claude 4.5 and later refuse both together.
    if "temperature" in out and "top_p" in out:
        del out["top_p"]
        dropped.add("top_p")
    _strict(out, original, dropped)
    return out, dropped.names()


def _limit(out: Json, original: Json, most: int | None) -> None:
    """Anthropic must be told a limit, and refuses one that the model cannot reach."""
    asked = (original.get(name) for name in ("max_tokens", "max_completion_tokens"))
    if most is not None or any(limit is not None for limit in asked):
        return
    is_old = _OLD_CLAUDE.search(as_text(original.get("model")).lower())
    thought = as_index(as_dict(out.get("thinking")).get("budget_tokens")) or 0
    out["max_tokens"] = (_MOST_OF_OLD_CLAUDE if is_old else _MOST_OF_UNKNOWN) + thought


def _think(out: Json, dropped: Dropped) -> None:
    thinking = as_dict(out.get("thinking"))
    if thinking.get("type") not in ("enabled", "adaptive"):
        return
    if not _can_think(out, thinking):
        del out["thinking"]
        dropped.add("reasoning_effort")
        return
    budget, most = as_index(thinking.get("budget_tokens")), as_index(out.get("max_tokens"))
    if budget is not None and most is not None and budget >= most:
        out["thinking"] = {**thinking, "budget_tokens": max(_LEAST_BUDGET, most // 2)}
    for key in ("temperature", "top_k"):
        if key in out and out[key] != 1:
            del out[key]
            dropped.add(key)
    top_p = out.get("top_p")
    if isinstance(top_p, int | float) and top_p < 0.95:
        del out["top_p"]
        dropped.add("top_p")


def _can_think(out: Json, thinking: Json) -> bool:
    """Anthropic refuses thinking with a forced tool, with no room for it, and in a tool loop that
    did not begin with it; adaptive thinking may begin anywhere."""
    if as_dict(out.get("tool_choice")).get("type") in ("any", "tool"):
        return False
    if thinking.get("type") == "adaptive":
        return True
    most = as_index(out.get("max_tokens"))
    if most is not None and most <= _LEAST_BUDGET:
        return False
    return not loops_unsigned(as_dicts(out.get("messages")))


def _strict(out: Json, original: Json, dropped: Dropped) -> None:
    """Some models' classes leave out `strict`."""
    asked = any(
        as_dict(tool.get("function")).get("strict") for tool in as_dicts(original.get("tools"))
    )
    if asked and not any(tool.get("strict") for tool in as_dicts(out.get("tools"))):
        dropped.add("tools.strict")
