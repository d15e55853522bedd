"""Tools by the names they have in chat, which has no namespaces.

Source: the OpenAI API reference, "Responses"; the tools of Codex (namespaces of nested tools).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

_LONGEST_NAME = 64
_NOT_IN_TOOL_NAMES = re.compile(r"[^A-Za-z0-9_-]")

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the caller's. A custom one takes any text: chat gives it as the one argument
    `input` of a function."""

    name: str
    kind: Literal["function", "custom"] = "function"
    namespace: str = ""


@dataclass(slots=True)
class Tools:
    """The caller's tools by their names in chat."""

    by_name: dict[str, Tool] = field(default_factory=dict)
    _names: dict[tuple[str, str], str] = field(default_factory=dict)

    def name_of(self, tool: Tool) -> str:
        """The tool's name in chat; the same each time it is asked."""
        key = (tool.namespace, tool.name)
        if key not in self._names:
            self._know(tool, self._free(tool))
        return self._names[key]

    def keep(self, tool: Tool) -> str:
        """The tool's own name, which is its name in chat from now on, whatever it holds."""
        self._know(tool, tool.name)
        return tool.name

    def find(self, name: str, namespace: str = "") -> str | None:
        """The name in chat of a tool that is known."""
        found = self._names.get((namespace, name))
        if found or namespace:
            return found
        return next((sent for (_, own), sent in self._names.items() if own == name), None)

    def _know(self, tool: Tool, name: str) -> None:
        self._names[tool.namespace, tool.name] = name
        self.by_name[name] = tool

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


def each_tool(
    given: Iterable[_Json], is_wanted: Callable[[_Json], bool]
) -> Iterator[tuple[_Json, _Json]]:
    """The wanted tools, those in namespaces too, each with its namespace or nothing. The first
    wanted one alone has the namespace's description."""
    for tool in given:
        if tool.get("type") == "namespace" and _is_named(tool):
            space, inner = tool, tool.get("tools")
            for each in inner if isinstance(inner, list) else ():
                if isinstance(each, dict) and is_wanted(each):
                    yield each, space
                    space = {**tool, "description": ""}
        elif is_wanted(tool):
            yield tool, {}


def _is_named(tool: _Json) -> bool:
    return isinstance(tool.get("name"), str) and tool["name"] != ""
