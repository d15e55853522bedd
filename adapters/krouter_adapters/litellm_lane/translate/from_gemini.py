"""Gemini requests as chat requests.

Sources: the Gemini API reference, "Generating content"; the OpenAI API reference, "Chat
Completions".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from krouter_adapters.litellm_lane.translate.from_messages import takes
from krouter_adapters.litellm_lane.translate.gemini_contents import Contents
from krouter_adapters.litellm_lane.translate.gemini_shapes import (
    Names,
    ToldOfGemini,
    json_schema,
    listed,
    objects,
    spelled,
)
from krouter_adapters.litellm_lane.translate.shapes import (
    Dropped,
    Json,
    Translated,
    as_dict,
    as_index,
    as_text,
)
from krouter_adapters.litellm_lane.ways import Form

_SAME: Mapping[str, str] = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_IN_CONFIG = frozenset(
    (
        *_SAME,
        "topK",
        "stopSequences",
        "candidateCount",
        "responseLogprobs",
        "logprobs",
        "responseMimeType",
        "responseSchema",
        "responseJsonSchema",
        "_responseJsonSchema",
        "thinkingConfig",
    )
)
_HANDLED = frozenset(
    ("model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig")
)
# Values that ask for what happens anyway.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "responseModalities": (["TEXT"], []),
    "safetySettings": ([],),
    "labels": ({},),
}
_DECLARED = frozenset(("name", "description", "parameters", "parametersJsonSchema"))
_MODES = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}
_LEVELS = frozenset(("minimal", "low", "medium", "high"))
_LEAST_BUDGET = 1024
# From how many tokens of thinking on an effort is meant, as LiteLLM reads budgets.
_EFFORTS = ((10_000, "high"), (5_000, "medium"), (0, "low"))


def takes_of_gemini(provider: str, model: str, form: Form) -> frozenset[str]:
    """What a host takes beyond chat, for `keep` of gemini_to_chat: what `takes` knows, blocks of
    thinking and addresses of files where the body is to be one of messages, and signatures where
    it is to be one of Gemini's."""
    more = {"messages": {"thinking", "file_url"}, "gemini": {"thought_signature"}}
    return takes(provider, model) | more.get(form, set())


def gemini_to_chat(
    body: Json, keep: frozenset[str] = frozenset(), maker: str = ""
) -> tuple[Translated, ToldOfGemini]:
    """A request in chat form, and what its reply must know of it. `keep` names what the host takes
    beyond chat (see `takes_of_gemini`), `maker` who takes its own thinking back."""
    fields, dropped = spelled(body), Dropped()
    names = Names(kept="thought_signature" in keep)
    declared = _declared(fields.get("tools"), dropped)
    names.declare(tool["name"] for tool in declared)
    contents = Contents(names, dropped, keep, maker)
    contents.system(fields.get("systemInstruction"))
    for content in objects(fields.get("contents")):
        contents.add(content)
    out: Json = {"model": fields.get("model"), "messages": contents.messages()}
    _tools(out, declared, spelled(fields.get("toolConfig")), names, dropped)
    config = spelled(fields.get("generationConfig"))
    _config(out, config, dropped, keep)
    thinking = spelled(config.get("thinkingConfig"))
    _thinking(out, thinking, dropped, keep)
    for given, known in ((fields, _HANDLED), (config, _IN_CONFIG)):
        for key, value in given.items():
            if key not in known and value is not None and value not in _NEUTRAL.get(key, ()):
                dropped.add(key)
    told = ToldOfGemini(maker=maker, thoughts=thinking.get("includeThoughts") is True)
    return Translated(out, names.own, dropped.names()), told


def _declared(tools: Any, dropped: Dropped) -> list[Json]:
    out: list[Json] = []
    for tool in objects(tools):
        functions = objects(tool.pop("functionDeclarations", None))
        out += (function for function in functions if as_text(function.get("name")))
        for key, value in tool.items():
            if value is not None:
                dropped.add(f"tools.{key}")
    return out


def _function(declared: Json, names: Names, dropped: Dropped) -> Json:
    for key in declared.keys() - _DECLARED:
        dropped.add(f"tools.{key}")
    schema = as_dict(declared.get("parametersJsonSchema")) or json_schema(
        declared.get("parameters")
    )
    function: Json = {"name": names.sent(declared["name"])}
    if as_text(declared.get("description")):
        function["description"] = declared["description"]
    function["parameters"] = schema or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def _tools(
    out: Json, declared: list[Json], tool_config: Json, names: Names, dropped: Dropped
) -> None:
    choosing = spelled(tool_config.pop("functionCallingConfig", None))
    for key, value in tool_config.items():
        if value is not None:
            dropped.add(f"toolConfig.{key}")
    mode = _MODES.get(as_text(choosing.get("mode")).upper())
    allowed = [name for name in listed(choosing.get("allowedFunctionNames")) if name]
    offered = [tool for tool in declared if not allowed or tool["name"] in allowed]
    if not offered:
        if mode == "required":
            dropped.add("toolConfig")
        return
    out["tools"] = [_function(tool, names, dropped) for tool in offered]
    if mode == "required" and len(offered) == len(allowed) == 1:
        function = {"name": names.sent(offered[0]["name"])}
        out["tool_choice"] = {"type": "function", "function": function}
    elif mode:
        out["tool_choice"] = mode


def _config(out: Json, config: Json, dropped: Dropped, keep: frozenset[str]) -> None:
    for own, name in _SAME.items():
        if config.get(own) is not None:
            out[name] = config[own]
    if config.get("topK") is not None:
        if "top_k" in keep:
            out["top_k"] = config["topK"]
        else:
            dropped.add("topK")
    if stops := [stop for stop in listed(config.get("stopSequences")) if as_text(stop)]:
        out["stop"] = stops
    if config.get("candidateCount") not in (None, 1):
        dropped.add("candidateCount")
    if config.get("responseLogprobs") is True:
        out["logprobs"] = True
        if as_index(config.get("logprobs")):
            out["top_logprobs"] = config["logprobs"]
    _format(out, config, dropped)


def _format(out: Json, config: Json, dropped: Dropped) -> None:
    schema = as_dict(config.get("responseJsonSchema") or config.get("_responseJsonSchema"))
    schema = schema or json_schema(config.get("responseSchema"))
    mime = as_text(config.get("responseMimeType")).lower()
    if mime == "application/json" or (schema and not mime):
        out["response_format"] = (
            {"type": "json_schema", "json_schema": {"name": "response", "schema": schema}}
            if schema
            else {"type": "json_object"}
        )
    elif mime not in ("", "text/plain"):
        dropped.add("responseMimeType")


def _thinking(out: Json, thinking: Json, dropped: Dropped, keep: frozenset[str]) -> None:
    for key in thinking.keys() - {"includeThoughts", "thinkingBudget", "thinkingLevel"}:
        dropped.add(f"thinkingConfig.{key}")
    level = as_text(thinking.get("thinkingLevel")).lower()
    budget = as_index(thinking.get("thinkingBudget"))
    if level in _LEVELS:
        out["reasoning_effort"] = level
    elif budget is not None and budget > 0:
        if "thinking" in keep:
            tokens = max(budget, _LEAST_BUDGET)
            out["thinking"] = {"type": "enabled", "budget_tokens": tokens}
        else:
            least = (effort for from_on, effort in _EFFORTS if budget >= from_on)
            out["reasoning_effort"] = next(least)
