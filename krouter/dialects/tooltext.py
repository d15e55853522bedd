"""The calls and results of tools as text that a model reads as its own conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from krouter.body import dump
from krouter.dialects.media import medium_of

_DEEPEST = 32
_ARGUMENTS = ("arguments", "args", "input", "action", "actions", "operation", "code", "queries")
_RESULTS = ("output", "outputs", "result", "results", "error")
_ABOUT = frozenset(
    "type id call_id index name namespace server_name server_label status cache_control language"
    " approval_request_id container_id created_by".split()
)
_SERVERS = ("namespace", "server_name", "server_label")
_TEXTS = frozenset(("text", "input_text", "output_text"))
_ATTACHED = frozenset(("image", "document", "file", "input_file"))
_DATA = frozenset(("inlineData", "inline_data", "fileData", "file_data"))
_ANSWERED = ("output", "result", "content", "error")
_SEALED = ("encrypted", "signature", "thought_signature", "thoughtSignature")
_UNTOLD = frozenset(("type", "cache_control", "citations"))
_UNNAMED = "unnamed"


class Names:
    """The names of the tools that were called, by the ids of the calls."""

    def __init__(self) -> None:
        self._by_id: dict[str, str] = {}

    def called(self, call: Mapping[str, Any], *ids: Any) -> str:
        """The name in a call, to be known by these ids from now on."""
        name = name_in(call)
        if name:
            self._by_id.update({one: name for one in ids if isinstance(one, str)})
        return name or _UNNAMED

    def of(self, call_id: Any, other: str = "") -> str:
        """The name that was called; else the `other`, else the id."""
        return self.known(call_id) or other or (told(call_id) if call_id else _UNNAMED)

    def known(self, call_id: Any) -> str:
        """The name that was called; empty where it is not known."""
        return self._by_id.get(call_id, "") if isinstance(call_id, str) else ""


@dataclass(slots=True)
class Said:
    """What a result holds. `mark` is the cache mark of a block that is now text."""

    text: str
    attachments: list[dict[str, Any]] = field(default_factory=list)
    mark: Any = None


def call_text(name: str, arguments: Any) -> str:
    given = "" if arguments in (None, "") else f" with {told(arguments)}"
    return f"[Called the tool {name}{given}]"


def result_text(name: str, text: str, failed: bool = False) -> str:
    head = f"[The tool {name} failed]" if failed else f"[Result of the tool {name}]"
    return f"{head}\n{text}" if text else head


def told(value: Any) -> str:
    """A text as it is, another value as JSON."""
    return value if isinstance(value, str) else dump(value).decode()


def text_block(text: str, kind: str = "text", mark: Any = None) -> dict[str, Any]:
    block = {"type": kind, "text": text}
    return {**block, "cache_control": mark} if mark else block


def result_blocks(
    name: str, said: Said, failed: bool = False, kind: str = "text"
) -> list[dict[str, Any]]:
    """A result as text, and after it what is no text."""
    return [
        text_block(result_text(name, said.text, failed), kind, said.mark),
        *said.attachments,
    ]


def name_in(call: Mapping[str, Any]) -> str:
    """The name in a call, after that of its server where it has one; empty for none."""
    name = call.get("name")
    servers = [call[key] for key in _SERVERS if call.get(key)]
    return ".".join(told(part) for part in (*servers, name) if part)


def arguments_in(call: Mapping[str, Any]) -> Any:
    """What a call gives its tool, under whichever name; None for nothing."""
    given = {key: call[key] for key in _ARGUMENTS if call.get(key) is not None}
    if not given:
        others = call.keys() - _ABOUT - frozenset(_RESULTS)
        given = {key: call[key] for key in call if key in others and not _is_sealed(key)}
        return given or None
    return next(iter(given.values())) if len(given) == 1 else given


def results_in(item: Mapping[str, Any]) -> list[Any]:
    """The blocks of what a tool has answered, under whichever names."""
    found = [item[key] for key in _RESULTS if key in item]
    return [block for value in found for block in listed(value)]


def beside_in(item: Mapping[str, Any]) -> dict[str, Any]:
    """What an item tells beside what it is about and what the tool has answered."""
    return {key: item[key] for key in item if key not in _ABOUT and key not in _RESULTS}


def answer_text(response: Any) -> str:
    """A JSON answer; the text alone where it is that and nothing else."""
    if isinstance(response, dict) and len(response) == 1:
        key, value = next(iter(response.items()))
        if key in _ANSWERED and isinstance(value, str):
            return value
    return "" if response is None else told(response)


def said_in(content: Any, keep: bool) -> Said:
    """What the content of a result says; attachments are kept apart, or told of where not."""
    texts, attachments, mark = [], [], None
    for block in listed(content):
        if isinstance(block, dict):
            if keep and _is_attachment(block):
                attachments.append(block)
                continue
            mark = block.get("cache_control") or mark
        texts.append(block if isinstance(block, str) else "\n".join(_lines(block, 0)))
    return Said("\n".join(filter(None, texts)), attachments, mark)


def listed(value: Any) -> list[Any]:
    """A list as it is, a lone value as a list of one, and nothing as an empty list."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _is_attachment(block: dict[str, Any]) -> bool:
    kind = block.get("type")
    is_known = isinstance(kind, str) and kind in _ATTACHED
    return is_known or not _DATA.isdisjoint(block) or medium_of(block) is not None


def _lines(value: Any, depth: int) -> Iterator[str]:
    """What people would read of a JSON value, less what only a provider can."""
    if depth > _DEEPEST:
        yield told(value)
    elif isinstance(value, list):
        for one in value:
            yield from _lines(one, depth + 1)
    elif isinstance(value, dict):
        yield from _fields(value, depth)
    elif value is not None and value != "":
        yield told(value)


def _fields(block: dict[str, Any], depth: int) -> Iterator[str]:
    kind = block.get("type")
    if isinstance(kind, str) and kind in _TEXTS and isinstance(text := block.get("text"), str):
        if text:
            yield text
        return
    for key, value in block.items():
        if key in _UNTOLD or _is_sealed(key) or (key == "data" and kind == "base64"):
            continue
        if isinstance(value, (dict, list)):
            lines = list(_lines(value, depth + 1))
            if lines and key != "content":
                yield f"{key}:"
            yield from lines
        elif value is not None and value != "":
            yield f"{key}: {told(value)}"


def _is_sealed(key: str) -> bool:
    return key.startswith(_SEALED)
