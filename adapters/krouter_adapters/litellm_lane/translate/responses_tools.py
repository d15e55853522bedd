"""The tools of a responses request, as chat has them.

Source: the OpenAI API reference, "Responses"; the tools of Codex (namespaces of nested tools).
"""

from __future__ import annotations

from typing import Any

from krouter.dialects.text_tools import as_function, has_grammar, takes_text
from krouter.dialects.tool_names import Tool, Tools, each_tool
from krouter_adapters.litellm_lane.translate.shapes import (
    Dropped,
    Json,
    as_dict,
    as_dicts,
    as_text,
)

_FIELDS = frozenset(("type", "name", "description", "parameters", "strict", "format"))
# Marks on a tool that change nothing for a host which has no use for them.
_MARKS = frozenset(("defer_loading", "allowed_callers", "output_schema"))


def tools_to_chat(given: Any, tools: Tools, dropped: Dropped) -> list[Json]:
    """Function tools. A custom tool becomes one too; tools that the API itself runs have nobody to
    run them elsewhere."""
    found = each_tool(map(flat, as_dicts(given)), lambda tool: _is_callable(flat(tool), dropped))
    return [_function(flat(tool), namespace, tools, dropped) for tool, namespace in found]


def flat(tool: Json) -> Json:
    """A tool, or a choice of one, as responses has it. Some callers send it in the form of chat."""
    kind = as_text(tool.get("type"))
    inner = as_dict(tool.get(kind)) if kind in ("function", "custom") else {}
    if tool.get("name") or not as_text(inner.get("name")):
        return tool
    return {**{key: value for key, value in tool.items() if key != kind}, **inner}


def nameless(given: Any) -> int | None:
    """The place of a function or custom tool without a name, if there is one."""
    for place, tool in enumerate(map(flat, as_dicts(given))):
        if tool.get("type") in ("function", "custom") and not as_text(tool.get("name")):
            return place
    return None


def _is_callable(tool: Json, dropped: Dropped) -> bool:
    kind = tool.get("type")
    if kind in ("function", "custom") and as_text(tool.get("name")):
        return True
    dropped.add(f"tools.{kind or 'unnamed'}")
    return False


def _function(tool: Json, namespace: Json, tools: Tools, dropped: Dropped) -> Json:
    for key in tool:
        if key not in _FIELDS and key not in _MARKS:
            dropped.add(f"tools.{key}")
    is_custom = takes_text(tool)
    if is_custom and has_grammar(tool):
        dropped.add("tools.format")
    kind = Tool(tool["name"], "custom" if is_custom else "function", as_text(namespace.get("name")))
    return as_function(tool, tools.name_of(kind), namespace)


def choice_to_chat(
    choice: Any, chat_tools: list[Json], tools: Tools, dropped: Dropped
) -> tuple[list[Json], Any]:
    """The tools to offer and the choice among them."""
    fields = flat(as_dict(choice))
    if not chat_tools:
        if choice not in (None, "auto", "none"):
            dropped.add("tool_choice")
        return chat_tools, None
    if choice in ("auto", "none", "required"):
        return chat_tools, choice
    match fields.get("type"):
        case "function" | "custom":
            name = _named(fields, tools)
            if name:
                return chat_tools, {"type": "function", "function": {"name": name}}
        case "allowed_tools":
            return _allowed(fields, chat_tools, tools, dropped)
    if choice is not None:
        dropped.add(f"tool_choice.{fields.get('type') or 'unknown'}")
    return chat_tools, None


def _named(fields: Json, tools: Tools) -> str | None:
    return tools.find(as_text(fields.get("name")), as_text(fields.get("namespace")))


def _allowed(
    fields: Json, chat_tools: list[Json], tools: Tools, dropped: Dropped
) -> tuple[list[Json], Any]:
    """A choice among some tools is the same as offering only those."""
    names: set[str | None] = set()
    for tool in map(flat, as_dicts(fields.get("tools"))):
        if tool.get("type") == "namespace":
            space = tool.get("name")
            names |= {sent for sent, own in tools.by_name.items() if own.namespace == space}
        elif (name := _named(tool, tools)) is not None:
            names.add(name)
        else:
            dropped.add(f"tool_choice.{tool.get('type')}")
    kept = [tool for tool in chat_tools if tool["function"]["name"] in names]
    if not kept:
        return [], None
    return kept, "required" if fields.get("mode") == "required" else "auto"
