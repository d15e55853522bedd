"""Messages requests as chat requests.

Sources: the Anthropic API reference, "Messages"; the OpenAI API reference, "Chat Completions".
LiteLLM's adapter translates tools, tool choice, thinking and structured output; the conversation is
translated here, since the adapter loses documents, errors of tools and the order of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from krouter_adapters.litellm_lane.translate.conversation import Conversation
from krouter_adapters.litellm_lane.translate.shapes import (
    Dropped,
    Json,
    Translated,
    as_dict,
    as_dicts,
    as_list,
    as_text,
    from_json,
    loops_unsigned,
)

Adapt = Callable[[Json], tuple[Json, dict[str, str]]]

_SAME = ("max_tokens", "temperature", "top_p")
_HANDLED = frozenset(
    (
        *_SAME,
        "model",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "stop_sequences",
        "metadata",
        "top_k",
    )
)

# Marks on a tool that change nothing for a host which has no use for them.
_TOOL_MARKS = frozenset(("type", "defer_loading", "eager_input_streaming"))
_TOOL_FIELDS = ("name", "description", "input_schema", "strict")

_EFFORTS = frozenset(("minimal", "low", "medium", "high"))
_ABOVE_HIGH = frozenset(("xhigh", "max"))

# OpenAI refuses a longer `user`; Claude Code's is JSON about the device and the account.
_LONGEST_USER = 64

_REASONING_HOSTS = frozenset(
    (
        "deepseek",
        "moonshot",
        "zai",
        "bigmodel",
        "minimax",
        "dashscope",
        "together_ai",
        "hosted_vllm",
        "xiaomi_mimo",
    )
)
_TOP_K_HOSTS = frozenset(
    (
        "gemini",
        "vertex_ai",
        "bedrock",
        "openrouter",
        "replicate",
        "hosted_vllm",
        "together_ai",
        "fireworks_ai",
        "cohere",
        "cohere_chat",
        "ollama",
        "ollama_chat",
    )
)
_CLAUDE_HOSTS = frozenset(("bedrock", "vertex_ai", "anthropic", "azure_ai", "databricks"))
_CACHE_HOSTS = _CLAUDE_HOSTS | {"openrouter"}


def takes(provider: str, model: str) -> frozenset[str]:
    """What a host is known to take beyond chat, for `keep` of messages_to_chat.

    `reasoning_content`: DeepSeek, Moonshot, Z.ai and others want the reasoning of a running tool
    loop back, while Groq and Mistral refuse the field. `thinking` and `cache_control`: Claude
    behind a class of LiteLLM's that writes Anthropic's form. `prompt_cache_key`: the session id
    that Claude Code hides in its user id.
    """
    claude = "claude" in model.lower()
    fields = {
        "reasoning_content": provider in _REASONING_HOSTS,
        "top_k": provider in _TOP_K_HOSTS,
        "prompt_cache_key": provider in ("openai", "azure"),
        "thinking": claude and provider in _CLAUDE_HOSTS,
        "cache_control": claude and provider in _CACHE_HOSTS,
    }
    return frozenset(name for name, known in fields.items() if known)


def messages_to_chat(body: Json, adapt: Adapt, keep: frozenset[str] = frozenset()) -> Translated:
    """`adapt` is LiteLLM's AnthropicAdapter().translate_completion_input_params_with_tool_mapping;
    `keep` names what the host takes beyond chat, see `takes`."""
    dropped = Dropped()
    base, names = _base(body, adapt, dropped, keep)
    shorter = {own: short for short, own in names.items()}
    conversation = Conversation(shorter, dropped, keep)
    conversation.system(body.get("system"))
    for message in as_dicts(body.get("messages")):
        conversation.add(message)
    out: Json = {"model": body.get("model"), "messages": conversation.messages()}
    out.update((key, base[key]) for key in _FROM_BASE if base.get(key) is not None)
    out.update((key, body[key]) for key in _SAME if body.get(key) is not None)
    _parameters(out, body, dropped, keep)
    for key, value in body.items():
        if key not in _HANDLED and value not in _NOTHING and (key, value) != _DEFAULT_TIER:
            dropped.add(key)
    return Translated(out, names, dropped.names())


_NOTHING: tuple[Any, ...] = (None, [], {})
_DEFAULT_TIER = ("service_tier", "auto")
_FROM_BASE = (
    "tools",
    "tool_choice",
    "reasoning_effort",
    "response_format",
    "stop",
)


def _base(
    body: Json, adapt: Adapt, dropped: Dropped, keep: frozenset[str]
) -> tuple[Json, dict[str, str]]:
    """What LiteLLM makes of all but the conversation.

    It is given a model name it knows and that is not Claude's, for which it would leave `thinking`
    as it is; a name it does not know makes it print.
    """
    tools = _tools(body.get("tools"), dropped, keep)
    asked: Json = {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "."}],
        "tools": tools,
        "tool_choice": _tool_choice(body.get("tool_choice"), tools, dropped),
        "thinking": _thinking(body.get("thinking"), dropped),
        "output_format": _format(body, dropped),
        "stop_sequences": [s for s in as_list(body.get("stop_sequences")) if isinstance(s, str)],
    }
    base, names = adapt({key: value for key, value in asked.items() if value})
    if "cache_control" in keep:
        _mark_tools(as_dicts(base.get("tools")), as_dicts(body.get("tools")), names)
    return base, names


def _tools(tools: Any, dropped: Dropped, keep: frozenset[str]) -> list[Json]:
    out = []
    for tool in as_dicts(tools):
        kind, name = tool.get("type"), as_text(tool.get("name"))
        if kind not in (None, "custom", "function") or not name:
            dropped.add(f"tools.{kind or 'unnamed'}")
            continue
        for key in tool:
            if key == "cache_control":
                if key not in keep:
                    dropped.add(key)
            elif key not in _TOOL_FIELDS and key not in _TOOL_MARKS:
                dropped.add(f"tools.{key}")
        kept = {key: tool[key] for key in _TOOL_FIELDS if tool.get(key) is not None}
        kept.setdefault("input_schema", {"type": "object", "properties": {}})
        out.append(kept)
    return out


def _mark_tools(chat_tools: list[Json], tools: list[Json], names: Mapping[str, str]) -> None:
    marks = {as_text(tool.get("name")): tool.get("cache_control") for tool in tools}
    for tool in chat_tools:
        name = as_text(as_dict(tool.get("function")).get("name"))
        mark = marks.get(names.get(name, name))
        if mark:
            tool["cache_control"] = mark


def _tool_choice(choice: Any, tools: list[Json], dropped: Dropped) -> Json | None:
    fields = as_dict(choice)
    if not fields or not tools:
        if fields and fields.get("type") in ("any", "tool"):
            dropped.add("tool_choice")
        return None
    kind = fields.get("type")
    if kind == "tool" and fields.get("name") in [tool["name"] for tool in tools]:
        return {"type": kind, "name": fields["name"]}
    if kind in ("auto", "any", "none"):
        return {"type": kind}
    dropped.add("tool_choice")
    return None


def _thinking(thinking: Any, dropped: Dropped) -> Json | None:
    fields = as_dict(thinking)
    kind = fields.get("type")
    if kind not in ("enabled", "adaptive", "disabled"):
        if fields:
            dropped.add("thinking")
        return None
    for key in fields:
        if key not in ("type", "budget_tokens"):
            dropped.add(f"thinking.{key}")
    budget = fields.get("budget_tokens")
    if kind != "enabled":
        return {"type": kind}
    return {"type": kind, "budget_tokens": budget if isinstance(budget, int) else 1024}


def _format(body: Json, dropped: Dropped) -> Json | None:
    config = as_dict(body.get("output_config"))
    for key in config:
        if key not in ("format", "effort"):
            dropped.add(f"output_config.{key}")
    wanted = as_dict(body.get("output_format")) or as_dict(config.get("format"))
    if not wanted:
        return None
    if wanted.get("type") != "json_schema" or not isinstance(wanted.get("schema"), dict):
        dropped.add("output_config.format")
        return None
    return {"type": "json_schema", "schema": wanted["schema"]}


def _parameters(out: Json, body: Json, dropped: Dropped, keep: frozenset[str]) -> None:
    if as_dict(body.get("tool_choice")).get("disable_parallel_tool_use") and "tools" in out:
        out["parallel_tool_calls"] = False
    _effort(out, body, dropped)
    _user(out, as_dict(body.get("metadata")), dropped, keep)
    if body.get("top_k") is not None:
        if "top_k" in keep:
            out["top_k"] = body["top_k"]
        else:
            dropped.add("top_k")
    if "thinking" in keep and body.get("thinking"):
        _own_thinking(out, as_dict(body["thinking"]), dropped)


def _own_thinking(out: Json, thinking: Json, dropped: Dropped) -> None:
    """Claude's own field. Claude refuses it in a tool loop that did not begin with thinking."""
    out.pop("reasoning_effort", None)
    if thinking.get("type") == "enabled" and loops_unsigned(out["messages"]):
        dropped.add("thinking")
        return
    out["thinking"] = thinking


