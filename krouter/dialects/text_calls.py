"""Chat for a caller that wants the calls of some tools as raw text: Cursor's custom tools.

The provider knows them as functions of one text. What holds no call of theirs stays the provider's
own bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from krouter.body import Body, BodyError, dump
from krouter.dialects.base import Kind, Reading, Tracker, read_loosely
from krouter.dialects.chat import Chat, ChatTracker, wanted_of
from krouter.dialects.text_tools import TextArgument
from krouter.sse import Event, with_data

_CALLS = b'"tool_calls"'


class TextCalls(Chat):
    """`names` are the tools whose calls come back as text."""

    def __init__(self, names: Set[str]) -> None:
        self._names = names

    def tracker(self, body: Body, rename: str | None) -> Tracker:
        return _Tracker(self._names, *wanted_of(body), rename)

    def read_reply(self, raw: bytes) -> Reading:
        reading = super().read_reply(raw)
        if reading.kind is not Kind.ANSWER or _CALLS not in raw:
            return reading
        return replace(reading, shown=_edited(raw, lambda choices: _whole(choices, self._names)))


class _Tracker(ChatTracker):
    def __init__(self, names: Set[str], count: int, hide_usage: bool, rename: str | None) -> None:
        super().__init__(count, rename, hide_usage)
        self._streamed = _Streamed(names)

    def feed(self, event: Event) -> bytes | None:
        data = event.data
        told = None if data is None else self._streamed.told(data)
        if told is None:
            return super().feed(event)
        turned = Event(with_data(event, told), event.name, told)
        changed = super().feed(turned)
        return turned.raw if changed is None else changed

    def skim(self, events: bytes) -> int:
        return 0 if self._streamed.may_tell(events) else super().skim(events)


@dataclass(slots=True)
class _Call:
    name: str
    id: Any
    text: TextArgument = field(default_factory=TextArgument)


class _Streamed:
    """The calls of one stream, by the places of their choice and their own."""

    def __init__(self, names: Set[str]) -> None:
        self._names = names
        self._open: dict[tuple[int, int], _Call] = {}
        self._last: dict[int, int] = {}
        """The place of each choice's last call: some hosts say it only once."""

    def told(self, data: bytes) -> bytes | None:
        """The chunk as the caller is to see it; None to leave it as it is."""
        return _edited(data, self._chunk) if self.may_tell(data) else None

    def may_tell(self, data: bytes) -> bool:
        """Whether a chunk in `data` may hold of the calls; without one it stays as it is."""
        return bool(self._open) or _CALLS in data

    def _chunk(self, choices: list[dict[str, Any]]) -> bool:
        """Whether any of it is other than it was."""
        changed = _whole(choices, self._names)
        for choice in choices:
            at = _place(choice.get("index"), 0)
            for call in _calls(choice.get("delta")):
                changed |= self._call(at, call)
            if choice.get("finish_reason"):
                changed |= self._finish(at, choice)
        return changed

    def _call(self, at: int, call: dict[str, Any]) -> bool:
        place = self._last[at] = _place(call.get("index"), self._last.get(at, 0))
        function = call["function"]
        name, known = function.get("name"), self._open.get((at, place))
        if isinstance(name, str) and name and not _is_same(known, name, call.get("id")):
            known = _Call(name, call.get("id")) if name in self._names else None
            if known is None:
                self._open.pop((at, place), None)
            else:
                self._open[at, place] = known
        return known is not None and _put(function, known.text.feed)

    def _finish(self, at: int, choice: dict[str, Any]) -> bool:
        """What the calls of a choice that ends have held back goes with its end."""
        mine = {key[1]: self._open.pop(key).text for key in list(self._open) if key[0] == at}
        is_cut = any(text.is_cut for text in mine.values())
        rests = [(place, text.end()) for place, text in mine.items()]
        late = [{"index": at, "function": {"arguments": rest}} for at, rest in rests if rest]
        if late:
            delta = choice.get("delta")
            delta = choice["delta"] = delta if isinstance(delta, dict) else {}
            delta["tool_calls"] = [*(delta.get("tool_calls") or ()), *late]
        return (is_cut and _says_cut(choice)) or bool(late)


def _is_same(known: _Call | None, name: str, call_id: Any) -> bool:
    """Some hosts say the name of a call with each of its pieces, and its place with none."""
    if known is None or known.name != name:
        return False
    return not call_id or not known.id or known.id == call_id


def _says_cut(choice: dict[str, Any]) -> bool:
    """A caller sees from JSON that it breaks off, but not from text."""
    changed: bool = choice.get("finish_reason") != "length"
    choice["finish_reason"] = "length"
    return changed


def _whole(choices: Iterable[dict[str, Any]], names: Set[str]) -> bool:
    """Turns the calls of whole messages; whether any is other than it was."""
    changed = False
    for choice in choices:
        for call in _calls(choice.get("message")):
            if _text(call["function"].get("name")) in names:
                text = TextArgument()
                changed |= _put(call["function"], text.feed)
                changed |= text.is_cut and _says_cut(choice)
                changed |= _add(call["function"], text.end())
    return changed


def _add(function: dict[str, Any], rest: str) -> bool:
    if rest:
        function["arguments"] += rest
    return bool(rest)


def _put(function: dict[str, Any], told: Callable[[str], str]) -> bool:
    """Whether the arguments are others than before; some hosts send them as an object."""
    arguments = function.get("arguments")
    given = dump(arguments).decode() if isinstance(arguments, dict) else arguments
    if not isinstance(given, str):
        return False
    function["arguments"] = told(given)
    return bool(function["arguments"] != arguments)


def _calls(said: Any) -> Iterator[dict[str, Any]]:
    calls = said.get("tool_calls") if isinstance(said, dict) else None
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and isinstance(call.get("function"), dict):
            yield call


def _place(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _edited(raw: bytes, edit: Callable[[list[dict[str, Any]]], bool]) -> bytes | None:
    """A reply or chunk with other choices, its other fields untouched; None where `edit` changes
    nothing of them."""
    body: Body | None
    try:
        body = Body.parse(raw)
        fields: Any = {"choices": body.value("choices")}
    except BodyError:  # what clients take all the same, such as an emoji cut in half
        body, fields = None, read_loosely(raw, dict)
    choices = fields.get("choices") if fields else None
    if not isinstance(choices, list) or not edit([c for c in choices if isinstance(c, dict)]):
        return None
    try:
        return dump(fields) if body is None else body.edited({"choices": choices})
    except (msgspec.MsgspecError, RecursionError):
        return None
