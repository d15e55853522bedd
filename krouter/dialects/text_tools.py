"""Tools that take any text, as functions of one text, since few providers know another form; and
the text of their calls, taken out of the arguments again.

Source: the OpenAI API reference, "Chat Completions" and "Responses" (custom tools).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from krouter.body import dump
from krouter.dialects.base import UNREADABLE

TEXT_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The schema of a function that stands for a custom tool."""

_NOTHING: Mapping[str, Any] = {}


def takes_text(tool: Mapping[str, Any]) -> bool:
    """Whether it is a custom tool. Anthropic calls tools with a schema so, too."""
    return tool.get("type") == "custom" and "input_schema" not in tool


def as_function(
    tool: Mapping[str, Any], name: str, namespace: Mapping[str, Any] = _NOTHING
) -> dict[str, Any]:
    """A flat tool as a function tool of chat called `name`; what its namespace says of itself, and
    the grammar of a custom tool's text, are told in the description."""
    is_text = takes_text(tool)
    function: dict[str, Any] = {"name": name}
    description = _text(tool.get("description"))
    if about := _text(namespace.get("description")):
        description = f"({namespace.get('name')}: {about})\n\n{description}".strip()
    if is_text:
        description = "\n\n".join(filter(None, (description, grammar_in_words(tool))))
    elif tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    if description:
        function["description"] = description
    schema = TEXT_INPUT if is_text else tool.get("input_schema") or tool.get("parameters")
    is_schema = bool(schema) and isinstance(schema, dict)
    function["parameters"] = schema if is_schema else {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def has_grammar(tool: Mapping[str, Any]) -> bool:
    """Whether a custom tool's input follows more than no rule at all."""
    form = tool.get("format")
    return isinstance(form, dict) and form.get("type") not in (None, "text")


def grammar_in_words(tool: Mapping[str, Any]) -> str:
    """The grammar of a custom tool's input in words, since no function holds to one."""
    if not has_grammar(tool):
        return ""
    form = tool["format"]
    grammar = form["grammar"] if isinstance(form.get("grammar"), dict) else form
    definition = _text(grammar.get("definition"))
    if not definition:
        return ""
    kind = " ".join(filter(None, ("this", _text(grammar.get("syntax")), "grammar")))
    return f"The input must follow {kind}:\n{definition}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def wrapped(text: str) -> str:
    """The text of a custom tool as arguments of the function that stands for it; the same where it
    has that form already."""
    try:
        given = msgspec.json.decode(text)
    except (ValueError, *UNREADABLE):
        given = None
    if isinstance(given, dict) and given.keys() == {"input"} and isinstance(given["input"], str):
        return text
    return dump({"input": text}).decode()


def unwrapped(arguments: str) -> str:
    """The text in the arguments of such a function; arguments of another form as they are."""
    reader = TextArgument()
    return reader.feed(arguments) + reader.end()


_HEAD = ("{", '"input"', ":", '"')
_BLANKS = " \t\r\n"
_LONGEST_HEAD = 1000
"""Characters before the text begins: a model may go astray in blanks."""
_STOP = re.compile(r'["\\]')
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([^u]))", re.DOTALL)
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


class TextArgument:
    """Takes the text out of `{"input": "…"}` while its JSON comes in pieces, cut anywhere.

    Once it is clear that the arguments have another form, they pass as they are. What stands behind
    the text is left out. JSON that is not quite right, as models write it, is read as it is meant.
    """

    __slots__ = ("_held", "_high", "_read")

    def __init__(self) -> None:
        self._held = ""
        """What cannot be read before more has come: the head, or an escape."""
        self._high = ""
        """The first half of a surrogate pair."""
        self._read = self._begin

    @property
    def is_cut(self) -> bool:
        """Whether it would break off in its middle, were it to end now."""
        if self._read == self._begin:
            return self._held.strip() != ""
        return self._read == self._inside

    def feed(self, piece: str) -> str:
        """The text that `piece` adds."""
        return self._read(piece)

    def end(self) -> str:
        """What was held back, once no more comes."""
        rest, self._held = self._high + self._held, ""
        self._high = ""
        return rest if self._read == self._begin else _sound(rest)

    def _begin(self, piece: str) -> str:
        self._held += piece
        begin = _begin_of_text(self._held[:_LONGEST_HEAD])
        if begin is None and len(self._held) < _LONGEST_HEAD:
            return ""
        held, self._held = self._held, ""
        if not begin:
            self._read = _as_it_is
            return held
        self._read = self._inside
        return self._inside(held[begin:])

    def _inside(self, piece: str) -> str:
        text, self._held = self._held + piece, ""
        out, at = [self._high], 0
        self._high = ""
        while stop := _STOP.search(text, at):
            out.append(text[at : stop.start()])
            at = stop.start()
            if stop[0] == '"':
                self._read = _left_out
                return _sound("".join(out))
            if _CUT_ESCAPE.match(text, at):
                self._held, text = text[at:], text[:at]
                break
            said, at = _unescaped(text, at)
            out.append(said)
        out.append(text[at:])
        return self._whole("".join(out))

    def _whole(self, text: str) -> str:
        """Without a first half of a pair at its end."""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return _sound(text)


def _begin_of_text(text: str) -> int | None:
    """Where the text begins; 0 if there is none, None if that cannot be told yet."""
    at = 0
    for token in _HEAD:
        while text[at : at + 1] in _BLANKS and at < len(text):
            at += 1
        found = text[at : at + len(token)]
        if found != token:
            return None if token.startswith(found) else 0
        at += len(token)
    return at


def _unescaped(text: str, at: int) -> tuple[str, int]:
    """What the escape at `at` stands for, and where it ends. One that is none stands for itself:
    models forget to double the backslashes of a patch."""
    found = _ESCAPE.match(text, at)
    if found is None:
        return "\\", at + 1
    if found[1]:
        return chr(int(found[1], 16)), found.end()
    return _ESCAPED.get(found[2], found[0]), found.end()


def _sound(text: str) -> str:
    """Surrogate pairs put together; a half that stands alone is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _as_it_is(piece: str) -> str:
    return piece


def _left_out(piece: str) -> str:
    return ""