def _effort(out: Json, body: Json, dropped: Dropped) -> None:
    """An effort asked for by name is nearer to the caller's wish than LiteLLM's guess from a
    budget. Hosts know no effort above high but OpenAI's newest models."""
    wanted = as_dict(body.get("output_config")).get("effort")
    if wanted is None:
        return
    effort = as_text(wanted)
    if effort not in _EFFORTS and effort not in _ABOVE_HIGH:
        dropped.add("output_config.effort")
        return
    if as_dict(body.get("thinking")).get("type") == "disabled":
        return
    if effort in _ABOVE_HIGH:
        dropped.add(f"output_config.effort={effort}")
    out["reasoning_effort"] = "high" if effort in _ABOVE_HIGH else effort


def _user(out: Json, metadata: Json, dropped: Dropped, keep: frozenset[str]) -> None:
    user = metadata.get("user_id")
    session = as_dict(from_json(as_text(user))).get("session_id")
    if "prompt_cache_key" in keep and 0 < len(as_text(session)) <= _LONGEST_USER:
        out["prompt_cache_key"] = session
    if isinstance(user, str) and 0 < len(user) <= _LONGEST_USER:
        out["user"] = user
    elif user:
        dropped.add("metadata.user_id")
    for key in metadata:
        if key != "user_id":
            dropped.add(f"metadata.{key}")
